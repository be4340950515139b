//! Inboxes, as they stand between two inputs.

use super::{Holds, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::command::MessageKey;
use crate::coordinator::state::{Inbox, Run};
use alloc::collections::BTreeSet;

fn inboxes(machine: &Coordinator) -> impl Iterator<Item = (&Run, &Inbox)> {
    machine.state.runs.iter().flat_map(|(_, run)| run.inboxes.iter().map(move |inbox| (run, inbox)))
}

/// No two messages of an inbox have one id, and every id that is here is remembered with its content (S22).
pub fn s22_message_ids_are_unique(machine: &Coordinator) -> Holds {
    for (run, inbox) in inboxes(machine) {
        let mut seen = BTreeSet::new();
        for message in &inbox.messages {
            hold!("S22", seen.insert(message.id), "{:?} is twice in an inbox of {}", message.id, run.head.id);
            if let MessageKey::Own(id) = message.id {
                let known = inbox.ids.get(&id) == Some(&(message.value.hash, message.at.seq));
                hold!("S22", known, "id {id} of an inbox of run {} is not remembered", run.head.id);
            }
        }
    }
    Ok(())
}

/// What is not settled is here, place by place (S23).
pub fn s23_seqs_are_gapless(machine: &Coordinator) -> Holds {
    for (run, inbox) in inboxes(machine) {
        let seqs = inbox.messages.iter().map(|message| message.at.seq.get());
        let should = inbox.row.settled.get() + 1..=inbox.row.last.get();
        hold!("S23", seqs.eq(should), "an inbox of run {} has a gap", run.head.id);
    }
    Ok(())
}

/// Settled, claimed and last come in this order, and only a held node has claimed anything (S26).
pub fn s26_marks_are_in_order(machine: &Coordinator) -> Holds {
    for (run, inbox) in inboxes(machine) {
        let row = &inbox.row;
        let is_ordered = row.settled <= row.last && row.claimed_through <= row.last;
        hold!("S26", is_ordered, "an inbox of run {} is settled beyond its end", run.head.id);
        if row.has_claimed() {
            let held_as = run.work(run.held_as(row.node));
            let is_holders = held_as.phase.is_held() && held_as.epoch == row.claim_epoch;
            hold!(
                "S26",
                is_holders,
                "messages of node {} of run {} are claimed by no holder",
                row.node,
                run.head.id
            );
        }
    }
    Ok(())
}

/// A closed handle has ended and is settled, and one that has and is is closed (S27).
pub fn s27_closed_is_ended_and_settled(machine: &Coordinator) -> Holds {
    for (run, inbox) in inboxes(machine) {
        let row = &inbox.row;
        let ended = |source: &crate::coordinator::row::SourceRow| source.ended == Some(source.stored);
        let is_over = !row.sources.is_empty() && row.sources.iter().all(ended) && row.settled == row.last;
        let facts = (run.head.id, row.node, row.handle, row.closed, is_over);
        hold!("S27", row.closed == is_over, "run, node, handle, closed, over: {facts:?}");
    }
    Ok(())
}

/// What is settled of an outside stream was stored before (S29).
pub fn s29_cursors_do_not_pass_inputs(machine: &Coordinator) -> Holds {
    for (run, inbox) in inboxes(machine) {
        let (stored, settled) = (inbox.row.cursor_stored, inbox.row.cursor_settled);
        hold!("S29", settled <= stored, "run {}: settled {settled:?}, stored {stored:?}", run.head.id);
        let waiting = inbox.messages.iter().filter_map(|message| message.cursor).min();
        let is_behind = waiting.is_none_or(|waiting| settled.is_none_or(|settled| settled < waiting));
        hold!("S29", is_behind, "run {}: settled {settled:?}, and {waiting:?} waits", run.head.id);
    }
    Ok(())
}
