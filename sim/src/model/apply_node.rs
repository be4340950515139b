//! What an event does to a piece of work.

use super::state::{Hold, Node, Tenure};
use super::{Model, Step, Wanted, wrong};
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::{Failure, FailureKind, Held};
use tenure_core::coordinator::event::{By, Event, Return, StopReason};
use tenure_core::id::*;
use tenure_core::lifecycle::{Lifecycle, Phase, WorkStep};
use tenure_core::time::Time;

impl Model {
    pub(super) fn apply_node(&mut self, at: Time, event: &Event) -> Step {
        match event {
            Event::NodeScheduled { run, node } => self.apply_scheduled(at, *run, *node),
            Event::NodeAssigned { run, node, epoch, worker, by } => {
                self.apply_grant(at, *run, *node, *epoch, *worker, *by, None)
            }
            Event::NodeClaimed { run, node, epoch, worker, poll, by } => {
                self.apply_grant(at, *run, *node, *epoch, *worker, *by, Some(*poll))
            }
            Event::NodeStarted { run, node, attempt } => {
                let known = self.runs.get(&run.number());
                let epoch = known.and_then(|run| run.node(run.grant_of(*node))).map(|grant| grant.epoch);
                let work = self.moved(*run, *node, WorkStep::Start)?;
                work.epoch = epoch.unwrap_or(work.epoch);
                if attempt.get() != work.attempt + 1 {
                    return Err(wrong("S13: attempt rises by 1 per start", work.attempt + 1, attempt));
                }
                work.attempt += 1;
                (work.started_at, work.moved_at) = (at, at);
                if let Some(rare) = work.rare.as_deref_mut() {
                    rare.progress = None;
                }
                Ok(())
            }
            Event::NodeCompleted { run, node, output } => {
                self.want_stop_of_whole(*run, *node, StopReason::NotNeeded);
                self.let_go(run.number(), *node)?;
                let work = self.moved(*run, *node, WorkStep::Complete)?;
                work.output = *output;
                ended(work);
                Ok(())
            }
            Event::NodeFailed { run, node, failure, retry_at } => {
                self.apply_failed(*run, *node, *failure, *retry_at)
            }
            Event::NodeUntaken { run, node, again_at } => {
                let work = self.moved(*run, *node, WorkStep::Delay)?;
                work.until = *again_at;
                work.rare().excluded.clear();
                Ok(())
            }
            Event::NodeReturned { run, node, how } => self.apply_returned(at, *run, *node, *how),
            Event::NodeCancelled { run, node } => self.apply_end(*run, *node, WorkStep::Cancel),
            Event::NodeSkipped { run, node } => self.apply_end(*run, *node, WorkStep::Skip),
            Event::RunParked { run } => {
                let whole = NodeIx::WHOLE_RUN;
                self.want_stop_of_whole(*run, whole, StopReason::NotNeeded);
                self.let_go(run.number(), whole)?;
                let work = self.moved(*run, whole, WorkStep::Park)?;
                ended(work);
                Ok(())
            }
            Event::StopAsked { run, node, reason } => {
                self.want_stop(*run, *node, *reason);
                self.work_mut(*run, *node)?.stop = Some(*reason);
                Ok(())
            }
            _ => self.apply_rest(at, event),
        }
    }

    fn apply_rest(&mut self, at: Time, event: &Event) -> Step {
        match event {
            Event::NodeSuspended { run, node, suspension, wake_at } => {
                self.let_go(run.number(), *node)?;
                let work = self.moved(*run, *node, WorkStep::Suspend)?;
                ended(work);
                work.until = *wake_at;
                let rare = work.rare();
                rare.state = Some(suspension.state);
                rare.suspension = Some((**suspension).clone());
                Ok(())
            }
            Event::NodeProgressed { run, node, step, total } => {
                let work = self.work_mut(*run, *node)?;
                work.moved_at = at;
                work.rare().progress = Some((*step, *total));
                Ok(())
            }
            Event::NodeCheckpointed { run, node, state } => {
                let work = self.work_mut(*run, *node)?;
                work.moved_at = at;
                work.rare().state = Some(*state);
                Ok(())
            }
            Event::NodePostponed { run, node, wake_at } => {
                self.work_mut(*run, *node)?.until = *wake_at;
                Ok(())
            }
            Event::NodeResumed { run, node, cause } => {
                let work = self.moved(*run, *node, WorkStep::Resume)?;
                (work.until, work.ready_at) = (Time::NEVER, at);
                let rare = work.rare();
                (rare.suspension, rare.woken) = (None, Some(*cause));
                Ok(())
            }
            Event::RunDoomed { run, node } => {
                if let Some(run) = self.run_mut(run.number()) {
                    run.doomed = Some(*node);
                }
                Ok(())
            }
            Event::LateResult(late) => {
                self.work_mut(late.run, late.node)?.rare().late += 1;
                Ok(())
            }
            _ => Err(wrong("an event of a piece of work", "one", event)),
        }
    }

    fn apply_scheduled(&mut self, at: Time, id: RunId, node: NodeIx) -> Step {
        let joined = self.runs.get(&id.number()).and_then(|run| {
            let ix = node.get() as usize;
            let links = run.def.links.get(ix).filter(|_| run.nodes[ix].phase == Phase::Waiting)?;
            let done = links.preds.iter().filter(|pred| run.nodes[**pred].phase == Phase::Completed);
            (links.need < links.preds.len())
                .then(|| done.map(|pred| NodeIx::new(*pred as u32)).collect::<Vec<_>>())
        });
        let work = self.moved(id, node, WorkStep::Schedule)?;
        (work.ready_at, work.until) = (at, Time::NEVER);
        if let Some(joined) = joined {
            work.rare().joined = joined;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of two events")]
    fn apply_grant(
        &mut self,
        at: Time,
        id: RunId,
        node: NodeIx,
        epoch: Epoch,
        key: WorkerKey,
        by: By,
        poll: Option<PollId>,
    ) -> Step {
        let Some(run) = self.runs.get(&id.number()) else { return Err(wrong("a run", "one", id)) };
        let lease_ms = run.def.work(node).lease_ms;
        let Some(worker) = self.workers.get(&key) else {
            return Err(wrong("S36: a grant is of a worker that is known", "a worker", key));
        };
        let (incarnation, session) = (worker.incarnation, worker.session);
        let was = run.node(node).map(|work| (work.phase, work.epoch, work.tenure));
        let hold = Hold {
            run: id.number(),
            node,
            lease_ms,
            session,
            poll: poll.unwrap_or_default(),
            offered: poll.is_none(),
        };
        let step = if poll.is_some() { WorkStep::Claim } else { WorkStep::Assign };
        let mut assigned_at = at;
        if let Some((Phase::Assigned, offered, Some(tenure))) = was {
            if offered != epoch || tenure.worker != key.worker {
                return Err(wrong("S8: an offer is accepted under its epoch", offered, epoch));
            }
            assigned_at = tenure.assigned_at;
            self.set_hold((key, epoch), Some(hold));
        } else {
            self.mint(epoch.get())?;
            self.take(key, epoch, hold);
        }
        let work = self.moved(id, node, step)?;
        let claimed_at = if poll.is_some() { at } else { Time::NEVER };
        let (session, lease_ms) = if poll.is_some() { (session, lease_ms) } else { (Session::new(0), 0) };
        let poll = poll.unwrap_or_default();
        work.tenure = Some(Tenure {
            worker: key.worker,
            incarnation,
            session,
            lease_ms,
            poll,
            assigned_at,
            claimed_at,
            by,
        });
        (work.epoch, work.until, work.blame) = (epoch, Time::NEVER, false);
        if step == WorkStep::Assign {
            work.offers += 1;
            self.wanted.push(Wanted::Offer(key, Held { run: id, node, epoch }));
        }
        Ok(())
    }

    /// Two budgets: failures, and losses of a holder (S13).
    fn apply_failed(&mut self, id: RunId, node: NodeIx, failure: Failure, retry_at: Option<Time>) -> Step {
        if self.is_by_time {
            self.want_stop(id, node, StopReason::Fenced);
        }
        self.let_go(id.number(), node)?;
        let work = self.work_mut(id, node)?;
        match failure.kind {
            FailureKind::LostTooOften => work.losses += 1,
            FailureKind::NobodyLeft | FailureKind::NotStartedInTime => {}
            _ => work.failures += 1,
        }
        work.rare().failure = Some(failure);
        let was_held = work.is_claimed() || work.phase == Phase::Processing;
        let step = if retry_at.is_some() { WorkStep::Delay } else { WorkStep::Fail };
        let work = self.moved(id, node, step)?;
        ended(work);
        work.blame = was_held;
        work.until = retry_at.unwrap_or(Time::NEVER);
        Ok(())
    }

    fn apply_returned(&mut self, at: Time, id: RunId, node: NodeIx, how: Return) -> Step {
        if matches!(how, Return::Expired | Return::Superseded | Return::TimedOut) {
            self.want_stop(id, node, StopReason::Fenced);
        }
        let is_own = self.runs.get(&id.number()).is_some_and(|run| run.grant_of(node) == node);
        self.let_go(id.number(), node)?;
        let work = self.work_mut(id, node)?;
        let was_claimed = work.is_claimed();
        if is_own && how.is_loss() && was_claimed {
            work.losses += 1;
        }
        if is_own && how.excludes() {
            let worker = work.tenure.map(|tenure| tenure.worker);
            let excluded = &mut work.rare().excluded;
            excluded.extend(worker.filter(|worker| !excluded.contains(worker)));
        }
        let work = self.moved(id, node, WorkStep::Return)?;
        ended(work);
        work.blame = how.is_loss();
        work.ready_at = at;
        Ok(())
    }

    fn apply_end(&mut self, id: RunId, node: NodeIx, step: WorkStep) -> Step {
        self.let_go(id.number(), node)?;
        let work = self.moved(id, node, step)?;
        ended(work);
        work.until = Time::NEVER;
        Ok(())
    }

    /// A report that ended a grant is remembered; what the machine calls it is its own business.
    pub(super) fn apply_mark(&mut self, id: RunId, node: NodeIx, epoch: Epoch, digest: u64) -> Step {
        let (attempt, said) = self.said;
        let work = self.work_mut(id, node)?;
        work.rare().mark = Some(super::state::Mark { epoch, attempt: Attempt::new(attempt), digest, said });
        Ok(())
    }

    fn want_stop_of_whole(&mut self, id: RunId, node: NodeIx, reason: StopReason) {
        if node.is_whole_run() {
            self.want_stop(id, node, reason);
        }
    }

    /// The holder is told to stop. A node of a run that is held as one has the epoch of the run.
    fn want_stop(&mut self, id: RunId, node: NodeIx, reason: StopReason) {
        let Some(run) = self.runs.get(&id.number()) else { return };
        let is_at_work = run.node(node).is_some_and(|work| work.phase.is_held());
        let Some(grant) = run.node(run.grant_of(node)) else { return };
        if let Some(tenure) = grant.tenure.filter(|_| is_at_work) {
            let key = WorkerKey { tenant: run.tenant, worker: tenure.worker };
            self.wanted.push(Wanted::Stop(key, Held { run: id, node, epoch: grant.epoch }, reason));
        }
    }

    pub(super) fn work(&self, id: RunId, node: NodeIx) -> Option<&Node> {
        self.runs.get(&id.number()).and_then(|run| run.node(node))
    }

    fn work_mut(&mut self, id: RunId, node: NodeIx) -> Step<&mut Node> {
        let work = self.run_mut(id.number()).and_then(|run| run.node_mut(node));
        work.ok_or_else(|| wrong("a piece of work that is there", "one", (id, node)))
    }

    /// S1: through the table, or not at all.
    fn moved(&mut self, id: RunId, node: NodeIx, step: WorkStep) -> Step<&mut Node> {
        let work = self.work_mut(id, node)?;
        match work.phase.after(step) {
            Some(next) => work.phase = next,
            None => return Err(wrong("S1: only transitions of the table occur", work.phase, (node, step))),
        }
        Ok(work)
    }
}

/// It has no holder any more.
fn ended(work: &mut Node) {
    (work.stop, work.blame) = (None, false);
}
