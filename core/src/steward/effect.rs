//! What a Steward wants done.

use crate::id::Ownership;
use serde::{Deserialize, Serialize};

/// Something for the store or for this server's Shards to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Store: write this server's sign of life, unless a higher count is there: a late one must not undo a leave.
    Beat {
        /// The count.
        beat: u64,
        /// It takes nothing new.
        leaving: bool,
    },
    /// Store: read who lives and who has what.
    Survey,
    /// Store: make this server the owner, under the next fencing number, if the last one given out is still this.
    Take {
        /// Which.
        partition: u16,
        /// What was seen; none if it never had an owner.
        seen: Ownership,
    },
    /// Store: nobody has it any more, if this is still its owner.
    Free {
        /// Which.
        partition: u16,
        /// As which owner.
        ownership: Ownership,
    },
    /// Shard: the partition is yours.
    Open {
        /// Which.
        partition: u16,
        /// Under which fencing number.
        ownership: Ownership,
    },
    /// Shard: finish and let go.
    Close {
        /// Which.
        partition: u16,
    },
    /// All was given up: the process may end.
    Gone,
}
