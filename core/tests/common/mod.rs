//! A small world around a Coordinator: a clock, a store, workers that come, go and lie, and an observer that checks
//! every invariant after every input. What it does next is drawn from one number and from what it knows.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses a part of it")]

pub mod definitions;
mod draw;

pub use draw::Draw;

/// Every kind that must have been accepted once in a campaign.
pub fn draw_kinds() -> &'static [&'static str] {
    draw::KINDS
}

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use tenure_core::Coordinator;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::*;
use tenure_core::coordinator::event::Stamped;
use tenure_core::coordinator::invariants::{Watch, check_state, s46_rows_are_enough};
use tenure_core::coordinator::memory::MemoryStore;
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::coordinator::row::{Change, Row, RowKey, RunHead};
use tenure_core::id::*;
use tenure_core::lifecycle::{Lifecycle, RunStatus};
use tenure_core::limits::Limits;
use tenure_core::time::Now;

/// Bounds so small that they are reached.
pub fn limits() -> Limits {
    Limits {
        live_runs: 12,
        workers: 4,
        resident_keys: 2,
        resident_ended: 2,
        retention_ms: 30_000,
        sweep_interval_ms: 8_000,
        page_horizon_ms: 4_000,
        stale_ms: 2_000,
        dead_ms: 5_000,
        worker_retention_ms: 12_000,
        outbox: 4,
        outbox_retry_ms: 2_000,
        rescue_portion: 2,
        rescue_interval_ms: 50,
        pulse_portion: 12,
        offers: 3,
        late_results: 2,
        message_ids: 6,
        age_per_priority_ms: 10,
        restart_jump_ms: 60_000,
        ..Limits::default()
    }
}

/// A grant as a worker remembers it, right or wrong.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub key: WorkerKey,
    pub incarnation: Incarnation,
    pub held: Held,
}

pub struct World {
    pub machine: Coordinator,
    /// Restored from rows at some point; must do as the machine does from then on.
    pub twin: Option<Coordinator>,
    pub watch: Watch,
    pub store: MemoryStore,
    pub audit: Vec<Stamped>,
    pub now: Now,
    pub runs: Vec<(TenantId, RunId)>,
    pub workers: BTreeMap<WorkerKey, (Incarnation, Session)>,
    pub polls: BTreeMap<WorkerKey, u64>,
    pub memories: Vec<Memory>,
    pub owed: Vec<(TenantId, OutboxId)>,
    pub keys: Vec<(TenantId, SubmitKey)>,
    pub said: Vec<Envelope>,
    /// Kinds of commands and reports that were accepted at least once.
    pub accepted: BTreeSet<&'static str>,
    pub refused: BTreeMap<String, u64>,
    /// A digest of everything that came out.
    pub seen: DefaultHasher,
    /// The last answer.
    pub last: Option<Result<Answer, Rejection>>,
    requests: u64,
    pub steps: u64,
}

pub fn tenant(n: u64) -> TenantId {
    TenantId::new(u128::from(n % 2) + 1)
}

impl World {
    pub fn new() -> Self {
        let machine = Coordinator::new(3, limits());
        let mut world = Self {
            watch: Watch::new(&machine),
            machine,
            twin: None,
            store: MemoryStore::default(),
            audit: Vec::new(),
            now: Now::new(1_000, 1_700_000_000_000),
            runs: Vec::new(),
            workers: BTreeMap::new(),
            polls: BTreeMap::new(),
            memories: Vec::new(),
            owed: Vec::new(),
            keys: Vec::new(),
            said: Vec::new(),
            accepted: BTreeSet::new(),
            refused: BTreeMap::new(),
            seen: DefaultHasher::new(),
            last: None,
            requests: 0,
            steps: 0,
        };
        world.feed(Input::Recover);
        for n in 0..2 {
            for (at, definition) in definitions::all().into_iter().enumerate() {
                let hash = ContentHash::new(at as u128 + 1);
                world.say(tenant(n), Command::Define { definition: Box::new(definition), hash });
            }
        }
        world
    }

    /// A run held as a whole whose holder has not begun, paused until its timers are through: rare among random lives.
    pub fn of_a_paused_dash() -> Self {
        let mut world = Self::new();
        let (worker, spec) = (WorkerId::new(1), Box::new(WorkerSpec { slots: 1, ..WorkerSpec::default() }));
        world.say(
            tenant(0),
            Command::Submit(Box::new(Submit::new("dash", tenure_core::value::Value::EMPTY, 7))),
        );
        world.say(tenant(0), Command::Register { worker, spec });
        let incarnation = world.workers.values().next().expect("it registered").0;
        world
            .say(tenant(0), Command::Poll { worker, incarnation, poll: PollId::new(1), max: 1, wait: false });
        let run = world.runs[0].1;
        world.say(tenant(0), Command::Pause(OnRun { run, if_version: None }));
        for _ in 0..2 {
            world.pass(310);
            world.feed(Input::Pulse);
        }
        world
    }

    /// Sends a command.
    pub fn say(&mut self, tenant: TenantId, command: Command) {
        self.requests += 1;
        let envelope = Envelope { request: RequestId::new(self.requests), tenant, command };
        self.said.push(envelope.clone());
        if self.said.len() > 24 {
            self.said.remove(0);
        }
        self.feed(Input::Command(envelope));
    }

    /// Sends a command and gives its answer.
    pub fn ask(&mut self, tenant: TenantId, command: Command) -> Result<Answer, Rejection> {
        self.say(tenant, command);
        self.last.take().expect("every command is answered")
    }

    /// Time passes, on both clocks.
    pub fn pass(&mut self, ms: u64) {
        self.now = Now::new(self.now.mono + ms, self.now.wall + ms);
    }

    /// One turn of the loop: feed, check, commit, learn, and load what was asked for.
    pub fn feed(&mut self, input: Input) {
        self.steps += 1;
        let mut out = Output::default();
        self.machine.handle(self.now, input.clone(), &mut out);
        let observed = self.watch.observe(&self.machine, &input, &out);
        observed.unwrap_or_else(|violation| panic!("{violation}\ninput: {input:?}\noutput: {out:?}"));
        let mut changes = Vec::new();
        self.machine.take_changes(&mut changes);
        self.watch.settle(&self.machine);
        self.follow_with_twin(&input, &out, &changes);
        self.commit(changes.clone());
        let checked = check_state(&self.machine);
        checked.unwrap_or_else(|violation| panic!("{violation}\ninput: {input:?}\noutput: {out:?}"));
        self.seen.write(format!("{out:?}{changes:?}").as_bytes());
        self.learn(&input, &out);
        self.audit.append(&mut out.audit);
        for load in out.loads {
            let rows = self.store.find(&load.needs);
            self.feed(Input::Loaded(Loaded { load, rows }));
        }
    }

    fn follow_with_twin(&mut self, input: &Input, out: &Output, changes: &[Change]) {
        let Some(twin) = &mut self.twin else { return };
        let (mut other, mut rows) = (Output::default(), Vec::new());
        twin.handle(self.now, input.clone(), &mut other);
        twin.take_changes(&mut rows);
        assert_eq!(out.effects, other.effects, "S46: effects differ after {input:?}");
        assert_eq!(out.audit, other.audit, "S46: events differ after {input:?}");
        assert_eq!(out.loads, other.loads, "S46: loads differ after {input:?}");
        assert_eq!(changes, rows, "S46: changes differ after {input:?}");
        assert_eq!(
            self.machine.next_deadline(),
            twin.next_deadline(),
            "S46: deadlines differ after {input:?}"
        );
    }

    /// A machine restored from the store takes part from now on; both are told to recover.
    pub fn fork(&mut self) {
        self.twin = Some(self.restored());
        self.feed(Input::Recover);
    }

    /// A machine that knows what the store says.
    pub fn restored(&self) -> Coordinator {
        if self.store.meta().is_none() {
            return Coordinator::new(3, limits());
        }
        let restored = Coordinator::restore(limits(), self.store.resident().cloned());
        restored.unwrap_or_else(|bad| panic!("S46: {bad}"))
    }

    /// What is in memory is in the store, and rows are enough.
    pub fn compare_rows(&self) {
        for row in self.machine.rows() {
            assert_eq!(self.store.get(&row.key()), Some(&row), "the store has another row than memory");
        }
        s46_rows_are_enough(&self.machine, self.now).unwrap_or_else(|violation| panic!("{violation}"));
    }

    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.machine.digest(&mut hasher);
        hasher.finish()
    }

    fn commit(&mut self, changes: Vec<Change>) {
        self.store.commit(changes);
        // What the store forgot is spoken of no more.
        let Self { store, runs, .. } = self;
        runs.retain(|(_, run)| store.get(&RowKey::Run(*run)).is_some());
    }

    pub fn heads(&self) -> impl Iterator<Item = &RunHead> {
        self.store.heads()
    }

    fn learn(&mut self, input: &Input, out: &Output) {
        let asked: Vec<Envelope> = match input {
            Input::Command(envelope) => vec![envelope.clone()],
            Input::Loaded(loaded) => loaded.load.again.as_deref().cloned().into_iter().collect(),
            Input::Pulse | Input::Recover => Vec::new(),
        };
        for effect in &out.effects {
            match effect {
                Effect::Reply { request, result } => {
                    let asked =
                        asked.iter().find(|envelope| envelope.request == *request).expect("it was asked");
                    self.learn_answer(asked, result);
                }
                Effect::Offer { worker, grant } | Effect::Hand { worker, grant } => {
                    let incarnation = self.workers.get(worker).map_or(Incarnation::new(0), |known| known.0);
                    self.remember(Memory { key: *worker, incarnation, held: grant.held() });
                }
                Effect::Deliver { id, .. } => {
                    let tenant = self.store.get(&RowKey::Outbox(*id)).map(|row| match row {
                        Row::Outbox(row) => row.tenant,
                        _ => unreachable!("it is under its key"),
                    });
                    self.owed.extend(tenant.map(|tenant| (tenant, *id)));
                }
                _ => {}
            }
        }
    }

    pub fn remember(&mut self, memory: Memory) {
        self.memories.push(memory);
        if self.memories.len() > 24 {
            self.memories.remove(0);
        }
    }

    fn learn_answer(&mut self, asked: &Envelope, result: &Result<Answer, Rejection>) {
        let (tenant, command) = (asked.tenant, &asked.command);
        self.last = Some(result.clone());
        let answer = match result {
            Ok(answer) => answer,
            Err(rejection) => {
                let text = format!("{rejection:?}");
                let name = text.split([' ', '{', '(']).next().unwrap_or("").to_owned();
                *self.refused.entry(name).or_default() += 1;
                return;
            }
        };
        self.accepted.insert(draw::kind(command));
        match (command, answer) {
            (Command::Submit(submit), Answer::Submitted { run, held }) => {
                if !self.runs.contains(&(tenant, *run)) {
                    self.runs.push((tenant, *run));
                }
                if let (Some((worker, incarnation)), Some(held)) = (submit.claim, held) {
                    self.accepted.insert("creator's claim");
                    self.remember(Memory { key: WorkerKey { tenant, worker }, incarnation, held: *held });
                }
            }
            (Command::Register { worker, .. }, Answer::Registered { incarnation, session }) => {
                let key = WorkerKey { tenant, worker: *worker };
                self.workers.insert(key, (*incarnation, *session));
                self.polls.insert(key, 0);
            }
            (
                Command::Poll { worker, incarnation, .. } | Command::Claim { worker, incarnation, .. },
                Answer::Polled { session, grants },
            ) => {
                let key = WorkerKey { tenant, worker: *worker };
                self.workers.insert(key, (*incarnation, *session));
                for grant in grants {
                    self.accepted.insert("grant");
                    self.remember(Memory { key, incarnation: *incarnation, held: grant.held() });
                }
            }
            (Command::Report { reports, .. }, Answer::Reported(results)) => {
                for (report, result) in reports.iter().zip(results) {
                    match result {
                        Ok(_) => {
                            self.accepted.insert(draw::then_kind(&report.then));
                            if !report.consume.is_empty() {
                                self.accepted.insert("consume");
                            }
                            if !report.sends.is_empty() {
                                self.accepted.insert("send from a report");
                            }
                        }
                        Err(rejection) => {
                            let text = format!("{rejection:?}");
                            let name = text.split([' ', '{', '(']).next().unwrap_or("").to_owned();
                            *self.refused.entry(name).or_default() += 1;
                        }
                    }
                }
            }
            _ => {}
        }
    }
}
