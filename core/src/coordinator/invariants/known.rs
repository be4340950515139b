//! What a watcher knows: a copy of what matters, led from event to event by its own small model and compared with
//! the machine after every input. How it is brought up to date, and what is forgotten, is in `sync`.

use crate::coordinator::command::{Concurrency, SubmitKey};
use crate::coordinator::effect::Answer;
use crate::coordinator::event::{EndCause, Event, Outcome};
use crate::coordinator::row::{DefinitionRow, InboxRow, RunHead, Work, WorkerRow};
use crate::coordinator::state::{Inbox, Run, Worker, WorkerKey};
use crate::id::*;
use crate::lifecycle::{Health, Phase, RunStatus, RunStep, WorkStep};
use crate::mix::FixedState;
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// What is known of a run.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "what is in its rows, by what they are of")]
pub struct RunFacts {
    pub head: HeadFacts,
    /// By node, and the whole run last, under [`NodeIx::WHOLE_RUN`].
    pub works: Vec<(NodeIx, WorkFacts)>,
    /// By node and handle.
    pub inboxes: Vec<InboxFacts>,
    /// The last step that raised the version.
    pub stepped: u64,
    /// Keys handed out per node, for outside systems.
    pub stable_keys: Vec<(NodeIx, u128)>,
    /// What is listed of it in [`Known::held`].
    pub(super) listed: Vec<(WorkerKey, NodeIx, Epoch)>,
    /// Pieces of work that are counted as held under its concurrency key.
    pub(super) counted: u32,
    /// It is among those that this input touched.
    pub(super) touched: bool,
}

/// What is known of a run's own row.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as in the row")]
pub struct HeadFacts {
    pub tenant: TenantId,
    pub definition: DefinitionId,
    pub series: Series,
    pub version: Version,
    pub status: RunStatus,
    pub ending: Option<(Outcome, EndCause)>,
    pub key: Option<SubmitKey>,
    pub concurrency: Option<Concurrency>,
}

/// What is known of a piece of work.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as in the row")]
pub struct WorkFacts {
    pub phase: Phase,
    pub attempt: Attempt,
    pub failures: u32,
    pub losses: u32,
    pub epoch: Epoch,
    pub holder: Option<Holder>,
}

/// Who has, or last had, a piece of work.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as in the row")]
pub struct Holder {
    pub worker: WorkerId,
    pub incarnation: Incarnation,
    pub session: Session,
    /// It was claimed, and not only offered.
    pub claimed: bool,
}

/// What is known of an inbox.
#[derive(Debug, Clone)]
pub struct InboxFacts {
    /// Its row.
    pub row: InboxRow,
    /// Ids of their own that it has seen, with content and place.
    pub ids: BTreeMap<MessageId, (ContentHash, Seq)>,
    /// Its cursors, stored and settled, as they were before this input.
    pub cursors: (Option<u64>, Option<u64>),
}

/// What is known of a worker.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "as in the worker's row and in memory")]
pub struct WorkerFacts {
    pub incarnation: Incarnation,
    pub session: Session,
    pub fenced: Session,
    pub lapsed: Vec<(u64, Session)>,
    pub health: Health,
    pub last_seen: Time,
}

/// What is known of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in the row")]
pub struct DefinitionFacts {
    pub id: DefinitionId,
    pub tenant: TenantId,
    pub version: DefinitionVersion,
    pub hash: ContentHash,
}

/// What a watcher knows.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// Never iterated in an order that matters. One that left memory stays for a while.
    pub(super) runs: BTreeMap<RunId, RunFacts>,
    /// Runs that this input changed or brought, in the order of what happened.
    pub(super) touched: Vec<RunId>,
    pub(super) workers: BTreeMap<WorkerKey, WorkerFacts>,
    /// Workers as they were before this input, if an event of it changed them.
    pub(super) workers_before: BTreeMap<WorkerKey, Option<WorkerFacts>>,
    /// Workers that this input may have changed: those it or an event names, or all.
    pub(super) met: Vec<WorkerKey>,
    /// Nobody falls silent before this.
    pub(super) silence: Time,
    /// What was claimed before this input, by who has it.
    pub(super) held: BTreeMap<(WorkerKey, RunId, NodeIx), Epoch>,
    /// How much is held under each concurrency key.
    pub(super) under: BTreeMap<(TenantId, KeyHash), u32>,
    /// The next epoch or incarnation must not be below this.
    pub(super) next_epoch: u64,
    /// Leases that may not be taken over before this time, since the machine recovered.
    pub(super) protected: BTreeMap<Epoch, Time>,
    /// The last of those times.
    pub(super) protected_until: Time,
    /// Keys and what was answered first, until when they may not be forgotten.
    pub(super) keys: BTreeMap<(TenantId, KeyHash), KeyFacts>,
    /// When a key may be forgotten, unless it is needed again meanwhile.
    pub(super) expiring: BTreeSet<(Time, TenantId, KeyHash)>,
    /// By number, with a hash of all of it.
    pub(super) definitions: Vec<(DefinitionFacts, u64)>,
    /// Inputs seen.
    pub(super) turns: u64,
    /// All that is known is looked at with this input, and not only what it touches.
    pub(super) whole: bool,
}

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what they are called")]
pub struct KeyFacts {
    pub fingerprint: ContentHash,
    pub answer: Option<Answer>,
    pub run: RunId,
    pub until: Time,
    pub minted_at: Time,
}

impl HeadFacts {
    pub(super) fn of(head: &RunHead) -> Self {
        Self {
            tenant: head.tenant,
            definition: head.definition,
            series: head.series,
            version: head.version,
            status: head.status,
            ending: head.ending,
            key: head.key,
            concurrency: head.concurrency(),
        }
    }

    /// True if a run of which this is known may have left memory.
    pub(super) const fn may_leave(&self) -> bool {
        !matches!(self.status, RunStatus::Running | RunStatus::Paused | RunStatus::Ending)
    }
}

impl WorkFacts {
    /// Work that never moved.
    pub(super) const NEW: Self = Self {
        phase: Phase::Waiting,
        attempt: Attempt::new(0),
        failures: 0,
        losses: 0,
        epoch: Epoch::new(0),
        holder: None,
    };

    pub(super) fn of(work: &Work) -> Self {
        let holder = work.assignment.map(|assignment| Holder {
            worker: assignment.worker,
            incarnation: assignment.incarnation,
            session: assignment.session,
            claimed: !assignment.claimed_at.is_never(),
        });
        let Work { phase, attempt, failures, losses, epoch, .. } = *work;
        Self { phase, attempt, failures, losses, epoch, holder }
    }

    /// True if a worker took it, and was not only offered it.
    pub fn is_claimed(&self) -> bool {
        self.phase.is_held() && self.holder.is_some_and(|holder| holder.claimed)
    }
}

impl InboxFacts {
    pub(super) fn new(row: InboxRow) -> Self {
        let cursors = (row.cursor_stored, row.cursor_settled);
        Self { row, ids: BTreeMap::new(), cursors }
    }

    pub(super) fn of(inbox: &Inbox) -> Self {
        Self { ids: inbox.ids.clone(), ..Self::new(inbox.row.clone()) }
    }
}

impl WorkerFacts {
    pub(super) fn of(worker: &Worker) -> Self {
        let WorkerRow { incarnation, session, fenced, lapsed, .. } = &worker.row;
        Self {
            incarnation: *incarnation,
            session: *session,
            fenced: *fenced,
            lapsed: lapsed.clone(),
            health: worker.health,
            last_seen: worker.last_seen,
        }
    }
}

impl DefinitionFacts {
    pub(super) const fn of(row: &DefinitionRow) -> Self {
        Self { id: row.id, tenant: row.tenant, version: row.version, hash: row.hash }
    }
}

impl RunFacts {
    pub(super) fn new(
        head: HeadFacts,
        works: Vec<(NodeIx, WorkFacts)>,
        inboxes: Vec<InboxFacts>,
        stepped: u64,
    ) -> Self {
        let (stable_keys, listed) = (Vec::new(), Vec::new());
        Self { head, works, inboxes, stepped, stable_keys, listed, counted: 0, touched: false }
    }

    /// What a machine says of a run.
    pub(super) fn of(run: &Run) -> Self {
        let works = run.work_ixs().map(|node| (node, WorkFacts::of(run.work(node)))).collect();
        let inboxes = run.inboxes.iter().map(InboxFacts::of).collect();
        Self::new(HeadFacts::of(&run.head), works, inboxes, run.stepped)
    }

    fn at(&self, node: NodeIx) -> Option<usize> {
        // Mostly every node is there, and then it is at its own place.
        match self.works.get(node.index()) {
            Some((there, _)) if *there == node => Some(node.index()),
            _ => self.works.binary_search_by_key(&node, |(at, _)| *at).ok(),
        }
    }

    /// A piece of work.
    pub fn work(&self, node: NodeIx) -> Option<&WorkFacts> {
        self.at(node).map(|at| &self.works[at].1)
    }

    pub(super) fn work_mut(&mut self, node: NodeIx) -> Option<&mut WorkFacts> {
        self.at(node).map(|at| &mut self.works[at].1)
    }

    /// An inbox.
    pub fn inbox(&self, node: NodeIx, handle: HandleIx) -> Option<&InboxFacts> {
        let at = self.inboxes.binary_search_by_key(&(node, handle), |one| (one.row.node, one.row.handle));
        at.ok().map(|at| &self.inboxes[at])
    }

    pub(super) fn inbox_mut(&mut self, node: NodeIx, handle: HandleIx) -> Option<&mut InboxFacts> {
        let at = self.inboxes.binary_search_by_key(&(node, handle), |one| (one.row.node, one.row.handle));
        at.ok().map(|at| &mut self.inboxes[at])
    }

    fn is_whole(&self) -> bool {
        self.works.last().is_some_and(|(node, _)| node.is_whole_run())
    }

    /// The piece of work whose lease covers a node.
    pub fn held_as(&self, node: NodeIx) -> NodeIx {
        if self.is_whole() { NodeIx::WHOLE_RUN } else { node }
    }

    /// The work under whose grant a node is held.
    pub fn grant(&self, node: NodeIx) -> Option<&WorkFacts> {
        self.work(self.held_as(node))
    }

    /// Every piece of work that is given out under a grant of its own.
    pub fn own(&self) -> &[(NodeIx, WorkFacts)] {
        if self.is_whole() { &self.works[self.works.len() - 1..] } else { &self.works }
    }

    /// What is claimed of it under a grant of its own, and who has it.
    pub(super) fn claims(&self) -> impl Iterator<Item = (WorkerKey, NodeIx, Epoch)> {
        self.own().iter().filter(|(_, work)| work.is_claimed()).filter_map(|(node, work)| {
            let WorkFacts { epoch, holder, .. } = work;
            holder
                .map(|holder| (WorkerKey { tenant: self.head.tenant, worker: holder.worker }, *node, *epoch))
        })
    }
}

/// The run an event is about, and the step it takes a piece of work through.
pub(super) fn work_step(event: &Event) -> Option<(RunId, NodeIx, WorkStep)> {
    Some(match event {
        Event::NodeScheduled { run, node } => (*run, *node, WorkStep::Schedule),
        Event::NodeAssigned { run, node, .. } => (*run, *node, WorkStep::Assign),
        Event::NodeClaimed { run, node, .. } => (*run, *node, WorkStep::Claim),
        Event::NodeStarted { run, node, .. } => (*run, *node, WorkStep::Start),
        Event::NodeCompleted { run, node, .. } => (*run, *node, WorkStep::Complete),
        Event::NodeFailed { run, node, retry_at: Some(_), .. } => (*run, *node, WorkStep::Delay),
        Event::NodeFailed { run, node, retry_at: None, .. } => (*run, *node, WorkStep::Fail),
        Event::NodeUntaken { run, node, .. } => (*run, *node, WorkStep::Delay),
        Event::NodeReturned { run, node, .. } => (*run, *node, WorkStep::Return),
        Event::NodeSuspended { run, node, .. } => (*run, *node, WorkStep::Suspend),
        Event::NodeResumed { run, node, .. } => (*run, *node, WorkStep::Resume),
        Event::RunParked { run } => (*run, NodeIx::WHOLE_RUN, WorkStep::Park),
        Event::NodeCancelled { run, node } => (*run, *node, WorkStep::Cancel),
        Event::NodeSkipped { run, node } => (*run, *node, WorkStep::Skip),
        _ => return None,
    })
}

/// The step an event takes its run through.
pub(super) fn run_step(event: &Event) -> Option<(RunId, RunStep)> {
    Some(match event {
        Event::RunSuspended { run } => (*run, RunStep::Suspend),
        Event::RunWoken { run } => (*run, RunStep::Wake),
        Event::RunPaused { run } => (*run, RunStep::Pause),
        Event::RunContinued { run } => (*run, RunStep::Continue),
        Event::RunEnding { run, .. } => (*run, RunStep::End),
        Event::RunCompleted { run } => (*run, RunStep::Complete),
        Event::RunFailed { run } => (*run, RunStep::Fail),
        Event::RunCancelled { run } => (*run, RunStep::Cancel),
        Event::RunRetried { run, .. } => (*run, RunStep::Retry),
        _ => return None,
    })
}

/// The inbox an event is about.
pub(super) fn inbox_of(event: &Event) -> Option<(RunId, NodeIx, HandleIx)> {
    match event {
        Event::MessageAppended { run, node, handle, .. }
        | Event::TriggerInputReceived { run, node, handle, .. }
        | Event::MessagesClaimed { run, node, handle, .. }
        | Event::MessagesReturned { run, node, handle, .. }
        | Event::MessagesConsumed { run, node, handle, .. }
        | Event::MessageBuried { run, node, handle, .. }
        | Event::StreamEnded { run, node, handle, .. }
        | Event::HandleClosed { run, node, handle }
        | Event::TriggerRegistered { run, node, handle }
        | Event::TriggerCursorAdvanced { run, node, handle, .. } => Some((*run, *node, *handle)),
        _ => None,
    }
}

/// The run an event changes, inbox appends aside (S3).
pub(super) fn changed_run(event: &Event) -> Option<RunId> {
    match event {
        Event::NodeProgressed { run, .. }
        | Event::NodeCheckpointed { run, .. }
        | Event::NodePostponed { run, .. }
        | Event::StopAsked { run, .. }
        | Event::ReportTaken { run, .. }
        | Event::RunDoomed { run, .. } => Some(*run),
        Event::RunCreated(created) => Some(created.run),
        event => work_step(event).map(|(run, ..)| run).or_else(|| run_step(event).map(|(run, _)| run)),
    }
}

/// The status that shows an outcome.
pub(super) const fn status_of(outcome: Outcome) -> RunStatus {
    match outcome {
        Outcome::Completed => RunStatus::Completed,
        Outcome::Failed => RunStatus::Failed,
        Outcome::Cancelled => RunStatus::Cancelled,
    }
}

/// A definition as a number, so that a change of it shows.
pub(super) fn fingerprint(row: &DefinitionRow) -> u64 {
    use core::hash::BuildHasher;
    FixedState.hash_one(row)
}
