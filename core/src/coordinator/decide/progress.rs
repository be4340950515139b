//! How an attempt ends without completing: failed, given back, stopped. Used by reports and by what is due alike, so
//! that there is one path by which each can happen.

use crate::coordinator::command::{Failure, FailureKind};
use crate::coordinator::event::{Event, Return, StopReason};
use crate::coordinator::state::{Run, State};
use crate::definition::Retry;
use crate::id::NodeIx;
use crate::mix::fold;
use crate::time::Time;
use crate::value::Value;

/// What a holder that was told to stop leaves behind, or none if it may go on.
pub(crate) fn stopped(run: &Run, node: NodeIx) -> Option<Event> {
    let id = run.head.id;
    // A node of a run held as a whole is not told by itself that the run ends.
    let with_run = run.head.ending.is_some() && run.held_as(node) != node;
    let stop = if with_run { Some(StopReason::RunEnding) } else { run.work(node).stop };
    match stop? {
        StopReason::RunEnding => Some(Event::NodeCancelled { run: id, node }),
        StopReason::NotNeeded => Some(Event::NodeSkipped { run: id, node }),
        StopReason::Preempted | StopReason::Fenced => None,
    }
}

/// A grant ends without an outcome: the work is ready again, or ends as it was told to, or was lost too often.
pub(crate) fn give_back(state: &State, run: &Run, node: NodeIx, how: Return) -> Event {
    if let Some(event) = stopped(run, node) {
        return event;
    }
    let (id, work) = (run.head.id, run.work(node));
    let spec = state.definition_of(run).work(node);
    if how.is_loss() && work.is_claimed() && work.losses + 1 >= spec.retry.max_losses {
        return fail_for_good(run, node, FailureKind::LostTooOften);
    }
    let was_asked = work.stop == Some(StopReason::Preempted);
    let how = if how == Return::Released && was_asked { Return::Preempted } else { how };
    Event::NodeReturned { run: id, node, how }
}

/// An attempt failed: it is tried again, or it failed for good, or it ends as it was told to.
pub(crate) fn fail(state: &State, run: &Run, node: NodeIx, failure: Failure) -> Event {
    if let Some(event) = stopped(run, node) {
        return event;
    }
    let (id, work) = (run.head.id, run.work(node));
    let retry = &state.definition_of(run).work(node).retry;
    let may_retry = failure.kind.may_retry() && work.failures + 1 < retry.max_failures;
    let retry_at = may_retry.then(|| state.now().after_ms(backoff_ms(run, node, retry)));
    Event::NodeFailed { run: id, node, failure, retry_at }
}

/// A failure that no attempt can mend.
pub(crate) fn fail_for_good(run: &Run, node: NodeIx, kind: FailureKind) -> Event {
    let failure = Failure { kind, detail: Value::EMPTY };
    Event::NodeFailed { run: run.head.id, node, failure, retry_at: None }
}

/// Exponential back-off with a cap and full jitter; the jitter is a hash, so it is the same wherever it is worked out.
fn backoff_ms(run: &Run, node: NodeIx, retry: &Retry) -> u64 {
    let work = run.work(node);
    let doubled = retry.backoff_ms.saturating_mul(1u64.checked_shl(work.failures).unwrap_or(u64::MAX));
    let most = doubled.min(retry.max_backoff_ms);
    let (hi, lo) = run.head.id.halves();
    let series = u64::from(run.head.series.get());
    fold(&[hi, lo, u64::from(node.get()), series, u64::from(work.attempt.get())]) % most.saturating_add(1)
}

/// When a suspended node is due, if it waits for a time at all.
pub(crate) fn wake_at(state: &State, after_ms: Option<u64>, at_wall: Option<u64>) -> Time {
    let now = state.now();
    let after = after_ms.map_or(Time::NEVER, |ms| now.after_ms(ms));
    let wall = at_wall.map_or(Time::NEVER, |wall| now.after_ms(wall.saturating_sub(state.clock.wall)));
    after.min(wall)
}
