//! Grants: linking a lease to its worker and unlinking it again. Every count that a grant touches is touched here.

use super::Applier;
use crate::coordinator::event::By;
use crate::coordinator::row::{Assignment, Change, HistoryRow, HowEnded, Row};
use crate::coordinator::state::{State, WorkerKey};
use crate::id::{Epoch, NodeIx, PollId, RunId, Session};
use crate::mix::mix;
use crate::time::Time;

impl Applier<'_> {
    /// Work is offered to a worker: it takes a slot, and has no lease yet.
    pub(super) fn offer(&mut self, id: RunId, node: NodeIx, epoch: Epoch, key: WorkerKey, by: By) {
        let slot = self.state.workers.slot(key).expect("an event names a known worker");
        let worker = self.state.workers.at_mut(slot);
        worker.offered.insert(epoch, (id, node));
        let assignment = Assignment {
            worker: key.worker,
            incarnation: worker.row.incarnation,
            session: Session::new(0),
            lease_ms: 0,
            poll: PollId::new(0),
            assigned_at: self.state.clock.now,
            claimed_at: Time::NEVER,
            by,
        };
        self.take(id, node, epoch, slot, assignment);
    }

    /// Work is claimed by a worker that was not offered it.
    pub(super) fn grant(
        &mut self,
        id: RunId,
        node: NodeIx,
        epoch: Epoch,
        key: WorkerKey,
        poll: PollId,
        by: By,
    ) {
        let slot = self.state.workers.slot(key).expect("an event names a known worker");
        let run = self.state.the_run(id);
        let lease_ms = self.state.definition_of(run).work(node).lease_ms;
        let worker = self.state.workers.at(slot);
        let assignment = Assignment {
            worker: key.worker,
            incarnation: worker.row.incarnation,
            session: worker.row.session,
            lease_ms,
            poll,
            assigned_at: self.state.clock.now,
            claimed_at: self.state.clock.now,
            by,
        };
        self.link_lease(id, node, epoch, slot, &assignment);
        self.take(id, node, epoch, slot, assignment);
    }

    /// An offer was accepted: its slot becomes a lease.
    pub(super) fn accept(&mut self, id: RunId, node: NodeIx, epoch: Epoch, key: WorkerKey, poll: PollId) {
        let slot = self.state.workers.slot(key).expect("an event names a known worker");
        let now = self.state.clock.now;
        let run = self.state.the_run(id);
        let lease_ms = self.state.definition_of(run).work(node).lease_ms;
        let worker = self.state.workers.at_mut(slot);
        worker.offered.remove(&epoch).expect("an accepted offer was made");
        let session = worker.row.session;
        let assignment = self.state.the_run_mut(id).node_mut(node).work.assignment.as_mut();
        let assignment = assignment.expect("an accepted offer was made");
        (assignment.session, assignment.lease_ms) = (session, lease_ms);
        (assignment.claimed_at, assignment.poll) = (now, poll);
        let assignment = *assignment;
        self.link_lease(id, node, epoch, slot, &assignment);
        self.list_by_room(slot);
    }

    /// What offers and leases have in common.
    fn take(&mut self, id: RunId, node: NodeIx, epoch: Epoch, slot: u32, assignment: Assignment) {
        self.state.meta.next_epoch = self.state.meta.next_epoch.max(epoch.next());
        let run = self.state.the_run_mut(id);
        run.held += 1;
        let entry = run.node_mut(node);
        entry.work.epoch = epoch;
        entry.work.assignment = Some(assignment);
        self.count_grant(id, node, slot, true);
        self.list_by_room(slot);
    }

    /// Links a lease to its worker, as an event or a row says.
    pub(crate) fn link_lease(
        &mut self,
        id: RunId,
        node: NodeIx,
        epoch: Epoch,
        slot: u32,
        assignment: &Assignment,
    ) {
        let State { runs, workers, leases, definitions, .. } = &mut *self.state;
        let run_slot = runs.slot(id.number()).expect("an event names a resident run");
        let worker = workers.at_mut(slot);
        let is_dead = worker.is_session_dead(assignment.lease_ms, assignment.session);
        let lease = if is_dead {
            worker.lapsed += 1;
            leases.insert_lapsed(epoch, run_slot, node, slot)
        } else {
            let lane = worker.lane_mut(assignment.lease_ms);
            lane.digest ^= mix(epoch.get());
            leases.insert(&mut lane.list, epoch, run_slot, node, slot)
        };
        let shape = worker.shape;
        let run = runs.at_mut(run_slot);
        run.node_mut(node).lease = Some(lease);
        let is_asked = run.work(node).stop.is_some();
        if definitions[run.head.definition.get() as usize].work(node).preemptible && !is_asked && !is_dead {
            self.placement.set_preemptible(shape, run.head.priority, epoch, Some((id, node)));
        }
        self.arm_worker(slot);
    }

    /// A grant counts against its concurrency key and its class, from offer to end.
    pub(crate) fn count_grant(&mut self, id: RunId, node: NodeIx, slot: u32, begins: bool) {
        let run = self.state.the_run(id);
        let (tenant, limit) = (run.head.tenant, run.head.concurrency());
        let class = self.state.definition_of(run).class(node);
        if let Some(limit) = limit {
            if begins {
                self.placement.hold_key(tenant, limit.key);
            } else {
                self.placement.release_key(tenant, limit.key);
            }
        }
        if self.placement.limits_per_worker(class) {
            let held = &mut self.state.workers.at_mut(slot).held_of_class;
            if begins {
                *held.entry(class).or_default() += 1;
            } else if let Some(count) = held.get_mut(&class) {
                *count -= 1;
                if *count == 0 {
                    held.remove(&class);
                }
            }
        }
    }

    /// A grant ends; how, goes into the history unless the work is done with it.
    pub(super) fn end_grant(&mut self, id: RunId, node: NodeIx, how: Option<HowEnded>) {
        let run = self.state.the_run_mut(id);
        let key = WorkerKey {
            tenant: run.head.tenant,
            worker: run.work(node).holder().expect("a grant has a holder"),
        };
        let priority = run.head.priority;
        run.held -= 1;
        let entry = run.node_mut(node);
        entry.work.stop = None;
        let (epoch, lease) = (entry.work.epoch, entry.lease.take());
        let assignment = entry.work.assignment.expect("a grant has a holder");
        let slot = self.state.workers.slot(key).expect("a worker is known while it holds anything");
        let State { workers, leases, .. } = &mut *self.state;
        let worker = workers.at_mut(slot);
        match lease {
            None => drop(worker.offered.remove(&epoch)),
            Some(lease) => {
                if worker.is_session_dead(assignment.lease_ms, assignment.session) {
                    worker.lapsed -= 1;
                    leases.remove_lapsed(lease);
                } else {
                    let lane = worker.lane_mut(assignment.lease_ms);
                    lane.digest ^= mix(epoch.get());
                    leases.remove(&mut lane.list, lease);
                }
                let shape = worker.shape;
                let run = self.state.the_run(id);
                if self.state.definition_of(run).work(node).preemptible {
                    self.placement.set_preemptible(shape, priority, epoch, None);
                }
            }
        }
        self.count_grant(id, node, slot, false);
        self.list_by_room(slot);
        self.arm_worker(slot);
        self.placement.worker_opened(slot);
        if self.state.leases.lapsed.count == 0 && !self.state.armed.rescue.is_never() {
            self.arm_rescue(Time::NEVER);
        }
        if let Some(how) = how {
            let ended_at = self.state.now();
            let row = HistoryRow { run: id, node, epoch, assignment, ended_at, how };
            self.state.touched.changes.push(Change::Put(Row::History(row)));
        }
    }
}
