//! One world from its beginning to its end, whatever happens in it, and what came of it.

use crate::choice::{Choice, Step};
use crate::situation::Situations;
use crate::swarm::{Config, Profile};
use crate::tables::Tables;
use crate::world::World;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tenure_core::coordinator::invariants::Violation;

/// What came of a world.
#[derive(Debug, Clone)]
pub struct Trial {
    /// What it violated first, if anything.
    pub violation: Option<Violation>,
    /// A digest of everything that happened.
    pub digest: u64,
    /// Events of its queue.
    pub steps: u64,
    /// Audited events of its Coordinators.
    pub events: u64,
    /// How long it went on, in true milliseconds.
    pub ms: u64,
    /// How often each fault site fired.
    pub fired: Vec<u32>,
    /// Rare situations that were seen.
    pub situations: Situations,
    /// Rows of lifecycle tables that were hit.
    pub tables: Tables,
    /// Milliseconds from ready to started.
    pub waits: Vec<u32>,
    /// The numbers of all oracles that fired, if only one was to stop it.
    pub others: Vec<&'static str>,
    /// The choices that were not 0, if they were recorded.
    pub recorded: Vec<Step>,
    /// What happened, line by line, if it was wanted.
    pub trace: Vec<String>,
}

/// How a world is watched.
#[derive(Debug, Clone, Copy, Default)]
pub struct Watching {
    /// Remember the choices.
    pub record: bool,
    /// Write down what happens.
    pub trace: bool,
    /// Only this oracle stops the world.
    pub only: Option<&'static str>,
}

/// Runs the world of a seed.
pub fn of_seed(profile: Profile, seed: u64, watching: Watching) -> Trial {
    of_choice(Config::of_seed(profile, seed), Choice::of_seed(seed), watching)
}

/// Runs a world. A panic of a machine is a violation like any other.
pub fn of_choice(config: Config, mut choice: Choice, watching: Watching) -> Trial {
    if watching.record {
        choice.record();
    }
    let mut world = World::new(config, choice);
    world.only = watching.only;
    world.trace = watching.trace.then(Vec::new);
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| world.run())) {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something else");
        world.violation = Some(violation_of_panic(said));
    }
    world.oracles.add_up();
    let end = watching.trace.then(|| world.describe());
    let digest = if world.violation.is_none() { world.digest() } else { world.steps };
    Trial {
        digest,
        steps: world.steps,
        events: world.oracles.events,
        ms: world.now,
        fired: world.choice.fired().to_vec(),
        recorded: world.choice.recorded().to_vec(),
        violation: world.violation,
        situations: world.oracles.situations,
        tables: world.oracles.tables,
        waits: world.oracles.waits,
        others: world.others,
        trace: world.trace.into_iter().flatten().chain(end).collect(),
    }
}

/// A machine that can not go on: a step that its table does not have (S1), or an impossible state.
fn violation_of_panic(said: &str) -> Violation {
    let (number, sentence) = if said.contains("no step") {
        ("S1", "only transitions of the declared tables occur")
    } else {
        ("panic", "no machine panics, whatever it is fed")
    };
    Violation { number, sentence, facts: said.to_string() }
}

/// Panics are found and reported as violations; the usual lines on the terminal would only be noise.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}
