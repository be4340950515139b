//! The configuration of one world, drawn from its seed: how many of everything, which faults exist and how often, what
//! clients ask for, which limits are small. Each seed is lopsided in its own way, so that no average hides a corner.

use crate::choice::Dice;
use crate::client::Op;
use crate::site::Site;
use serde::{Deserialize, Serialize};
use tenure_core::limits::Limits;

/// What kind of worlds are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Everything, each seed another mix.
    Swarm,
    /// As many events in as little time as possible.
    Dense,
    /// Steady load and five workers, of which one may be dead: the contract of L11.
    Steady,
}

impl Profile {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Swarm, Self::Dense, Self::Steady];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Swarm => "swarm",
            Self::Dense => "dense",
            Self::Steady => "steady",
        }
    }

    /// The profile of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|profile| profile.name() == name)
    }
}

/// The configuration of one world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// What kind of world.
    pub profile: Profile,
    /// How many servers compete for the partitions.
    pub servers: usize,
    /// How many partitions there are.
    pub partitions: u16,
    /// How many workers run the shipped Agent.
    pub agents: usize,
    /// How many workers keep to no rule.
    pub rogues: usize,
    /// How many clients.
    pub clients: usize,
    /// How long faults and clients go on.
    pub horizon_ms: u64,
    /// How long everything may take to settle afterwards.
    pub settle_ms: u64,
    /// How long a client thinks, about.
    pub think_ms: u64,
    /// The most a client asks for.
    pub most_asks: u32,
    /// The longest ordinary way of a message.
    pub latency_ms: u32,
    /// The longest ordinary time of the store.
    pub store_ms: u32,
    /// How long work takes, about.
    pub work_ms: u32,
    /// How long a lease lives.
    pub lease_ms: u64,
    /// Slots of an agent, and how many it executes at once.
    pub slots: u32,
    /// Batches under way at once.
    pub in_flight: usize,
    /// How often faults of processes and clocks are drawn.
    pub fault_every_ms: u64,
    /// Chance of each site in 10,000, in the order of [`Site::ALL`].
    pub rates: Vec<u32>,
    /// How often each request is made, in the order of [`Op::ALL`].
    pub ops: Vec<u32>,
    /// The Coordinator's bounds.
    pub limits: Limits,
    /// How long a Shard doubts before it reloads.
    pub resolve_ms: u64,
    /// Things a Shard holds back at the most.
    pub held: usize,
    /// Events of the queue after which something must be spinning.
    pub most_steps: u64,
    /// One worker is dead from the beginning (in the steady profile).
    pub one_dead: bool,
}

impl Config {
    /// The configuration of a seed.
    pub fn of_seed(profile: Profile, seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x7465_6e75_7265);
        match profile {
            Profile::Swarm => swarm(&mut dice),
            Profile::Dense => dense(&mut dice),
            Profile::Steady => steady(&mut dice),
        }
    }

    /// The chance of a site, in 10,000.
    pub fn rate(&self, site: Site) -> u32 {
        self.rates[site as usize]
    }
}

fn base(profile: Profile) -> Config {
    Config {
        profile,
        servers: 1,
        partitions: 1,
        agents: 2,
        rogues: 0,
        clients: 1,
        horizon_ms: 300_000,
        settle_ms: 1_800_000,
        think_ms: 4_000,
        most_asks: 100,
        latency_ms: 20,
        store_ms: 5,
        work_ms: 2_000,
        lease_ms: 10_000,
        slots: 3,
        in_flight: 1,
        fault_every_ms: 5_000,
        rates: vec![0; Site::ALL.len()],
        ops: vec![10; Op::ALL.len()],
        limits: Limits::default(),
        resolve_ms: 8_000,
        held: 10_000,
        most_steps: 500_000,
        one_dead: false,
    }
}

fn swarm(dice: &mut Dice) -> Config {
    let mut config = base(Profile::Swarm);
    config.servers = dice.of(&[1, 2, 2, 3]);
    config.partitions = dice.of(&[1, 1, 2, 3]);
    config.agents = dice.between(1, 4) as usize;
    config.rogues = dice.of(&[0, 0, 1, 2]);
    config.clients = dice.between(1, 2) as usize;
    config.horizon_ms = dice.of(&[120_000, 300_000, 300_000, 600_000]);
    config.think_ms = dice.of(&[500, 2_000, 4_000, 8_000]);
    config.most_asks = dice.between(20, 120) as u32;
    config.latency_ms = dice.of(&[2, 20, 200]);
    config.store_ms = dice.of(&[1, 5, 50]);
    config.work_ms = dice.of(&[100, 2_000, 8_000]);
    config.lease_ms = dice.of(&[3_000, 10_000, 30_000]);
    config.slots = dice.between(1, 4) as u32;
    config.in_flight = dice.of(&[1, 1, 2, 3]);
    config.resolve_ms = dice.of(&[2_000, 8_000]);
    draw_faults(dice, &mut config);
    for weight in &mut config.ops {
        *weight = dice.of(&[0, 5, 10, 10, 30]);
    }
    config.ops[Op::Submit as usize] = 40;
    shrink_limits(dice, &mut config.limits);
    if dice.one_in(6) {
        config.held = dice.between(2, 30) as usize;
    }
    config
}

/// One world in ten has no faults at all; in the others each site is off, rare or frequent by itself.
fn draw_faults(dice: &mut Dice, config: &mut Config) {
    if dice.one_in(10) {
        return;
    }
    for site in Site::ALL.iter().filter(|site| site.is_fault()) {
        let (rare, often) = usual(*site);
        config.rates[*site as usize] = dice.of(&[0, 0, rare, rare, often]);
    }
}

/// How often a site fires, in 10,000: per message, per store operation, per execution, or per draw of process faults.
fn usual(site: Site) -> (u32, u32) {
    match site {
        Site::NetLose => (100, 1_000),
        Site::NetDuplicate | Site::NetTail => (100, 800),
        Site::NetReplay | Site::NetCorrupt => (30, 200),
        Site::StoreSlow | Site::StoreRetry => (50, 600),
        Site::StoreLoseBefore | Site::StoreLoseAfter | Site::StoreLate => (30, 300),
        Site::StoreNoAnswer => (50, 500),
        Site::StoreSyncError | Site::StoreCrash | Site::StoreTorn | Site::ServerCrashInCommit => (10, 100),
        Site::StoreFlip | Site::StoreSchema | Site::ServerCrashInRecovery => (300, 2_000),
        Site::WorkHang | Site::PayloadMissing | Site::PayloadDamaged => (100, 500),
        Site::Poison | Site::SlowConsumer => (300, 2_000),
        Site::ClientStorm | Site::SinkDown => (100, 500),
        _ => (100, 600),
    }
}

/// In half of the worlds a few limits are small enough to be hit.
fn shrink_limits(dice: &mut Dice, limits: &mut Limits) {
    limits.retention_ms = dice.of(&[60_000, 600_000, 86_400_000]);
    limits.sweep_interval_ms = dice.of(&[20_000, 300_000]);
    limits.page_horizon_ms = dice.of(&[2_000, 20_000, 60_000]);
    limits.resident_ended = dice.of(&[0, 2, 1_000]);
    limits.resident_keys = dice.of(&[0, 3, 1_000_000]);
    limits.stale_ms = dice.of(&[8_000, 30_000]);
    limits.dead_ms = limits.stale_ms * dice.of(&[2, 4]);
    limits.worker_retention_ms = dice.of(&[60_000, 86_400_000]);
    limits.outbox_retry_ms = dice.of(&[2_000, 10_000]);
    limits.age_per_priority_ms = dice.of(&[10, 10_000]);
    if dice.one_in(2) {
        limits.rescue_portion = dice.of(&[1, 2, 1_000]);
        limits.rescue_interval_ms = dice.of(&[100, 1_000]);
        limits.pulse_portion = dice.of(&[1, 3, 10_000]);
        limits.live_runs = dice.of(&[4, 20, 10_000_000]);
        limits.offers = dice.of(&[2, 32]);
        limits.late_results = dice.of(&[1, 16]);
        limits.poll = dice.of(&[1, 10_000]);
        limits.message_ids = dice.of(&[3, 100_000]);
        limits.outbox = dice.of(&[2, 1_000_000]);
    }
}

/// As many events in as little time as possible, with every oracle on.
fn dense(dice: &mut Dice) -> Config {
    let mut config = base(Profile::Dense);
    config.agents = 4;
    config.clients = 2;
    config.horizon_ms = 60_000;
    config.think_ms = 100;
    config.most_asks = 100_000;
    config.most_steps = 50_000_000;
    config.work_ms = 50;
    config.latency_ms = 2;
    config.store_ms = 2;
    config.slots = 16;
    draw_faults(dice, &mut config);
    config.ops = vec![1; Op::ALL.len()];
    config.ops[Op::Submit as usize] = 200;
    config
}

/// Steady load on five workers.
fn steady(dice: &mut Dice) -> Config {
    let mut config = base(Profile::Steady);
    config.agents = 5;
    config.clients = 1;
    config.horizon_ms = 120_000;
    config.think_ms = dice.of(&[300, 500]);
    config.most_asks = 100_000;
    config.work_ms = 500;
    config.slots = 2;
    config.ops = vec![0; Op::ALL.len()];
    config.ops[Op::Submit as usize] = 1;
    config
}
