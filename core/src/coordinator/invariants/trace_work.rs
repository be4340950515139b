//! What may happen to runs and their nodes, event by event.

use super::known::{DefinitionFacts, RunFacts, WorkFacts, fingerprint, run_step, status_of, work_step};
use super::runs::{need, predecessors};
use super::watch::{Moment, Turn, answered};
use super::{Holds, hold};
use crate::coordinator::command::Command;
use crate::coordinator::event::{EndCause, Event};
use crate::id::{NodeIx, RunId};
use crate::lifecycle::{Lifecycle, Phase, RunStatus, WorkStep};

/// Every step of work, runs and messages is in its table (S1).
pub fn s1_only_declared_transitions(moment: &Moment<'_>) -> Holds {
    let event = &moment.stamped.event;
    if let Some((id, node, step)) = work_step(event) {
        let work = moment.known.runs.get(&id).and_then(|run| run.work(node));
        let Some(work) = work else {
            hold!("S1", false, "{event:?} is about work that is not known");
            return Ok(());
        };
        let declared = Phase::TABLE.iter().any(|(from, by, _)| (*from, *by) == (work.phase, step));
        hold!("S1", declared, "{step:?} out of {:?}: {event:?}", work.phase);
    }
    if let Some((id, step)) = run_step(event) {
        let Some(run) = moment.known.runs.get(&id) else {
            hold!("S1", false, "{event:?} is about a run that is not known");
            return Ok(());
        };
        let declared = RunStatus::TABLE.iter().any(|(from, by, _)| (*from, *by) == (run.head.status, step));
        hold!("S1", declared, "{step:?} out of {:?}: {event:?}", run.head.status);
    }
    Ok(())
}

/// After an input, every run and node is where its events lead (S1).
pub fn s1_the_machine_is_where_the_events_lead(turn: &Turn<'_>) -> Holds {
    for (id, facts) in turn.known.touched() {
        let Some(run) = turn.machine.state.run(id) else { continue };
        let (is, should) = (run.head.status, facts.head.status);
        hold!("S1", is == should, "run {id} is {is}, and its events lead to {should}");
        for (node, work) in &facts.works {
            let (is, should) = (run.work(*node).phase, work.phase);
            hold!("S1", is == should, "node {node} of run {id} is {is}, and its events lead to {should}");
        }
    }
    Ok(())
}

/// Nothing leads out of the end but a retry by hand, which opens the next series (S2).
pub fn s2_terminal_is_absorbing(moment: &Moment<'_>) -> Holds {
    let event = &moment.stamped.event;
    if let Event::RunRetried { run: id, series, .. } = event {
        let before = moment.known.runs.get(id).map(|run| run.head.series.get());
        let is_next = before.is_some_and(|before| series.get() == before + 1);
        hold!("S2", is_next, "run {id} was retried from series {before:?} to {series}");
        let is_asked = answered(moment.input, moment.out).any(|(asked, result)| {
            matches!(&asked.command, Command::Retry(on) if on.run == *id) && result.is_ok()
        });
        hold!("S2", is_asked, "run {id} was opened again, and nobody asked for it");
        return Ok(());
    }
    if let Some((id, _)) = run_step(event) {
        let status = moment.known.runs.get(&id).map(|run| run.head.status);
        hold!("S2", status.is_none_or(|status| !status.is_terminal()), "{event:?} after {status:?}");
    }
    if let Some((id, node, _)) = work_step(event) {
        let phase = moment.known.runs.get(&id).and_then(|run| run.work(node)).map(|work| work.phase);
        hold!("S2", phase.is_none_or(|phase| !phase.is_terminal()), "{event:?} after {phase:?}");
    }
    Ok(())
}

/// A run's version rose by one for each step that changed it, inbox appends aside (S3).
pub fn s3_a_version_rises_once_per_step(turn: &Turn<'_>) -> Holds {
    for (id, facts) in turn.known.touched() {
        let Some(run) = turn.machine.state.run(id) else { continue };
        let (is, should) = (run.head.version, facts.head.version);
        hold!("S3", is == should, "run {id} is at version {is}, and its steps lead to {should}");
    }
    Ok(())
}

/// What was asked of a version is done only to that version (S3).
pub fn s3_a_stale_version_changes_nothing(moment: &Moment<'_>) -> Holds {
    let event = &moment.stamped.event;
    for (asked, result) in answered(moment.input, moment.out) {
        let (on, is_its) = match (&asked.command, event) {
            (Command::Cancel(on), Event::RunEnding { run, cause: EndCause::Asked, .. }) => {
                (on, *run == on.run)
            }
            (Command::Pause(on), Event::RunPaused { run }) => (on, *run == on.run),
            (Command::Continue(on), Event::RunContinued { run }) => (on, *run == on.run),
            (Command::Retry(on), Event::RunRetried { run, .. }) => (on, *run == on.run),
            _ => continue,
        };
        let is = moment.known.runs.get(&on.run).map(|run| run.head.version);
        let is_current = on.if_version.is_none() || on.if_version == is;
        hold!(
            "S3",
            !is_its || (result.is_ok() && is_current),
            "{:?} was done at version {is:?}",
            asked.command
        );
    }
    Ok(())
}

/// An outcome is decided once per series, and the end shows it (S5).
pub fn s5_one_outcome_wins(moment: &Moment<'_>) -> Holds {
    let event = &moment.stamped.event;
    let ending = |id: &RunId| moment.known.runs.get(id).and_then(|run| run.head.ending);
    match event {
        Event::RunEnding { run, .. } => {
            let decided = ending(run);
            hold!("S5", decided.is_none(), "{event:?}, and {decided:?} was decided before");
        }
        Event::RunCompleted { run } | Event::RunFailed { run } | Event::RunCancelled { run } => {
            let should = ending(run).map(|(outcome, _)| status_of(outcome));
            let is = run_step(event).and_then(|(_, step)| RunStatus::Ending.after(step));
            hold!("S5", is == should, "run {run} ended as {is:?}, and {should:?} was decided");
        }
        _ => {}
    }
    Ok(())
}

/// The number of an attempt is one more than the last of its series (S13).
pub fn s13_attempts_rise_by_one_per_start(moment: &Moment<'_>) -> Holds {
    if let Event::NodeStarted { run, node, attempt } = &moment.stamped.event {
        let last = moment.known.runs.get(run).and_then(|run| run.work(*node)).map(|work| work.attempt);
        let is_next = last.is_some_and(|last| attempt.get() == last.get() + 1);
        hold!("S13", is_next, "attempt {attempt} of node {node} of run {run} after {last:?}");
    }
    Ok(())
}

/// Nothing is tried again whose budget is spent (S13).
pub fn s13_budgets_are_kept(moment: &Moment<'_>) -> Holds {
    let (id, node, is_failure) = match &moment.stamped.event {
        Event::NodeFailed { run, node, retry_at: Some(_), .. } => (run, node, true),
        Event::NodeReturned { run, node, how } if how.is_loss() => (run, node, false),
        _ => return Ok(()),
    };
    let Some(run) = moment.known.runs.get(id) else { return Ok(()) };
    let Some(work) = run.work(*node) else { return Ok(()) };
    let retry = &moment.machine.state.definition(run.head.definition).work(*node).retry;
    if is_failure {
        let failures = work.failures + 1;
        hold!(
            "S13",
            failures < retry.max_failures,
            "node {node} of run {id} is tried again after {failures} failures"
        );
    } else if run.held_as(*node) == *node && work.is_claimed() {
        let losses = work.losses + 1;
        hold!(
            "S13",
            losses < retry.max_losses,
            "node {node} of run {id} is given out again after {losses} losses"
        );
    }
    Ok(())
}

/// Attempts, failures and losses are what happened, and nothing else used them up (S13).
pub fn s13_counts_are_what_happened(turn: &Turn<'_>) -> Holds {
    for (id, facts) in turn.known.touched() {
        let Some(run) = turn.machine.state.run(id) else { continue };
        for (node, work) in &facts.works {
            let counts = |work: &WorkFacts| (work.attempt, work.failures, work.losses);
            let (is, should) = (counts(&WorkFacts::of(run.work(*node))), counts(work));
            hold!("S13", is == should, "node {node} of run {id} counts {is:?}, and its events {should:?}");
        }
    }
    Ok(())
}

/// A node completes or fails for good once per series (S14).
pub fn s14_one_outcome_per_series(moment: &Moment<'_>) -> Holds {
    if let Event::NodeCompleted { run, node, .. } | Event::NodeFailed { run, node, retry_at: None, .. } =
        &moment.stamped.event
    {
        let work = moment.known.runs.get(run).and_then(|run| run.work(*node));
        let is_open = work.is_some_and(|work| !matches!(work.phase, Phase::Completed | Phase::Failed));
        hold!("S14", is_open, "a second outcome: {:?}", moment.stamped.event);
    }
    Ok(())
}

/// Work is made ready, offered, claimed or started only when enough predecessors completed (S15).
pub fn s15_dispatched_only_when_joined(moment: &Moment<'_>) -> Holds {
    let Some((id, node, step)) = work_step(&moment.stamped.event) else { return Ok(()) };
    let begins = matches!(step, WorkStep::Schedule | WorkStep::Assign | WorkStep::Claim | WorkStep::Start);
    let Some(run) = moment.known.runs.get(&id).filter(|_| begins && !node.is_whole_run()) else {
        return Ok(());
    };
    let definition = &moment.machine.state.definition(run.head.definition).row.definition;
    let is_done = |from: &NodeIx| run.work(*from).is_some_and(|work| work.phase == Phase::Completed);
    let done = predecessors(definition, node).iter().filter(|from| is_done(from)).count();
    let need = need(definition, node);
    hold!("S15", done >= need, "{step:?} of node {node} of run {id} with {done} of {need} predecessors");
    Ok(())
}

/// A failure that will be retried dooms, ends, skips and completes nothing (S18).
pub fn s18_a_retried_failure_triggers_nothing(moment: &Moment<'_>) -> Holds {
    let Event::NodeFailed { run: id, node, retry_at: Some(_), .. } = &moment.stamped.event else {
        return Ok(());
    };
    for other in moment.step.iter().map(|stamped| &stamped.event) {
        let triggered = match other {
            Event::RunEnding { run, cause: EndCause::NodeFailed(cause), .. } => (run, cause) == (id, node),
            Event::RunDoomed { run, node: cause } => (run, cause) == (id, node),
            _ => false,
        };
        hold!("S18", !triggered, "node {node} of run {id} is tried again, and led to {other:?}");
    }
    let Some(run) = moment.known.runs.get(id) else { return Ok(()) };
    let definition = &moment.machine.state.definition(run.head.definition).row.definition;
    let is_alone = moment.step.iter().filter(|stamped| {
        work_step(&stamped.event).is_some_and(|(run, _, step)| {
            run == *id && matches!(step, WorkStep::Complete | WorkStep::Fail | WorkStep::Delay)
        })
    });
    if is_alone.count() == 1 {
        for other in moment.step.iter().filter_map(|stamped| work_step(&stamped.event)) {
            let is_next = other.0 == *id && predecessors(definition, other.1).contains(node);
            let moves = matches!(other.2, WorkStep::Schedule | WorkStep::Skip);
            hold!("S18", !(is_next && moves), "node {node} of run {id} is tried again, and moved {other:?}");
        }
    }
    Ok(())
}

/// A node leaves waiting once per series (S20).
pub fn s20_a_join_fires_once_per_series(moment: &Moment<'_>) -> Holds {
    let Some((id, node, step)) = work_step(&moment.stamped.event) else { return Ok(()) };
    let Some(work) = moment.known.runs.get(&id).and_then(|run| run.work(node)) else { return Ok(()) };
    // Only a retry by hand, or parking the whole run, leads back to waiting.
    let returns = work.phase.after(step) == Some(Phase::Waiting);
    hold!("S20", !returns || node.is_whole_run(), "node {node} of run {id} waits for its join again");
    Ok(())
}

/// A definition that was added stays as it is (S21). Those of runs that move are looked at each time; all of every one,
/// now and then.
pub fn s21_definitions_never_change(turn: &Turn<'_>) -> Holds {
    let state = &turn.machine.state;
    let moved = turn.known.touched().map(|(_, RunFacts { head, .. })| head.definition);
    for id in moved {
        let is = state.definitions.get(id.get() as usize).map(|entry| DefinitionFacts::of(&entry.row));
        let should = turn.known.definitions.get(id.get() as usize).map(|(facts, _)| *facts);
        hold!("S21", should.is_none() || is == should, "definition {id} is not what it was");
    }
    for (facts, before) in turn.known.definitions.iter().filter(|_| turn.known.whole) {
        let is = state.definitions.get(facts.id.get() as usize).map(|entry| fingerprint(&entry.row));
        hold!("S21", is == Some(*before), "definition {} is not what it was", facts.id);
    }
    Ok(())
}
