//! A whole deployment in one value: servers, store, workers, clients, network and clocks, moved by one queue of events and
//! one source of choice. It can be cloned, and the same choices give the same world, to the last bit.

use crate::choice::Choice;
use crate::client::{Client, Surroundings};
use crate::clock::Clock;
use crate::network::Network;
use crate::oracle::Oracles;
use crate::outside::Outside;
use crate::packet::{Packet, Proc};
use crate::rogue::Rogue;
use crate::server::{Server, StoreSays};
use crate::site::Site;
use crate::store::{Op, Store};
use crate::swarm::Config;
use crate::worker::{Around, Wish, Worker};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use tenure_core::agent;
use tenure_core::coordinator::command::Held;
use tenure_core::coordinator::invariants::Violation;
use tenure_core::definition::Definition;
use tenure_core::id::RunId;
use tenure_core::time::{Now, Time};

/// Something that will happen.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Arrive {
        to: Proc,
        packet: Box<Packet>,
    },
    Execute {
        server: Proc,
        life: u32,
        op: Box<Op>,
    },
    /// A commit nobody waits for any more reaches the store (F17).
    ExecuteLate {
        op: Box<Op>,
    },
    StoreSays {
        server: Proc,
        life: u32,
        says: Box<StoreSays>,
    },
    Wake {
        proc: Proc,
        which: u16,
    },
    Tick {
        proc: Proc,
        life: u32,
        held: Held,
    },
    Act {
        proc: Proc,
    },
    Patience {
        proc: Proc,
    },
    Faults,
    Restart {
        proc: Proc,
    },
    Heal {
        cut: u32,
    },
    Rate {
        proc: Proc,
        life: u32,
    },
    Calm,
    Settle,
}

#[derive(Debug, Clone)]
struct Scheduled {
    at: u64,
    seq: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.seq) == (other.at, other.seq)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.seq).cmp(&(other.at, other.seq))
    }
}

/// What every process has.
#[derive(Debug, Clone)]
pub struct Process {
    /// It runs.
    pub up: bool,
    /// It will never run again.
    pub dead: bool,
    /// Which life of it.
    pub life: u32,
    /// It stands still until then.
    pub paused_until: u64,
    /// Since when it has been down.
    pub down_since: u64,
    /// Its clocks.
    pub clock: Clock,
}

/// A whole deployment.
#[derive(Debug, Clone)]
pub struct World {
    /// What it was made from.
    pub config: Config,
    /// Where its choices come from.
    pub choice: Choice,
    /// True time, in milliseconds.
    pub now: u64,
    /// What it violated first, if anything.
    pub violation: Option<Violation>,
    /// Only this oracle ends the world; what others find is counted.
    pub only: Option<&'static str>,
    /// Oracles that fired and did not end the world.
    pub others: Vec<&'static str>,
    /// What was seen and what is checked.
    pub oracles: Oracles,
    /// All processes, in the order servers, agents, rogues, clients, the outside.
    pub procs: Vec<Process>,
    pub(crate) store: Store,
    pub(crate) servers: Vec<Server>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) rogues: Vec<Rogue>,
    pub(crate) clients: Vec<Client>,
    pub(crate) outside: Outside,
    pub(crate) network: Network,
    pub(crate) definitions: Arc<Vec<Definition>>,
    /// When it came to rest after the faults, if it did.
    pub settled_at: Option<u64>,
    /// Lines of what happened, if somebody wants to read them.
    pub trace: Option<Vec<String>>,
    queue: BinaryHeap<Reverse<Scheduled>>,
    seq: u64,
    /// Events that happened.
    pub steps: u64,
    pub(crate) armed: Vec<Vec<u64>>,
    digest: u64,
    wishes: Vec<Wish>,
}

/// Which wake-up is a Steward's.
pub(crate) const STEWARD: u16 = u16::MAX;

impl World {
    /// The world of a configuration and a source of choice.
    pub fn new(config: Config, choice: Choice) -> Self {
        let definitions = Arc::new(crate::definitions::all(config.lease_ms));
        let (servers, agents, rogues, clients) =
            (config.servers, config.agents, config.rogues, config.clients);
        let count = servers + agents + rogues + clients + 1;
        let beginning = |proc: usize| Clock::new(1_000 * proc as u64, 1_700_000_000_000 + 977 * proc as u64);
        let procs = (0..count).map(|proc| Process {
            up: true,
            dead: false,
            life: 1,
            paused_until: 0,
            down_since: 0,
            clock: beginning(proc),
        });
        let first_worker = servers;
        let first_rogue = first_worker + agents;
        let first_client = first_rogue + rogues;
        let mut world = Self {
            store: Store::new(config.partitions),
            servers: (0..servers).map(|proc| Server::new(proc, 1, &config)).collect(),
            workers: (0..agents).map(|index| Worker::new(first_worker + index, index, &config)).collect(),
            rogues: (0..rogues).map(|n| Rogue::new(first_rogue + n, agents + n, config.partitions)).collect(),
            clients: (0..clients).map(|index| Client::new(first_client + index)).collect(),
            outside: Outside::new(count - 1),
            network: Network::new(count),
            oracles: Oracles::new(&config),
            procs: procs.collect(),
            armed: vec![vec![u64::MAX; usize::from(config.partitions) + 1]; servers + agents],
            definitions,
            config,
            choice,
            now: 0,
            violation: None,
            only: None,
            others: Vec::new(),
            settled_at: None,
            trace: None,
            queue: BinaryHeap::new(),
            seq: 0,
            steps: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            wishes: Vec::new(),
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for server in 0..self.config.servers {
            self.call(server, STEWARD);
        }
        for index in 0..self.config.agents {
            let proc = self.config.servers + index;
            if self.config.one_dead && index == 0 {
                (self.procs[proc].up, self.procs[proc].dead) = (false, true);
            } else {
                self.agent(proc, agent::Input::Begin);
            }
        }
        let partitions = self.config.partitions;
        let definitions = self.definitions.clone();
        self.with_client(0, |client, around| client.begin(&definitions, partitions, around));
        for proc in self.first_rogue()..self.procs.len() {
            let after = self.think(proc);
            self.at(after, Event::Act { proc });
        }
        self.at(self.config.fault_every_ms, Event::Faults);
        self.at(self.config.horizon_ms, Event::Calm);
    }

    pub(crate) fn first_rogue(&self) -> Proc {
        self.config.servers + self.config.agents
    }

    pub(crate) fn first_client(&self) -> Proc {
        self.first_rogue() + self.config.rogues
    }

    pub(crate) fn outside_proc(&self) -> Proc {
        self.procs.len() - 1
    }

    /// What a process's clocks show.
    pub fn clock(&self, proc: Proc) -> Now {
        self.procs[proc].clock.read(self.now)
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.seq += 1;
        self.queue.push(Reverse(Scheduled { at: at.max(self.now), seq: self.seq, event }));
    }

    pub(crate) fn after(&mut self, ms: u64, event: Event) {
        self.at(self.now + ms, event);
    }

    /// Runs until it is over: all is settled, or something was violated, or the time is up.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Lets one event happen. False if the world is over.
    pub fn step(&mut self) -> bool {
        if self.violation.is_some() || self.settled_at.is_some() {
            return false;
        }
        let Some(Reverse(next)) = self.queue.pop() else { return false };
        self.now = next.at;
        self.steps += 1;
        if self.steps > self.config.most_steps {
            let sentence = "every run ends, or waits for a named outside event";
            let facts = format!(
                "after {} events at {} ms the world does not come to rest: something spins",
                self.steps, self.now
            );
            self.violation.get_or_insert(Violation { number: "L3", sentence, facts });
            return false;
        }
        self.happen(next.event);
        true
    }

    /// Puts facts into the digest of everything that happened.
    pub(crate) fn note(&mut self, facts: [u64; 3]) {
        for fact in facts {
            self.digest = (self.digest.rotate_left(5) ^ fact).wrapping_mul(0x517c_c1b7_2722_0a95);
        }
    }

    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9}ms  {}", now, line()));
        }
    }

    /// The process an event is for, if it is for one.
    fn target(event: &Event) -> Option<Proc> {
        match event {
            Event::Arrive { to, .. } => Some(*to),
            Event::StoreSays { server, .. } => Some(*server),
            Event::Wake { proc, .. }
            | Event::Tick { proc, .. }
            | Event::Act { proc }
            | Event::Patience { proc } => Some(*proc),
            _ => None,
        }
    }

    fn happen(&mut self, event: Event) {
        if let Some(proc) = Self::target(&event) {
            let process = &self.procs[proc];
            if !process.up {
                return;
            }
            if process.paused_until > self.now {
                let until = process.paused_until;
                return self.at(until, event);
            }
            self.note([self.now, proc as u64, 1]);
            if self.trace.is_some()
                && let Event::Arrive { to, packet } = &event
            {
                let line = format!("{to} <- {packet:?}");
                self.tell(|| line);
            } else if self.trace.is_some() {
                let line = format!("{event:?}");
                self.tell(|| line);
            }
        }
        match event {
            Event::Arrive { to, packet } => self.arrive(to, *packet),
            Event::Execute { server, life, op } => self.execute(server, life, *op),
            Event::ExecuteLate { op } => self.execute_late(*op),
            Event::StoreSays { server, life, says } => self.store_says(server, life, *says),
            Event::Wake { proc, which } => self.wake(proc, which),
            Event::Tick { proc, life, held } => self.tick(proc, life, held),
            Event::Act { proc } => self.act(proc),
            Event::Patience { proc } => self.patience(proc),
            Event::Faults => self.draw_faults(),
            Event::Restart { proc } => self.restart(proc),
            Event::Heal { cut } => self.network.heal(cut),
            Event::Rate { proc, life } => self.back_to_rate(proc, life),
            Event::Calm => self.calm(),
            Event::Settle => self.settle(),
        }
    }

    fn armed(&mut self, proc: Proc, which: u16) -> &mut u64 {
        let at = if which == STEWARD { usize::from(self.config.partitions) } else { usize::from(which) };
        &mut self.armed[proc][at]
    }

    fn wake(&mut self, proc: Proc, which: u16) {
        // A call that was armed before an earlier one is out of date.
        let now = self.now;
        let armed = self.armed(proc, which);
        if *armed > now {
            return;
        }
        *armed = u64::MAX;
        if proc >= self.config.servers {
            self.agent(proc, agent::Input::Pulse);
        } else if which == STEWARD {
            self.steward(proc, tenure_core::steward::command::Input::Pulse);
        } else {
            self.shard(proc, which, tenure_core::shard::command::Input::Pulse);
        }
    }

    /// Sees to it that a machine is called when it wants to be.
    pub(crate) fn arm(&mut self, proc: Proc, which: u16, mono: Option<u64>) {
        let Some(at) = mono.and_then(|mono| self.procs[proc].clock.when(mono, self.now)) else { return };
        // A deadline in the past is looked at in the next millisecond, not in this one for ever.
        let at = at.max(self.now + 1);
        if at < *self.armed(proc, which) {
            *self.armed(proc, which) = at;
            self.at(at, Event::Wake { proc, which });
        }
    }

    /// Calls a machine now, whatever it is armed for.
    pub(crate) fn call(&mut self, proc: Proc, which: u16) {
        *self.armed(proc, which) = self.now;
        self.at(self.now, Event::Wake { proc, which });
    }

    /// Calls every machine of a process anew: its clock was changed.
    pub(crate) fn rearm(&mut self, proc: Proc) {
        if proc < self.config.servers {
            self.call(proc, STEWARD);
            (0..self.config.partitions).for_each(|which| self.call(proc, which));
        } else if proc < self.first_rogue() {
            self.call(proc, 0);
        }
    }

    fn arrive(&mut self, to: Proc, packet: Packet) {
        if to < self.config.servers {
            return self.server_packet(to, packet);
        }
        if to < self.first_rogue() {
            return match packet {
                Packet::Told(told) => {
                    if let crate::packet::Reply::Decided(result) = told.reply {
                        let (partition, request) = (told.partition, told.request);
                        self.agent(to, agent::Input::Replied { partition, request, result });
                    }
                }
                Packet::Notice(partition, notice) => {
                    self.agent(to, agent::Input::Noticed { partition, notice })
                }
                _ => {}
            };
        }
        if to < self.first_client() {
            let rogue = &mut self.rogues[to - self.config.servers - self.config.agents];
            return match packet {
                Packet::Told(told) => rogue.told(told),
                Packet::Notice(_, notice) => rogue.noticed(notice),
                _ => {}
            };
        }
        if to == self.outside_proc() {
            return self.outside_packet(packet);
        }
        if let Packet::Told(told) = packet {
            let index = to - self.first_client();
            let answered = self.with_client(index, |client, around| client.told(told, around));
            if let Some(answered) = answered {
                let result = self.oracles.answered(&self.store, &answered);
                self.hold(result);
            }
        }
    }

    /// Keeps the first violation.
    pub(crate) fn hold(&mut self, result: Result<(), Violation>) {
        let Err(violation) = result else { return };
        if self.only.is_none_or(|only| only == violation.number) {
            self.violation.get_or_insert(violation);
        } else if !self.others.contains(&violation.number) {
            self.others.push(violation.number);
        }
    }

    /// Machine time of each partition, as an edge would stamp it.
    fn times(&self) -> Vec<Time> {
        (0..self.config.partitions)
            .map(|partition| {
                let machines = self.servers.iter().filter_map(|server| server.machine(partition));
                machines.map(|machine| machine.now()).max().unwrap_or(Time::ZERO)
            })
            .collect()
    }

    pub(crate) fn with_client<T>(
        &mut self,
        index: usize,
        act: impl FnOnce(&mut Client, &mut Surroundings<'_>) -> T,
    ) -> T {
        let times = self.times();
        let (mut out, proc) = (Vec::new(), self.first_client() + index);
        let mut around = Surroundings {
            choice: &mut self.choice,
            now: self.now,
            servers: self.config.servers,
            times: &times,
            workers: self.config.agents + self.config.rogues,
            out: &mut out,
        };
        let result = act(&mut self.clients[index], &mut around);
        for (to, packet) in out {
            self.send(proc, to, packet);
        }
        if let Some(at) = self.clients[index].next_deadline() {
            self.at(at + 1, Event::Patience { proc });
        }
        result
    }

    fn patience(&mut self, proc: Proc) {
        if proc == self.outside_proc() {
            return;
        }
        let index = proc - self.first_client();
        if self.clients[index].next_deadline().is_some_and(|at| at <= self.now) {
            self.with_client(index, |client, around| client.lose_patience(around));
        }
    }

    fn think(&mut self, proc: Proc) -> u64 {
        let most = self.config.think_ms as u32 * 2;
        self.now + 1 + u64::from(self.choice.pick(Site::ClientWait, proc, most))
    }

    fn act(&mut self, proc: Proc) {
        if self.choice.is_calm() && proc != self.outside_proc() {
            return;
        }
        if proc == self.outside_proc() {
            self.outside_acts();
            return self.after(3_000, Event::Act { proc });
        }
        if proc < self.first_client() {
            let index = proc - self.first_rogue();
            let runs = self.known_runs();
            if let Some((partition, command)) = self.rogues[index].act(&runs, &mut self.choice) {
                let request = self.rogues[index].request();
                self.ask(proc, partition, request, command);
            }
        } else {
            let index = proc - self.first_client();
            if self.clients[index].asked() >= self.config.most_asks {
                return;
            }
            let (weights, definitions) = (self.config.ops.clone(), self.definitions.clone());
            self.with_client(index, |client, around| client.act(&weights, &definitions, around));
        }
        let at = self.think(proc);
        self.at(at, Event::Act { proc });
    }

    fn known_runs(&self) -> Vec<RunId> {
        self.clients
            .iter()
            .flat_map(|client| client.runs.iter().rev().take(4))
            .map(|known| known.run)
            .collect()
    }

    /// Feeds a worker's Agent, and does what the worker wants.
    pub(crate) fn agent(&mut self, proc: Proc, input: agent::Input) {
        self.with_worker(proc, |worker, around| worker.feed(input, around));
    }

    fn tick(&mut self, proc: Proc, life: u32, held: Held) {
        if self.procs[proc].life != life {
            return;
        }
        let wrote = self.with_worker(proc, |worker, around| worker.tick(held, around));
        if wrote {
            let tame = self.procs[proc].clock.is_tame()
                && self.procs[..self.config.servers].iter().all(|one| one.clock.is_tame());
            let result = self.oracles.wrote_outside(held, tame);
            self.hold(result);
        }
    }

    fn with_worker<T>(&mut self, proc: Proc, act: impl FnOnce(&mut Worker, &mut Around<'_>) -> T) -> T {
        let mut wishes = std::mem::take(&mut self.wishes);
        let now = self.clock(proc);
        let worker = &mut self.workers[proc - self.config.servers];
        let mut around = Around { choice: &mut self.choice, config: &self.config, now, wishes: &mut wishes };
        let result = act(worker, &mut around);
        let checked = worker.violation.take().map_or(Ok(()), Err);
        let deadline = worker.agent.next_deadline().map(|deadline| deadline.mono);
        self.hold(checked);
        let life = self.procs[proc].life;
        for wish in wishes.drain(..) {
            match wish {
                Wish::Send(partition, request, command) => self.ask(proc, partition, request, command),
                Wish::Tick(held, ms) => self.after(ms, Event::Tick { proc, life, held }),
                Wish::Drained => self.procs[proc].up = false,
            }
        }
        self.wishes = wishes;
        self.arm(proc, 0, deadline);
        result
    }

    /// A digest of everything that happened and of everything there is.
    pub fn digest(&self) -> u64 {
        use std::hash::{Hash, Hasher};
        let mut hasher = crate::digest::Fnv::default();
        (self.digest, self.now, self.steps).hash(&mut hasher);
        for part in &self.store.parts {
            (part.ownership, part.batch).hash(&mut hasher);
            part.rows.rows().for_each(|row| row.hash(&mut hasher));
        }
        for server in &self.servers {
            for partition in 0..self.config.partitions {
                if let Some(machine) = server.machine(partition) {
                    machine.digest(&mut hasher);
                }
            }
        }
        hasher.finish()
    }
}

impl World {
    /// What every process is doing, for people.
    pub fn describe(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (proc, process) in self.procs.iter().enumerate() {
            let _ =
                write!(text, "process {proc}: up {} dead {} life {}", process.up, process.dead, process.life);
            if proc < self.config.servers {
                for partition in 0..self.config.partitions {
                    let server = &self.servers[proc];
                    let _ = write!(text, "; partition {partition} {}", server.standing(partition));
                }
            } else if proc < self.first_rogue() {
                let agent = &self.workers[proc - self.config.servers].agent;
                let _ = write!(text, "; {:?} {:?}", agent.next_deadline(), agent.session(0));
                for piece in agent.pieces() {
                    let _ = write!(text, "\n    {piece:?}");
                }
            }
            text.push('\n');
        }
        for server in self.servers.iter().enumerate().filter(|(proc, _)| self.procs[*proc].up) {
            for partition in 0..self.config.partitions {
                if let Some(machine) = server.1.machine(partition) {
                    let _ = writeln!(
                        text,
                        "partition {partition} at {}: {:?}",
                        machine.now(),
                        machine.next_deadline()
                    );
                    for view in machine.workers(crate::client::TENANT) {
                        let _ = writeln!(text, "    {view:?} could do {:?}", machine.offers(view.key, 3));
                    }
                }
            }
        }
        text
    }
}
