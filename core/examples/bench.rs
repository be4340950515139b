//! The benchmark as one JSON object: `cargo run --release -p tenure-core --example bench -- --json`.
//!
//! Every figure is set against a baseline of the same process, because machines are noisy: what a lifecycle costs is
//! counted in random map operations at the same number of entries.

#[path = "../benches/workload.rs"]
mod workload;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tenure_core::Coordinator;
use tenure_core::coordinator::row::Row;
use workload::{World, decode, encode, graph_ns_per_edge, limits, map_ops_per_s};

/// Counts the bytes that are allocated and not freed.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; only a counter is kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a lifecycle costs, in map operations at the same size: several rounds of both by turns, and the best of each,
/// because whatever else the machine does only ever makes a round slower.
fn lifecycle_in_map_ops(world: &mut World, in_flight: usize) -> (f64, f64, f64) {
    let (mut ours, mut map) = (0f64, 0f64);
    for _ in 0..6 {
        ours = ours.max(world.lifecycles_per_s(150));
        map = map.max(map_ops_per_s(in_flight, 1_000_000));
    }
    (map / ours, ours, map)
}

/// How much dearer a lifecycle gets from the small case to the large one: plainly, and corrected by how much dearer a
/// map operation gets from the one size to the other.
fn flat(
    name: &str,
    small: (usize, usize, usize),
    large: (usize, usize, usize),
    say: &dyn Fn(&str),
) -> (f64, f64) {
    let [small, large] = [small, large].map(|(waiting, workers, requirements)| {
        let mut world = World::new(workers, requirements);
        world.fill(waiting, 10_000);
        let (cost, per_s, map) = lifecycle_in_map_ops(&mut world, waiting + 10_000);
        say(&format!(
            "{name} {waiting}/{workers}/{requirements}: {:.0} ns, {cost:.1} map operations",
            1e9 / per_s
        ));
        (1.0 / per_s, 1.0 / map)
    });
    let (ours, map) = (large.0 / small.0, large.1 / small.1);
    (ours.max(1.0 / ours), (ours / map).max(1.0))
}

/// Seconds to decode the rows of what is in flight, and seconds to restore from the decoded rows: the best of three.
fn restore(world: &World) -> (f64, f64) {
    let encoded: Vec<Vec<u8>> = world.machine.rows().map(|row| encode(&row)).collect();
    let (mut decoding, mut restoring) = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        let start = Instant::now();
        let rows: Vec<Row> = encoded.iter().map(|bytes| decode(bytes)).collect();
        decoding = decoding.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let machine = Coordinator::restore(limits(), rows).expect("our own rows");
        restoring = restoring.min(start.elapsed().as_secs_f64());
        drop(machine);
    }
    (decoding, restoring)
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let say = |text: &str| eprintln!("{text}");
    let in_flight = 1_000_000;

    let before = LIVE.load(Ordering::Relaxed);
    let mut world = World::new(10, 1);
    // Most of what is in flight waits; ten workers hold a thousand pieces each.
    world.fill(in_flight - 10_000, 10_000);
    let bytes_per_run = (LIVE.load(Ordering::Relaxed) - before) as f64 / in_flight as f64;
    say(&format!("{in_flight} runs in flight, {bytes_per_run:.0} bytes each"));
    let (cost, lifecycles_per_s, map_ops) = lifecycle_in_map_ops(&mut world, in_flight);
    say(&format!("a lifecycle costs {cost:.1} map operations"));
    let mut half = World::new(10, 1);
    half.fill(in_flight / 2, in_flight / 2);
    let (half_cost, ..) = lifecycle_in_map_ops(&mut half, in_flight);
    say(&format!("with half of them held, {half_cost:.1}"));
    let (decoding, restoring) = restore(&half);
    drop(half);
    say(&format!("decoding {decoding:.2} s, restoring {restoring:.2} s"));
    drop(world);

    let mut world = World::new(10, 1);
    let (rows, row_bytes) = world.rows_of_whole_lives();
    drop(world);

    let mut world = World::new(1, 1);
    world.fill(0, 1);
    let light = world.heartbeats_per_s(200_000);
    world.fill(0, 10_000);
    let heavy = world.heartbeats_per_s(200_000);

    let by_waiting = flat("waiting", (1_000, 10, 1), (1_000_000, 10, 1), &say);
    let by_workers = flat("workers", (100_000, 10, 1), (100_000, 10_000, 1), &say);
    let by_requirements = flat("requirements", (100_000, 10, 1), (100_000, 10, 1_000), &say);

    // The two sizes by turns, so that a busy moment of the machine hits both; the best of each.
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..12 {
        best = (best.0.min(graph_ns_per_edge(500)), best.1.min(graph_ns_per_edge(50_000)));
    }
    let (narrow, wide) = best;

    let figures = [
        ("in_flight", in_flight as f64),
        ("lifecycles_per_s", lifecycles_per_s),
        ("map_ops_per_s", map_ops),
        ("map_ops_per_lifecycle", cost),
        ("map_ops_per_lifecycle_half_held", half_cost),
        ("bytes_per_run", bytes_per_run),
        ("rows_per_lifecycle", rows),
        ("row_bytes_per_lifecycle", row_bytes),
        ("plain_worst_over_best_by_waiting", by_waiting.0),
        ("plain_worst_over_best_by_workers", by_workers.0),
        ("plain_worst_over_best_by_requirements", by_requirements.0),
        ("worst_over_best_by_waiting", by_waiting.1),
        ("worst_over_best_by_workers", by_workers.1),
        ("worst_over_best_by_requirements", by_requirements.1),
        ("heartbeats_per_s_holding_1", light),
        ("heartbeats_per_s_holding_10000", heavy),
        ("graph_ns_per_edge_1000_edges", narrow),
        ("graph_ns_per_edge_100000_edges", wide),
        ("graph_worst_over_best", narrow.max(wide) / narrow.min(wide)),
        ("restore_over_decode", restoring / decoding),
    ];
    if json {
        let fields: Vec<String> =
            figures.iter().map(|(name, value)| format!("\"{name}\":{value:.3}")).collect();
        println!("{{{}}}", fields.join(","));
    } else {
        for (name, value) in figures {
            println!("{name:>38}  {value:.1}");
        }
    }
}
