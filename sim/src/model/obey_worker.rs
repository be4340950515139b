//! Commands of and about workers: register, heartbeat, reconcile, poll, claim, drain, deregister; and acknowledgements.

use super::obey::{Asked, is_name};
use super::{Debt, Model, Step, Worker, wrong};
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::{Heartbeat, Held, WorkerSpec};
use tenure_core::coordinator::effect::Answer;
use tenure_core::coordinator::event::{By, Event, Return};
use tenure_core::coordinator::held_digest;
use tenure_core::coordinator::rejection::{Ineligible, Rejection};
use tenure_core::id::*;
use tenure_core::lifecycle::{Phase, RunStatus};
use tenure_core::limits::LimitName;

impl Model {
    /// S35: only the newest life of a worker may speak.
    fn life(&self, key: WorkerKey, presented: Incarnation) -> Result<&Worker, Rejection> {
        let worker = self.workers.get(&key).ok_or(Rejection::UnknownWorker { worker: key.worker })?;
        let current = worker.incarnation;
        if current == presented {
            Ok(worker)
        } else {
            Err(Rejection::StaleIncarnation { current, presented })
        }
    }

    /// A sign of life renews everything the worker holds. It is volatile: no row, no journal.
    pub(super) fn hear(&mut self, key: WorkerKey) -> Step<Session> {
        let now = self.now;
        let last_seen = self.workers.get(&key).map_or(now, |worker| worker.last_seen);
        let is_late = |hold: &super::Hold| now >= last_seen.after_ms(hold.lease_ms);
        if let Some((epoch, _)) = self.live(key).find(|(_, hold)| is_late(hold)) {
            return Err(wrong("S9: what expired lapses before its worker is heard", "a lapse", epoch));
        }
        Ok(self.workers.get_mut(&key).map_or(Session::new(0), |worker| {
            worker.last_seen = now;
            worker.session
        }))
    }

    /// Leases that live: of the current sessions, and not only offered.
    pub(super) fn live(&self, key: WorkerKey) -> impl Iterator<Item = (Epoch, &super::Hold)> {
        let worker = self.workers.get(&key);
        self.holds_of(key).filter(move |(_, hold)| {
            !hold.offered && worker.is_some_and(|worker| worker.is_current(hold.session, hold.lease_ms))
        })
    }

    pub(super) fn obey_register(
        &mut self,
        asked: &mut Asked<'_, '_>,
        worker: WorkerId,
        spec: &WorkerSpec,
    ) -> Step {
        let about = "S35: registering is a new life";
        let key = WorkerKey { tenant: asked.tenant, worker };
        if let Err(why) = self.check_spec(key, spec) {
            return asked.refused(about, why);
        }
        self.demand(asked.now, asked.events, about, |event| {
            matches!(event, Event::WorkerRegistered(made) if made.worker == key && made.spec == *spec)
        })?;
        let known = &self.workers[&key];
        let (incarnation, session) = (known.incarnation, known.session);
        asked.answered(about, &Answer::Registered { incarnation, session })
    }

    fn check_spec(&self, key: WorkerKey, spec: &WorkerSpec) -> Result<(), Rejection> {
        let limit = |limit, max| Err(Rejection::LimitReached { limit, max });
        if u64::from(spec.slots) > self.limits.worker_slots {
            return limit(LimitName::WorkerSlots, self.limits.worker_slots);
        }
        let most = spec.executors.len().max(spec.capabilities.len()).max(spec.labels.len()) as u64;
        if most > self.limits.worker_traits {
            return limit(LimitName::WorkerTraits, self.limits.worker_traits);
        }
        let names = spec.executors.iter().chain(spec.labels.iter());
        for name in names.chain(spec.capabilities.iter().map(|(name, _)| name)) {
            if !is_name(name, self.limits.name_bytes) {
                return Err(Rejection::BadName { name: name.clone() });
            }
        }
        let mine = self.workers.keys().filter(|known| known.tenant == key.tenant).count() as u64;
        if !self.workers.contains_key(&key) && mine >= self.limits.workers {
            return limit(LimitName::Workers, self.limits.workers);
        }
        Ok(())
    }

    pub(super) fn obey_heartbeat(&mut self, asked: &mut Asked<'_, '_>, beat: &Heartbeat) -> Step {
        let about = "S9: a heartbeat renews what lives, and brings nothing back";
        let key = WorkerKey { tenant: asked.tenant, worker: beat.worker };
        if let Err(why) = self.life(key, beat.incarnation) {
            return asked.refused(about, why);
        }
        let session = self.hear(key)?;
        let digest = held_digest(self.live(key).map(|(epoch, _)| epoch));
        let reconcile = session != beat.session || digest != beat.held;
        asked.answered(about, &Answer::Beat { session, reconcile, now: self.now })
    }

    pub(super) fn obey_reconcile(
        &mut self,
        asked: &mut Asked<'_, '_>,
        worker: WorkerId,
        incarnation: Incarnation,
        held: &[Held],
    ) -> Step {
        let about = "S8: a worker learns what it holds and what not";
        let key = WorkerKey { tenant: asked.tenant, worker };
        if let Err(why) = self.life(key, incarnation) {
            return asked.refused(about, why);
        }
        let session = self.hear(key)?;
        let Ok(Answer::Reconciled { session: found, lost, missed }) = asked.found else {
            return Err(wrong(about, "an answer", asked.found));
        };
        super::same(about, &session, found)?;
        let is_live = |held: &Held| {
            self.live(key).any(|(epoch, hold)| {
                epoch == held.epoch && hold.node == held.node && hold.run == held.run.number()
            })
        };
        let expected: Vec<Held> = held.iter().filter(|held| !is_live(held)).copied().collect();
        super::same(about, &expected, lost)?;
        // By its epoch: whoever speaks of a node of a whole run knows of the run.
        let knows = |epoch: Epoch| held.iter().any(|held| held.epoch == epoch);
        let unknown: Vec<Epoch> =
            self.live(key).map(|(epoch, _)| epoch).filter(|epoch| !knows(*epoch)).collect();
        self.check_grants(about, key, &unknown, missed)
    }

    pub(super) fn obey_poll(
        &mut self,
        asked: &mut Asked<'_, '_>,
        worker: WorkerId,
        incarnation: Incarnation,
        poll: PollId,
        max: u32,
    ) -> Step {
        let about = "a poll gets ready work, and a repeat of it the same";
        let key = WorkerKey { tenant: asked.tenant, worker };
        let last = match self.life(key, incarnation) {
            Err(why) => return asked.refused(about, why),
            Ok(worker) => worker.last_poll,
        };
        if u64::from(max) > self.limits.poll {
            let (limit, max) = (LimitName::Poll, self.limits.poll);
            return asked.refused(about, Rejection::LimitReached { limit, max });
        }
        if let Some(last) = last.filter(|last| poll < *last) {
            return asked.refused(about, Rejection::StalePoll { last, presented: poll });
        }
        self.hear(key)?;
        if last != Some(poll) {
            self.set_poll(key, poll);
            let mut got = 0;
            while let Some(Event::NodeClaimed { run, node, worker, poll: under, by: By::Poll, .. }) =
                asked.events.peek().map(|stamped| &stamped.event)
            {
                got += 1;
                if *worker != key || *under != poll || got > max {
                    return Err(wrong(about, (key, poll, max), (worker, under, got)));
                }
                self.check_pull(*run, *node, key)?;
                self.demand(asked.now, asked.events, about, |_| true)?;
            }
        }
        self.check_polled(about, asked, key, poll)
    }

    fn set_poll(&mut self, key: WorkerKey, poll: PollId) {
        if let Some(worker) = self.workers.get_mut(&key) {
            worker.last_poll = Some(poll);
        }
    }

    /// What this poll got and still has.
    fn check_polled(&self, about: &str, asked: &Asked<'_, '_>, key: WorkerKey, poll: PollId) -> Step {
        let Ok(Answer::Polled { session, grants }) = asked.found else {
            return Err(wrong(about, "grants", asked.found));
        };
        super::same(about, &self.workers[&key].session, session)?;
        let got: Vec<Epoch> =
            self.live(key).filter(|(_, hold)| hold.poll == poll).map(|(epoch, _)| epoch).collect();
        self.check_grants(about, key, &got, grants)
    }

    /// S15, S36, S38: what is pulled is ready, in a run that runs, and fits.
    fn check_pull(&self, id: RunId, node: NodeIx, key: WorkerKey) -> Step {
        let run = self.runs.get(&id.number()).ok_or_else(|| wrong("S15: a run", "one", id))?;
        let is_ready = run.node(node).is_some_and(|work| work.phase == Phase::Ready);
        if !is_ready || run.grant_of(node) != node || run.def.is_push(node) {
            return Err(wrong("S15: only ready work is pulled", "ready work", (id, node)));
        }
        if run.status != RunStatus::Running {
            return Err(wrong("nothing new is given out of it", RunStatus::Running, run.status));
        }
        match self.unfit(run, node, key).first() {
            Some(why) => Err(wrong("S36, S38: only who may have it gets it", "somebody else", (key, why))),
            None => Ok(()),
        }
    }

    pub(super) fn obey_claim(
        &mut self,
        asked: &mut Asked<'_, '_>,
        (worker, incarnation, poll): (WorkerId, Incarnation, PollId),
        id: RunId,
        node: NodeIx,
    ) -> Step {
        let about = "work may be claimed by name";
        let key = WorkerKey { tenant: asked.tenant, worker };
        let judged =
            self.life(key, incarnation).and_then(|worker| self.find(asked.tenant, id).map(|_| worker));
        let last = match judged {
            Err(why) => return asked.refused(about, why),
            Ok(worker) => worker.last_poll,
        };
        // A repeat finds its grant as long as it lives; another claim under a number that was used is refused.
        let is_it = |hold: &super::Hold| hold.poll == poll && hold.run == id.number() && hold.node == node;
        if self.live(key).any(|(_, hold)| is_it(hold)) {
            self.hear(key)?;
            return self.check_polled(about, asked, key, poll);
        }
        if let Some(last) = last.filter(|last| poll <= *last) {
            return asked.refused(about, Rejection::StalePoll { last, presented: poll });
        }
        match self.judge_claim(asked, key, id, node) {
            Err(Some(why)) => return asked.refused(about, why),
            Err(None) => return Ok(()),
            Ok(()) => {}
        }
        self.hear(key)?;
        self.set_poll(key, poll);
        self.demand(asked.now, asked.events, about, |event| {
            matches!(event, Event::NodeClaimed { run, node: at, worker, poll: under, by: By::Claim, .. }
                if (*run, *at, *worker, *under) == (id, node, key, poll))
        })?;
        self.check_polled(about, asked, key, poll)
    }

    /// Refused for a reason that is true, or not at all. `None`: it was, and the reason was one of several.
    fn judge_claim(
        &self,
        asked: &Asked<'_, '_>,
        key: WorkerKey,
        id: RunId,
        node: NodeIx,
    ) -> Result<(), Option<Rejection>> {
        let run = self.find(asked.tenant, id).map_err(Some)?;
        let work = run.node(node).filter(|_| run.grant_of(node) == node || !node.is_whole_run());
        let work = work.ok_or(Some(Rejection::UnknownNode { run: id, node }))?;
        if work.phase != Phase::Ready || run.grant_of(node) != node {
            return Err(Some(Rejection::NotReady { phase: work.phase }));
        }
        if run.status == RunStatus::Paused {
            return Err(Some(Rejection::Paused));
        }
        // Who asks lives.
        let why = self.unfit(run, node, key).into_iter().filter(|why| *why != Ineligible::Unhealthy);
        let why: Vec<Ineligible> = why.collect();
        match (asked.found, why.first()) {
            (_, None) => Ok(()),
            (Err(Rejection::NotEligible { why: found }), _) if why.contains(found) => Err(None),
            (_, Some(first)) => Err(Some(Rejection::NotEligible { why: *first })),
        }
    }

    pub(super) fn obey_drain(&mut self, asked: &mut Asked<'_, '_>, worker: WorkerId, on: bool) -> Step {
        let about = "a draining worker gets nothing new";
        let key = WorkerKey { tenant: asked.tenant, worker };
        match self.workers.get(&key).map(|known| known.draining) {
            None => return asked.refused(about, Rejection::UnknownWorker { worker }),
            Some(draining) if draining == on => {}
            Some(_) => self.expect(asked, about, Event::WorkerDrained { worker: key, on })?,
        }
        asked.done(about)
    }

    /// What it held or was offered is given out anew, and nothing counts as lost.
    pub(super) fn obey_deregister(
        &mut self,
        asked: &mut Asked<'_, '_>,
        worker: WorkerId,
        incarnation: Option<Incarnation>,
    ) -> Step {
        let about = "a worker that leaves leaves nothing behind";
        let key = WorkerKey { tenant: asked.tenant, worker };
        let judged = match (incarnation, self.workers.get(&key)) {
            (Some(presented), _) => self.life(key, presented).map(|_| ()),
            (None, Some(_)) => Ok(()),
            (None, None) => Err(Rejection::UnknownWorker { worker }),
        };
        // Nobody heard of it for so long that it was to be forgotten: this is how it left, or that.
        if asked.events.last().is_some_and(|last| *last == Event::WorkerLeft { worker: key })
            && asked.found.is_ok()
        {
            return asked.done(about);
        }
        if let Err(why) = judged {
            return asked.refused(about, why);
        }
        while let Some(stamped) = asked.events.peek() {
            match &stamped.event {
                Event::WorkerLeft { worker } if *worker == key => break,
                Event::NodeReturned { run, node, how: Return::Deregistered }
                    if self.is_his(key, *run, *node) => {}
                Event::NodeCancelled { run, node } | Event::NodeSkipped { run, node }
                    if self.is_his(key, *run, *node) && self.is_stopping(*run, *node) => {}
                event => {
                    let run = event.run().and_then(|run| self.runs.get(&run.number()));
                    if !run.is_some_and(|run| run.follows(event)) && !self.is_choice(event)? {
                        return Err(wrong(about, "what it had is given back", event));
                    }
                }
            }
            self.demand(asked.now, asked.events, about, |_| true)?;
        }
        if self.holds_of(key).next().is_some() {
            return Err(wrong(about, "nothing is left", self.holds_of(key).next()));
        }
        self.expect(asked, about, Event::WorkerLeft { worker: key })?;
        asked.done(about)
    }

    fn is_stopping(&self, id: RunId, node: NodeIx) -> bool {
        self.runs.get(&id.number()).is_some_and(|run| {
            run.status == RunStatus::Ending || run.node(node).is_some_and(|work| work.stop.is_some())
        })
    }

    fn is_his(&self, key: WorkerKey, id: RunId, node: NodeIx) -> bool {
        let Some(run) = self.runs.get(&id.number()) else { return false };
        let Some(grant) = run.node(run.grant_of(node)) else { return false };
        let is_at_work = run.node(node).is_some_and(|work| work.phase.is_held());
        is_at_work
            && run.tenant == key.tenant
            && grant.tenure.is_some_and(|tenure| tenure.worker == key.worker)
    }

    pub(super) fn obey_acknowledge(&mut self, asked: &mut Asked<'_, '_>, id: OutboxId, taken: bool) -> Step {
        let about = "what is owed is owed until it is acknowledged";
        let known = self.counts.next_outbox.is_some_and(|next| id.get() < next) && id.get() > 0;
        if !known {
            return asked.refused(about, Rejection::UnknownOutbox { id });
        }
        let is_owed = |debt: &&Debt| debt.tenant == asked.tenant && debt.refused_at.is_none();
        if self.debts.get(&id).filter(is_owed).is_some() {
            let event = if taken { Event::OutboxSent { id } } else { Event::OutboxRefused { id } };
            self.expect(asked, about, event)?;
        }
        asked.done(about)
    }
}
