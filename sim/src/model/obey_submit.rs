//! Opening a run: once per key (S32, S33), with the creator's claim in the same step.

use super::obey::{Asked, is_name};
use super::{Def, Model, Step, wrong};
use std::sync::Arc;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::{Held, Submit, Which};
use tenure_core::coordinator::effect::Answer;
use tenure_core::coordinator::event::{By, Event};
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::id::*;
use tenure_core::lifecycle::Phase;
use tenure_core::limits::LimitName;
use tenure_core::time::Time;

impl Model {
    pub(super) fn obey_submit(&mut self, asked: &mut Asked<'_, '_>, submit: &Submit) -> Step {
        let about = "S32: a submit opens a run, once per key";
        if let Err(why) = self.check_submit(submit) {
            return asked.refused("bad input is refused with what was wrong", why);
        }
        if let Some(key) = submit.key {
            if let Some(run) =
                self.keys.get(&(asked.tenant, key.key)).and_then(|number| self.runs.get(number))
            {
                if run.key.is_some_and(|known| known.fingerprint != key.fingerprint) {
                    return asked.refused(about, Rejection::KeyConflict { run: run.id });
                }
                let held = run.created_held.map(|(node, epoch)| Held { run: run.id, node, epoch });
                return asked.answered(about, &Answer::Submitted { run: run.id, held });
            }
            if let Some(refused) = self.judge_age(asked, key.minted_at) {
                return refused;
            }
        }
        if let Err(why) = self.check_creator(asked.tenant, submit) {
            return asked.refused("a creator must be who it says it is", why);
        }
        let def = match self.pick(asked.tenant, submit) {
            Ok(def) => def,
            Err(why) => return asked.refused("a run has a definition", why),
        };
        if self.is_too_many(asked) {
            return Ok(());
        }
        self.open(asked, submit, &def)
    }

    fn open(&mut self, asked: &mut Asked<'_, '_>, submit: &Submit, def: &Def) -> Step {
        let about = "S32: an accepted submit opens a run as it was asked";
        let (tenant, now) = (asked.tenant, self.now);
        let ms = submit.deadline_ms.or(def.spec.settings.deadline_ms);
        let deadline = ms.map_or(Time::NEVER, |ms| now.after_ms(ms));
        let next = self.counts.next_run;
        let mut id = None;
        if let Some(Event::RunCreated(created)) = asked.events.peek().map(|stamped| &stamped.event) {
            id = Some(created.run);
        }
        self.demand(asked.now, asked.events, about, |event| {
            let Event::RunCreated(made) = event else { return false };
            made.tenant == tenant
                && made.definition == def.id
                && made.input == submit.input
                && made.key == submit.key
                && made.priority == submit.priority
                && made.labels == submit.labels
                && made.concurrency == submit.concurrency
                && made.deadline == deadline
                && made.creator == submit.claim.map(|(worker, _)| worker)
                && made.notify == submit.notify
                && made.run.number() >= next
                && made.run == RunId::compose(made.run.partition(), made.run.number(), submit.random)
        })?;
        let id = id.ok_or_else(|| wrong(about, "a run", asked.found))?;
        // What follows comes first: then the creator takes the first piece of work, if it can.
        self.drain(asked.now, asked.events)?;
        let held = self.claim_of_creator(asked, submit, id)?;
        asked.answered(about, &Answer::Submitted { run: id, held })
    }

    fn claim_of_creator(
        &mut self,
        asked: &mut Asked<'_, '_>,
        submit: &Submit,
        id: RunId,
    ) -> Step<Option<Held>> {
        let about = "the creator takes the first piece of work if it can";
        let Some((worker, _)) = submit.claim else { return Ok(None) };
        let key = WorkerKey { tenant: asked.tenant, worker };
        let run = self.runs.get(&id.number()).ok_or_else(|| wrong(about, "a run", id))?;
        let mut ready =
            (0..run.nodes.len() as u32).map(NodeIx::new).chain([NodeIx::WHOLE_RUN]).filter(|node| {
                run.grant_of(*node) == *node && run.node(*node).is_some_and(|work| work.phase == Phase::Ready)
            });
        // A creator that submits lives, though it may not have been heard of.
        let can = |node: &NodeIx| self.unfit(run, *node, key).is_empty();
        let Some(node) = ready.find(can) else { return Ok(None) };
        let silent_ms = self.workers.get(&key).map_or(0, |worker| self.now.since(worker.last_seen));
        if silent_ms >= self.limits.stale_ms
            && matches!(asked.found, Ok(Answer::Submitted { held: None, .. }))
        {
            // Its silence may have been noticed in a pulse that did not get through.
            return Ok(None);
        }
        let mut epoch = None;
        if let Some(Event::NodeClaimed { epoch: minted, .. }) =
            asked.events.peek().map(|stamped| &stamped.event)
        {
            epoch = Some(*minted);
        }
        self.demand(asked.now, asked.events, about, |event| {
            matches!(event, Event::NodeClaimed { run, node: at, worker, by: By::Creator, .. }
                if *run == id && *at == node && *worker == key)
        })?;
        let epoch = epoch.ok_or_else(|| wrong(about, "an epoch", "none"))?;
        if let Some(run) = self.run_mut(id.number()) {
            run.created_held = Some((node, epoch));
        }
        Ok(Some(Held { run: id, node, epoch }))
    }

    fn check_submit(&self, submit: &Submit) -> Result<(), Rejection> {
        self.check_value(&submit.input)?;
        let limit = |limit, max| Err(Rejection::LimitReached { limit, max });
        if submit.labels.len() as u64 > self.limits.labels {
            return limit(LimitName::Labels, self.limits.labels);
        }
        for name in submit.labels.iter().flat_map(|(name, value)| [name, value]) {
            if !is_name(name, self.limits.name_bytes) {
                return Err(Rejection::BadName { name: name.clone() });
            }
        }
        if submit.concurrency.is_some_and(|concurrency| concurrency.limit == 0) {
            return Err(Rejection::NoConcurrency);
        }
        let max = self.limits.longest_ms;
        match submit.deadline_ms {
            Some(ms) if ms == 0 || ms > max => Err(Rejection::BadTime { ms, max }),
            _ => Ok(()),
        }
    }

    /// S33: a key older than what is remembered, or from too far ahead, is refused.
    fn judge_age(&self, asked: &Asked<'_, '_>, minted_at: Time) -> Option<Step> {
        let now = self.now;
        if minted_at > now.after_ms(self.limits.key_ahead_ms) {
            return Some(asked.refused("S33: a key from ahead", Rejection::KeyFromFuture { minted_at, now }));
        }
        let oldest = Time::from_ms(now.as_ms().saturating_sub(self.limits.retention_ms));
        if minted_at < oldest {
            return Some(asked.refused("S33: an old key", Rejection::KeyExpired { minted_at, oldest }));
        }
        None
    }

    fn pick(&self, tenant: TenantId, submit: &Submit) -> Result<Arc<Def>, Rejection> {
        let name = &submit.definition;
        let mut mine = self.definitions.iter().filter(|def| def.tenant == tenant && def.spec.name == *name);
        let latest = mine.clone().next_back().ok_or(Rejection::UnknownDefinition { name: name.clone() })?;
        match &submit.which {
            Which::Latest => Ok(latest.clone()),
            Which::Version(version) => {
                let unknown = Rejection::UnknownVersion { name: name.clone(), version: *version };
                mine.find(|def| def.version == *version).cloned().ok_or(unknown)
            }
            Which::Alias(alias) => {
                let unknown = Rejection::UnknownAlias { name: name.clone(), alias: alias.clone() };
                let id = self.aliases.get(&(tenant, name.clone(), alias.clone())).ok_or(unknown)?;
                Ok(self.definitions[id.get() as usize].clone())
            }
        }
    }

    fn check_creator(&self, tenant: TenantId, submit: &Submit) -> Result<(), Rejection> {
        let Some((worker, presented)) = submit.claim else { return Ok(()) };
        let known = self.workers.get(&WorkerKey { tenant, worker });
        let current = known.ok_or(Rejection::UnknownWorker { worker })?.incarnation;
        if current == presented { Ok(()) } else { Err(Rejection::StaleIncarnation { current, presented }) }
    }
}
