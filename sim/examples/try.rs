use tenure_sim::{
    choice::Choice,
    swarm::{Config, Profile},
    world::World,
};
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (from, n, verbose) = (args[0], args[1], args.get(2).copied().unwrap_or(0));
    let start = std::time::Instant::now();
    let (mut steps, mut events, mut ms) = (0, 0, 0);
    let mut found = std::collections::BTreeMap::<String, (u64, u64, String)>::new();
    for seed in from..from + n {
        let t = std::time::Instant::now();
        let result = std::panic::catch_unwind(|| {
            let mut world = World::new(Config::of_seed(Profile::Swarm, seed), Choice::of_seed(seed));
            if verbose > 1 {
                world.trace = Some(vec![]);
            }
            world.run();
            world
        });
        match result {
            Err(p) => {
                let m = p.downcast_ref::<String>().cloned().unwrap_or_default();
                found.entry(format!("panic {}", &m[..m.len().min(60)])).or_insert((0, seed, m)).0 += 1;
            }
            Ok(world) => {
                steps += world.steps;
                events += world.oracles.events;
                ms += world.now;
                if verbose > 0 {
                    println!(
                        "{seed}: {} steps {} events {} s settled {:?} {:?} in {:?}",
                        world.steps,
                        world.oracles.events,
                        world.now / 1000,
                        world.settled_at,
                        world.config.servers,
                        t.elapsed()
                    );
                }
                if let Some(v) = world.violation {
                    found.entry(v.number.to_string()).or_insert((0, seed, v.to_string())).0 += 1;
                }
            }
        }
    }
    let wall = start.elapsed().as_secs_f64();
    println!(
        "{n} seeds in {wall:.2} s: {:.0} seeds/s, {steps} steps, {events} events = {:.0}/s, {:.1} sim hours = {:.2} h/s",
        n as f64 / wall,
        events as f64 / wall,
        ms as f64 / 3.6e6,
        ms as f64 / 3.6e6 / wall
    );
    for (k, (n, seed, facts)) in found {
        println!("{k}: {n} times, first seed {seed}: {}", &facts.chars().take(600).collect::<String>());
    }
}
