//! From events to effects: what must be done outside because of what happened. It reads the state after the event.

use super::command::{FailureKind, Held};
use super::effect::{Effect, Grant};
use super::event::{Event, Outcome, Return, StopReason};
use super::state::{Run, State, WorkerKey};
use crate::id::{NodeIx, RunId};
use crate::lifecycle::{Phase, RunStatus};
use crate::mix::{fold, mix};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What must be done because of `event`, which was just applied.
pub(crate) fn react(state: &State, event: &Event, effects: &mut Vec<Effect>) {
    match event {
        Event::NodeAssigned { run, node, worker, .. } => {
            let grant = Box::new(grant(state, state.the_run(*run), *node));
            effects.push(Effect::Offer { worker: *worker, grant });
        }
        Event::NodeClaimed { run, node, .. } if node.is_whole_run() => hand_all(state, *run, effects),
        Event::RunContinued { run } => hand_all(state, *run, effects),
        Event::NodeScheduled { run, node } | Event::NodeResumed { run, node, .. } => {
            hand(state, state.the_run(*run), *node, effects);
        }
        Event::NodeReturned { run, node, how } => {
            if matches!(how, Return::TimedOut | Return::Expired | Return::Superseded) {
                stop_last(state.the_run(*run), *node, StopReason::Fenced, effects);
            }
            hand(state, state.the_run(*run), *node, effects);
        }
        Event::NodeFailed { run, node, failure, .. } => {
            let by_time = [FailureKind::NotStartedInTime, FailureKind::TookTooLong, FailureKind::NoProgress];
            if by_time.contains(&failure.kind) || failure.kind == FailureKind::LostTooOften {
                stop_last(state.the_run(*run), *node, StopReason::Fenced, effects);
            }
        }
        Event::NodeCompleted { run, node, .. } if node.is_whole_run() => {
            stop_last(state.the_run(*run), *node, StopReason::NotNeeded, effects);
        }
        Event::RunParked { run } => {
            stop_last(state.the_run(*run), NodeIx::WHOLE_RUN, StopReason::NotNeeded, effects);
        }
        Event::StopAsked { run, node, reason } => stop_last(state.the_run(*run), *node, *reason, effects),
        Event::NodeUntaken { run, node, .. } | Event::NodeUnplaced { run, node } => {
            let offers = state.the_run(*run).work(*node).offers;
            effects.push(Effect::NobodyLeft { run: *run, node: *node, offers });
        }
        Event::MessagesConsumed { run, node, handle, room: true, .. } => {
            effects.push(Effect::Room { run: *run, node: *node, handle: *handle });
        }
        Event::TriggerRegistered { run, node, handle } => {
            effects.push(Effect::RegisterTrigger { run: *run, node: *node, handle: *handle, after: None });
        }
        Event::OutboxEnqueued { id, .. } | Event::OutboxTried { id } => {
            effects.push(Effect::Deliver { id: *id, outgoing: state.outbox[id].row.outgoing });
        }
        Event::RunCompleted { run } => {
            effects.push(Effect::RunEnded { run: *run, outcome: Outcome::Completed })
        }
        Event::RunFailed { run } => effects.push(Effect::RunEnded { run: *run, outcome: Outcome::Failed }),
        Event::RunCancelled { run } => {
            effects.push(Effect::RunEnded { run: *run, outcome: Outcome::Cancelled })
        }
        Event::WorkerCalled { worker } => effects.push(Effect::Wake { worker: *worker }),
        _ => {}
    }
}

/// What is owed to the outside and may not have arrived: handed out again after a restart.
pub(crate) fn react_to_recovery(state: &State, effects: &mut Vec<Effect>) {
    for (_, run) in state.runs.iter() {
        let id = run.head.id;
        for node in run.work_ixs() {
            let work = run.work(node);
            if let Some(reason) = work.stop.filter(|_| work.phase.is_held()) {
                stop_last(run, node, reason, effects);
            } else if let (Phase::Assigned, Some(worker)) = (work.phase, work.holder()) {
                let worker = WorkerKey { tenant: run.head.tenant, worker };
                effects.push(Effect::Offer { worker, grant: Box::new(grant(state, run, node)) });
            }
        }
        hand_all(state, id, effects);
        register_triggers(run, effects);
    }
    let owed = state.outbox.values();
    effects.extend(owed.map(|entry| Effect::Deliver { id: entry.row.id, outgoing: entry.row.outgoing }));
}

/// Has outside events sent again, from where they were stored to.
pub(crate) fn register_triggers(run: &Run, effects: &mut Vec<Effect>) {
    let triggers = run.inboxes.iter().filter(|inbox| inbox.row.registered && !inbox.row.closed);
    effects.extend(triggers.filter(|_| !run.is_ended()).map(|inbox| Effect::RegisterTrigger {
        run: run.head.id,
        node: inbox.row.node,
        handle: inbox.row.handle,
        after: inbox.row.cursor_stored,
    }));
}

/// Tells whoever has, or last had, a piece of work to stop.
fn stop_last(run: &Run, node: NodeIx, reason: StopReason, effects: &mut Vec<Effect>) {
    let held_as = run.work(run.held_as(node));
    if let Some(assignment) = held_as.assignment {
        let worker = WorkerKey { tenant: run.head.tenant, worker: assignment.worker };
        let held = Held { run: run.head.id, node, epoch: held_as.epoch };
        effects.push(Effect::Stop { worker, held, reason });
    }
}

/// Ready nodes of a run held as a whole go to its holder without placement.
fn hand(state: &State, run: &Run, node: NodeIx, effects: &mut Vec<Effect>) {
    let held_as = run.held_as(node);
    let whole = run.work(held_as);
    let is_paused = run.head.status == RunStatus::Paused;
    if held_as == node || run.work(node).phase != Phase::Ready || !whole.is_claimed() || is_paused {
        return;
    }
    if let Some(worker) = whole.holder() {
        let worker = WorkerKey { tenant: run.head.tenant, worker };
        effects.push(Effect::Hand { worker, grant: Box::new(grant(state, run, node)) });
    }
}

fn hand_all(state: &State, run: RunId, effects: &mut Vec<Effect>) {
    let run = state.the_run(run);
    if run.whole.is_none() {
        return;
    }
    for node in run.node_ixs() {
        hand(state, run, node, effects);
    }
}

/// All that an execution needs to know.
pub(crate) fn grant(state: &State, run: &Run, node: NodeIx) -> Grant {
    let definition = state.definition_of(run);
    let (work, held_as) = (run.work(node), run.held_as(node));
    let spec = definition.work(held_as);
    let inputs = if node.is_whole_run() {
        Vec::new()
    } else {
        let joined = work.rare.as_ref().map_or(&[][..], |rare| &rare.joined);
        let from = if joined.is_empty() { definition.plan.predecessors(node) } else { joined };
        let done = from.iter().filter(|from| run.work(**from).phase == Phase::Completed);
        done.map(|from| (*from, run.work(*from).output)).collect()
    };
    let (hi, lo) = run.head.id.halves();
    let attempt = work.attempt.next();
    let at = u64::from(node.get());
    let count = u64::from(run.head.series.get()) << 32 | u64::from(attempt.get());
    // Attempts count from one, so nothing else is where the stable key is.
    let (hi, lo) = (fold(&[hi, at]), fold(&[lo, at]));
    let key = |count: u64| u128::from(mix(hi ^ count)) << 64 | u128::from(mix(lo ^ count));
    Grant {
        run: run.head.id,
        node,
        epoch: run.work(held_as).epoch,
        definition: run.head.definition,
        series: run.head.series,
        attempt,
        lease_ms: spec.lease_ms,
        heartbeat_ms: spec.heartbeat_ms,
        priority: run.head.priority,
        stable_key: key(0),
        attempt_key: key(count),
        input: run.head.input,
        inputs,
        state: work.state(),
        woken: work.rare.as_ref().and_then(|rare| rare.woken),
        last_failure: work.failure(),
    }
}
