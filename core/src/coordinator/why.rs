//! Why nothing moves: for any run or node, what it waits for, since when, and which deadline or outside event moves it
//! next. Nothing is ever stuck: whatever is not over has such an answer (S51).

use super::placement::Item;
use super::rejection::Ineligible;
use super::state::{Run, State};
use super::{Coordinator, command::Failure, event::EndCause, event::Outcome, event::StopReason};
use crate::definition::{Assign, NodeKind};
use crate::id::{HandleIx, NodeIx, RunId, TenantId, WorkerId};
use crate::lifecycle::{Lifecycle, Phase, RunStatus};
use crate::time::{Reason, Time};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// What a run waits for, and each of its nodes that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyRun {
    /// Which.
    pub run: RunId,
    /// Where it stands.
    pub status: RunStatus,
    /// How it ended or will end, once that is decided, and why.
    pub ending: Option<(Outcome, EndCause)>,
    /// When it fails for having taken too long.
    pub deadline: Option<Time>,
    /// What each piece of work that is not over waits for.
    pub nodes: Vec<WhyNode>,
}

/// What a piece of work waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhyNode {
    /// Which; [`NodeIx::WHOLE_RUN`] for the run itself.
    pub node: NodeIx,
    /// Where it stands.
    pub phase: Phase,
    /// Since when.
    pub since: Time,
    /// What it waits for.
    pub waits_for: Waiting,
    /// When it is looked at by itself, and for what.
    pub next: Option<(Time, Reason)>,
    /// How its last attempt failed.
    pub last_failure: Option<Failure>,
}

/// What something waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// It is over.
    Nothing,
    /// These predecessors, of which so many more must complete.
    Predecessors {
        /// Those that have not completed and still may.
        open: Vec<NodeIx>,
        /// How many more are needed.
        missing: u32,
    },
    /// A first message, or the end of all streams, on one of these handles.
    Input {
        /// The handles.
        handles: Vec<HandleIx>,
        /// Outside events are sent there.
        registered: bool,
    },
    /// Any worker that fits and polls, or has room; none is known.
    FittingWorker,
    /// A worker that fits to poll or to have room; so many wait before it.
    Worker {
        /// Pieces of work of the same kind that go first.
        ahead: u64,
    },
    /// One of those that hold its concurrency key to finish.
    ConcurrencyKey {
        /// How many may hold it.
        limit: u32,
    },
    /// The holder of the whole run to start it.
    HolderOfRun {
        /// Who.
        worker: WorkerId,
    },
    /// Somebody to hold the whole run.
    RunToBeHeld,
    /// A person to let the run continue.
    Continue,
    /// An offered worker to accept or decline.
    Acceptance {
        /// Who.
        worker: WorkerId,
    },
    /// Its holder to report.
    Holder {
        /// Who.
        worker: WorkerId,
        /// Its lease dies then, unless the worker shows itself.
        lease_until: Time,
        /// The worker was heard of since the machine recovered.
        heard: bool,
    },
    /// Its turn to be taken back: its lease lapsed, and what lapses together is rescued at a pace.
    Rescue {
        /// Who held it.
        worker: WorkerId,
    },
    /// Its holder to answer that it stopped, or its lease to end.
    Stop {
        /// Who.
        worker: WorkerId,
        /// Why it was told to.
        reason: StopReason,
        /// Its lease dies then, unless the worker shows itself.
        lease_until: Time,
    },
    /// The end of its back-off.
    Backoff {
        /// When.
        until: Time,
    },
    /// To be woken.
    Wake {
        /// A message or trigger input does it.
        on_message: bool,
        /// Time does it.
        at: Option<Time>,
    },
    /// The holder of its run, which was told to stop: it ends with the run.
    RunToEnd,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("it is over"),
            Self::Predecessors { open, missing } => {
                write!(f, "waits for {missing} more of its predecessors; {} still may complete", open.len())
            }
            Self::Input { registered: true, .. } => f.write_str("waits for an outside event"),
            Self::Input { registered: false, .. } => f.write_str("waits for a first message"),
            Self::FittingWorker => f.write_str("no known worker fits; it waits for one to register"),
            Self::Worker { ahead: 0 } => f.write_str("is next; waits for a fitting worker with room"),
            Self::Worker { ahead } => write!(f, "waits for a fitting worker with room; {ahead} go first"),
            Self::ConcurrencyKey { limit } => {
                write!(f, "waits for its concurrency key, which is held {limit} times, its limit")
            }
            Self::HolderOfRun { worker } => {
                write!(f, "waits for worker {worker}, which holds the run, to start it")
            }
            Self::RunToBeHeld => f.write_str("waits for a worker to hold the run"),
            Self::Continue => f.write_str("the run is paused; waits to be continued"),
            Self::Acceptance { worker } => write!(f, "was offered to worker {worker}; waits for its answer"),
            Self::Holder { worker, lease_until, heard: true } => {
                write!(
                    f,
                    "is with worker {worker}, whose lease lasts until {lease_until} and longer if it shows itself"
                )
            }
            Self::Holder { worker, lease_until, heard: false } => write!(
                f,
                "is recovering: worker {worker} has not been heard of since the restart and has until {lease_until}"
            ),
            Self::Rescue { worker } => {
                write!(f, "was lost by worker {worker}; waits for its turn to be given out anew")
            }
            Self::Stop { worker, lease_until, .. } => {
                write!(
                    f,
                    "worker {worker} was told to stop; waits for its answer, or its lease to end at {lease_until}"
                )
            }
            Self::Backoff { until } => write!(f, "is tried again at {until}"),
            Self::Wake { on_message, at } => {
                f.write_str("is suspended; wakes by hand")?;
                if *on_message {
                    f.write_str(", on a message")?;
                }
                at.map_or(Ok(()), |at| write!(f, ", at {at}"))
            }
            Self::RunToEnd => f.write_str("ends with its run, whose holder was told to stop"),
        }
    }
}

impl Coordinator {
    /// What a run and its nodes wait for; none if the tenant has no such run in memory.
    pub fn why(&self, tenant: TenantId, run: RunId) -> Option<WhyRun> {
        let run = self.state.run(run).filter(|run| run.head.tenant == tenant)?;
        let head = &run.head;
        let open = run.work_ixs().filter(|node| !run.work(*node).phase.is_terminal());
        let nodes = open.map(|node| self.why_node(run, node)).collect();
        let deadline = Some(head.deadline).filter(|at| !at.is_never());
        Some(WhyRun { run: head.id, status: head.status, ending: head.ending, deadline, nodes })
    }

    fn why_node(&self, run: &Run, node: NodeIx) -> WhyNode {
        let (entry, work) = (run.node(node), run.work(node));
        let next = Some(entry.armed).filter(|at| !at.is_never());
        let next = next.map(|at| (at, node_reason(&self.state, run.head.id.number(), node)));
        let waits_for = self.waits_for(run, node);
        WhyNode { node, phase: work.phase, since: work.since, waits_for, next, last_failure: work.failure() }
    }

    /// What a piece of work waits for.
    pub(super) fn waits_for(&self, run: &Run, node: NodeIx) -> Waiting {
        let work = run.work(node);
        match work.phase {
            Phase::Waiting => self.waits_to_be_ready(run, node),
            Phase::Ready => self.waits_for_worker(run, node),
            Phase::Backoff => Waiting::Backoff { until: work.until },
            Phase::Assigned | Phase::Claimed | Phase::Processing => self.waits_for_holder(run, node),
            Phase::Suspended => Waiting::Wake {
                on_message: work.suspension().is_some_and(|suspension| suspension.on_message),
                at: Some(work.until).filter(|at| !at.is_never()),
            },
            Phase::Completed | Phase::Failed | Phase::Cancelled | Phase::Skipped => Waiting::Nothing,
        }
    }

    fn waits_to_be_ready(&self, run: &Run, node: NodeIx) -> Waiting {
        if node.is_whole_run() {
            // The run is held again when one of its nodes is ready.
            let suspended = run.node_ixs().filter(|node| run.work(*node).phase == Phase::Suspended);
            let on_message =
                suspended.clone().any(|node| run.work(node).suspension().is_some_and(|s| s.on_message));
            let at = suspended.map(|node| run.work(node).until).min().filter(|at| !at.is_never());
            return Waiting::Wake { on_message, at };
        }
        let missing = run.node(node).missing;
        let definition = self.state.definition_of(run);
        if missing > 0 {
            let open = definition.plan.predecessors(node).iter().copied();
            let open = open.filter(|from| !run.work(*from).phase.is_terminal()).collect();
            return Waiting::Predecessors { open, missing };
        }
        let inboxes = run.inboxes_of(node);
        let handles = inboxes.iter().map(|inbox| inbox.row.handle).collect();
        Waiting::Input { handles, registered: inboxes.iter().any(|inbox| inbox.row.registered) }
    }

    fn waits_for_worker(&self, run: &Run, node: NodeIx) -> Waiting {
        if run.head.status == RunStatus::Paused {
            return Waiting::Continue;
        }
        if run.held_as(node) != node {
            let whole = run.work(NodeIx::WHOLE_RUN);
            return match whole.holder() {
                Some(worker) if whole.is_claimed() => Waiting::HolderOfRun { worker },
                _ => Waiting::RunToBeHeld,
            };
        }
        if let Some(limit) = run.head.concurrency()
            && self.placement.held_under(run.head.tenant, limit.key) >= limit.limit
        {
            return Waiting::ConcurrencyKey { limit: limit.limit };
        }
        let slot = self.state.runs.slot(run.head.id.number()).expect("it is resident");
        let item = Item::of(&self.state, slot, node);
        if !self.placement.has_fitting_worker(item.class) {
            return Waiting::FittingWorker;
        }
        Waiting::Worker { ahead: self.placement.ahead_of(item) }
    }

    fn waits_for_holder(&self, run: &Run, node: NodeIx) -> Waiting {
        let held_as = run.held_as(node);
        let work = run.work(held_as);
        if held_as != node && run.head.ending.is_some() {
            return Waiting::RunToEnd;
        }
        let assignment = work.assignment.expect("held work has a holder");
        let worker = assignment.worker;
        if !work.is_claimed() {
            return Waiting::Acceptance { worker };
        }
        if self.state.is_lease_dead(run, held_as) {
            return Waiting::Rescue { worker };
        }
        let known = self.state.workers.of(run.head.tenant, worker).expect("a holder is known");
        let lease_until = known.last_seen.after_ms(assignment.lease_ms);
        match run.work(node).stop.or(work.stop) {
            Some(reason) => Waiting::Stop { worker, reason, lease_until },
            None => Waiting::Holder { worker, lease_until, heard: known.heard },
        }
    }

    /// Why a worker may not have a piece of ready work now, if it may not; none if there is no such work or worker.
    pub fn why_not(
        &self,
        tenant: TenantId,
        run: RunId,
        node: NodeIx,
        worker: WorkerId,
    ) -> Option<Result<(), Ineligible>> {
        let run = self.state.run(run).filter(|run| run.head.tenant == tenant && run.has_node(node))?;
        let worker = self.state.workers.of(tenant, worker)?;
        if run.head.status == RunStatus::Paused {
            return Some(Err(Ineligible::RunPaused));
        }
        let class = self.state.definition_of(run).class(run.held_as(node));
        Some(self.placement.eligible(run, class, worker))
    }
}

/// What the timer of a piece of work is armed for.
pub(super) fn node_reason(state: &State, number: u64, node: NodeIx) -> Reason {
    let Some(run) = state.runs.get(number).filter(|run| run.has_node(node)) else { return Reason::Wake };
    let definition = state.definition_of(run);
    let (entry, spec) = (run.node(node), definition.work(node));
    let is_at = |from: Time, ms: Option<u64>| ms.is_some_and(|ms| from.after_ms(ms) == entry.armed);
    match entry.phase() {
        Phase::Backoff => Reason::Backoff,
        Phase::Assigned if !is_at(entry.work.ready_at, spec.timeouts.ready_to_start_ms) => {
            match spec.assign {
                Assign::Push { .. } => Reason::Acceptance,
                Assign::Pull => Reason::ReadyToStart,
            }
        }
        Phase::Ready | Phase::Assigned | Phase::Claimed => Reason::ReadyToStart,
        Phase::Processing if is_at(entry.work.started_at, spec.timeouts.start_to_finish_ms) => {
            Reason::StartToFinish
        }
        Phase::Processing => Reason::Progress,
        Phase::Suspended
        | Phase::Waiting
        | Phase::Completed
        | Phase::Failed
        | Phase::Cancelled
        | Phase::Skipped => {
            debug_assert!(
                definition.node(node).is_none_or(|spec| spec.kind != NodeKind::Work)
                    || entry.phase() == Phase::Suspended
            );
            Reason::Wake
        }
    }
}
