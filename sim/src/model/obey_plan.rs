//! What a report that is taken brings about: its events, in order, all of them or none (S25).

use super::obey_inbox::{Taken, inbox_of};
use super::obey_report::Speaker;
use super::{Model, Node, Run};
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::{Failure, MessageKey, Report, Sending, Suspension, Then};
use tenure_core::coordinator::effect::Outgoing;
use tenure_core::coordinator::event::{By, Event, NewMessage, Return, StopReason};
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::definition::Retry;
use tenure_core::id::*;
use tenure_core::lifecycle::{Phase, RunStatus};
use tenure_core::limits::LimitName;
use tenure_core::time::Time;

type Plan = Result<Vec<Event>, Rejection>;

impl Model {
    /// The events of a report by the holder, or why it can not be.
    pub(super) fn plan(
        &self,
        run: &Run,
        work: &Node,
        who: Speaker,
        report: &Report,
        mut events: Vec<Event>,
    ) -> Plan {
        let Report { run: id, node, epoch, .. } = *report;
        let key = WorkerKey { tenant: run.tenant, worker: who.worker };
        let wrong_phase = Err(Rejection::WrongPhase { phase: work.phase });
        let is_offered = work.phase == Phase::Assigned;
        let taken = Event::ReportTaken { run: id, node, epoch, digest: 0 };
        match &report.then {
            Then::Accept if is_offered => {
                let by = work.tenure.map_or(By::Placement, |tenure| tenure.by);
                let poll = PollId::new(0);
                events.push(Event::NodeClaimed { run: id, node, epoch, worker: key, poll, by });
                Ok(events)
            }
            Then::Accept if work.phase.is_held() => Ok(events),
            Then::Decline if is_offered => {
                events.extend([Event::NodeReturned { run: id, node, how: Return::Declined }, taken]);
                Ok(events)
            }
            Then::Delegate { to } if is_offered => {
                events.extend(self.plan_delegate(run, node, *to, taken)?);
                Ok(events)
            }
            Then::Release if work.is_claimed() || work.phase == Phase::Processing => {
                let how = match work.stop {
                    Some(StopReason::Preempted) => Return::Preempted,
                    _ => Return::Released,
                };
                let stopped = self.end_of_stopped(report).filter(|_| is_stopped(run, work));
                events.push(stopped.unwrap_or(Event::NodeReturned { run: id, node, how }));
                events.push(taken);
                Ok(events)
            }
            Then::Fail { .. } if is_stopped(run, work) && work.phase.is_held() && !node.is_whole_run() => {
                if work.phase != Phase::Processing {
                    events.push(Event::NodeStarted {
                        run: id,
                        node,
                        attempt: Attempt::new(work.attempt + 1),
                    });
                }
                if let Then::Fail { poison: Some((handle, seq)), .. } = &report.then {
                    events.extend(self.plan_poison(run, report, *handle, *seq)?);
                }
                events.extend(self.end_of_stopped(report));
                events.push(taken);
                Ok(events)
            }
            Then::Accept | Then::Decline | Then::Delegate { .. } | Then::Release => wrong_phase,
            _ => self.plan_work(run, work, report, taken, events),
        }
    }

    fn plan_delegate(&self, run: &Run, node: NodeIx, to: WorkerId, taken: Event) -> Plan {
        let key = WorkerKey { tenant: run.tenant, worker: to };
        if !self.workers.contains_key(&key) {
            return Err(Rejection::UnknownWorker { worker: to });
        }
        let mut why = self.unfit(run, node, key);
        // The offer itself gives up its place under the run's key.
        if self.full_key(run).is_some_and(|limit| {
            let held =
                run.concurrency.map_or(0, |one| self.under.get(&(run.tenant, one.key)).copied().unwrap_or(0));
            held.saturating_sub(1) < limit
        }) {
            why.retain(|why| {
                !matches!(why, tenure_core::coordinator::rejection::Ineligible::ConcurrencyKey { .. })
            });
        }
        if let Some(why) = why.first() {
            return Err(Rejection::NotEligible { why: *why });
        }
        let (id, by, epoch) = (run.id, By::Delegation, Epoch::new(0));
        let returned = Event::NodeReturned { run: id, node, how: Return::Delegated };
        Ok(vec![returned, taken, Event::NodeAssigned { run: id, node, epoch, worker: key, by }])
    }

    /// What only work that has begun can report; a claim begins with it.
    fn plan_work(
        &self,
        run: &Run,
        work: &Node,
        report: &Report,
        taken: Event,
        mut events: Vec<Event>,
    ) -> Plan {
        let Report { run: id, node, .. } = *report;
        let is_part = run.grant_of(node) != node;
        let may_begin = work.phase == Phase::Claimed || (is_part && work.phase == Phase::Ready);
        let begins = matches!(report.then, Then::Start | Then::Complete { .. } | Then::Fail { .. });
        let is_held = !is_part || run.whole.as_ref().is_some_and(|whole| whole.is_claimed());
        if !(work.phase == Phase::Processing || (may_begin && is_held && begins)) {
            return Err(Rejection::WrongPhase { phase: work.phase });
        }
        if node.is_whole_run()
            && !matches!(report.then, Then::Start | Then::Progress { .. } | Then::Checkpoint { .. })
        {
            return Err(Rejection::WrongPhase { phase: work.phase });
        }
        if may_begin {
            if run.status == RunStatus::Paused && is_part {
                return Err(Rejection::Paused);
            }
            events.push(Event::NodeStarted { run: id, node, attempt: Attempt::new(work.attempt + 1) });
            if let Some(whole) = run.whole.as_ref().filter(|whole| is_part && whole.phase == Phase::Claimed) {
                let attempt = Attempt::new(whole.attempt + 1);
                events.push(Event::NodeStarted { run: id, node: NodeIx::WHOLE_RUN, attempt });
            }
        }
        match &report.then {
            Then::Start => {}
            Then::Receive { handle, max } => events.extend(self.plan_receive(run, report, *handle, *max)?),
            Then::Progress { step, total } => {
                events.push(Event::NodeProgressed { run: id, node, step: *step, total: *total });
            }
            Then::Checkpoint { state } => {
                events.push(Event::NodeCheckpointed { run: id, node, state: *state })
            }
            Then::Complete { output } => events.push(Event::NodeCompleted { run: id, node, output: *output }),
            Then::Fail { failure, poison } => {
                if let Some((handle, seq)) = poison {
                    events.extend(self.plan_poison(run, report, *handle, *seq)?);
                }
                events.push(self.plan_fail(run, work, node, *failure));
                events.push(taken);
            }
            Then::Suspend(suspension) => {
                self.check_nothing_waits(run, report, suspension)?;
                events.push(self.plan_suspend(id, node, suspension));
                events.push(taken);
            }
            _ => {}
        }
        Ok(events)
    }

    fn plan_receive(&self, run: &Run, report: &Report, handle: HandleIx, max: u32) -> Plan {
        let inbox = inbox_of(run, report.node, handle)?;
        let done = report.consume.iter().filter(|(at, _)| *at == handle).map(|(_, seq)| seq.get()).max();
        let settled = inbox.settled.max(done.unwrap_or(0));
        if inbox.claimed > settled || inbox.last == settled || max == 0 {
            return Ok(Vec::new());
        }
        let through = Seq::new((settled + u64::from(max)).min(inbox.last));
        let Report { run, node, epoch, .. } = *report;
        Ok(vec![Event::MessagesClaimed { run, node, handle, through, epoch }])
    }

    /// The worker names the culprit: it is put aside at once.
    fn plan_poison(&self, run: &Run, report: &Report, handle: HandleIx, seq: Seq) -> Plan {
        let inbox = inbox_of(run, report.node, handle)?;
        let done = report.consume.iter().filter(|(at, _)| *at == handle).map(|(_, seq)| seq.get()).max();
        let settled = inbox.settled.max(done.unwrap_or(0));
        if seq.get() != settled + 1 || seq.get() > inbox.claimed || inbox.claim_epoch != report.epoch {
            let claimed_through = Seq::new(inbox.claimed.max(inbox.settled));
            return Err(Rejection::NotClaimed { seq, claimed_through });
        }
        let Report { run, node, .. } = *report;
        let back = Event::MessagesReturned { run, node, handle, blame: false };
        Ok(vec![back, Event::MessageBuried { run, node, handle, seq }])
    }

    /// S13, S18: tried again within the budget, later and later, or failed for good.
    fn plan_fail(&self, run: &Run, work: &Node, node: NodeIx, failure: Failure) -> Event {
        let may_retry = failure.kind.may_retry() && work.failures + 1 < run.def.work(node).retry.max_failures;
        Event::NodeFailed { run: run.id, node, failure, retry_at: may_retry.then_some(Time::ZERO) }
    }

    fn plan_suspend(&self, run: RunId, node: NodeIx, suspension: &Suspension) -> Event {
        let after = suspension.after_ms.map_or(Time::NEVER, |ms| self.now.after_ms(ms));
        let wall =
            suspension.at_wall.map_or(Time::NEVER, |wall| self.now.after_ms(wall.saturating_sub(self.wall)));
        Event::NodeSuspended { run, node, suspension: Box::new(suspension.clone()), wake_at: after.min(wall) }
    }

    /// S30: nothing it would wait for has already arrived.
    fn check_nothing_waits(
        &self,
        run: &Run,
        report: &Report,
        suspension: &Suspension,
    ) -> Result<(), Rejection> {
        if !suspension.on_message {
            return Ok(());
        }
        for inbox in run.inboxes_of(report.node) {
            let done =
                report.consume.iter().filter(|(at, _)| *at == inbox.handle).map(|(_, seq)| seq.get()).max();
            let settled = inbox.settled.max(done.unwrap_or(0));
            if inbox.closed || (inbox.has_ended() && inbox.last == settled) {
                return Err(Rejection::HandleClosed);
            }
            if inbox.last > settled {
                return Err(Rejection::InputWaiting { handle: inbox.handle, seq: Seq::new(settled + 1) });
            }
        }
        Ok(())
    }

    /// What is consumed and what is sent, in this order.
    pub(super) fn settle(&self, run: &Run, report: &Report) -> Plan {
        let Report { run: id, node, epoch, .. } = *report;
        let mut events = Vec::new();
        for (handle, through) in &report.consume {
            let inbox = inbox_of(run, node, *handle)?;
            let claimed_through = Seq::new(inbox.claimed.max(inbox.settled));
            if through.get() <= inbox.settled {
                continue;
            }
            if through.get() > inbox.claimed || inbox.claim_epoch != epoch {
                return Err(Rejection::NotClaimed { seq: *through, claimed_through });
            }
            let capacity = u64::from(self.capacity(id, node, *handle));
            let room = inbox.last - inbox.settled >= capacity;
            let (handle, through) = (*handle, *through);
            events.push(Event::MessagesConsumed { run: id, node, handle, through, room });
        }
        let mut sent: Vec<((NodeIx, HandleIx), u64)> = Vec::new();
        let mut owed = self.counts.next_outbox;
        let mut debts = None;
        for sending in &report.sends {
            match *sending {
                Sending::Stream { edge, n, value } => {
                    let streams =
                        &run.def.links.get(node.get() as usize).map_or(&[][..], |links| &links.streams);
                    let stream =
                        *streams.get(usize::from(edge)).ok_or(Rejection::UnknownEdge { node, edge })?;
                    events.extend(self.plan_stream(run, stream, n, value, &mut sent)?);
                }
                Sending::Run { run: to, node, handle, id: message, value } => {
                    self.check_value(&value)?;
                    let is_open = |debt: &&super::Debt| debt.refused_at.is_none();
                    let owing = debts.unwrap_or_else(|| self.debts.values().filter(is_open).count() as u64);
                    if owing >= self.limits.outbox {
                        let (limit, max) = (LimitName::Outbox, self.limits.outbox);
                        return Err(Rejection::LimitReached { limit, max });
                    }
                    debts = Some(owing + 1);
                    let outgoing = Outgoing::Message { from: id, run: to, node, handle, id: message, value };
                    let number = OutboxId::new(owed.unwrap_or(0));
                    owed = owed.map(|next| next + 1);
                    let (tenant, outgoing) = (run.tenant, Box::new(outgoing));
                    events.push(Event::OutboxEnqueued { id: number, tenant, outgoing });
                }
            }
        }
        Ok(events)
    }

    /// One message of a stream; `sent` counts what this report sent before it.
    fn plan_stream(
        &self,
        run: &Run,
        stream: super::state::StreamOut,
        n: u64,
        value: tenure_core::value::Value,
        sent: &mut Vec<((NodeIx, HandleIx), u64)>,
    ) -> Plan {
        self.check_value(&value)?;
        let (node, handle) = (NodeIx::new(stream.to as u32), HandleIx::new(stream.handle));
        let before = sent.iter().find(|(at, _)| *at == (node, handle)).map_or(0, |(_, count)| *count);
        let inbox = inbox_of(run, node, handle)?;
        // Nobody is there to read it any more. Refused, it would keep its sender from ever finishing.
        if run.nodes[stream.to].is_over() {
            return Ok(Vec::new());
        }
        let stored = inbox.sources[usize::from(stream.source)].0;
        let seq = if before == 0 {
            match self.judge_stream(run, stream, n, value)? {
                Taken::Before(_) => return Ok(Vec::new()),
                Taken::New(seq) => seq,
            }
        } else {
            if n >= 1 && n <= stored + before {
                return Ok(Vec::new());
            }
            if n != stored + before + 1 {
                return Err(Rejection::Gap { expected: stored + before + 1, presented: n });
            }
            let capacity = self.capacity(run.id, node, handle);
            if inbox.last + before - inbox.settled >= u64::from(capacity) {
                return Err(Rejection::InboxFull { capacity });
            }
            inbox.last + before + 1
        };
        sent.retain(|(at, _)| *at != (node, handle));
        sent.push(((node, handle), before + 1));
        let message = NewMessage { id: MessageKey::Stream { source: stream.source, n }, value, cursor: None };
        let (id, seq, message) = (run.id, Seq::new(seq), Box::new(message));
        Ok(vec![Event::MessageAppended { run: id, node, handle, seq, message }])
    }
}

/// Its run ends, or nothing needs it.
fn is_stopped(run: &Run, work: &Node) -> bool {
    run.status == RunStatus::Ending || work.stop == Some(StopReason::NotNeeded)
}

/// Equal in all that is not a label: digests, epochs of new grants, and the instant of a retry within its bounds.
pub(super) fn alike(model: &Model, expected: &Event, found: &Event) -> bool {
    match (expected, found) {
        (
            Event::ReportTaken { run, node, epoch, .. },
            Event::ReportTaken { run: r, node: n, epoch: e, .. },
        ) => (run, node, epoch) == (r, n, e),
        (
            Event::NodeAssigned { run, node, worker, by, .. },
            Event::NodeAssigned { run: r, node: n, worker: w, by: b, .. },
        ) => (run, node, worker, by) == (r, n, w, b),
        (
            Event::NodeFailed { run, node, failure, retry_at },
            Event::NodeFailed { run: r, node: n, failure: f, retry_at: at },
        ) => {
            (run, node, failure) == (r, n, f)
                && match (retry_at, at) {
                    (None, None) => true,
                    (Some(_), Some(at)) => model.is_backoff(*run, *node, *at),
                    _ => false,
                }
        }
        (
            Event::OutboxEnqueued { tenant, outgoing, .. },
            Event::OutboxEnqueued { tenant: t, outgoing: o, .. },
        ) => (tenant, outgoing) == (t, o),
        _ => expected == found,
    }
}

impl Model {
    /// Exponential with a cap and full jitter: somewhere between now and the upper end.
    pub(super) fn is_backoff(&self, run: RunId, node: NodeIx, at: Time) -> bool {
        let Some(known) = self.runs.get(&run.number()) else { return false };
        let Some(work) = known.node(node) else { return false };
        let Retry { backoff_ms, max_backoff_ms, .. } = known.def.work(node).retry;
        let doubled = backoff_ms.saturating_mul(1u64.checked_shl(work.failures).unwrap_or(u64::MAX));
        at >= self.now && at <= self.now.after_ms(doubled.min(max_backoff_ms))
    }
}
