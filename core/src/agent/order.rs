//! What must be done for an Agent: requests to partitions, and orders to its executor. Nothing here was done yet.

use crate::coordinator::command::{Command, Held};
use crate::coordinator::effect::{Grant, Reported};
use crate::coordinator::event::StopReason;
use crate::coordinator::rejection::Rejection;
use crate::id::{Incarnation, RequestId};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Where an Agent puts what it has to say. The caller owns it and uses it again.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// To be done, in this order.
    pub orders: Vec<Order>,
}

impl Output {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.orders.clear();
    }
}

/// Something to be done outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Send a request to whoever owns a partition, in an envelope with the Agent's tenant.
    Send {
        /// To which.
        partition: u16,
        /// Comes back with the reply.
        request: RequestId,
        /// What is asked.
        command: Command,
    },
    /// Execute this. The partition knows that it started.
    Start {
        /// All that an execution needs to know.
        grant: Box<Grant>,
    },
    /// Stop executing this at once, and say so; an outcome that was reached before says so too.
    Stop {
        /// What.
        held: Held,
        /// Why.
        why: Why,
    },
    /// Answer the executor's report. A bare sign of progress is not answered.
    Answer {
        /// On what.
        held: Held,
        /// With what.
        result: Result<Reported, Refusal>,
    },
    /// Tell the process that another life of this worker took its place in a partition.
    Fenced {
        /// Where.
        partition: u16,
        /// The life that is current there.
        current: Incarnation,
    },
    /// Tell the process that a partition would not register this worker. It is tried again.
    Unregistered {
        /// Where.
        partition: u16,
        /// Why.
        rejection: Rejection,
    },
    /// Tell the process that it may end: nothing is held, and every partition was told.
    Drained,
}

/// Why an execution must stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Why {
    /// The partition asked for it.
    Asked(StopReason),
    /// The lease was not confirmed in time, so another worker may have the work (S9).
    Unconfirmed,
    /// The work is no longer this worker's.
    Lost,
    /// Another life of this worker took its place.
    Fenced,
    /// The time for draining is over.
    Draining,
}

/// Why a report of the executor came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The partition refused it. The work is still held, and still runs: do something else about it.
    Rejected(Rejection),
    /// The work is over, or no longer this worker's; nothing more can be reported on it.
    Lost,
    /// The work is not running here, or its outcome is being reported.
    NotRunning,
    /// Only the Agent itself says that.
    NotYours,
    /// Too many reports on it wait to be sent; wait for an answer.
    Busy,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected(rejection) => rejection.fmt(f),
            Self::Lost => f.write_str("the work is over, or another worker has it; stop"),
            Self::NotRunning => f.write_str("the work is not running here, or its outcome is being reported"),
            Self::NotYours => f.write_str("only the agent accepts, declines, delegates and starts work"),
            Self::Busy => f.write_str("too many reports on this work wait; wait for an answer first"),
        }
    }
}

impl core::error::Error for Refusal {}
