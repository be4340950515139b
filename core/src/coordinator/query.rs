//! Queries: read-only views of what is in memory. What has ended or sleeps is in the store, and is asked for there.

use super::Coordinator;
use super::command::Failure;
use super::event::{EndCause, Outcome, WakeCause};
use super::row::{Assignment, InboxRow, MessageRow, RunHead, Work, WorkerRow};
use super::state::{Run, WorkerKey};
use crate::definition::{Definition, Name, Requirement};
use crate::id::*;
use crate::lifecycle::{Health, MessageState, Phase, RunStatus};
use crate::time::Time;
use crate::value::Value;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A run as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunView {
    /// What is kept of it.
    pub head: RunHead,
    /// Its status; `recovering` shows apart, below.
    pub status: RunStatus,
    /// A holder has not been heard of since the machine recovered.
    pub recovering: bool,
    /// Its nodes, in the order of the definition.
    pub nodes: Vec<NodeView>,
    /// What its exit nodes made, by node, once they completed.
    pub output: Vec<(NodeIx, Value)>,
}

/// A node as people see it. Earlier assignments are rows of their own, in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Which.
    pub node: NodeIx,
    /// Its name.
    pub name: Name,
    /// Where it stands, and since when.
    pub phase: Phase,
    /// Since when.
    pub since: Time,
    /// Number of the last start.
    pub attempt: Attempt,
    /// Failures and lost holders in this series.
    pub failures: u32,
    /// Lost holders in this series.
    pub losses: u32,
    /// Step x of y, as it last said.
    pub progress: Option<(u64, u64)>,
    /// The last failure.
    pub failure: Option<Failure>,
    /// Who has it, or last had it.
    pub assignment: Option<Assignment>,
    /// What came of it.
    pub output: Value,
    /// What last woke it.
    pub woken: Option<WakeCause>,
    /// Its inboxes.
    pub inboxes: Vec<InboxView>,
}

/// An inbox as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxView {
    /// Which handle.
    pub handle: HandleIx,
    /// Its name.
    pub name: Name,
    /// Messages that are not settled, with where they stand.
    pub messages: Vec<(Seq, MessageState, Value)>,
    /// Messages that are settled.
    pub settled: Seq,
    /// All its sources ended.
    pub ended: bool,
    /// Nothing more is taken.
    pub closed: bool,
    /// Cursor of the last input settled.
    pub cursor: Option<u64>,
}

/// A run as it is in memory.
#[derive(Debug, Clone, Copy)]
pub struct Resident<'a>(&'a Run);

impl<'a> Resident<'a> {
    /// What is kept of it.
    pub fn head(self) -> &'a RunHead {
        &self.0.head
    }

    /// One of its nodes, or the run as one piece of work.
    pub fn work(self, node: NodeIx) -> Option<&'a Work> {
        let is_there = if node.is_whole_run() {
            self.0.work_ixs().any(|known| known == node)
        } else {
            node.index() < self.0.nodes.as_slice().len()
        };
        is_there.then(|| self.0.work(node))
    }

    /// An inbox, and its messages that are not settled.
    pub fn inbox(
        self,
        node: NodeIx,
        handle: HandleIx,
    ) -> Option<(&'a InboxRow, impl Iterator<Item = &'a MessageRow>)> {
        let mut inboxes = self.0.inboxes.iter();
        let inbox = inboxes.find(|inbox| inbox.row.node == node && inbox.row.handle == handle)?;
        Some((&inbox.row, inbox.messages.iter()))
    }
}

/// Which runs to list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunFilter {
    /// Only these statuses, if any are named.
    pub statuses: Vec<RunStatus>,
    /// Only runs that have all of these labels.
    pub labels: Vec<(Name, Name)>,
    /// Only runs of this definition's name.
    pub definition: Option<Name>,
    /// Only suspended runs that have messages waiting.
    pub with_input: bool,
}

/// A page of runs, by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<RunSummary>,
    /// Give this as `after` to get the next page; none on the last.
    pub next: Option<u64>,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Which.
    pub run: RunId,
    /// Of what.
    pub definition: Name,
    /// Where it stands.
    pub status: RunStatus,
    /// How it ends, once that is decided.
    pub ending: Option<(Outcome, EndCause)>,
    /// When it was opened.
    pub created_at: Time,
    /// Nodes that are not over, and all.
    pub open_nodes: (u32, u32),
    /// Messages waiting in its inboxes.
    pub waiting_messages: u64,
}

/// A worker as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Which.
    pub key: WorkerKey,
    /// Its life number.
    pub incarnation: Incarnation,
    /// Its session.
    pub session: Session,
    /// How it stands.
    pub health: Health,
    /// When it was last heard of.
    pub last_seen: Time,
    /// How busy it last said it is.
    pub load: u8,
    /// Pieces of work it may hold.
    pub slots: u32,
    /// What it holds, oldest first.
    pub held: Vec<super::command::Held>,
    /// What it was offered and has not answered.
    pub offered: Vec<super::command::Held>,
    /// Leases that lapsed and were not taken back yet.
    pub lapsed: u32,
}

/// How much waits for workers of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDepth {
    /// Whose work.
    pub tenant: TenantId,
    /// Who may do it.
    pub requirement: Requirement,
    /// It is offered, not polled for.
    pub push: bool,
    /// Pieces of work in the queue.
    pub waiting: u64,
    /// Pieces of work that wait for a concurrency key.
    pub blocked: u64,
}

impl Coordinator {
    /// Machine time, as of the last input.
    pub fn now(&self) -> Time {
        self.state.now()
    }

    /// A run with its nodes.
    pub fn run(&self, tenant: TenantId, run: RunId) -> Option<RunView> {
        let run = self.state.run(run).filter(|run| run.head.tenant == tenant)?;
        let definition = self.state.definition_of(run);
        let nodes: Vec<_> = run.node_ixs().map(|node| self.node_view(run, node)).collect();
        let exits = definition.plan.exits().iter().filter(|exit| run.work(**exit).phase == Phase::Completed);
        let output = exits.map(|exit| (*exit, run.work(*exit).output)).collect();
        let recovering = run.work_ixs().any(|node| self.is_unheard(run, node));
        Some(RunView { head: run.head.clone(), status: run.head.status, recovering, nodes, output })
    }

    /// A run as it is in memory, to be looked at without a copy.
    pub fn resident(&self, run: RunId) -> Option<Resident<'_>> {
        self.state.run(run).map(Resident)
    }

    /// What is kept of a worker, and when it was last heard of.
    pub fn worker_row(&self, key: WorkerKey) -> Option<(&WorkerRow, Time)> {
        self.state.workers.get(key).map(|worker| (&worker.row, worker.last_seen))
    }

    fn is_unheard(&self, run: &Run, node: NodeIx) -> bool {
        let work = run.work(node);
        let holder = work.holder().filter(|_| work.is_claimed() && run.held_as(node) == node);
        holder
            .and_then(|worker| self.state.workers.of(run.head.tenant, worker))
            .is_some_and(|worker| !worker.heard)
    }

    fn node_view(&self, run: &Run, node: NodeIx) -> NodeView {
        let spec = self.state.definition_of(run).node(node).expect("a run has the nodes of its definition");
        let Work { phase, since, attempt, failures, losses, output, assignment, rare, .. } = run.work(node);
        let rare = rare.as_deref();
        let inboxes = run.inboxes_of(node).iter().map(|inbox| InboxView {
            handle: inbox.row.handle,
            name: spec.handles[usize::from(inbox.row.handle.get())].name.clone(),
            messages: inbox
                .messages
                .iter()
                .map(|message| {
                    let is_claimed = message.at.seq <= inbox.row.claimed_through;
                    let state = if is_claimed { MessageState::Claimed } else { MessageState::Pending };
                    (message.at.seq, state, message.value)
                })
                .collect(),
            settled: inbox.row.settled,
            ended: inbox.row.has_ended(),
            closed: inbox.row.closed,
            cursor: inbox.row.cursor_settled,
        });
        NodeView {
            node,
            name: spec.name.clone(),
            phase: *phase,
            since: *since,
            attempt: *attempt,
            failures: *failures,
            losses: *losses,
            progress: rare.and_then(|rare| rare.progress),
            failure: rare.and_then(|rare| rare.failure),
            assignment: *assignment,
            output: *output,
            woken: rare.and_then(|rare| rare.woken),
            inboxes: inboxes.collect(),
        }
    }

    /// Runs of a tenant after number `after`, at most `most` of them.
    pub fn runs(&self, tenant: TenantId, filter: &RunFilter, after: Option<u64>, most: usize) -> RunPage {
        let from = after.map_or(0, |number| number + 1);
        let mut found = self.state.runs.iter_from(from).filter(|(_, run)| {
            run.head.tenant == tenant
                && (filter.statuses.is_empty() || filter.statuses.contains(&run.head.status))
                && filter.labels.iter().all(|label| run.head.labels().contains(label))
                && filter.definition.as_ref().is_none_or(|name| self.name_of(run) == name)
                && (!filter.with_input
                    || (run.head.status == RunStatus::Suspended && waiting_messages(run) > 0))
        });
        let runs: Vec<_> = found.by_ref().take(most).map(|(_, run)| self.summary(run)).collect();
        let last = runs.last().map(|summary| summary.run.number());
        RunPage { next: last.filter(|_| found.next().is_some()), runs }
    }

    fn name_of(&self, run: &Run) -> &Name {
        &self.state.definition_of(run).row.definition.name
    }

    fn summary(&self, run: &Run) -> RunSummary {
        RunSummary {
            run: run.head.id,
            definition: self.name_of(run).clone(),
            status: run.head.status,
            ending: run.head.ending,
            created_at: run.head.created_at,
            open_nodes: (run.open, run.nodes.as_slice().len() as u32),
            waiting_messages: waiting_messages(run),
        }
    }

    /// The workers of a tenant, by id.
    pub fn workers(&self, tenant: TenantId) -> Vec<WorkerView> {
        let slots = self.state.workers.in_order().into_iter();
        slots
            .filter(|slot| self.state.workers.at(*slot).row.key.tenant == tenant)
            .map(|slot| self.worker(slot))
            .collect()
    }

    fn worker(&self, slot: u32) -> WorkerView {
        let (state, worker) = (&self.state, self.state.workers.at(slot));
        let held_of = |run: RunId, node, epoch| super::command::Held { run, node, epoch };
        let leases = state.workers.leases_of(&state.leases, slot);
        let mut held: Vec<_> = leases
            .map(|(_, lease)| held_of(state.runs.at(lease.run).head.id, lease.node, lease.epoch))
            .collect();
        held.sort_unstable_by_key(|held| held.epoch);
        WorkerView {
            key: worker.row.key,
            incarnation: worker.row.incarnation,
            session: worker.row.session,
            health: worker.health,
            last_seen: worker.last_seen,
            load: worker.load,
            slots: worker.row.spec.slots,
            held,
            offered: worker.offered.iter().map(|(epoch, (run, node))| held_of(*run, *node, *epoch)).collect(),
            lapsed: worker.lapsed,
        }
    }

    /// What a worker could do now, best first, without claiming it.
    pub fn offers(&self, key: WorkerKey, most: usize) -> Vec<(RunId, NodeIx)> {
        let Some(worker) = self.state.workers.get(key).filter(|worker| worker.is_open()) else {
            return Vec::new();
        };
        let found = self.placement.list_for(&self.state, worker, most).into_iter();
        found.map(|(slot, node)| (self.state.runs.at(slot).head.id, node)).collect()
    }

    /// How much waits, by kind of work.
    pub fn queue_depths(&self) -> Vec<QueueDepth> {
        let depths = self.placement.depths();
        depths
            .map(|(tenant, requirement, push, waiting, blocked)| QueueDepth {
                tenant,
                requirement: requirement.clone(),
                push,
                waiting: waiting as u64,
                blocked: blocked as u64,
            })
            .collect()
    }

    /// A definition, and an order in which every node comes after its predecessors.
    pub fn plan(&self, tenant: TenantId, id: DefinitionId) -> Option<(&Definition, &[NodeIx])> {
        let entry =
            self.state.definitions.get(id.get() as usize).filter(|entry| entry.row.tenant == tenant)?;
        Some((&entry.row.definition, entry.plan.order()))
    }
}

fn waiting_messages(run: &Run) -> u64 {
    run.inboxes.iter().map(|inbox| inbox.row.unsettled()).sum()
}
