//! What a machine says, in short lines: `-` what happened, `>` what must be done, `=` the answer.

use super::names::Names;
use super::words::time_text;
use super::world::World;
use tenure_core::coordinator::command::{Failure, Suspension};
use tenure_core::coordinator::effect::{Answer, Delivery, Effect, Grant, Outgoing, Output, Reported};
use tenure_core::coordinator::event::{EndCause, Event, LateResult, NewMessage};
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::coordinator::row::{HowEnded, Row, RunRow, Work};
use tenure_core::id::RunId;
use tenure_core::time::Time;

/// Prints all of it.
pub(super) fn output(world: &mut World, out: &Output) {
    let happened = out.audit.iter().filter_map(|stamped| event(&world.names, &stamped.event));
    let mut lines: Vec<_> = happened.map(|text| format!("- {text}")).collect();
    for one in &out.effects {
        lines.push(effect(&world.names, one));
    }
    lines.into_iter().for_each(|line| world.say(line));
}

/// What happened. Retention and paging go on all the time and are left out.
fn event(names: &Names, event: &Event) -> Option<String> {
    let line = match event {
        Event::Swept { .. } | Event::PagedIn { .. } => return None,
        _ => of_run(names, event)
            .or_else(|| of_work(names, event))
            .or_else(|| of_inbox(names, event))
            .or_else(|| of_worker(names, event)),
    };
    Some(line.unwrap_or_else(|| format!("{event:?}")))
}

/// The name of an enum's variant, as prose.
pub(super) fn prose(debug: impl std::fmt::Debug) -> String {
    let mut text = String::new();
    for letter in format!("{debug:?}").chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

fn at(time: Time) -> String {
    if time.is_never() { "never".into() } else { time_text(time.as_ms()) }
}

fn of_run(names: &Names, event: &Event) -> Option<String> {
    let run = |run: &RunId| names.of_run(*run);
    Some(match event {
        Event::DefinitionAdded(added) => {
            format!("DefinitionAdded {} v{}", added.definition.name, added.version)
        }
        Event::AliasSet { definition, alias, .. } => format!("AliasSet {definition} {alias}"),
        Event::RunCreated(created) => format!("RunCreated {}", run(&created.run)),
        Event::RunSuspended { run: id } => format!("RunSuspended {}", run(id)),
        Event::RunWoken { run: id } => format!("RunWoken {}", run(id)),
        Event::RunPaused { run: id } => format!("RunPaused {}", run(id)),
        Event::RunContinued { run: id } => format!("RunContinued {}", run(id)),
        Event::RunEnding { run: id, outcome, cause } => {
            let cause = match cause {
                EndCause::NodeFailed(node) => format!("{} failed", names.of_work(*id, *node)),
                other => prose(other),
            };
            format!("RunEnding {} {}: {cause}", run(id), prose(outcome))
        }
        Event::RunCompleted { run: id } => format!("RunCompleted {}", run(id)),
        Event::RunFailed { run: id } => format!("RunFailed {}", run(id)),
        Event::RunCancelled { run: id } => format!("RunCancelled {}", run(id)),
        Event::RunRetried { run: id, series, .. } => format!("RunRetried {} series {series}", run(id)),
        Event::RunParked { run: id } => format!("RunParked {}", run(id)),
        Event::RunDoomed { run: id, node } => {
            format!("RunDoomed {} by {}", run(id), names.of_work(*id, *node))
        }
        Event::OutboxEnqueued { id, outgoing: what, .. } => {
            format!("OutboxEnqueued {id}: {}", outgoing(names, what))
        }
        Event::OutboxSent { id } => format!("OutboxSent {id}"),
        Event::OutboxRefused { id } => format!("OutboxRefused {id}"),
        _ => return None,
    })
}

fn of_work(names: &Names, event: &Event) -> Option<String> {
    Some(match event {
        Event::NodeScheduled { run, node } => format!("NodeScheduled {}", names.of_work(*run, *node)),
        Event::NodeAssigned { run, node, epoch, worker, by } => format!(
            "NodeAssigned {} e{epoch} to {} by {}",
            names.of_work(*run, *node),
            names.of_worker(worker.worker),
            prose(by)
        ),
        Event::NodeClaimed { run, node, epoch, worker, by, .. } => format!(
            "NodeClaimed {} e{epoch} by {} ({})",
            names.of_work(*run, *node),
            names.of_worker(worker.worker),
            prose(by)
        ),
        Event::NodeStarted { run, node, attempt } => {
            format!("NodeStarted {} attempt {attempt}", names.of_work(*run, *node))
        }
        Event::NodeProgressed { run, node, step, total } => {
            format!("NodeProgressed {} {step}/{total}", names.of_work(*run, *node))
        }
        Event::NodeCheckpointed { run, node, state } => {
            format!("NodeCheckpointed {} {}", names.of_work(*run, *node), names.of_value(state))
        }
        Event::NodeCompleted { run, node, output } => {
            format!("NodeCompleted {} {}", names.of_work(*run, *node), names.of_value(output))
        }
        Event::NodeFailed { run, node, failure: why, retry_at } => {
            let then = retry_at.map_or("for good".into(), |time| format!("again at {}", at(time)));
            format!("NodeFailed {} {}, {then}", names.of_work(*run, *node), failure(names, why))
        }
        Event::NodeUntaken { run, node, again_at } => {
            format!("NodeUntaken {}, again at {}", names.of_work(*run, *node), at(*again_at))
        }
        Event::NodeReturned { run, node, how } => {
            format!("NodeReturned {} {}", names.of_work(*run, *node), prose(how))
        }
        Event::NodeSuspended { run, node, suspension: what, wake_at } => {
            format!("NodeSuspended {} {}", names.of_work(*run, *node), suspension(names, what, *wake_at))
        }
        Event::NodePostponed { run, node, wake_at } => {
            format!("NodePostponed {} to {}", names.of_work(*run, *node), at(*wake_at))
        }
        Event::NodeResumed { run, node, cause } => {
            format!("NodeResumed {} by {}", names.of_work(*run, *node), prose(cause))
        }
        Event::NodeCancelled { run, node } => format!("NodeCancelled {}", names.of_work(*run, *node)),
        Event::NodeSkipped { run, node } => format!("NodeSkipped {}", names.of_work(*run, *node)),
        Event::StopAsked { run, node, reason } => {
            format!("StopAsked {} {}", names.of_work(*run, *node), prose(reason))
        }
        Event::ReportTaken { run, node, epoch, .. } => {
            format!("ReportTaken {} e{epoch}", names.of_work(*run, *node))
        }
        Event::LateResult(result) => format!("LateResult {}", late(names, result)),
        _ => return None,
    })
}

fn of_inbox(names: &Names, event: &Event) -> Option<String> {
    let new = |message: &NewMessage| {
        let cursor = message.cursor.map_or(String::new(), |cursor| format!(" cursor {cursor}"));
        format!("{} {}{cursor}", names.of_message(message.id), names.of_value(&message.value))
    };
    Some(match event {
        Event::MessageAppended { run, node, handle, seq, message } => {
            format!("MessageAppended {} {seq}: {}", names.of_inbox(*run, *node, *handle), new(message))
        }
        Event::TriggerInputReceived { run, node, handle, seq, message } => {
            format!("TriggerInputReceived {} {seq}: {}", names.of_inbox(*run, *node, *handle), new(message))
        }
        Event::MessagesClaimed { run, node, handle, through, epoch } => {
            format!("MessagesClaimed {} to {through} e{epoch}", names.of_inbox(*run, *node, *handle))
        }
        Event::MessagesReturned { run, node, handle, blame } => {
            let blame = if *blame { " with blame" } else { "" };
            format!("MessagesReturned {}{blame}", names.of_inbox(*run, *node, *handle))
        }
        Event::MessagesConsumed { run, node, handle, through, .. } => {
            format!("MessagesConsumed {} to {through}", names.of_inbox(*run, *node, *handle))
        }
        Event::MessageBuried { run, node, handle, seq } => {
            format!("MessageBuried {} {seq}", names.of_inbox(*run, *node, *handle))
        }
        Event::StreamEnded { run, node, handle, source, count } => {
            format!("StreamEnded {} source {source} after {count}", names.of_inbox(*run, *node, *handle))
        }
        Event::HandleClosed { run, node, handle } => {
            format!("HandleClosed {}", names.of_inbox(*run, *node, *handle))
        }
        Event::TriggerRegistered { run, node, handle } => {
            format!("TriggerRegistered {}", names.of_inbox(*run, *node, *handle))
        }
        Event::TriggerCursorAdvanced { run, node, handle, cursor } => {
            format!("TriggerCursorAdvanced {} to {cursor}", names.of_inbox(*run, *node, *handle))
        }
        _ => return None,
    })
}

fn of_worker(names: &Names, event: &Event) -> Option<String> {
    Some(match event {
        Event::WorkerRegistered(registered) => {
            let name = names.of_worker(registered.worker.worker);
            format!("WorkerRegistered {name} i{}", registered.incarnation)
        }
        Event::WorkerDrained { worker, on } => {
            let what = if *on { "drains" } else { "is open again" };
            format!("WorkerDrained {} {what}", names.of_worker(worker.worker))
        }
        Event::WorkerLeft { worker } => format!("WorkerLeft {}", names.of_worker(worker.worker)),
        Event::SessionLapsed { worker, lease_ms } => {
            format!("SessionLapsed {} leases of {}", names.of_worker(worker.worker), time_text(*lease_ms))
        }
        _ => return None,
    })
}

fn effect(names: &Names, effect: &Effect) -> String {
    let who = |worker: &tenure_core::coordinator::WorkerKey| names.of_worker(worker.worker);
    match effect {
        Effect::Reply { result: Ok(with), .. } => format!("= {}", answer(names, with)),
        Effect::Reply { result: Err(why), .. } => format!("= {}", refusal(names, why)),
        Effect::Offer { worker, grant: what } => format!("> offer {} {}", who(worker), grant(names, what)),
        Effect::Hand { worker, grant: what } => format!("> hand {} {}", who(worker), grant(names, what)),
        Effect::Stop { worker, held, reason } => {
            format!("> stop {} {}: {}", who(worker), names.of_held(*held), prose(reason))
        }
        Effect::Wake { worker } => format!("> wake {}", who(worker)),
        Effect::NobodyLeft { run, node, offers } => {
            format!("> nobody left for {} after {offers} offers", names.of_work(*run, *node))
        }
        Effect::Room { run, node, handle } => format!("> room in {}", names.of_inbox(*run, *node, *handle)),
        Effect::Deliver { id, outgoing: what } => format!("> deliver {id}: {}", outgoing(names, what)),
        Effect::RegisterTrigger { run, node, handle, after } => {
            let after = after.map_or("the beginning".into(), |cursor| format!("cursor {cursor}"));
            format!("> register trigger {} after {after}", names.of_inbox(*run, *node, *handle))
        }
        Effect::RunEnded { run, outcome } => format!("> run {} {}", names.of_run(*run), prose(outcome)),
    }
}

fn refusal(names: &Names, why: &Rejection) -> String {
    format!("refused: {}", names.in_sentence(&why.to_string()))
}

fn answer(names: &Names, answer: &Answer) -> String {
    let listed = |grants: &[Grant]| {
        let grants: Vec<_> = grants.iter().map(|one| grant(names, one)).collect();
        if grants.is_empty() { "nothing".into() } else { grants.join("; ") }
    };
    match answer {
        Answer::Done => "done".into(),
        Answer::Defined { version, .. } => format!("defined v{version}"),
        Answer::Submitted { run, held } => {
            let held = held.map_or(String::new(), |held| format!(", held {}", names.of_held(held)));
            format!("submitted {}{held}", names.of_run(*run))
        }
        Answer::Registered { incarnation, session } => {
            format!("registered i{incarnation}, session {session}")
        }
        Answer::Beat { session, reconcile, now } => {
            let reconcile = if *reconcile { ", reconcile" } else { "" };
            format!("beat at {}, session {session}{reconcile}", at(*now))
        }
        Answer::Reconciled { session, lost, missed } => {
            let lost: Vec<_> = lost.iter().map(|held| names.of_held(*held)).collect();
            let lost = if lost.is_empty() { "nothing".into() } else { lost.join("; ") };
            format!("session {session}, lost {lost}, missed {}", listed(missed))
        }
        Answer::Polled { grants, .. } => format!("got {}", listed(grants)),
        Answer::Reported(results) => {
            let one = |result: &Result<Reported, Rejection>| match result {
                Ok(Reported::Accepted) => "accepted".into(),
                Ok(Reported::Messages { messages, last }) => deliveries(names, messages, *last),
                Err(why) => refusal(names, why),
            };
            results.iter().map(one).collect::<Vec<_>>().join("\n= ")
        }
        Answer::Appended { seq } => format!("appended {seq}"),
    }
}

fn deliveries(names: &Names, messages: &[Delivery], last: bool) -> String {
    let one = |message: &Delivery| {
        let again = match message.deliveries {
            0 => String::new(),
            times => format!(" (given back {times} times)"),
        };
        format!("{} {}{again}", message.seq, names.of_value(&message.value))
    };
    let texts: Vec<_> = messages.iter().map(one).collect();
    let texts =
        if texts.is_empty() { "no messages".into() } else { format!("messages {}", texts.join("; ")) };
    format!("{texts}{}", if last { ", and no more will come" } else { "" })
}

fn grant(names: &Names, grant: &Grant) -> String {
    let mut text = format!("{} attempt {}", names.of_held(grant.held()), grant.attempt);
    if grant.series.get() > 1 {
        text += &format!(" series {}", grant.series);
    }
    if !grant.input.is_empty() {
        text += &format!(" input={}", names.of_value(&grant.input));
    }
    for (node, value) in &grant.inputs {
        let name = names.of_work(grant.run, *node);
        let name = name.rsplit_once('.').map_or(&*name, |(_, node)| node);
        text += &format!(" {name}={}", names.of_value(value));
    }
    if let Some(state) = &grant.state {
        text += &format!(" state={}", names.of_value(state));
    }
    if let Some(cause) = grant.woken {
        text += &format!(" woken_by={}", prose(cause));
    }
    if let Some(why) = &grant.last_failure {
        text += &format!(" after {}", failure(names, why));
    }
    text
}

fn failure(names: &Names, failure: &Failure) -> String {
    let detail = names.of_value(&failure.detail);
    if detail == "-" { prose(failure.kind) } else { format!("{} ({detail})", prose(failure.kind)) }
}

fn suspension(names: &Names, what: &Suspension, wake_at: Time) -> String {
    let message = if what.on_message { ", on a message" } else { "" };
    let state = names.of_value(&what.state);
    format!("({}) state {state}, until {}{message}", what.reason, at(wake_at))
}

fn late(names: &Names, late: &LateResult) -> String {
    let result = match &late.result {
        Ok(value) => format!("completed {}", names.of_value(value)),
        Err(why) => failure(names, why),
    };
    let (work, who) = (names.of_work(late.run, late.node), names.of_worker(late.worker));
    format!("{work} e{} by {who}: {result}", late.epoch)
}

fn outgoing(names: &Names, what: &Outgoing) -> String {
    match what {
        Outgoing::Message { from, run, node, handle, id, value } => format!(
            "{} to {} {} {}",
            names.of_run(*from),
            names.of_inbox(*run, *node, *handle),
            names.of_message(tenure_core::coordinator::command::MessageKey::Own(*id)),
            names.of_value(value)
        ),
        Outgoing::Ended { run, outcome } => format!("{} {}", names.of_run(*run), prose(outcome)),
    }
}

/// Says what the rows say of a run: its status and its work.
pub(super) fn show(world: &mut World, id: RunId) {
    let names = &world.names;
    let mut lines = Vec::new();
    let of_work = |node, work: &Work| {
        let counts = match (work.failures, work.losses) {
            (0, 0) => String::new(),
            (failures, losses) => format!(", {failures} failures, {losses} losses"),
        };
        let holder = work.holder().map_or(String::new(), |worker| format!(" by {}", names.of_worker(worker)));
        format!("{} {}{holder}, attempt {}{counts}", names.of_work(id, node), work.phase, work.attempt)
    };
    for row in world.store.rows().filter(|row| row.run() == Some(id)) {
        match row {
            Row::Run(RunRow { head, whole, node }) => {
                lines.push(format!("{} {}, version {}", names.of_run(id), head.status, head.version));
                let whole = whole.iter().map(|work| of_work(tenure_core::id::NodeIx::WHOLE_RUN, work));
                lines.extend(
                    whole.chain(node.iter().map(|work| of_work(tenure_core::id::NodeIx::new(0), work))),
                );
            }
            Row::Node(row) => lines.push(of_work(row.node, &row.work)),
            Row::Inbox(row) => lines.push(format!(
                "{} settled {}, last {}{}",
                names.of_inbox(id, row.node, row.handle),
                row.settled,
                row.last,
                if row.closed { ", closed" } else { "" }
            )),
            Row::Message(row) if row.dead => {
                let inbox = names.of_inbox(id, row.at.node, row.at.handle);
                lines.push(format!("{inbox} {} is dead: {}", row.at.seq, names.of_value(&row.value)));
            }
            Row::History(row) => {
                let how = match &row.how {
                    HowEnded::Returned(how) => prose(how),
                    HowEnded::Failed(why) => failure(names, why),
                    HowEnded::Suspended | HowEnded::Stopped => prose(row.how),
                };
                let who = names.of_worker(row.assignment.worker);
                let work = names.of_work(id, row.node);
                lines.push(format!("history {work} e{} {who}: {how} at {}", row.epoch, at(row.ended_at)));
            }
            Row::Late(row) => lines.push(format!("late {}", late(names, &row.late))),
            _ => {}
        }
    }
    if lines.is_empty() {
        lines.push("no rows".into());
    }
    lines.into_iter().for_each(|line| world.say(line));
}
