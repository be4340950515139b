//! Lies: one thing changed in what the machine said. The model must believe none of them.

use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::effect::{Answer, Effect, Output, Reported};
use tenure_core::coordinator::event::{Event, Outcome, Return, WakeCause};
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::id::*;
use tenure_core::time::Time;
use tenure_core::value::Value;

/// A lie by name; true if there was something to lie about. `sometimes`: only who saw an earlier grant can know.
pub type NamedLie = (&'static str, fn(&mut Output) -> bool);

fn drops(out: &mut Output, which: impl Fn(&Event) -> bool) -> bool {
    let found = out.audit.iter().position(|stamped| which(&stamped.event));
    found.map(|at| out.audit.remove(at)).is_some()
}

fn changes(out: &mut Output, change: impl Fn(&mut Event) -> bool) -> bool {
    out.audit.iter_mut().any(|stamped| change(&mut stamped.event))
}

fn loses(out: &mut Output, which: impl Fn(&Effect) -> bool) -> bool {
    let found = out.effects.iter().position(which);
    found.map(|at| out.effects.remove(at)).is_some()
}

fn answers(out: &mut Output, change: impl Fn(&mut Result<Answer, Rejection>) -> bool) -> bool {
    out.effects.iter_mut().any(|effect| match effect {
        Effect::Reply { result, .. } => change(result),
        _ => false,
    })
}

fn reports(out: &mut Output, change: impl Fn(&mut Result<Reported, Rejection>) -> bool) -> bool {
    answers(out, |result| match result {
        Ok(Answer::Reported(results)) => results.iter_mut().any(&change),
        _ => false,
    })
}

/// All of them.
pub const LIES: &[NamedLie] = &[
    ("a join did not fire", |out| drops(out, |event| matches!(event, Event::NodeScheduled { .. }))),
    ("a run did not end", |out| drops(out, |event| matches!(event, Event::RunCompleted { .. }))),
    ("a wake-up was lost", |out| {
        drops(out, |event| matches!(event, Event::NodeResumed { cause: WakeCause::Message, .. }))
    }),
    ("a run is not suspended", |out| drops(out, |event| matches!(event, Event::RunSuspended { .. }))),
    ("a skip was forgotten", |out| drops(out, |event| matches!(event, Event::NodeSkipped { .. }))),
    ("a holder is not asked to stop", |out| drops(out, |event| matches!(event, Event::StopAsked { .. }))),
    // A lapse of a worker that leaves in the same step leaves no trace.
    ("sometimes nothing lapsed", |out| drops(out, |event| matches!(event, Event::SessionLapsed { .. }))),
    ("messages stay claimed", |out| drops(out, |event| matches!(event, Event::MessagesReturned { .. }))),
    ("a handle stays open", |out| drops(out, |event| matches!(event, Event::HandleClosed { .. }))),
    ("a late result is not kept", |out| drops(out, |event| matches!(event, Event::LateResult(_)))),
    ("a stop is not sent", |out| loses(out, |effect| matches!(effect, Effect::Stop { .. }))),
    ("an offer is not sent", |out| loses(out, |effect| matches!(effect, Effect::Offer { .. }))),
    ("an end is not told", |out| loses(out, |effect| matches!(effect, Effect::RunEnded { .. }))),
    ("a debt is not delivered", |out| {
        out.audit.iter().any(|stamped| matches!(stamped.event, Event::OutboxEnqueued { .. }))
            && loses(out, |effect| matches!(effect, Effect::Deliver { .. }))
    }),
    ("a zombie is believed", |out| {
        reports(out, |result| {
            let is_it = matches!(result, Err(Rejection::StaleEpoch { .. }));
            if is_it {
                *result = Ok(Reported::Accepted);
            }
            is_it
        })
    }),
    ("a conflict is a repeat", |out| {
        reports(out, |result| {
            let is_it = matches!(result, Err(Rejection::ReportConflict { .. }));
            if is_it {
                *result = Ok(Reported::Accepted);
            }
            is_it
        })
    }),
    ("a good report is fenced", |out| {
        reports(out, |result| {
            let is_it = matches!(result, Ok(Reported::Accepted));
            if is_it {
                *result = Err(Rejection::StaleEpoch { held: None, presented: Epoch::new(1) });
            }
            is_it
        })
    }),
    ("an epoch is used again", |out| {
        changes(out, |event| match event {
            Event::NodeClaimed { epoch, .. } | Event::NodeAssigned { epoch, .. } => {
                *epoch = Epoch::new(1);
                true
            }
            _ => false,
        })
    }),
    ("an attempt is left out", |out| {
        changes(out, |event| match event {
            Event::NodeStarted { attempt, .. } => {
                *attempt = Attempt::new(attempt.get() + 1);
                true
            }
            _ => false,
        })
    }),
    ("another worker got it", |out| {
        changes(out, |event| match event {
            Event::NodeClaimed { worker, .. } => {
                *worker = WorkerKey { tenant: worker.tenant, worker: WorkerId::new(77) };
                true
            }
            _ => false,
        })
    }),
    ("a failure is a success", |out| {
        changes(out, |event| match event {
            Event::RunEnding { outcome, .. } if *outcome != Outcome::Completed => {
                *outcome = Outcome::Completed;
                true
            }
            _ => false,
        })
    }),
    ("a loss is no loss", |out| {
        changes(out, |event| match event {
            Event::NodeReturned { how, .. } if how.is_loss() => {
                *how = Return::Released;
                true
            }
            _ => false,
        })
    }),
    ("a last failure is tried again", |out| {
        changes(out, |event| match event {
            Event::NodeFailed { retry_at, .. } if retry_at.is_none() => {
                *retry_at = Some(Time::from_ms(1 << 40));
                true
            }
            _ => false,
        })
    }),
    ("a back-off has no end", |out| {
        changes(out, |event| match event {
            Event::NodeFailed { retry_at: Some(at), .. } => {
                *at = at.after_ms(600_000);
                true
            }
            _ => false,
        })
    }),
    ("an output is another", |out| {
        changes(out, |event| match event {
            Event::NodeCompleted { output, .. } => {
                *output = Value::inline(ContentHash::new(99), 9);
                true
            }
            _ => false,
        })
    }),
    ("a seq is left out", |out| {
        changes(out, |event| match event {
            Event::MessageAppended { seq, .. } | Event::TriggerInputReceived { seq, .. } => {
                *seq = Seq::new(seq.get() + 1);
                true
            }
            _ => false,
        })
    }),
    ("more is consumed than was claimed", |out| {
        changes(out, |event| match event {
            Event::MessagesConsumed { through, .. } => {
                *through = Seq::new(through.get() + 1);
                true
            }
            _ => false,
        })
    }),
    ("a series is left out", |out| {
        changes(out, |event| match event {
            Event::RunRetried { series, .. } => {
                *series = Series::new(series.get() + 1);
                true
            }
            _ => false,
        })
    }),
    ("an event is from another time", |out| {
        out.audit.first_mut().is_some_and(|stamped| {
            stamped.at = stamped.at.after_ms(1);
            true
        })
    }),
    ("an event happens twice", |out| {
        let completed = |event: &Event| matches!(event, Event::NodeCompleted { .. });
        let found = out.audit.iter().position(|stamped| completed(&stamped.event));
        found.is_some_and(|at| {
            out.audit.insert(at, out.audit[at].clone());
            true
        })
    }),
    ("a grant has another attempt", |out| {
        answers(out, |result| match result {
            Ok(Answer::Polled { grants, .. }) => grants.first_mut().is_some_and(|grant| {
                grant.attempt = Attempt::new(grant.attempt.get() + 1);
                true
            }),
            _ => false,
        })
    }),
    ("sometimes: a grant has a new stable key", |out| {
        answers(out, |result| match result {
            Ok(Answer::Polled { grants, .. }) => {
                let later = grants.iter_mut().find(|grant| grant.attempt.get() > 1);
                later.map(|grant| grant.stable_key += 1).is_some()
            }
            _ => false,
        })
    }),
    ("a session is another", |out| {
        answers(out, |result| match result {
            Ok(Answer::Beat { session, .. }) => {
                *session = Session::new(session.get() + 1);
                true
            }
            _ => false,
        })
    }),
    ("a full inbox took it", |out| {
        answers(out, |result| {
            let is_it = matches!(result, Err(Rejection::InboxFull { .. }));
            if is_it {
                *result = Ok(Answer::Appended { seq: Seq::new(1) });
            }
            is_it
        })
    }),
    ("a key gives another run", |out| {
        answers(out, |result| match result {
            Ok(Answer::Submitted { run, .. }) => {
                *run = RunId::new(run.value() + 1);
                true
            }
            _ => false,
        })
    }),
    ("a stale version is fine", |out| {
        answers(out, |result| {
            let is_it = matches!(result, Err(Rejection::StaleVersion { .. }));
            if is_it {
                *result = Ok(Answer::Done);
            }
            is_it
        })
    }),
];
