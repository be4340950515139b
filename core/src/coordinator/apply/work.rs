//! Pieces of work: every change of phase goes through [`Applier::step`], and so through the table (S1).

use super::Applier;
use crate::coordinator::command::{Failure, FailureKind, Suspension};
use crate::coordinator::event::{By, LateResult, Return, StopReason, WakeCause};
use crate::coordinator::placement::Item;
use crate::coordinator::row::{Change, HowEnded, LateRow, ReportMark, Row};
use crate::coordinator::state::{Node, Run, State, Timer, WorkerKey};
use crate::definition::{Assign, WorkSpec};
use crate::id::{Attempt, Epoch, NodeIx, PollId, RunId};
use crate::lifecycle::{Lifecycle, Phase, RunStatus, WorkStep};
use crate::time::Time;
use crate::value::Value;

impl Applier<'_> {
    /// Changes a phase, and everything that is derived from it.
    fn step(&mut self, id: RunId, node: NodeIx, step: WorkStep) {
        let now = self.state.now();
        let before = self.state.the_run(id).work(node).phase;
        let after = before.next(step);
        if before == Phase::Ready {
            self.leave_queue(id, node);
        }
        let run = self.change_work(id, node);
        let entry = run.node_mut(node);
        entry.work.phase = after;
        entry.work.since = now;
        entry.shown_at = now;
        if after == Phase::Ready {
            entry.work.ready_at = now;
        }
        if !node.is_whole_run() {
            run.open = run.open - u32::from(!before.is_terminal()) + u32::from(!after.is_terminal());
            run.active = run.active - u32::from(before.is_active()) + u32::from(after.is_active());
            run.suspended =
                run.suspended - u32::from(before == Phase::Suspended) + u32::from(after == Phase::Suspended);
        }
        if run.head.status == RunStatus::Suspended {
            self.set_wake_at(id);
        }
        if after == Phase::Ready {
            self.enter_queue(id, node);
        }
        self.arm_node(id, node);
    }

    /// Ready work stands in its queue, unless its run is paused or ends, or goes to the holder of the whole run.
    pub(crate) fn enter_queue(&mut self, id: RunId, node: NodeIx) {
        let slot = self.state.runs.slot(id.number()).expect("an event names a resident run");
        let run = self.state.runs.at_mut(slot);
        let gives_out = matches!(run.head.status, RunStatus::Running | RunStatus::Suspended);
        let is_placed = run.held_as(node) == node;
        let entry = run.node_mut(node);
        if entry.work.phase == Phase::Ready && gives_out && is_placed && !entry.queued {
            entry.queued = true;
            self.placement.enqueue(Item::of(self.state, slot, node));
        }
    }

    pub(crate) fn leave_queue(&mut self, id: RunId, node: NodeIx) {
        let slot = self.state.runs.slot(id.number()).expect("an event names a resident run");
        if self.state.runs.at(slot).node(node).queued {
            self.placement.dequeue(Item::of(self.state, slot, node));
            self.state.runs.at_mut(slot).node_mut(node).queued = false;
        }
    }

    /// Arms the timer of a piece of work for the first instant that something is due.
    pub(crate) fn arm_node(&mut self, id: RunId, node: NodeIx) {
        let State { runs, definitions, timers, .. } = &mut *self.state;
        let run = runs.get_mut(id.number()).expect("an event names a resident run");
        let (definition, is_paused) = (run.head.definition, run.head.status == RunStatus::Paused);
        let entry = run.node_mut(node);
        if entry.armed.is_never() && (entry.work.phase == Phase::Waiting || entry.work.phase.is_terminal()) {
            return;
        }
        let at = due_at(entry, is_paused, definitions[definition.get() as usize].work(node));
        timers.arm(Timer::Node(id.number(), node), &mut entry.armed, at);
    }

    pub(super) fn node_scheduled(&mut self, id: RunId, node: NodeIx) {
        let run = self.state.the_run(id);
        if !node.is_whole_run() && run.work(node).phase == Phase::Waiting {
            let plan = &self.state.definition_of(run).plan;
            let predecessors = plan.predecessors(node);
            if (plan.need(node) as usize) < predecessors.len() {
                let done = predecessors.iter().filter(|from| run.work(**from).phase == Phase::Completed);
                let joined = done.copied().collect();
                self.state.the_run_mut(id).node_mut(node).work.rare().joined = joined;
            }
        }
        self.state.the_run_mut(id).node_mut(node).work.until = Time::NEVER;
        self.step(id, node, WorkStep::Schedule);
    }

    pub(super) fn node_assigned(&mut self, id: RunId, node: NodeIx, epoch: Epoch, worker: WorkerKey, by: By) {
        self.step(id, node, WorkStep::Assign);
        self.state.the_run_mut(id).node_mut(node).work.offers += 1;
        self.offer(id, node, epoch, worker, by);
    }

    pub(super) fn node_claimed(
        &mut self,
        id: RunId,
        node: NodeIx,
        epoch: Epoch,
        worker: WorkerKey,
        poll: PollId,
        by: By,
    ) {
        let was_offered = self.state.the_run(id).work(node).phase == Phase::Assigned;
        self.step(id, node, WorkStep::Claim);
        if was_offered {
            self.accept(id, node, epoch, worker, poll);
        } else {
            self.grant(id, node, epoch, worker, poll, by);
        }
        if by == By::Creator {
            let run = self.state.the_run_mut(id);
            run.head.rare_mut().created_held = Some((node, epoch));
        }
    }

    pub(super) fn node_started(&mut self, id: RunId, node: NodeIx, attempt: Attempt) {
        let now = self.state.now();
        let run = self.state.the_run_mut(id);
        let epoch = run.work(run.held_as(node)).epoch;
        let work = &mut run.node_mut(node).work;
        assert_eq!(attempt, work.attempt.next(), "attempts rise by one per start (S13)");
        work.attempt = attempt;
        work.started_at = now;
        work.epoch = epoch;
        if let Some(rare) = &mut work.rare {
            rare.progress = None;
        }
        self.step(id, node, WorkStep::Start);
    }

    pub(super) fn node_progressed(&mut self, id: RunId, node: NodeIx, step: u64, total: u64) {
        self.change_work(id, node).node_mut(node).work.rare().progress = Some((step, total));
        self.show(id, node);
    }

    pub(super) fn node_checkpointed(&mut self, id: RunId, node: NodeIx, state: Value) {
        self.change_work(id, node).node_mut(node).work.rare().state = Some(state);
        self.show(id, node);
    }

    /// The work showed a sign of itself.
    fn show(&mut self, id: RunId, node: NodeIx) {
        let now = self.state.now();
        self.state.the_run_mut(id).node_mut(node).shown_at = now;
        self.arm_node(id, node);
    }

    pub(super) fn node_completed(&mut self, id: RunId, node: NodeIx, output: Value) {
        if self.state.the_run(id).has_grant(node) {
            self.end_grant(id, node, None);
        }
        let work = &mut self.state.the_run_mut(id).node_mut(node).work;
        (work.output, work.until) = (output, Time::NEVER);
        self.step(id, node, WorkStep::Complete);
        if node.is_whole_run() {
            return;
        }
        // The edges out of this node arrive, once, because a node completes once per series.
        let State { runs, definitions, .. } = &mut *self.state;
        let run = runs.get_mut(id.number()).expect("an event names a resident run");
        let plan = &definitions[run.head.definition.get() as usize].plan;
        for successor in plan.successors(node) {
            let missing = &mut run.node_mut(*successor).missing;
            *missing = missing.saturating_sub(1);
        }
    }

    pub(super) fn node_failed(&mut self, id: RunId, node: NodeIx, failure: Failure, retry_at: Option<Time>) {
        if self.state.the_run(id).has_grant(node) {
            self.end_grant(id, node, Some(HowEnded::Failed(failure)));
        }
        let work = &mut self.state.the_run_mut(id).node_mut(node).work;
        work.rare().failure = Some(failure);
        work.until = retry_at.unwrap_or(Time::NEVER);
        if failure.kind == FailureKind::LostTooOften {
            work.losses += 1;
        } else if work.phase == Phase::Processing {
            work.failures += 1;
        }
        self.step(id, node, if retry_at.is_some() { WorkStep::Delay } else { WorkStep::Fail });
    }

    pub(super) fn node_untaken(&mut self, id: RunId, node: NodeIx, again_at: Time) {
        let work = &mut self.state.the_run_mut(id).node_mut(node).work;
        work.until = again_at;
        self.step(id, node, WorkStep::Delay);
        // Only now, because who is excluded decides where it waited.
        if let Some(rare) = &mut self.state.the_run_mut(id).node_mut(node).work.rare {
            rare.excluded.clear();
        }
    }

    pub(super) fn node_returned(&mut self, id: RunId, node: NodeIx, how: Return) {
        if self.state.the_run(id).has_grant(node) {
            let work = &mut self.state.the_run_mut(id).node_mut(node).work;
            let holder = work.holder().expect("a grant has a holder");
            work.losses += u32::from(how.is_loss() && work.is_claimed());
            if how.excludes() && !work.excludes(holder) {
                work.rare().excluded.push(holder);
            }
            self.end_grant(id, node, Some(HowEnded::Returned(how)));
        }
        self.step(id, node, WorkStep::Return);
    }

    pub(super) fn node_suspended(&mut self, id: RunId, node: NodeIx, suspension: &Suspension, wake_at: Time) {
        if self.state.the_run(id).has_grant(node) {
            self.end_grant(id, node, Some(HowEnded::Suspended));
        }
        let work = &mut self.state.the_run_mut(id).node_mut(node).work;
        work.until = wake_at;
        let rare = work.rare();
        rare.suspension = Some(suspension.clone());
        rare.state = Some(suspension.state);
        self.step(id, node, WorkStep::Suspend);
    }

    pub(super) fn node_postponed(&mut self, id: RunId, node: NodeIx, wake_at: Time) {
        let run = self.change_work(id, node);
        run.node_mut(node).work.until = wake_at;
        self.set_wake_at(id);
        self.arm_node(id, node);
    }

    pub(super) fn node_resumed(&mut self, id: RunId, node: NodeIx, cause: WakeCause) {
        let work = &mut self.state.the_run_mut(id).node_mut(node).work;
        work.until = Time::NEVER;
        let rare = work.rare();
        rare.suspension = None;
        rare.woken = Some(cause);
        self.step(id, node, WorkStep::Resume);
    }

    pub(super) fn run_parked(&mut self, id: RunId) {
        let node = NodeIx::WHOLE_RUN;
        if self.state.the_run(id).has_grant(node) {
            self.end_grant(id, node, Some(HowEnded::Suspended));
        }
        self.state.the_run_mut(id).node_mut(node).work.until = Time::NEVER;
        self.step(id, node, WorkStep::Park);
    }

    /// Cancelled, or not needed any more.
    pub(super) fn node_stopped(&mut self, id: RunId, node: NodeIx, step: WorkStep) {
        if self.state.the_run(id).has_grant(node) {
            self.end_grant(id, node, Some(HowEnded::Stopped));
        }
        let work = &mut self.state.the_run_mut(id).node_mut(node).work;
        work.until = Time::NEVER;
        work.stop = None;
        self.step(id, node, step);
    }

    pub(super) fn stop_asked(&mut self, id: RunId, node: NodeIx, reason: StopReason) {
        let run = self.change_work(id, node);
        let (priority, tenant) = (run.head.priority, run.head.tenant);
        let work = &mut run.node_mut(node).work;
        work.stop = Some(reason);
        let (epoch, holder) = (work.epoch, work.holder());
        if let Some(worker) = holder.and_then(|worker| self.state.workers.of(tenant, worker)) {
            self.placement.set_preemptible(worker.shape, priority, epoch, None);
        }
    }

    pub(super) fn late_result(&mut self, late: &LateResult) {
        // It is refused, so it is no change of the run (S3).
        let rare = self.touch_work(late.run, late.node).node_mut(late.node).work.rare();
        rare.late += 1;
        let row = LateRow { late: *late, number: rare.late, at: self.state.now() };
        self.state.touched.changes.push(Change::Put(Row::Late(row)));
    }

    /// Remembers the report that ended a grant, so that a repeat of it is known (S32).
    pub(super) fn report_taken(&mut self, id: RunId, node: NodeIx, epoch: Epoch, digest: u64) {
        let work = &mut self.change_work(id, node).node_mut(node).work;
        let attempt = work.attempt;
        work.rare().report = Some(ReportMark { epoch, attempt, digest });
    }
}

impl Run {
    /// True if the work is held under a grant of its own, and not under that of the whole run.
    pub(crate) fn has_grant(&self, node: NodeIx) -> bool {
        self.held_as(node) == node && self.work(node).phase.is_held()
    }
}

/// The first instant at which something is due on a piece of work.
fn due_at(entry: &Node, is_paused: bool, spec: &WorkSpec) -> Time {
    let (work, timeouts) = (&entry.work, &spec.timeouts);
    let within = |from: Time, ms: Option<u64>| ms.map_or(Time::NEVER, |ms| from.after_ms(ms));
    let to_start = within(work.ready_at, timeouts.ready_to_start_ms);
    match work.phase {
        Phase::Ready if is_paused => Time::NEVER,
        Phase::Ready | Phase::Claimed => to_start,
        Phase::Assigned => match spec.assign {
            Assign::Push { accept_ms } => entry.shown_at.after_ms(accept_ms).min(to_start),
            Assign::Pull => to_start,
        },
        Phase::Processing => {
            let to_finish = within(work.started_at, timeouts.start_to_finish_ms);
            to_finish.min(within(entry.shown_at, timeouts.progress_ms))
        }
        Phase::Backoff | Phase::Suspended => work.until,
        Phase::Waiting | Phase::Completed | Phase::Failed | Phase::Cancelled | Phase::Skipped => Time::NEVER,
    }
}
