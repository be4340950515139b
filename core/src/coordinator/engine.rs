//! The straight line: command, decide, events, apply, effects. Every input goes through here, and every event through
//! [`Engine::run`].

use super::Coordinator;
use super::apply::Applier;
use super::command::{Command, Envelope, Held, Input, Load, Loaded, Need};
use super::decide::{Decision, Wanted, due};
use super::effect::{Answer, Effect, Grant, Output, Reported};
use super::event::{By, Event, Stamped};
use super::rejection::Rejection;
use super::state::{Timer, WorkerKey};
use super::{decide, follow, react, recover, restore};
use crate::id::{HandleIx, Incarnation, NodeIx, PollId, RunId, TenantId, WorkerId};
use crate::limits::LimitName;
use crate::time::Now;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A Coordinator and where it puts what it has to say, while it handles an input.
pub(super) struct Engine<'a> {
    pub(super) core: &'a mut Coordinator,
    pub(super) out: &'a mut Output,
}

impl Engine<'_> {
    pub(super) fn handle(&mut self, now: Now, input: Input) {
        self.core.state.clock.read(now);
        match input {
            Input::Command(envelope) => self.command(envelope, &[]),
            Input::Pulse => self.pulse(),
            Input::Loaded(loaded) => self.loaded(loaded),
            Input::Recover => self.recover(now),
        }
    }

    /// Applies events and all that follows from them, then gives out what that made possible.
    fn run(&mut self, events: impl IntoIterator<Item = Event>) {
        self.settle(events);
        let mut found = core::mem::take(&mut self.core.found);
        loop {
            self.core.dispatch(&mut found);
            if found.is_empty() {
                break;
            }
            self.settle(found.drain(..));
        }
        self.core.found = found;
    }

    /// Applies events and all that follows from them, and gives out nothing.
    fn settle(&mut self, events: impl IntoIterator<Item = Event>) {
        let mut queue = core::mem::take(&mut self.core.queue);
        let mut next = core::mem::take(&mut self.core.next);
        queue.extend(events);
        // Those from here on are consequences: they are looked at again before they happen.
        let (decided, mut at) = (queue.len(), 0);
        while at < queue.len() {
            if at >= decided && follow::is_moot(&self.core.state, &queue[at]) {
                queue.remove(at);
                continue;
            }
            self.step(&queue[at], &mut next);
            queue.append(&mut next);
            at += 1;
        }
        let state = &self.core.state;
        let (now, wall, step) = (state.clock.now, state.clock.wall, state.meta.step);
        let lasting = queue.drain(..).filter(|event| !event.is_volatile());
        self.out.audit.extend(lasting.map(|event| Stamped { at: now, wall, step, event }));
        (self.core.queue, self.core.next) = (queue, next);
    }

    /// Applies one event; what follows from it goes to `next`.
    fn step(&mut self, event: &Event, next: &mut Vec<Event>) {
        let core = &mut *self.core;
        if !event.is_volatile() && core::mem::take(&mut core.begins_step) {
            core.state.meta.step += 1;
        }
        Applier { state: &mut core.state, placement: &mut core.placement }.apply(event);
        react::react(&core.state, event, &mut self.out.effects);
        follow::follow(&core.state, event, next);
    }

    /// Whatever comes next is a step of its own (S3).
    fn begin(&mut self) {
        self.core.begins_step = true;
    }

    /// Decides, and does what was decided.
    fn decide<T>(
        &mut self,
        tenant: TenantId,
        decide: impl FnOnce(&mut Decision<'_>) -> Result<T, Rejection>,
    ) -> Result<T, Rejection> {
        let mut events = core::mem::take(&mut self.core.decided);
        let decided = decide(&mut Decision { state: &self.core.state, tenant, events: &mut events });
        if decided.is_err() {
            events.clear();
        }
        self.run(events.drain(..));
        self.core.decided = events;
        decided
    }

    /// Handles a command. What was just looked up for it is here or nowhere; something else it names may have left memory
    /// meanwhile, and then all of it is looked up together.
    fn command(&mut self, envelope: Envelope, looked_up: &[Need]) {
        self.begin();
        let (request, tenant) = (envelope.request, envelope.tenant);
        // What a command needs loaded is found before anything is decided, so that it can be presented again whole.
        let mut needs = self.needs(&envelope);
        needs.retain(|need| !looked_up.contains(need));
        if !needs.is_empty() {
            needs.extend_from_slice(looked_up);
            needs.sort_unstable();
            self.out.loads.push(Load { needs, again: Some(Box::new(envelope)) });
            return;
        }
        self.fire_named(tenant, &envelope.command);
        self.begin();
        let result = self.answer(tenant, envelope.command);
        self.out.effects.push(Effect::Reply { request, result });
    }

    /// Everything a command names that may be in the store and is not in memory.
    fn needs(&self, envelope: &Envelope) -> Vec<Need> {
        let state = &self.core.state;
        let absent = |run: RunId| {
            let number = run.number();
            let may_be_stored = run.partition() == state.meta.partition && number < state.meta.next_run;
            (may_be_stored && state.runs.slot(number).is_none()).then_some(Need::Run { number })
        };
        let one = match &envelope.command {
            Command::Report { reports, .. } => {
                let mut needs: Vec<_> = reports.iter().filter_map(|report| absent(report.run)).collect();
                needs.sort_unstable();
                needs.dedup();
                return needs;
            }
            Command::Submit(submit) => {
                submit.key.and_then(|key| match state.keys.run(envelope.tenant, key.key) {
                    Some(number) => state.runs.slot(number).is_none().then_some(Need::Run { number }),
                    None if state.keys.is_complete_since(key.minted_at) => None,
                    None => Some(Need::Key { tenant: envelope.tenant, key: key.key }),
                })
            }
            Command::Cancel(on) | Command::Pause(on) | Command::Continue(on) | Command::Retry(on) => {
                absent(on.run)
            }
            Command::Wake { run, .. } | Command::EndStream { run, .. } | Command::Claim { run, .. } => {
                absent(*run)
            }
            Command::Send(send) => absent(send.run),
            _ => None,
        };
        one.into_iter().collect()
    }

    /// Fires what is due on the things a command names.
    fn fire_named(&mut self, tenant: TenantId, command: &Command) {
        match command {
            Command::Cancel(on) | Command::Pause(on) | Command::Continue(on) | Command::Retry(on) => {
                let nodes = self.core.state.run(on.run).map(|run| run.work_ixs().collect::<Vec<_>>());
                // A run's own deadline and dead leases decide what cancel and retry find.
                nodes.into_iter().flatten().for_each(|node| self.fire_work(on.run, node));
            }
            Command::Wake { run, node } | Command::EndStream { run, node, .. } => self.fire_work(*run, *node),
            Command::Send(send) => self.fire_work(send.run, send.node),
            Command::Claim { worker, run, node, .. } => {
                self.fire_worker(WorkerKey { tenant, worker: *worker });
                self.fire_work(*run, *node);
            }
            // What is due on a piece of work is fired right before the report on it is decided.
            Command::Report { worker, .. }
            | Command::Register { worker, .. }
            | Command::Reconcile { worker, .. }
            | Command::Poll { worker, .. }
            | Command::Drain { worker, .. }
            | Command::Deregister { worker, .. } => self.fire_worker(WorkerKey { tenant, worker: *worker }),
            Command::Heartbeat(beat) => self.fire_worker(WorkerKey { tenant, worker: beat.worker }),
            Command::Define { .. }
            | Command::SetAlias { .. }
            | Command::Submit(_)
            | Command::Acknowledge { .. } => {}
        }
    }

    /// Fires a timer, as a step of its own.
    fn fire(&mut self, timer: Timer) {
        self.begin();
        let mut events = Vec::new();
        due::fire(&self.core.state, timer, &mut events);
        self.run(events);
    }

    fn fire_worker(&mut self, key: WorkerKey) {
        self.core.state.workers.focus(key);
        if self.core.state.workers.get(key).is_some_and(|worker| worker.armed <= self.core.state.now()) {
            self.fire_due_worker(key);
        }
    }

    /// A worker may fall through several limits at once; each is a step.
    fn fire_due_worker(&mut self, key: WorkerKey) {
        for _ in 0..4 {
            self.fire(Timer::Worker(key));
        }
        if let Some(slot) = self.core.state.workers.slot(key) {
            self.applier().arm_worker(slot);
        }
    }

    fn fire_work(&mut self, id: RunId, node: NodeIx) {
        let now = self.core.state.now();
        self.core.state.runs.focus(id.number());
        let Some(run) = self.core.state.run(id) else { return };
        if run.armed <= now {
            self.fire(Timer::Run(id.number()));
        }
        let Some(run) = self.core.state.run(id).filter(|run| run.has_node(node)) else { return };
        let held_as = run.held_as(node);
        if self.core.state.is_lease_dead(run, held_as) {
            let event = due::lost(&self.core.state, run, held_as);
            self.begin();
            self.run([event]);
        }
        for node in [held_as, node] {
            let Some(run) = self.core.state.run(id) else { return };
            if run.node(node).armed <= now {
                self.fire(Timer::Node(id.number(), node));
            }
        }
        let Some(run) = self.core.state.run(id) else { return };
        let due: Vec<HandleIx> = run
            .inboxes_of(node)
            .iter()
            .filter(|inbox| inbox.armed <= now)
            .map(|inbox| inbox.row.handle)
            .collect();
        for handle in due {
            self.fire(Timer::Inbox(id.number(), node, handle));
        }
    }

    /// Fires what is due, in a bounded portion.
    fn pulse(&mut self) {
        for _ in 0..self.core.state.limits.pulse_portion {
            let now = self.core.state.now();
            let Some((_, timer)) = self.core.state.timers.first().filter(|(at, _)| *at <= now) else {
                return;
            };
            match timer {
                Timer::Rescue => self.rescue(),
                Timer::PageIn => {
                    let horizon_ms = self.core.state.limits.page_horizon_ms;
                    let needs =
                        alloc::vec![Need::Waking { until: now.after_ms(horizon_ms.saturating_mul(2)) }];
                    self.out.loads.push(Load { needs, again: None });
                    // Asked again soon if the rows do not come.
                    let again = now.after_ms(horizon_ms / 8 + 1);
                    let state = &mut self.core.state;
                    state.timers.arm(Timer::PageIn, &mut state.armed.page, again);
                }
                Timer::Worker(key) => self.fire_due_worker(key),
                timer => self.fire(timer),
            }
        }
    }

    /// Takes back a portion of the leases that lapsed; the rest waits for its turn (F22).
    fn rescue(&mut self) {
        for _ in 0..self.core.state.limits.rescue_portion {
            if self.core.state.leases.lapsed.count == 0 {
                break;
            }
            self.fire(Timer::Rescue);
        }
        let again = self.core.state.now().after_ms(self.core.state.limits.rescue_interval_ms);
        self.core.state.armed.rescue_from = again;
        self.applier().arm_rescue(again);
    }

    fn applier(&mut self) -> Applier<'_> {
        Applier { state: &mut self.core.state, placement: &mut self.core.placement }
    }

    fn answer(&mut self, tenant: TenantId, command: Command) -> Result<Answer, Rejection> {
        match command {
            Command::Define { definition, hash } => {
                self.decide(tenant, |decision| decision.define(*definition, hash))
            }
            Command::SetAlias { definition, alias, version } => {
                self.decide(tenant, |decision| decision.set_alias(definition, alias, version))
            }
            Command::Submit(submit) => {
                let (claim, mut events) = (submit.claim, Vec::new());
                let mut decision = Decision { state: &self.core.state, tenant, events: &mut events };
                let answer = decision.submit(*submit)?;
                // The creator comes before anyone the work would be offered to.
                self.settle(events);
                let answer = self.claim_as_creator(tenant, claim, answer);
                self.run([]);
                Ok(answer)
            }
            Command::Cancel(on) => self.decide(tenant, |decision| decision.cancel(on)),
            Command::Pause(on) => self.decide(tenant, |decision| decision.pause(on)),
            Command::Continue(on) => self.decide(tenant, |decision| decision.continue_run(on)),
            Command::Retry(on) => self.decide(tenant, |decision| decision.retry(on)),
            Command::Wake { run, node } => self.decide(tenant, |decision| decision.wake(run, node)),
            Command::Send(send) => self.decide(tenant, |decision| decision.send(&send)),
            Command::EndStream { run, node, handle, source, count } => {
                self.decide(tenant, |decision| decision.end_stream((run, node, handle), source, count))
            }
            Command::Register { worker, spec } => {
                self.decide(tenant, |decision| decision.register(worker, *spec))
            }
            Command::Heartbeat(beat) => self.decide(tenant, |decision| decision.heartbeat(&beat)),
            Command::Reconcile { worker, incarnation, held } => {
                let (lost, missed) =
                    self.decide(tenant, |decision| decision.reconcile(worker, incarnation, &held))?;
                let missed = missed.iter().map(|held| self.grant(held.run, held.node)).collect();
                Ok(Answer::Reconciled { session: self.session(tenant, worker), lost, missed })
            }
            Command::Poll { worker, incarnation, poll, max, wait } => {
                let wanted = self.decide(tenant, |decision| decision.poll(worker, incarnation, poll, max))?;
                let grants = self.poll(WorkerKey { tenant, worker }, poll, wanted, max, wait);
                Ok(Answer::Polled { session: self.session(tenant, worker), grants })
            }
            Command::Claim { worker, incarnation, poll, run, node } => {
                let mut events = Vec::new();
                let mut decision = Decision { state: &self.core.state, tenant, events: &mut events };
                decision.claim(&self.core.placement, worker, incarnation, poll, (run, node))?;
                self.run(events);
                let grants = alloc::vec![self.grant(run, node)];
                Ok(Answer::Polled { session: self.session(tenant, worker), grants })
            }
            Command::Report { worker, incarnation, reports } => {
                let max = self.core.state.limits.reports;
                if reports.len() as u64 > max {
                    return Err(Rejection::LimitReached { limit: LimitName::Reports, max });
                }
                let report = |report| self.report(tenant, worker, incarnation, report);
                Ok(Answer::Reported(reports.iter().map(report).collect()))
            }
            Command::Drain { worker, on } => self.decide(tenant, |decision| decision.drain(worker, on)),
            Command::Deregister { worker, incarnation } => {
                let mut events = Vec::new();
                let mut decision = Decision { state: &self.core.state, tenant, events: &mut events };
                let answer = decision.deregister(worker, incarnation)?;
                self.give_all_back(WorkerKey { tenant, worker });
                self.run(events);
                Ok(answer)
            }
            Command::Acknowledge { id, taken } => {
                self.decide(tenant, |decision| decision.acknowledge(id, taken))
            }
        }
    }

    fn session(&self, tenant: TenantId, worker: WorkerId) -> crate::id::Session {
        let known = self.core.state.workers.of(tenant, worker);
        known.expect("a worker that was answered is known").row.session
    }

    fn grant(&self, run: RunId, node: NodeIx) -> Grant {
        react::grant(&self.core.state, self.core.state.the_run(run), node)
    }

    /// The creator takes the first piece of work in the same step, if it can: one write.
    fn claim_as_creator(
        &mut self,
        tenant: TenantId,
        claim: Option<(WorkerId, Incarnation)>,
        answer: Answer,
    ) -> Answer {
        let (Some((worker, _)), Answer::Submitted { run, held: None }) = (claim, &answer) else {
            return answer;
        };
        let (run, key) = (*run, WorkerKey { tenant, worker });
        let is_new = self.core.state.run(run).is_some_and(|run| run.stepped == self.core.state.meta.step);
        let share = decide::creators_share(&self.core.state, &self.core.placement, run, key);
        match share.filter(|_| is_new && !self.core.begins_step) {
            Some(event) => {
                let Event::NodeClaimed { node, epoch, .. } = event else {
                    unreachable!("a share is a claim")
                };
                self.settle([event]);
                Answer::Submitted { run, held: Some(Held { run, node, epoch }) }
            }
            None => answer,
        }
    }

    /// Gives a worker what it may have now, best first; each piece is decided on the state the last one left.
    fn poll(&mut self, key: WorkerKey, poll: PollId, wanted: Wanted, max: u32, wait: bool) -> Vec<Grant> {
        let most = match wanted {
            Wanted::Again(granted) => {
                return granted.iter().map(|(run, node)| self.grant(*run, *node)).collect();
            }
            Wanted::UpTo(most) => most,
        };
        let slot = self.core.state.workers.slot(key).expect("a worker that was answered is known");
        let mut grants = Vec::new();
        while (grants.len() as u32) < most && self.core.state.workers.at(slot).is_open() {
            let Coordinator { state, placement, .. } = &mut *self.core;
            let Some((run_slot, node)) = placement.pick(state, state.workers.at(slot), false) else { break };
            let run = state.runs.at(run_slot).head.id;
            let epoch = state.meta.next_epoch;
            self.begin();
            self.run([Event::NodeClaimed { run, node, epoch, worker: key, poll, by: By::Poll }]);
            grants.push(self.grant(run, node));
        }
        let waits = wait && (grants.len() as u32) < max;
        if self.core.state.workers.at(slot).waits != waits {
            self.run([Event::WorkerWaits { worker: key, waits }]);
        }
        grants
    }

    /// One report of several: a step of its own, refused on its own.
    fn report(
        &mut self,
        tenant: TenantId,
        worker: WorkerId,
        incarnation: Incarnation,
        report: &super::command::Report,
    ) -> Result<Reported, Rejection> {
        self.fire_work(report.run, report.node);
        self.begin();
        let mut events = core::mem::take(&mut self.core.decided);
        let mut decision = Decision { state: &self.core.state, tenant, events: &mut events };
        let decided = decision.report(&self.core.placement, worker, incarnation, report);
        self.run(events.drain(..));
        self.core.decided = events;
        decided
    }

    /// What a leaving worker holds is ready again, lapsed or not.
    fn give_all_back(&mut self, key: WorkerKey) {
        loop {
            let state = &self.core.state;
            let Some(slot) = state.workers.slot(key) else { return };
            let lapsed = state.leases.iter(&state.leases.lapsed).filter(|(_, lease)| lease.worker == slot);
            let leases = state.workers.leases_of(&state.leases, slot).chain(lapsed);
            let mut held = leases.map(|(_, lease)| (state.runs.at(lease.run).head.id, lease.node));
            let offered = state.workers.at(slot).offered.values().copied().next();
            let Some((run, node)) = held.next().or(offered) else { return };
            drop(held);
            self.begin();
            let how = super::event::Return::Deregistered;
            let event =
                decide::progress::give_back(&self.core.state, self.core.state.the_run(run), node, how);
            // Nothing is given out before the worker is gone: it would be offered what it just gave back.
            self.settle([event]);
        }
    }

    /// Rows came that were needed; then the command that needed them.
    fn loaded(&mut self, loaded: Loaded) {
        let runs = restore::load(self.core, loaded.rows);
        for need in &loaded.load.needs {
            match *need {
                Need::Waking { until } => {
                    self.begin();
                    self.run([Event::PagedIn { until }]);
                }
                Need::Registered => {
                    let known = runs.iter().filter_map(|run| self.core.state.run(*run));
                    known.for_each(|run| react::register_triggers(run, &mut self.out.effects));
                }
                Need::Run { .. } | Need::Key { .. } => {}
            }
        }
        if let Some(envelope) = loaded.load.again {
            self.command(*envelope, &loaded.load.needs);
        }
    }

    /// What is volatile starts anew: every live lease gets its full time, and what is owed is handed out again.
    fn recover(&mut self, now: Now) {
        recover::recover(self.core, now);
        react::react_to_recovery(&self.core.state, &mut self.out.effects);
        if self.core.state.meta.step > 0 {
            self.out.loads.push(Load { needs: alloc::vec![Need::Registered], again: None });
        }
        self.begin();
        self.run([]);
    }
}
