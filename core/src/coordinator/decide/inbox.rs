//! Messages into inboxes: once per id, in order per source, within capacity, not after the end.

use super::Decision;
use crate::coordinator::command::{MessageKey, SendCommand};
use crate::coordinator::effect::Answer;
use crate::coordinator::event::{Event, NewMessage};
use crate::coordinator::rejection::Rejection;
use crate::coordinator::state::{Inbox, Run};
use crate::definition::HandleSpec;
use crate::id::{HandleIx, NodeIx, RunId};
use crate::lifecycle::{Lifecycle, RunStatus};
use crate::limits::LimitName;
use alloc::boxed::Box;

impl<'a> Decision<'a> {
    /// A handle that a command names.
    fn handle(
        &self,
        id: RunId,
        node: NodeIx,
        handle: HandleIx,
    ) -> Result<(&'a Run, &'a Inbox, &'a HandleSpec), Rejection> {
        let run = self.node(id, node)?;
        let inbox = run.inbox(node, handle).ok_or(Rejection::UnknownHandle { node, handle })?;
        let spec = self.state.definition_of(run).node(node).expect("a node with an inbox is declared");
        Ok((run, inbox, &spec.handles[usize::from(handle.get())]))
    }

    /// A message or trigger input from outside the run: stored and in the inbox in one step (S31).
    pub(crate) fn send(&mut self, send: &SendCommand) -> Result<Answer, Rejection> {
        let (run, inbox, spec) = self.handle(send.run, send.node, send.handle)?;
        self.value(&send.value)?;
        if let Some(answer) = Self::first_answer_to(inbox, spec, send)? {
            return Ok(answer);
        }
        if run.is_ended() || run.head.status == RunStatus::Ending {
            return Err(Rejection::RunEnded { status: run.head.status });
        }
        if inbox.row.closed || inbox.row.has_ended() || run.work(send.node).phase.is_terminal() {
            return Err(Rejection::HandleClosed);
        }
        match (send.cursor, inbox.row.cursor_stored) {
            (Some(presented), Some(stored)) if presented <= stored => {
                return Err(Rejection::CursorBehind { stored, presented });
            }
            _ => {}
        }
        if inbox.row.unsettled() >= u64::from(spec.capacity) {
            return Err(Rejection::InboxFull { capacity: spec.capacity });
        }
        if let MessageKey::Own(_) = send.id {
            self.limit(LimitName::MessageIds, inbox.ids.len() as u64 + 1)?;
        }
        let (run, node, handle, seq) = (send.run, send.node, send.handle, inbox.row.last.next());
        let message = Box::new(NewMessage { id: send.id, value: send.value, cursor: send.cursor });
        self.events.push_back(if spec.trigger {
            Event::TriggerInputReceived { run, node, handle, seq, message }
        } else {
            Event::MessageAppended { run, node, handle, seq, message }
        });
        // Where a source's message stands is not remembered, so it is not said: a repeat gets the same answer (S32).
        Ok(if let MessageKey::Stream { .. } = send.id { Answer::Done } else { Answer::Appended { seq } })
    }

    /// The answer to a repeated message, if it is one (S28); refuses what can not be taken from this sender at all.
    fn first_answer_to(
        inbox: &Inbox,
        spec: &HandleSpec,
        send: &SendCommand,
    ) -> Result<Option<Answer>, Rejection> {
        if send.cursor.is_some() && !spec.trigger {
            return Err(Rejection::NotATrigger);
        }
        match send.id {
            MessageKey::Own(id) => match inbox.ids.get(&id) {
                Some((hash, seq)) if *hash == send.value.hash => Ok(Some(Answer::Appended { seq: *seq })),
                // One id has one content (S22).
                Some((_, seq)) => Err(Rejection::MessageConflict { seq: *seq }),
                None => Ok(None),
            },
            MessageKey::Stream { .. } if spec.trigger => Err(Rejection::IdMissing),
            MessageKey::Stream { source, n } => {
                if usize::from(source) >= spec.sources.len() {
                    return Err(Rejection::UnknownSource { handle: send.handle, source });
                }
                let row = &inbox.row.sources[usize::from(source)];
                if n > 0 && n <= row.stored {
                    return Ok(Some(Answer::Done));
                }
                if let Some(count) = row.ended {
                    return Err(Rejection::StreamEnded { count });
                }
                if n != row.stored + 1 {
                    return Err(Rejection::Gap { expected: row.stored + 1, presented: n });
                }
                Ok(None)
            }
        }
    }

    /// An outside source ends its stream with its own count (S27).
    pub(crate) fn end_stream(
        &mut self,
        (id, node, handle): (RunId, NodeIx, HandleIx),
        source: u16,
        count: u64,
    ) -> Result<Answer, Rejection> {
        let (run, inbox, spec) = self.handle(id, node, handle)?;
        if usize::from(source) >= spec.sources.len() {
            return Err(Rejection::UnknownSource { handle, source });
        }
        let row = &inbox.row.sources[usize::from(source)];
        match row.ended {
            Some(before) if before == count => return Ok(Answer::Done),
            Some(before) => return Err(Rejection::StreamEnded { count: before }),
            None => {}
        }
        if count != row.stored {
            return Err(Rejection::EndConflict { received: row.stored, presented: count });
        }
        if run.is_ended() || run.head.status == RunStatus::Ending {
            return Err(Rejection::RunEnded { status: run.head.status });
        }
        self.events.push_back(Event::StreamEnded { run: id, node, handle, source, count });
        Ok(Answer::Done)
    }
}
