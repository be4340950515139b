//! Hunts planted bugs: each in a process of its own, by the oracle that is meant to catch it, run alone.

use crate::bugs::{self, Bug};
use crate::campaign::{self, Plan};
use crate::swarm::Profile;
use crate::tape::Tape;
use crate::{planted_switch, shrink};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tenure_core::coordinator::invariants::SENTENCES;

/// The oracle of this number.
fn oracle_of(number: &str) -> Option<&'static str> {
    let liveness = ["L1", "L2", "L3", "L4", "L5", "L7", "L8", "L9", "L10", "L11", "model", "panic"];
    let known = SENTENCES.iter().map(|(number, _)| *number).chain(liveness);
    known.into_iter().find(|known| *known == number)
}

/// Hunts one bug in this process, which must be the one that `bugs` built. Prints what it found as JSON.
pub fn one(
    name: &str,
    seeds: u64,
    seconds: u64,
    oracle: Option<&str>,
    all: bool,
    to: Option<&Path>,
) -> Result<u8, String> {
    if name != "nothing" && !planted_switch::switch(name) {
        return Err(format!(
            "there is no bug {name:?} in this program; `tenure-sim bugs` builds one that has them"
        ));
    }
    let only = match (oracle, all) {
        (_, true) => Some("none"),
        (None, false) => None,
        (Some(number), false) => {
            Some(oracle_of(number).ok_or_else(|| format!("there is no oracle {number:?}"))?)
        }
    };
    let time = Some(Duration::from_secs(seconds));
    let plan = Plan { profile: Profile::Swarm, from: 1, seeds, time, threads: 1, only };
    let sum = campaign::run(&plan, &|_, _| ());
    let mut report = json!({
        "bug": name,
        "found": sum.violation.as_ref().map(|(_, violation)| violation.number),
        "facts": sum.violation.as_ref().map(|(_, violation)| violation.facts.clone()),
        "seed": sum.violation.as_ref().map(|(seed, _)| *seed),
        "seeds": sum.seeds,
        "seconds": sum.wall.as_secs_f64(),
        "oracles": sum.oracles.keys().collect::<Vec<_>>(),
    });
    if let (Some((seed, _)), Some(path)) = (&sum.violation, to) {
        let (tape, _) = Tape::of_seed(Profile::Swarm, *seed, only);
        let small = shrink::shrink(&tape, &mut |_| ());
        small.write(path)?;
        report["steps"] = json!(tape.steps.len());
        report["shrunk"] = json!(small.steps.len());
    }
    println!("{report}");
    Ok(0)
}

/// Plants all bugs and hunts each. True if every one was found by the oracle meant for it.
pub fn bugs(
    only: Option<&str>,
    seconds: u64,
    seeds: u64,
    matrix: Option<u64>,
    json: bool,
) -> Result<bool, String> {
    let all: Vec<Bug> =
        bugs::all().into_iter().filter(|bug| only.is_none_or(|only| bug.name == only)).collect();
    if all.is_empty() {
        return Err(format!("there is no bug {:?}; `sim/bugs/` lists them", only.unwrap_or_default()));
    }
    eprintln!("planting {} bugs in a copy of core …", all.len());
    let root = workspace()?;
    let program = bugs::plant(&root)?;
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(bug) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            let report = hunt(&program, bug, seconds, seeds, matrix);
            eprintln!("  {:<36} {}", bug.name, headline(bug, &report));
            found.lock().unwrap_or_else(|broken| broken.into_inner()).push((bug, report));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut found = found.into_inner().unwrap_or_else(|broken| broken.into_inner());
    found.sort_by_key(|(bug, _)| (bug.oracle, bug.name));
    let is_found = |(bug, report): &&(&Bug, Value)| matrix.is_some() || report["found"] == json!(bug.oracle);
    let caught = found.iter().filter(is_found).count();
    let mut needed: Vec<u64> =
        found.iter().filter(is_found).filter_map(|(_, report)| report["seeds"].as_u64()).collect();
    needed.sort_unstable();
    let median = needed.get(needed.len() / 2).copied().unwrap_or(0);
    if json {
        let rows: Vec<Value> = found.iter().map(|(bug, report)| row(bug, report)).collect();
        println!(
            "{:#}",
            json!({ "bugs": all.len(), "caught": caught, "median_seeds": median, "table": rows })
        );
    } else {
        println!(
            "| bug | breaks | oracle | found by | seeds | seconds |\n| --- | --- | --- | --- | --- | --- |"
        );
        for (bug, report) in &found {
            let seconds = report["seconds"].as_f64().unwrap_or(0.0);
            let by = if matrix.is_some() { &report["oracles"] } else { &report["found"] };
            println!(
                "| {} | {} | {} | {by} | {} | {seconds:.1} |",
                bug.name, bug.breaks, bug.oracle, report["seeds"]
            );
        }
        println!("{caught} of {} caught, median {median} seeds", all.len());
    }
    Ok(caught == all.len())
}

fn row(bug: &Bug, report: &Value) -> Value {
    let mut row = report.clone();
    (row["breaks"], row["oracle"]) = (json!(bug.breaks), json!(bug.oracle));
    row
}

fn headline(bug: &Bug, report: &Value) -> String {
    match report["found"].as_str() {
        Some(number) => format!("{number} after {} seeds", report["seeds"]),
        None => {
            format!("not found by {} in {} seeds; fired: {}", bug.oracle, report["seeds"], report["oracles"])
        }
    }
}

fn hunt(program: &Path, bug: &Bug, seconds: u64, seeds: u64, matrix: Option<u64>) -> Value {
    let mut command = Command::new(program);
    command.args(["hunt", bug.name, "--seconds", &seconds.to_string()]);
    match matrix {
        Some(seeds) => command.args(["--all", "--seeds", &seeds.to_string()]),
        None => command.args(["--oracle", bug.oracle, "--seeds", &seeds.to_string()]),
    };
    let failed = |why: String| json!({ "bug": bug.name, "failed": why });
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let output = child.and_then(|mut child| {
        // A bug may make a machine turn for ever.
        let end = Instant::now() + Duration::from_secs(2 * seconds + 30);
        while child.try_wait()?.is_none() {
            if Instant::now() > end {
                child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child.wait_with_output()
    });
    match output {
        Err(error) => failed(error.to_string()),
        Ok(output) => serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| failed(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// The folder of the workspace: bugs are planted in a copy of its sources.
fn workspace() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().map_err(|error| format!("the sources are not at {}: {error}", root.display()))
}
