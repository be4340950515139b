//! `tenure-sim`: simulates deployments of Tenure, replays and shrinks what fails, and hunts planted bugs.

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_core::coordinator::invariants::Violation;
use tenure_sim::campaign::{self, COMPLETE, Plan, Sum};
use tenure_sim::swarm::Profile;
use tenure_sim::tape::Tape;
use tenure_sim::trial::{self, Watching};
use tenure_sim::{hunt, shrink};

/// Nothing was found.
const FINE: u8 = 0;
/// A guarantee was violated.
const VIOLATED: u8 = 1;
/// The command line or a file is not right.
const USAGE: u8 = 2;
/// Some fault or situation never came up.
const INCOMPLETE: u8 = 3;

#[derive(Parser)]
#[command(
    version,
    about = "Simulates deployments of Tenure: crashes, partitions, skewed clocks and bad disks",
    after_help = "Examples:\n  tenure-sim run --seeds 2000\n  tenure-sim replay 4711 --trace\n  tenure-sim shrink target/tapes/seed-4711.tape\n  tenure-sim bugs --only complete-skips-the-fence\n\nExit codes: 0 nothing found, 1 a guarantee was violated, 2 bad usage, 3 the campaign was not complete."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds, each a world of its own.
    Run {
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
        /// The first one.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Stop after so many minutes.
        #[arg(long)]
        minutes: Option<u64>,
        /// What kind of worlds: swarm, dense or steady.
        #[arg(long, default_value = "swarm")]
        profile: String,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
        /// Write the digest of every seed to this file.
        #[arg(long)]
        digests: Option<PathBuf>,
        /// Compare the digest of every seed with this file, which another process wrote.
        #[arg(long)]
        compare: Option<PathBuf>,
    },
    /// Runs one seed or tape again.
    Replay {
        /// A number, or the path of a tape.
        what: String,
        /// Show everything that happens.
        #[arg(long)]
        trace: bool,
        /// What kind of world, for a seed.
        #[arg(long, default_value = "swarm")]
        profile: String,
        /// Write the tape of a seed to this file, whatever comes of it.
        #[arg(long)]
        save: Option<PathBuf>,
    },
    /// Makes a failing tape smaller.
    Shrink {
        /// The tape.
        tape: PathBuf,
    },
    /// Plants bugs in a copy of core and hunts each with the oracle meant for it.
    Bugs {
        /// Only this bug.
        #[arg(long)]
        only: Option<String>,
        /// Seconds for each.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Seeds for each.
        #[arg(long, default_value_t = 100_000)]
        seeds: u64,
        /// For each bug, which oracles fire when each runs alone, over this many seeds.
        #[arg(long)]
        matrix: Option<u64>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Hunts one planted bug (in the program that `bugs` builds).
    #[command(hide = true)]
    Hunt {
        name: String,
        #[arg(long, default_value_t = 100_000)]
        seeds: u64,
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// The oracle that is to find it.
        #[arg(long)]
        oracle: Option<String>,
        /// Do not stop at the first find.
        #[arg(long)]
        all: bool,
        /// Write a tape of what was found, made as small as it gets.
        #[arg(long)]
        shrink: Option<PathBuf>,
    },
    /// Shows which faults, situations and rows of the lifecycle tables a campaign reaches.
    Coverage {
        /// How many seeds.
        #[arg(long, default_value_t = COMPLETE)]
        seeds: u64,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measures how fast worlds run, with all oracles on.
    Bench {
        /// Seconds for each profile.
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    trial::silence_panics();
    let result = match arguments.command {
        Command::Run { seeds, from, minutes, profile, json, digests, compare } => profile_of(&profile)
            .and_then(|profile| {
                let time = minutes.map(|minutes| Duration::from_secs(60 * minutes));
                let plan = Plan { profile, from, seeds, time, threads: threads(), only: None };
                run(&plan, json, digests.as_deref(), compare.as_deref())
            }),
        Command::Replay { what, trace, profile, save } => {
            profile_of(&profile).and_then(|profile| replay(&what, trace, profile, save.as_deref()))
        }
        Command::Shrink { tape } => shrink_tape(&tape),
        Command::Bugs { only, seconds, seeds, matrix, json } => {
            hunt::bugs(only.as_deref(), seconds, seeds, matrix, json)
                .map(|all| if all { FINE } else { VIOLATED })
        }
        Command::Hunt { name, seeds, seconds, oracle, all, shrink } => {
            hunt::one(&name, seeds, seconds, oracle.as_deref(), all, shrink.as_deref())
        }
        Command::Coverage { seeds, json } => coverage(seeds, json),
        Command::Bench { seconds, json } => Ok(bench(seconds, json)),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("tenure-sim: {error}");
            ExitCode::from(USAGE)
        }
    }
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn profile_of(name: &str) -> Result<Profile, String> {
    Profile::of_name(name).ok_or_else(|| {
        let known: Vec<&str> = Profile::ALL.iter().map(|profile| profile.name()).collect();
        format!("there is no profile {name:?}; there are {}", known.join(", "))
    })
}

/// Runs a plan with a bar that shows how it goes.
fn with_bar(plan: &Plan) -> Sum {
    let bar = ProgressBar::new(plan.seeds);
    let style = "{bar:30} {pos}/{len} seeds, {per_sec}, {msg}, {eta} left";
    bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()));
    let (ms, faults) = (AtomicU64::new(0), AtomicU64::new(0));
    let sum = campaign::run(plan, &|one_ms, one_faults| {
        let ms = ms.fetch_add(one_ms, Ordering::Relaxed) + one_ms;
        let faults = faults.fetch_add(one_faults, Ordering::Relaxed) + one_faults;
        bar.set_message(format!("{:.1} h simulated, {faults} faults", ms as f64 / 3.6e6));
        bar.inc(1);
    });
    bar.finish_and_clear();
    sum
}

fn run(plan: &Plan, json: bool, digests: Option<&Path>, compare: Option<&Path>) -> Result<u8, String> {
    let expected = compare.map(read_digests).transpose()?;
    let sum = with_bar(plan);
    if let Some(path) = digests {
        write_digests(path, &sum)?;
    }
    let mut report = sum.to_json();
    let mut code = FINE;
    if let Some((seed, violation)) = &sum.violation {
        code = VIOLATED;
        report["tape"] = json!(write_tape(plan.profile, *seed, violation)?);
    } else if let Some(different) = expected.and_then(|expected| first_difference(&expected, &sum.digests)) {
        code = VIOLATED;
        eprintln!("S49 is broken (same inputs, same outputs and digest): {different}");
    } else if plan.profile == Profile::Swarm && plan.seeds >= COMPLETE {
        match campaign::usable(plan.from, 10) {
            Ok((healthy, hurt)) => {
                report["l11_p99_ms"] = json!({ "healthy": healthy, "one_of_five_dead": hurt })
            }
            Err(violation) => {
                code = VIOLATED;
                eprintln!("{violation}");
            }
        }
        if code == FINE && !sum.unseen().is_empty() && plan.time.is_none() {
            code = INCOMPLETE;
        }
    }
    if json {
        println!("{report:#}");
    } else {
        summarise(&report);
    }
    Ok(code)
}

fn summarise(report: &Value) {
    println!(
        "{} seeds in {:.1} s: {:.0} seeds/s, {:.1} simulated hours per second, {:.0} events/s",
        report["seeds"],
        report["seconds"].as_f64().unwrap_or(0.0),
        report["seeds_per_s"].as_f64().unwrap_or(0.0),
        report["sim_hours_per_wall_s"].as_f64().unwrap_or(0.0),
        report["events_per_s"].as_f64().unwrap_or(0.0),
    );
    let unseen = report["unseen"].as_array().map_or(&[][..], Vec::as_slice);
    if !unseen.is_empty() && report["violation"].is_null() {
        println!("{} faults, situations or rows were never seen:", unseen.len());
        unseen.iter().filter_map(Value::as_str).for_each(|one| println!("  {one}"));
    }
}

/// Records the world of a seed that failed, and says what failed and how to see it again.
fn write_tape(profile: Profile, seed: u64, violation: &Violation) -> Result<String, String> {
    let (tape, _) = Tape::of_seed(profile, seed, None);
    let path = PathBuf::from(format!("target/tapes/seed-{seed}.tape"));
    tape.write(&path)?;
    eprintln!("{violation}");
    eprintln!("seed {seed}, {} choices, in {}", tape.steps.len(), path.display());
    let profile =
        if profile == Profile::Swarm { String::new() } else { format!(" --profile {}", profile.name()) };
    eprintln!("see it again:  tenure-sim replay {seed}{profile} --trace");
    eprintln!("make it small: tenure-sim shrink {}", path.display());
    Ok(path.display().to_string())
}

fn write_digests(path: &Path, sum: &Sum) -> Result<(), String> {
    let lines: String = sum.digests.iter().map(|(seed, digest)| format!("{seed} {digest:016x}\n")).collect();
    std::fs::write(path, lines).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_digests(path: &Path) -> Result<Vec<(u64, u64)>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let line = |(at, line): (usize, &str)| {
        let pair = line.split_once(' ');
        let pair =
            pair.and_then(|(seed, digest)| Some((seed.parse().ok()?, u64::from_str_radix(digest, 16).ok()?)));
        pair.ok_or_else(|| format!("{}:{}: a line is a seed and a digest", path.display(), at + 1))
    };
    text.lines().enumerate().map(line).collect()
}

fn first_difference(expected: &[(u64, u64)], found: &[(u64, u64)]) -> Option<String> {
    if expected.len() != found.len() {
        return Some(format!("{} seeds there, {} here", expected.len(), found.len()));
    }
    let different = expected.iter().zip(found).find(|(expected, found)| expected != found);
    different.map(|((seed, there), (_, here))| {
        format!("seed {seed} has digest {there:016x} there, {here:016x} here")
    })
}

fn replay(what: &str, trace: bool, profile: Profile, save: Option<&Path>) -> Result<u8, String> {
    let watching = Watching { trace, ..Watching::default() };
    let trial = match what.parse::<u64>() {
        Ok(seed) => {
            if let Some(path) = save {
                Tape::of_seed(profile, seed, None).0.write(path)?;
            }
            trial::of_seed(profile, seed, watching)
        }
        Err(_) => {
            let tape = Tape::read(Path::new(what))?;
            let trial = tape.replay(watching);
            println!("{} steps, recorded with commit {}", tape.steps.len(), tape.commit);
            if trial.digest != tape.digest {
                println!("it goes another way than when it was recorded: the program has changed since");
            }
            trial
        }
    };
    trial.trace.iter().for_each(|line| println!("{line}"));
    println!(
        "digest {:016x} after {} events and {:.1} simulated s",
        trial.digest,
        trial.steps,
        trial.ms as f64 / 1_000.0
    );
    Ok(match trial.violation {
        None => FINE,
        Some(violation) => {
            eprintln!("{violation}");
            VIOLATED
        }
    })
}

fn shrink_tape(path: &Path) -> Result<u8, String> {
    let tape = Tape::read(path)?;
    let replayed = tape.replay(Watching::default()).violation;
    if replayed.is_none_or(|violation| violation.number != tape.oracle) {
        return Err(format!("{}: it does not fail any more, so there is nothing to shrink", path.display()));
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(200));
    let small = shrink::shrink(&tape, &mut |left| bar.set_message(format!("{left} steps left")));
    bar.finish_and_clear();
    let to = path.with_extension("min.tape");
    small.write(&to)?;
    println!("{} steps became {}, in {}", tape.steps.len(), small.steps.len(), to.display());
    Ok(FINE)
}

fn coverage(seeds: u64, json: bool) -> Result<u8, String> {
    let plan = Plan { profile: Profile::Swarm, from: 1, seeds, time: None, threads: threads(), only: None };
    let report = with_bar(&plan).to_json();
    if json {
        println!("{report:#}");
    } else {
        for (title, part) in
            [("faults fired", "faults"), ("situations seen", "situations"), ("rows hit", "table_rows")]
        {
            println!("{title}:");
            for (name, count) in report[part].as_object().into_iter().flatten() {
                println!("  {:>10}  {name}", count.to_string());
            }
        }
    }
    let unseen = report["unseen"].as_array().map_or(0, Vec::len);
    Ok(if unseen == 0 { FINE } else { INCOMPLETE })
}

fn bench(seconds: u64, json: bool) -> u8 {
    let time = Some(Duration::from_secs(seconds));
    let measure = |profile: Profile| {
        let plan = Plan { profile, from: 1, seeds: u64::MAX >> 1, time, threads: threads(), only: None };
        let sum = campaign::run(&plan, &|_, _| ());
        let report = sum.to_json();
        let per_core = report["events_per_s"].as_f64().unwrap_or(0.0) / threads() as f64;
        (
            sum.violation.is_none(),
            json!({
                "cores": threads(),
                "seeds_per_s": report["seeds_per_s"],
                "sim_hours_per_wall_s": report["sim_hours_per_wall_s"],
                "events_per_sim_s": report["events_per_sim_s"],
                "events_per_s_per_core": per_core,
                "queue_events_per_s": report["queue_events_per_s"],
            }),
        )
    };
    let ((swarm_fine, swarm), (dense_fine, dense)) = (measure(Profile::Swarm), measure(Profile::Dense));
    let report = json!({ "swarm": swarm, "dense": dense });
    if json {
        println!("{report:#}");
    } else {
        for (name, part) in [("swarm", &report["swarm"]), ("dense", &report["dense"])] {
            println!("{name}:");
            part.as_object().into_iter().flatten().for_each(|(key, value)| println!("  {key}: {value:.2}"));
        }
    }
    if swarm_fine && dense_fine { FINE } else { VIOLATED }
}
