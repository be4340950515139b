//! What is due: the same decisions whether a pulse finds it or a command that names it, so that there is one path by
//! which anything expires, whoever notices.

use super::progress::{fail, fail_for_good, give_back, wake_at};
use crate::coordinator::command::{Failure, FailureKind};
use crate::coordinator::event::{EndCause, Event, Outcome, Return, WakeCause};
use crate::coordinator::state::{Run, State, Timer, WorkerKey};
use crate::definition::{Assign, NodeKind};
use crate::id::{HandleIx, NodeIx};
use crate::lifecycle::{Health, Phase};
use crate::time::Time;
use crate::value::Value;
use alloc::collections::VecDeque;

/// What happens because of this timer now. Nothing, if it was armed for what is no longer so.
pub(crate) fn fire(state: &State, timer: Timer, events: &mut VecDeque<Event>) {
    let now = state.now();
    match timer {
        Timer::Worker(key) => worker(state, key, events),
        Timer::Run(number) => {
            events.extend(state.runs.get(number).filter(|run| run.armed <= now).map(|run| Event::RunEnding {
                run: run.head.id,
                outcome: Outcome::Failed,
                cause: EndCause::Deadline,
            }))
        }
        Timer::Node(number, node) => {
            let run = state.runs.get(number).filter(|run| run.has_node(node) && run.node(node).armed <= now);
            events.extend(run.and_then(|run| work(state, run, node)));
        }
        Timer::Inbox(number, node, handle) => {
            let run = state.runs.get(number);
            let is_due = |run: &&Run| run.inbox(node, handle).is_some_and(|inbox| inbox.armed <= now);
            if let Some(run) = run.filter(is_due) {
                return_messages(state, run, node, handle, true, events);
            }
        }
        Timer::Outbox(id) => events.push_back(Event::OutboxTried { id }),
        Timer::Sweep => events.push_back(Event::Swept { until: now }),
        Timer::Rescue => events.extend(rescue(state)),
        Timer::PageIn => {}
    }
}

/// True if anything is due on a piece of work, its run, its lease or its inboxes.
pub(crate) fn is_due(state: &State, run: &Run, node: NodeIx) -> bool {
    let now = state.now();
    if run.armed <= now || !run.has_node(node) {
        return run.armed <= now;
    }
    let held_as = run.held_as(node);
    run.node(node).armed <= now
        || run.node(held_as).armed <= now
        || state.is_lease_dead(run, held_as)
        || run.inboxes_of(node).iter().any(|inbox| inbox.armed <= now)
}

/// The first lease that lapsed is taken back (S10: it is dead because of its own session, not because a list said so).
fn rescue(state: &State) -> Option<Event> {
    let (_, lease) = state.leases.iter(&state.leases.lapsed).next()?;
    Some(lost(state, state.runs.at(lease.run), lease.node))
}

/// A lease that is dead is taken back.
pub(crate) fn lost(state: &State, run: &Run, node: NodeIx) -> Event {
    let assignment = run.work(node).assignment.expect("a lease has a holder");
    let worker = state.workers.of(run.head.tenant, assignment.worker);
    let is_former_life = worker.is_some_and(|worker| worker.row.incarnation != assignment.incarnation);
    give_back(state, run, node, if is_former_life { Return::Superseded } else { Return::Expired })
}

/// A worker's silence: leases lapse, its health falls, and in the end it is forgotten.
fn worker(state: &State, key: WorkerKey, events: &mut VecDeque<Event>) {
    let Some(worker) = state.workers.get(key) else { return };
    let silent_ms = state.now().since(worker.last_seen);
    for lane in worker.lanes.iter().filter(|lane| lane.list.count > 0 && silent_ms >= lane.lease_ms) {
        events.push_back(Event::SessionLapsed { worker: key, lease_ms: lane.lease_ms });
    }
    let limits = &state.limits;
    match worker.health {
        Health::Healthy if silent_ms >= limits.stale_ms => {
            events.push_back(Event::WorkerSilent { worker: key })
        }
        Health::Stale if silent_ms >= limits.dead_ms => events.push_back(Event::WorkerSilent { worker: key }),
        Health::Dead | Health::Draining
            if silent_ms >= limits.worker_retention_ms && worker.held() + worker.lapsed == 0 =>
        {
            events.push_back(Event::WorkerLeft { worker: key });
        }
        _ => {}
    }
}

/// A piece of work whose time has come.
fn work(state: &State, run: &Run, node: NodeIx) -> Option<Event> {
    let (id, now) = (run.head.id, state.now());
    let (entry, spec) = (run.node(node), state.definition_of(run).work(node));
    let work = &entry.work;
    let passed = |from: Time, ms: Option<u64>| ms.is_some_and(|ms| now >= from.after_ms(ms));
    let failed = |kind| fail(state, run, node, Failure { kind, detail: Value::EMPTY });
    match work.phase {
        Phase::Backoff => Some(Event::NodeScheduled { run: id, node }),
        Phase::Suspended => woken(state, run, node),
        Phase::Ready | Phase::Assigned | Phase::Claimed
            if passed(work.ready_at, spec.timeouts.ready_to_start_ms) =>
        {
            Some(
                super::progress::stopped(run, node)
                    .unwrap_or_else(|| fail_for_good(run, node, FailureKind::NotStartedInTime)),
            )
        }
        Phase::Assigned => match spec.assign {
            Assign::Push { accept_ms } if now >= entry.shown_at.after_ms(accept_ms) => {
                Some(give_back(state, run, node, Return::TimedOut))
            }
            _ => None,
        },
        Phase::Processing if passed(work.started_at, spec.timeouts.start_to_finish_ms) => {
            Some(failed(FailureKind::TookTooLong))
        }
        Phase::Processing if passed(entry.shown_at, spec.timeouts.progress_ms) => {
            Some(failed(FailureKind::NoProgress))
        }
        _ => None,
    }
}

/// A suspended node's timer. A calendar timer looks at the wall clock again, which may have been set back.
fn woken(state: &State, run: &Run, node: NodeIx) -> Option<Event> {
    let id = run.head.id;
    let is_timer = state.definition_of(run).node(node).is_some_and(|spec| spec.kind != NodeKind::Work);
    if is_timer {
        return Some(Event::NodeCompleted { run: id, node, output: Value::EMPTY });
    }
    let suspension = run.work(node).suspension().expect("suspended work says what it waits for");
    match suspension.at_wall {
        Some(wall) if state.clock.wall < wall && suspension.after_ms.is_none() => {
            let wake_at = wake_at(state, None, Some(wall));
            Some(Event::NodePostponed { run: id, node, wake_at })
        }
        _ => Some(Event::NodeResumed { run: id, node, cause: WakeCause::Timer }),
    }
}

/// Claimed messages go back to their inbox; the first is put aside if it was to blame too often (L7).
pub(crate) fn return_messages(
    state: &State,
    run: &Run,
    node: NodeIx,
    handle: HandleIx,
    blame: bool,
    events: &mut VecDeque<Event>,
) {
    let id = run.head.id;
    let Some(inbox) = run.inbox(node, handle).filter(|inbox| inbox.row.has_claimed()) else { return };
    events.push_back(Event::MessagesReturned { run: id, node, handle, blame });
    let spec = state.definition_of(run).node(node).expect("a node with an inbox is declared");
    let most = spec.handles[usize::from(handle.get())].max_deliveries;
    if blame && inbox.row.deliveries + 1 >= most {
        events.push_back(Event::MessageBuried { run: id, node, handle, seq: inbox.row.settled.next() });
    }
}
