//! What core knows of a payload: how long it is, its hash, and where its bytes are. The bytes never enter core.

use crate::id::ContentHash;
use serde::{Deserialize, Serialize};

/// A payload by reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Value {
    /// Hash of the bytes, made at the edge and verified when they are read.
    pub hash: ContentHash,
    /// Number of bytes.
    pub len: u64,
    /// Where they are.
    pub place: Place,
}

/// Where the bytes of a [`Value`] are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Place {
    /// In the row itself; they travel beside the command and are stored in the same commit.
    Inline,
    /// In the payload store, under their hash.
    Stored,
    /// At an address outside that the bytes of the inline part name.
    External,
}

impl Value {
    /// No bytes at all.
    pub const EMPTY: Self = Self { hash: ContentHash::new(0), len: 0, place: Place::Inline };

    /// An inline payload.
    pub const fn inline(hash: ContentHash, len: u64) -> Self {
        Self { hash, len, place: Place::Inline }
    }

    /// True if there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}
