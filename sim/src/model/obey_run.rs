//! Commands about a run, and about definitions: cancel, pause, continue, retry, wake, define, alias.

use super::obey::{Asked, is_name};
use super::{Model, Run, Step, wrong};
use tenure_core::coordinator::command::OnRun;
use tenure_core::coordinator::effect::Answer;
use tenure_core::coordinator::event::{EndCause, Event, Outcome, WakeCause};
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::definition::{Definition, Name};
use tenure_core::id::*;
use tenure_core::lifecycle::{Lifecycle, Phase, RunStatus};
use tenure_core::limits::LimitName;
use tenure_core::time::Time;
use tenure_core::value::Value;

impl Model {
    pub(super) fn obey_define(
        &mut self,
        asked: &mut Asked<'_, '_>,
        definition: &Definition,
        hash: ContentHash,
    ) -> Step {
        let mine = |def: &&std::sync::Arc<super::Def>| {
            def.tenant == asked.tenant && def.spec.name == definition.name
        };
        if let Some(known) = self.definitions.iter().filter(mine).find(|def| def.hash == hash) {
            let answer = Answer::Defined { id: known.id, version: known.version };
            return asked.answered("the same content is the same version", &answer);
        }
        let version = DefinitionVersion::new(self.definitions.iter().filter(mine).count() as u32 + 1);
        match asked.found {
            Ok(_) => {
                let id = DefinitionId::new(self.definitions.len() as u32);
                self.demand(asked.now, asked.events, "new content is the next version", |event| {
                    matches!(event, Event::DefinitionAdded(added)
                        if added.id == id && added.version == version && added.definition == *definition)
                })?;
                asked.answered("new content is the next version", &Answer::Defined { id, version })
            }
            Err(Rejection::BadGraph { problems }) if !problems.is_empty() => Ok(()),
            Err(Rejection::BadName { .. }) => Ok(()),
            Err(Rejection::LimitReached { limit: LimitName::Definitions, max }) => {
                let is_full = self.definitions.len() as u64 >= *max;
                if is_full { Ok(()) } else { Err(wrong("limits", self.definitions.len(), asked.found)) }
            }
            Err(Rejection::LimitReached { .. }) => Ok(()),
            found => Err(wrong("a definition is added or said to be bad", "one of these", found)),
        }
    }

    pub(super) fn obey_alias(
        &mut self,
        asked: &mut Asked<'_, '_>,
        name: &Name,
        alias: &Name,
        version: DefinitionVersion,
    ) -> Step {
        let about = "an alias points at a version";
        let mine = |def: &&std::sync::Arc<super::Def>| def.tenant == asked.tenant && def.spec.name == *name;
        if !is_name(alias, self.limits.name_bytes) {
            return asked.refused(about, Rejection::BadName { name: alias.clone() });
        }
        if self.definitions.iter().filter(mine).count() == 0 {
            return asked.refused(about, Rejection::UnknownDefinition { name: name.clone() });
        }
        let Some(def) = self.definitions.iter().filter(mine).find(|def| def.version == version) else {
            return asked.refused(about, Rejection::UnknownVersion { name: name.clone(), version });
        };
        let (tenant, id) = (asked.tenant, def.id);
        let known = self.aliases.get(&(tenant, name.clone(), alias.clone()));
        if known == Some(&id) {
            return asked.done(about);
        }
        let others =
            self.aliases.keys().filter(|(whose, of, _)| *whose == tenant && of == name).count() as u64;
        if known.is_none() && others >= self.limits.aliases {
            let max = self.limits.aliases;
            return asked.refused(about, Rejection::LimitReached { limit: LimitName::Aliases, max });
        }
        let (definition, alias) = (name.clone(), alias.clone());
        self.expect(asked, about, Event::AliasSet { tenant, definition, alias, id })?;
        asked.done(about)
    }

    fn check_version(run: &Run, on: OnRun) -> Result<(), Rejection> {
        let actual = Version::new(run.version);
        match on.if_version {
            Some(expected) if expected != actual => Err(Rejection::StaleVersion { expected, actual }),
            _ => Ok(()),
        }
    }

    /// S5: cancel and complete linearise on entering `ending`.
    pub(super) fn obey_cancel(&mut self, asked: &mut Asked<'_, '_>, on: OnRun) -> Step {
        let about = "S5: cancel ends a run that is not ending";
        let judged = self.find(asked.tenant, on.run).and_then(|run| {
            Self::check_version(run, on)?;
            if run.ending.is_some_and(|(outcome, _)| outcome == Outcome::Cancelled) {
                return Ok(false);
            }
            if !run.is_open() {
                return Err(Rejection::RunEnded { status: run.status });
            }
            Ok(true)
        });
        match judged {
            Err(why) => asked.refused(about, why),
            Ok(false) => asked.done(about),
            Ok(true) => {
                let (outcome, cause) = (Outcome::Cancelled, EndCause::Asked);
                self.expect(asked, about, Event::RunEnding { run: on.run, outcome, cause })?;
                asked.done(about)
            }
        }
    }

    pub(super) fn obey_pause(&mut self, asked: &mut Asked<'_, '_>, on: OnRun) -> Step {
        let about = "a run that is not ending may be paused";
        let judged = self.find(asked.tenant, on.run).and_then(|run| {
            Self::check_version(run, on)?;
            match run.status {
                RunStatus::Paused => Err(Rejection::AlreadyPaused),
                RunStatus::Running | RunStatus::Suspended => Ok(()),
                status => Err(Rejection::RunEnded { status }),
            }
        });
        if let Err(why) = judged {
            return asked.refused(about, why);
        }
        self.expect(asked, about, Event::RunPaused { run: on.run })?;
        asked.done(about)
    }

    pub(super) fn obey_continue(&mut self, asked: &mut Asked<'_, '_>, on: OnRun) -> Step {
        let about = "a paused run may continue";
        let judged = self.find(asked.tenant, on.run).and_then(|run| {
            Self::check_version(run, on)?;
            let status = run.status;
            if status == RunStatus::Paused { Ok(()) } else { Err(Rejection::NotPaused { status }) }
        });
        if let Err(why) = judged {
            return asked.refused(about, why);
        }
        self.expect(asked, about, Event::RunContinued { run: on.run })?;
        asked.done(about)
    }

    /// S2: a retry by hand opens a new series.
    pub(super) fn obey_retry(&mut self, asked: &mut Asked<'_, '_>, on: OnRun) -> Step {
        let about = "S2: a retry opens the next series of a run that failed or was cancelled";
        let judged = self.find(asked.tenant, on.run).and_then(|run| {
            Self::check_version(run, on)?;
            match run.status {
                RunStatus::Completed => Err(Rejection::RunCompleted),
                RunStatus::Failed | RunStatus::Cancelled => Ok((run.series, run.deadline_ms)),
                status => Err(Rejection::RunNotEnded { status }),
            }
        });
        let (series, deadline_ms) = match judged {
            Err(why) => return asked.refused(about, why),
            Ok(_) if self.is_too_many(asked) => return Ok(()),
            Ok(judged) => judged,
        };
        let deadline = deadline_ms.map_or(Time::NEVER, |ms| self.now.after_ms(ms));
        let series = Series::new(series + 1);
        self.expect(asked, about, Event::RunRetried { run: on.run, series, deadline })?;
        asked.done(about)
    }

    /// Refused because too many runs are in memory: at least as many must be open.
    pub(super) fn is_too_many(&self, asked: &Asked<'_, '_>) -> bool {
        let max = self.limits.live_runs;
        let limit = LimitName::LiveRuns;
        if *asked.found != Err(Rejection::LimitReached { limit, max }) {
            return false;
        }
        let live = self.runs.values().filter(|run| run.tenant == asked.tenant && !run.status.is_terminal());
        live.count() as u64 >= max
    }

    pub(super) fn obey_wake(&mut self, asked: &mut Asked<'_, '_>, id: RunId, node: NodeIx) -> Step {
        let about = "a suspended node may be woken by hand";
        let judged = self.find(asked.tenant, id).and_then(|run| {
            let work = run.node(node).filter(|_| !node.is_whole_run());
            let work = work.ok_or(Rejection::UnknownNode { run: id, node })?;
            if !run.is_open() {
                return Err(Rejection::RunEnded { status: run.status });
            }
            match work.phase {
                Phase::Suspended => Ok(run.def.timer(node.get() as usize).is_some()),
                phase => Err(Rejection::NotSuspended { phase }),
            }
        });
        match judged {
            Err(why) => return asked.refused(about, why),
            Ok(true) => {
                self.expect(asked, about, Event::NodeCompleted { run: id, node, output: Value::EMPTY })?;
            }
            Ok(false) => {
                self.expect(asked, about, Event::NodeResumed { run: id, node, cause: WakeCause::Hand })?;
            }
        }
        asked.done(about)
    }
}
