//! What a command must be answered: the reply is found, what is due on what it names has fired, and the command is judged.

use super::{Events, Model, Step, wrong};
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::{Command, Envelope, Heartbeat};
use tenure_core::coordinator::effect::{Answer, Effect, Output};
use tenure_core::coordinator::event::Event;
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::id::*;
use tenure_core::limits::LimitName;
use tenure_core::time::Now;
use tenure_core::value::{Place, Value};

/// An answer, or a refusal.
pub(super) type Reply = Result<Answer, Rejection>;

/// A command that is being judged.
pub(super) struct Asked<'a, 'b> {
    pub(super) now: Now,
    pub(super) tenant: TenantId,
    pub(super) events: &'a mut Events<'b>,
    pub(super) found: &'b Reply,
}

impl Asked<'_, '_> {
    /// It must be refused. Where several reasons hold, the rules do not say which one is named.
    pub(super) fn refused(&self, about: &str, why: Rejection) -> Step {
        match self.found {
            Err(_) => Ok(()),
            found => Err(wrong(about, Err::<Answer, _>(why), found)),
        }
    }

    /// It must be answered like this.
    pub(super) fn answered(&self, about: &str, answer: &Answer) -> Step {
        match self.found {
            Ok(found) if found == answer => Ok(()),
            found => Err(wrong(about, Ok::<_, Rejection>(answer), found)),
        }
    }

    pub(super) fn done(&self, about: &str) -> Step {
        self.answered(about, &Answer::Done)
    }
}

impl Model {
    pub(super) fn obey<'b>(
        &mut self,
        now: Now,
        envelope: &Envelope,
        out: &'b Output,
        events: &mut Events<'b>,
    ) -> Step {
        let mut replies = out.effects.iter().filter_map(|effect| match effect {
            Effect::Reply { request, result } => Some((*request, result)),
            _ => None,
        });
        let reply = replies.next();
        if let Some(second) = replies.next() {
            return Err(wrong("S32: a request gets one answer", "one", second));
        }
        self.speaks = match &envelope.command {
            Command::Heartbeat(Heartbeat { worker, .. })
            | Command::Poll { worker, .. }
            | Command::Claim { worker, .. }
            | Command::Reconcile { worker, .. } => {
                Some(WorkerKey { tenant: envelope.tenant, worker: *worker })
            }
            _ => None,
        };
        self.drain(now, events)?;
        let Some((request, found)) = reply else {
            let is_loading = out.loads.iter().any(|load| load.again.as_deref() == Some(envelope));
            let is_answered =
                if is_loading { Ok(()) } else { Err(wrong("a request gets an answer", "one", out)) };
            return is_answered;
        };
        if request != envelope.request {
            return Err(wrong("an answer is for the request", envelope.request, request));
        }
        self.check_named(&envelope.command)?;
        let asked = &mut Asked { now, tenant: envelope.tenant, events, found };
        match &envelope.command {
            Command::Define { definition, hash } => self.obey_define(asked, definition, *hash),
            Command::SetAlias { definition, alias, version } => {
                self.obey_alias(asked, definition, alias, *version)
            }
            Command::Submit(submit) => self.obey_submit(asked, submit),
            Command::Cancel(on) => self.obey_cancel(asked, *on),
            Command::Pause(on) => self.obey_pause(asked, *on),
            Command::Continue(on) => self.obey_continue(asked, *on),
            Command::Retry(on) => self.obey_retry(asked, *on),
            Command::Wake { run, node } => self.obey_wake(asked, *run, *node),
            Command::Send(send) => self.obey_send(asked, send),
            Command::EndStream { run, node, handle, source, count } => {
                self.obey_end_stream(asked, (*run, *node, *handle), *source, *count)
            }
            Command::Register { worker, spec } => self.obey_register(asked, *worker, spec),
            Command::Heartbeat(beat) => self.obey_heartbeat(asked, beat),
            Command::Reconcile { worker, incarnation, held } => {
                self.obey_reconcile(asked, *worker, *incarnation, held)
            }
            Command::Poll { worker, incarnation, poll, max, .. } => {
                self.obey_poll(asked, *worker, *incarnation, *poll, *max)
            }
            Command::Claim { worker, incarnation, poll, run, node } => {
                self.obey_claim(asked, (*worker, *incarnation, *poll), *run, *node)
            }
            Command::Report { worker, incarnation, reports } => {
                self.obey_reports(asked, *worker, *incarnation, reports)
            }
            Command::Drain { worker, on } => self.obey_drain(asked, *worker, *on),
            Command::Deregister { worker, incarnation } => self.obey_deregister(asked, *worker, *incarnation),
            Command::Acknowledge { id, taken } => self.obey_acknowledge(asked, *id, *taken),
        }
    }

    fn check_named(&self, command: &Command) -> Step {
        match command {
            Command::Cancel(on) | Command::Pause(on) | Command::Continue(on) | Command::Retry(on) => {
                self.check_nothing_due(on.run, None)
            }
            Command::Wake { run, node }
            | Command::EndStream { run, node, .. }
            | Command::Claim { run, node, .. } => self.check_nothing_due(*run, Some(*node)),
            Command::Send(send) => self.check_nothing_due(send.run, Some(send.node)),
            // What is due on a piece of work fires right before the report on it.
            Command::Report { .. } => Ok(()),
            _ => Ok(()),
        }
    }

    /// The next event must be exactly this one.
    pub(super) fn expect(&mut self, asked: &mut Asked<'_, '_>, about: &str, event: Event) -> Step {
        let now = asked.now;
        let found = asked.events.peek().map(|stamped| &stamped.event);
        if found != Some(&event) {
            return Err(wrong(about, event, found));
        }
        self.demand(now, asked.events, about, |_| true)
    }

    /// A run that this tenant may speak of.
    pub(super) fn find(&self, tenant: TenantId, run: RunId) -> Result<&super::Run, Rejection> {
        if run.partition() != self.partition {
            return Err(Rejection::WrongPartition { run, here: self.partition });
        }
        let known = self.runs.get(&run.number()).filter(|known| known.id == run && known.tenant == tenant);
        known.ok_or(Rejection::UnknownRun { run })
    }

    /// Larger payloads are references.
    pub(super) fn check_value(&self, value: &Value) -> Result<(), Rejection> {
        let max = self.limits.inline_bytes;
        if value.place == Place::Inline && value.len > max {
            return Err(Rejection::LimitReached { limit: LimitName::InlineBytes, max });
        }
        Ok(())
    }
}

/// Short, not empty, without control characters.
pub(super) fn is_name(name: &str, max: u64) -> bool {
    !name.is_empty() && name.len() as u64 <= max && !name.chars().any(char::is_control)
}
