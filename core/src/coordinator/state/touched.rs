//! What a batch has touched: enough to write each row once.

use super::WorkerKey;
use crate::coordinator::row::Change;
use crate::id::{HandleIx, NodeIx, OutboxId};
use crate::time::Time;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What was touched since the rows were last taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Touched {
    pub(crate) meta: bool,
    /// Slots of runs whose own row changed; a run leaves memory only when nothing of it is touched.
    pub(crate) runs: Vec<u32>,
    /// Nodes of runs with several.
    pub(crate) nodes: Vec<(u32, NodeIx)>,
    pub(crate) inboxes: Vec<(u32, NodeIx, HandleIx)>,
    pub(crate) workers: Vec<WorkerKey>,
    pub(crate) outbox: BTreeSet<OutboxId>,
    /// Runs that may leave memory once their rows are written.
    pub(crate) leaving: Vec<u64>,
    /// What ended and is not kept beyond this is to be forgotten.
    pub(crate) forget: Option<Time>,
    /// Changes that are complete as they stand: history, late results, messages, definitions.
    pub(crate) changes: Vec<Change>,
}
