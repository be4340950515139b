//! Workers: known, heard of, silent, gone; and the lapse of leases that were not renewed.

use super::Applier;
use crate::coordinator::event::WorkerRegistered;
use crate::coordinator::placement::OPEN;
use crate::coordinator::row::WorkerRow;
use crate::coordinator::state::{List, Timer, Worker, WorkerKey};
use crate::id::{Epoch, PollId, Session};
use crate::lifecycle::{Health, Lifecycle, WorkerStep};
use crate::time::Time;
use alloc::vec::Vec;

impl Applier<'_> {
    fn worker(&self, key: WorkerKey) -> u32 {
        self.state.workers.slot(key).expect("an event names a known worker")
    }

    fn touch_worker(&mut self, slot: u32) -> &mut Worker {
        let worker = self.state.workers.at_mut(slot);
        if !worker.touched {
            worker.touched = true;
            self.state.touched.workers.push(worker.row.key);
        }
        worker
    }

    /// Lists a worker where placement should find it.
    pub(crate) fn relist(&mut self, slot: u32) {
        let worker = self.state.workers.at_mut(slot);
        self.placement.relist(worker, slot);
    }

    /// A worker holds more or less than before: of where it is listed, that can change only whether it is.
    pub(super) fn list_by_room(&mut self, slot: u32) {
        let worker = self.state.workers.at(slot);
        if worker.is_open() != worker.listed[OPEN].is_some() {
            self.relist(slot);
        }
    }

    /// Arms a worker's timer. A later instant does not move it: it is looked at when due and armed again.
    pub(crate) fn arm_worker(&mut self, slot: u32) {
        let due = self.worker_due(slot);
        let worker = self.state.workers.at(slot);
        if due < worker.armed || worker.armed <= self.state.clock.now || worker.armed.is_never() {
            self.arm_worker_exactly(slot, due);
        }
    }

    fn arm_worker_exactly(&mut self, slot: u32, at: Time) {
        let worker = self.state.workers.at_mut(slot);
        self.state.timers.arm(Timer::Worker(worker.row.key), &mut worker.armed, at);
    }

    /// The first instant at which a worker's silence means something.
    pub(crate) fn worker_due(&self, slot: u32) -> Time {
        let (worker, limits) = (self.state.workers.at(slot), &self.state.limits);
        let seen = worker.last_seen;
        let lease = worker.shortest_lease().map_or(Time::NEVER, |ms| seen.after_ms(ms));
        let health = match worker.health {
            Health::Healthy => seen.after_ms(limits.stale_ms),
            Health::Stale => seen.after_ms(limits.dead_ms),
            Health::Dead | Health::Draining if worker.held() + worker.lapsed == 0 => {
                seen.after_ms(limits.worker_retention_ms)
            }
            Health::Dead | Health::Draining | Health::Gone => Time::NEVER,
        };
        lease.min(health)
    }

    pub(super) fn worker_registered(&mut self, registered: &WorkerRegistered) {
        let now = self.state.now();
        let (key, spec) = (registered.worker, registered.spec.clone());
        // Life numbers come from the counter of grants, so that one is never used again, whoever was forgotten.
        let next = Epoch::new(registered.incarnation.get()).next();
        self.state.meta.next_epoch = self.state.meta.next_epoch.max(next);
        let slot = match self.state.workers.slot(key) {
            None => {
                let row = WorkerRow {
                    key,
                    incarnation: registered.incarnation,
                    session: Session::new(1),
                    fenced: Session::new(0),
                    lapsed: Vec::new(),
                    spec,
                    draining: false,
                    registered_at: now,
                };
                let mut worker = Worker::new(row, now);
                self.placement.enter(&mut worker);
                self.state.workers.insert(worker)
            }
            Some(slot) => {
                let lanes: Vec<List> =
                    self.state.workers.at(slot).lanes.iter().map(|lane| lane.list).collect();
                lanes.iter().for_each(|lane| self.spare(slot, lane));
                let worker = self.state.workers.at_mut(slot);
                self.placement.leave(worker);
                let row = &mut worker.row;
                row.incarnation = registered.incarnation;
                row.session = row.session.next();
                row.fenced = row.session;
                row.lapsed.clear();
                (row.spec, row.draining, row.registered_at) = (spec, false, now);
                let lanes = core::mem::take(&mut worker.lanes);
                (worker.last_seen, worker.load, worker.waits) = (now, 0, false);
                worker.last_poll = PollId::new(0);
                worker.health = Health::Healthy;
                self.placement.enter(worker);
                worker.lapsed += lanes.iter().map(|lane| lane.list.count).sum::<u32>();
                lanes.into_iter().for_each(|lane| self.state.leases.lapse(lane.list));
                self.arm_rescue(now);
                slot
            }
        };
        self.state.workers.at_mut(slot).heard = true;
        self.touch_worker(slot);
        self.relist(slot);
        self.arm_worker(slot);
    }

    pub(super) fn worker_drained(&mut self, key: WorkerKey, on: bool) {
        let slot = self.worker(key);
        let worker = self.touch_worker(slot);
        worker.row.draining = on;
        worker.health = worker.health.next(if on { WorkerStep::Drain } else { WorkerStep::Undrain });
        self.relist(slot);
        if on {
            self.placement.worker_gone();
        }
        self.arm_worker(slot);
    }

    pub(super) fn worker_left(&mut self, key: WorkerKey) {
        let slot = self.worker(key);
        self.arm_worker_exactly(slot, Time::NEVER);
        self.touch_worker(slot);
        let worker = self.state.workers.at_mut(slot);
        assert_eq!(worker.held() + worker.lapsed, 0, "a worker leaves when it holds nothing");
        worker.health = worker.health.next(WorkerStep::Leave);
        self.placement.leave(worker);
        self.state.workers.remove(key);
        self.placement.worker_gone();
    }

    /// Leases of one length lapse together, without being visited (S9, S10).
    pub(super) fn session_lapsed(&mut self, key: WorkerKey, lease_ms: u64) {
        let now = self.state.now();
        let slot = self.worker(key);
        let worker = self.touch_worker(slot);
        worker.row.session = worker.row.session.next();
        let session = worker.row.session;
        match worker.row.lapsed.iter_mut().find(|(length, _)| *length == lease_ms) {
            Some((_, since)) => *since = session,
            None => worker.row.lapsed.push((lease_ms, session)),
        }
        let lane = worker.lane_mut(lease_ms);
        lane.digest = 0;
        let list = core::mem::take(&mut lane.list);
        worker.lapsed += list.count;
        self.spare(slot, &list);
        self.state.leases.lapse(list);
        self.arm_rescue(now);
        self.relist(slot);
        self.arm_worker(slot);
    }

    /// Leases that are over are not asked for. They are looked at only if any of the worker's kind may be.
    fn spare(&mut self, slot: u32, list: &List) {
        let shape = self.state.workers.at(slot).shape;
        if !self.placement.has_preemptible(shape) {
            return;
        }
        for (_, lease) in self.state.leases.iter(list) {
            let priority = self.state.runs.at(lease.run).head.priority;
            self.placement.set_preemptible(shape, priority, lease.epoch, None);
        }
    }

    pub(super) fn worker_seen(&mut self, key: WorkerKey, load: Option<u8>) {
        let slot = self.worker(key);
        let now = self.state.now();
        let worker = self.state.workers.at_mut(slot);
        worker.last_seen = now;
        worker.heard = true;
        worker.load = load.unwrap_or(worker.load);
        worker.health = worker.health.next(WorkerStep::Hear);
        self.relist(slot);
        self.arm_worker(slot);
    }

    pub(super) fn worker_waits(&mut self, key: WorkerKey, waits: bool) {
        let slot = self.worker(key);
        self.state.workers.at_mut(slot).waits = waits;
        self.relist(slot);
    }

    pub(super) fn worker_silent(&mut self, key: WorkerKey) {
        let slot = self.worker(key);
        let worker = self.state.workers.at_mut(slot);
        let step = if worker.health == Health::Healthy { WorkerStep::FallSilent } else { WorkerStep::Die };
        worker.health = worker.health.next(step);
        self.relist(slot);
        self.placement.worker_gone();
        self.arm_worker(slot);
    }

    pub(super) fn worker_polled(&mut self, key: WorkerKey, poll: PollId) {
        let slot = self.worker(key);
        self.state.workers.at_mut(slot).last_poll = poll;
    }
}
