//! Runs every script in `scenarios/` and the folders in it and compares what is said with what is written. With `TENURE_REWRITE=1` the output
//! is written instead; look at every line of the difference.

use std::path::{Path, PathBuf};
use tenure_tests::{scenario, stewards};

fn scripts(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(folder);
    let entries = std::fs::read_dir(&folder).expect("the scenarios are beside the tests");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

fn name_and_text(path: &Path) -> (String, String) {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    (file, std::fs::read_to_string(path).expect("a readable script"))
}

/// Tells every script of a folder, and compares.
fn compare(folder: &str, tell: impl Fn(&str, &str) -> Result<String, String>) {
    let rewrite = std::env::var_os("TENURE_REWRITE").is_some_and(|value| value == "1");
    let mut wrong = Vec::new();
    for path in scripts(folder) {
        let (file, script) = name_and_text(&path);
        match tell(&file, &script) {
            Err(fault) => wrong.push(fault),
            Ok(told) if told == script => {}
            Ok(told) if rewrite => std::fs::write(&path, told).expect("a writable script"),
            Ok(told) => wrong.push(difference(&file, &script, &told)),
        }
    }
    assert!(wrong.is_empty(), "{}\nTENURE_REWRITE=1 writes what is said", wrong.join("\n"));
}

#[test]
fn every_story_is_told_as_it_is_written() {
    compare("", |file, script| scenario::tell(file, script).map(|told| told.text));
}

#[test]
fn every_story_of_a_shard_is_told_as_it_is_written() {
    compare("shard", |file, script| scenario::tell(file, script).map(|told| told.text));
}

#[test]
fn every_story_of_stewards_is_told_as_it_is_written() {
    compare("steward", stewards::tell);
}

#[test]
fn every_story_survives_a_crash_at_every_line() {
    let mut wrong = Vec::new();
    for path in scripts("") {
        let (file, script) = name_and_text(&path);
        wrong.extend(scenario::tell_crashing(&file, &script).err());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn difference(file: &str, written: &str, told: &str) -> String {
    let (mut written, mut told) = (written.lines(), told.lines());
    for number in 1.. {
        let (expected, said) = (written.next(), told.next());
        if expected != said {
            let show = |line: Option<&str>| line.unwrap_or("(the end)").to_string();
            return format!("{file}:{number}:\n  written {}\n  told    {}", show(expected), show(said));
        }
        if expected.is_none() {
            break;
        }
    }
    format!("{file}: only the white space at the end differs")
}
