//! Runs every script in `scenarios/` and compares what is said with what is written. With `TENURE_REWRITE=1` the output
//! is written instead; look at every line of the difference.

use std::path::{Path, PathBuf};
use tenure_tests::scenario;

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let entries = std::fs::read_dir(&folder).expect("the scenarios are beside the tests");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths
}

#[test]
fn every_story_is_told_as_it_is_written() {
    let rewrite = std::env::var_os("TENURE_REWRITE").is_some_and(|value| value == "1");
    let mut wrong = Vec::new();
    for path in scripts() {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let script = std::fs::read_to_string(&path).expect("a readable script");
        match scenario::tell(&file, &script) {
            Err(fault) => wrong.push(fault),
            Ok(told) if told.text == script => {}
            Ok(told) if rewrite => std::fs::write(&path, told.text).expect("a writable script"),
            Ok(told) => wrong.push(difference(&file, &script, &told.text)),
        }
    }
    assert!(wrong.is_empty(), "{}\nTENURE_REWRITE=1 writes what is said", wrong.join("\n"));
}

#[test]
fn every_story_survives_a_crash_at_every_line() {
    let mut wrong = Vec::new();
    for path in scripts() {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let script = std::fs::read_to_string(&path).expect("a readable script");
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
