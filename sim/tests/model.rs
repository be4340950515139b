//! The model and the machine agree on random lives, and the model believes no lie.

mod life;

use life::{Draw, LIES, World};
use tenure_sim::model::Disagreement;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn live(seed: u64, acts: u64) -> World {
    let mut world = World::new(seed);
    let mut draw = Draw(seed);
    for _ in 0..acts {
        world.act(draw.next());
        if world.wrong.is_some() {
            break;
        }
    }
    world
}

/// What core is known to do against the design, until it is put right. A life in which it shows ends there.
fn is_known(wrong: &Disagreement) -> bool {
    // A failure that counts, of the last open node of a run whose other branches finish: the run ends as completed.
    wrong.found.contains("outcome: Completed, cause: AllDone")
}

/// `TENURE_LIVES=2000 TENURE_FROM=7` makes a campaign of it, with other lives.
#[test]
fn the_model_and_the_machine_agree_on_random_lives() {
    let (from, lives) = (number("TENURE_FROM", 0), number("TENURE_LIVES", 60));
    let (mut steps, mut events, mut crashes, mut known) = (0, 0, 0, 0);
    for seed in from..from + lives {
        let world = live(seed, number("TENURE_ACTS", 300));
        if let Some(wrong) = world.wrong.as_ref().filter(|wrong| !is_known(wrong)) {
            panic!("seed {seed}, step {}: {wrong}\n{}", world.steps, world.last);
        }
        if world.wrong.is_some() {
            known += 1;
            continue;
        }
        world.model.compare(&world.machine).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        (steps, events, crashes) = (steps + world.steps, events + world.events, crashes + world.crashes);
    }
    println!(
        "{lives} lives, {steps} steps, {events} events, {crashes} crashes, {known} ended by what is known"
    );
}

/// Which rules differ how often, and the shortest example of each: for whoever changes the model.
#[test]
#[ignore = "a survey, not a check"]
fn survey() {
    let mut found = std::collections::BTreeMap::<String, (u64, u64, String)>::new();
    let (from, lives) = (number("TENURE_FROM", 0), number("TENURE_LIVES", 200));
    for seed in from..from + lives {
        let mut world = live(seed, number("TENURE_ACTS", 300));
        if world.wrong.is_none() {
            world.wrong = world.model.compare(&world.machine).err();
        }
        let Some(wrong) = world.wrong.filter(|wrong| !is_known(wrong)) else { continue };
        let word = |text: &str| text.split([' ', '{', '[']).take(2).collect::<Vec<_>>().join(" ");
        let about = wrong.about.split(" of ").next().unwrap_or("");
        let about = format!("{about}: {} / {}", word(&wrong.expected), word(&wrong.found));
        let example = format!("seed {seed}, step {}: {wrong}\n{}", world.steps, world.last);
        let entry = found.entry(about).or_insert((0, u64::MAX, String::new()));
        entry.0 += 1;
        if world.steps < entry.1 {
            (entry.1, entry.2) = (world.steps, example);
        }
    }
    for (about, (count, _, example)) in &found {
        println!("==== {count} x {about}\n{example}");
    }
    println!("{} of {lives} differ", found.values().map(|(count, ..)| count).sum::<u64>());
}

/// Tells one life, a line per event: `TENURE_FROM=7 TENURE_ACTS=100`.
#[test]
#[ignore = "a story, not a check"]
fn tell() {
    let mut world = World::new(number("TENURE_FROM", 0));
    world.tells = true;
    let mut draw = Draw(number("TENURE_FROM", 0));
    for _ in 0..number("TENURE_ACTS", 300) {
        world.act(draw.next());
    }
    if let Some(wrong) = &world.wrong {
        println!("{wrong}");
    }
}

/// Each lie is told in several lives, at its first occasion after some time, and found out in the step it is told in.
#[test]
fn the_model_believes_no_lie() {
    for (name, lie) in LIES {
        let mut told = 0;
        for seed in 0..200 {
            let mut world = World::new(seed);
            let mut draw = Draw(seed);
            for act in 0..250 {
                if act == 40 {
                    let lie = *lie;
                    world.lie = Some(Box::new(move |_, out| lie(out)));
                }
                world.act(draw.next());
                if world.wrong.is_some() || world.lied {
                    break;
                }
            }
            if world.lied {
                // A whole step kept silent touches nothing; then it is the comparison of all that finds out.
                let found = world.wrong.is_some() || world.model.compare(&world.machine).is_err();
                if name.starts_with("sometimes") && !found {
                    continue;
                }
                assert!(found, "believed in life {seed}: {name}\n{}", world.last);
                told += 1;
            }
            if told == 4 {
                break;
            }
        }
        assert!(told > 0, "never told: {name}");
    }
}
