//! Messages, streams and suspensions, event by event.

use super::known::inbox_of;
use super::watch::{Moment, Turn, answered};
use super::{Holds, hold};
use crate::coordinator::command::{Command, MessageKey, SendCommand, Then};
use crate::coordinator::effect::Answer;
use crate::coordinator::event::Event;
use crate::coordinator::rejection::Rejection;
use crate::coordinator::row::InboxRow;
use crate::definition::NodeKind;

fn inbox<'a>(moment: &Moment<'a>) -> Option<&'a InboxRow> {
    let (run, node, handle) = inbox_of(&moment.stamped.event)?;
    moment.known.runs.get(&run)?.inbox(node, handle).map(|inbox| &inbox.row)
}

/// A message comes in under an id that its inbox has not seen (S22, S28).
pub fn s22_an_id_has_one_content(moment: &Moment<'_>) -> Holds {
    if let Event::MessageAppended { run, node, handle, message, seq }
    | Event::TriggerInputReceived { run, node, handle, message, seq } = &moment.stamped.event
        && let Some(facts) = moment.known.runs.get(run)
    {
        let inbox = facts.inbox(*node, *handle);
        match message.id {
            MessageKey::Own(id) => {
                let seen = inbox.and_then(|inbox| inbox.ids.get(&id));
                hold!("S22", seen.is_none(), "message {id} came twice, first as {seen:?}, now as {seq}");
            }
            MessageKey::Stream { source, n } => {
                let stored = inbox.map(|inbox| inbox.row.sources[usize::from(source)].stored);
                hold!(
                    "S22",
                    stored.is_some_and(|stored| n == stored + 1),
                    "message {n} of source {source} after {stored:?}"
                );
            }
        }
    }
    Ok(())
}

/// Messages are claimed from pending and consumed or given back from claimed (S24).
pub fn s24_messages_follow_their_table(moment: &Moment<'_>) -> Holds {
    let Some(row) = inbox(moment) else { return Ok(()) };
    let event = &moment.stamped.event;
    match event {
        Event::MessagesClaimed { through, .. } => {
            let is_pending = row.claimed_through <= row.settled;
            hold!("S24", is_pending && *through <= row.last, "{event:?} of {row:?}");
        }
        Event::MessagesReturned { .. } => hold!("S24", row.has_claimed(), "{event:?} of {row:?}"),
        Event::MessagesConsumed { through, .. } => {
            hold!("S24", *through <= row.claimed_through, "{event:?} of {row:?}");
        }
        Event::MessageBuried { .. } => {
            hold!("S24", row.claimed_through <= row.settled, "{event:?} of {row:?}")
        }
        _ => {}
    }
    Ok(())
}

/// What a report consumes is consumed in the step of what it produced, or not at all (S25).
pub fn s25_consuming_is_atomic(moment: &Moment<'_>) -> Holds {
    let Event::MessagesConsumed { run: id, node, handle, through, .. } = &moment.stamped.event else {
        return Ok(());
    };
    let is_whole = answered(moment.input, moment.out).any(|(asked, result)| {
        let (Command::Report { reports, .. }, Ok(Answer::Reported(results))) = (&asked.command, result) else {
            return false;
        };
        reports.iter().zip(results).any(|(report, result)| {
            let is_its = (report.run, report.node) == (*id, *node) && report.consume.contains(&(*handle, *through));
            let has = |test: &dyn Fn(&Event) -> bool| moment.step.iter().any(|stamped| test(&stamped.event));
            let is_done = match &report.then {
                Then::Complete { .. } => has(&|event| {
                    matches!(event, Event::NodeCompleted { run, node: at, .. } if (run, at) == (id, node))
                }),
                Then::Checkpoint { .. } => has(&|event| {
                    matches!(event, Event::NodeCheckpointed { run, node: at, .. } if (run, at) == (id, node))
                }),
                Then::Progress { .. } => has(&|event| {
                    matches!(event, Event::NodeProgressed { run, node: at, .. } if (run, at) == (id, node))
                }),
                Then::Fail { .. } | Then::Suspend(_) | Then::Release => has(&|event| {
                    matches!(event, Event::ReportTaken { run, node: at, .. } if (run, at) == (id, node))
                }),
                _ => true,
            };
            is_its && result.is_ok() && is_done
        })
    });
    hold!("S25", is_whole, "{:?} is not one step with its report", moment.stamped.event);
    Ok(())
}

/// What is settled grows, from the front, by what was not settled (S26).
pub fn s26_settled_is_a_prefix(moment: &Moment<'_>) -> Holds {
    let Some(row) = inbox(moment) else { return Ok(()) };
    let event = &moment.stamped.event;
    match event {
        Event::MessagesConsumed { through, .. } => {
            hold!("S26", *through > row.settled && *through <= row.last, "{event:?} of {row:?}");
        }
        Event::MessageBuried { seq, .. } => {
            hold!("S26", seq.get() == row.settled.get() + 1 && *seq <= row.last, "{event:?} of {row:?}");
        }
        _ => {}
    }
    Ok(())
}

/// A handle closes at its end, and takes nothing afterwards (S27).
pub fn s27_a_handle_closes_at_its_end(moment: &Moment<'_>) -> Holds {
    let Some(row) = inbox(moment) else { return Ok(()) };
    let event = &moment.stamped.event;
    let has_ended = !row.sources.is_empty() && row.sources.iter().all(|source| source.ended.is_some());
    match event {
        Event::HandleClosed { .. } => {
            hold!("S27", has_ended && row.settled == row.last && !row.closed, "{event:?} of {row:?}");
        }
        Event::MessageAppended { .. } | Event::TriggerInputReceived { .. } => {
            hold!("S27", !has_ended && !row.closed, "{event:?} of {row:?}");
        }
        Event::StreamEnded { source, count, .. } => {
            let source = &row.sources[usize::from(*source)];
            hold!("S27", source.ended.is_none() && source.stored == *count, "{event:?} of {row:?}");
        }
        _ => {}
    }
    Ok(())
}

/// True if this is how a message came in.
fn is_taken_in(event: &Event, send: &SendCommand) -> bool {
    let (Event::MessageAppended { run, node, handle, message, .. }
    | Event::TriggerInputReceived { run, node, handle, message, .. }) = event
    else {
        return false;
    };
    (*run, *node, *handle, message.id) == (send.run, send.node, send.handle, send.id)
}

/// A repeated input is answered with the place of the first, and other content under its id with a conflict (S28).
pub fn s28_a_repeated_input_gets_the_first_answer(turn: &Turn<'_>) -> Holds {
    for (asked, result) in answered(turn.input, turn.out) {
        let Command::Send(send) = &asked.command else { continue };
        let MessageKey::Own(id) = send.id else { continue };
        let is_gone = turn.machine.state.run(send.run).is_none();
        let known = turn.known.runs.get(&send.run).filter(|run| !(is_gone && run.head.may_leave()));
        let Some(run) = known.filter(|run| run.head.tenant == asked.tenant) else { continue };
        let inbox = run.inbox(send.node, send.handle);
        let Some((hash, seq)) = inbox.and_then(|inbox| inbox.ids.get(&id)) else { continue };
        if turn.out.audit.iter().any(|stamped| is_taken_in(&stamped.event, send)) {
            continue;
        }
        let is_first = match result {
            Ok(Answer::Appended { seq: at }) => *hash == send.value.hash && at == seq,
            Err(Rejection::MessageConflict { seq: at }) => *hash != send.value.hash && at == seq,
            // It could not have been accepted, whatever its id.
            Err(Rejection::NotATrigger | Rejection::LimitReached { .. }) => true,
            _ => false,
        };
        hold!("S28", is_first, "message {id} was {seq} with {hash}, and a repeat got {result:?}");
    }
    Ok(())
}

/// Cursors of an inbox only grow (S29).
pub fn s29_cursors_never_fall(turn: &Turn<'_>) -> Holds {
    for (id, facts) in turn.known.touched() {
        let Some(run) = turn.machine.state.run(id) else { continue };
        for known in &facts.inboxes {
            let Some(inbox) = run.inbox(known.row.node, known.row.handle) else { continue };
            let (stored, settled) = (inbox.row.cursor_stored, inbox.row.cursor_settled);
            let grew = stored >= known.cursors.0 && settled >= known.cursors.1;
            hold!("S29", grew, "cursors of run {id} fell to {stored:?} and {settled:?}");
        }
    }
    Ok(())
}

/// A node suspends on messages only if none waits and one may still come (S30).
pub fn s30_no_wake_up_is_lost(moment: &Moment<'_>) -> Holds {
    let Event::NodeSuspended { run: id, node, suspension, .. } = &moment.stamped.event else { return Ok(()) };
    let Some(run) = moment.known.runs.get(id) else { return Ok(()) };
    let spec = moment.machine.state.definition(run.head.definition).node(*node);
    if !suspension.on_message || spec.is_none_or(|spec| spec.kind != NodeKind::Work) {
        return Ok(());
    }
    let mut inboxes = run.inboxes.iter().map(|inbox| &inbox.row).filter(|row| row.node == *node).peekable();
    let has_any = inboxes.peek().is_some();
    let mut may_come = !has_any;
    for row in inboxes {
        hold!("S30", row.last == row.settled, "node {node} of run {id} suspends, and messages wait: {row:?}");
        may_come |= row.sources.is_empty() || row.sources.iter().any(|source| source.ended.is_none());
    }
    hold!("S30", may_come, "node {node} of run {id} waits for messages, and all its handles have ended");
    Ok(())
}

/// What was acknowledged as taken in is there, or is settled (S31).
pub fn s31_an_acknowledged_input_is_there(turn: &Turn<'_>) -> Holds {
    for (asked, result) in answered(turn.input, turn.out) {
        let (Command::Send(send), Ok(Answer::Appended { seq })) = (&asked.command, result) else { continue };
        let inbox = turn.machine.state.run(send.run).and_then(|run| run.inbox(send.node, send.handle));
        let is_there = inbox.is_some_and(|inbox| {
            let waits = inbox.message(*seq).is_some_and(|message| message.id == send.id);
            let is_repeat = matches!(send.id, MessageKey::Stream { .. }) && *seq <= inbox.row.last;
            waits || *seq <= inbox.row.settled || is_repeat
        });
        hold!("S31", is_there, "{:?} was acknowledged as {seq}, and is not there", send.id);
    }
    for (id, facts) in turn.known.touched() {
        let Some(run) = turn.machine.state.run(id) else { continue };
        for row in facts.inboxes.iter().map(|inbox| &inbox.row) {
            let is = run.inbox(row.node, row.handle).map(|inbox| (inbox.row.settled, inbox.row.last));
            let should = Some((row.settled, row.last));
            hold!(
                "S31",
                is == should,
                "an inbox of run {id} stands at {is:?}, and its events lead to {should:?}"
            );
        }
    }
    Ok(())
}
