//! The obvious table of servers and partitions: what the orders of a Steward mean to a store, said once. Tests run on it,
//! and other stores are compared with it.

use super::command::{Input, Owned, ServerBeat, Survey};
use super::effect::Order;
use crate::id::{Ownership, ServerId};
use alloc::collections::BTreeMap;

/// Who lives, and who has what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryTable {
    servers: BTreeMap<ServerId, (u64, bool)>,
    partitions: BTreeMap<u16, (Option<ServerId>, Ownership)>,
}

impl MemoryTable {
    /// What the store says.
    pub fn survey(&self) -> Survey {
        let beat = |(server, (beat, leaving)): (&ServerId, &(u64, bool))| ServerBeat {
            server: *server,
            beat: *beat,
            leaving: *leaving,
        };
        let owned = |(partition, (owner, ownership)): (&u16, &(Option<ServerId>, Ownership))| Owned {
            partition: *partition,
            owner: *owner,
            ownership: *ownership,
        };
        Survey {
            servers: self.servers.iter().map(beat).collect(),
            partitions: self.partitions.iter().map(owned).collect(),
        }
    }

    /// Who has a partition, under which number.
    pub fn owner(&self, partition: u16) -> (Option<ServerId>, Ownership) {
        self.partitions.get(&partition).copied().unwrap_or_default()
    }

    /// Makes this server the owner under the next number, if the last one given out is what it saw.
    pub fn take(&mut self, server: ServerId, partition: u16, seen: Ownership) -> Option<Ownership> {
        let (owner, last) = self.partitions.entry(partition).or_default();
        if *last != seen {
            return None;
        }
        (*owner, *last) = (Some(server), last.next());
        Some(*last)
    }

    /// Nobody has it any more, if this was still its owner.
    pub fn free(&mut self, partition: u16, ownership: Ownership) {
        if let Some((owner, last)) = self.partitions.get_mut(&partition)
            && *last == ownership
        {
            *owner = None;
        }
    }

    /// Does what a Steward ordered, and gives the answer, if there is one to give. What is for Shards is left alone.
    pub fn carry_out(&mut self, server: ServerId, order: &Order) -> Option<Input> {
        match *order {
            Order::Beat { beat, leaving } => {
                let known = self.servers.entry(server).or_default();
                *known = (*known).max((beat, leaving));
                None
            }
            Order::Survey => Some(Input::Surveyed(Some(self.survey()))),
            Order::Take { partition, seen } => {
                Some(Input::Took { partition, ownership: self.take(server, partition, seen) })
            }
            Order::Free { partition, ownership } => {
                self.free(partition, ownership);
                Some(Input::Freed { partition, ownership })
            }
            Order::Open { .. } | Order::Close { .. } | Order::Gone => None,
        }
    }
}
