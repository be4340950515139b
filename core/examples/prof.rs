#[allow(dead_code)]
#[path = "../benches/workload.rs"]
mod workload;
fn main() {
    let mut world = workload::World::new(10, 1);
    world.fill(500_000, 500_000);
    eprintln!("filled");
    for _ in 0..5 { eprintln!("{:.0} ns", 1e9 / world.lifecycles_per_s(300)); }
}
