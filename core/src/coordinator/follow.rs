//! What follows from an event: joins fire, branches are skipped, runs suspend, wake and end. It reads the state after
//! the event and says what happens next; like `decide`, it writes nothing.

use super::decide::due::return_messages;
use super::effect::Outgoing;
use super::event::{EndCause, Event, Outcome, Return, StopReason, WakeCause};
use super::row::Work;
use super::state::{Run, State};
use crate::definition::{NodeKind, OnFailure};
use crate::id::{HandleIx, NodeIx, RunId, Seq};
use crate::lifecycle::{Lifecycle, Phase, RunStatus};
use crate::value::Value;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What follows from `event`, which was just applied.
pub(crate) fn follow(state: &State, event: &Event, events: &mut VecDeque<Event>) {
    let mut next = Follow { state, events };
    match event {
        Event::RunCreated(created) => next.opened(created.run),
        Event::RunRetried { run, .. } => next.reopened(*run),
        Event::RunEnding { run, .. } => next.ending(*run),
        Event::RunCompleted { run } => next.ended(*run, Outcome::Completed),
        Event::RunFailed { run } => next.ended(*run, Outcome::Failed),
        Event::RunCancelled { run } => next.ended(*run, Outcome::Cancelled),
        Event::RunSuspended { run } => next.suspended(*run),
        Event::RunContinued { run } => next.rest(*run),

        Event::NodeScheduled { run, node } | Event::NodeResumed { run, node, .. } => next.ready(*run, *node),
        Event::NodeReturned { run, node, how } => next.returned(*run, *node, *how),
        Event::NodeFailed { run, node, retry_at, .. } => next.failed(*run, *node, retry_at.is_none()),
        Event::NodeSuspended { run, node, .. } => {
            next.let_go_of_messages(*run, *node, false);
            next.rest(*run);
        }
        Event::NodeCompleted { run, node, .. } => next.completed(*run, *node),
        Event::NodeCancelled { run, node } => {
            next.let_go_of_messages(*run, *node, false);
            next.nodes_of_whole(*run, *node, Return::Released);
            next.settle(*run);
        }
        Event::NodeSkipped { run, node } => next.skipped(*run, *node),
        Event::RunDoomed { run, .. } => next.settle(*run),

        Event::MessageAppended { run, node, handle, .. }
        | Event::TriggerInputReceived { run, node, handle, .. } => {
            next.message(*run, *node, *handle);
        }
        Event::StreamEnded { run, node, handle, .. } => next.stream_ended(*run, *node, *handle),
        Event::MessagesConsumed { run, node, handle, .. }
        | Event::MessageBuried { run, node, handle, .. } => {
            next.settled(*run, *node, *handle);
        }
        Event::WorkerRegistered(registered) => next.registered(registered.worker),
        _ => {}
    }
}

/// True if a consequence was decided on a state that has moved on since, so that it does not follow any more.
pub(crate) fn is_moot(state: &State, event: &Event) -> bool {
    let work = |run: RunId, node: NodeIx| state.the_run(run).work(node);
    let run = |id: RunId| state.the_run(id);
    match event {
        Event::NodeScheduled { run: id, node } => {
            !matches!(work(*id, *node).phase, Phase::Waiting | Phase::Backoff)
                || run(*id).head.ending.is_some()
        }
        Event::NodeSuspended { run: id, node, .. } => {
            work(*id, *node).phase != Phase::Waiting || run(*id).head.ending.is_some()
        }
        Event::NodeCancelled { run, node }
        | Event::NodeSkipped { run, node }
        | Event::NodeCompleted { run, node, .. } => work(*run, *node).phase.is_terminal(),
        Event::NodeReturned { run, node, .. } => !work(*run, *node).phase.is_held(),
        Event::NodeResumed { run, node, .. } => work(*run, *node).phase != Phase::Suspended,
        Event::StopAsked { run, node, reason } => {
            let work = work(*run, *node);
            !work.phase.is_held() || work.stop == Some(*reason)
        }
        Event::RunSuspended { run: id } => {
            run(*id).head.status != RunStatus::Running || !run(*id).is_at_rest()
        }
        Event::RunWoken { run: id } => run(*id).head.status != RunStatus::Suspended || run(*id).active == 0,
        Event::RunParked { run } => !work(*run, NodeIx::WHOLE_RUN).phase.is_active(),
        Event::RunDoomed { run: id, .. } => run(*id).head.doomed().is_some(),
        Event::RunEnding { run: id, .. } => run(*id).head.ending.is_some(),
        Event::RunCompleted { run: id } | Event::RunFailed { run: id } | Event::RunCancelled { run: id } => {
            run(*id).is_ended() || run(*id).open > 0 || run(*id).held > 0
        }
        Event::MessagesReturned { run: id, node, handle, .. } => {
            run(*id).inbox(*node, *handle).is_none_or(|inbox| !inbox.row.has_claimed())
        }
        Event::MessageBuried { run: id, node, handle, seq } => {
            run(*id).inbox(*node, *handle).is_none_or(|inbox| inbox.row.settled.next() != *seq)
        }
        Event::HandleClosed { run: id, node, handle } => {
            run(*id).inbox(*node, *handle).is_none_or(|inbox| inbox.row.closed)
        }
        Event::TriggerRegistered { run: id, node, handle } => {
            run(*id).inbox(*node, *handle).is_none_or(|inbox| inbox.row.registered)
        }
        Event::TriggerCursorAdvanced { run: id, node, handle, cursor } => {
            run(*id).inbox(*node, *handle).is_none_or(|inbox| inbox.row.cursor_settled >= Some(*cursor))
        }
        _ => false,
    }
}

struct Follow<'a> {
    state: &'a State,
    events: &'a mut VecDeque<Event>,
}

impl<'a> Follow<'a> {
    fn run(&self, id: RunId) -> &'a Run {
        self.state.the_run(id)
    }

    fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// A run was opened: what waits for nothing becomes ready.
    fn opened(&mut self, id: RunId) {
        let state = self.state;
        let run = state.the_run(id);
        for node in state.definition_of(run).plan.order() {
            self.unblock(id, *node);
        }
        self.settle(id);
    }

    /// A run was opened again: what a join did without the last time is done without again.
    fn reopened(&mut self, id: RunId) {
        let run = self.run(id);
        for node in run.node_ixs().filter(|node| run.work(*node).phase == Phase::Completed) {
            self.skip_unneeded(id, node);
        }
        self.opened(id);
    }

    /// A node whose join is satisfied becomes ready in the step that satisfied it, once per series (S20), unless it waits
    /// for a first message.
    fn unblock(&mut self, id: RunId, node: NodeIx) {
        let run = self.run(id);
        let entry = run.node(node);
        if entry.phase() != Phase::Waiting || entry.missing > 0 {
            return;
        }
        let definition = self.state.definition_of(run);
        if let Some(NodeKind::Timer { delay_ms }) = definition.node(node).map(|spec| spec.kind) {
            let suspension = Box::new(super::command::Suspension {
                reason: "timer".into(),
                state: Value::EMPTY,
                on_message: false,
                after_ms: Some(delay_ms),
                at_wall: None,
            });
            let wake_at = self.state.now().after_ms(delay_ms);
            self.push(Event::NodeSuspended { run: id, node, suspension, wake_at });
        } else if !definition.waits_for_input(node) || has_input(run, node) {
            self.push(Event::NodeScheduled { run: id, node });
        } else {
            let handles = definition.node(node).map_or(&[][..], |spec| &spec.handles);
            let new = handles.iter().zip(0..).filter(|(spec, at)| {
                spec.trigger && run.inbox(node, HandleIx::new(*at)).is_some_and(|inbox| !inbox.row.registered)
            });
            for handle in new.map(|(_, at)| HandleIx::new(at)) {
                self.push(Event::TriggerRegistered { run: id, node, handle });
            }
        }
    }

    /// Work is ready: the run wakes, and a run held as a whole looks for a holder.
    fn ready(&mut self, id: RunId, node: NodeIx) {
        self.rest(id);
        let run = self.run(id);
        if !node.is_whole_run() && run.whole.as_ref().is_some_and(|whole| whole.phase() == Phase::Waiting) {
            self.push(Event::NodeScheduled { run: id, node: NodeIx::WHOLE_RUN });
        }
    }

    /// Work left its holder.
    fn returned(&mut self, id: RunId, node: NodeIx, how: Return) {
        self.let_go_of_messages(id, node, how.is_loss());
        self.nodes_of_whole(id, node, how);
        self.rest(id);
    }

    /// When a run held as a whole leaves its holder, so do its nodes; when it ends, they end.
    fn nodes_of_whole(&mut self, id: RunId, node: NodeIx, how: Return) {
        if !node.is_whole_run() {
            return;
        }
        let run = self.run(id);
        let whole = run.work(NodeIx::WHOLE_RUN).phase;
        let begun = |work: &Work| work.phase == Phase::Processing;
        for node in run.node_ixs().filter(|node| begun(run.work(*node))) {
            self.push(match (whole.is_terminal(), run.work(node).stop) {
                (true, _) => Event::NodeCancelled { run: id, node },
                (false, Some(StopReason::NotNeeded)) => Event::NodeSkipped { run: id, node },
                (false, _) => Event::NodeReturned { run: id, node, how },
            });
        }
    }

    /// Messages that the node's holder had claimed go back.
    fn let_go_of_messages(&mut self, id: RunId, node: NodeIx, blame: bool) {
        let run = self.state.the_run(id);
        for inbox in run.inboxes_of(node) {
            return_messages(self.state, run, node, inbox.row.handle, blame, self.events);
        }
    }

    /// Messages that a node completed without are put aside, not dropped (S31).
    fn bury_the_rest(&mut self, id: RunId, node: NodeIx) {
        for inbox in self.run(id).inboxes_of(node) {
            let handle = inbox.row.handle;
            for seq in inbox.row.settled.get() + 1..=inbox.row.last.get() {
                self.push(Event::MessageBuried { run: id, node, handle, seq: Seq::new(seq) });
            }
        }
    }

    /// An attempt failed. If it is tried again, nothing downstream hears of it (S18).
    fn failed(&mut self, id: RunId, node: NodeIx, for_good: bool) {
        self.let_go_of_messages(id, node, true);
        if !for_good {
            // Its nodes were being executed by the holder that just lost it.
            self.nodes_of_whole(id, node, Return::Released);
            return self.rest(id);
        }
        let run = self.run(id);
        if node.is_whole_run() {
            let (outcome, cause) = (Outcome::Failed, EndCause::NodeFailed(node));
            return self.push(Event::RunEnding { run: id, outcome, cause });
        }
        if run.head.ending.is_some() {
            return self.settle(id);
        }
        let blocked = self.blocked_by(id, node);
        let plan = &self.state.definition_of(run).plan;
        if blocked.is_empty() && !plan.successors(node).is_empty() {
            // Some join does without it: the failure does not count.
            self.rest(id);
            return self.settle(id);
        }
        match self.state.definition_of(run).row.definition.settings.on_failure {
            OnFailure::FailFast => {
                let (outcome, cause) = (Outcome::Failed, EndCause::NodeFailed(node));
                self.push(Event::RunEnding { run: id, outcome, cause });
            }
            OnFailure::Continue => {
                let is_doomed = run.head.doomed().is_some();
                if !is_doomed {
                    self.push(Event::RunDoomed { run: id, node });
                }
                blocked.into_iter().for_each(|node| self.skip(id, node));
                self.rest(id);
                // Else it settles once it is doomed: not before, or it would have completed.
                if is_doomed {
                    self.settle(id);
                }
            }
        }
    }

    /// Nodes that can not run because this one will never complete.
    fn blocked_by(&self, id: RunId, node: NodeIx) -> Vec<NodeIx> {
        let run = self.run(id);
        let plan = &self.state.definition_of(run).plan;
        let is_hopeless = |next: &NodeIx| {
            let entry = run.node(*next);
            let may_come = |from: &&NodeIx| !is_lost(run.work(**from).phase);
            let possible = plan.predecessors(*next).iter().filter(may_come).count();
            entry.phase() == Phase::Waiting && (possible as u32) < plan.need(*next)
        };
        let joins = plan.successors(node).iter().copied().filter(is_hopeless);
        let streams = plan.streams_out_of(node).iter().map(|stream| stream.to);
        let mut blocked: Vec<_> =
            joins.chain(streams.filter(|to| !run.work(*to).phase.is_terminal())).collect();
        blocked.sort_unstable();
        blocked.dedup();
        blocked
    }

    /// A node completed: its edges arrive, its streams end, and what only it was waiting for is not needed any more.
    fn completed(&mut self, id: RunId, node: NodeIx) {
        if node.is_whole_run() {
            return self.settle(id);
        }
        self.let_go_of_messages(id, node, false);
        self.bury_the_rest(id, node);
        let state = self.state;
        let run = state.the_run(id);
        let plan = &state.definition_of(run).plan;
        for stream in plan.streams_out_of(node) {
            let inbox = run.inbox(stream.to, stream.handle).expect("a stream edge ends at an inbox");
            let (node, handle, source) = (stream.to, stream.handle, stream.source);
            let count = inbox.row.sources[usize::from(source)].stored;
            self.push(Event::StreamEnded { run: id, node, handle, source, count });
        }
        for next in plan.successors(node) {
            self.unblock(id, *next);
            let is_satisfied = run.node(*next).missing == 0;
            if is_satisfied && (plan.need(*next) as usize) < plan.predecessors(*next).len() {
                self.skip_unneeded(id, *next);
            }
        }
        self.rest(id);
        self.settle(id);
    }

    /// A node was skipped: what fed only it is not needed, and what needs it can not run.
    fn skipped(&mut self, id: RunId, node: NodeIx) {
        self.let_go_of_messages(id, node, false);
        self.skip_unneeded(id, node);
        self.blocked_by(id, node).into_iter().for_each(|next| self.skip(id, next));
        self.rest(id);
        self.settle(id);
    }

    /// Skips those predecessors of a node that nothing else needs.
    fn skip_unneeded(&mut self, id: RunId, node: NodeIx) {
        let run = self.run(id);
        let plan = &self.state.definition_of(run).plan;
        let needs = |next: &NodeIx| run.work(*next).phase == Phase::Waiting && run.node(*next).missing > 0;
        let reads = |next: NodeIx| !run.work(next).phase.is_terminal();
        let is_unneeded = |from: &&NodeIx| {
            !run.work(**from).phase.is_terminal()
                && !plan.successors(**from).iter().any(needs)
                && !plan.streams_out_of(**from).iter().any(|stream| reads(stream.to))
        };
        let feeders = plan.predecessors(node).iter().copied();
        let streams = plan.streams_into(node).iter().map(|stream| stream.from);
        for from in feeders.chain(streams).filter(|from| is_unneeded(&from)) {
            self.skip(id, from);
        }
    }

    /// Skips a node now, or when its holder lets go of it.
    fn skip(&mut self, id: RunId, node: NodeIx) {
        let work = self.run(id).work(node);
        match work.phase {
            phase if phase.is_terminal() => {}
            Phase::Claimed | Phase::Processing => {
                if work.stop != Some(StopReason::NotNeeded) {
                    self.push(Event::StopAsked { run: id, node, reason: StopReason::NotNeeded });
                }
            }
            Phase::Assigned => {
                self.push(Event::StopAsked { run: id, node, reason: StopReason::NotNeeded });
                self.push(Event::NodeSkipped { run: id, node });
            }
            _ => self.push(Event::NodeSkipped { run: id, node }),
        }
    }

    /// A run's outcome was decided: what is held is told, the rest is cancelled.
    fn ending(&mut self, id: RunId) {
        let run = self.run(id);
        let outcome = run.head.ending.map(|(outcome, _)| outcome);
        let work: Vec<_> =
            run.work_ixs().map(|node| (node, run.work(node).phase, run.has_grant(node))).collect();
        let is_whole_held = run.whole.as_ref().is_some_and(|whole| whole.phase().is_held());
        for (node, phase, has_grant) in work {
            let reason = StopReason::RunEnding;
            match phase {
                phase if phase.is_terminal() => {}
                // Under the lease of the whole run: it ends with that, or with the run if that is over.
                Phase::Processing if !has_grant && is_whole_held => {}
                Phase::Processing if !has_grant => self.push(Event::NodeCancelled { run: id, node }),
                Phase::Claimed | Phase::Processing if outcome == Some(Outcome::Completed) => {
                    self.push(Event::NodeCompleted { run: id, node, output: Value::EMPTY });
                }
                Phase::Claimed | Phase::Processing => self.push(Event::StopAsked { run: id, node, reason }),
                Phase::Assigned => {
                    self.push(Event::StopAsked { run: id, node, reason });
                    self.push(Event::NodeCancelled { run: id, node });
                }
                _ => self.push(Event::NodeCancelled { run: id, node }),
            }
        }
        self.settle(id);
    }

    /// Ends a run when nothing of it is open or held; decides its outcome when nothing is open.
    fn settle(&mut self, id: RunId) {
        let run = self.run(id);
        if run.is_ended() || run.open > 0 {
            return;
        }
        let Some((outcome, _)) = run.head.ending else {
            let (outcome, cause) = match run.head.doomed() {
                Some(node) => (Outcome::Failed, EndCause::NodeFailed(node)),
                None => (Outcome::Completed, EndCause::AllDone),
            };
            return self.push(Event::RunEnding { run: id, outcome, cause });
        };
        if run.held > 0 || run.whole.as_ref().is_some_and(|whole| !whole.phase().is_terminal()) {
            return;
        }
        self.push(match outcome {
            Outcome::Completed => Event::RunCompleted { run: id },
            Outcome::Failed => Event::RunFailed { run: id },
            Outcome::Cancelled => Event::RunCancelled { run: id },
        });
    }

    fn ended(&mut self, id: RunId, outcome: Outcome) {
        let head = &self.run(id).head;
        if head.notify {
            let (owed, tenant) = (self.state.meta.next_outbox, head.tenant);
            let outgoing = Box::new(Outgoing::Ended { run: id, outcome });
            self.push(Event::OutboxEnqueued { id: owed, tenant, outgoing });
        }
    }

    /// A run suspends when nothing of it moves and something waits to be woken, and wakes when something moves.
    fn rest(&mut self, id: RunId) {
        let run = self.run(id);
        match run.head.status {
            RunStatus::Running if run.is_at_rest() => self.push(Event::RunSuspended { run: id }),
            RunStatus::Suspended if run.active > 0 => self.push(Event::RunWoken { run: id }),
            _ => {}
        }
    }

    /// A suspended run that is held as a whole lets go of its holder.
    fn suspended(&mut self, id: RunId) {
        if self.run(id).whole.as_ref().is_some_and(|whole| whole.phase().is_active()) {
            self.push(Event::RunParked { run: id });
        }
    }

    /// A message came: it makes a waiting consumer ready and wakes a suspended one.
    fn message(&mut self, id: RunId, node: NodeIx, _: HandleIx) {
        let work = self.run(id).work(node);
        match work.phase {
            Phase::Suspended if work.suspension().is_some_and(|suspension| suspension.on_message) => {
                self.push(Event::NodeResumed { run: id, node, cause: WakeCause::Message });
            }
            Phase::Waiting => self.unblock(id, node),
            _ => {}
        }
    }

    /// A source ended: the last one ends the handle, and whoever waits for more learns that none will come.
    fn stream_ended(&mut self, id: RunId, node: NodeIx, handle: HandleIx) {
        let inbox = self.run(id).inbox(node, handle).expect("a declared handle has an inbox");
        if !inbox.row.has_ended() {
            return;
        }
        self.close(id, node, handle);
        self.message(id, node, handle);
    }

    /// Messages were settled: the cursor moves, and the handle closes if these were the last.
    fn settled(&mut self, id: RunId, node: NodeIx, handle: HandleIx) {
        let inbox = self.run(id).inbox(node, handle).expect("a declared handle has an inbox");
        let waiting = inbox.messages.iter().filter_map(|message| message.cursor).next();
        // What is settled is a prefix and cursors rise, so all below the first that waits are settled.
        let cursor = match waiting {
            Some(_) => inbox.settled_cursor,
            None => inbox.row.cursor_stored,
        };
        if let Some(cursor) =
            cursor.filter(|cursor| inbox.row.cursor_settled.is_none_or(|settled| settled < *cursor))
        {
            self.push(Event::TriggerCursorAdvanced { run: id, node, handle, cursor });
        }
        self.close(id, node, handle);
    }

    fn close(&mut self, id: RunId, node: NodeIx, handle: HandleIx) {
        let row = &self.run(id).inbox(node, handle).expect("a declared handle has an inbox").row;
        if row.has_ended() && row.unsettled() == 0 && !row.closed {
            self.push(Event::HandleClosed { run: id, node, handle });
        }
    }

    /// A worker came back under a new incarnation: what it was offered before is offered to others.
    fn registered(&mut self, worker: super::state::WorkerKey) {
        let Some(known) = self.state.workers.get(worker) else { return };
        let offered: Vec<_> = known.offered.values().copied().collect();
        for (run, node) in offered {
            self.push(Event::NodeReturned { run, node, how: Return::Superseded });
        }
    }
}

/// True if a node will never complete.
fn is_lost(phase: Phase) -> bool {
    matches!(phase, Phase::Failed | Phase::Cancelled | Phase::Skipped)
}

/// True if a node that waits for a first message has one, or will never get one.
fn has_input(run: &Run, node: NodeIx) -> bool {
    let inboxes = run.inboxes_of(node);
    let sources = inboxes.iter().filter(|inbox| !inbox.row.sources.is_empty());
    inboxes.iter().any(|inbox| inbox.row.unsettled() > 0)
        || (sources.clone().count() > 0 && sources.clone().all(|inbox| inbox.row.has_ended()))
}
