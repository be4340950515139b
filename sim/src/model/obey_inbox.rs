//! Messages from outside: sent once, in order, as long as there is room (S22, S23, S27, S28).

use super::obey::Asked;
use super::{Inbox, Model, Run, Step};
use tenure_core::coordinator::command::{MessageKey, SendCommand};
use tenure_core::coordinator::effect::Answer;
use tenure_core::coordinator::event::{Event, NewMessage};
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::id::*;
use tenure_core::limits::LimitName;
use tenure_core::value::Value;

/// What becomes of a message.
pub(super) enum Taken {
    /// It is new, and gets this place.
    New(u64),
    /// It was taken before, at this place if it has an id of its own.
    Before(Option<u64>),
}

impl Model {
    pub(super) fn obey_send(&mut self, asked: &mut Asked<'_, '_>, send: &SendCommand) -> Step {
        let about = "S22, S28: a message is taken once, in its place, or refused in words";
        let judged = self.find(asked.tenant, send.run).and_then(|run| {
            let inbox = inbox_of(run, send.node, send.handle)?;
            self.check_value(&send.value)?;
            self.judge_message(run, inbox, send.id, send.value, send.cursor, true)
        });
        let seq = match judged {
            Err(why) => return asked.refused(about, why),
            Ok(Taken::Before(Some(seq))) => {
                return asked.answered(about, &Answer::Appended { seq: Seq::new(seq) });
            }
            Ok(Taken::Before(None)) => return asked.done(about),
            Ok(Taken::New(seq)) => Seq::new(seq),
        };
        let SendCommand { run, node, handle, id, value, cursor } = *send;
        let message = Box::new(NewMessage { id, value, cursor });
        let is_trigger = self.runs.get(&run.number()).is_some_and(|known| {
            known.def.spec.nodes[node.get() as usize].handles[usize::from(handle.get())].trigger
        });
        let event = if is_trigger {
            Event::TriggerInputReceived { run, node, handle, seq, message }
        } else {
            Event::MessageAppended { run, node, handle, seq, message }
        };
        self.expect(asked, about, event)?;
        match id {
            MessageKey::Own(_) => asked.answered(about, &Answer::Appended { seq }),
            MessageKey::Stream { .. } => asked.done(about),
        }
    }

    /// S22: same id and content is a no-op, same id and other content a conflict; sources are counted.
    pub(super) fn judge_message(
        &self,
        run: &Run,
        inbox: &Inbox,
        id: MessageKey,
        value: Value,
        cursor: Option<u64>,
        is_outside: bool,
    ) -> Result<Taken, Rejection> {
        let (ix, handle) = (inbox.node.get() as usize, inbox.handle);
        let spec = &run.def.spec.nodes[ix].handles[usize::from(handle.get())];
        if cursor.is_some() && !spec.trigger {
            return Err(Rejection::NotATrigger);
        }
        let over = || {
            if is_outside && !run.is_open() {
                return Err(Rejection::RunEnded { status: run.status });
            }
            let is_shut = inbox.closed || inbox.has_ended() || run.nodes[ix].is_over();
            if is_shut { Err(Rejection::HandleClosed) } else { Ok(()) }
        };
        match id {
            MessageKey::Own(own) => {
                if let Some((seq, known)) = inbox.own.get(&own) {
                    let conflict = Rejection::MessageConflict { seq: Seq::new(*seq) };
                    return if *known == value { Ok(Taken::Before(Some(*seq))) } else { Err(conflict) };
                }
                over()?;
                if inbox.own.len() as u64 >= self.limits.message_ids {
                    let (limit, max) = (LimitName::MessageIds, self.limits.message_ids);
                    return Err(Rejection::LimitReached { limit, max });
                }
            }
            MessageKey::Stream { .. } if spec.trigger => return Err(Rejection::IdMissing),
            MessageKey::Stream { source, n } => {
                let is_mine = !is_outside || usize::from(source) < spec.sources.len();
                let state = inbox.sources.get(usize::from(source)).filter(|_| is_mine);
                let (stored, ended) = *state.ok_or(Rejection::UnknownSource { handle, source })?;
                if n >= 1 && n <= stored {
                    return Ok(Taken::Before(None));
                }
                if let Some(count) = ended {
                    return Err(Rejection::StreamEnded { count });
                }
                if n != stored + 1 {
                    return Err(Rejection::Gap { expected: stored + 1, presented: n });
                }
                over()?;
            }
        }
        if let (Some(stored), Some(presented)) = (inbox.cursor_stored, cursor)
            && presented <= stored
        {
            return Err(Rejection::CursorBehind { stored, presented });
        }
        if inbox.last - inbox.settled >= u64::from(spec.capacity) {
            return Err(Rejection::InboxFull { capacity: spec.capacity });
        }
        Ok(Taken::New(inbox.last + 1))
    }

    pub(super) fn obey_end_stream(
        &mut self,
        asked: &mut Asked<'_, '_>,
        (id, node, handle): (RunId, NodeIx, HandleIx),
        source: u16,
        count: u64,
    ) -> Step {
        let about = "S27: each source ends its stream once, with its own count";
        let judged = self.find(asked.tenant, id).and_then(|run| {
            let inbox = inbox_of(run, node, handle)?;
            let spec = &run.def.spec.nodes[node.get() as usize].handles[usize::from(handle.get())];
            let state =
                inbox.sources.get(usize::from(source)).filter(|_| usize::from(source) < spec.sources.len());
            let (stored, ended) = *state.ok_or(Rejection::UnknownSource { handle, source })?;
            match ended {
                Some(known) if known == count => Ok(false),
                Some(known) => Err(Rejection::StreamEnded { count: known }),
                None if !run.is_open() => Err(Rejection::RunEnded { status: run.status }),
                None if count != stored => Err(Rejection::EndConflict { received: stored, presented: count }),
                None => Ok(true),
            }
        });
        match judged {
            Err(why) => asked.refused(about, why),
            Ok(false) => asked.done(about),
            Ok(true) => {
                self.expect(asked, about, Event::StreamEnded { run: id, node, handle, source, count })?;
                asked.done(about)
            }
        }
    }
}

pub(super) fn inbox_of(run: &Run, node: NodeIx, handle: HandleIx) -> Result<&Inbox, Rejection> {
    if node.is_whole_run() || run.node(node).is_none() {
        return Err(Rejection::UnknownNode { run: run.id, node });
    }
    run.inbox(node, handle).ok_or(Rejection::UnknownHandle { node, handle })
}
