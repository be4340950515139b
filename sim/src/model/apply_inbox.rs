//! What an event does to inboxes (S22 to S29).

use super::state::Message;
use super::{Inbox, Model, Step, Wanted, wrong};
use tenure_core::coordinator::command::MessageKey;
use tenure_core::coordinator::event::{Event, NewMessage};
use tenure_core::id::*;
use tenure_core::time::Time;

impl Model {
    pub(super) fn apply_inbox(&mut self, at: Time, event: &Event) -> Step {
        match event {
            Event::MessageAppended { run, node, handle, seq, message }
            | Event::TriggerInputReceived { run, node, handle, seq, message } => {
                append(self.inbox_of(*run, *node, *handle)?, *seq, message)
            }
            Event::MessagesClaimed { run, node, handle, through, epoch } => {
                let inbox = self.inbox_of(*run, *node, *handle)?;
                if through.get() > inbox.last || through.get() <= inbox.claimed.max(inbox.settled) {
                    return Err(wrong("S24: only pending messages are claimed", inbox.last, through));
                }
                (inbox.claimed, inbox.claim_epoch, inbox.claimed_at) = (through.get(), *epoch, at);
                Ok(())
            }
            Event::MessagesReturned { run, node, handle, blame } => {
                let inbox = self.inbox_of(*run, *node, *handle)?;
                inbox.claimed = inbox.settled;
                inbox.deliveries += u32::from(*blame);
                Ok(())
            }
            Event::MessagesConsumed { run, node, handle, through, room } => {
                let capacity = self.capacity(*run, *node, *handle);
                let inbox = self.inbox_of(*run, *node, *handle)?;
                let was_full = inbox.last - inbox.settled >= u64::from(capacity);
                if *room != was_full {
                    return Err(wrong("a full inbox has room again", was_full, room));
                }
                if through.get() > inbox.claimed || through.get() <= inbox.settled {
                    return Err(wrong("S26: only claimed messages are consumed", inbox.claimed, through));
                }
                while inbox.settled < through.get() {
                    inbox.settle_first();
                }
                if *room {
                    self.wanted.push(Wanted::Room(*run, *node, *handle));
                }
                Ok(())
            }
            Event::MessageBuried { run, node, handle, seq } => {
                let inbox = self.inbox_of(*run, *node, *handle)?;
                if seq.get() != inbox.settled + 1 || inbox.claimed > inbox.settled {
                    return Err(wrong("S26: settled messages are a prefix", inbox.settled + 1, seq));
                }
                inbox.settle_first();
                inbox.claimed = inbox.claimed.max(inbox.settled);
                Ok(())
            }
            Event::StreamEnded { run, node, handle, source, count } => {
                self.inbox_of(*run, *node, *handle)?.end(*source, *count)
            }
            Event::HandleClosed { run, node, handle } => {
                self.inbox_of(*run, *node, *handle)?.closed = true;
                Ok(())
            }
            Event::TriggerRegistered { run, node, handle } => {
                let inbox = self.inbox_of(*run, *node, *handle)?;
                inbox.registered = true;
                let after = inbox.cursor_stored;
                self.wanted.push(Wanted::Register(*run, *node, *handle, after));
                Ok(())
            }
            Event::TriggerCursorAdvanced { run, node, handle, cursor } => {
                self.inbox_of(*run, *node, *handle)?.cursor_settled = Some(*cursor);
                Ok(())
            }
            _ => Err(wrong("an event of an inbox", "one", event)),
        }
    }

    fn inbox_of(&mut self, run: RunId, node: NodeIx, handle: HandleIx) -> Step<&mut Inbox> {
        let inbox = self.run_mut(run.number()).and_then(|run| run.inbox_mut(node, handle));
        inbox.ok_or_else(|| wrong("S22: an inbox is declared", "an inbox", (run, node, handle)))
    }

    pub(super) fn capacity(&self, run: RunId, node: NodeIx, handle: HandleIx) -> u32 {
        self.runs.get(&run.number()).map_or(0, |run| {
            run.def.spec.nodes[node.get() as usize].handles[usize::from(handle.get())].capacity
        })
    }
}

impl Inbox {
    fn end(&mut self, source: u16, count: u64) -> Step {
        let Some(state) = self.sources.get_mut(usize::from(source)) else {
            return Err(wrong("S27: a source is declared", "a source", source));
        };
        state.1 = Some(count);
        Ok(())
    }
}

fn append(inbox: &mut Inbox, seq: Seq, message: &NewMessage) -> Step {
    if seq.get() != inbox.last + 1 {
        return Err(wrong("S23: seqs are gapless", inbox.last + 1, seq));
    }
    if inbox.closed {
        return Err(wrong("S27: a closed handle takes nothing", "nothing", message));
    }
    inbox.last += 1;
    let NewMessage { id, value, cursor } = *message;
    match id {
        MessageKey::Own(own) => {
            if inbox.own.insert(own, (seq.get(), value)).is_some() {
                return Err(wrong("S22: message ids are unique", "a new id", own));
            }
        }
        MessageKey::Stream { source, n } => {
            let state = inbox.sources.get_mut(usize::from(source));
            let state = state.ok_or_else(|| wrong("S22: a source is declared", "a source", source))?;
            if n != state.0 + 1 || state.1.is_some() {
                return Err(wrong("S22: a stream has no gaps", *state, n));
            }
            state.0 = n;
        }
    }
    if let Some(cursor) = cursor {
        if inbox.cursor_stored.is_some_and(|stored| cursor <= stored) {
            return Err(wrong("S29: cursors only grow", inbox.cursor_stored, cursor));
        }
        inbox.cursor_stored = Some(cursor);
    }
    inbox.messages.push_back(Message { seq: seq.get(), id, value, cursor });
    Ok(())
}
