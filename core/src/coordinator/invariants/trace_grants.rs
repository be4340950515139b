//! Grants, epochs and expiry, event by event.

use super::known::{Known, RunFacts};
use super::ownership::{grants, is_dead};
use super::watch::{Moment, Turn, answered, grants_of};
use super::{Holds, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::command::{Command, Envelope, FailureKind, Input, Report};
use crate::coordinator::effect::Answer;
use crate::coordinator::event::{Event, Return};
use crate::coordinator::state::WorkerKey;
use crate::definition::NodeKind;
use crate::id::{Incarnation, NodeIx, RunId, WorkerId};
use crate::lifecycle::{Health, Phase};
use crate::time::Time;

/// Every new grant and every new life has a number above all before (S7).
pub fn s7_epochs_strictly_grow(moment: &Moment<'_>) -> Holds {
    let next = moment.known.next_epoch;
    match &moment.stamped.event {
        Event::NodeAssigned { epoch, .. } => hold!("S7", epoch.get() >= next, "epoch {epoch} after {next}"),
        Event::NodeClaimed { run, node, epoch, .. } => {
            let work = moment.known.runs.get(run).and_then(|run| run.work(*node));
            match work.filter(|work| work.phase == Phase::Assigned) {
                Some(work) => {
                    hold!("S7", work.epoch == *epoch, "an offer of epoch {} became {epoch}", work.epoch)
                }
                None => hold!("S7", epoch.get() >= next, "epoch {epoch} after {next}"),
            }
        }
        Event::WorkerRegistered(registered) => {
            let life = registered.incarnation;
            hold!("S7", life.get() >= next, "incarnation {life} after {next}");
        }
        _ => {}
    }
    Ok(())
}

/// The work that an event changes because a worker reported so.
fn reported(moment: &Moment<'_>) -> Option<(RunId, NodeIx)> {
    match &moment.stamped.event {
        Event::NodeProgressed { run, node, .. }
        | Event::NodeCheckpointed { run, node, .. }
        | Event::ReportTaken { run, node, .. }
        | Event::MessagesConsumed { run, node, .. }
        | Event::MessagesClaimed { run, node, .. } => Some((*run, *node)),
        Event::NodeStarted { run, node, .. } if !node.is_whole_run() => Some((*run, *node)),
        Event::NodeCompleted { run, node, .. } => {
            let definition = moment.known.runs.get(run)?.head.definition;
            let spec = moment.machine.state.definition(definition).node(*node)?;
            (spec.kind == NodeKind::Work).then_some((*run, *node))
        }
        _ => None,
    }
}

/// A worker changes work only by a report under its current epoch and as its holder (S8).
pub fn s8_only_the_current_epoch_changes_work(moment: &Moment<'_>) -> Holds {
    let Some((id, node)) = reported(moment) else { return Ok(()) };
    let event = &moment.stamped.event;
    let Some(run) = moment.known.runs.get(&id) else {
        hold!("S8", false, "{event:?} changes a run that is not known");
        return Ok(());
    };
    let may = answered(moment.input, moment.out).any(|(asked, result)| {
        let Command::Report { worker, incarnation, reports } = &asked.command else { return false };
        let Ok(Answer::Reported(results)) = result else { return false };
        reports.iter().zip(results).any(|(report, result)| {
            (report.run, report.node) == (id, node)
                && result.is_ok()
                && is_holders(run, asked, *worker, *incarnation, report, event)
        })
    });
    hold!("S8", may, "{event:?} was not asked for by the holder of node {node} of run {id}");
    Ok(())
}

fn is_holders(
    run: &RunFacts,
    asked: &Envelope,
    worker: WorkerId,
    incarnation: Incarnation,
    report: &Report,
    event: &Event,
) -> bool {
    let Some(work) = run.grant(report.node) else { return false };
    let Some(holder) = work.holder else { return false };
    // The report that ends a grant is noted after the grant ended.
    let is_held = work.phase.is_held() || matches!(event, Event::ReportTaken { .. });
    run.head.tenant == asked.tenant
        && is_held
        && work.epoch == report.epoch
        && (holder.worker, holder.incarnation) == (worker, incarnation)
}

/// A lease whose time was over when its worker was heard again is not alive afterwards (S9).
pub fn s9_nothing_dead_is_renewed(turn: &Turn<'_>) -> Holds {
    if matches!(turn.input, Input::Recover) {
        return Ok(());
    }
    let state = &turn.machine.state;
    for key in &turn.known.met {
        let Some(before) = turn.known.worker_before(*key) else { continue };
        let seen = state.workers.get(*key).map_or(Time::ZERO, |worker| worker.last_seen);
        if seen <= before.last_seen {
            continue;
        }
        let first = (*key, RunId::new(0), NodeIx::new(0));
        let held = turn.known.held.range(first..).take_while(|((holder, ..), _)| holder == key);
        for ((_, id, node), epoch) in held {
            let Some(run) = state.run(*id) else { continue };
            let work = run.work(*node);
            let Some(assignment) = work.assignment.filter(|_| work.is_claimed() && work.epoch == *epoch)
            else {
                continue;
            };
            let is_over = state.now() >= before.last_seen.after_ms(assignment.lease_ms);
            let is_renewed = !is_dead(turn.machine, run, *node);
            let facts = (id, node, epoch);
            hold!("S9", !(is_over && is_renewed), "run, node, epoch {facts:?} came back to life");
        }
    }
    Ok(())
}

/// What is taken back as expired or superseded was dead, by its own session, lease time and life (S10).
pub fn s10_expiry_is_of_the_epoch_it_observed(moment: &Moment<'_>) -> Holds {
    let (id, node) = match &moment.stamped.event {
        Event::NodeReturned { run, node, how: Return::Expired | Return::Superseded } => (run, node),
        Event::NodeFailed { run, node, failure, .. } if failure.kind == FailureKind::LostTooOften => {
            (run, node)
        }
        _ => return Ok(()),
    };
    let Some(run) = moment.known.runs.get(id).filter(|run| run.held_as(*node) == *node) else {
        return Ok(());
    };
    let Some(work) = run.work(*node) else { return Ok(()) };
    let Some(holder) = work.holder else {
        hold!("S10", false, "node {node} of run {id} expired, and nobody held it");
        return Ok(());
    };
    let key = WorkerKey { tenant: run.head.tenant, worker: holder.worker };
    let lease_ms = moment.machine.state.definition(run.head.definition).work(*node).lease_ms;
    let now = moment.stamped.at;
    let is_over = moment.known.workers.get(&key).is_none_or(|worker| {
        let lapsed = worker.lapsed.iter().any(|(ms, since)| *ms == lease_ms && holder.session < *since);
        let before = moment.known.worker_before(key);
        let silent = before.is_some_and(|before| now >= before.last_seen.after_ms(lease_ms));
        worker.incarnation != holder.incarnation || holder.session < worker.fenced || lapsed || silent
    });
    hold!("S10", is_over, "node {node} of run {id} was taken from a holder whose lease lives");
    Ok(())
}

/// Protects every lease that lived when a machine recovered, for its full time.
pub(super) fn protect(known: &mut Known, machine: &Coordinator) {
    let now = machine.state.now();
    known.protected.clear();
    known.protected_until = Time::ZERO;
    for (run, node) in grants(machine).filter(|(run, node)| !is_dead(machine, run, *node)) {
        let Some(assignment) = run.work(node).assignment.filter(|one| !one.claimed_at.is_never()) else {
            continue;
        };
        let until = now.after_ms(assignment.lease_ms);
        known.protected.insert(run.work(node).epoch, until);
        known.protected_until = known.protected_until.max(until);
    }
}

/// A lease that lived when the machine recovered does not expire before its full time (S16).
pub fn s16_no_takeover_within_the_lease_after_recovery(moment: &Moment<'_>) -> Holds {
    if let Event::NodeReturned { run, node, how: Return::Expired } = &moment.stamped.event {
        let work = moment.known.runs.get(run).and_then(|run| run.work(*node));
        let until = work.and_then(|work| moment.known.protected.get(&work.epoch));
        let in_time = until.is_none_or(|until| moment.stamped.at >= *until);
        hold!("S16", in_time, "node {node} of run {run} was taken back before {until:?}");
    }
    Ok(())
}

/// The key a node's executions hand to outside systems never changes, and that of an attempt does (S34).
pub fn s34_stable_keys_stay(turn: &Turn<'_>) -> Holds {
    for grant in grants_of(turn.out) {
        let Some(run) = turn.known.runs.get(&grant.run) else { continue };
        let is_same = |(node, key): &(NodeIx, u128)| (*node == grant.node) == (*key == grant.stable_key);
        let other = run.stable_keys.iter().find(|known| !is_same(known)).map(|(node, _)| *node);
        let is_taken = other.is_some_and(|node| node != grant.node);
        hold!("S34", !is_taken, "node {} of run {} was handed another node's key", grant.node, grant.run);
        hold!("S34", other.is_none(), "node {} of run {} was handed another key", grant.node, grant.run);
        hold!("S34", grant.stable_key != grant.attempt_key, "the two keys of a grant are one");
    }
    Ok(())
}

/// The worker and life that a command speaks for.
fn speaker(command: &Command) -> Option<(WorkerId, Incarnation)> {
    match command {
        Command::Heartbeat(beat) => Some((beat.worker, beat.incarnation)),
        Command::Reconcile { worker, incarnation, .. }
        | Command::Poll { worker, incarnation, .. }
        | Command::Claim { worker, incarnation, .. } => Some((*worker, *incarnation)),
        Command::Deregister { worker, incarnation: Some(incarnation) } => Some((*worker, *incarnation)),
        _ => None,
    }
}

/// Nobody is answered who speaks for an older life (S35).
pub fn s35_an_older_life_is_refused(turn: &Turn<'_>) -> Holds {
    for (asked, result) in answered(turn.input, turn.out) {
        let Some((worker, life)) = speaker(&asked.command).filter(|_| result.is_ok()) else { continue };
        let key = WorkerKey { tenant: asked.tenant, worker };
        let known = turn.known.worker_before(key).map(|known| known.incarnation);
        hold!("S35", known == Some(life), "worker {key} was answered in life {life}, and is in {known:?}");
    }
    Ok(())
}

/// Who was stale, dead or draining gets nothing new, unless it just showed itself or was told to go on (S36).
pub fn s36_only_healthy_workers_get_work(moment: &Moment<'_>) -> Holds {
    let worker = match &moment.stamped.event {
        Event::NodeAssigned { worker, .. } => *worker,
        Event::NodeClaimed { run, node, worker, .. } => {
            let work = moment.known.runs.get(run).and_then(|run| run.work(*node));
            if work.is_some_and(|work| work.phase == Phase::Assigned) {
                return Ok(());
            }
            *worker
        }
        _ => return Ok(()),
    };
    let health = moment.known.worker_before(worker).map_or(Health::Healthy, |known| known.health);
    let is_ready = health == Health::Healthy || matches!(moment.input, Input::Recover) || {
        answered(moment.input, moment.out).any(|(asked, result)| {
            let spoke = asked.tenant == worker.tenant && result.is_ok();
            spoke
                && match &asked.command {
                    Command::Register { worker: by, .. } => *by == worker.worker,
                    Command::Drain { worker: who, on: false } => *who == worker.worker,
                    command => {
                        speaker(command).is_some_and(|(by, _)| by == worker.worker)
                            && health != Health::Draining
                    }
                }
        })
    };
    hold!("S36", is_ready, "worker {worker} is {health}, and got {:?}", moment.stamped.event);
    Ok(())
}

/// A grant under a concurrency key finds room within its run's limit (S38).
pub fn s38_keys_are_within_their_limits(moment: &Moment<'_>) -> Holds {
    let id = match &moment.stamped.event {
        Event::NodeAssigned { run, .. } => run,
        Event::NodeClaimed { run, node, .. } => {
            let work = moment.known.runs.get(run).and_then(|run| run.work(*node));
            if work.is_some_and(|work| work.phase == Phase::Assigned) {
                return Ok(());
            }
            run
        }
        _ => return Ok(()),
    };
    let Some(run) = moment.known.runs.get(id) else { return Ok(()) };
    let Some(limit) = run.head.concurrency else { return Ok(()) };
    let held = moment.known.under.get(&(run.head.tenant, limit.key)).copied().unwrap_or(0);
    hold!(
        "S38",
        held < limit.limit,
        "a grant of run {id} under a key that is held {held} of {} times",
        limit.limit
    );
    Ok(())
}
