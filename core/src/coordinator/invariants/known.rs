//! What a watcher knows: a copy of what matters, led from event to event by its own small model and compared with
//! the machine after every input. It forgets what the machine does not hold in memory.

use crate::coordinator::Coordinator;
use crate::coordinator::command::MessageKey;
use crate::coordinator::effect::Answer;
use crate::coordinator::event::{Event, Outcome};
use crate::coordinator::row::{InboxRow, MessageAt, Row, RunHead, Work, WorkerRow};
use crate::coordinator::state::{Run, WorkerKey};
use crate::id::*;
use crate::lifecycle::{Health, RunStatus, RunStep, WorkStep};
use crate::time::Time;
use alloc::collections::BTreeMap;

/// What is known of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "rows, by what they are of")]
pub struct RunFacts {
    pub head: RunHead,
    /// Nodes, and the whole run under [`NodeIx::WHOLE_RUN`].
    pub works: BTreeMap<NodeIx, Work>,
    pub inboxes: BTreeMap<(NodeIx, HandleIx), InboxRow>,
    /// Ids of their own that an inbox has seen, with content and place.
    pub ids: BTreeMap<(NodeIx, HandleIx, MessageId), (ContentHash, Seq)>,
    /// The last step that raised the version.
    pub stepped: u64,
    /// Keys handed out per node, for outside systems.
    pub stable_keys: BTreeMap<NodeIx, u128>,
}

/// What is known of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in the worker's row and in memory")]
pub struct WorkerFacts {
    pub row: WorkerRow,
    pub health: Health,
    pub last_seen: Time,
}

/// What a watcher knows.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "the fields are what they are called")]
pub struct Known {
    pub runs: BTreeMap<RunId, RunFacts>,
    /// Runs as they were before this input, if it changed them.
    pub before: BTreeMap<RunId, RunFacts>,
    pub workers: BTreeMap<WorkerKey, WorkerFacts>,
    /// Workers as they were before this input.
    pub workers_before: BTreeMap<WorkerKey, WorkerFacts>,
    /// The next epoch or incarnation must not be below this.
    pub next_epoch: u64,
    /// Leases that may not be taken over before this time, since the machine recovered.
    pub protected: BTreeMap<Epoch, Time>,
    /// Keys and what was answered first, until when they may not be forgotten.
    pub keys: BTreeMap<(TenantId, KeyHash), KeyFacts>,
    pub definitions: BTreeMap<DefinitionId, u64>,
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

impl RunFacts {
    /// What a machine says of a run.
    pub(super) fn of(run: &Run) -> Self {
        let inboxes = run.inboxes.iter().map(|inbox| ((inbox.row.node, inbox.row.handle), inbox.row.clone()));
        let ids = run.inboxes.iter().flat_map(|inbox| {
            inbox.ids.iter().map(|(id, seen)| ((inbox.row.node, inbox.row.handle, *id), *seen))
        });
        Self {
            head: run.head.clone(),
            works: run.work_ixs().map(|node| (node, run.work(node).clone())).collect(),
            inboxes: inboxes.collect(),
            ids: ids.collect(),
            stepped: run.stepped,
            stable_keys: BTreeMap::new(),
        }
    }

    /// The piece of work whose lease covers a node.
    pub fn held_as(&self, node: NodeIx) -> NodeIx {
        if self.works.contains_key(&NodeIx::WHOLE_RUN) { NodeIx::WHOLE_RUN } else { node }
    }

    /// The work under whose grant a node is held.
    pub fn grant(&self, node: NodeIx) -> Option<&Work> {
        self.works.get(&self.held_as(node))
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

impl Known {
    /// Takes in what a machine holds that is not known yet, and forgets what it does not hold.
    pub(super) fn sync(&mut self, machine: &Coordinator) {
        let state = &machine.state;
        self.runs.retain(|id, _| state.run(*id).is_some());
        let touched: alloc::vec::Vec<RunId> = self.before.keys().copied().collect();
        for id in touched {
            if let (Some(facts), Some(run)) = (self.runs.get_mut(&id), state.run(id)) {
                *facts =
                    RunFacts { stable_keys: core::mem::take(&mut facts.stable_keys), ..RunFacts::of(run) };
            }
        }
        if self.runs.len() != state.runs.len() {
            for (_, run) in state.runs.iter() {
                self.runs.entry(run.head.id).or_insert_with(|| RunFacts::of(run));
            }
        }
        self.before.clear();
        self.workers.clear();
        for slot in state.workers.in_order() {
            let worker = state.workers.at(slot);
            let (row, health, last_seen) = (worker.row.clone(), worker.health, worker.last_seen);
            self.workers.insert(worker.row.key, WorkerFacts { row, health, last_seen });
        }
        self.workers_before = self.workers.clone();
        self.next_epoch = self.next_epoch.max(state.meta.next_epoch.get());
        self.protected.retain(|_, until| *until > state.now());
        self.keys.retain(|_, key| key.until > state.now());
    }

    /// Takes in runs whose rows were loaded.
    pub(super) fn load(&mut self, rows: &[Row]) {
        for row in rows {
            if let Row::Run(row) = row {
                let mut works = BTreeMap::new();
                works.extend(row.whole.clone().map(|work| (NodeIx::WHOLE_RUN, *work)));
                works.extend(row.node.clone().map(|work| (NodeIx::new(0), work)));
                let head = row.head.clone();
                let (inboxes, ids, stepped) = (BTreeMap::new(), BTreeMap::new(), 0);
                let facts = RunFacts { head, works, inboxes, ids, stepped, stable_keys: BTreeMap::new() };
                self.runs.entry(row.head.id).or_insert_with(|| {
                    self.before.insert(row.head.id, facts.clone());
                    facts
                });
            }
        }
        for row in rows {
            let new = row.run().filter(|id| self.before.contains_key(id));
            let Some(run) = new.and_then(|id| self.runs.get_mut(&id)) else { continue };
            match row {
                Row::Node(row) => drop(run.works.insert(row.node, row.work.clone())),
                Row::Inbox(row) => drop(run.inboxes.insert((row.node, row.handle), row.clone())),
                Row::Message(row) => {
                    let MessageAt { node, handle, seq, .. } = row.at;
                    if let MessageKey::Own(id) = row.id {
                        run.ids.insert((node, handle, id), (row.value.hash, seq));
                    }
                }
                _ => {}
            }
        }
        let loaded: alloc::vec::Vec<RunId> = self.before.keys().copied().collect();
        for id in loaded {
            self.before.insert(id, self.runs[&id].clone());
        }
    }

    pub(super) fn run(&mut self, id: RunId) -> Option<&mut RunFacts> {
        let run = self.runs.get_mut(&id)?;
        self.before.entry(id).or_insert_with(|| run.clone());
        Some(run)
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
pub(super) fn fingerprint(row: &crate::coordinator::row::DefinitionRow) -> u64 {
    use core::hash::BuildHasher;
    crate::mix::FixedState.hash_one(row)
}
