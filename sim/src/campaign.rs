//! Many seeds on all cores, and what they add up to.

use crate::site::Site;
use crate::situation::Situation;
use crate::swarm::Profile;
use crate::tables::Tables;
use crate::trial::{self, Trial, Watching};
use serde_json::{Map, Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tenure_core::coordinator::invariants::Violation;

/// Below this many seeds nobody can expect to have seen everything.
pub const COMPLETE: u64 = 2_000;

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What kind of worlds.
    pub profile: Profile,
    /// The first seed.
    pub from: u64,
    /// How many, at the most.
    pub seeds: u64,
    /// For how long, at the most.
    pub time: Option<Duration>,
    /// How many at once.
    pub threads: usize,
    /// Only this oracle counts.
    pub only: Option<&'static str>,
}

/// What a campaign added up to.
#[derive(Debug, Default)]
pub struct Sum {
    /// Seeds that were run.
    pub seeds: u64,
    /// Audited events of all Coordinators.
    pub events: u64,
    /// Events of all queues.
    pub steps: u64,
    /// Simulated time.
    pub ms: u64,
    /// How often each fault site fired.
    pub fired: Vec<u64>,
    /// How often each situation was seen.
    pub seen: Vec<u64>,
    /// Rows of lifecycle tables that were hit.
    pub tables: Tables,
    /// Digest of each seed.
    pub digests: Vec<(u64, u64)>,
    /// The first violation, with its seed.
    pub violation: Option<(u64, Violation)>,
    /// Every oracle that fired, with how often.
    pub oracles: std::collections::BTreeMap<&'static str, u64>,
    /// How long it took.
    pub wall: Duration,
}

impl Sum {
    fn add(&mut self, seed: u64, trial: Trial) {
        self.seeds += 1;
        self.events += trial.events;
        self.steps += trial.steps;
        self.ms += trial.ms;
        self.fired.resize(Site::ALL.len(), 0);
        self.seen.resize(Situation::ALL.len(), 0);
        self.fired.iter_mut().zip(&trial.fired).for_each(|(sum, fired)| *sum += u64::from(*fired));
        self.seen.iter_mut().zip(trial.situations.counts()).for_each(|(sum, seen)| *sum += u64::from(*seen));
        self.tables.merge(&trial.tables);
        self.digests.push((seed, trial.digest));
        for number in trial.others {
            *self.oracles.entry(number).or_default() += 1;
        }
        if let Some(violation) = trial.violation {
            *self.oracles.entry(violation.number).or_default() += 1;
            if self.violation.as_ref().is_none_or(|(first, _)| seed < *first) {
                self.violation = Some((seed, violation));
            }
        }
    }

    /// Faults, situations and rows of tables that were never seen.
    pub fn unseen(&self) -> Vec<String> {
        let sites = Site::ALL.iter().zip(&self.fired).filter(|(site, fired)| site.is_fault() && **fired == 0);
        let sites = sites.map(|(site, _)| format!("fault {}", site.name()));
        let seen = Situation::ALL.iter().zip(&self.seen).filter(|(_, seen)| **seen == 0);
        let seen = seen.map(|(situation, _)| format!("situation {situation:?}: {}", situation.says()));
        let rows = self.tables.rows().into_iter().filter(|(_, is_hit)| !is_hit);
        sites.chain(seen).chain(rows.map(|(row, _)| format!("row {row}"))).collect()
    }

    /// Everything as JSON.
    pub fn to_json(&self) -> Value {
        let seconds = self.wall.as_secs_f64().max(1e-9);
        let hours = self.ms as f64 / 3_600_000.0;
        let faults: Map<String, Value> = Site::ALL
            .iter()
            .zip(&self.fired)
            .filter(|(site, _)| site.is_fault())
            .map(|(site, fired)| (site.name().to_string(), json!(fired)))
            .collect();
        let situations: Map<String, Value> = Situation::ALL
            .iter()
            .zip(&self.seen)
            .map(|(situation, seen)| (format!("{situation:?}"), json!(seen)))
            .collect();
        let rows: Map<String, Value> =
            self.tables.rows().into_iter().map(|(row, is_hit)| (row, json!(is_hit))).collect();
        json!({
            "seeds": self.seeds,
            "seconds": seconds,
            "seeds_per_s": self.seeds as f64 / seconds,
            "sim_hours": hours,
            "sim_hours_per_wall_s": hours / seconds,
            "events": self.events,
            "events_per_s": self.events as f64 / seconds,
            "events_per_sim_s": self.events as f64 * 1_000.0 / self.ms.max(1) as f64,
            "queue_events_per_s": self.steps as f64 / seconds,
            "faults": faults,
            "situations": situations,
            "table_rows": rows,
            "unseen": self.unseen(),
            "oracles": self.oracles.iter().map(|(number, count)| (number.to_string(), json!(count))).collect::<Map<_, _>>(),
            "violation": self.violation.as_ref().map(|(seed, violation)| {
                json!({ "seed": seed, "oracle": violation.number, "sentence": violation.sentence, "facts": violation.facts })
            }),
        })
    }
}

/// Runs a campaign; `progress` hears of the seeds, simulated milliseconds and faults of each world that ended.
pub fn run(plan: &Plan, progress: &(dyn Fn(u64, u64) + Sync)) -> Sum {
    let begin = Instant::now();
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let sum = Mutex::new(Sum::default());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let is_over = plan.time.is_some_and(|time| begin.elapsed() >= time);
            if at >= plan.seeds || is_over || stop.load(Ordering::Relaxed) {
                return;
            }
            let seed = plan.from + at;
            let trial =
                trial::of_seed(plan.profile, seed, Watching { only: plan.only, ..Watching::default() });
            stop.fetch_or(trial.violation.is_some(), Ordering::Relaxed);
            progress(trial.ms, trial.fired.iter().map(|fired| u64::from(*fired)).sum());
            sum.lock().unwrap_or_else(|broken| broken.into_inner()).add(seed, trial);
        }
    };
    std::thread::scope(|scope| {
        (0..plan.threads).for_each(|_| drop(scope.spawn(work)));
    });
    let mut sum = sum.into_inner().unwrap_or_else(|broken| broken.into_inner());
    sum.digests.sort_unstable();
    sum.wall = begin.elapsed();
    sum
}

/// How long work waits to be started at the 99th percentile, in steady worlds of these seeds.
fn p99(one_dead: bool, from: u64, seeds: u64) -> u32 {
    let mut waits = Vec::new();
    for seed in from..from + seeds {
        let mut config = crate::swarm::Config::of_seed(Profile::Steady, seed);
        config.one_dead = one_dead;
        let choice = crate::choice::Choice::of_seed(seed);
        waits.extend(trial::of_choice(config, choice, Watching::default()).waits);
    }
    waits.sort_unstable();
    waits.get(waits.len() * 99 / 100).copied().unwrap_or(0)
}

/// L11: with one of five workers dead, the 99th percentile of the time to start stays within three times the healthy one.
pub fn usable(from: u64, seeds: u64) -> Result<(u32, u32), Violation> {
    let (healthy, hurt) = (p99(false, from, seeds), p99(true, from, seeds));
    if healthy > 0 && hurt <= 3 * healthy {
        return Ok((healthy, hurt));
    }
    Err(Violation {
        number: "L11",
        sentence: "usable, not only live: with one of five workers dead, p99 time to start stays within 3x of healthy",
        facts: format!("{healthy} ms with five workers, {hurt} ms with four"),
    })
}
