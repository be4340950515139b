//! A run in memory: its row, its nodes, its inboxes, and what is derived from them.

use super::{Inbox, LeaseKey};
use crate::coordinator::row::{RunHead, Work};
use crate::id::{HandleIx, NodeIx};
use crate::lifecycle::{Phase, RunStatus};
use crate::time::Time;
use alloc::boxed::Box;

/// A run in memory.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) head: RunHead,
    /// The run as one piece of work, under `scope: run`.
    pub(crate) whole: Option<Box<Node>>,
    pub(crate) nodes: Nodes,
    /// In order of node and handle.
    pub(crate) inboxes: Box<[Inbox]>,
    /// Derived: nodes that are not terminal.
    pub(crate) open: u32,
    /// Derived: nodes that move, or would as soon as a worker came.
    pub(crate) active: u32,
    /// Derived: nodes that are suspended.
    pub(crate) suspended: u32,
    /// Derived: leases and offers, of nodes and of the whole run.
    pub(crate) held: u32,
    /// Volatile: the last step that raised the version.
    pub(crate) stepped: u64,
    /// When its own timer is armed.
    pub(crate) armed: Time,
    /// Its row is to be written.
    pub(crate) touched: bool,
}

/// A piece of work in memory.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) work: Work,
    /// Derived from the set of completed predecessors (S19): how many more the join needs.
    pub(crate) missing: u32,
    /// Where its lease is linked in.
    pub(crate) lease: Option<LeaseKey>,
    /// Derived: it stands in a queue.
    pub(crate) queued: bool,
    /// Volatile: last sign of progress, or when it was offered; a restart gives its full time again.
    pub(crate) shown_at: Time,
    /// When its timer is armed.
    pub(crate) armed: Time,
    /// Its row is to be written.
    pub(crate) touched: bool,
}

/// The nodes of a run; most runs have one, and it lies in the run.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "a run with one node is the common case and one allocation")]
pub(crate) enum Nodes {
    One(Node),
    Many(Box<[Node]>),
}

impl Nodes {
    pub(crate) fn as_slice(&self) -> &[Node] {
        match self {
            Self::One(node) => core::slice::from_ref(node),
            Self::Many(nodes) => nodes,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [Node] {
        match self {
            Self::One(node) => core::slice::from_mut(node),
            Self::Many(nodes) => nodes,
        }
    }
}

impl Node {
    pub(crate) fn new(work: Work, missing: u32) -> Self {
        let shown_at = work.since;
        Self { work, missing, lease: None, queued: false, shown_at, armed: Time::NEVER, touched: false }
    }

    pub(crate) fn phase(&self) -> Phase {
        self.work.phase
    }
}

impl Run {
    pub(crate) fn node(&self, node: NodeIx) -> &Node {
        if node.is_whole_run() {
            self.whole.as_ref().expect("only a run held as a whole is work")
        } else {
            &self.nodes.as_slice()[node.index()]
        }
    }

    pub(crate) fn node_mut(&mut self, node: NodeIx) -> &mut Node {
        if node.is_whole_run() {
            self.whole.as_mut().expect("only a run held as a whole is work")
        } else {
            &mut self.nodes.as_mut_slice()[node.index()]
        }
    }

    pub(crate) fn work(&self, node: NodeIx) -> &Work {
        &self.node(node).work
    }

    pub(crate) fn has_node(&self, node: NodeIx) -> bool {
        if node.is_whole_run() { self.whole.is_some() } else { node.index() < self.nodes.as_slice().len() }
    }

    /// The piece of work whose lease covers this node: itself, or the whole run.
    pub(crate) fn held_as(&self, node: NodeIx) -> NodeIx {
        if self.whole.is_some() { NodeIx::WHOLE_RUN } else { node }
    }

    pub(crate) fn node_ixs(&self) -> impl Iterator<Item = NodeIx> + Clone + use<> {
        (0..self.nodes.as_slice().len() as u32).map(NodeIx::new)
    }

    /// All pieces of work: nodes in order, then the whole run.
    pub(crate) fn work_ixs(&self) -> impl Iterator<Item = NodeIx> + use<> {
        self.node_ixs().chain(self.whole.as_ref().map(|_| NodeIx::WHOLE_RUN))
    }

    pub(crate) fn inbox(&self, node: NodeIx, handle: HandleIx) -> Option<&Inbox> {
        let at =
            self.inboxes.binary_search_by_key(&(node, handle), |inbox| (inbox.row.node, inbox.row.handle));
        at.ok().map(|at| &self.inboxes[at])
    }

    pub(crate) fn inbox_mut(&mut self, node: NodeIx, handle: HandleIx) -> &mut Inbox {
        let at =
            self.inboxes.binary_search_by_key(&(node, handle), |inbox| (inbox.row.node, inbox.row.handle));
        &mut self.inboxes[at.expect("a declared handle has an inbox")]
    }

    /// The inboxes of a node.
    pub(crate) fn inboxes_of(&self, node: NodeIx) -> &[Inbox] {
        let from = self.inboxes.partition_point(|inbox| inbox.row.node < node);
        let to = self.inboxes.partition_point(|inbox| inbox.row.node <= node);
        &self.inboxes[from..to]
    }

    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.head.status, RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled)
    }

    /// True if nothing moves and something waits to be woken.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.active == 0 && self.suspended > 0
    }

    /// The earliest timer of its suspended nodes.
    pub(crate) fn earliest_wake(&self) -> Time {
        let suspended = self.nodes.as_slice().iter().filter(|node| node.phase() == Phase::Suspended);
        suspended.map(|node| node.work.until).min().unwrap_or(Time::NEVER)
    }
}
