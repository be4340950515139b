//! The work that the benchmark and its JSON twin both measure: a machine, driven in batches as a server would.
#![allow(unreachable_pub, missing_docs, reason = "it is a module of two programs")]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;
use tenure_core::Coordinator;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::{Answer, Effect, Output};
use tenure_core::coordinator::held_digest;
use tenure_core::coordinator::row::{Change, Row};
use tenure_core::definition::{Capability, Definition, Edge, NodeSpec};
use tenure_core::id::*;
use tenure_core::limits::Limits;
use tenure_core::time::{Now, Time};
use tenure_core::value::Value;

/// A small generator, so that every run of the benchmark does the same.
#[derive(Clone)]
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.word() % n as u64) as usize
    }

    pub fn wide(&mut self) -> u128 {
        u128::from(self.word()) << 64 | u128::from(self.word())
    }
}

const TENANT: TenantId = TenantId::new(1);
const BATCH: usize = 200;

/// A machine with workers and runs in flight.
#[derive(Clone)]
pub struct World {
    pub machine: Coordinator,
    out: Output,
    pub changes: Vec<Change>,
    clock: u64,
    polls: u64,
    names: Vec<String>,
    workers: Vec<(WorkerId, Incarnation)>,
    /// What each worker holds.
    held: Vec<Vec<Held>>,
    draw: Draw,
    /// Runs that were submitted and not polled yet.
    pub waiting: usize,
}

pub fn limits() -> Limits {
    // Keys of ended runs would otherwise grow beside the runs in flight, which is not what is measured here.
    Limits { resident_keys: 10_000, resident_ended: 0, ..Limits::default() }
}

impl World {
    /// `workers` workers that can do everything, and as many definitions as there are distinct `requirements`.
    pub fn new(workers: usize, requirements: usize) -> Self {
        let mut world = Self {
            machine: Coordinator::new(0, limits()),
            out: Output::default(),
            changes: Vec::new(),
            clock: 0,
            polls: 0,
            names: (0..requirements).map(|at| format!("d{at}")).collect(),
            workers: Vec::new(),
            held: vec![Vec::new(); workers],
            draw: Draw::new(7),
            waiting: 0,
        };
        world.feed(Input::Recover);
        for at in 0..requirements {
            let mut node = NodeSpec::new("only");
            node.work.requirement.capabilities.push(("level".into(), Capability::Number(at as u64)));
            let definition = Box::new(Definition::new(&world.names[at], vec![node], vec![]));
            world.ask(Command::Define { definition, hash: ContentHash::new(at as u128) });
        }
        for at in 0..workers {
            let worker = WorkerId::new(at as u128 + 1);
            let capabilities = vec![("level".into(), Capability::Number(requirements as u64))];
            let spec = Box::new(WorkerSpec { slots: 1_000_000, capabilities, ..WorkerSpec::default() });
            let answer = world.ask(Command::Register { worker, spec });
            let Answer::Registered { incarnation, .. } = answer else { unreachable!("{answer:?}") };
            world.workers.push((worker, incarnation));
        }
        world.machine.take_changes(&mut world.changes);
        world.changes.clear();
        world
    }

    fn feed(&mut self, input: Input) {
        self.out.clear();
        self.machine.handle(Now::new(self.clock, self.clock), input, &mut self.out);
    }

    fn ask(&mut self, command: Command) -> Answer {
        self.feed(Input::Command(Envelope { request: RequestId::new(0), tenant: TENANT, command }));
        match self.out.effects.pop() {
            Some(Effect::Reply { result, .. }) => result.expect("the benchmark asks for nothing wrong"),
            other => unreachable!("a command is answered last, not {other:?}"),
        }
    }

    pub fn submit(&mut self) {
        let at = self.draw.below(self.names.len());
        let key = SubmitKey {
            key: KeyHash::new(self.draw.wide()),
            fingerprint: ContentHash::new(1),
            minted_at: Time::from_ms(self.clock),
        };
        let random = self.draw.word();
        let submit = Submit { key: Some(key), ..Submit::new(&self.names[at], Value::EMPTY, random) };
        self.ask(Command::Submit(Box::new(submit)));
        self.waiting += 1;
    }

    /// A worker, by turns, polls for `max` pieces of work.
    pub fn poll(&mut self, max: u32) {
        self.polls += 1;
        let at = self.polls as usize % self.workers.len();
        let (worker, incarnation) = self.workers[at];
        let poll = PollId::new(self.polls);
        let answer = self.ask(Command::Poll { worker, incarnation, poll, max, wait: false });
        let Answer::Polled { grants, .. } = answer else { unreachable!("{answer:?}") };
        self.waiting -= grants.len();
        self.held[at].extend(grants.iter().map(|grant| grant.held()));
    }

    /// Takes `count` pieces of work, any of those held, from their holders, worker by worker.
    fn take_held(&mut self, count: usize) -> Vec<(usize, Vec<Held>)> {
        let mut taken: Vec<(usize, Vec<Held>)> = Vec::new();
        let mut left = count;
        while left > 0 {
            let at = self.draw.below(self.workers.len());
            let most = left.min(self.held[at].len()).min(BATCH.div_ceil(4).max(1));
            let mut some = Vec::with_capacity(most);
            for _ in 0..most {
                let which = self.draw.below(self.held[at].len());
                some.push(self.held[at].swap_remove(which));
            }
            left -= most;
            if most > 0 {
                taken.push((at, some));
            }
        }
        taken
    }

    fn report(&mut self, at: usize, held: &[Held], then: &Then) {
        let (worker, incarnation) = self.workers[at];
        let reports = held.iter().map(|one| Report::new(*one, then.clone())).collect();
        let answer = self.ask(Command::Report { worker, incarnation, reports });
        let Answer::Reported(results) = answer else { unreachable!("{answer:?}") };
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }

    /// The first half of a batch: runs are submitted, as many are polled, and as many of those held are chosen.
    fn submit_and_poll(&mut self) -> Vec<(usize, Vec<Held>)> {
        self.clock += 1;
        for _ in 0..BATCH {
            self.submit();
        }
        for _ in 0..BATCH / 100 {
            self.poll(100);
        }
        self.take_held(BATCH)
    }

    /// One batch: two hundred runs are submitted, as many polled, started and completed, any of those in flight.
    pub fn batch(&mut self) {
        let taken = self.submit_and_poll();
        for (at, held) in &taken {
            self.report(*at, held, &Then::Start);
        }
        for (at, held) in &taken {
            self.report(*at, held, &Then::Complete { output: Value::EMPTY });
        }
        self.heartbeats();
        self.changes.clear();
        self.machine.take_changes(&mut self.changes);
        black_box(&self.changes);
    }

    /// Every worker shows itself often enough that nothing lapses.
    fn heartbeats(&mut self) {
        if self.clock.is_multiple_of(5_000) {
            for (worker, incarnation) in self.workers.clone() {
                let (session, held) = (Session::new(1), 0);
                self.ask(Command::Heartbeat(Heartbeat { worker, incarnation, session, held, load: 0 }));
            }
        }
    }

    /// Submits and polls until so many wait and so many are held.
    pub fn fill(&mut self, waiting: usize, held: usize) {
        for at in 0..waiting + held {
            self.submit();
            if at % BATCH == 0 {
                self.changes.clear();
                self.machine.take_changes(&mut self.changes);
            }
        }
        while self.waiting > waiting {
            self.poll(((self.waiting - waiting).min(100)) as u32);
        }
        self.changes.clear();
        self.machine.take_changes(&mut self.changes);
    }

    /// Lifecycles per second over so many batches.
    pub fn lifecycles_per_s(&mut self, batches: usize) -> f64 {
        let start = Instant::now();
        for _ in 0..batches {
            self.batch();
        }
        (batches * BATCH) as f64 / start.elapsed().as_secs_f64()
    }

    /// Rows per lifecycle, and their bytes, of runs that live their whole life in one batch.
    pub fn rows_of_whole_lives(&mut self) -> (f64, f64) {
        let taken = self.submit_and_poll();
        for (at, held) in &taken {
            self.report(*at, held, &Then::Start);
            self.report(*at, held, &Then::Complete { output: Value::EMPTY });
        }
        self.changes.clear();
        self.machine.take_changes(&mut self.changes);
        let bytes: usize = self.changes.iter().map(|change| encode(change).len()).sum();
        // The partition's own row is written once per batch, whatever the batch holds.
        ((self.changes.len() - 1) as f64 / BATCH as f64, bytes as f64 / BATCH as f64)
    }

    /// Heartbeats per second of a worker that holds what it holds.
    pub fn heartbeats_per_s(&mut self, count: usize) -> f64 {
        let (worker, incarnation) = self.workers[0];
        let held = held_digest(self.held[0].iter().map(|held| held.epoch));
        let beat = Heartbeat { worker, incarnation, session: Session::new(1), held, load: 0 };
        let start = Instant::now();
        for _ in 0..count {
            let answer = self.ask(Command::Heartbeat(beat));
            assert!(matches!(answer, Answer::Beat { reconcile: false, .. }), "{answer:?}");
        }
        count as f64 / start.elapsed().as_secs_f64()
    }
}

pub fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).expect("rows encode")
}

pub fn decode(bytes: &[u8]) -> Row {
    bincode::serde::decode_from_slice(bytes, bincode::config::standard()).expect("rows decode").0
}

/// Random read-modify-writes of a 64-byte value per second, in std's HashMap with so many keys.
pub fn map_ops_per_s(keys: usize, operations: usize) -> f64 {
    let mut draw = Draw::new(3);
    let names: Vec<u128> = (0..keys).map(|_| draw.wide()).collect();
    let mut map: HashMap<u128, [u64; 8]> = names.iter().map(|name| (*name, [0; 8])).collect();
    let start = Instant::now();
    for _ in 0..operations {
        let name = names[draw.below(keys)];
        let value = map.get_mut(&name).expect("it was inserted");
        value[0] = value[0].wrapping_add(1);
        value[7] ^= value[0];
    }
    let spent = start.elapsed().as_secs_f64();
    black_box(&map);
    operations as f64 / spent
}

/// Nanoseconds per edge to check and run a graph: one node, `width` in parallel, and a join of them all.
pub fn graph_ns_per_edge(width: usize) -> f64 {
    let mut nodes = vec![NodeSpec::new("first"), NodeSpec::new("last")];
    let mut edges = Vec::new();
    for at in 0..width {
        let name = format!("n{at}");
        nodes.push(NodeSpec::new(&name));
        edges.push(Edge::data("first", &name));
        edges.push(Edge::data(&name, "last"));
    }
    let definition = Definition::new("wide", nodes, edges);
    let limits = Limits { nodes: 1_000_000, ..limits() };
    let start = Instant::now();
    let mut world = World::new(1, 1);
    world.machine = Coordinator::new(0, limits);
    world.feed(Input::Recover);
    world.ask(Command::Define { definition: Box::new(definition), hash: ContentHash::new(9) });
    let (worker, spec) =
        (WorkerId::new(1), Box::new(WorkerSpec { slots: 1_000_000, ..WorkerSpec::default() }));
    let Answer::Registered { incarnation, .. } = world.ask(Command::Register { worker, spec }) else {
        unreachable!()
    };
    world.workers[0] = (worker, incarnation);
    world.ask(Command::Submit(Box::new(Submit::new("wide", Value::EMPTY, 1))));
    world.waiting = width + 2;
    while world.waiting > 0 {
        world.poll(1_000);
        let held = std::mem::take(&mut world.held[0]);
        world.report(0, &held, &Then::Complete { output: Value::EMPTY });
        world.changes.clear();
        world.machine.take_changes(&mut world.changes);
    }
    start.elapsed().as_nanos() as f64 / (2 * width) as f64
}
