//! A small world of Agents and Coordinators: one true time, a clock of its own rate for every Agent, a network that can
//! drop, double and delay, and executors that take time. Every invariant of both machines is checked after every input,
//! and no two Agents may execute the same work at once.

use std::collections::BTreeMap;
use tenure_core::agent::invariants::check;
use tenure_core::agent::{Agent, Input, Notice, Order, Output, Refusal, Settings, Why};
use tenure_core::coordinator::command::{Command, Envelope, Held, Loaded, Report, Submit, Then, WorkerSpec};
use tenure_core::coordinator::effect::{self, Effect, Grant};
use tenure_core::coordinator::invariants::check_state;
use tenure_core::coordinator::memory::MemoryStore;
use tenure_core::coordinator::{Coordinator, command};
use tenure_core::definition::Definition;
use tenure_core::id::*;
use tenure_core::lifecycle::RunStatus;
use tenure_core::limits::Limits;
use tenure_core::time::Now;
use tenure_core::value::Value;

pub const TENANT: TenantId = TenantId::new(1);

/// Short times, so that a test is a short story.
pub fn settings(worker: u128, parallel: u32) -> Settings {
    Settings {
        poll_ms: 400,
        heartbeat_ms: 500,
        request_ms: 150,
        backoff_ms: 1_000,
        guard_ms: 50,
        idle_run_ms: 600,
        ..Settings::new(WorkerId::new(worker), TENANT, parallel)
    }
}

/// What an executor does with what it is told to start.
pub type Script = fn(&Grant) -> (u64, Then);

/// Takes 100 ms and completes.
pub fn complete(_: &Grant) -> (u64, Then) {
    (100, Then::Complete { output: Value::EMPTY })
}

/// A clock that shows `num` for every `den` of true time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    pub num: u64,
    pub den: u64,
    /// What it shows at true time 0, and more than that after a jump.
    pub offset: u64,
}

impl Clock {
    pub const TRUE: Self = Self { num: 1, den: 1, offset: 0 };

    fn at(&self, time: u64) -> u64 {
        self.offset + time * self.num / self.den
    }

    /// The first instant at which it shows at least this.
    fn when(&self, shown: u64) -> u64 {
        (shown.saturating_sub(self.offset) * self.den).div_ceil(self.num)
    }
}

pub struct Host {
    pub agent: Agent,
    pub clock: Clock,
    /// It is not given any time until then, and neither is what it executes.
    pub frozen_until: u64,
    /// Nothing comes through to it, or from it, until then.
    pub cut_until: u64,
    pub executing: BTreeMap<Held, (u64, Then)>,
    pub script: Script,
    /// Takes this long from an order to stop to having stopped.
    pub stop_ms: u64,
    stopping: Vec<(u64, Held)>,
    pub is_dead: bool,
    pub started: Vec<Grant>,
    pub stopped: Vec<(Held, Why)>,
    pub answers: Vec<(Held, Result<effect::Reported, Refusal>)>,
    pub sent: Vec<(u64, RequestId, Command)>,
    pub orders: Vec<Order>,
}

#[derive(Debug, Clone)]
pub enum Packet {
    ToPartition { from: usize, partition: u16, request: RequestId, command: Command },
    ToAgent { to: usize, input: Input },
}

/// What the network does, drawn from one number.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    pub drop_percent: u64,
    pub double_percent: u64,
    pub delay_ms: u64,
}

pub const CALM: Faults = Faults { drop_percent: 0, double_percent: 0, delay_ms: 5 };

pub struct World {
    pub time: u64,
    pub partitions: BTreeMap<u16, (Coordinator, MemoryStore)>,
    pub hosts: Vec<Host>,
    pub faults: Faults,
    pub random: u64,
    /// In this order: when, and which came first.
    pub network: BTreeMap<(u64, u64), Packet>,
    packets: u64,
    /// Decides about single packets: true lets them through.
    pub filter: fn(&Packet) -> bool,
    pub runs: Vec<RunId>,
    /// Two Agents at one piece of work are not an error: what a test that breaks the bounds looks for.
    pub overlaps: Option<u64>,
}

impl World {
    pub fn new(partitions: u16, definitions: Vec<Definition>) -> Self {
        // A worker that is full of another partition's work declines, and every decline is an offer.
        let limits = Limits { stale_ms: 2_000, dead_ms: 4_000, offers: 100_000, ..Limits::default() };
        let machine = |partition| {
            let machine = Coordinator::new(partition, limits.clone());
            (partition, (machine, MemoryStore::default()))
        };
        let mut world = Self {
            time: 1_000,
            partitions: (0..partitions).map(machine).collect(),
            hosts: Vec::new(),
            faults: CALM,
            random: 1,
            network: BTreeMap::new(),
            packets: 0,
            filter: |_| true,
            runs: Vec::new(),
            overlaps: None,
        };
        for partition in 0..partitions {
            world.feed(partition, command::Input::Recover);
            for (at, definition) in definitions.iter().enumerate() {
                let (definition, hash) = (Box::new(definition.clone()), ContentHash::new(at as u128 + 1));
                world.command(partition, Command::Define { definition, hash });
            }
        }
        world
    }

    pub fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// An Agent for all partitions, begun.
    pub fn host(&mut self, settings: Settings, clock: Clock, script: Script) -> usize {
        let agent = Agent::new(settings, self.partitions.keys().copied());
        self.hosts.push(Host {
            agent,
            clock,
            frozen_until: 0,
            cut_until: 0,
            executing: BTreeMap::new(),
            script,
            stop_ms: 0,
            stopping: Vec::new(),
            is_dead: false,
            started: Vec::new(),
            stopped: Vec::new(),
            answers: Vec::new(),
            sent: Vec::new(),
            orders: Vec::new(),
        });
        let at = self.hosts.len() - 1;
        self.tell(at, Input::Begin);
        at
    }

    pub fn submit(&mut self, partition: u16, submit: Submit) -> RunId {
        let submit = Submit { random: self.draw(), ..submit };
        let effects = self.command(partition, Command::Submit(Box::new(submit)));
        let run = effects.iter().find_map(|effect| match effect {
            Effect::Reply { result: Ok(effect::Answer::Submitted { run, .. }), .. } => Some(*run),
            _ => None,
        });
        self.runs.push(run.expect("it is opened"));
        *self.runs.last().expect("it was just pushed")
    }

    /// A command from outside, which no fault touches.
    pub fn command(&mut self, partition: u16, command: Command) -> Vec<Effect> {
        let envelope = Envelope { request: RequestId::new(u64::MAX), tenant: TENANT, command };
        self.feed(partition, command::Input::Command(envelope))
    }

    pub fn status(&self, run: RunId) -> RunStatus {
        let (_, store) = &self.partitions[&run.partition()];
        store.heads().find(|head| head.id == run).expect("it is stored").status
    }

    /// One turn of a partition: handle, commit, let the effects out.
    fn feed(&mut self, partition: u16, input: command::Input) -> Vec<Effect> {
        let (machine, store) = self.partitions.get_mut(&partition).expect("it is there");
        let (mut out, mut changes) = (effect::Output::default(), Vec::new());
        machine.handle(Now::new(self.time, self.time), input, &mut out);
        machine.take_changes(&mut changes);
        store.commit(changes);
        check_state(machine).unwrap_or_else(|violation| panic!("{violation}"));
        let loads = std::mem::take(&mut out.loads);
        for effect in &out.effects {
            self.route(partition, effect);
        }
        for load in loads {
            let rows = self.partitions[&partition].1.find(&load.needs);
            out.effects.append(&mut self.feed(partition, command::Input::Loaded(Loaded { load, rows })));
        }
        out.effects
    }

    /// An effect on its way to whoever it is for; a notice goes to every life of its worker.
    fn route(&mut self, partition: u16, effect: &Effect) {
        if let Effect::Reply { request, result } = effect {
            if request.get() == u64::MAX {
                return;
            }
            let (to, request) = ((request.get() >> 48) as usize, RequestId::new(request.get() << 16 >> 16));
            let input = Input::Replied { partition, request, result: result.clone() };
            return self.post(Packet::ToAgent { to, input });
        }
        let (Effect::Offer { worker, .. }
        | Effect::Hand { worker, .. }
        | Effect::Stop { worker, .. }
        | Effect::Wake { worker }) = effect
        else {
            return;
        };
        let notice = Notice::of(effect).expect("it is for a worker");
        for to in 0..self.hosts.len() {
            if self.hosts[to].agent.settings().worker == worker.worker {
                let input = Input::Noticed { partition, notice: notice.clone() };
                self.post(Packet::ToAgent { to, input });
            }
        }
    }

    /// Puts a packet on the network. A registration is never doubled nor late: each one makes a new life.
    pub fn post(&mut self, packet: Packet) {
        let is_register = matches!(&packet, Packet::ToPartition { command: Command::Register { .. }, .. });
        let copies = if !is_register && self.draw() % 100 < self.faults.double_percent { 2 } else { 1 };
        for _ in 0..copies {
            let (Packet::ToPartition { from: host, .. } | Packet::ToAgent { to: host, .. }) = &packet;
            let is_cut = self.hosts[*host].cut_until > self.time;
            if is_cut || !(self.filter)(&packet) || self.draw() % 100 < self.faults.drop_percent {
                continue;
            }
            let most = if is_register { self.faults.delay_ms.min(20) } else { self.faults.delay_ms };
            let at = self.time + self.draw() % (most + 1);
            self.packets += 1;
            self.network.insert((at, self.packets), packet.clone());
        }
    }

    /// One turn of an Agent: handle, check, do as it says.
    pub fn tell(&mut self, at: usize, input: Input) {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let host = &mut self.hosts[at];
            if host.is_dead {
                return;
            }
            let (mut out, shown) = (Output::default(), host.clock.at(self.time));
            host.agent.handle(Now::new(shown, 0), input.clone(), &mut out);
            check(&host.agent, &out)
                .unwrap_or_else(|violation| panic!("{violation}\ninput: {input:?}\norders: {out:?}"));
            let mut again = Output::default();
            host.agent.handle(Now::new(shown, 0), Input::Pulse, &mut again);
            assert!(again.orders.is_empty(), "after {input:?} there was more to do: {again:?}");
            host.orders.extend(out.orders.iter().cloned());
            for order in out.orders {
                self.obey(at, order, &mut inputs);
            }
        }
    }

    fn obey(&mut self, at: usize, order: Order, inputs: &mut Vec<Input>) {
        let time = self.time;
        match order {
            Order::Send { partition, request, command } => {
                self.hosts[at].sent.push((time, request, command.clone()));
                self.post(Packet::ToPartition { from: at, partition, request, command });
            }
            Order::Start { grant } => {
                self.starts(at, grant.held());
                let host = &mut self.hosts[at];
                let (takes_ms, then) = (host.script)(&grant);
                host.executing.insert(grant.held(), (time + takes_ms, then));
                host.started.push(*grant);
            }
            Order::Stop { held, why } => {
                let host = &mut self.hosts[at];
                host.stopped.push((held, why));
                if host.stop_ms == 0 {
                    host.executing.remove(&held);
                    inputs.insert(0, Input::Stopped { held });
                } else {
                    host.stopping.push((time + host.stop_ms, held));
                }
            }
            Order::Answer { held, result } => {
                let host = &mut self.hosts[at];
                host.answers.push((held, result.clone()));
                if let Err(Refusal::Rejected(_)) = result {
                    inputs.insert(0, Input::Reported(Report::new(held, Then::Release)));
                }
            }
            Order::Fenced { .. } | Order::Unregistered { .. } | Order::Drained => {}
        }
    }

    /// Nobody else executes what is started now.
    fn starts(&mut self, at: usize, held: Held) {
        let is_same = |other: &Held| (other.run, other.node) == (held.run, held.node);
        for (other, host) in self.hosts.iter().enumerate() {
            let is_still = host.is_dead || host.frozen_until > self.time;
            let overlaps = !is_still && host.executing.keys().any(is_same);
            match &mut self.overlaps {
                Some(count) => *count += u64::from(overlaps),
                None => assert!(!overlaps, "{at} starts {held:?} at {}, and {other} executes it", self.time),
            }
        }
    }

    /// The next instant at which anything happens.
    fn next(&self) -> Option<u64> {
        let network = self.network.keys().next().map(|(at, _)| *at);
        let machines = self.partitions.values().filter_map(|(machine, _)| machine.next_deadline());
        let machines = machines.map(|deadline| deadline.mono);
        let hosts = self.hosts.iter().filter(|host| !host.is_dead).flat_map(|host| {
            let deadline = host.agent.next_deadline().map(|deadline| host.clock.when(deadline.mono));
            let executing = host.executing.values().map(|(at, _)| *at).min();
            let stopping = host.stopping.iter().map(|(at, _)| *at).min();
            [deadline, executing, stopping].into_iter().flatten().map(|at| at.max(host.frozen_until))
        });
        network.into_iter().chain(machines).chain(hosts).min().map(|at| at.max(self.time))
    }

    /// Lets this much true time pass.
    pub fn run(&mut self, ms: u64) {
        let end = self.time + ms;
        let (mut turns, mut last) = (0, 0);
        while let Some(at) = self.next().filter(|at| *at <= end) {
            turns = if at == last { turns + 1 } else { 0 };
            assert!(turns < 10_000, "nothing moves on at {at}");
            (self.time, last) = (at, at);
            self.turn();
        }
        self.time = end;
    }

    /// Everything that is due now happens, once.
    fn turn(&mut self) {
        let time = self.time;
        if let Some(entry) = self.network.first_entry().filter(|entry| entry.key().0 <= time) {
            match entry.remove() {
                Packet::ToPartition { from, partition, request, command } => {
                    let request = RequestId::new((from as u64) << 48 | request.get());
                    let envelope = Envelope { request, tenant: TENANT, command };
                    self.feed(partition, command::Input::Command(envelope));
                }
                Packet::ToAgent { to, input } => {
                    let until = self.hosts[to].frozen_until;
                    if until > time {
                        self.packets += 1;
                        self.network.insert((until, self.packets), Packet::ToAgent { to, input });
                    } else {
                        self.tell(to, input);
                    }
                }
            }
        }
        for partition in self.partitions.keys().copied().collect::<Vec<_>>() {
            if self.partitions[&partition].0.next_deadline().is_some_and(|deadline| deadline.mono <= time) {
                self.feed(partition, command::Input::Pulse);
            }
        }
        for at in 0..self.hosts.len() {
            self.live(at);
        }
    }

    fn live(&mut self, at: usize) {
        let time = self.time;
        let host = &mut self.hosts[at];
        if host.is_dead || host.frozen_until > time {
            return;
        }
        // Its clock first: whoever slept looks at the time before it goes on.
        if host.agent.next_deadline().is_some_and(|deadline| deadline.mono <= host.clock.at(time)) {
            self.tell(at, Input::Pulse);
        }
        let host = &mut self.hosts[at];
        let due: Vec<Held> =
            host.stopping.iter().filter(|(when, _)| *when <= time).map(|(_, held)| *held).collect();
        host.stopping.retain(|(when, _)| *when > time);
        for held in due {
            if self.hosts[at].executing.remove(&held).is_some() {
                self.tell(at, Input::Stopped { held });
            }
        }
        let done = self.hosts[at].executing.iter().find(|(_, (when, _))| *when <= time);
        if let Some((held, (_, then))) = done.map(|(held, done)| (*held, done.clone())) {
            self.hosts[at].executing.remove(&held);
            self.tell(at, Input::Reported(Report::new(held, then)));
        }
    }

    pub fn all_completed(&self) -> bool {
        self.runs.iter().all(|run| self.status(*run) == RunStatus::Completed)
    }
}

/// A worker for anything, with this many slots.
pub fn spec(slots: u32) -> WorkerSpec {
    WorkerSpec { slots, ..WorkerSpec::default() }
}
