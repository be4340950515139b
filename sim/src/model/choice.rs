//! What the machine may choose: whom to offer work to, whom to ask for room, when to look after old things.

use super::state::Run;
use super::{Model, Step, wrong};
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::FailureKind;
use tenure_core::coordinator::effect::Outgoing;
use tenure_core::coordinator::event::{By, Event, Outcome, Return, StopReason};
use tenure_core::coordinator::rejection::Ineligible;
use tenure_core::definition::Assign;
use tenure_core::id::*;
use tenure_core::lifecycle::{Lifecycle, Phase, RunStatus};

impl Model {
    /// True if the machine was free to do this, and did it by the rules.
    pub(super) fn is_choice(&self, event: &Event) -> Step<bool> {
        match event {
            Event::NodeAssigned { run, node, worker, by: By::Placement, .. } => {
                self.check_offer(*run, *node, *worker)?;
                Ok(true)
            }
            Event::StopAsked { run, node, reason: StopReason::Preempted } => {
                let Some(run) = self.runs.get(&run.number()) else { return Ok(false) };
                let is_live = run.node(*node).is_some_and(|work| work.is_claimed() && work.stop.is_none());
                Ok(is_live && run.is_open() && run.def.work(*node).preemptible)
            }
            Event::NodeUntaken { run, node, again_at } => {
                let Some(run) = self.runs.get(&run.number()) else { return Ok(false) };
                let Assign::Push { accept_ms } = run.def.work(*node).assign else { return Ok(false) };
                let is_ready = run.node(*node).is_some_and(|work| work.phase == Phase::Ready);
                let is_within =
                    run.node(*node).is_some_and(|work| u64::from(work.offers) < self.limits.offers);
                Ok(is_ready && is_within && *again_at == self.now.after_ms(accept_ms))
            }
            Event::NodeFailed { run, node, failure, retry_at: None }
                if failure.kind == FailureKind::NobodyLeft =>
            {
                let work = self.work(*run, *node);
                Ok(work.is_some_and(|work| {
                    work.phase == Phase::Ready && u64::from(work.offers) >= self.limits.offers
                }))
            }
            Event::OutboxEnqueued { tenant, outgoing, .. } => match **outgoing {
                Outgoing::Ended { run, outcome } => Ok(self
                    .runs
                    .get(&run.number())
                    .is_some_and(|run| run.tenant == *tenant && ends(run) == Some(outcome) && run.notify)),
                Outgoing::Message { .. } => Ok(false),
            },
            Event::NodeReturned { run, node, how } => Ok(self.goes_back_with_its_run(*run, *node, *how)),
            Event::PagedIn { until } => Ok(self.looked == Some(*until)),
            Event::Swept { .. } => Ok(true),
            Event::NodeSuspended { run, node, suspension, wake_at } => {
                let Some(run) = self.runs.get(&run.number()) else { return Ok(false) };
                let ix = node.get() as usize;
                let Some(delay_ms) = (!node.is_whole_run()).then(|| run.def.timer(ix)).flatten() else {
                    return Ok(false);
                };
                Ok(run.may_begin(ix)
                    && suspension.state.is_empty()
                    && *wake_at == self.now.after_ms(delay_ms))
            }
            _ => Ok(false),
        }
    }

    /// Nodes of a run that is held as one leave their worker with it.
    fn goes_back_with_its_run(&self, id: RunId, node: NodeIx, _how: Return) -> bool {
        let Some(run) = self.runs.get(&id.number()) else { return false };
        run.grant_of(node) != node
            && run.node(node).is_some_and(|work| work.phase == Phase::Processing)
            && run.whole.as_ref().is_some_and(|whole| !whole.phase.is_held())
    }

    /// S15, S36, S38: offered only if it is ready, to somebody who may have it and did not say no.
    fn check_offer(&self, id: RunId, node: NodeIx, key: WorkerKey) -> Step {
        let run = self.runs.get(&id.number()).ok_or_else(|| wrong("S15: a run", "one", id))?;
        let Some(work) = run.node(node).filter(|work| work.phase == Phase::Ready) else {
            return Err(wrong("S15: only ready work is offered", Phase::Ready, (id, node)));
        };
        if !run.def.is_push(node) || run.grant_of(node) != node {
            return Err(wrong("only pushed work is offered", "pushed work", (id, node)));
        }
        if run.status != RunStatus::Running || run.status.is_terminal() {
            return Err(wrong(
                "nothing of a run that does not run is offered",
                RunStatus::Running,
                run.status,
            ));
        }
        if work.rare.as_ref().is_some_and(|rare| rare.excluded.contains(&key.worker)) {
            return Err(wrong("nobody is asked twice in a round", "another worker", key));
        }
        let why = self.unfit(run, node, key);
        // Who speaks in this step is heard of.
        let mut why = why.iter().filter(|why| **why != Ineligible::Unhealthy || self.speaks != Some(key));
        if let Some(why) = why.next() {
            return Err(wrong("S36, S38: only who may have it is asked", "somebody else", (key, why)));
        }
        Ok(())
    }
}

fn ends(run: &Run) -> Option<Outcome> {
    run.ending.map(|(outcome, _)| outcome).filter(|_| run.status.is_terminal() && run.owes_end)
}
