//! What people do to runs by hand: cancel, pause, continue, retry, wake; and acknowledging what was owed.

use super::Decision;
use crate::coordinator::command::OnRun;
use crate::coordinator::effect::Answer;
use crate::coordinator::event::{EndCause, Event, Outcome, WakeCause};
use crate::coordinator::rejection::Rejection;
use crate::coordinator::state::Run;
use crate::definition::NodeKind;
use crate::id::{NodeIx, OutboxId, RunId};
use crate::lifecycle::{Phase, RunStatus};

impl Decision<'_> {
    /// The run, if it is at the version the caller saw (S3).
    fn on_run(&self, on: OnRun) -> Result<&Run, Rejection> {
        let run = self.run(on.run)?;
        match on.if_version {
            Some(expected) if expected != run.head.version => {
                Err(Rejection::StaleVersion { expected, actual: run.head.version })
            }
            _ => Ok(run),
        }
    }

    /// Refuses what can only be done to a run whose outcome is open.
    fn is_open(run: &Run) -> Result<(), Rejection> {
        match run.head.status {
            RunStatus::Running | RunStatus::Suspended | RunStatus::Paused => Ok(()),
            status => Err(Rejection::RunEnded { status }),
        }
    }

    /// Decides that a run ends as cancelled, if nothing else was decided first (S5).
    pub(crate) fn cancel(&mut self, on: OnRun) -> Result<Answer, Rejection> {
        let run = self.on_run(on)?;
        if run
            .head
            .ending
            .is_some_and(|(outcome, cause)| (outcome, cause) == (Outcome::Cancelled, EndCause::Asked))
        {
            return Ok(Answer::Done);
        }
        Self::is_open(run)?;
        self.events.push_back(Event::RunEnding {
            run: on.run,
            outcome: Outcome::Cancelled,
            cause: EndCause::Asked,
        });
        Ok(Answer::Done)
    }

    pub(crate) fn pause(&mut self, on: OnRun) -> Result<Answer, Rejection> {
        let run = self.on_run(on)?;
        Self::is_open(run)?;
        if run.head.status == RunStatus::Paused {
            return Err(Rejection::AlreadyPaused);
        }
        self.events.push_back(Event::RunPaused { run: on.run });
        Ok(Answer::Done)
    }

    pub(crate) fn continue_run(&mut self, on: OnRun) -> Result<Answer, Rejection> {
        let run = self.on_run(on)?;
        if run.head.status != RunStatus::Paused {
            return Err(Rejection::NotPaused { status: run.head.status });
        }
        self.events.push_back(Event::RunContinued { run: on.run });
        Ok(Answer::Done)
    }

    /// Opens the next series: what failed, was skipped or cancelled reopens, what completed stays.
    pub(crate) fn retry(&mut self, on: OnRun) -> Result<Answer, Rejection> {
        let run = self.on_run(on)?;
        match run.head.status {
            RunStatus::Failed | RunStatus::Cancelled => {}
            RunStatus::Completed => return Err(Rejection::RunCompleted),
            status => return Err(Rejection::RunNotEnded { status }),
        }
        let live = self.state.live_runs.get(&self.tenant).copied().unwrap_or(0);
        self.limit(crate::limits::LimitName::LiveRuns, live + 1)?;
        let own_ms = run.head.rare.as_ref().and_then(|rare| rare.deadline_ms);
        let deadline = self.deadline(run.head.definition, own_ms);
        self.events.push_back(Event::RunRetried { run: on.run, series: run.head.series.next(), deadline });
        Ok(Answer::Done)
    }

    pub(crate) fn wake(&mut self, id: RunId, node: NodeIx) -> Result<Answer, Rejection> {
        let run = self.node(id, node)?;
        Self::is_open(run)?;
        let phase = run.work(node).phase;
        if phase != Phase::Suspended {
            return Err(Rejection::NotSuspended { phase });
        }
        let definition = self.state.definition_of(run);
        let is_timer = definition.node(node).is_some_and(|spec| spec.kind != NodeKind::Work);
        self.events.push_back(if is_timer {
            Event::NodeCompleted { run: id, node, output: crate::value::Value::EMPTY }
        } else {
            Event::NodeResumed { run: id, node, cause: WakeCause::Hand }
        });
        Ok(Answer::Done)
    }

    pub(crate) fn acknowledge(&mut self, id: OutboxId, taken: bool) -> Result<Answer, Rejection> {
        match self.state.outbox.get(&id) {
            Some(entry) if entry.row.tenant == self.tenant => {
                self.events.push_back(if taken {
                    Event::OutboxSent { id }
                } else {
                    Event::OutboxRefused { id }
                });
                Ok(Answer::Done)
            }
            // A repeat: it was acknowledged before.
            None if id < self.state.meta.next_outbox => Ok(Answer::Done),
            _ => Err(Rejection::UnknownOutbox { id }),
        }
    }
}
