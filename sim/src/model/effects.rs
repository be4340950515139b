//! What must be done outside follows from what happened, in its order; at `Recover`, from what is (S34, S36).

use super::{Model, Step, Wanted, wrong};
use tenure_core::coordinator::command::Held;
use tenure_core::coordinator::effect::{Answer, Effect, Output};
use tenure_core::coordinator::event::{Event, StopReason};
use tenure_core::lifecycle::Phase;

impl Model {
    /// Every effect that an event demands is there, once and in order, and no other of its kind.
    pub(super) fn check_effects(&mut self, out: &Output) -> Step {
        let mut next = 0;
        for effect in &out.effects {
            let found = match effect {
                Effect::Offer { worker, grant } => Wanted::Offer(*worker, grant.held()),
                Effect::Stop { worker, held, reason } => Wanted::Stop(*worker, *held, *reason),
                Effect::Deliver { id, outgoing } => {
                    if self
                        .debts
                        .get(id)
                        .is_some_and(|debt| debt.outgoing != *outgoing || debt.refused_at.is_some())
                    {
                        return Err(wrong("what is owed is delivered", self.debts.get(id), outgoing));
                    }
                    if self.wanted.get(next) != Some(&Wanted::Deliver(*id)) && self.debts.contains_key(id) {
                        // Handed out again, because nobody acknowledged it.
                        continue;
                    }
                    Wanted::Deliver(*id)
                }
                Effect::RegisterTrigger { run, node, handle, after } => {
                    Wanted::Register(*run, *node, *handle, *after)
                }
                Effect::RunEnded { run, outcome } => Wanted::Ended(*run, *outcome),
                Effect::Room { run, node, handle } => Wanted::Room(*run, *node, *handle),
                Effect::Reply { .. }
                | Effect::Hand { .. }
                | Effect::Wake { .. }
                | Effect::NobodyLeft { .. } => {
                    continue;
                }
            };
            if self.wanted.get(next) != Some(&found)
                && (self.is_stop_of_former(&found) || self.is_registered_again(&found))
            {
                continue;
            }
            if self.wanted.get(next) != Some(&found) {
                return Err(wrong("an effect follows from an event", self.wanted.get(next), found));
            }
            next += 1;
        }
        if let Some(missing) = self.wanted.get(next) {
            return Err(wrong("an event demands its effect", missing, "nothing"));
        }
        self.learn_grants(out)?;
        self.check_handed(out)
    }

    fn learn_grants(&mut self, out: &Output) -> Step {
        for effect in &out.effects {
            match effect {
                Effect::Offer { grant, .. } | Effect::Hand { grant, .. } => self.learn_keys(grant)?,
                Effect::Reply { result: Ok(Answer::Polled { grants, .. }), .. } => {
                    grants.iter().try_for_each(|grant| self.learn_keys(grant))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// After a restart triggers are registered again, from what is stored on.
    fn is_registered_again(&self, found: &Wanted) -> bool {
        let Wanted::Register(run, node, handle, after) = found else { return false };
        let inbox = self.runs.get(&run.number()).and_then(|run| run.inbox(*node, *handle));
        inbox.is_some_and(|inbox| inbox.registered && !inbox.closed && inbox.cursor_stored == *after)
    }

    /// Work that ends while nobody holds it: core tells its last holder once more to stop, which is harmless.
    fn is_stop_of_former(&self, found: &Wanted) -> bool {
        let Wanted::Stop(key, held, StopReason::NotNeeded | StopReason::Fenced) = found else { return false };
        !self.holds.contains_key(&(*key, held.epoch))
            && self.work(held.run, held.node).is_some_and(|work| work.epoch == held.epoch)
    }

    /// S34: what is handed over or offered says what the run says, if it is still so at the end of the step.
    fn check_handed(&self, out: &Output) -> Step {
        for effect in &out.effects {
            let (Effect::Offer { worker, grant } | Effect::Hand { worker, grant }) = effect else { continue };
            let Some(run) = self.runs.get(&grant.run.number()) else { continue };
            let is_still = run
                .node(run.grant_of(grant.node))
                .is_some_and(|work| work.phase.is_held() && work.epoch == grant.epoch);
            let is_waiting =
                run.node(grant.node).is_some_and(|work| matches!(work.phase, Phase::Ready | Phase::Assigned));
            // Handed over and started in one step, it says what was before the start.
            let is_moved = out.audit.iter().any(|stamped| {
                matches!(stamped.event, Event::NodeStarted { run, node, .. }
                    if (run, node) == (grant.run, grant.node))
            });
            if is_still && is_waiting && !is_moved {
                self.check_grant("S34: a grant says what the run says", *worker, grant)?;
            }
        }
        Ok(())
    }

    /// At `Recover` what may have been lost is sent again: only what is still so.
    pub(super) fn check_resent(&mut self, out: &Output) -> Step {
        self.check_handed(out)?;
        for effect in &out.effects {
            let is_so = match effect {
                Effect::Offer { worker, grant } => {
                    self.holds.get(&(*worker, grant.epoch)).is_some_and(|h| h.offered)
                }
                Effect::Stop { worker, held, reason } => {
                    let Held { run, node, epoch } = *held;
                    let is_told = self.work(run, node).is_some_and(|work| work.stop == Some(*reason));
                    let grant = self.runs.get(&run.number()).map(|known| known.grant_of(node));
                    let holds = self.holds.get(&(*worker, epoch));
                    is_told && holds.is_some_and(|hold| Some(hold.node) == grant)
                }
                Effect::Deliver { id, .. } => {
                    self.debts.get(id).is_some_and(|debt| debt.refused_at.is_none())
                }
                _ => true,
            };
            if !is_so {
                return Err(wrong("what is sent again is still so", "true", effect));
            }
        }
        Ok(())
    }
}
