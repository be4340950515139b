//! Every derived number and every armed instant equals what the rows say.

use super::{Holds, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::state::{Run, Timer};
use crate::definition::Assign;
use crate::id::NodeIx;
use crate::lifecycle::{Lifecycle, Phase, RunStatus};
use crate::time::Time;
use alloc::collections::BTreeMap;

/// The instant at which something is due on a piece of work, from its row and its definition.
fn due(machine: &Coordinator, run: &Run, node: NodeIx) -> Time {
    let (entry, spec) = (run.node(node), machine.state.definition_of(run).work(node));
    let (work, limits) = (&entry.work, &spec.timeouts);
    let after = |from: Time, ms: Option<u64>| ms.map_or(Time::NEVER, |ms| from.after_ms(ms));
    let accept = match spec.assign {
        Assign::Push { accept_ms } => entry.shown_at.after_ms(accept_ms),
        Assign::Pull => Time::NEVER,
    };
    let to_start = after(work.ready_at, limits.ready_to_start_ms);
    match work.phase {
        Phase::Ready if run.head.status == RunStatus::Paused => Time::NEVER,
        Phase::Ready | Phase::Claimed => to_start,
        Phase::Assigned => to_start.min(accept),
        Phase::Processing => {
            after(work.started_at, limits.start_to_finish_ms).min(after(entry.shown_at, limits.progress_ms))
        }
        Phase::Backoff | Phase::Suspended => work.until,
        Phase::Waiting | Phase::Completed | Phase::Failed | Phase::Cancelled | Phase::Skipped => Time::NEVER,
    }
}

/// The set of timers is exactly the instants that entities in memory are armed for, and these are right (S52).
pub fn s52_timers_are_the_armed_instants(machine: &Coordinator) -> Holds {
    let state = &machine.state;
    let mut armed: BTreeMap<Timer, Time> = BTreeMap::new();
    armed.insert(Timer::Rescue, state.armed.rescue);
    armed.insert(Timer::Sweep, state.armed.sweep);
    armed.insert(Timer::PageIn, state.armed.page);
    for slot in state.workers.in_order() {
        let worker = state.workers.at(slot);
        armed.insert(Timer::Worker(worker.row.key), worker.armed);
    }
    for (number, run) in state.runs.iter() {
        let is_over = run.head.status.is_terminal() || run.head.status == RunStatus::Ending;
        let should = if is_over { Time::NEVER } else { run.head.deadline };
        hold!("S52", run.armed == should, "run {} is armed for {}, not {should}", run.head.id, run.armed);
        armed.insert(Timer::Run(number), run.armed);
        for node in run.work_ixs() {
            let (is, should) = (run.node(node).armed, due(machine, run, node));
            let facts = (run.work(node).phase, run.head.status);
            hold!(
                "S52",
                is == should,
                "node {node} of {} {facts:?} is armed for {is}, not {should}",
                run.head.id
            );
            armed.insert(Timer::Node(number, node), is);
        }
        for inbox in &run.inboxes {
            let row = &inbox.row;
            let nodes = &state.definition_of(run).row.definition.nodes;
            let claim_ms = nodes[row.node.index()].handles[usize::from(row.handle.get())].claim_ms;
            let due = if row.has_claimed() { inbox.claimed_at.after_ms(claim_ms) } else { Time::NEVER };
            hold!(
                "S52",
                inbox.armed == due,
                "an inbox of {} is armed for {}, not {due}",
                run.head.id,
                inbox.armed
            );
            armed.insert(Timer::Inbox(number, row.node, row.handle), inbox.armed);
        }
    }
    for (id, entry) in &state.outbox {
        armed.insert(Timer::Outbox(*id), entry.tried_at.after_ms(state.limits.outbox_retry_ms));
    }
    armed.retain(|_, at| !at.is_never());
    for (at, timer) in state.timers.iter() {
        let is = armed.get(&timer);
        hold!("S52", is == Some(&at), "a timer stands at {at} for {timer:?}, which is armed for {is:?}");
    }
    let (is, should) = (state.timers.len(), armed.len());
    hold!("S52", is == should, "{is} timers for {should} armed instants");
    Ok(())
}

/// Counts of runs, and of runs per tenant, are what their rows say (S52).
pub fn s52_counts_are_what_rows_say(machine: &Coordinator) -> Holds {
    let mut live = BTreeMap::new();
    for (_, run) in machine.state.runs.iter() {
        let count = |test: &dyn Fn(Phase) -> bool| {
            run.node_ixs().filter(|node| test(run.work(*node).phase)).count() as u32
        };
        let open = count(&|phase| !phase.is_terminal());
        let active = count(&Phase::is_active);
        let suspended = count(&|phase| phase == Phase::Suspended);
        let own = |node: &NodeIx| run.whole.is_none() || node.is_whole_run();
        let held = run.work_ixs().filter(|node| own(node) && run.work(*node).phase.is_held()).count() as u32;
        let (is, should) = ((run.open, run.active, run.suspended, run.held), (open, active, suspended, held));
        hold!("S52", is == should, "run {} counts {is:?}, and its rows say {should:?}", run.head.id);
        if !run.head.status.is_terminal() {
            *live.entry(run.head.tenant).or_insert(0u64) += 1;
        }
        let is_asleep = run.head.status == RunStatus::Suspended;
        let nodes = run.node_ixs().map(|node| run.work(node));
        let earliest = nodes.filter(|work| work.phase == Phase::Suspended).map(|work| work.until).min();
        let wakes = earliest.unwrap_or(Time::NEVER).min(run.head.deadline);
        let should = if is_asleep { wakes } else { Time::NEVER };
        let is = run.head.wake_at();
        hold!("S52", is == should, "run {} says it wakes at {is}, and does at {should}", run.head.id);
    }
    let is = &machine.state.live_runs;
    hold!("S52", *is == live, "live runs are counted as {is:?}, and are {live:?}");
    Ok(())
}

/// What is kept of ended runs and their keys is bounded, and nothing stays beyond its time (S52).
pub fn s52_memory_is_bounded(machine: &Coordinator) -> Holds {
    let (state, limits) = (&machine.state, &machine.state.limits);
    // A batch that was not taken yet may hold what leaves with it.
    if !state.touched.leaving.is_empty() || state.touched.forget.is_some() {
        return Ok(());
    }
    let ended = state.runs.iter().filter(|(_, run)| run.head.status.is_terminal()).count() as u64;
    hold!("S52", ended <= limits.resident_ended, "{ended} ended runs are in memory");
    let (keys, numbers) = (state.keys.len() as u64, state.meta.next_run);
    let asleep = numbers.saturating_sub(state.runs.len() as u64);
    let most = limits.resident_keys + state.runs.len() as u64 + asleep;
    hold!("S52", keys <= most, "{keys} keys are in memory");
    for (_, run) in state.runs.iter() {
        let is_over = run.head.status.is_terminal()
            && run.head.kept_from().after_ms(limits.retention_ms) <= state.meta.swept;
        hold!("S52", !is_over, "run {} was swept, and is in memory", run.head.id);
        let may_stay = run.head.status.is_terminal() || run.head.is_resident(state.meta.paged_until);
        hold!("S52", may_stay, "run {} sleeps beyond what is paged in, and is in memory", run.head.id);
    }
    Ok(())
}
