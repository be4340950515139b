//! Faults of processes, clocks and links; the end of all faults; and the wait until everything has settled.

use crate::clock::{DRIFT_BOUND, TRUE_RATE};
use crate::packet::Proc;
use crate::rogue::Rogue;
use crate::server::Server;
use crate::site::Site;
use crate::worker::Worker;
use crate::world::{Event, STEWARD, World};
use tenure_core::agent;
use tenure_core::coordinator::command::{Command, OnRun};
use tenure_core::coordinator::invariants::Violation;
use tenure_core::coordinator::row::Row;
use tenure_core::id::{HandleIx, NodeIx, RequestId};
use tenure_core::lifecycle::{Lifecycle, Phase, RunStatus};
use tenure_core::steward::command::Input as StewardInput;

const HOUR_MS: i64 = 3_600_000;
const TEN_YEARS_MS: i64 = 10 * 365 * 24 * HOUR_MS;
/// How often it is looked whether everything has settled.
const SETTLE_EVERY_MS: u64 = 10_000;

impl World {
    fn fires(&mut self, site: Site) -> bool {
        self.choice.happens(site, 0, self.config.rates[site as usize])
    }

    fn lasts(&mut self, least: u64, most: u32) -> u64 {
        least + u64::from(self.choice.pick(Site::FaultTime, 0, most))
    }

    fn some(&mut self, first: Proc, count: usize) -> Proc {
        first + self.choice.pick(Site::FaultTarget, 0, count as u32) as usize
    }

    /// Draws the faults of processes, clocks and links for the next while.
    pub(crate) fn draw_faults(&mut self) {
        if self.choice.is_calm() {
            return;
        }
        self.draw_server_faults();
        self.draw_worker_faults();
        self.draw_clock_faults();
        self.draw_link_faults();
        if self.fires(Site::StoreFull) {
            self.store.full_until = self.now + self.lasts(500, 6_000);
        }
        if self.fires(Site::StoreSchema) && self.store.oldest_reader < 2 && self.config.servers > 1 {
            // A newer release was installed everywhere but on one server, and raised the schema.
            self.store.oldest_reader = 2;
            let old = self.some(0, self.config.servers);
            for (proc, server) in self.servers.iter_mut().enumerate() {
                server.release = if proc == old { 1 } else { 2 };
            }
        }
        if self.fires(Site::ClientStorm) {
            let index = self.some(0, self.config.clients);
            self.with_client(index, |client, around| client.storm(around));
        }
        self.after(self.config.fault_every_ms, Event::Faults);
    }

    fn draw_server_faults(&mut self) {
        let servers = self.config.servers;
        if self.fires(Site::ServerCrash) {
            let proc = self.some(0, servers);
            self.crash(proc);
        }
        if self.fires(Site::ServerStall) {
            let (proc, ms) = (self.some(0, servers), self.lasts(1_000, 45_000));
            self.pause(proc, ms);
        }
        if self.fires(Site::ServerLeave) {
            let proc = self.some(0, servers);
            if self.procs[proc].up && self.procs[proc].paused_until <= self.now {
                self.steward(proc, StewardInput::Leave);
            }
        }
    }

    fn draw_worker_faults(&mut self) {
        let (first, agents) = (self.config.servers, self.config.agents);
        let lease = self.config.lease_ms as u32;
        if self.fires(Site::WorkerCrash) {
            let proc = self.some(first, agents);
            self.crash(proc);
        }
        if self.fires(Site::WorkerStop) {
            let (proc, ms) = (self.some(first, agents), self.lasts(500, 3 * lease));
            self.pause(proc, ms);
        }
        if self.fires(Site::WorkerSleep) {
            let (proc, ms) = (self.some(first, agents), self.lasts(500, 3 * lease));
            self.pause(proc, ms);
            // Some clocks count the time a machine sleeps, some do not.
            if self.choice.pick(Site::FaultTarget, proc, 2) == 1 {
                self.procs[proc].clock.slept(self.now + ms, ms);
            }
        }
        if self.fires(Site::MassSilence) {
            let ms = self.lasts(u64::from(lease), 2 * lease);
            (first..first + agents).for_each(|proc| self.pause(proc, ms));
        }
    }

    fn draw_clock_faults(&mut self) {
        let clocks = self.config.servers + self.config.agents;
        if self.fires(Site::ClockDrift) {
            let proc = self.some(0, clocks);
            let off = u64::from(self.choice.pick(Site::FaultTime, proc, 2 * DRIFT_BOUND as u32 + 1));
            self.set_rate(proc, TRUE_RATE - DRIFT_BOUND + off);
        }
        if self.fires(Site::ClockWild) {
            let proc = self.some(0, clocks);
            let rate = [TRUE_RATE / 2, TRUE_RATE * 2][self.choice.pick(Site::FaultTime, proc, 2) as usize];
            self.set_rate(proc, rate);
        }
        if self.fires(Site::ClockFreeze) {
            let (proc, ms) = (self.some(0, clocks), self.lasts(1_000, 30_000));
            self.set_rate(proc, 0);
            let life = self.procs[proc].life;
            self.after(ms, Event::Rate { proc, life });
        }
        for (site, step) in [(Site::WallHour, HOUR_MS), (Site::WallYears, TEN_YEARS_MS)] {
            if self.fires(site) {
                let proc = self.some(0, clocks);
                let back = self.choice.pick(Site::FaultTime, proc, 2) == 1;
                self.procs[proc].clock.step_wall(if back { -step } else { step });
            }
        }
    }

    fn draw_link_faults(&mut self) {
        let all = (1_u64 << self.procs.len()) - 1;
        for site in [Site::NetSplit, Site::NetOneWay, Site::NetClog, Site::NetBridge] {
            if !self.fires(site) {
                continue;
            }
            let ms = self.lasts(1_000, 40_000);
            let mut group = 0;
            for proc in 0..self.procs.len() {
                group |= u64::from(self.choice.pick(Site::FaultTarget, proc, 2)) << proc;
            }
            let bridge = 1_u64 << self.some(0, self.procs.len());
            let (one, other) = match site {
                Site::NetBridge => (group & !bridge, all & !group & !bridge),
                _ => (group, all & !group),
            };
            let delay = (site == Site::NetClog).then_some(2_500);
            let cut = self.network.cut(one, other, site != Site::NetOneWay, delay);
            self.after(ms, Event::Heal { cut });
        }
    }

    fn set_rate(&mut self, proc: Proc, rate: u64) {
        self.procs[proc].clock.set_rate(self.now, rate);
        self.armed[proc].fill(u64::MAX);
        self.rearm(proc);
    }

    pub(crate) fn back_to_rate(&mut self, proc: Proc, life: u32) {
        if self.procs[proc].life == life {
            self.set_rate(proc, TRUE_RATE);
        }
    }

    fn pause(&mut self, proc: Proc, ms: u64) {
        let until = self.now + ms;
        let process = &mut self.procs[proc];
        process.paused_until = process.paused_until.max(until);
    }

    pub(crate) fn crash_after(&mut self, proc: Proc, ms: u64) {
        if ms == 0 {
            return self.crash(proc);
        }
        // It does nothing any more; that it is gone is noticed a little later.
        let process = &mut self.procs[proc];
        process.paused_until = process.paused_until.max(self.now + ms);
        self.after(ms, Event::Restart { proc });
    }

    /// Kills a process; it comes back after a while, in a new life.
    pub(crate) fn crash(&mut self, proc: Proc) {
        if !self.procs[proc].up || self.procs[proc].dead {
            return;
        }
        self.tell(|| format!("process {proc} is killed"));
        let process = &mut self.procs[proc];
        (process.up, process.down_since) = (false, self.now);
        process.life += 1;
        if proc < self.config.servers {
            self.oracles.server_died(proc);
        }
        let ms = self.lasts(200, 20_000);
        self.after(ms, Event::Restart { proc });
    }

    /// A process starts in a new life; one that still runs is killed first.
    pub(crate) fn restart(&mut self, proc: Proc) {
        let process = &mut self.procs[proc];
        if process.dead {
            return;
        }
        if process.up {
            process.life += 1;
            if proc < self.config.servers {
                self.oracles.server_died(proc);
            }
        }
        let process = &mut self.procs[proc];
        (process.up, process.paused_until) = (true, 0);
        process.clock.tame(self.now);
        let life = process.life;
        self.tell(|| format!("process {proc} starts in life {life}"));
        if proc < self.config.servers {
            let release = self.servers[proc].release;
            self.servers[proc] = Server::new(proc, life, &self.config);
            // Whoever starts now is of the newest release, once an old one was found wanting.
            self.servers[proc].release = if self.choice.is_calm() { 2 } else { release };
            self.armed[proc].fill(u64::MAX);
            self.call(proc, STEWARD);
        } else if proc < self.first_rogue() {
            self.workers[proc - self.config.servers] =
                Worker::new(proc, proc - self.config.servers, &self.config);
            self.armed[proc].fill(u64::MAX);
            self.agent(proc, agent::Input::Begin);
        } else if proc < self.first_client() {
            let index = proc - self.first_rogue();
            self.rogues[index] = Rogue::new(proc, self.config.agents + index, self.config.partitions);
        }
    }

    /// Faults stop. A minority stays dead; everybody else must come to rest.
    pub(crate) fn calm(&mut self) {
        self.tell(|| "faults stop".into());
        let (servers, agents) = (self.config.servers, self.config.agents);
        let dead_server = (servers > 2).then(|| self.some(0, servers));
        // The first agent can do everything, and lives.
        let dead_agent = (agents > 2).then(|| self.some(servers + 1, agents - 1));
        self.choice.calm();
        self.network.heal_all();
        self.store.full_until = 0;
        self.store.down_until = 0;
        self.outside.down_until = 0;
        for proc in 0..self.first_client() {
            let dies = Some(proc) == dead_server || Some(proc) == dead_agent || proc >= self.first_rogue();
            if dies && !self.procs[proc].dead {
                if self.procs[proc].up && proc < servers {
                    self.oracles.server_died(proc);
                }
                let down_since = if self.procs[proc].up { self.now } else { self.procs[proc].down_since };
                let process = &mut self.procs[proc];
                (process.up, process.dead, process.down_since) = (false, true, down_since);
                process.life += 1;
            } else {
                let is_old = proc < servers && self.servers[proc].release < self.store.oldest_reader;
                if is_old || !self.procs[proc].up || !self.procs[proc].clock.is_tame() {
                    self.restart(proc);
                }
            }
            self.procs[proc].paused_until = self.procs[proc].paused_until.min(self.now);
        }
        self.after(SETTLE_EVERY_MS, Event::Settle);
    }

    /// Looks whether everything has settled; an operator sees to what waits for one.
    pub(crate) fn settle(&mut self) {
        let open: Vec<Row> = self.open_runs();
        let owes = self.store.parts.iter().any(|part| {
            part.rows.rows().any(|row| matches!(row, Row::Outbox(row) if row.refused_at.is_none()))
        });
        let waits = self.clients.iter().any(|client| !client.is_idle());
        if open.is_empty() && !waits && !owes {
            self.settled_at = Some(self.now);
            let clocks: Vec<_> = (0..self.config.servers).map(|proc| self.clock(proc)).collect();
            let checked = self.oracles.at_the_end(&self.store, &self.servers, &self.config, &clocks);
            return self.hold(checked);
        }
        if self.now > self.config.horizon_ms + self.config.settle_ms {
            let facts = self.stuck(&open);
            let sentence = "every run ends, or waits for a named outside event";
            return self.hold(Err(Violation { number: "L3", sentence, facts }));
        }
        let checked = self.promptness();
        self.hold(checked);
        self.operate(&open);
        self.after(SETTLE_EVERY_MS, Event::Settle);
    }

    fn open_runs(&self) -> Vec<Row> {
        let rows = self.store.parts.iter().flat_map(|part| part.rows.rows());
        rows.filter(|row| matches!(row, Row::Run(row) if !row.head.status.is_terminal())).cloned().collect()
    }

    fn stuck(&self, open: &[Row]) -> String {
        let Some(Row::Run(row)) = open.first() else {
            let waits = self.clients.iter().filter(|client| !client.is_idle()).count();
            return format!("no run is open, but {waits} clients wait, or something is owed");
        };
        let partition = row.head.id.partition();
        let machine = self.servers.iter().enumerate().filter(|(proc, _)| self.procs[*proc].up);
        let machine = machine.filter_map(|(_, server)| server.machine(partition)).next();
        let why = machine.and_then(|machine| machine.why(row.head.tenant, row.head.id));
        let (count, status) = (open.len(), row.head.status);
        format!("{count} runs are open long after the faults; run {} is {status}: {why:?}", row.head.id)
    }

    /// What a person would do: let paused runs go on, wake what sleeps, end streams, give drained workers work again,
    /// and start fenced workers anew.
    fn operate(&mut self, open: &[Row]) {
        let mut commands = Vec::new();
        for row in open {
            let Row::Run(row) = row else { continue };
            let (run, partition) = (row.head.id, row.head.id.partition());
            if row.head.status == RunStatus::Paused {
                commands.push((partition, Command::Continue(OnRun { run, if_version: None })));
            }
            for row in
                self.store.parts[usize::from(partition)].rows.rows().filter(|row| row.run() == Some(run))
            {
                match row {
                    Row::Node(node) if node.work.phase == Phase::Suspended => {
                        commands.push((partition, Command::Wake { run, node: node.node }));
                    }
                    Row::Run(row) if row.node.as_ref().is_some_and(|work| work.phase == Phase::Suspended) => {
                        commands.push((partition, Command::Wake { run, node: NodeIx::new(0) }));
                    }
                    Row::Inbox(inbox) => {
                        if let Some(source) = inbox.sources.first().filter(|source| source.ended.is_none()) {
                            let (node, handle, count) = (inbox.node, HandleIx::new(0), source.stored);
                            commands.push((
                                partition,
                                Command::EndStream { run, node, handle, source: 0, count },
                            ));
                        }
                    }
                    _ => {}
                }
            }
        }
        for partition in 0..self.config.partitions {
            for index in 0..self.config.agents {
                let worker = crate::client::worker_id(index);
                commands.push((partition, Command::Drain { worker, on: false }));
            }
        }
        let proc = self.first_client();
        for (number, (partition, command)) in commands.into_iter().enumerate() {
            let request = RequestId::new(1 << 56 | self.now << 16 | number as u64);
            self.ask(proc, partition, request, command);
        }
        for proc in self.config.servers..self.first_rogue() {
            let worker = &self.workers[proc - self.config.servers];
            let needs_it = worker.is_fenced() || worker.is_hung();
            if !self.procs[proc].dead && (!self.procs[proc].up || needs_it) {
                self.restart(proc);
            }
        }
        for proc in 0..self.config.servers {
            if !self.procs[proc].dead && !self.procs[proc].up {
                self.restart(proc);
            }
        }
    }

    /// L1: what a dead worker held is taken back in time. L2: a worker with room gets what it could do.
    fn promptness(&mut self) -> Result<(), Violation> {
        let calm_for = self.now - self.config.horizon_ms;
        let slack = 90_000 + self.config.limits.rescue_interval_ms * 50;
        for proc in self.config.servers..self.first_rogue() {
            let process = &self.procs[proc];
            let worker = crate::client::worker_id(proc - self.config.servers);
            let gone_for = self.now.saturating_sub(process.down_since.max(self.config.horizon_ms));
            for server in (0..self.config.servers).filter(|server| self.procs[*server].up) {
                for partition in 0..self.config.partitions {
                    let Some(machine) = self.servers[server].machine(partition) else { continue };
                    let key = tenure_core::coordinator::WorkerKey { tenant: crate::client::TENANT, worker };
                    let views = machine.workers(crate::client::TENANT);
                    let Some(view) = views.iter().find(|view| view.key == key) else { continue };
                    let bound = self.config.lease_ms * 2 + slack;
                    if process.dead && gone_for > bound && !view.held.is_empty() && calm_for > bound {
                        return Err(Violation {
                            number: "L1",
                            sentence: "a lease not renewed can be taken within ttl + one tick + pacing",
                            facts: format!(
                                "worker {worker} is dead for {gone_for} ms and holds {:?}",
                                view.held[0]
                            ),
                        });
                    }
                }
            }
        }
        Ok(())
    }
}
