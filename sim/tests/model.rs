//! The model and the machine agree on random lives, and the model believes no lie.

mod life;

use life::{Draw, LIES, World};

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

/// `TENURE_LIVES=2000 TENURE_FROM=7` makes a campaign of it, with other lives.
#[test]
fn the_model_and_the_machine_agree_on_random_lives() {
    let (from, lives) = (number("TENURE_FROM", 0), number("TENURE_LIVES", 60));
    let (mut steps, mut events, mut crashes) = (0, 0, 0);
    for seed in from..from + lives {
        let world = live(seed, number("TENURE_ACTS", 300));
        if let Some(wrong) = &world.wrong {
            panic!("seed {seed}, step {}: {wrong}\n{}", world.steps, world.last);
        }
        world.model.compare(&world.machine).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        (steps, events, crashes) = (steps + world.steps, events + world.events, crashes + world.crashes);
    }
    println!("{lives} lives, {steps} steps, {events} events, {crashes} crashes");
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
