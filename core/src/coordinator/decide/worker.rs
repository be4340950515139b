//! Workers: registration, signs of life, reconciliation, draining, leaving.

use super::Decision;
use crate::coordinator::command::{Heartbeat, Held, WorkerSpec};
use crate::coordinator::effect::Answer;
use crate::coordinator::event::{Event, WorkerRegistered};
use crate::coordinator::rejection::Rejection;
use crate::graph::is_name;
use crate::id::{Incarnation, WorkerId};
use crate::lifecycle::Health;
use crate::limits::LimitName;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Decision<'_> {
    /// Makes a worker known under a new incarnation, which fences any older one (S35).
    pub(crate) fn register(&mut self, worker: WorkerId, spec: WorkerSpec) -> Result<Answer, Rejection> {
        let traits = [spec.executors.len(), spec.capabilities.len(), spec.labels.len()];
        self.limit(LimitName::WorkerTraits, traits.into_iter().max().unwrap_or(0) as u64)?;
        self.limit(LimitName::WorkerSlots, u64::from(spec.slots))?;
        let names =
            spec.executors.iter().chain(&spec.labels).chain(spec.capabilities.iter().map(|(name, _)| name));
        for name in names {
            if !is_name(name, &self.state.limits) {
                return Err(Rejection::BadName { name: name.clone() });
            }
        }
        let known = self.state.workers.of(self.tenant, worker);
        if known.is_none() {
            self.limit(LimitName::Workers, self.state.workers.count(self.tenant) + 1)?;
        }
        let incarnation = Incarnation::new(self.state.meta.next_epoch.get());
        let session = known.map_or(crate::id::Session::new(1), |known| known.row.session.next());
        let registered = WorkerRegistered { worker: self.key(worker), incarnation, spec };
        self.events.push_back(Event::WorkerRegistered(Box::new(registered)));
        Ok(Answer::Registered { incarnation, session })
    }

    /// Renews all that a worker holds, at once. What lapsed was fired before and does not come back (S9).
    pub(crate) fn heartbeat(&mut self, beat: &Heartbeat) -> Result<Answer, Rejection> {
        let worker = self.worker(beat.worker, beat.incarnation)?;
        let session = worker.row.session;
        let reconcile = beat.session != session || beat.held != worker.digest();
        self.events
            .push_back(Event::WorkerSeen { worker: self.key(beat.worker), load: Some(beat.load.min(100)) });
        Ok(Answer::Beat { session, reconcile, now: self.state.now() })
    }

    /// Compares what a worker believes it holds with what it holds: what it must stop, and what it does not know of.
    pub(crate) fn reconcile(
        &mut self,
        worker: WorkerId,
        incarnation: Incarnation,
        held: &[Held],
    ) -> Result<(Vec<Held>, Vec<Held>), Rejection> {
        self.limit(LimitName::WorkerSlots, held.len() as u64)?;
        self.worker(worker, incarnation)?;
        let state = self.state;
        let slot = state.workers.slot(self.key(worker)).expect("it was just found");
        let mut actual: Vec<Held> = state
            .workers
            .leases_of(&state.leases, slot)
            .map(|(_, lease)| Held {
                run: state.runs.at(lease.run).head.id,
                node: lease.node,
                epoch: lease.epoch,
            })
            .collect();
        actual.sort_unstable_by_key(|one| one.epoch);
        let has = |one: &Held| actual.binary_search_by_key(&one.epoch, |other| other.epoch);
        let lost = held.iter().filter(|one| !has(one).is_ok_and(|at| actual[at] == **one)).copied().collect();
        let mut known: Vec<_> = held.iter().map(|one| one.epoch).collect();
        known.sort_unstable();
        let missed = actual.iter().filter(|one| known.binary_search(&one.epoch).is_err()).copied().collect();
        self.events.push_back(Event::WorkerSeen { worker: self.key(worker), load: None });
        Ok((lost, missed))
    }

    pub(crate) fn drain(&mut self, worker: WorkerId, on: bool) -> Result<Answer, Rejection> {
        let known = self.state.workers.of(self.tenant, worker).ok_or(Rejection::UnknownWorker { worker })?;
        if (known.health == Health::Draining) != on {
            self.events.push_back(Event::WorkerDrained { worker: self.key(worker), on });
            // Its silence while it drained counts: it is not given anything before it shows itself (S36).
            if !on && self.state.now().since(known.last_seen) >= self.state.limits.stale_ms {
                self.events.push_back(Event::WorkerSilent { worker: self.key(worker) });
            }
        }
        Ok(Answer::Done)
    }

    /// Whether a worker may leave; what it holds is given back first, one by one.
    pub(crate) fn deregister(
        &mut self,
        worker: WorkerId,
        incarnation: Option<Incarnation>,
    ) -> Result<Answer, Rejection> {
        match incarnation {
            Some(incarnation) => drop(self.worker(worker, incarnation)?),
            None => {
                self.state.workers.of(self.tenant, worker).ok_or(Rejection::UnknownWorker { worker })?;
            }
        }
        self.events.push_back(Event::WorkerLeft { worker: self.key(worker) });
        Ok(Answer::Done)
    }
}
