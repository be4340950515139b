//! What a Shard wants done: orders to its store at once, effects to the outside once they may leave.

use crate::coordinator::BadRows;
use crate::coordinator::command::Need;
use crate::coordinator::effect::Effect;
use crate::coordinator::event::Stamped;
use crate::coordinator::query::RunView;
use crate::coordinator::row::Change;
use crate::id::{Batch, Ownership, RequestId};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Where a Shard puts what it has to say. The caller owns it and uses it again.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// For the store, in this order.
    pub orders: Vec<Order>,
    /// To be done now: the rows behind them are durable, and the partition was still ours (S12, S45).
    pub effects: Vec<Release>,
}

impl Output {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.orders.clear();
        self.effects.clear();
    }
}

/// Something that may leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// What the Coordinator wants done.
    Effect(Effect),
    /// What somebody wanted to see.
    View {
        /// Who asked.
        request: RequestId,
        /// The run, if there is one.
        view: Option<Box<RunView>>,
    },
    /// Nothing was done about this request. It may be sent again, here or to the owner.
    NotTaken {
        /// Which.
        request: RequestId,
        /// Why.
        why: NotTaken,
    },
}

/// Why nothing was done about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NotTaken {
    /// This Shard does not serve the partition, or does not any more.
    NotOwner,
    /// Too much waits for the store: send it again later.
    Busy,
}

/// Something for the store to do. All but the last three are answered, and whoever waits in vain for a store says so after a
/// time of its own: a Shard has no deadline for what is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Read the partition: its last batch and all rows of what is resident.
    Load {
        /// Only if this is still its owner.
        ownership: Ownership,
    },
    /// Apply all of these rows or none, durably, in the order of batches.
    Commit {
        /// Comes back with the answer.
        ticket: u64,
        /// Refuse it under any other owner.
        ownership: Ownership,
        /// Refuse it unless the batch before it is the last. A batch that is there already is durable.
        batch: Batch,
        /// The rows.
        changes: Arc<Vec<Change>>,
        /// What happened, best effort: a failing audit never fails a commit.
        audit: Arc<Vec<Stamped>>,
    },
    /// Look whether this is still the owner.
    Check {
        /// Comes back with the answer.
        ticket: u64,
        /// The owner that asks.
        ownership: Ownership,
    },
    /// Read back who owns the partition, and its last batch.
    Resolve {
        /// Comes back with the answer.
        ticket: u64,
    },
    /// Look up what is not in memory.
    Fetch {
        /// Comes back with the rows.
        fetch: u64,
        /// Give no rows under any other owner: they may be newer than what this Shard knows, and of another time.
        ownership: Ownership,
        /// What.
        needs: Vec<Need>,
    },
    /// All is durable, and the partition may go to another server.
    Released {
        /// As this owner.
        ownership: Ownership,
    },
    /// The partition is not this Shard's any more. Requests without an answer have none: what became of them is not known.
    Lost {
        /// As this owner.
        ownership: Ownership,
        /// Why.
        why: Loss,
    },
    /// The rows do not belong together. Nothing was changed; somebody has to look.
    Broken {
        /// As this owner.
        ownership: Ownership,
        /// What is wrong with them; none if the store itself found the damage.
        why: Option<BadRows>,
    },
}

/// Why a Shard lost its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// Another owns it.
    Fenced,
    /// Whether a commit was applied could not be found out in time.
    Unresolved,
    /// The store failed.
    StoreFailed,
    /// The rows could not be read.
    NotLoaded,
}
