//! What a batch has touched: enough to write each row once.

use super::{Nodes, Run, WorkerKey};
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

impl Touched {
    /// A run changes in this step: its version rises once per step (S3), and its row is to be written.
    pub(crate) fn change_run(&mut self, slot: u32, run: &mut Run, step: u64) {
        self.run(slot, run);
        if run.stepped != step {
            run.stepped = step;
            run.head.version = run.head.version.next();
        }
    }

    /// A run's own row is to be written.
    fn run(&mut self, slot: u32, run: &mut Run) {
        if !run.touched {
            run.touched = true;
            self.runs.push(slot);
        }
    }

    /// A piece of work's row is to be written: its own if it has one, or else its run's.
    pub(crate) fn work(&mut self, slot: u32, run: &mut Run, node: NodeIx) {
        match &mut run.nodes {
            Nodes::Many(nodes) if !node.is_whole_run() => {
                let entry = &mut nodes[node.index()];
                if !entry.touched {
                    entry.touched = true;
                    self.nodes.push((slot, node));
                }
            }
            _ => self.run(slot, run),
        }
    }
}
