//! Random lives of a small partition under the eyes of the model: the generator of core's own properties, with batches that
//! become durable late or never, and crashes in between.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "the generator is shared with core's tests")]

#[path = "../../../core/tests/common/definitions.rs"]
mod common_definitions;
#[path = "../../../core/tests/common/draw.rs"]
mod draw;
mod lies;

pub use draw::Draw;
pub use lies::LIES;

use std::collections::{BTreeMap, BTreeSet};
use tenure_core::Coordinator;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::*;
use tenure_core::coordinator::event::Stamped;
use tenure_core::coordinator::memory::MemoryStore;
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::coordinator::row::{Change, Row, RowKey, RunHead};
use tenure_core::id::*;
use tenure_core::limits::Limits;
use tenure_core::time::Now;
use tenure_sim::model::{Disagreement, Model};

/// The definitions of core's properties, and some whose joins are nested.
pub mod definitions {
    use tenure_core::definition::*;

    pub fn all() -> Vec<Definition> {
        let mut all = super::common_definitions::all();
        let quick = |name: &str, join: Join| {
            let mut node = NodeSpec::new(name);
            node.work.lease_ms = 1_500;
            node.work.retry = Retry { max_failures: 1, max_losses: 2, backoff_ms: 50, max_backoff_ms: 80 };
            node.join = join;
            node
        };
        let edges = |pairs: &[(&str, &str)]| pairs.iter().map(|(from, to)| Edge::data(from, to)).collect();
        let nodes = || {
            vec![
                quick("a", Join::All),
                quick("b", Join::All),
                quick("c", Join::All),
                quick("d", Join::Any),
                quick("e", Join::All),
                quick("f", Join::All),
            ]
        };
        let pairs = [("a", "b"), ("b", "d"), ("c", "d"), ("d", "e"), ("a", "f")];
        let nested = Definition::new("nested", nodes(), edges(&pairs));
        let mut patient = Definition::new("patient", nodes(), edges(&pairs[..4]));
        patient.settings.on_failure = OnFailure::Continue;
        all.extend([nested, patient]);
        all
    }
}

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

/// Changes what the machine said before the model sees it; true once it did.
pub type Lie = Box<dyn FnMut(&Input, &mut Output) -> bool>;

pub struct World {
    pub machine: Coordinator,
    pub model: Model,
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
    pub accepted: BTreeSet<&'static str>,
    pub lie: Option<Lie>,
    pub lied: bool,
    pub tells: bool,
    pub wrong: Option<Disagreement>,
    /// What led to it, for people.
    pub last: String,
    pub crashes: u64,
    pub steps: u64,
    pub events: u64,
    pending: Vec<Change>,
    heard: Vec<(Input, Output)>,
    requests: u64,
    batch: u64,
    luck: Draw,
}

/// What happened, a line each.
fn told(now: Now, input: &Input, out: &Output) -> String {
    let mut text = format!("{now:?}\ninput: {input:?}\n");
    out.audit.iter().for_each(|stamped| text += &format!("  - {} {:?}\n", stamped.step, stamped.event));
    out.effects.iter().for_each(|effect| text += &format!("  > {effect:?}\n"));
    out.loads.iter().for_each(|load| text += &format!("  ? {load:?}\n"));
    text
}

pub fn tenant(n: u64) -> TenantId {
    TenantId::new(u128::from(n % 2) + 1)
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut world = Self {
            machine: Coordinator::new(3, limits()),
            model: Model::new(3, limits()),
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
            lie: None,
            lied: false,
            tells: false,
            wrong: None,
            last: String::new(),
            crashes: 0,
            steps: 0,
            events: 0,
            pending: Vec::new(),
            heard: Vec::new(),
            requests: 0,
            batch: 0,
            luck: Draw(seed ^ 0x5eed),
        };
        world.feed(Input::Recover);
        for n in 0..2 {
            for (at, definition) in definitions::all().into_iter().enumerate() {
                let hash = ContentHash::new(at as u128 + 1);
                world.say(tenant(n), Command::Define { definition: Box::new(definition), hash });
            }
        }
        world.sync();
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

    /// Time passes, on both clocks.
    pub fn pass(&mut self, ms: u64) {
        self.now = Now::new(self.now.mono + ms, self.now.wall + ms);
    }

    /// One turn of the loop: feed, ask the model, put aside what is to be committed, and load what was asked for.
    pub fn feed(&mut self, input: Input) {
        if self.wrong.is_some() {
            return;
        }
        self.steps += 1;
        let mut out = Output::default();
        self.machine.handle(self.now, input.clone(), &mut out);
        if let Some(lie) = &mut self.lie
            && lie(&input, &mut out)
        {
            (self.lie, self.lied, self.last) = (None, true, told(self.now, &input, &out));
        }
        self.events += out.audit.len() as u64;
        if self.tells {
            println!("step {}: {}", self.steps, told(self.now, &input, &out));
        }
        if let Err(wrong) = self.model.step(self.now, &input, &out, &self.machine) {
            self.last = told(self.now, &input, &out);
            self.wrong = Some(wrong);
            return;
        }
        self.machine.take_changes(&mut self.pending);
        self.batch += 1;
        self.model.seal(self.batch);
        let loads = std::mem::take(&mut out.loads);
        self.audit.append(&mut out.audit.clone());
        self.heard.push((input, out));
        if !loads.is_empty() || self.luck.one_in(3) {
            self.sync();
        }
        for load in loads {
            let rows = self.store.find(&load.needs);
            self.feed(Input::Loaded(Loaded { load, rows }));
            self.sync();
        }
    }

    /// Everything so far becomes durable, and with it what was said.
    pub fn sync(&mut self) {
        self.store.commit(self.pending.drain(..));
        self.model.durable(self.batch);
        let Self { store, runs, .. } = self;
        runs.retain(|(_, run)| store.get(&RowKey::Run(*run)).is_some());
        for (input, out) in std::mem::take(&mut self.heard) {
            self.learn(&input, &out);
        }
    }

    /// The server is gone, with all that was not durable; another one starts from the rows.
    pub fn fork(&mut self) {
        self.pending.clear();
        self.heard.clear();
        self.crashes += 1;
        self.model.revert();
        self.machine = self.restored();
        self.audit.retain({
            let time = self.store.meta().map_or(0, |meta| meta.step);
            move |stamped| stamped.step <= time
        });
        self.feed(Input::Recover);
    }

    fn restored(&self) -> Coordinator {
        if self.store.meta().is_none() {
            return Coordinator::new(3, limits());
        }
        let restored = Coordinator::restore(limits(), self.store.resident().cloned());
        restored.unwrap_or_else(|bad| panic!("S46: {bad}"))
    }

    pub fn heads(&self) -> impl Iterator<Item = &RunHead> {
        self.store.heads()
    }

    fn learn(&mut self, input: &Input, out: &Output) {
        let asked = match input {
            Input::Command(envelope) => Some(envelope.clone()),
            Input::Loaded(loaded) => loaded.load.again.as_deref().cloned(),
            Input::Pulse | Input::Recover => None,
        };
        for effect in &out.effects {
            match effect {
                Effect::Reply { result: Ok(answer), .. } => {
                    let asked = asked.as_ref().expect("it was asked");
                    self.learn_answer(asked, answer);
                }
                Effect::Offer { worker, grant } | Effect::Hand { worker, grant } => {
                    let incarnation = self.workers.get(worker).map_or(Incarnation::new(0), |known| known.0);
                    self.remember(Memory { key: *worker, incarnation, held: grant.held() });
                }
                Effect::Deliver { id, .. } => {
                    if let Some(Row::Outbox(row)) = self.store.get(&RowKey::Outbox(*id)) {
                        self.owed.push((row.tenant, *id));
                    }
                }
                _ => {}
            }
        }
    }

    fn remember(&mut self, memory: Memory) {
        self.memories.push(memory);
        if self.memories.len() > 24 {
            self.memories.remove(0);
        }
    }

    fn learn_answer(&mut self, asked: &Envelope, answer: &Answer) {
        let (tenant, command) = (asked.tenant, &asked.command);
        self.accepted.insert(draw::kind(command));
        match (command, answer) {
            (Command::Submit(submit), Answer::Submitted { run, held }) => {
                if !self.runs.contains(&(tenant, *run)) && self.store.get(&RowKey::Run(*run)).is_some() {
                    self.runs.push((tenant, *run));
                }
                if let (Some((worker, incarnation)), Some(held)) = (submit.claim, held) {
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
                    self.remember(Memory { key, incarnation: *incarnation, held: grant.held() });
                }
            }
            (Command::Report { reports, .. }, Answer::Reported(results)) => {
                for (report, result) in reports.iter().zip(results) {
                    if result.is_ok() {
                        self.accepted.insert(draw::then_kind(&report.then));
                    }
                }
            }
            _ => {}
        }
    }
}
