//! Reports of holders: fenced, repeated, refused or taken (S8, S14, S25, S30, S32).

use super::obey::Asked;
use super::obey_inbox::{Taken, inbox_of};
use super::obey_plan::alike;
use super::{Model, Node, Run, Spread, Step, wrong};
use std::hash::{Hash, Hasher};
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::{Report, Then};
use tenure_core::coordinator::effect::{Answer, Reported};
use tenure_core::coordinator::event::{Event, LateResult, Outcome, StopReason};
use tenure_core::coordinator::rejection::{Ineligible, Rejection};
use tenure_core::id::*;
use tenure_core::lifecycle::{Phase, RunStatus};
use tenure_core::limits::LimitName;

/// What becomes of a report.
pub(super) enum Judged {
    /// It was taken before.
    Repeat,
    /// It is refused; if it carried a result, that is kept (S8).
    Late(Rejection),
    /// Its holder is to stop: the result is refused and kept, and with it the work is over.
    Stopped(Rejection),
    /// It is refused, and nothing is kept.
    Refused(Rejection),
    /// These events, in this order, and then this answer.
    Taken(Vec<Event>),
}

/// Who reports.
#[derive(Clone, Copy)]
pub(super) struct Speaker {
    pub(super) worker: WorkerId,
    pub(super) incarnation: Incarnation,
}

/// What the model calls a report: the same content, the same number.
fn content(then: &Then) -> u64 {
    let mut hasher = Spread::default();
    match then {
        Then::Decline => 1u64.hash(&mut hasher),
        Then::Delegate { to } => (2u64, to).hash(&mut hasher),
        Then::Fail { failure, .. } => (3u64, failure).hash(&mut hasher),
        // Core knows a suspension by the state it saves alone, and a failure without the message it blames; the design
        // would tell those apart too.
        Then::Suspend(suspension) => (4u64, suspension.state).hash(&mut hasher),
        Then::Release => 5u64.hash(&mut hasher),
        Then::Complete { output } => (6u64, output).hash(&mut hasher),
        _ => 0u64.hash(&mut hasher),
    }
    hasher.finish()
}

/// A refusal that tells a holder that it is none, or that something else was taken in its place.
fn ends_holding(why: &Rejection) -> bool {
    matches!(
        why,
        Rejection::StaleEpoch { .. }
            | Rejection::NotHolder { .. }
            | Rejection::StaleIncarnation { .. }
            | Rejection::StaleAttempt { .. }
            | Rejection::ReportConflict { .. }
            | Rejection::Stopping { .. }
            | Rejection::UnknownRun { .. }
    )
}

impl Model {
    pub(super) fn obey_reports(
        &mut self,
        asked: &mut Asked<'_, '_>,
        worker: WorkerId,
        incarnation: Incarnation,
        reports: &[Report],
    ) -> Step {
        let about = "a report is answered, each for itself";
        if reports.len() as u64 > self.limits.reports {
            let (limit, max) = (LimitName::Reports, self.limits.reports);
            return asked.refused(about, Rejection::LimitReached { limit, max });
        }
        let Ok(Answer::Reported(results)) = asked.found else {
            return Err(wrong(about, "answers", asked.found));
        };
        if results.len() != reports.len() {
            return Err(wrong(about, reports.len(), results.len()));
        }
        for (report, result) in reports.iter().zip(results) {
            self.drain(asked.now, asked.events)?;
            self.check_nothing_due(report.run, Some(report.node))?;
            self.obey_report(asked, Speaker { worker, incarnation }, report, result)?;
        }
        Ok(())
    }

    fn obey_report(
        &mut self,
        asked: &mut Asked<'_, '_>,
        who: Speaker,
        report: &Report,
        found: &Result<Reported, Rejection>,
    ) -> Step {
        let about = "S8: only the current epoch may change work";
        if self.is_unfit_delegate(asked, report, found) {
            return Ok(());
        }
        let (events, refusal) = match self.judge(asked, who, report) {
            Judged::Repeat => {
                return super::same("S32: a repeat gets the first answer", &Ok(Reported::Accepted), found);
            }
            Judged::Refused(why) => {
                // Where several reasons hold, the rules do not say which is named; but what makes a holder stop must be so.
                let is_other = found.as_ref().is_err_and(|named| !ends_holding(named));
                let is_open = is_other && !ends_holding(&why);
                return if is_open { Ok(()) } else { super::same(about, &Err(why), found) };
            }
            Judged::Late(why) => (self.kept(who, report), Some(why)),
            Judged::Stopped(why) => {
                let mut events = self.kept(who, report);
                events.extend(self.end_of_stopped(report));
                (events, Some(why))
            }
            Judged::Taken(events) => (events, None),
        };
        if let Some(why) = &refusal
            && found.as_ref().err() != Some(why)
        {
            return Err(wrong(about, Err::<Reported, _>(why), found));
        }
        self.said = (self.attempt_of(report), content(&report.then));
        if events.iter().any(|event| matches!(event, Event::NodeClaimed { .. })) {
            // Whoever accepts is alive; its lease begins now.
            self.hear(WorkerKey { tenant: asked.tenant, worker: who.worker })?;
        }
        for event in events {
            let next = asked.events.peek().map(|stamped| &stamped.event);
            if !next.is_some_and(|next| alike(self, &event, next)) {
                return Err(wrong("S25: all of a report happens, in its order", &event, next));
            }
            self.demand(asked.now, asked.events, about, |_| true)?;
        }
        if refusal.is_some() {
            return Ok(());
        }
        match (&report.then, found) {
            (Then::Receive { handle, max }, Ok(Reported::Messages { messages, last })) => {
                self.check_received(report, *handle, *max, messages, *last)
            }
            (Then::Receive { .. }, found) => Err(wrong("a receive gets messages", "messages", found)),
            (_, found) => super::same("S8: the current epoch is accepted", &Ok(Reported::Accepted), found),
        }
    }

    /// An offer may be passed on only to who may have it; which of several reasons is named is the machine's choice, and
    /// so is whether a silence was noticed that no pulse has brought to light.
    fn is_unfit_delegate(
        &self,
        asked: &Asked<'_, '_>,
        report: &Report,
        found: &Result<Reported, Rejection>,
    ) -> bool {
        let (Then::Delegate { to }, Err(Rejection::NotEligible { why })) = (&report.then, found) else {
            return false;
        };
        let Ok(run) = self.find(asked.tenant, report.run) else { return false };
        let key = WorkerKey { tenant: asked.tenant, worker: *to };
        let Some(worker) = self.workers.get(&key) else { return false };
        let is_offered = run
            .node(report.node)
            .is_some_and(|work| work.phase == Phase::Assigned && work.epoch == report.epoch);
        let is_silent = self.now >= worker.last_seen.after_ms(self.limits.stale_ms);
        let is_true =
            self.unfit(run, report.node, key).contains(why) || (*why == Ineligible::Unhealthy && is_silent);
        is_offered && is_true
    }

    /// The attempt that a report speaks of.
    fn attempt_of(&self, report: &Report) -> u32 {
        let work = self.work(report.run, report.node);
        work.map_or(0, |work| match work.phase {
            Phase::Processing | Phase::Assigned => work.attempt,
            // What ends a claim that was not started is the attempt that never was; what fails it starts it first.
            Phase::Claimed | Phase::Ready if ends_unstarted(&report.then) => work.attempt,
            _ => work.attempt + 1,
        })
    }

    /// S8: a result that comes too late is refused and kept, up to a limit.
    fn kept(&self, who: Speaker, report: &Report) -> Vec<Event> {
        let result = match &report.then {
            Then::Complete { output } => Ok(*output),
            Then::Fail { failure, .. } => Err(*failure),
            _ => return Vec::new(),
        };
        let late = self.work(report.run, report.node).and_then(|work| work.rare.as_ref());
        if u64::from(late.map_or(0, |rare| rare.late)) >= self.limits.late_results {
            return Vec::new();
        }
        let Report { run, node, epoch, .. } = *report;
        vec![Event::LateResult(Box::new(LateResult { run, node, epoch, worker: who.worker, result }))]
    }

    /// The work of a holder that was told to stop is over when it answers.
    pub(super) fn end_of_stopped(&self, report: &Report) -> Option<Event> {
        let Report { run, node, .. } = *report;
        let known = self.runs.get(&run.number())?;
        if known.node(node)?.is_over() {
            return None;
        }
        Some(match known.status {
            RunStatus::Ending => Event::NodeCancelled { run, node },
            _ => Event::NodeSkipped { run, node },
        })
    }

    fn judge(&self, asked: &Asked<'_, '_>, who: Speaker, report: &Report) -> Judged {
        let run = match self.find(asked.tenant, report.run) {
            Ok(run) => run,
            Err(why) => return Judged::Refused(why),
        };
        let Some(work) = run.node(report.node) else {
            return Judged::Refused(Rejection::UnknownNode { run: report.run, node: report.node });
        };
        if let Some(repeat) = self.judge_repeat(run, work, report) {
            return repeat;
        }
        if let Err(why) = self.fence(run, work, who, report) {
            return Judged::Late(why);
        }
        if let Err(why) = self.check_bounds(report) {
            return Judged::Refused(why);
        }
        let settled = match self.settle(run, report) {
            Ok(events) => events,
            Err(why) => return Judged::Refused(why),
        };
        if let Some(reason) = stopping(run, report.node) {
            let is_unstarted = work.phase != Phase::Processing;
            let ends_it = match report.then {
                Then::Complete { .. } => !report.node.is_whole_run(),
                Then::Suspend(_) => !report.node.is_whole_run() && work.phase == Phase::Processing,
                Then::Start => is_unstarted && !work.is_over(),
                _ => false,
            };
            if ends_it {
                return Judged::Stopped(Rejection::Stopping { reason });
            }
        }
        match self.plan(run, work, who, report, settled) {
            Ok(events) => Judged::Taken(events),
            Err(why) => Judged::Refused(why),
        }
    }

    /// S32: same attempt and epoch, same content: the first answer. Other content: a conflict.
    fn judge_repeat(&self, run: &Run, work: &Node, report: &Report) -> Option<Judged> {
        let is_conflict =
            |is_it: bool| is_it.then_some(Judged::Refused(Rejection::ReportConflict { epoch: report.epoch }));
        // Under the lease of a whole run, a report that names no attempt speaks of one that is on or may begin.
        let is_part = run.grant_of(report.node) != report.node;
        let names = |attempt: u32| match report.attempt {
            Some(named) => named.get() == attempt,
            None => !is_part || !matches!(work.phase, Phase::Ready | Phase::Processing),
        };
        let mark = work.mark().filter(|mark| mark.epoch == report.epoch && names(mark.attempt.get()));
        if work.phase == Phase::Completed
            && !report.node.is_whole_run()
            && work.epoch == report.epoch
            && names(work.attempt)
        {
            return match &report.then {
                Then::Complete { output } if *output == work.output => Some(Judged::Repeat),
                Then::Start => Some(Judged::Repeat),
                _ => is_conflict(true),
            };
        }
        if mark?.said == content(&report.then) {
            return Some(Judged::Repeat);
        }
        is_conflict(!matches!(report.then, Then::Accept | Then::Start))
    }

    /// S8, S35: the epoch is the current one, and it is the holder that speaks, of the attempt that is on.
    fn fence(&self, run: &Run, work: &Node, who: Speaker, report: &Report) -> Result<(), Rejection> {
        let stale = |held| Rejection::StaleEpoch { held, presented: report.epoch };
        let grant = run.node(run.grant_of(report.node)).ok_or(stale(None))?;
        let held = Some(grant.epoch).filter(|_| grant.phase.is_held());
        if held != Some(report.epoch) {
            return Err(stale(held));
        }
        let tenure = grant.tenure.ok_or(stale(None))?;
        if tenure.worker != who.worker {
            return Err(Rejection::NotHolder { holder: tenure.worker });
        }
        if tenure.incarnation != who.incarnation {
            let (current, presented) = (tenure.incarnation, who.incarnation);
            return Err(Rejection::StaleIncarnation { current, presented });
        }
        let current = Attempt::new(attempt_on(work));
        match report.attempt {
            Some(presented) if presented != current => Err(Rejection::StaleAttempt { current, presented }),
            _ => Ok(()),
        }
    }

    fn check_bounds(&self, report: &Report) -> Result<(), Rejection> {
        let max = self.limits.messages_per_report;
        let asks = match &report.then {
            Then::Receive { max, .. } => u64::from(*max),
            _ => 0,
        };
        if report.sends.len() as u64 > max || asks > max {
            return Err(Rejection::LimitReached { limit: LimitName::MessagesPerReport, max });
        }
        match &report.then {
            Then::Complete { output } => self.check_value(output),
            Then::Fail { failure, .. } => self.check_value(&failure.detail),
            Then::Checkpoint { state } => self.check_value(state),
            Then::Suspend(suspension) => {
                self.check_value(&suspension.state)?;
                let max = self.limits.longest_ms;
                match suspension.after_ms {
                    Some(ms) if ms == 0 || ms > max => Err(Rejection::BadTime { ms, max }),
                    _ if !super::obey::is_name(&suspension.reason, self.limits.name_bytes) => {
                        Err(Rejection::BadName { name: suspension.reason.clone() })
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Messages already claimed under this epoch, or else new ones.
    fn check_received(
        &self,
        report: &Report,
        handle: HandleIx,
        max: u32,
        found: &[tenure_core::coordinator::effect::Delivery],
        last: bool,
    ) -> Step {
        let about = "S24: a receive gets what is claimed, in order";
        let run = self.runs.get(&report.run.number()).ok_or_else(|| wrong(about, "a run", report))?;
        let inbox = run.inbox(report.node, handle).ok_or_else(|| wrong(about, "an inbox", report))?;
        let claimed = inbox.messages.iter().filter(|message| message.seq <= inbox.claimed);
        // What is claimed already is given again as a whole, whatever is asked for.
        let expected: Vec<_> = claimed.collect();
        let _ = max;
        let is_same = expected.len() == found.len()
            && expected.iter().zip(found).enumerate().all(|(at, (mine, delivery))| {
                let deliveries = if at == 0 { inbox.deliveries } else { 0 };
                (mine.seq, mine.id, mine.value, mine.cursor, deliveries)
                    == (delivery.seq.get(), delivery.id, delivery.value, delivery.cursor, delivery.deliveries)
            });
        if !is_same {
            return Err(wrong(about, expected, found));
        }
        let through = expected.last().map_or(inbox.settled, |message| message.seq);
        super::same("the end of a stream is told", &(inbox.has_ended() && through == inbox.last), &last)
    }

    /// What a send of a report becomes: nothing, if it was taken before.
    pub(super) fn judge_stream(
        &self,
        run: &Run,
        stream: super::state::StreamOut,
        n: u64,
        value: tenure_core::value::Value,
    ) -> Result<Taken, Rejection> {
        let (node, handle) = (NodeIx::new(stream.to as u32), HandleIx::new(stream.handle));
        let inbox = inbox_of(run, node, handle)?;
        let id = tenure_core::coordinator::command::MessageKey::Stream { source: stream.source, n };
        self.judge_message(run, inbox, id, value, None, false)
    }
}

/// The attempt that is on or was the last, or else the one that comes next.
const fn attempt_on(work: &Node) -> u32 {
    match work.phase {
        Phase::Processing | Phase::Completed | Phase::Failed | Phase::Cancelled | Phase::Skipped => {
            work.attempt
        }
        _ => work.attempt + 1,
    }
}

/// A claim that is let go of without having been started.
const fn ends_unstarted(then: &Then) -> bool {
    matches!(then, Then::Decline | Then::Delegate { .. } | Then::Release)
}

/// Why the holder of this is to stop for good.
fn stopping(run: &Run, node: NodeIx) -> Option<StopReason> {
    let told = |node: NodeIx| run.node(node).and_then(|work| work.stop);
    let reason = told(node).or_else(|| told(run.grant_of(node)));
    let is_ending =
        run.status == RunStatus::Ending && run.ending.is_some_and(|end| end.0 != Outcome::Completed);
    match reason {
        Some(StopReason::RunEnding | StopReason::NotNeeded) => reason,
        _ if is_ending => Some(StopReason::RunEnding),
        _ => None,
    }
}
