//! What an event does to a run as a whole, and which events raise its version (S3).

use super::state::{Inbox, Node, Run};
use super::{Model, Step, Wanted, wrong};
use std::collections::{BTreeMap, VecDeque};
use tenure_core::coordinator::event::{Event, Outcome, RunCreated};
use tenure_core::id::*;
use tenure_core::lifecycle::{Lifecycle, Phase, RunStatus, RunStep};
use tenure_core::time::Time;

/// S3: inbox appends, settling and late results change no version; everything else does.
pub(super) fn raises_version(event: &Event) -> bool {
    !matches!(
        event,
        Event::MessageAppended { .. }
            | Event::MessagesClaimed { .. }
            | Event::MessagesReturned { .. }
            | Event::MessagesConsumed { .. }
            | Event::MessageBuried { .. }
            | Event::StreamEnded { .. }
            | Event::HandleClosed { .. }
            | Event::TriggerRegistered { .. }
            | Event::TriggerInputReceived { .. }
            | Event::TriggerCursorAdvanced { .. }
            | Event::LateResult(_)
    )
}

impl Model {
    pub(super) fn apply_created(&mut self, at: Time, step: u64, event: &RunCreated) -> Step {
        let number = event.run.number();
        if event.run.partition() != self.partition || number < self.counts.next_run {
            return Err(wrong("a run's id is partition and number", self.counts.next_run, event.run));
        }
        self.counts_mut().next_run = number + 1;
        let def = self.definitions.get(event.definition.get() as usize).cloned();
        let Some(def) = def else { return Err(wrong("a run has a definition", "one", event.definition)) };
        let inboxes = def.spec.nodes.iter().enumerate().flat_map(|(ix, node)| {
            let sources = def.links[ix].sources.clone();
            (0..node.handles.len()).map(move |handle| new_inbox(ix, handle, usize::from(sources[handle])))
        });
        let run = Run {
            id: event.run,
            tenant: event.tenant,
            series: 1,
            version: 1,
            step,
            status: RunStatus::Running,
            ending: None,
            priority: event.priority,
            notify: event.notify,
            created_at: at,
            ended_at: Time::NEVER,
            deadline: event.deadline,
            deadline_ms: event.deadline_ms.or(def.spec.settings.deadline_ms),
            input: event.input,
            key: event.key,
            concurrency: event.concurrency,
            creator: event.creator,
            created_held: None,
            doomed: None,
            whole: def.whole.as_ref().map(|_| Box::new(Node::new())),
            nodes: def.spec.nodes.iter().map(|_| Node::new()).collect(),
            inboxes: inboxes.collect(),
            owes_end: false,
            kept: 0,
            touched: 0,
            def: def.clone(),
        };
        if let Some(key) = event.key {
            let was = self.keys.insert((event.tenant, key.key), number);
            self.journal.push(super::journal::Undo::Key((event.tenant, key.key), was));
        }
        self.add_run(run);
        Ok(())
    }

    pub(super) fn apply_run(&mut self, at: Time, event: &Event, id: RunId) -> Step {
        let Some(run) = self.run_mut(id.number()) else {
            return Err(wrong("an event of a run that is there", "a run", id));
        };
        let step = match event {
            Event::RunSuspended { .. } => RunStep::Suspend,
            Event::RunWoken { .. } => RunStep::Wake,
            Event::RunPaused { .. } => RunStep::Pause,
            Event::RunContinued { .. } => RunStep::Continue,
            Event::RunEnding { .. } => RunStep::End,
            Event::RunCompleted { .. } => RunStep::Complete,
            Event::RunFailed { .. } => RunStep::Fail,
            Event::RunCancelled { .. } => RunStep::Cancel,
            Event::RunRetried { .. } => RunStep::Retry,
            _ => return Err(wrong("an event of a run", "one", event)),
        };
        let Some(next) = run.status.after(step) else {
            return Err(wrong("S1: only transitions of the table occur", run.status, step));
        };
        run.status = next;
        match event {
            Event::RunEnding { outcome, cause, .. } => run.ending = Some((*outcome, *cause)),
            // Nobody could start it while it was paused: its time begins anew.
            Event::RunContinued { .. } => {
                let work = run.nodes.iter_mut().chain(run.whole.as_deref_mut());
                work.filter(|work| work.phase == Phase::Ready).for_each(|work| work.ready_at = at);
            }
            Event::RunRetried { series, deadline, .. } => retry(run, *series, *deadline)?,
            _ if next.is_terminal() => {
                run.ended_at = at;
                run.owes_end = run.notify;
                let outcome = run.ending.map_or(Outcome::Failed, |ending| ending.0);
                self.wanted.push(Wanted::Ended(id, outcome));
            }
            _ => {}
        }
        Ok(())
    }

    /// S3: once per step.
    pub(super) fn bump(&mut self, id: RunId, step: u64) {
        if let Some(run) = self.run_mut(id.number())
            && run.step != step
        {
            run.step = step;
            run.version += 1;
        }
    }
}

fn new_inbox(node: usize, handle: usize, sources: usize) -> Inbox {
    Inbox {
        node: NodeIx::new(node as u32),
        handle: HandleIx::new(handle as u16),
        last: 0,
        settled: 0,
        claimed: 0,
        claim_epoch: Epoch::new(0),
        claimed_at: Time::NEVER,
        deliveries: 0,
        messages: VecDeque::new(),
        own: BTreeMap::new(),
        sources: vec![(0, None); sources],
        closed: false,
        registered: false,
        cursor_stored: None,
        cursor_settled: None,
        cursor_reached: None,
    }
}

/// A retry by hand opens the next series: failed, skipped and cancelled work reopens, completed work stays (S2, S17).
fn retry(run: &mut Run, series: Series, deadline: Time) -> Step {
    if series.get() != run.series + 1 {
        return Err(wrong("S2: a retry opens the next series", run.series + 1, series));
    }
    (run.series, run.deadline) = (series.get(), deadline);
    (run.ending, run.doomed, run.ended_at) = (None, None, Time::NEVER);
    for node in run.nodes.iter_mut().chain(run.whole.as_deref_mut()) {
        if node.phase == Phase::Completed {
            continue;
        }
        (node.phase, node.reopened) = (Phase::Waiting, true);
        (node.attempt, node.failures, node.losses, node.offers) = (0, 0, 0, 0);
        (node.stop, node.until, node.blame) = (None, Time::NEVER, false);
        if let Some(rare) = node.rare.as_deref_mut() {
            rare.excluded.clear();
            rare.joined.clear();
            rare.suspension = None;
        }
    }
    Ok(())
}
