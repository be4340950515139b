//! What a Shard is fed: requests from outside, and what its store answered.

use crate::coordinator::command::Envelope;
use crate::coordinator::row::Row;
use crate::id::{Batch, Ownership, RequestId, RunId, TenantId};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What a Shard is fed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// The partition is this Shard's own, under a fencing number that nobody had before.
    Own {
        /// The fencing number.
        ownership: Ownership,
    },
    /// The rows that [`Order::Load`](super::effect::Order::Load) asked for.
    Loaded {
        /// Under which fencing number they were read.
        ownership: Ownership,
        /// What came of it.
        opening: Opening,
    },
    /// Somebody asks for something.
    Command(Envelope),
    /// Somebody wants to see a run.
    Look {
        /// Comes back with the view.
        request: RequestId,
        /// Whose.
        tenant: TenantId,
        /// Which.
        run: RunId,
    },
    /// What came of a commit, or of an ownership check.
    Answered {
        /// Which.
        ticket: u64,
        /// What came of it.
        outcome: Outcome,
    },
    /// What the store says about the partition.
    Resolved {
        /// For which ticket it was asked.
        ticket: u64,
        /// Who owns it, and its last batch; none if the store did not answer.
        found: Option<(Ownership, Batch)>,
    },
    /// Rows that were needed.
    Fetched {
        /// Which fetch.
        fetch: u64,
        /// The rows; none if the store did not answer.
        rows: Option<Vec<Row>>,
    },
    /// Time passed.
    Pulse,
    /// Give the partition up, once all is durable.
    Close,
}

/// What came of reading a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Opening {
    /// Its last batch, and all rows of what is resident.
    Rows {
        /// Number of its last commit.
        batch: Batch,
        /// The rows.
        rows: Vec<Row>,
    },
    /// The store could not be read, or somebody else owns the partition by now.
    Failed,
    /// The store was read, and what it holds is damaged or of a newer schema (S48).
    Damaged,
}

/// What came of a commit or of an ownership check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is durable, or the ownership holds.
    Durable,
    /// It was not applied, and never will be by this sending: disk full, serialization failure, an earlier batch missing.
    NotApplied,
    /// Another owns the partition (S11).
    Fenced,
    /// It was sent, and nobody knows whether it was applied.
    Unknown,
    /// The store failed in a way after which it can not be trusted before it is opened anew (S47).
    Failed,
}
