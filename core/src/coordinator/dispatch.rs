//! Giving out what became possible: new work is offered or announced, and workers with room are offered what waits.

use super::Coordinator;
use super::command::FailureKind;
use super::decide::progress::fail_for_good;
use super::event::{By, Event, StopReason};
use super::placement::{Item, News};
use super::state::WorkerKey;
use crate::definition::Assign;
use crate::id::{NodeIx, WorkerId};
use crate::lifecycle::{Health, Phase};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

impl Coordinator {
    /// The next thing to be given out, as events. Looks at news until one of them leads to something.
    pub(super) fn dispatch(&mut self, events: &mut VecDeque<Event>) {
        let before = events.len();
        while events.len() == before {
            match self.placement.next_news() {
                None => return,
                Some(News::Arrived(slot, node)) => self.arrived(slot, node, events),
                Some(News::Opened(worker)) => self.opened(worker, events),
            }
        }
    }

    /// Work entered its queue.
    fn arrived(&mut self, slot: u32, node: NodeIx, events: &mut VecDeque<Event>) {
        let before = events.len();
        let run = self.state.runs.at(slot);
        if !run.has_node(node) || !run.node(node).queued {
            return;
        }
        if !self.placement.is_queued(Item::of(&self.state, slot, node)) {
            // It is parked again: what it was let in for was taken meanwhile.
            return;
        }
        let definition = self.state.definition_of(run);
        let (class, priority) = (definition.class(node), run.head.priority);
        let preempts = definition.work(node).preempts;
        if self.placement.is_push(class) {
            self.offer(slot, node, events);
        } else if let Some(worker) = self.placement.idle_worker(&self.state, class) {
            events.push_back(Event::WorkerCalled { worker: self.state.workers.at(worker).row.key });
        }
        let is_stuck =
            events.len() == before && preempts && !self.placement.has_open_worker(&self.state, class);
        if is_stuck && let Some((run, node)) = self.placement.victim(class, priority) {
            events.push_back(Event::StopAsked { run, node, reason: StopReason::Preempted });
        }
    }

    /// Offers work to the best worker: the one it knows, if the work is sticky, or else by score (S37).
    fn offer(&mut self, slot: u32, node: NodeIx, events: &mut VecDeque<Event>) {
        let run = self.state.runs.at(slot);
        let (id, work) = (run.head.id, run.work(node));
        let definition = self.state.definition_of(run);
        let (class, spec) = (definition.class(node), definition.work(node));
        if run
            .head
            .concurrency()
            .is_some_and(|limit| self.placement.held_under(run.head.tenant, limit.key) >= limit.limit)
        {
            return;
        }
        let excluded: Vec<WorkerId> = work.rare.as_ref().map_or(Vec::new(), |rare| rare.excluded.clone());
        if u64::from(work.offers) >= self.state.limits.offers {
            events.push_back(fail_for_good(run, node, FailureKind::NobodyLeft));
            return;
        }
        let creator = run.head.rare.as_ref().and_then(|rare| rare.creator);
        let last = work.assignment.map(|assignment| assignment.worker);
        let known = last.or(creator).filter(|worker| spec.sticky && !excluded.contains(worker));
        let known = known.and_then(|worker| {
            let slot = self.state.workers.slot(WorkerKey { tenant: run.head.tenant, worker })?;
            self.placement.eligible(run, class, self.state.workers.at(slot)).ok().map(|()| slot)
        });
        let best = known.or_else(|| self.placement.best_worker(&self.state, class, &excluded));
        if let Some(best) = best {
            let (epoch, worker) = (self.state.meta.next_epoch, self.state.workers.at(best).row.key);
            events.push_back(Event::NodeAssigned { run: id, node, epoch, worker, by: By::Placement });
        } else if !excluded.is_empty() && !self.has_other_worker(slot, class, &excluded) {
            let Assign::Push { accept_ms } = spec.assign else { unreachable!("only pushed work is offered") };
            let again_at = self.state.now().after_ms(accept_ms);
            events.push_back(Event::NodeUntaken { run: id, node, again_at });
        } else if !self.placement.has_fitting_worker(class) {
            events.push_back(Event::NodeUnplaced { run: id, node });
        }
    }

    /// True if a worker that was not asked yet may have room later. Looked at only when all others said no.
    fn has_other_worker(&self, slot: u32, class: u32, excluded: &[WorkerId]) -> bool {
        let run = self.state.runs.at(slot);
        self.state.workers.in_order().into_iter().map(|worker| self.state.workers.at(worker)).any(|worker| {
            use super::rejection::Ineligible::{ConcurrencyKey, Full, ParallelLimit};
            let may = self.placement.eligible(run, class, worker);
            let may_later =
                matches!(may, Ok(()) | Err(Full { .. } | ParallelLimit { .. } | ConcurrencyKey { .. }));
            worker.health == Health::Healthy && may_later && !excluded.contains(&worker.row.key.worker)
        })
    }

    /// A worker may have room: it is offered what waits for an offer, or told that a poll would find something.
    fn opened(&mut self, slot: u32, events: &mut VecDeque<Event>) {
        let Some(worker) = self.state.workers.try_at(slot).filter(|worker| worker.is_open()) else { return };
        let Some((run, node)) = self.placement.pick(&self.state, worker, true) else {
            if worker.waits && self.placement.pick(&self.state, worker, false).is_some() {
                events.push_back(Event::WorkerCalled { worker: worker.row.key });
            }
            return;
        };
        debug_assert_eq!(self.state.runs.at(run).work(node).phase, Phase::Ready);
        let (run, epoch) = (self.state.runs.at(run).head.id, self.state.meta.next_epoch);
        let key = worker.row.key;
        events.push_back(Event::NodeAssigned { run, node, epoch, worker: key, by: By::Placement });
        // There may be room for more.
        self.placement.worker_opened(slot);
    }
}
