//! What a Steward is fed: what the store says about servers and partitions, and what this server's Shards say.

use crate::id::{Ownership, ServerId};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What a Steward is fed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// What the store says; none if it did not answer.
    Surveyed(Option<Survey>),
    /// What came of taking a partition.
    Took {
        /// Which.
        partition: u16,
        /// The fencing number of this server, if it got it.
        ownership: Option<Ownership>,
    },
    /// The store knows that this server gave a partition up.
    Freed {
        /// Which.
        partition: u16,
        /// As which owner.
        ownership: Ownership,
    },
    /// A Shard finished what it did and let go.
    Released {
        /// Of which partition.
        partition: u16,
        /// As which owner.
        ownership: Ownership,
    },
    /// A Shard lost its partition.
    Lost {
        /// Which.
        partition: u16,
        /// As which owner.
        ownership: Ownership,
    },
    /// This server shuts down: give up everything, in order.
    Leave,
    /// Time passed.
    Pulse,
}

/// What the store says about servers and partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Survey {
    /// Every server that ever showed itself.
    pub servers: Vec<ServerBeat>,
    /// Every partition that ever had an owner.
    pub partitions: Vec<Owned>,
}

/// A server's sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerBeat {
    /// Who.
    pub server: ServerId,
    /// Only whether it changes means anything.
    pub beat: u64,
    /// It shuts down and takes nothing new.
    pub leaving: bool,
}

/// Who has a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned {
    /// Which.
    pub partition: u16,
    /// Who, if anybody.
    pub owner: Option<ServerId>,
    /// The last fencing number given out.
    pub ownership: Ownership,
}
