//! `cargo bench -p tenure-core`: the same work as the JSON twin in `examples/bench.rs`, under divan.

#[allow(dead_code, reason = "the JSON twin measures more of it")]
mod workload;

use divan::Bencher;
use divan::counter::ItemsCount;
use workload::{World, graph_ns_per_edge, map_ops_per_s};

fn main() {
    divan::main();
}

/// A batch of two hundred lifecycles per iteration, with so many runs in flight.
#[divan::bench(args = [1_000, 100_000, 1_000_000], sample_count = 20)]
fn batch_of_lifecycles(bencher: Bencher<'_, '_>, in_flight: usize) {
    let mut world = World::new(10, 1);
    world.fill(in_flight / 2, in_flight / 2 + 1_000);
    bencher.counter(ItemsCount::new(200u32)).bench_local(|| world.batch());
}

/// The baseline: random read-modify-writes in std's HashMap with as many entries.
#[divan::bench(args = [1_000, 100_000, 1_000_000], sample_count = 5)]
fn million_map_operations(in_flight: usize) -> f64 {
    map_ops_per_s(in_flight, 1_000_000)
}

/// A heartbeat of a worker that holds so many leases.
#[divan::bench(args = [1, 10_000], sample_count = 20)]
fn thousand_heartbeats(bencher: Bencher<'_, '_>, held: usize) {
    let mut world = World::new(1, 1);
    world.fill(0, held);
    bencher.counter(ItemsCount::new(1_000u32)).bench_local(|| world.heartbeats_per_s(1_000));
}

/// Checking and running a graph that fans out so wide and joins again.
#[divan::bench(args = [500, 5_000, 50_000], sample_count = 5)]
fn wide_graph(width: usize) -> f64 {
    graph_ns_per_edge(width)
}
