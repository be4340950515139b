//! What people write: a graph of nodes with their settings. Pure data; [`crate::graph`] checks it.

use crate::id::WorkerId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A name as people write it. Ids for outside use are hashes of names; within a definition the name itself is kept.
pub type Name = Box<str>;

/// A graph of nodes, to be run any number of times.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Definition {
    /// Under which it is submitted; versions of one name follow each other.
    pub name: Name,
    /// The steps.
    pub nodes: Vec<NodeSpec>,
    /// What leads from step to step, by node names.
    pub edges: Vec<Edge>,
    /// What holds for the whole run.
    pub settings: RunSettings,
}

/// One step of a graph.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Unique within the definition.
    pub name: Name,
    /// Who does it.
    pub kind: NodeKind,
    /// How many of its predecessors it waits for.
    pub join: Join,
    /// How it is given out, held and retried.
    pub work: WorkSpec,
    /// Where messages for it arrive.
    pub handles: Vec<HandleSpec>,
}

/// Who does a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NodeKind {
    /// A worker.
    Work,
    /// Nobody: it completes by itself this long after it became ready.
    Timer {
        /// How long.
        delay_ms: u64,
    },
}

/// How many predecessors must complete before a node is ready. Joins are sets of arrived edges, never counters (S19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Join {
    /// All of them.
    All,
    /// The first.
    Any,
    /// At least this many.
    AtLeast(u32),
}

/// What leads from one step to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Edge {
    /// Name of the node it leaves.
    pub from: Name,
    /// Name of the node it enters.
    pub to: Name,
    /// What flows along it.
    pub kind: EdgeKind,
}

/// What flows along an edge.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EdgeKind {
    /// The output of the predecessor; it takes part in the join.
    Data,
    /// Messages into this handle of the successor; the first makes it ready.
    Stream {
        /// Name of the handle.
        handle: Name,
    },
}

/// An inbox handle of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HandleSpec {
    /// Unique within the node.
    pub name: Name,
    /// True if outside events arrive here, with cursors.
    pub trigger: bool,
    /// Messages that may wait before senders are refused.
    pub capacity: u32,
    /// How long a claimed message is the holder's.
    pub claim_ms: u64,
    /// Times a message may be claimed and given back before it is put aside.
    pub max_deliveries: u32,
    /// Outside sources that each end their stream; stream edges are sources by themselves.
    pub sources: Vec<Name>,
}

/// How a piece of work is given out, held and retried.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WorkSpec {
    /// Who may do it.
    pub requirement: Requirement,
    /// How it finds a worker.
    pub assign: Assign,
    /// What happens after a failure.
    pub retry: Retry,
    /// Its time limits.
    pub timeouts: Timeouts,
    /// How long a lease lives without a sign of its worker.
    pub lease_ms: u64,
    /// How often the worker should show itself.
    pub heartbeat_ms: u64,
    /// Prefer the worker that had it before, or that created the run.
    pub sticky: bool,
    /// May ask holders of a lower priority to release, if every fitting worker is full.
    pub preempts: bool,
    /// May be asked so.
    pub preemptible: bool,
}

/// How work finds a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Assign {
    /// Workers poll for it.
    Pull,
    /// It is offered to the best worker, which accepts or declines in time.
    Push {
        /// How long a worker may take to answer.
        accept_ms: u64,
    },
}

/// Who may do a piece of work, and who should.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Requirement {
    /// One of these must be there, if any are named.
    pub executors: Vec<Name>,
    /// Each must be there: texts equal, numbers at least.
    pub capabilities: Vec<(Name, Capability)>,
    /// All of these must be there.
    pub labels: Vec<Name>,
    /// Only these, if any are named.
    pub allowed: Vec<WorkerId>,
    /// None of these.
    pub forbidden: Vec<WorkerId>,
    /// Pieces of work with this requirement that one worker may hold.
    pub max_parallel_per_worker: Option<u32>,
    /// Capabilities that make a worker a better choice (soft).
    pub relevant: Vec<Name>,
}

/// What a worker can do, or must be able to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Capability {
    /// Compared exactly.
    Text(Name),
    /// At least this much.
    Number(u64),
}

/// What happens after a failure. Two budgets, so that killed workers do not use up a healthy job's retries.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retry {
    /// Failures that end it for good (1: no retry).
    pub max_failures: u32,
    /// Lost holders that end it for good.
    pub max_losses: u32,
    /// Upper end of the first back-off; it doubles from failure to failure.
    pub backoff_ms: u64,
    /// The back-off never passes this.
    pub max_backoff_ms: u64,
}

/// Time limits of a piece of work; none of them by default.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Timeouts {
    /// From ready to started; passing it fails the work for good.
    pub ready_to_start_ms: Option<u64>,
    /// From started to finished; passing it fails the attempt.
    pub start_to_finish_ms: Option<u64>,
    /// Between two signs of progress; passing it fails the attempt.
    pub progress_ms: Option<u64>,
}

/// What holds for a whole run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunSettings {
    /// What one worker holds at a time.
    pub scope: Scope,
    /// What a failed node means for the rest.
    pub on_failure: OnFailure,
    /// From submission to the end; passing it fails the run.
    pub deadline_ms: Option<u64>,
}

/// What one worker holds at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// A node.
    Node,
    /// The whole run, given out as this.
    Run(Box<WorkSpec>),
}

/// What a node that failed for good means for the rest of its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OnFailure {
    /// The rest is cancelled.
    FailFast,
    /// Independent branches finish.
    Continue,
}

impl Default for WorkSpec {
    fn default() -> Self {
        Self {
            requirement: Requirement::default(),
            assign: Assign::Pull,
            retry: Retry::default(),
            timeouts: Timeouts::default(),
            lease_ms: 30_000,
            heartbeat_ms: 10_000,
            sticky: false,
            preempts: false,
            preemptible: false,
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self { max_failures: 3, max_losses: 20, backoff_ms: 1_000, max_backoff_ms: 60_000 }
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        Self { scope: Scope::Node, on_failure: OnFailure::FailFast, deadline_ms: None }
    }
}

impl NodeSpec {
    /// A node of this name for any worker, with all defaults.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            kind: NodeKind::Work,
            join: Join::All,
            work: WorkSpec::default(),
            handles: Vec::new(),
        }
    }
}

impl HandleSpec {
    /// A handle of this name with all defaults: no outside sources, 1,000 messages, 30 s per claim, 5 deliveries.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            trigger: false,
            capacity: 1_000,
            claim_ms: 30_000,
            max_deliveries: 5,
            sources: Vec::new(),
        }
    }
}

impl Edge {
    /// A data edge between two nodes.
    pub fn data(from: &str, to: &str) -> Self {
        Self { from: from.into(), to: to.into(), kind: EdgeKind::Data }
    }

    /// A stream edge into a handle.
    pub fn stream(from: &str, to: &str, handle: &str) -> Self {
        Self { from: from.into(), to: to.into(), kind: EdgeKind::Stream { handle: handle.into() } }
    }
}

impl Definition {
    /// A definition with default settings.
    pub fn new(name: &str, nodes: Vec<NodeSpec>, edges: Vec<Edge>) -> Self {
        Self { name: name.into(), nodes, edges, settings: RunSettings::default() }
    }
}
