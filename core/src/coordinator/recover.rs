//! What starts anew when a machine is told to recover: time, sessions, timers, and everything else that is volatile.
//!
//! Every live lease gets its full time again, so nothing that was leased is given out again within its time (S16), and
//! reports that waited come in first.

use super::Coordinator;
use super::apply::Applier;
use super::changes::evict;
use super::restore::arm;
use super::state::{Run, State};
use crate::id::{PollId, RunId};
use crate::lifecycle::Health;
use crate::time::{Now, Time};
use alloc::vec::Vec;

/// What is volatile starts anew, in this machine as in one restored from its rows (S46).
pub(super) fn recover(core: &mut Coordinator, now: Now) {
    let meta = &core.state.meta;
    let passed = now.wall.saturating_sub(meta.wall).min(core.state.limits.restart_jump_ms);
    let base = meta.time.after_ms(if meta.step == 0 { 0 } else { passed });
    core.state.clock.restart(base, now);
    let ended = core::mem::take(&mut core.state.ended);
    for number in ended {
        if core.state.runs.get(number).is_some_and(Run::is_ended) {
            evict(&mut Applier { state: &mut core.state, placement: &mut core.placement }, number);
        }
    }
    core.state.timers.clear();
    core.state.armed = super::state::PartitionTimers::NONE;
    core.state.leases.sort_lapsed();
    let mut applier = Applier { state: &mut core.state, placement: &mut core.placement };
    recover_keys(applier.state);
    for slot in applier.state.workers.in_order() {
        recover_worker(&mut applier, slot, base);
    }
    let runs: Vec<RunId> = applier.state.runs.iter().map(|(_, run)| run.head.id).collect();
    for id in runs {
        recover_run(applier.state, id, base);
        arm(&mut applier, id);
    }
    let owed: Vec<_> = applier.state.outbox.values().map(|entry| entry.row).collect();
    owed.into_iter().for_each(|row| applier.outbox_added(row));
    applier.arm_rescue(base);
    applier.arm_sweep();
    applier.arm_page();
    applier.placement.forget_news();
    for slot in applier.state.workers.in_order() {
        applier.placement.worker_opened(slot);
    }
}

fn recover_keys(state: &mut State) {
    state.keys.restart(state.meta.newest_key);
    let State { keys, runs, .. } = state;
    for (number, run) in runs.iter() {
        if let Some(key) = run.head.key {
            keys.insert(run.head.tenant, key.key, number);
        }
    }
}

fn recover_worker(applier: &mut Applier<'_>, slot: u32, base: Time) {
    let state = &*applier.state;
    let incarnation = state.workers.at(slot).row.incarnation;
    let polls = state.workers.leases_of(&state.leases, slot).filter_map(|(_, lease)| {
        let assignment = state.runs.at(lease.run).work(lease.node).assignment?;
        (assignment.incarnation == incarnation).then_some(assignment.poll)
    });
    let last_poll = polls.max().unwrap_or(PollId::new(0));
    let worker = applier.state.workers.at_mut(slot);
    (worker.last_seen, worker.heard, worker.load, worker.waits) = (base, false, 0, false);
    worker.health = if worker.row.draining { Health::Draining } else { Health::Healthy };
    worker.last_poll = last_poll;
    worker.armed = Time::NEVER;
    applier.relist(slot);
    applier.arm_worker(slot);
}

fn recover_run(state: &mut State, id: RunId, base: Time) {
    let run = state.the_run_mut(id);
    run.armed = Time::NEVER;
    for node in run.work_ixs() {
        let entry = run.node_mut(node);
        (entry.armed, entry.shown_at) = (Time::NEVER, base);
    }
    for inbox in &mut run.inboxes {
        (inbox.armed, inbox.claimed_at, inbox.settled_cursor) = (Time::NEVER, base, None);
    }
}
