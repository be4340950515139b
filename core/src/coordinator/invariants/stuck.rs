//! Nothing is ever stuck: what is not terminal has an armed instant or a named outside event.

use super::runs::{need, predecessors, waits_for_input};
use super::{Holds, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::state::{Run, Timer};
use crate::id::NodeIx;
use crate::lifecycle::{Health, Lifecycle, Phase, RunStatus};

/// Every open piece of work has what will move it on (S51).
pub fn s51_work_waits_for_something(machine: &Coordinator) -> Holds {
    for (_, run) in machine.state.runs.iter() {
        for node in run.work_ixs() {
            let phase = run.work(node).phase;
            let moves = phase.is_terminal() || moves_on(machine, run, node);
            let facts = (run.head.status, phase, run.work(node).stop);
            hold!("S51", moves, "node {node} of run {} {facts:?} waits for nothing", run.head.id);
        }
    }
    Ok(())
}

fn moves_on(machine: &Coordinator, run: &Run, node: NodeIx) -> bool {
    let (state, entry) = (&machine.state, run.node(node));
    let is_armed = !entry.armed.is_never()
        && state.timers.contains(entry.armed, Timer::Node(run.head.id.number(), node));
    let own = run.whole.is_none() || node.is_whole_run();
    match entry.phase() {
        Phase::Waiting if node.is_whole_run() => {
            // It looks for a holder as soon as a node is ready.
            let idle =
                run.node_ixs().all(|node| !matches!(run.work(node).phase, Phase::Ready | Phase::Processing));
            idle || run.head.ending.is_some()
        }
        Phase::Waiting => may_still_come(machine, run, node),
        // A worker that fits, or the end of a pause, is an outside event.
        Phase::Ready if own => entry.queued || run.head.status == RunStatus::Paused,
        Phase::Ready | Phase::Processing if !own => {
            let whole = run.work(NodeIx::WHOLE_RUN).phase;
            whole.is_active() || run.head.ending.is_some() && whole.is_held()
        }
        Phase::Backoff | Phase::Assigned => is_armed,
        Phase::Claimed | Phase::Processing => {
            let holder = entry.work.holder().and_then(|worker| state.workers.of(run.head.tenant, worker));
            // Its lease ends with the worker's silence, or has ended and is about to be taken back.
            entry.lease.is_some()
                && holder.is_some_and(|worker| !worker.armed.is_never() || worker.lapsed > 0)
        }
        // A message, a trigger input or a person wakes it, if no timer does.
        Phase::Suspended => is_armed || entry.work.until.is_never(),
        _ => false,
    }
}

/// A waiting node has a predecessor that may yet complete, or a message that may yet come.
fn may_still_come(machine: &Coordinator, run: &Run, node: NodeIx) -> bool {
    let definition = &machine.state.definition_of(run).row.definition;
    let is_lost = |phase: Phase| matches!(phase, Phase::Failed | Phase::Cancelled | Phase::Skipped);
    let preceding = predecessors(definition, node);
    let possible = preceding.iter().filter(|from| !is_lost(run.work(**from).phase)).count();
    let done = preceding.iter().filter(|from| run.work(**from).phase == Phase::Completed).count();
    let need = need(definition, node);
    if done < need { possible >= need } else { waits_for_input(definition, node) }
}

/// A run that is open has open nodes, and one that is ending has something that is yet to let go (S51).
pub fn s51_runs_wait_for_something(machine: &Coordinator) -> Holds {
    let state = &machine.state;
    for (_, run) in state.runs.iter().filter(|(_, run)| !run.head.status.is_terminal()) {
        let open = run.work_ixs().filter(|node| !run.work(*node).phase.is_terminal());
        let (open, id) = (open.count(), run.head.id);
        hold!("S51", open > 0, "run {id} is {}, and nothing of it is open", run.head.status);
        if run.head.status == RunStatus::Ending {
            hold!("S51", run.head.ending.is_some(), "run {id} is ending without an outcome");
            let held = run.work_ixs().any(|node| run.work(node).phase.is_held());
            hold!("S51", held, "run {id} is ending, and nobody holds anything of it");
        }
        let is_asleep = run.node_ixs().all(|node| !run.work(node).phase.is_active());
        let has_sleeper = run.node_ixs().any(|node| run.work(node).phase == Phase::Suspended);
        let should = is_asleep && has_sleeper;
        match run.head.status {
            RunStatus::Running => hold!("S51", !should, "run {id} runs, and all of it sleeps"),
            RunStatus::Suspended => hold!("S51", should, "run {id} is suspended, and moves"),
            _ => {}
        }
    }
    Ok(())
}

/// Workers, lapsed leases, debts and the partition itself have an armed instant (S51).
pub fn s51_workers_and_debts_are_armed(machine: &Coordinator) -> Holds {
    let state = &machine.state;
    for slot in state.workers.in_order() {
        let worker = state.workers.at(slot);
        let key = worker.row.key;
        let is_held = matches!(worker.health, Health::Dead | Health::Draining)
            && (!worker.offered.is_empty() || worker.lapsed > 0);
        let is_armed = !worker.armed.is_never();
        hold!("S51", is_armed || is_held, "worker {key} is {}, and nothing is armed", worker.health);
        let leases = worker.lanes.iter().filter(|lane| lane.list.count > 0).map(|lane| lane.lease_ms);
        let expiry = leases.map(|ms| worker.last_seen.after_ms(ms)).min();
        let in_time = expiry.is_none_or(|expiry| worker.armed <= expiry);
        hold!("S51", in_time, "worker {key} is looked at only after its lease expired");
    }
    let lapsed = state.leases.lapsed.count;
    let rescued = lapsed == 0 || !state.armed.rescue.is_never();
    hold!("S51", rescued, "{lapsed} leases lapsed, and no rescue is armed");
    for (id, entry) in &state.outbox {
        let at = entry.tried_at.after_ms(state.limits.outbox_retry_ms);
        hold!("S51", state.timers.contains(at, Timer::Outbox(*id)), "debt {id} is not armed");
    }
    Ok(())
}
