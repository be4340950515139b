//! Names for things: `Copy` newtypes with private fields, compared exactly.
//!
//! Ids are never made here. They come in with the input; the one exception is a run's id, whose dense number
//! the Coordinator counts up and whose random part the submitter supplies.

use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

/// Text that is not an id: it must be 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnId;

impl fmt::Display for NotAnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 32 hexadecimal digits")
    }
}

impl core::error::Error for NotAnId {}

macro_rules! id128 {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name { hi: u64, lo: u64 }

        impl $name {
            /// The id with this value.
            pub const fn new(value: u128) -> Self {
                Self { hi: (value >> 64) as u64, lo: value as u64 }
            }

            /// The value of this id.
            pub const fn value(self) -> u128 {
                (self.hi as u128) << 64 | self.lo as u128
            }

            #[allow(dead_code, reason = "not every id is taken apart")]
            pub(crate) const fn halves(self) -> (u64, u64) {
                (self.hi, self.lo)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}{:016x}", self.hi, self.lo)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:016x}{:016x})", stringify!($name), self.hi, self.lo)
            }
        }

        impl FromStr for $name {
            type Err = NotAnId;

            fn from_str(text: &str) -> Result<Self, NotAnId> {
                if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(NotAnId);
                }
                u128::from_str_radix(text, 16).map(Self::new).map_err(|_| NotAnId)
            }
        }
    )*};
}

id128! {
    /// A run: partition ‖ dense number ‖ random part.
    RunId;
    /// Whose it is. Every run, key, worker and limit carries one, taken from the credential.
    TenantId;
    /// Whoever executes; its life number is the [`Incarnation`].
    WorkerId;
    /// A hash of a submitter's idempotency key, made at the edge.
    KeyHash;
    /// A hash of content (a payload, a request, a definition), made at the edge.
    ContentHash;
    /// A message's own id, unique within its inbox.
    MessageId;
    /// A server, in one life of its process.
    ServerId;
}

impl RunId {
    /// How many bits of the id count runs within a partition.
    pub const NUMBER_BITS: u32 = 48;

    /// The id of run `number` of `partition`, made hard to guess by `random`.
    pub const fn compose(partition: u16, number: u64, random: u64) -> Self {
        assert!(number < 1 << Self::NUMBER_BITS, "run numbers have 48 bits");
        Self { hi: (partition as u64) << Self::NUMBER_BITS | number, lo: random }
    }

    /// The partition that decides about this run.
    pub const fn partition(self) -> u16 {
        (self.hi >> Self::NUMBER_BITS) as u16
    }

    /// The dense number within the partition; rows are keyed by it.
    pub const fn number(self) -> u64 {
        self.hi & ((1 << Self::NUMBER_BITS) - 1)
    }
}

macro_rules! count {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        pub struct $name($inner);

        impl $name {
            /// Wraps the number.
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The number.
            pub const fn get(self) -> $inner {
                self.0
            }

            #[allow(dead_code, reason = "not every number is counted up here")]
            pub(crate) const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

count! {
    /// The fencing number of a grant; only grows within a partition.
    Epoch(u64);
    /// A worker id's life number; a newer one fences the older.
    Incarnation(u64);
    /// Which unbroken stretch of a worker's liveness a lease belongs to.
    Session(u32);
    /// Which time a run is opened: 1, and one more for each retry by hand.
    Series(u32);
    /// Number of a start within a series.
    Attempt(u32);
    /// How often a run has changed.
    Version(u64);
    /// Position of a message within its inbox; gapless, from 1.
    Seq(u64);
    /// A worker's own number for a poll, growing within an incarnation.
    PollId(u64);
    /// Which content of a definition, from 1.
    DefinitionVersion(u32);
    /// A definition and version of this partition, in the order they came.
    DefinitionId(u32);
    /// Position of a node in its definition.
    NodeIx(u32);
    /// Position of an inbox handle in its node.
    HandleIx(u16);
    /// The caller's own number for a request; it comes back with the reply.
    RequestId(u64);
    /// Number of something owed to the outside, growing within a partition.
    OutboxId(u64);
    /// The fencing number of a partition's owner; a store refuses the commits of a lower one (S11).
    Ownership(u64);
    /// Number of a commit within a partition, gapless over all owners.
    Batch(u64);
}

impl NodeIx {
    /// Stands for the run itself where a run is held as one piece of work (`scope: run`).
    pub const WHOLE_RUN: Self = Self(u32::MAX);

    /// True for the run itself.
    pub const fn is_whole_run(self) -> bool {
        self.0 == u32::MAX
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Epoch {
    /// How many low bits count grants; the bits above jump when a backup is restored.
    pub const COUNT_BITS: u32 = 48;

    /// The first epoch after this one's high part was raised, so that no epoch is minted twice after a restore.
    pub const fn jump(self) -> Self {
        Self(((self.0 >> Self::COUNT_BITS) + 1) << Self::COUNT_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_run_id_carries_its_partition_and_number() {
        let id = RunId::compose(7, 1234, 0xdead_beef);
        assert_eq!((id.partition(), id.number()), (7, 1234));
        assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
        assert_eq!("7".parse::<RunId>(), Err(NotAnId));
        assert_eq!("+0000000000000000000000000000007".parse::<RunId>(), Err(NotAnId));
    }

    #[test]
    fn a_restored_partition_never_mints_an_old_epoch_again() {
        assert!(Epoch::new(5).jump() > Epoch::new((1 << Epoch::COUNT_BITS) - 1));
    }
}
