//! A Shard on a server, and an observer: what is let go is what the Coordinator said, in that order, its rows are durable
//! by then (S45), and a commit or check that began after its input proved the ownership (S12).

#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tenure_core::Coordinator;
use tenure_core::coordinator::command::{self, *};
use tenure_core::coordinator::effect::{self, Effect};
use tenure_core::coordinator::invariants::{check_state, s46_rows_are_enough};
use tenure_core::coordinator::memory::MemoryStore;
use tenure_core::coordinator::query::RunView;
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::coordinator::row::Row;
use tenure_core::coordinator::{WorkerKey, held_digest};
use tenure_core::definition::{Definition, NodeSpec};
use tenure_core::id::*;
use tenure_core::limits::Limits;
use tenure_core::shard::command::{Input, Outcome};
use tenure_core::shard::effect::{NotTaken, Order, Output, Release};
use tenure_core::shard::invariants;
use tenure_core::shard::memory::MemoryPartition;
use tenure_core::shard::{Settings, Shard, Tap};
use tenure_core::time::{Now, Time};
use tenure_core::value::Value;

pub const PARTITION: u16 = 3;
pub const T: TenantId = TenantId::new(1);

/// Bounds so small that runs leave memory, and are forgotten.
pub fn limits() -> Limits {
    Limits {
        resident_keys: 2,
        resident_ended: 2,
        retention_ms: 30_000,
        page_horizon_ms: 300_000,
        pulse_portion: 12,
        ..Limits::default()
    }
}

/// The partition's own row counts the steps: rows of a step are durable when the store's row has reached it.
fn step(machine: &Coordinator) -> u64 {
    match machine.rows().next() {
        Some(Row::Meta(meta)) => meta.step,
        other => panic!("the partition's own row comes first, not {other:?}"),
    }
}

#[derive(Debug)]
struct Held {
    effect: Effect,
    step: u64,
    /// In which turn its input came.
    turn: u64,
}

#[derive(Debug, Default)]
struct Ear {
    turn: u64,
    held: VecDeque<Held>,
    opened: Option<Vec<Row>>,
}

impl Tap for Ear {
    fn opened(&mut self, machine: &Coordinator) {
        self.opened = Some(machine.rows().collect());
    }

    fn after(&mut self, machine: &Coordinator, said: &effect::Output) {
        let (step, turn) = (step(machine), self.turn);
        self.held.extend(said.effects.iter().map(|effect| Held { effect: effect.clone(), step, turn }));
    }
}

/// A Shard and all that is known about it.
#[derive(Debug)]
pub struct Server {
    pub shard: Shard,
    exclusive: bool,
    ear: Ear,
    out: Output,
    /// Orders that nobody carried out yet.
    pub orders: Vec<Order>,
    pub released: Vec<Release>,
    /// In which turn a ticket was given out, and for which batch.
    tickets: BTreeMap<u64, (u64, Batch)>,
    /// The newest turn of which it is proven that the partition was owned after it.
    proven: u64,
    asked: BTreeMap<RequestId, Command>,
    pub open: BTreeSet<RequestId>,
    pub workers: BTreeMap<u64, (Incarnation, Session)>,
    pub held: Vec<(u64, command::Held)>,
    pub runs: Vec<RunId>,
    pub losses: u64,
    polls: u64,
}

impl Server {
    pub fn new(settings: Settings) -> Self {
        Self::with(limits(), settings)
    }

    pub fn with(limits: Limits, settings: Settings) -> Self {
        Self {
            exclusive: settings.exclusive,
            shard: Shard::new(PARTITION, limits, settings),
            ear: Ear::default(),
            out: Output::default(),
            orders: Vec::new(),
            released: Vec::new(),
            tickets: BTreeMap::new(),
            proven: 0,
            asked: BTreeMap::new(),
            open: BTreeSet::new(),
            workers: BTreeMap::new(),
            held: Vec::new(),
            runs: Vec::new(),
            losses: 0,
            polls: 0,
        }
    }

    /// Knows what clients of the other server know.
    pub fn learn_of(&mut self, other: &Self) {
        (self.workers, self.held, self.runs) =
            (other.workers.clone(), other.held.clone(), other.runs.clone());
        self.polls += other.polls + other.asked.len() as u64;
    }

    /// One turn, checked.
    pub fn feed(&mut self, now: Now, input: Input, store: &MemoryPartition) {
        self.ear.turn += 1;
        self.note(&input);
        self.shard.handle_with(now, input, &mut self.out, &mut self.ear);
        invariants::check(&self.shard).unwrap_or_else(|violation| panic!("{violation}"));
        if let Some(machine) = self.shard.machine() {
            check_state(machine).unwrap_or_else(|violation| panic!("{violation}"));
        }
        for release in std::mem::take(&mut self.out.effects) {
            self.release(release, store);
        }
        if let Some(rows) = self.ear.opened.take() {
            compare_all(&rows, store.store());
        }
        for order in std::mem::take(&mut self.out.orders) {
            self.order(order);
        }
    }

    fn note(&mut self, input: &Input) {
        let proves = match input {
            Input::Answered { ticket, outcome: Outcome::Durable } => self.tickets.get(ticket),
            Input::Resolved { ticket, found: Some((owner, last)) } if *owner == self.shard.ownership() => {
                self.tickets.get(ticket).filter(|(_, batch)| batch <= last)
            }
            _ => None,
        };
        self.proven = self.proven.max(proves.map_or(0, |(turn, _)| *turn));
        match input {
            Input::Command(envelope) => {
                self.asked.insert(envelope.request, envelope.command.clone());
                self.open.insert(envelope.request);
            }
            Input::Look { request, .. } => drop(self.open.insert(*request)),
            _ => {}
        }
    }

    fn order(&mut self, order: Order) {
        let turn = self.ear.turn;
        match &order {
            Order::Commit { ticket, batch, .. } => drop(self.tickets.insert(*ticket, (turn, *batch))),
            Order::Check { ticket, .. } => drop(self.tickets.insert(*ticket, (turn, Batch::default()))),
            Order::Lost { .. } => {
                self.ear.held.clear();
                self.open.clear();
                self.losses += 1;
            }
            Order::Released { .. } => assert!(self.open.is_empty() && self.ear.held.is_empty()),
            _ => {}
        }
        self.orders.push(order);
    }

    fn release(&mut self, release: Release, store: &MemoryPartition) {
        match &release {
            Release::Effect(effect) => {
                let held = self.ear.held.pop_front().expect("S45: more was let go than was said");
                assert_eq!(held.effect, *effect, "effects leave in their order");
                let durable = store.store().meta().map_or(0, |meta| meta.step);
                let step = held.step;
                assert!(step <= durable, "S45: {effect:?} of step {step} left when {durable} was durable");
                assert!(self.exclusive || held.turn <= self.proven, "S12: {effect:?} left unproven");
                if let Effect::Reply { request, result } = effect {
                    assert!(self.open.remove(request), "{request} is answered twice");
                    self.learn(*request, result);
                }
            }
            Release::View { request, .. } | Release::NotTaken { request, .. } => {
                assert!(self.open.remove(request), "{request} is answered twice");
            }
        }
        self.released.push(release);
    }

    fn learn(&mut self, request: RequestId, result: &Result<effect::Answer, Rejection>) {
        let Ok(answer) = result else { return };
        match (&self.asked[&request], answer) {
            (Command::Register { worker, .. }, effect::Answer::Registered { incarnation, session }) => {
                self.workers.insert(worker.value() as u64, (*incarnation, *session));
            }
            (Command::Heartbeat(beat), effect::Answer::Beat { session, .. }) => {
                self.workers.entry(beat.worker.value() as u64).and_modify(|known| known.1 = *session);
            }
            (Command::Poll { worker, .. }, effect::Answer::Polled { grants, .. }) => {
                self.held.extend(grants.iter().map(|grant| (worker.value() as u64, grant.held())));
            }
            (Command::Submit(_), effect::Answer::Submitted { run, .. }) => self.runs.push(*run),
            _ => {}
        }
    }

    /// What is in memory is in the store, if nothing waits for it.
    pub fn compare(&self, now: Now, store: &MemoryStore) {
        let Some(machine) = self.shard.machine() else { return };
        for row in machine.rows() {
            assert_eq!(store.get(&row.key()), Some(&row), "the store has another row than memory");
        }
        s46_rows_are_enough(machine, now).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// S46: what was loaded is what the store has of what is resident.
fn compare_all(rows: &[Row], store: &MemoryStore) {
    let lasts = |row: &&Row| !matches!(row, Row::History(_) | Row::Late(_));
    let stored: BTreeMap<_, _> = store.resident().filter(lasts).map(|row| (row.key(), row)).collect();
    let loaded: BTreeMap<_, _> = rows.iter().map(|row| (row.key(), row)).collect();
    assert!(store.meta().is_none() || stored == loaded, "S46: {loaded:?} was made of {stored:?}");
}

/// What the store does with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Ok,
    NotApplied,
    AppliedUnknown,
    LostUnknown,
    Failed,
    Unreadable,
}

pub fn ticket(order: &Order) -> u64 {
    match order {
        Order::Commit { ticket, .. } | Order::Check { ticket, .. } | Order::Resolve { ticket } => *ticket,
        other => panic!("{other:?} has no ticket"),
    }
}

/// What comes back when a store treats an order so.
pub fn treat(store: &mut MemoryPartition, order: &Order, answer: Answer) -> Option<Input> {
    let outcome = match answer {
        Answer::Ok => return store.carry_out(order),
        Answer::AppliedUnknown => {
            store.carry_out(order);
            Outcome::Unknown
        }
        Answer::NotApplied => Outcome::NotApplied,
        Answer::LostUnknown | Answer::Unreadable => Outcome::Unknown,
        Answer::Failed => Outcome::Failed,
    };
    Some(match order {
        Order::Commit { ticket, .. } | Order::Check { ticket, .. } => {
            Input::Answered { ticket: *ticket, outcome }
        }
        Order::Resolve { ticket } => Input::Resolved { ticket: *ticket, found: None },
        Order::Fetch { fetch, .. } => Input::Fetched { fetch: *fetch, rows: None },
        Order::Load { .. } => return store.carry_out(order),
        Order::Released { .. } | Order::Lost { .. } | Order::Broken { .. } => return None,
    })
}

/// One server and its store.
#[derive(Debug)]
pub struct Gate {
    pub server: Server,
    pub store: MemoryPartition,
    pub now: Now,
    requests: u64,
}

impl std::ops::Deref for Gate {
    type Target = Server;
    fn deref(&self) -> &Server {
        &self.server
    }
}

impl Gate {
    pub fn new(settings: Settings) -> Self {
        let now = Now::new(1_000, 1_700_000_000_000);
        Self { server: Server::new(settings), store: MemoryPartition::default(), now, requests: 0 }
    }

    /// A Shard that owns an empty partition.
    pub fn serving(settings: Settings) -> Self {
        let mut gate = Self::new(settings);
        gate.reload();
        gate
    }

    pub fn own(&mut self) {
        let ownership = self.store.give_out();
        self.feed(Input::Own { ownership });
    }

    /// The partition is taken anew and read.
    pub fn reload(&mut self) {
        self.own();
        self.settle();
    }

    pub fn feed(&mut self, input: Input) {
        self.server.feed(self.now, input, &self.store);
    }

    pub fn ask(&mut self, command: Command) -> RequestId {
        self.requests += 1;
        let request = RequestId::new(self.requests);
        self.feed(Input::Command(Envelope { request, tenant: T, command }));
        request
    }

    pub fn look(&mut self, run: RunId) -> RequestId {
        self.requests += 1;
        let request = RequestId::new(self.requests);
        self.feed(Input::Look { request, tenant: T, run });
        request
    }

    pub fn orders(&self) -> &[Order] {
        &self.server.orders
    }

    pub fn pending(&self) -> usize {
        self.server.orders.len()
    }

    pub fn commits(&self) -> usize {
        self.server.orders.iter().filter(|order| matches!(order, Order::Commit { .. })).count()
    }

    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.server.orders)
    }

    pub fn maybe_order(&mut self, is_it: impl Fn(&Order) -> bool) -> Option<Order> {
        let at = self.server.orders.iter().position(is_it)?;
        Some(self.server.orders.remove(at))
    }

    pub fn take_order(&mut self, is_it: impl Fn(&Order) -> bool) -> Order {
        self.maybe_order(is_it).expect("there is such an order")
    }

    /// The store treats the first order so.
    pub fn answer(&mut self, answer: Answer) {
        let order = self.server.orders.remove(0);
        if let Some(input) = treat(&mut self.store, &order, answer) {
            self.feed(input);
        }
    }

    /// The store does all it is told.
    pub fn settle(&mut self) {
        while self.pending() > 0 {
            self.answer(Answer::Ok);
        }
    }

    /// The store does all but read.
    pub fn settle_but_fetches(&mut self) {
        while let Some(at) = self.orders().iter().position(|order| !matches!(order, Order::Fetch { .. })) {
            let order = self.server.orders.remove(at);
            if let Some(input) = self.store.carry_out(&order) {
                self.feed(input);
            }
        }
    }

    /// The store does all it is told, and time passes until nothing waits for the store.
    pub fn settle_in_time(&mut self) {
        for _ in 0..100 {
            self.settle();
            if self.server.open.is_empty() {
                return;
            }
            self.pass_to_deadline();
        }
        panic!("{:?} wait for ever", self.server.open);
    }

    pub fn pass(&mut self, ms: u64) {
        self.now = Now::new(self.now.mono + ms, self.now.wall + ms);
    }

    pub fn pass_to_deadline(&mut self) {
        if let Some(deadline) = self.server.shard.next_deadline() {
            self.pass(deadline.mono.saturating_sub(self.now.mono));
            self.feed(Input::Pulse);
        }
    }

    pub fn compare(&mut self) {
        self.settle();
        self.server.compare(self.now, self.store.store());
    }

    pub fn reply(&self, wanted: RequestId) -> Option<Result<effect::Answer, Rejection>> {
        self.released.iter().find_map(|release| match release {
            Release::Effect(Effect::Reply { request, result }) if *request == wanted => Some(result.clone()),
            _ => None,
        })
    }

    /// The run that was opened by a request.
    pub fn run(&self, request: RequestId) -> RunId {
        match self.reply(request) {
            Some(Ok(effect::Answer::Submitted { run, .. })) => run,
            other => panic!("{other:?} opened no run"),
        }
    }

    pub fn is_answered(&self, request: RequestId) -> bool {
        self.reply(request).is_some()
    }

    pub fn refusal(&self, wanted: RequestId) -> Option<NotTaken> {
        self.released.iter().find_map(|release| match release {
            Release::NotTaken { request, why } if *request == wanted => Some(*why),
            _ => None,
        })
    }

    pub fn view(&self, wanted: RequestId) -> Option<Option<RunView>> {
        self.released.iter().find_map(|release| match release {
            Release::View { request, view } if *request == wanted => Some(view.as_deref().cloned()),
            _ => None,
        })
    }

    pub fn open_requests(&self) -> &BTreeSet<RequestId> {
        &self.server.open
    }
}

pub fn define() -> Command {
    let definition = Definition::new("one", vec![NodeSpec::new("a")], vec![]);
    Command::Define { definition: Box::new(definition), hash: ContentHash::new(1) }
}

pub fn submit(random: u64) -> Command {
    Command::Submit(Box::new(Submit::new("one", Value::EMPTY, random)))
}

pub fn submit_with_key(key: u64, minted_at: Time) -> Command {
    let (key, fingerprint) = (KeyHash::new(u128::from(key)), ContentHash::new(1));
    let mut submit = Submit::new("one", Value::EMPTY, 7);
    submit.key = Some(SubmitKey { key, fingerprint, minted_at });
    Command::Submit(Box::new(submit))
}

pub fn register(worker: u64) -> Command {
    let spec = WorkerSpec { slots: 4, ..WorkerSpec::default() };
    Command::Register { worker: WorkerId::new(u128::from(worker)), spec: Box::new(spec) }
}

fn known(server: &Server, worker: u64) -> (Incarnation, Session) {
    server.workers.get(&worker).copied().unwrap_or_default()
}

pub fn heartbeat(server: &Server, worker: u64) -> Command {
    let (incarnation, session) = known(server, worker);
    let epochs = server.held.iter().filter(|(by, _)| *by == worker).map(|(_, held)| held.epoch);
    let held = held_digest(epochs);
    Command::Heartbeat(Heartbeat {
        worker: WorkerId::new(u128::from(worker)),
        incarnation,
        session,
        held,
        load: 0,
    })
}

pub fn poll(server: &Server, worker: u64) -> Command {
    let poll = PollId::new(server.polls + server.asked.len() as u64 + 1);
    let incarnation = known(server, worker).0;
    Command::Poll { worker: WorkerId::new(u128::from(worker)), incarnation, poll, max: 1, wait: false }
}

pub fn report(server: &Server, worker: u64, held: &[command::Held], then: impl Fn() -> Then) -> Command {
    let report = |held: &command::Held| Report {
        run: held.run,
        node: held.node,
        epoch: held.epoch,
        attempt: None,
        consume: Vec::new(),
        sends: Vec::new(),
        then: then(),
    };
    let (worker, incarnation) = (WorkerId::new(u128::from(worker)), known(server, worker).0);
    Command::Report { worker, incarnation, reports: held.iter().map(report).collect() }
}

pub fn complete(server: &Server, worker: u64, held: &[command::Held]) -> Command {
    report(server, worker, held, || Then::Complete { output: Value::EMPTY })
}

/// Who a worker is.
pub fn key(worker: u64) -> WorkerKey {
    WorkerKey { tenant: T, worker: WorkerId::new(u128::from(worker)) }
}
