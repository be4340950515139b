//! Getting work: by poll, by name, or because one created it.

use super::Decision;
use crate::coordinator::event::{By, Event};
use crate::coordinator::placement::Placement;
use crate::coordinator::rejection::{Ineligible, Rejection};
use crate::coordinator::state::State;
use crate::id::{Incarnation, NodeIx, PollId, RunId, WorkerId};
use crate::lifecycle::{Health, Phase, RunStatus};
use crate::limits::LimitName;
use alloc::vec::Vec;

/// What a poll may get.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// It is a repeat: these, and nothing new.
    Again(Vec<(RunId, NodeIx)>),
    /// Up to this many.
    UpTo(u32),
}

impl Decision<'_> {
    /// Whether a poll is new, and how much it may get. A poll is a sign of life.
    pub(crate) fn poll(
        &mut self,
        worker: WorkerId,
        incarnation: Incarnation,
        poll: PollId,
        max: u32,
    ) -> Result<Wanted, Rejection> {
        self.limit(LimitName::Poll, u64::from(max))?;
        let known = self.worker(worker, incarnation)?;
        if poll < known.last_poll {
            return Err(Rejection::StalePoll { last: known.last_poll, presented: poll });
        }
        self.events.push_back(Event::WorkerSeen { worker: self.key(worker), load: None });
        if poll == known.last_poll {
            return Ok(Wanted::Again(self.granted_by(worker, poll)));
        }
        self.events.push_back(Event::WorkerPolled { worker: self.key(worker), poll });
        Ok(Wanted::UpTo(max.min(known.free_slots())))
    }

    /// What a poll got and the worker still holds, oldest first.
    fn granted_by(&self, worker: WorkerId, poll: PollId) -> Vec<(RunId, NodeIx)> {
        let state = self.state;
        let slot = state.workers.slot(self.key(worker)).expect("it was just found");
        let mut granted: Vec<_> = state
            .workers
            .leases_of(&state.leases, slot)
            .filter(|(_, lease)| {
                let assignment = state.runs.at(lease.run).work(lease.node).assignment;
                assignment.is_some_and(|assignment| assignment.poll == poll)
            })
            .map(|(_, lease)| (lease.epoch, state.runs.at(lease.run).head.id, lease.node))
            .collect();
        granted.sort_unstable();
        granted.into_iter().map(|(_, run, node)| (run, node)).collect()
    }

    /// Claims one piece of work by name. True if it was claimed before by the same request.
    pub(crate) fn claim(
        &mut self,
        placement: &Placement,
        worker: WorkerId,
        incarnation: Incarnation,
        poll: PollId,
        (id, node): (RunId, NodeIx),
    ) -> Result<(), Rejection> {
        let known = self.worker(worker, incarnation)?;
        let run = self.node(id, node)?;
        let work = run.work(node);
        let is_repeat = |by_me: &&crate::coordinator::row::Assignment| {
            by_me.worker == worker && by_me.incarnation == incarnation && by_me.poll == poll
        };
        self.events.push_back(Event::WorkerSeen { worker: self.key(worker), load: None });
        if work.phase.is_held() && work.assignment.as_ref().filter(is_repeat).is_some() {
            return Ok(());
        }
        if poll <= known.last_poll {
            return Err(Rejection::StalePoll { last: known.last_poll, presented: poll });
        }
        if run.held_as(node) != node || work.phase != Phase::Ready {
            return Err(Rejection::NotReady { phase: work.phase });
        }
        if run.head.status == RunStatus::Paused {
            return Err(Rejection::Paused);
        }
        // Asking is a sign of life, so silence until now does not count.
        let class = self.state.definition_of(run).class(node);
        let stands = if known.health == Health::Draining { Err(Ineligible::Draining) } else { Ok(()) };
        stands
            .and_then(|()| placement.may_hold(class, known))
            .and_then(|()| placement.has_room_under_key(run))
            .map_err(|why| Rejection::NotEligible { why })?;
        let epoch = self.state.meta.next_epoch;
        let worker = self.key(worker);
        self.events.push_back(Event::WorkerPolled { worker, poll });
        self.events.push_back(Event::NodeClaimed { run: id, node, epoch, worker, poll, by: By::Claim });
        Ok(())
    }
}

/// The piece of work that a creator takes in the same step: the first that is ready and may be its.
pub(crate) fn creators_share(
    state: &State,
    placement: &Placement,
    id: RunId,
    worker: crate::coordinator::state::WorkerKey,
) -> Option<Event> {
    let (run, known) = (state.run(id)?, state.workers.get(worker)?);
    let may = |node: &NodeIx| {
        run.node(*node).queued
            && placement.eligible(run, state.definition_of(run).class(*node), known).is_ok()
    };
    let node = run.work_ixs().find(may)?;
    let (epoch, poll) = (state.meta.next_epoch, PollId::new(0));
    Some(Event::NodeClaimed { run: id, node, epoch, worker, poll, by: By::Creator })
}
