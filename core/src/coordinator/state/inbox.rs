//! An inbox in memory: its row, the messages that are not settled, and the ids it remembers.

use crate::coordinator::command::MessageKey;
use crate::coordinator::row::{InboxRow, MessageRow};
use crate::id::{ContentHash, MessageId, Seq};
use crate::time::Time;
use alloc::collections::{BTreeMap, VecDeque};

/// An inbox in memory.
#[derive(Debug, Clone)]
pub(crate) struct Inbox {
    pub(crate) row: InboxRow,
    /// From `settled + 1` to `last`, without gaps (S23).
    pub(crate) messages: VecDeque<MessageRow>,
    /// Ids of messages that have one of their own, settled ones included (S22).
    pub(crate) ids: BTreeMap<MessageId, (ContentHash, Seq)>,
    /// Cursor of the last message settled since the inbox was loaded.
    pub(crate) settled_cursor: Option<u64>,
    /// Volatile: when the claimed ones were claimed; a restart gives the full time again.
    pub(crate) claimed_at: Time,
    /// When its timer is armed.
    pub(crate) armed: Time,
    /// Its row is to be written.
    pub(crate) touched: bool,
}

impl Inbox {
    pub(crate) fn new(row: InboxRow) -> Self {
        Self {
            row,
            messages: VecDeque::new(),
            ids: BTreeMap::new(),
            settled_cursor: None,
            claimed_at: Time::ZERO,
            armed: Time::NEVER,
            touched: false,
        }
    }

    /// Takes a message in; it must be the next, or a settled one whose id is remembered.
    pub(crate) fn add(&mut self, message: MessageRow) {
        if let MessageKey::Own(id) = message.id {
            self.ids.insert(id, (message.value.hash, message.at.seq));
        }
        if message.at.seq > self.row.settled {
            self.messages.push_back(message);
        }
    }

    pub(crate) fn message(&self, seq: Seq) -> Option<&MessageRow> {
        let index = seq.get().checked_sub(self.row.settled.get() + 1)?;
        self.messages.get(index as usize)
    }
}
