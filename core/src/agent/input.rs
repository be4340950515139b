//! What an Agent is fed: answers and notices of partitions, what its executor says, and the wishes of its process.

use crate::coordinator::command::{Held, Report};
use crate::coordinator::effect::{Answer, Effect, Grant};
use crate::coordinator::event::StopReason;
use crate::coordinator::rejection::Rejection;
use crate::id::RequestId;
use alloc::boxed::Box;
use serde::{Deserialize, Serialize};

/// What an Agent is fed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Register with every partition, and work.
    Begin,
    /// Register again with a partition where this Agent was fenced. Only a person or a supervisor decides that (L10).
    Restart {
        /// Which.
        partition: u16,
    },
    /// Take nothing new, finish what runs, and leave.
    Drain {
        /// Stop what still runs after this long; never, if none.
        within_ms: Option<u64>,
    },
    /// A partition answered a request.
    Replied {
        /// Which.
        partition: u16,
        /// The request.
        request: RequestId,
        /// The answer.
        result: Result<Answer, Rejection>,
    },
    /// A partition said something unasked. It is a hint: it may be lost, late or said twice.
    Noticed {
        /// Which.
        partition: u16,
        /// What it said.
        notice: Notice,
    },
    /// The executor reports on a piece of work that it was told to start. The Agent fills in the attempt.
    Reported(Report),
    /// The executor no longer executes this, and has nothing to report on it.
    Stopped {
        /// What.
        held: Held,
    },
    /// Time passed.
    Pulse,
}

/// What a partition says unasked: the effects that name a worker, as that worker sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// This may be yours, if you accept.
    Offer(Box<Grant>),
    /// This node is yours, under the lease of its run.
    Hand(Box<Grant>),
    /// Stop this.
    Stop {
        /// What.
        held: Held,
        /// Why.
        reason: StopReason,
    },
    /// A poll may find something.
    Wake,
}

impl Notice {
    /// The notice in an effect, if it is meant for a worker.
    pub fn of(effect: &Effect) -> Option<Self> {
        match effect {
            Effect::Offer { grant, .. } => Some(Self::Offer(grant.clone())),
            Effect::Hand { grant, .. } => Some(Self::Hand(grant.clone())),
            Effect::Stop { held, reason, .. } => Some(Self::Stop { held: *held, reason: *reason }),
            Effect::Wake { .. } => Some(Self::Wake),
            Effect::Reply { .. }
            | Effect::NobodyLeft { .. }
            | Effect::Room { .. }
            | Effect::Deliver { .. }
            | Effect::RegisterTrigger { .. }
            | Effect::RunEnded { .. } => None,
        }
    }
}
