//! Opening a run, once per key (S32, S33).

use super::Decision;
use crate::coordinator::command::{Held, Submit, SubmitKey, Which};
use crate::coordinator::effect::Answer;
use crate::coordinator::event::{Event, RunCreated};
use crate::coordinator::rejection::Rejection;
use crate::coordinator::state::Run;
use crate::definition::Name;
use crate::graph::is_name;
use crate::id::{DefinitionId, RunId};
use crate::limits::LimitName;
use crate::time::Time;
use alloc::boxed::Box;

impl Decision<'_> {
    /// Opens a run, or answers as the first time this key was used.
    pub(crate) fn submit(&mut self, submit: Submit) -> Result<Answer, Rejection> {
        if let Some(key) = &submit.key
            && let Some(answer) = self.first_answer(key)?
        {
            return Ok(answer);
        }
        self.check(&submit)?;
        if let Some((worker, incarnation)) = submit.claim {
            self.worker(worker, incarnation)?;
        }
        let (state, definition) = (self.state, self.pick_version(submit.definition, &submit.which)?);
        let live = state.live_runs.get(&self.tenant).copied().unwrap_or(0);
        self.limit(LimitName::LiveRuns, live + 1)?;
        let run = RunId::compose(state.meta.partition, state.meta.next_run, submit.random);
        let created = RunCreated {
            run,
            tenant: self.tenant,
            definition,
            input: submit.input,
            key: submit.key,
            priority: submit.priority,
            labels: submit.labels,
            concurrency: submit.concurrency,
            deadline_ms: submit.deadline_ms,
            deadline: self.deadline(definition, submit.deadline_ms),
            creator: submit.claim.map(|(worker, _)| worker),
            notify: submit.notify,
        };
        self.events.push_back(Event::RunCreated(Box::new(created)));
        Ok(Answer::Submitted { run, held: None })
    }

    /// When a run of this definition has taken too long, if it is opened now.
    pub(super) fn deadline(&self, definition: DefinitionId, own_ms: Option<u64>) -> Time {
        let settings = &self.state.definition(definition).row.definition.settings;
        own_ms.or(settings.deadline_ms).map_or(Time::NEVER, |ms| self.state.now().after_ms(ms))
    }

    /// The answer of the first request under this key, or none if there was none.
    fn first_answer(&self, key: &SubmitKey) -> Result<Option<Answer>, Rejection> {
        let (state, now) = (self.state, self.state.now());
        let latest = now.after_ms(state.limits.key_ahead_ms);
        if key.minted_at > latest {
            return Err(Rejection::KeyFromFuture { minted_at: key.minted_at, now });
        }
        if let Some(number) = state.keys.run(self.tenant, key.key) {
            return match state.runs.get(number) {
                Some(run) => answer_again(run, key).map(Some),
                None => Err(self.expired(key)),
            };
        }
        if key.minted_at.after_ms(state.limits.retention_ms) <= now {
            return Err(self.expired(key));
        }
        Ok(None)
    }

    fn expired(&self, key: &SubmitKey) -> Rejection {
        let oldest = self.state.now().as_ms().saturating_sub(self.state.limits.retention_ms);
        Rejection::KeyExpired { minted_at: key.minted_at, oldest: Time::from_ms(oldest) }
    }

    fn check(&self, submit: &Submit) -> Result<(), Rejection> {
        self.value(&submit.input)?;
        self.limit(LimitName::Labels, submit.labels.len() as u64)?;
        for (name, text) in &submit.labels {
            for part in [name, text] {
                if !is_name(part, &self.state.limits) {
                    return Err(Rejection::BadName { name: part.clone() });
                }
            }
        }
        if submit.concurrency.is_some_and(|concurrency| concurrency.limit == 0) {
            return Err(Rejection::NoConcurrency);
        }
        match submit.deadline_ms {
            Some(ms) => self.time(ms),
            None => Ok(()),
        }
    }

    fn pick_version(&self, name: Name, which: &Which) -> Result<DefinitionId, Rejection> {
        let Some(entry) = self.state.name(self.tenant, &name) else {
            return Err(Rejection::UnknownDefinition { name });
        };
        match which {
            Which::Latest => Ok(*entry.versions.last().expect("a name has a version")),
            Which::Version(version) => {
                let at = (version.get() as usize).checked_sub(1);
                let found = at.and_then(|at| entry.versions.get(at)).copied();
                found.ok_or(Rejection::UnknownVersion { name, version: *version })
            }
            Which::Alias(alias) => entry
                .aliases
                .get(alias)
                .copied()
                .ok_or_else(|| Rejection::UnknownAlias { name, alias: alias.clone() }),
        }
    }
}

fn answer_again(run: &Run, key: &SubmitKey) -> Result<Answer, Rejection> {
    let id = run.head.id;
    if run.head.key.is_none_or(|first| first.fingerprint != key.fingerprint) {
        return Err(Rejection::KeyConflict { run: id });
    }
    let held = run.head.rare.as_ref().and_then(|rare| rare.created_held);
    Ok(Answer::Submitted { run: id, held: held.map(|(node, epoch)| Held { run: id, node, epoch }) })
}
