//! Reports of holders. Fencing first: only the current epoch is accepted (S8), a repeat gets the first answer (S32), and
//! what comes too late is refused and kept. Then all of a report is accepted, or none of it (S25).

use super::Decision;
use super::progress::{fail, give_back, stopped, wake_at};
use crate::coordinator::command::MessageKey;
use crate::coordinator::command::{Failure, Report, Sending, Suspension, Then};
use crate::coordinator::effect::{Delivery, Outgoing, Reported};
use crate::coordinator::event::{By, Event, LateResult, NewMessage, Return};
use crate::coordinator::placement::{Placement, is_healthy};
use crate::coordinator::rejection::{Ineligible, Rejection};
use crate::coordinator::row::Work;
use crate::coordinator::state::Run;
use crate::graph::{Stream, is_name};
use crate::id::{Attempt, HandleIx, Incarnation, NodeIx, OutboxId, PollId, Seq, WorkerId};
use crate::lifecycle::{Lifecycle, Phase, RunStatus};
use crate::limits::LimitName;
use crate::mix::fold;
use crate::value::Value;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// A report being decided.
struct Case<'a> {
    run: &'a Run,
    node: NodeIx,
    report: &'a Report,
    worker: WorkerId,
}

impl Decision<'_> {
    /// Decides one report. After a refusal the events hold a late result, or nothing.
    pub(crate) fn report(
        &mut self,
        placement: &Placement,
        worker: WorkerId,
        incarnation: Incarnation,
        report: &Report,
    ) -> Result<Reported, Rejection> {
        let run = self.node(report.run, report.node)?;
        let case = Case { run, node: report.node, report, worker };
        if let Err(rejection) = self.fence(&case, incarnation) {
            if let Some(first) = repeated(&case) {
                return first;
            }
            self.keep_late(&case);
            return Err(rejection);
        }
        if let Some(first) = repeated(&case) {
            return first;
        }
        let decided = self.bounds(&case).and_then(|()| {
            self.consume(&case)?;
            self.sends(&case)?;
            self.then(&case, placement)
        });
        match decided {
            Err(Rejection::Stopping { reason }) => {
                // The holder answered: what it was told to stop ends here, and its result is kept as a late one.
                self.events.clear();
                self.keep_late(&case);
                let is_held = run.work(report.node).phase.is_held();
                self.events.extend(stopped(run, report.node).filter(|_| is_held));
                Err(Rejection::Stopping { reason })
            }
            Err(rejection) => {
                self.events.clear();
                Err(rejection)
            }
            Ok(reported) => Ok(reported),
        }
    }

    /// Whether the presented epoch is the current one, and its holder is who speaks (S8, S35).
    fn fence(&self, case: &Case<'_>, incarnation: Incarnation) -> Result<(), Rejection> {
        let work = case.run.work(case.run.held_as(case.node));
        let held = work.phase.is_held().then_some(work.epoch);
        if held != Some(case.report.epoch) {
            return Err(Rejection::StaleEpoch { held, presented: case.report.epoch });
        }
        let assignment = work.assignment.expect("held work has a holder");
        if assignment.worker != case.worker {
            return Err(Rejection::NotHolder { holder: assignment.worker });
        }
        if assignment.incarnation != incarnation {
            let current = self.state.workers.of(self.tenant, case.worker).map(|known| known.row.incarnation);
            let current = current.unwrap_or(assignment.incarnation).max(assignment.incarnation);
            return Err(Rejection::StaleIncarnation { current, presented: incarnation });
        }
        let current = current_attempt(case.run.work(case.node));
        match case.report.attempt {
            Some(presented) if presented != current => Err(Rejection::StaleAttempt { current, presented }),
            _ => Ok(()),
        }
    }

    /// A result that is refused is kept, within a bound.
    fn keep_late(&mut self, case: &Case<'_>) {
        let result = match &case.report.then {
            Then::Complete { output } => Ok(*output),
            Then::Fail { failure, .. } => Err(*failure),
            _ => return,
        };
        let kept = case.run.work(case.node).rare.as_ref().map_or(0, |rare| rare.late);
        if u64::from(kept) < self.state.limits.late_results {
            let (run, node, epoch, worker) = (case.report.run, case.node, case.report.epoch, case.worker);
            self.events.push_back(Event::LateResult(Box::new(LateResult {
                run,
                node,
                epoch,
                worker,
                result,
            })));
        }
    }

    /// Bounds on what a report carries.
    fn bounds(&self, case: &Case<'_>) -> Result<(), Rejection> {
        let report = case.report;
        self.limit(LimitName::MessagesPerReport, (report.sends.len() + report.consume.len()) as u64)?;
        for send in &report.sends {
            let (Sending::Stream { value, .. } | Sending::Run { value, .. }) = send;
            self.value(value)?;
        }
        match &report.then {
            Then::Complete { output: value } | Then::Checkpoint { state: value } => self.value(value)?,
            Then::Fail { failure, .. } => self.value(&failure.detail)?,
            Then::Suspend(suspension) => self.value(&suspension.state)?,
            _ => {}
        }
        Ok(())
    }

    /// Messages that are done with: those claimed under this epoch, in order (S24, S26).
    fn consume(&mut self, case: &Case<'_>) -> Result<(), Rejection> {
        for (handle, through) in &case.report.consume {
            let (node, handle) = (case.node, *handle);
            let inbox = case.run.inbox(node, handle).ok_or(Rejection::UnknownHandle { node, handle })?;
            let row = &inbox.row;
            if *through <= row.settled {
                continue;
            }
            let claimed_through =
                if row.claim_epoch == case.report.epoch { row.claimed_through } else { row.settled };
            if *through > claimed_through {
                return Err(Rejection::NotClaimed { seq: *through, claimed_through });
            }
            let spec = &self.state.definition_of(case.run).node(node).expect("it has an inbox").handles;
            let room = row.unsettled() >= u64::from(spec[usize::from(handle.get())].capacity);
            self.events.push_back(Event::MessagesConsumed {
                run: case.report.run,
                node,
                handle,
                through: *through,
                room,
            });
        }
        Ok(())
    }

    /// Messages of a report: along stream edges, and to other runs through the outbox.
    fn sends(&mut self, case: &Case<'_>) -> Result<(), Rejection> {
        if case.report.sends.is_empty() {
            return Ok(());
        }
        let mut sent: BTreeMap<(NodeIx, HandleIx), u64> = BTreeMap::new();
        let mut stored: BTreeMap<u16, u64> = BTreeMap::new();
        let mut next_outbox = self.state.meta.next_outbox;
        for send in &case.report.sends {
            match send {
                Sending::Stream { edge, n, value } => {
                    let streams = match case.node.is_whole_run() {
                        true => &[],
                        false => self.state.definition_of(case.run).plan.streams_out_of(case.node),
                    };
                    let stream = *streams
                        .get(usize::from(*edge))
                        .ok_or(Rejection::UnknownEdge { node: case.node, edge: *edge })?;
                    let before = stored.get(edge).copied();
                    if self.stream(case, stream, before, &mut sent, *n, *value)? {
                        stored.insert(*edge, *n);
                    }
                }
                Sending::Run { run, node, handle, id, value } => {
                    let owed = self.state.outbox.len() as u64 + next_outbox.get()
                        - self.state.meta.next_outbox.get();
                    self.limit(LimitName::Outbox, owed + 1)?;
                    let from = case.report.run;
                    let outgoing = Outgoing::Message {
                        from,
                        run: *run,
                        node: *node,
                        handle: *handle,
                        id: *id,
                        value: *value,
                    };
                    let (id, tenant) = (next_outbox, self.tenant);
                    self.events.push_back(Event::OutboxEnqueued { id, tenant, outgoing: Box::new(outgoing) });
                    next_outbox = OutboxId::new(next_outbox.get() + 1);
                }
            }
        }
        Ok(())
    }

    /// One message along a stream edge; false if it was stored before, or its receiver is done.
    fn stream(
        &mut self,
        case: &Case<'_>,
        stream: Stream,
        stored_here: Option<u64>,
        sent: &mut BTreeMap<(NodeIx, HandleIx), u64>,
        n: u64,
        value: Value,
    ) -> Result<bool, Rejection> {
        let (node, handle, source) = (stream.to, stream.handle, stream.source);
        let inbox = case.run.inbox(node, handle).expect("a stream edge ends at an inbox");
        let row = &inbox.row.sources[usize::from(source)];
        let stored = stored_here.unwrap_or(row.stored);
        if (n > 0 && n <= stored) || case.run.work(node).phase.is_terminal() {
            return Ok(false);
        }
        if let Some(count) = row.ended {
            return Err(Rejection::StreamEnded { count });
        }
        if n != stored + 1 {
            return Err(Rejection::Gap { expected: stored + 1, presented: n });
        }
        let spec = self.state.definition_of(case.run).node(node).expect("it has an inbox");
        let capacity = spec.handles[usize::from(handle.get())].capacity;
        let queued = sent.entry((node, handle)).or_default();
        if inbox.row.unsettled() + *queued >= u64::from(capacity) {
            return Err(Rejection::InboxFull { capacity });
        }
        *queued += 1;
        let seq = Seq::new(inbox.row.last.get() + *queued);
        let message = Box::new(NewMessage { id: MessageKey::Stream { source, n }, value, cursor: None });
        self.events.push_back(Event::MessageAppended { run: case.report.run, node, handle, seq, message });
        Ok(true)
    }

    /// What the report says happened.
    fn then(&mut self, case: &Case<'_>, placement: &Placement) -> Result<Reported, Rejection> {
        let (run, id, node) = (case.run, case.report.run, case.node);
        let phase = run.work(node).phase;
        let wrong = || Err(Rejection::WrongPhase { phase });
        match &case.report.then {
            Then::Accept => match phase {
                Phase::Assigned => self.accept(case),
                Phase::Claimed | Phase::Processing => Ok(Reported::Accepted),
                _ => wrong(),
            },
            Then::Decline if phase == Phase::Assigned => {
                self.end(case, give_back(self.state, run, node, Return::Declined))
            }
            Then::Delegate { to } if phase == Phase::Assigned => self.delegate(case, placement, *to),
            Then::Start => match phase {
                Phase::Processing => Ok(Reported::Accepted),
                Phase::Claimed | Phase::Ready => {
                    self.is_wanted(case)?;
                    self.begin(case)?;
                    Ok(Reported::Accepted)
                }
                _ => wrong(),
            },
            Then::Receive { handle, max } if phase == Phase::Processing => self.receive(case, *handle, *max),
            Then::Progress { step, total } if phase == Phase::Processing => {
                self.events.push_back(Event::NodeProgressed { run: id, node, step: *step, total: *total });
                Ok(Reported::Accepted)
            }
            Then::Checkpoint { state } if phase == Phase::Processing => {
                self.events.push_back(Event::NodeCheckpointed { run: id, node, state: *state });
                Ok(Reported::Accepted)
            }
            Then::Complete { output } if !node.is_whole_run() => {
                self.is_wanted(case)?;
                self.begin(case)?;
                self.events.push_back(Event::NodeCompleted { run: id, node, output: *output });
                Ok(Reported::Accepted)
            }
            Then::Fail { failure, poison } if !node.is_whole_run() => self.fail(case, *failure, *poison),
            Then::Suspend(suspension) if phase == Phase::Processing && !node.is_whole_run() => {
                self.is_wanted(case)?;
                self.suspend(case, suspension)
            }
            Then::Release if matches!(phase, Phase::Claimed | Phase::Processing) => {
                self.end(case, give_back(self.state, run, node, Return::Released))
            }
            _ => wrong(),
        }
    }

    /// Refuses to go on with what was told to stop.
    fn is_wanted(&self, case: &Case<'_>) -> Result<(), Rejection> {
        let of_run = case.run.work(case.run.held_as(case.node)).stop;
        match case.run.work(case.node).stop.or(of_run) {
            Some(reason) if stopped(case.run, case.node).is_some() || case.run.head.ending.is_some() => {
                Err(Rejection::Stopping { reason })
            }
            _ => Ok(()),
        }
    }

    /// Begins an attempt if it has not begun: work that is done quickly need not report its start.
    fn begin(&mut self, case: &Case<'_>) -> Result<(), Rejection> {
        let work = case.run.work(case.node);
        let may_start = match work.phase {
            Phase::Processing => return Ok(()),
            Phase::Claimed => true,
            // A node of a run held as a whole begins under the run's lease, not under a mere offer of the run.
            Phase::Ready => {
                let held_as = case.run.held_as(case.node);
                held_as != case.node && case.run.work(held_as).is_claimed()
            }
            _ => false,
        };
        if !may_start {
            return Err(Rejection::WrongPhase { phase: work.phase });
        }
        if work.phase == Phase::Ready && case.run.head.status == RunStatus::Paused {
            return Err(Rejection::Paused);
        }
        let attempt: Attempt = work.attempt.next();
        self.events.push_back(Event::NodeStarted { run: case.report.run, node: case.node, attempt });
        // Whoever executes a node of a run held as a whole has begun with the run.
        let held_as = case.run.held_as(case.node);
        let whole = case.run.work(held_as);
        if held_as != case.node && whole.phase == Phase::Claimed {
            let attempt = whole.attempt.next();
            self.events.push_back(Event::NodeStarted { run: case.report.run, node: held_as, attempt });
        }
        Ok(())
    }

    fn accept(&mut self, case: &Case<'_>) -> Result<Reported, Rejection> {
        self.is_wanted(case)?;
        let (run, node, epoch) = (case.report.run, case.node, case.report.epoch);
        let by = case.run.work(node).assignment.map_or(By::Placement, |assignment| assignment.by);
        let worker = self.key(case.worker);
        // Its lease begins now: whoever accepts is alive, however long it said nothing.
        self.events.push_back(Event::WorkerSeen { worker, load: None });
        self.events.push_back(Event::NodeClaimed { run, node, epoch, worker, poll: PollId::new(0), by });
        Ok(Reported::Accepted)
    }

    fn delegate(
        &mut self,
        case: &Case<'_>,
        placement: &Placement,
        to: WorkerId,
    ) -> Result<Reported, Rejection> {
        self.is_wanted(case)?;
        let target = self.state.workers.of(self.tenant, to).ok_or(Rejection::UnknownWorker { worker: to })?;
        let class = self.state.definition_of(case.run).class(case.node);
        is_healthy(target)
            .and_then(|()| placement.may_hold(class, target))
            .and_then(|()| match case.run.head.concurrency() {
                // Its own place under the key comes free with the offer that is passed on; others, whose runs allow
                // more, may hold the rest.
                Some(limit) if placement.held_under(self.tenant, limit.key) > limit.limit => {
                    Err(Ineligible::ConcurrencyKey { limit: limit.limit })
                }
                _ => Ok(()),
            })
            .map_err(|why| Rejection::NotEligible { why })?;
        self.end(
            case,
            Event::NodeReturned { run: case.report.run, node: case.node, how: Return::Delegated },
        )?;
        let (epoch, worker) = (self.state.meta.next_epoch, self.key(to));
        let (run, node) = (case.report.run, case.node);
        self.events.push_back(Event::NodeAssigned { run, node, epoch, worker, by: By::Delegation });
        Ok(Reported::Accepted)
    }

    fn receive(&mut self, case: &Case<'_>, handle: HandleIx, max: u32) -> Result<Reported, Rejection> {
        self.limit(LimitName::MessagesPerReport, u64::from(max))?;
        let (node, epoch) = (case.node, case.report.epoch);
        let inbox = case.run.inbox(node, handle).ok_or(Rejection::UnknownHandle { node, handle })?;
        let row = &inbox.row;
        let consumed = case.report.consume.iter().filter(|(at, _)| *at == handle).map(|(_, seq)| *seq).max();
        let settled = row.settled.max(consumed.unwrap_or_default());
        let mut through = row.claimed_through.max(settled);
        if through == settled && row.last > settled {
            through = Seq::new(row.last.get().min(settled.get() + u64::from(max)));
            self.events.push_back(Event::MessagesClaimed {
                run: case.report.run,
                node,
                handle,
                through,
                epoch,
            });
        }
        let seqs = settled.get() + 1..=through.get();
        let messages = seqs.filter_map(|seq| inbox.message(Seq::new(seq))).map(|message| Delivery {
            seq: message.at.seq,
            id: message.id,
            value: message.value,
            cursor: message.cursor,
            deliveries: if message.at.seq == row.settled.next() { row.deliveries } else { 0 },
        });
        Ok(Reported::Messages { messages: messages.collect(), last: row.has_ended() && through == row.last })
    }

    fn fail(
        &mut self,
        case: &Case<'_>,
        failure: Failure,
        poison: Option<(HandleIx, Seq)>,
    ) -> Result<Reported, Rejection> {
        self.begin(case)?;
        if let Some((handle, seq)) = poison {
            let (run, node) = (case.report.run, case.node);
            let inbox = case.run.inbox(node, handle).ok_or(Rejection::UnknownHandle { node, handle })?;
            let consumed =
                case.report.consume.iter().filter(|(at, _)| *at == handle).map(|(_, seq)| *seq).max();
            let first = inbox.row.settled.max(consumed.unwrap_or_default()).next();
            let claimed_through = inbox.row.claimed_through;
            if seq != first || seq > claimed_through || inbox.row.claim_epoch != case.report.epoch {
                return Err(Rejection::NotClaimed { seq, claimed_through });
            }
            self.events.push_back(Event::MessagesReturned { run, node, handle, blame: false });
            self.events.push_back(Event::MessageBuried { run, node, handle, seq });
        }
        self.end(case, fail(self.state, case.run, case.node, failure))
    }

    /// Suspends only if nothing it would have waited for has arrived: no wake-up is lost (S30).
    fn suspend(&mut self, case: &Case<'_>, suspension: &Suspension) -> Result<Reported, Rejection> {
        if !is_name(&suspension.reason, &self.state.limits) {
            return Err(Rejection::BadName { name: suspension.reason.clone() });
        }
        if let Some(ms) = suspension.after_ms {
            self.time(ms)?;
        }
        for inbox in case.run.inboxes_of(case.node).iter().filter(|_| suspension.on_message) {
            let handle = inbox.row.handle;
            let consumed =
                case.report.consume.iter().filter(|(at, _)| *at == handle).map(|(_, seq)| *seq).max();
            let settled = inbox.row.settled.max(consumed.unwrap_or_default());
            if inbox.row.last > settled {
                return Err(Rejection::InputWaiting { handle, seq: settled.next() });
            }
        }
        let inboxes = case.run.inboxes_of(case.node);
        let is_over = !inboxes.is_empty() && inboxes.iter().all(|inbox| inbox.row.has_ended());
        if suspension.on_message && is_over {
            // The end of the last stream came already, and nothing else will wake it.
            return Err(Rejection::HandleClosed);
        }
        let wake_at = wake_at(self.state, suspension.after_ms, suspension.at_wall);
        let (run, node, suspension) = (case.report.run, case.node, Box::new(suspension.clone()));
        self.end(case, Event::NodeSuspended { run, node, suspension, wake_at })
    }

    /// The report ends its grant: remembered, so that a repeat gets the same answer.
    fn end(&mut self, case: &Case<'_>, event: Event) -> Result<Reported, Rejection> {
        let (run, node, epoch) = (case.report.run, case.node, case.report.epoch);
        self.events.push_back(event);
        self.events.push_back(Event::ReportTaken { run, node, epoch, digest: digest(&case.report.then) });
        Ok(Reported::Accepted)
    }
}

/// The attempt that a report on some work can be about: the one that began, or the one that comes next.
fn current_attempt(work: &Work) -> Attempt {
    if work.phase == Phase::Processing || work.phase.is_terminal() {
        work.attempt
    } else {
        work.attempt.next()
    }
}

/// The first answer, if this report was taken before; a conflict, if another was taken under its epoch.
fn repeated(case: &Case<'_>) -> Option<Result<Reported, Rejection>> {
    let (work, epoch) = (case.run.work(case.node), case.report.epoch);
    let same = |is_same: bool| {
        if is_same { Ok(Reported::Accepted) } else { Err(Rejection::ReportConflict { epoch }) }
    };
    let is_last = case.report.attempt.is_none_or(|attempt| attempt == work.attempt);
    if work.phase == Phase::Completed && work.epoch == epoch && is_last && !case.node.is_whole_run() {
        return match &case.report.then {
            Then::Complete { output } => Some(same(output.hash == work.output.hash)),
            Then::Start => Some(Ok(Reported::Accepted)),
            _ => Some(Err(Rejection::ReportConflict { epoch })),
        };
    }
    let mark = work.rare.as_ref().and_then(|rare| rare.report).filter(|mark| mark.epoch == epoch)?;
    // Under the lease of a whole run, a node may be executed again under the same epoch; then the attempt tells.
    let is_over = match case.report.attempt {
        Some(attempt) => attempt == mark.attempt,
        None => {
            !matches!(work.phase, Phase::Processing | Phase::Ready)
                || case.run.held_as(case.node) == case.node
        }
    };
    match &case.report.then {
        // What began a grant is no answer to how it ended.
        Then::Start | Then::Accept => None,
        then if is_over => Some(same(mark.digest == digest(then))),
        _ => None,
    }
}

/// A fixed digest of what a report says happened.
fn digest(then: &Then) -> u64 {
    let of_value = |value: &Value| {
        let (hi, lo) = value.hash.halves();
        fold(&[hi, lo, value.len])
    };
    match then {
        Then::Accept => 1,
        Then::Decline => 2,
        Then::Delegate { to } => {
            let (hi, lo) = to.halves();
            fold(&[3, hi, lo])
        }
        Then::Start => 4,
        Then::Receive { .. } => 5,
        Then::Progress { .. } => 6,
        Then::Checkpoint { state } => fold(&[7, of_value(state)]),
        Then::Complete { output } => fold(&[8, of_value(output)]),
        Then::Fail { failure, .. } => fold(&[9, failure.kind as u64, of_value(&failure.detail)]),
        Then::Suspend(suspension) => fold(&[10, of_value(&suspension.state)]),
        Then::Release => 11,
    }
}
