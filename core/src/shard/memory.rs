//! The obvious store behind a Shard: who owns a partition, its last batch, and its rows. It is what an order means, said
//! once; tests run on it, and other stores are compared with it. It is not durable.

use super::command::{Input, Opening, Outcome};
use super::effect::Order;
use crate::coordinator::memory::MemoryStore;
use crate::coordinator::row::Change;
use crate::id::{Batch, Ownership};

/// One partition of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryPartition {
    ownership: Ownership,
    batch: Batch,
    store: MemoryStore,
}

impl MemoryPartition {
    /// Gives the partition to a new owner, under a fencing number that nobody had before.
    pub fn give_out(&mut self) -> Ownership {
        self.ownership = self.ownership.next();
        self.ownership
    }

    /// Who owns it, and its last batch.
    pub fn last(&self) -> (Ownership, Batch) {
        (self.ownership, self.batch)
    }

    /// Its rows.
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// What its owner begins with.
    pub fn open(&self, ownership: Ownership) -> Opening {
        if ownership != self.ownership {
            return Opening::Failed;
        }
        Opening::Rows { batch: self.batch, rows: self.store.resident().cloned().collect() }
    }

    /// Applies a batch, all of it or nothing: under its owner only (S11), and right after the batch before it.
    pub fn commit(
        &mut self,
        ownership: Ownership,
        batch: Batch,
        changes: impl IntoIterator<Item = Change>,
    ) -> Outcome {
        if ownership != self.ownership {
            return Outcome::Fenced;
        }
        if batch > self.batch.next() {
            return Outcome::NotApplied;
        }
        if batch == self.batch.next() {
            self.batch = batch;
            self.store.commit(changes);
        }
        Outcome::Durable
    }

    /// Looks whether this is still the owner.
    pub fn check(&self, ownership: Ownership) -> Outcome {
        if ownership == self.ownership { Outcome::Durable } else { Outcome::Fenced }
    }

    /// Does what a Shard ordered, and gives the answer, if there is one to give.
    pub fn carry_out(&mut self, order: &Order) -> Option<Input> {
        let (ticket, outcome) = match order {
            Order::Load { ownership } => {
                return Some(Input::Loaded { ownership: *ownership, opening: self.open(*ownership) });
            }
            Order::Resolve { ticket } => {
                return Some(Input::Resolved { ticket: *ticket, found: Some(self.last()) });
            }
            Order::Fetch { fetch, ownership, needs } => {
                let is_owner = self.check(*ownership) == Outcome::Durable;
                let rows = is_owner.then(|| self.store.find(needs));
                return Some(Input::Fetched { fetch: *fetch, rows });
            }
            Order::Released { .. } | Order::Lost { .. } | Order::Broken { .. } => return None,
            Order::Commit { ticket, ownership, batch, changes, .. } => {
                (*ticket, self.commit(*ownership, *batch, changes.iter().cloned()))
            }
            Order::Check { ticket, ownership } => (*ticket, self.check(*ownership)),
        };
        Some(Input::Answered { ticket, outcome })
    }
}
