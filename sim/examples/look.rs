use tenure_sim::{
    choice::Choice,
    swarm::{Config, Profile},
    world::World,
};
fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let seed = args[0];
    let config = Config::of_seed(Profile::Swarm, seed);
    println!("{config:?}");
    let mut world = World::new(config, Choice::of_seed(seed));
    world.trace = Some(vec![]);
    let mut last = 0;
    while world.step() {
        if world.steps % 100_000 == 0 {
            println!("{} steps at {} ms (+{})", world.steps, world.now, world.now - last);
            last = world.now;
        }
    }
    for line in world.trace.take().unwrap().iter().rev().take(20000).rev() {
        println!("{line}");
    }
    println!("{:?} at {}", world.violation.as_ref().map(|v| v.to_string()), world.now);
    println!("{}", world.describe());
}
