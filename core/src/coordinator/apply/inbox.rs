//! Inboxes: messages come, are claimed, given back, settled; streams end; handles close.

use super::Applier;
use crate::coordinator::command::MessageKey;
use crate::coordinator::event::NewMessage;
use crate::coordinator::row::{Change, MessageAt, MessageRow, Row};
use crate::coordinator::state::{Inbox, State, Timer};
use crate::id::{Epoch, HandleIx, NodeIx, RunId, Seq};
use crate::lifecycle::{Lifecycle, MessageState, MessageStep};
use crate::time::Time;

impl Applier<'_> {
    /// An inbox is about to change, and its row is to be written. The run's version does not rise with it (S3).
    fn change_inbox(&mut self, id: RunId, node: NodeIx, handle: HandleIx) -> &mut Inbox {
        let State { runs, touched, .. } = &mut *self.state;
        let slot = runs.slot(id.number()).expect("an event names a resident run");
        let inbox = runs.at_mut(slot).inbox_mut(node, handle);
        if !inbox.touched {
            inbox.touched = true;
            touched.inboxes.push((slot, node, handle));
        }
        inbox
    }

    pub(super) fn message_appended(
        &mut self,
        id: RunId,
        node: NodeIx,
        handle: HandleIx,
        seq: Seq,
        message: &NewMessage,
    ) {
        let inbox = self.change_inbox(id, node, handle);
        assert_eq!(seq, inbox.row.last.next(), "seqs are gapless (S23)");
        inbox.row.last = seq;
        if let MessageKey::Stream { source, n } = message.id {
            inbox.row.sources[usize::from(source)].stored = n;
        }
        inbox.row.cursor_stored = inbox.row.cursor_stored.max(message.cursor);
        let at = MessageAt { run: id, node, handle, seq };
        let row =
            MessageRow { at, id: message.id, value: message.value, cursor: message.cursor, dead: false };
        inbox.add(row);
        self.state.touched.changes.push(Change::Put(Row::Message(row)));
    }

    pub(super) fn messages_claimed(
        &mut self,
        id: RunId,
        node: NodeIx,
        handle: HandleIx,
        through: Seq,
        epoch: Epoch,
    ) {
        let now = self.state.now();
        let inbox = self.change_inbox(id, node, handle);
        MessageState::Pending.next(MessageStep::Claim);
        inbox.row.claimed_through = through;
        inbox.row.claim_epoch = epoch;
        inbox.claimed_at = now;
        self.arm_inbox(id, node, handle);
    }

    pub(super) fn messages_returned(&mut self, id: RunId, node: NodeIx, handle: HandleIx, blame: bool) {
        let inbox = self.change_inbox(id, node, handle);
        MessageState::Claimed.next(MessageStep::Return);
        inbox.row.claimed_through = inbox.row.settled;
        inbox.row.deliveries += u32::from(blame);
        self.arm_inbox(id, node, handle);
    }

    pub(super) fn messages_consumed(&mut self, id: RunId, node: NodeIx, handle: HandleIx, through: Seq) {
        let inbox = self.change_inbox(id, node, handle);
        let mut dropped = alloc::vec::Vec::new();
        while inbox.row.settled < through {
            let message = inbox.messages.pop_front().expect("only what is here is consumed");
            MessageState::Claimed.next(MessageStep::Consume);
            inbox.row.settled = message.at.seq;
            inbox.settled_cursor = inbox.settled_cursor.max(message.cursor);
            if let MessageKey::Stream { .. } = message.id {
                dropped.push(Change::DropMessage(message.at));
            }
        }
        inbox.row.deliveries = 0;
        assert!(inbox.row.claimed_through >= through, "only what is claimed is consumed (S24)");
        self.state.touched.changes.append(&mut dropped);
        self.arm_inbox(id, node, handle);
    }

    pub(super) fn message_buried(&mut self, id: RunId, node: NodeIx, handle: HandleIx, seq: Seq) {
        let inbox = self.change_inbox(id, node, handle);
        let message = inbox.messages.pop_front().expect("only what is here is put aside");
        assert_eq!(
            (message.at.seq, seq),
            (inbox.row.settled.next(), message.at.seq),
            "what is settled is a prefix (S26)"
        );
        MessageState::Pending.next(MessageStep::Bury);
        inbox.row.settled = seq;
        inbox.settled_cursor = inbox.settled_cursor.max(message.cursor);
        inbox.row.claimed_through = inbox.row.claimed_through.max(seq);
        inbox.row.deliveries = 0;
        self.state.touched.changes.push(Change::Put(Row::Message(MessageRow { dead: true, ..message })));
        self.arm_inbox(id, node, handle);
    }

    pub(super) fn stream_ended(
        &mut self,
        id: RunId,
        node: NodeIx,
        handle: HandleIx,
        source: u16,
        count: u64,
    ) {
        self.change_inbox(id, node, handle).row.sources[usize::from(source)].ended = Some(count);
    }

    pub(super) fn handle_closed(&mut self, id: RunId, node: NodeIx, handle: HandleIx) {
        self.change_inbox(id, node, handle).row.closed = true;
    }

    pub(super) fn trigger_registered(&mut self, id: RunId, node: NodeIx, handle: HandleIx) {
        self.change_inbox(id, node, handle).row.registered = true;
    }

    pub(super) fn cursor_advanced(&mut self, id: RunId, node: NodeIx, handle: HandleIx, cursor: u64) {
        let row = &mut self.change_inbox(id, node, handle).row;
        assert!(row.cursor_settled.is_none_or(|settled| settled < cursor), "cursors only grow (S29)");
        row.cursor_settled = Some(cursor);
    }

    /// Arms the time limit of what is claimed.
    pub(crate) fn arm_inbox(&mut self, id: RunId, node: NodeIx, handle: HandleIx) {
        let State { runs, definitions, timers, .. } = &mut *self.state;
        let run = runs.get_mut(id.number()).expect("an event names a resident run");
        let spec = &definitions[run.head.definition.get() as usize].row.definition.nodes[node.index()];
        let claim_ms = spec.handles[usize::from(handle.get())].claim_ms;
        let inbox = run.inbox_mut(node, handle);
        let at = if inbox.row.has_claimed() { inbox.claimed_at.after_ms(claim_ms) } else { Time::NEVER };
        timers.arm(Timer::Inbox(id.number(), node, handle), &mut inbox.armed, at);
    }
}
