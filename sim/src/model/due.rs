//! What time does. One rule of expiry: a lease lives while now < last seen + its ttl and its session is current.

use super::state::{Node, Run};
use super::{Model, Now, Step, wrong};
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::FailureKind;
use tenure_core::coordinator::event::{EndCause, Event, Outcome, Return, WakeCause};
use tenure_core::definition::Assign;
use tenure_core::id::*;
use tenure_core::lifecycle::{Phase, RunStatus};
use tenure_core::time::Time;

/// Why a grant is over although nobody ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// It was not renewed in time, and its session lapsed.
    Lapsed,
    /// Its worker has a new life.
    Superseded,
}

impl Model {
    /// Whether the lease or offer of this work is dead by what was said of its worker (S9, S10).
    pub(super) fn is_gone(&self, run: &Run, work: &Node) -> Option<Gone> {
        let tenure = work.tenure.filter(|_| work.phase.is_held())?;
        let worker = self.workers.get(&WorkerKey { tenant: run.tenant, worker: tenure.worker });
        let Some(worker) = worker else { return Some(Gone::Superseded) };
        if worker.incarnation != tenure.incarnation {
            return Some(Gone::Superseded);
        }
        let is_late = self.now >= worker.last_seen.after_ms(tenure.lease_ms);
        let is_current =
            !work.is_claimed() || (worker.is_current(tenure.session, tenure.lease_ms) && !is_late);
        (!is_current).then_some(Gone::Lapsed)
    }

    /// A lane of leases of one length that was not renewed in time.
    pub(super) fn may_lapse(&self, key: WorkerKey, lease_ms: u64, at: Time) -> bool {
        let Some(worker) = self.workers.get(&key) else { return false };
        at >= worker.last_seen.after_ms(lease_ms)
            && self.holds_of(key).any(|(_, hold)| {
                !hold.offered && hold.lease_ms == lease_ms && worker.is_current(hold.session, lease_ms)
            })
    }

    pub(super) fn holds_of(&self, key: WorkerKey) -> impl Iterator<Item = (Epoch, &super::Hold)> {
        let range = (key, Epoch::new(0))..=(key, Epoch::new(u64::MAX));
        self.holds.range(range).map(|((_, epoch), hold)| (*epoch, hold))
    }

    /// True if time alone brings this about, now.
    pub(super) fn is_due(&self, event: &Event, at: Time, now: Now) -> bool {
        if let Event::SessionLapsed { worker, lease_ms } = event {
            return self.may_lapse(*worker, *lease_ms, at);
        }
        if let Event::WorkerLeft { worker } = event {
            return self.workers.get(worker).is_some_and(|known| {
                at >= known.last_seen.after_ms(self.limits.worker_retention_ms)
                    && self.holds_of(*worker).next().is_none()
            });
        }
        let Some(run) = event.run().and_then(|run| self.runs.get(&run.number())) else { return false };
        match event {
            Event::RunEnding { outcome: Outcome::Failed, cause: EndCause::Deadline, .. } => {
                run.is_open() && at >= run.deadline
            }
            Event::NodeScheduled { node, .. } => {
                run.node(*node).is_some_and(|work| work.phase == Phase::Backoff && at >= work.until)
            }
            Event::NodeReturned { node, how, .. } => self.may_return(run, *node, *how, at),
            Event::NodeCancelled { node, .. } => {
                run.status == RunStatus::Ending
                    && (self.is_grant_gone(run, *node) || self.is_out_of_time(run, *node, at))
            }
            Event::NodeSkipped { node, .. } => {
                let is_told = run.node(*node).is_some_and(|work| {
                    work.stop == Some(tenure_core::coordinator::event::StopReason::NotNeeded)
                });
                is_told && (self.is_grant_gone(run, *node) || self.is_out_of_time(run, *node, at))
            }
            Event::NodeFailed { node, failure, .. } => self.may_fail(run, *node, failure.kind, at),
            Event::NodeResumed { node, cause: WakeCause::Timer, .. } => {
                self.may_wake(run, *node, at) && !is_postponed(run, *node, at, now)
            }
            Event::NodePostponed { node, wake_at, .. } => {
                let wall = run.node(*node).and_then(|work| work.suspension()).and_then(|one| one.at_wall);
                self.may_wake(run, *node, at)
                    && is_postponed(run, *node, at, now)
                    && wall.is_some_and(|wall| *wake_at == at.after_ms(wall - now.wall))
            }
            Event::NodeCompleted { node, .. } => {
                !node.is_whole_run()
                    && run.def.timer(node.get() as usize).is_some()
                    && self.may_wake(run, *node, at)
            }
            Event::MessagesReturned { node, handle, blame: true, .. } => {
                let ms = |run: &Run| {
                    run.def.spec.nodes[node.get() as usize].handles[usize::from(handle.get())].claim_ms
                };
                run.inbox(*node, *handle)
                    .is_some_and(|inbox| inbox.has_claimed() && at >= inbox.claimed_at.after_ms(ms(run)))
            }
            _ => false,
        }
    }

    /// What was told to stop and takes too long for that too is over.
    fn is_out_of_time(&self, run: &Run, node: NodeIx, at: Time) -> bool {
        [FailureKind::NotStartedInTime, FailureKind::TookTooLong, FailureKind::NoProgress]
            .into_iter()
            .any(|kind| self.may_fail(run, node, kind, at))
    }

    /// Before a command is decided, what is due on the run or node it names has fired: one path by which things expire,
    /// whoever notices (S10).
    pub(super) fn check_nothing_due(&self, id: RunId, named: Option<NodeIx>) -> Step {
        let Some(run) = self.runs.get(&id.number()).filter(|run| run.id == id) else { return Ok(()) };
        let at = self.now;
        if run.is_open() && at >= run.deadline {
            return Err(wrong("what is due on a run that is named fires first", "its deadline", id));
        }
        let whole = run.whole.as_deref().map(|whole| (NodeIx::WHOLE_RUN, whole));
        let nodes = run.nodes.iter().enumerate().map(|(ix, node)| (NodeIx::new(ix as u32), node));
        let is_named = |node: NodeIx| named.is_none_or(|named| node == named || node == run.grant_of(named));
        for (node, work) in nodes.chain(whole).filter(|(node, _)| is_named(*node)) {
            let is_own = run.grant_of(node) == node;
            let is_due = match work.phase {
                // A back-off of no time at all may have begun in this very step.
                Phase::Backoff => at > work.until,
                Phase::Suspended => self.may_wake(run, node, at),
                Phase::Ready => self.is_out_of_time(run, node, at),
                Phase::Assigned => is_own && self.may_return(run, node, Return::TimedOut, at),
                Phase::Claimed | Phase::Processing => {
                    self.is_out_of_time(run, node, at) || (is_own && self.is_gone(run, work).is_some())
                }
                _ => false,
            };
            if is_due {
                return Err(wrong("what is due on a run that is named fires first", "it fired", (id, node)));
            }
        }
        Ok(())
    }

    fn is_grant_gone(&self, run: &Run, node: NodeIx) -> bool {
        let grant = run.node(run.grant_of(node));
        grant.is_some_and(|work| self.is_gone(run, work).is_some())
    }

    fn may_wake(&self, run: &Run, node: NodeIx, at: Time) -> bool {
        run.is_open() && run.node(node).is_some_and(|work| work.phase == Phase::Suspended && at >= work.until)
    }

    fn may_return(&self, run: &Run, node: NodeIx, how: Return, at: Time) -> bool {
        let Some(work) = run.node(node) else { return false };
        if run.grant_of(node) != node {
            // Nodes go back with the run they are part of.
            let is_free = run.node(run.grant_of(node)).is_some_and(|whole| !whole.phase.is_held());
            return is_free && work.phase == Phase::Processing;
        }
        let accept_ms = match run.def.work(node).assign {
            Assign::Push { accept_ms } => accept_ms,
            Assign::Pull => 0,
        };
        let is_silent = work.phase == Phase::Assigned
            && work
                .tenure
                .is_some_and(|tenure| at >= tenure.assigned_at.max(self.recovered_at).after_ms(accept_ms));
        let may_be_lost = work.losses + 1 < run.def.work(node).retry.max_losses;
        match (how, self.is_gone(run, work)) {
            (Return::TimedOut, _) => is_silent,
            (Return::Expired, Some(Gone::Lapsed)) => may_be_lost && run.is_open() && work.is_claimed(),
            (Return::Superseded, Some(Gone::Superseded)) => {
                run.is_open() && (may_be_lost || !work.is_claimed())
            }
            _ => false,
        }
    }

    fn may_fail(&self, run: &Run, node: NodeIx, kind: FailureKind, at: Time) -> bool {
        let Some(work) = run.node(node) else { return false };
        let (limits, retry) = (&run.def.work(node).timeouts, &run.def.work(node).retry);
        let passed = |from: Time, ms: Option<u64>| ms.is_some_and(|ms| at >= from.after_ms(ms));
        match kind {
            FailureKind::NotStartedInTime => {
                let may_start = work.phase == Phase::Ready && run.status != RunStatus::Paused;
                (may_start || matches!(work.phase, Phase::Assigned | Phase::Claimed))
                    && passed(work.ready_at, limits.ready_to_start_ms)
            }
            FailureKind::TookTooLong => {
                work.phase == Phase::Processing && passed(work.started_at, limits.start_to_finish_ms)
            }
            FailureKind::NoProgress => {
                let from = work.moved_at.max(self.recovered_at);
                work.phase == Phase::Processing && passed(from, limits.progress_ms)
            }
            FailureKind::LostTooOften => {
                work.losses + 1 >= retry.max_losses && work.is_claimed() && self.is_gone(run, work).is_some()
            }
            _ => false,
        }
    }
}

/// The wall clock was set back, and nothing but the calendar wakes it now.
fn is_postponed(run: &Run, node: NodeIx, _at: Time, now: Now) -> bool {
    let suspension = run.node(node).and_then(|work| work.suspension());
    suspension.is_some_and(|one| one.after_ms.is_none() && one.at_wall.is_some_and(|wall| now.wall < wall))
}
