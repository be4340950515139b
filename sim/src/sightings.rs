//! Which rare situation an event or an answer shows.

use crate::situation::Situation;
use tenure_core::coordinator::command::{Command, Envelope, FailureKind, Input, Then};
use tenure_core::coordinator::effect::{Answer, Output, Reported};
use tenure_core::coordinator::event::{Event, Return, StopReason, WakeCause};
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::id::Attempt;

fn command(fed: Option<&Input>) -> Option<&Command> {
    match fed? {
        Input::Command(Envelope { command, .. }) => Some(command),
        Input::Loaded(loaded) => loaded.load.again.as_deref().map(|envelope| &envelope.command),
        Input::Pulse | Input::Recover => None,
    }
}

/// What an event shows.
pub(crate) fn of_event(event: &Event, fed: Option<&Input>, said: &Output) -> Option<Situation> {
    let is_report = matches!(command(fed), Some(Command::Report { .. }));
    match event {
        Event::SessionLapsed { .. } if is_report => Some(Situation::LapseRacesReport),
        Event::SessionLapsed { .. } if matches!(fed, Some(Input::Pulse)) => {
            Some(Situation::LapseAtTheInstant)
        }
        Event::SessionLapsed { .. } => Some(Situation::RenewalTooLate),
        Event::NodeReturned { how: Return::Expired, .. } if matches!(fed, Some(Input::Pulse)) => {
            Some(Situation::PacedRescue)
        }
        Event::NodeReturned { how: Return::Delegated, .. } => Some(Situation::Delegated),
        Event::NodeReturned { how: Return::Superseded, .. } => Some(Situation::NewIncarnation),
        Event::NodeUntaken { .. } => Some(Situation::NobodyLeft),
        Event::NodeFailed { failure, .. } if failure.kind == FailureKind::NoProgress => {
            Some(Situation::ProgressDeadline)
        }
        Event::NodeFailed { retry_at: None, .. } => Some(Situation::DeadLetter),
        Event::NodeResumed { cause: WakeCause::Message, .. } => Some(Situation::WokenByMessage),
        Event::NodeResumed { cause: WakeCause::Timer, .. } => Some(Situation::WokenByTimer),
        Event::MessagesReturned { .. } => Some(Situation::ClaimReturned),
        Event::MessageBuried { .. } => Some(Situation::PoisonBuried),
        Event::StreamEnded { .. } => {
            let closes = said.audit.iter().any(|one| matches!(one.event, Event::HandleClosed { .. }));
            (!closes).then_some(Situation::EndBeforeLast)
        }
        Event::StopAsked { reason: StopReason::Preempted, .. } => Some(Situation::Preempted),
        Event::StopAsked { reason: StopReason::RunEnding, .. } => Some(Situation::CancelWhileHeld),
        Event::RunRetried { .. } => Some(Situation::RetriedByHand),
        Event::Swept { .. } => Some(Situation::Forgotten),
        Event::NodeScheduled { .. } if is_report => Some(Situation::JoinAtOnce),
        Event::NodeStarted { attempt, .. } if *attempt > Attempt::new(1) => Some(Situation::SecondAttempt),
        _ => None,
    }
}

/// What an answer shows.
pub(crate) fn of_answer(
    result: &Result<Answer, Rejection>,
    fed: Option<&Input>,
    said: &Output,
) -> Vec<Situation> {
    let quiet = said.audit.is_empty();
    match result {
        Err(rejection) => of_rejection(rejection, fed).into_iter().collect(),
        Ok(Answer::Submitted { .. }) if quiet => vec![Situation::KeyRepeated],
        Ok(Answer::Polled { grants, .. }) if quiet && !grants.is_empty() => vec![Situation::PollRepeated],
        Ok(Answer::Beat { .. }) => vec![Situation::HeartbeatRepeated],
        Ok(Answer::Reported(results)) => {
            let Some(Command::Report { reports, .. }) = command(fed) else { return Vec::new() };
            let both = reports.iter().zip(results);
            both.filter_map(|(report, result)| match result {
                Ok(Reported::Accepted)
                    if quiet && matches!(report.then, Then::Complete { .. } | Then::Fail { .. }) =>
                {
                    Some(Situation::ReportRepeated)
                }
                Ok(_) => None,
                Err(Rejection::StaleEpoch { held, .. }) if matches!(report.then, Then::Complete { .. }) => {
                    match held {
                        Some(_) => Some(Situation::ZombieAfterTakeover),
                        None => Some(Situation::ZombieBeforeTakeover),
                    }
                }
                Err(rejection) => of_rejection(rejection, fed),
            })
            .collect()
        }
        Ok(_) => Vec::new(),
    }
}

fn of_rejection(rejection: &Rejection, fed: Option<&Input>) -> Option<Situation> {
    let is_send = matches!(command(fed), Some(Command::Send(_) | Command::EndStream { .. }));
    match rejection {
        Rejection::ReportConflict { .. } => Some(Situation::ReportConflict),
        Rejection::InputWaiting { .. } => Some(Situation::SuspendRefused),
        Rejection::StreamEnded { .. } | Rejection::HandleClosed if is_send => Some(Situation::SendAfterEnd),
        Rejection::Gap { .. } => Some(Situation::GapInStream),
        Rejection::BadGraph { .. } => Some(Situation::CycleRefused),
        Rejection::RunEnded { .. } if is_send => Some(Situation::InputAfterEnd),
        Rejection::KeyConflict { .. } => Some(Situation::KeyConflict),
        Rejection::LimitReached { .. } => Some(Situation::LimitReached),
        Rejection::InboxFull { .. } => Some(Situation::BackPressure),
        _ => None,
    }
}
