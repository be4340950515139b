//! What follows from the state of a run, with nobody's choice in it: joins, skips, dooms, ends, streams (S15 to S31).
//!
//! Each rule is one question about a run as it is. An event is lawful if its rule says yes; a step is complete if no rule
//! says yes any more.

use super::state::{Node, Run};
use tenure_core::coordinator::event::{EndCause, Event, Outcome, StopReason, WakeCause};
use tenure_core::definition::OnFailure;
use tenure_core::id::*;
use tenure_core::lifecycle::{Phase, RunStatus};

impl Run {
    /// S19: derived from the set of predecessors that completed.
    pub(super) fn is_joined(&self, ix: usize) -> bool {
        let links = &self.def.links[ix];
        let done = links.preds.iter().filter(|pred| self.nodes[**pred].phase == Phase::Completed);
        done.count() >= links.need
    }

    /// Something came for it, if something must.
    pub(super) fn is_fed(&self, ix: usize) -> bool {
        let inboxes = &mut self.inboxes_of(NodeIx::new(ix as u32));
        !self.def.links[ix].must_be_fed
            || inboxes.any(|inbox| inbox.last > inbox.settled || inbox.closed || inbox.has_ended())
    }

    /// S15, S20: it waits, and nothing it waits for is missing.
    pub(super) fn may_begin(&self, ix: usize) -> bool {
        self.is_open() && self.nodes[ix].phase == Phase::Waiting && self.is_joined(ix) && self.is_fed(ix)
    }

    /// It can no longer run: too few predecessors can still complete, or who should feed it failed.
    pub(super) fn is_cut_off(&self, ix: usize) -> bool {
        let links = &self.def.links[ix];
        let lost = |node: &usize| self.nodes[*node].is_over() && self.nodes[*node].phase != Phase::Completed;
        let possible = links.preds.iter().filter(|pred| !lost(pred)).count();
        (self.nodes[ix].phase == Phase::Waiting && possible < links.need)
            || (!self.nodes[ix].is_over() && links.feeders.iter().any(lost))
    }

    /// Nobody needs what it would make: every join behind it has fired or never will.
    pub(super) fn is_spare(&self, ix: usize) -> bool {
        let links = &self.def.links[ix];
        if self.def.is_exit(ix) {
            return false;
        }
        let waits = |succ: &usize| self.nodes[*succ].phase == Phase::Waiting && !self.is_joined(*succ);
        let reads = |to: usize| !self.nodes[to].is_over();
        !links.succs.iter().any(waits) && !links.streams.iter().any(|stream| reads(stream.to))
    }

    pub(super) fn is_useless(&self, ix: usize) -> bool {
        self.is_spare(ix) || (self.doomed.is_some() && self.is_cut_off(ix))
    }

    /// A failure counts if it cuts off a node that waits for it, or one that it feeds, or if nothing comes after it. Under
    /// a join of fewer than all it does not, as long as enough of the others may still complete.
    fn failure_counts(&self, ix: usize) -> bool {
        self.nodes[ix].phase == Phase::Failed
            && (self.def.is_exit(ix)
                || self.def.links[ix].succs.iter().any(|succ| self.is_cut_off(*succ))
                || self.def.links[ix].streams.iter().any(|stream| !self.nodes[stream.to].is_over()))
    }

    pub(super) fn is_hopeless(&self) -> bool {
        (0..self.nodes.len()).any(|ix| self.failure_counts(ix))
    }

    /// A node that a retry by hand reopened, whose joins had been satisfied without it, is given out all the same and is
    /// not told to stop. The design would skip it; core does not.
    pub(super) fn is_excused(&self, ix: usize) -> bool {
        self.is_open() && self.nodes[ix].reopened && !self.is_cut_off(ix)
    }

    /// A node that a retry by hand reopened, and whose readers are all over, is skipped by core although nobody else makes
    /// what it would have made. The design has no such rule.
    fn is_outlived(&self, ix: usize) -> bool {
        let links = &self.def.links[ix];
        self.is_open()
            && self.nodes[ix].reopened
            && self.nodes[ix].phase == Phase::Waiting
            && links.succs.is_empty()
            && !links.streams.is_empty()
            && links.streams.iter().all(|stream| self.nodes[stream.to].is_over())
    }

    fn are_all_over(&self) -> bool {
        self.nodes.iter().all(|node| node.is_over())
    }

    /// How the run must end now, if it must.
    pub(super) fn must_end(&self) -> Option<(Outcome, Option<EndCause>)> {
        if !self.is_open() {
            return None;
        }
        if self.def.spec.settings.on_failure == OnFailure::FailFast && self.is_hopeless() {
            return Some((Outcome::Failed, None));
        }
        if let Some(whole) = &self.whole
            && whole.phase == Phase::Failed
        {
            return Some((Outcome::Failed, Some(EndCause::NodeFailed(NodeIx::WHOLE_RUN))));
        }
        match self.doomed {
            _ if !self.are_all_over() => None,
            Some(node) => Some((Outcome::Failed, Some(EndCause::NodeFailed(node)))),
            None => Some((Outcome::Completed, Some(EndCause::AllDone))),
        }
    }

    /// Its last lease has ended.
    pub(super) fn may_finish(&self) -> bool {
        self.status == RunStatus::Ending
            && self.are_all_over()
            && self.whole.as_ref().is_none_or(|whole| whole.is_over())
    }

    /// Something moves, or would as soon as a worker came.
    pub(super) fn is_moving(&self) -> bool {
        self.nodes.iter().any(|node| node.phase.is_active())
    }

    pub(super) fn is_asleep(&self) -> bool {
        !self.is_moving() && self.nodes.iter().any(|node| node.phase == Phase::Suspended)
    }

    /// What a worker holds of it is not needed, or its run ends: it is told once.
    pub(super) fn must_stop(&self, node: NodeIx) -> Option<StopReason> {
        let work = self.node(node)?;
        let is_told = work.stop == Some(StopReason::RunEnding)
            || (work.stop == Some(StopReason::NotNeeded) && self.status != RunStatus::Ending);
        if !work.phase.is_held() || is_told {
            return None;
        }
        if self.status == RunStatus::Ending {
            return (self.grant_of(node) == node
                && self.ending.is_some_and(|end| end.0 != Outcome::Completed))
            .then_some(StopReason::RunEnding);
        }
        let ix = node.get() as usize;
        (self.is_open() && !node.is_whole_run() && self.is_useless(ix)).then_some(StopReason::NotNeeded)
    }

    /// It is ended with its run, by nobody's leave.
    pub(super) fn must_cancel(&self, node: NodeIx) -> bool {
        let Some(work) = self.node(node) else { return false };
        if self.status != RunStatus::Ending || work.is_over() {
            return false;
        }
        let grant = self.grant_of(node);
        let is_held = is_kept(work);
        if grant == node {
            return !is_held;
        }
        !is_held || self.node(grant).is_none_or(|whole| !whole.is_claimed())
    }

    pub(super) fn must_skip(&self, ix: usize) -> bool {
        let work = &self.nodes[ix];
        let is_free = self.whole.as_ref().is_some_and(|whole| !whole.phase.is_held());
        let is_held = is_kept(work) && !(is_free && work.stop == Some(StopReason::NotNeeded));
        self.is_open() && !work.is_over() && !is_held && self.is_useless(ix)
    }

    /// A message or the end of its streams wakes it (S30).
    pub(super) fn must_wake(&self, node: NodeIx) -> bool {
        let Some(work) = self.node(node) else { return false };
        work.phase == Phase::Suspended
            && self.is_open()
            && work.suspension().is_some_and(|suspension| suspension.on_message)
            && self.inboxes_of(node).any(|inbox| inbox.last > inbox.settled || inbox.closed)
    }

    /// True if this follows from the run as it is.
    pub(super) fn follows(&self, event: &Event) -> bool {
        match event {
            Event::RunSuspended { .. } => self.status == RunStatus::Running && self.is_asleep(),
            Event::RunWoken { .. } => self.status == RunStatus::Suspended && !self.is_asleep(),
            Event::RunEnding { outcome, cause, .. } => self.must_end().is_some_and(|(must, why)| {
                must == *outcome
                    && match (why, cause) {
                        (Some(why), cause) => why == *cause,
                        (None, EndCause::NodeFailed(node)) => {
                            !node.is_whole_run() && self.failure_counts(node.get() as usize)
                        }
                        (None, _) => false,
                    }
            }),
            Event::RunCompleted { .. } => self.may_finish() && self.ends_as(Outcome::Completed),
            Event::RunFailed { .. } => self.may_finish() && self.ends_as(Outcome::Failed),
            Event::RunCancelled { .. } => self.may_finish() && self.ends_as(Outcome::Cancelled),
            Event::RunDoomed { node, .. } => self.must_doom() && self.failure_counts(node.get() as usize),
            Event::NodeScheduled { node, .. } if node.is_whole_run() => self.must_seek_holder(),
            Event::NodeScheduled { node, .. } => {
                let ix = node.get() as usize;
                self.def.timer(ix).is_none() && self.may_begin(ix)
            }
            Event::NodeCompleted { node, .. } if node.is_whole_run() => {
                self.status == RunStatus::Ending
                    && self.ends_as(Outcome::Completed)
                    && self.whole.as_ref().is_some_and(|whole| whole.is_claimed())
            }
            Event::NodeCancelled { node, .. } => self.must_cancel(*node),
            Event::NodeSkipped { node, .. } if node.is_whole_run() => false,
            Event::NodeSkipped { node, .. } => {
                let ix = node.get() as usize;
                self.must_skip(ix) || self.is_outlived(ix)
            }
            Event::StopAsked { node, reason, .. } => self.must_stop(*node) == Some(*reason),
            Event::RunParked { .. } => self.must_park(),
            Event::NodeResumed { node, cause, .. } => *cause == WakeCause::Message && self.must_wake(*node),
            _ => self.follows_in_inbox(event),
        }
    }

    fn follows_in_inbox(&self, event: &Event) -> bool {
        match event {
            Event::MessagesReturned { node, handle, blame, .. } => {
                let blames = self.node(*node).is_some_and(|work| work.blame);
                *blame == blames && self.must_give_back(*node, *handle)
            }
            Event::MessageBuried { node, handle, .. } => self.must_bury(*node, *handle),
            Event::StreamEnded { node, handle, source, count, .. } => {
                self.must_end_stream(*node, *handle, *source) == Some(*count)
            }
            Event::HandleClosed { node, handle, .. } => self.must_close(*node, *handle),
            Event::TriggerRegistered { node, handle, .. } => self.must_register(*node, *handle),
            Event::TriggerCursorAdvanced { node, handle, cursor, .. } => {
                // One after the other, if several were settled in one step.
                let settled = self.inbox(*node, *handle).and_then(|inbox| inbox.cursor_settled);
                self.must_advance(*node, *handle).is_some_and(|reached| *cursor <= reached)
                    && settled.is_none_or(|settled| settled < *cursor)
            }
            _ => false,
        }
    }

    fn ends_as(&self, outcome: Outcome) -> bool {
        self.ending.is_some_and(|(ends, _)| ends == outcome)
    }

    /// A failure that counts, in a run whose other branches finish first.
    pub(super) fn must_doom(&self) -> bool {
        self.is_open()
            && self.doomed.is_none()
            && self.def.spec.settings.on_failure == OnFailure::Continue
            && self.is_hopeless()
    }

    /// A run that is held as one looks for a holder when something moves in it.
    pub(super) fn must_seek_holder(&self) -> bool {
        self.is_open()
            && self.is_moving()
            && self.whole.as_ref().is_some_and(|whole| whole.phase == Phase::Waiting)
    }

    /// It leaves its holder when nothing moves in it.
    pub(super) fn must_park(&self) -> bool {
        matches!(self.status, RunStatus::Running | RunStatus::Suspended)
            && !self.is_moving()
            && !self.are_all_over()
            && self.whole.as_ref().is_some_and(|whole| whole.phase != Phase::Waiting && !whole.is_over())
    }

    pub(super) fn must_give_back(&self, node: NodeIx, handle: HandleIx) -> bool {
        let is_held = self.node(node).is_some_and(|work| work.phase.is_held());
        !is_held && self.inbox(node, handle).is_some_and(|inbox| inbox.has_claimed())
    }

    /// S31: put aside after too many deliveries, or because its node completed without it.
    pub(super) fn must_bury(&self, node: NodeIx, handle: HandleIx) -> bool {
        let (Some(work), Some(inbox)) = (self.node(node), self.inbox(node, handle)) else { return false };
        let most = self.def.spec.nodes[node.get() as usize].handles[usize::from(handle.get())].max_deliveries;
        inbox.last > inbox.settled
            && !inbox.has_claimed()
            && (work.phase == Phase::Completed || inbox.deliveries >= most)
    }

    /// A node that completed ends the streams that leave it.
    pub(super) fn must_end_stream(&self, node: NodeIx, handle: HandleIx, source: u16) -> Option<u64> {
        let to = node.get() as usize;
        let is_fed_by = |from: &usize| {
            self.nodes[*from].phase == Phase::Completed
                && self.def.links[*from]
                    .streams
                    .iter()
                    .any(|stream| stream.to == to && stream.handle == handle.get() && stream.source == source)
        };
        let feeders = &self.def.links.get(to)?.feeders;
        let (stored, ended) = *self.inbox(node, handle)?.sources.get(usize::from(source))?;
        (ended.is_none() && feeders.iter().any(is_fed_by)).then_some(stored)
    }

    /// S27.
    pub(super) fn must_close(&self, node: NodeIx, handle: HandleIx) -> bool {
        self.inbox(node, handle)
            .is_some_and(|inbox| !inbox.closed && inbox.has_ended() && inbox.settled == inbox.last)
    }

    pub(super) fn must_register(&self, node: NodeIx, handle: HandleIx) -> bool {
        let ix = node.get() as usize;
        self.is_open()
            && self.def.spec.nodes[ix].handles[usize::from(handle.get())].trigger
            && self.nodes[ix].phase == Phase::Waiting
            && self.is_joined(ix)
            && self.inbox(node, handle).is_some_and(|inbox| !inbox.registered)
    }

    /// S29.
    pub(super) fn must_advance(&self, node: NodeIx, handle: HandleIx) -> Option<u64> {
        let inbox = self.inbox(node, handle)?;
        let reached = inbox.cursor_reached?;
        inbox.cursor_settled.is_none_or(|settled| settled < reached).then_some(reached)
    }
}

/// A worker has it, and must let go of it first. An offer is taken back with the order to stop.
fn is_kept(work: &Node) -> bool {
    work.phase.is_held() && (work.phase != Phase::Assigned || work.stop.is_none())
}

/// What a step left undone, if anything: the rule that still says yes.
pub(super) fn left_undone(run: &Run) -> Option<(&'static str, NodeIx)> {
    let me = NodeIx::WHOLE_RUN;
    if run.must_end().is_some() {
        return Some(("S4: a run with nothing left to do ends", me));
    }
    if run.may_finish() {
        return Some(("S5: a run ends with its last lease", me));
    }
    if run.must_doom() {
        return Some(("a failure that counts dooms the run", me));
    }
    if (run.status == RunStatus::Running && run.is_asleep())
        || (run.status == RunStatus::Suspended && run.is_open() && !run.is_asleep())
    {
        return Some(("a run is suspended if and only if it sleeps", me));
    }
    if run.whole.is_some() && (run.must_seek_holder() || run.must_park() || run.must_cancel(me)) {
        return Some(("scope run: a holder is there while something moves", me));
    }
    for ix in 0..run.nodes.len() {
        let node = NodeIx::new(ix as u32);
        if run.may_begin(ix) && !run.is_spare(ix) && !run.is_cut_off(ix) {
            return Some(("S20: a join fires in the step that satisfies it", node));
        }
        if run.must_skip(ix) && !run.is_excused(ix) {
            return Some(("what is not needed or can not run is skipped", node));
        }
        if run.must_stop(node).is_some() && !run.is_excused(ix) {
            return Some(("a holder of what is not needed is told to stop", node));
        }
        if run.must_cancel(node) {
            return Some(("S5: what is not held is cancelled with its run", node));
        }
        if run.whole.as_ref().is_some_and(|whole| !whole.phase.is_held())
            && run.nodes[ix].phase == Phase::Processing
        {
            return Some(("S6: nodes leave their worker with the run they are part of", node));
        }
        if run.must_wake(node) {
            return Some(("S30: no lost wake-up", node));
        }
    }
    run.inboxes.iter().find_map(|inbox| {
        let (node, handle) = (inbox.node, inbox.handle);
        if run.must_give_back(node, handle) {
            return Some(("S24: messages of no holder are pending", node));
        }
        if run.must_bury(node, handle) {
            return Some(("S31: what nobody will take is put aside", node));
        }
        if run.must_close(node, handle) {
            return Some(("S27: a handle closes when all is settled", node));
        }
        if run.must_register(node, handle) {
            return Some(("a trigger that is waited for is registered", node));
        }
        if run.must_advance(node, handle).is_some() {
            return Some(("S29: the cursor follows what is settled", node));
        }
        let sources = 0..inbox.sources.len() as u16;
        let mut open = sources.filter(|source| run.must_end_stream(node, handle, *source).is_some());
        open.next().map(|_| ("a node that completed ends its streams", node))
    })
}
