//! Keys and repeated requests.

use super::known::{KeyFacts, Known};
use super::watch::{Turn, answered};
use super::{Holds, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::command::{Command, Input};
use crate::coordinator::effect::{Answer, Output};
use crate::coordinator::event::Event;
use crate::coordinator::rejection::Rejection;
use crate::lifecycle::Lifecycle;
use crate::time::Time;

/// A repeat of an accepted submission gets the first answer, and another under its key a conflict (S32).
pub fn s32_a_repeat_gets_the_first_answer(turn: &Turn<'_>) -> Holds {
    for (asked, result) in answered(turn.input, turn.out) {
        let Command::Submit(submit) = &asked.command else { continue };
        let Some(key) = submit.key else { continue };
        let first = turn.known.keys.get(&(asked.tenant, key.key));
        // A key has one mint time: with another, it is another key.
        let is_same =
            |first: &&KeyFacts| first.minted_at == key.minted_at && first.until > turn.machine.state.now();
        let Some(first) = first.filter(is_same) else { continue };
        let Some(answer) = &first.answer else { continue };
        let is_first = match result {
            Ok(again) => first.fingerprint == key.fingerprint && again == answer,
            Err(Rejection::KeyConflict { run }) => first.fingerprint != key.fingerprint && *run == first.run,
            Err(Rejection::KeyFromFuture { .. }) => true,
            Err(_) => false,
        };
        hold!("S32", is_first, "{:?} was answered {answer:?}, and a repeat {result:?}", key.key);
    }
    Ok(())
}

/// The key of every run in memory leads to it (S33).
pub fn s33_live_keys_are_known(machine: &Coordinator) -> Holds {
    for (number, run) in machine.state.runs.iter().filter(|(_, run)| !run.head.status.is_terminal()) {
        let Some(key) = run.head.key else { continue };
        let is = machine.state.keys.run(run.head.tenant, key.key);
        hold!("S33", is == Some(number), "the key of run {} leads to {is:?}", run.head.id);
    }
    Ok(())
}

/// No key opens a second run as long as it may not be forgotten (S33).
pub fn s33_a_key_opens_one_run(turn: &Turn<'_>) -> Holds {
    for stamped in &turn.out.audit {
        let Event::RunCreated(created) = &stamped.event else { continue };
        let Some(key) = created.key else { continue };
        let first = turn.known.keys.get(&(created.tenant, key.key));
        let is_new = first.is_none_or(|first| {
            first.run == created.run || first.until <= stamped.at || first.minted_at != key.minted_at
        });
        hold!(
            "S33",
            is_new,
            "{:?} opened run {} and then {}",
            key.key,
            first.map_or(created.run, |one| one.run),
            created.run
        );
    }
    Ok(())
}

/// Keeps keys with their first answers until they may be forgotten.
pub(super) fn remember_keys(known: &mut Known, input: &Input, out: &Output) {
    for stamped in &out.audit {
        let Event::RunCreated(created) = &stamped.event else { continue };
        let Some(key) = created.key else { continue };
        let facts = KeyFacts {
            fingerprint: key.fingerprint,
            answer: None,
            run: created.run,
            until: Time::NEVER,
            minted_at: key.minted_at,
        };
        known.keys.insert((created.tenant, key.key), facts);
    }
    for (asked, result) in answered(input, out) {
        if let (Command::Submit(submit), Ok(answer @ Answer::Submitted { run, .. })) =
            (&asked.command, result)
            && let Some(facts) = submit.key.and_then(|key| known.keys.get_mut(&(asked.tenant, key.key)))
            && facts.run == *run
        {
            facts.answer.get_or_insert_with(|| answer.clone());
        }
    }
}
