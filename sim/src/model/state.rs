//! What the model knows: plain structs, written from the words of the design (§3) and nothing else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::{
    Concurrency, Failure, MessageKey, SubmitKey, Suspension, WorkerSpec,
};
use tenure_core::coordinator::effect::Outgoing;
use tenure_core::coordinator::event::{By, EndCause, Outcome, StopReason, WakeCause};
use tenure_core::definition::{Assign, Definition, EdgeKind, Join, NodeKind, Scope, WorkSpec};
use tenure_core::id::*;
use tenure_core::lifecycle::{Lifecycle, Phase, RunStatus};
use tenure_core::time::Time;
use tenure_core::value::Value;

/// A definition with its edges as positions.
#[derive(Debug)]
pub(super) struct Def {
    pub(super) id: DefinitionId,
    pub(super) tenant: TenantId,
    pub(super) version: DefinitionVersion,
    pub(super) hash: ContentHash,
    pub(super) spec: Definition,
    pub(super) links: Vec<Links>,
    /// Some, if a run of it is held as one piece of work.
    pub(super) whole: Option<WorkSpec>,
}

/// What leads into and out of a node.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) preds: Vec<usize>,
    pub(super) succs: Vec<usize>,
    /// How many predecessors must complete.
    pub(super) need: usize,
    /// Nodes that stream into this one.
    pub(super) feeders: Vec<usize>,
    pub(super) streams: Vec<StreamOut>,
    /// Sources of each handle: declared ones, then stream edges.
    pub(super) sources: Vec<u16>,
    /// It is not ready before something came for it.
    pub(super) must_be_fed: bool,
}

/// A stream edge as its producer sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamOut {
    pub(super) to: usize,
    pub(super) handle: u16,
    pub(super) source: u16,
}

impl Def {
    pub(super) fn new(
        id: DefinitionId,
        tenant: TenantId,
        version: DefinitionVersion,
        hash: ContentHash,
        spec: &Definition,
    ) -> Self {
        let mut links: Vec<Links> = spec.nodes.iter().map(|_| Links::default()).collect();
        let at = |name: &str| spec.nodes.iter().position(|node| *node.name == *name).unwrap_or(0);
        for (ix, node) in spec.nodes.iter().enumerate() {
            links[ix].sources = node.handles.iter().map(|handle| handle.sources.len() as u16).collect();
            links[ix].must_be_fed = node.handles.iter().any(|handle| handle.trigger);
        }
        for edge in &spec.edges {
            let (from, to) = (at(&edge.from), at(&edge.to));
            match &edge.kind {
                EdgeKind::Data => {
                    links[from].succs.push(to);
                    links[to].preds.push(from);
                }
                EdgeKind::Stream { handle } => {
                    let ix = spec.nodes[to].handles.iter().position(|one| one.name == *handle).unwrap_or(0);
                    let source = links[to].sources[ix];
                    links[to].sources[ix] += 1;
                    links[to].feeders.push(from);
                    links[to].must_be_fed = true;
                    links[from].streams.push(StreamOut { to, handle: ix as u16, source });
                }
            }
        }
        for (ix, node) in spec.nodes.iter().enumerate() {
            links[ix].preds.sort_unstable();
            links[ix].preds.dedup();
            links[ix].succs.sort_unstable();
            links[ix].succs.dedup();
            links[ix].need = match node.join {
                Join::All => links[ix].preds.len(),
                Join::Any => links[ix].preds.len().min(1),
                Join::AtLeast(n) => n as usize,
            };
        }
        let whole = match &spec.settings.scope {
            Scope::Node => None,
            Scope::Run(work) => Some(WorkSpec::clone(work)),
        };
        Self { id, tenant, version, hash, spec: spec.clone(), links, whole }
    }

    /// True if some order puts every node after all that lead to it (S21).
    pub(super) fn is_acyclic(&self) -> bool {
        let mut open: Vec<usize> = self.links.iter().map(|l| l.preds.len() + l.feeders.len()).collect();
        let mut free: Vec<usize> = (0..open.len()).filter(|ix| open[*ix] == 0).collect();
        let mut seen = 0;
        while let Some(ix) = free.pop() {
            seen += 1;
            let next = self.links[ix].succs.iter().copied();
            for to in next.chain(self.links[ix].streams.iter().map(|stream| stream.to)) {
                open[to] -= 1;
                if open[to] == 0 {
                    free.push(to);
                }
            }
        }
        seen == open.len()
    }

    pub(super) fn work(&self, node: NodeIx) -> &WorkSpec {
        match &self.whole {
            Some(work) if node.is_whole_run() => work,
            _ => &self.spec.nodes[node.get() as usize].work,
        }
    }

    pub(super) fn is_push(&self, node: NodeIx) -> bool {
        matches!(self.work(node).assign, Assign::Push { .. })
    }

    pub(super) fn timer(&self, ix: usize) -> Option<u64> {
        match self.spec.nodes[ix].kind {
            NodeKind::Timer { delay_ms } => Some(delay_ms),
            NodeKind::Work => None,
        }
    }

    pub(super) fn is_exit(&self, ix: usize) -> bool {
        self.links[ix].succs.is_empty()
    }
}

/// Who has, or last had, a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tenure {
    pub(super) worker: WorkerId,
    pub(super) incarnation: Incarnation,
    pub(super) session: Session,
    pub(super) lease_ms: u64,
    pub(super) poll: PollId,
    pub(super) assigned_at: Time,
    /// Never, while it is only offered.
    pub(super) claimed_at: Time,
    pub(super) by: By,
}

/// A report that ended a grant, as far as a repeat must be known again (S32).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) epoch: Epoch,
    pub(super) attempt: Attempt,
    /// As the machine calls it.
    pub(super) digest: u64,
    /// As the model calls it.
    pub(super) said: u64,
}

/// A piece of work: a node, or the whole run.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) phase: Phase,
    pub(super) stop: Option<StopReason>,
    pub(super) attempt: u32,
    pub(super) failures: u32,
    pub(super) losses: u32,
    pub(super) offers: u32,
    pub(super) epoch: Epoch,
    pub(super) ready_at: Time,
    pub(super) started_at: Time,
    /// The last sign of progress.
    pub(super) moved_at: Time,
    pub(super) until: Time,
    pub(super) output: Value,
    pub(super) tenure: Option<Tenure>,
    pub(super) rare: Option<Box<Rare>>,
    /// The key that stays the same over attempts (S34), once it was seen.
    pub(super) stable_key: Option<u128>,
    /// The last key of an attempt, and which it was of.
    pub(super) attempt_key: Option<(u32, u32, u128)>,
    /// How it last left a holder blames the first message it had claimed.
    pub(super) blame: bool,
    /// A retry by hand opened it again.
    pub(super) reopened: bool,
}

/// What most work does not have.
#[derive(Debug, Clone, Default)]
pub(super) struct Rare {
    pub(super) failure: Option<Failure>,
    pub(super) state: Option<Value>,
    pub(super) progress: Option<(u64, u64)>,
    pub(super) suspension: Option<Suspension>,
    pub(super) woken: Option<WakeCause>,
    pub(super) excluded: Vec<WorkerId>,
    pub(super) joined: Vec<NodeIx>,
    pub(super) mark: Option<Mark>,
    pub(super) late: u32,
}

impl Node {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Waiting,
            stop: None,
            attempt: 0,
            failures: 0,
            losses: 0,
            offers: 0,
            epoch: Epoch::new(0),
            ready_at: Time::NEVER,
            started_at: Time::NEVER,
            moved_at: Time::NEVER,
            until: Time::NEVER,
            output: Value::EMPTY,
            tenure: None,
            rare: None,
            stable_key: None,
            attempt_key: None,
            blame: false,
            reopened: false,
        }
    }

    pub(super) fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase.is_terminal()
    }

    /// Held under a lease, not only offered.
    pub(super) fn is_claimed(&self) -> bool {
        self.phase.is_held() && self.tenure.is_some_and(|tenure| !tenure.claimed_at.is_never())
    }

    pub(super) fn suspension(&self) -> Option<&Suspension> {
        self.rare.as_ref().and_then(|rare| rare.suspension.as_ref())
    }

    pub(super) fn mark(&self) -> Option<&Mark> {
        self.rare.as_ref().and_then(|rare| rare.mark.as_ref())
    }
}

/// A message that is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) seq: u64,
    pub(super) id: MessageKey,
    pub(super) value: Value,
    pub(super) cursor: Option<u64>,
}

/// One handle of one node.
#[derive(Debug, Clone)]
pub(super) struct Inbox {
    pub(super) node: NodeIx,
    pub(super) handle: HandleIx,
    pub(super) last: u64,
    pub(super) settled: u64,
    pub(super) claimed: u64,
    pub(super) claim_epoch: Epoch,
    pub(super) claimed_at: Time,
    pub(super) deliveries: u32,
    pub(super) messages: VecDeque<Message>,
    /// Messages with an id of their own, settled or not: where they are and what they say.
    pub(super) own: BTreeMap<MessageId, (u64, Value)>,
    /// Stored, and how many it sent in all once it said so.
    pub(super) sources: Vec<(u64, Option<u64>)>,
    pub(super) closed: bool,
    pub(super) registered: bool,
    pub(super) cursor_stored: Option<u64>,
    pub(super) cursor_settled: Option<u64>,
    /// The cursor of the last settled message that had one.
    pub(super) cursor_reached: Option<u64>,
}

impl Inbox {
    pub(super) fn has_claimed(&self) -> bool {
        self.claimed > self.settled
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.sources.is_empty() && self.sources.iter().all(|(stored, ended)| *ended == Some(*stored))
    }

    /// Settles the first message; tells its cursor to the trigger.
    pub(super) fn settle_first(&mut self) {
        self.settled += 1;
        self.deliveries = 0;
        if let Some(message) = self.messages.pop_front() {
            self.cursor_reached = message.cursor.or(self.cursor_reached);
        }
    }
}

/// A run.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) id: RunId,
    pub(super) tenant: TenantId,
    pub(super) def: Arc<Def>,
    pub(super) series: u32,
    pub(super) version: u64,
    /// The step that last raised the version.
    pub(super) step: u64,
    pub(super) status: RunStatus,
    pub(super) ending: Option<(Outcome, EndCause)>,
    pub(super) priority: u8,
    pub(super) notify: bool,
    pub(super) created_at: Time,
    pub(super) ended_at: Time,
    pub(super) deadline: Time,
    pub(super) deadline_ms: Option<u64>,
    pub(super) input: Value,
    pub(super) key: Option<SubmitKey>,
    pub(super) concurrency: Option<Concurrency>,
    pub(super) creator: Option<WorkerId>,
    pub(super) created_held: Option<(NodeIx, Epoch)>,
    pub(super) doomed: Option<NodeIx>,
    pub(super) whole: Option<Box<Node>>,
    pub(super) nodes: Vec<Node>,
    pub(super) inboxes: Vec<Inbox>,
    /// Its end is owed to the outside and not yet written down.
    pub(super) owes_end: bool,
    /// The journal has it as it was at this generation.
    pub(super) kept: u64,
    /// The step of the model that last touched it.
    pub(super) touched: u64,
}

impl Run {
    pub(super) fn node(&self, ix: NodeIx) -> Option<&Node> {
        if ix.is_whole_run() { self.whole.as_deref() } else { self.nodes.get(ix.get() as usize) }
    }

    pub(super) fn node_mut(&mut self, ix: NodeIx) -> Option<&mut Node> {
        if ix.is_whole_run() { self.whole.as_deref_mut() } else { self.nodes.get_mut(ix.get() as usize) }
    }

    /// The work that carries the lease of a node: the run itself, if it is held as one.
    pub(super) fn grant_of(&self, ix: NodeIx) -> NodeIx {
        if self.whole.is_some() { NodeIx::WHOLE_RUN } else { ix }
    }

    pub(super) fn is_open(&self) -> bool {
        self.ending.is_none() && !self.status.is_terminal()
    }

    pub(super) fn inbox(&self, node: NodeIx, handle: HandleIx) -> Option<&Inbox> {
        self.inboxes.iter().find(|inbox| inbox.node == node && inbox.handle == handle)
    }

    pub(super) fn inbox_mut(&mut self, node: NodeIx, handle: HandleIx) -> Option<&mut Inbox> {
        self.inboxes.iter_mut().find(|inbox| inbox.node == node && inbox.handle == handle)
    }

    pub(super) fn inboxes_of(&self, node: NodeIx) -> impl Iterator<Item = &Inbox> {
        self.inboxes.iter().filter(move |inbox| inbox.node == node)
    }

    /// From when on the time counts that an ended run is kept.
    pub(super) fn kept_from(&self) -> Time {
        self.ended_at.max(self.key.map_or(Time::ZERO, |key| key.minted_at))
    }
}

/// A lease or an offer, as its worker's side of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) run: u64,
    pub(super) node: NodeIx,
    pub(super) lease_ms: u64,
    pub(super) session: Session,
    pub(super) poll: PollId,
    pub(super) offered: bool,
}

/// A worker.
#[derive(Debug, Clone)]
pub(super) struct Worker {
    pub(super) key: WorkerKey,
    pub(super) incarnation: Incarnation,
    pub(super) session: Session,
    /// Leases of earlier sessions belong to a former life (S35).
    pub(super) fenced: Session,
    /// Leases of this length and of earlier sessions lapsed (S9).
    pub(super) lapsed: Vec<(u64, Session)>,
    pub(super) spec: WorkerSpec,
    pub(super) draining: bool,
    pub(super) last_seen: Time,
    pub(super) last_poll: Option<PollId>,
    /// Pieces of work it has or was offered.
    pub(super) used: u32,
    pub(super) kept: u64,
}

impl Worker {
    /// True if a lease of this session and length was neither lapsed nor of a former life. It may be due to lapse.
    pub(super) fn is_current(&self, session: Session, lease_ms: u64) -> bool {
        session >= self.fenced
            && self.lapsed.iter().all(|(length, from)| *length != lease_ms || session >= *from)
    }

    /// True if this takes up one of its slots.
    pub(super) fn counts(&self, hold: &Hold) -> bool {
        if hold.offered { hold.session >= self.fenced } else { self.is_current(hold.session, hold.lease_ms) }
    }
}

/// Something owed to the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Debt {
    pub(super) tenant: TenantId,
    pub(super) outgoing: Outgoing,
    pub(super) refused_at: Option<Time>,
}

/// What a partition counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) next_run: u64,
    pub(super) last_epoch: u64,
    pub(super) next_outbox: Option<u64>,
    pub(super) step: u64,
    /// Machine time and wall time of the last change.
    pub(super) changed: Option<(Time, u64)>,
    /// Everything that ended up to here was forgotten.
    pub(super) swept: Option<Time>,
}
