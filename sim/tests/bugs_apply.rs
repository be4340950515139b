//! The planted bugs fit the source as it is, and what ships knows none of them.

use std::collections::BTreeSet;
use std::path::Path;
use tenure_sim::bugs;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

#[test]
fn every_bug_finds_its_place() {
    let problems = bugs::drift(&bugs::all(), root());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn names_are_unique_and_numbers_are_known() {
    let mut names = BTreeSet::new();
    for bug in bugs::all() {
        assert!(names.insert(bug.name), "{} is there twice", bug.name);
        let known = ["model", "panic"].contains(&bug.oracle) || {
            let (kind, number) = bug.oracle.split_at(1);
            let most = if kind == "S" { 52 } else { 11 };
            ["S", "L"].contains(&kind) && number.parse().is_ok_and(|number: u32| (1..=most).contains(&number))
        };
        assert!(known, "{}: {} is no oracle", bug.name, bug.oracle);
    }
    assert!(names.len() >= 52, "{} bugs", names.len());
}

#[test]
fn what_ships_knows_no_bug() {
    assert!(bugs::all().iter().all(|bug| !tenure_sim::planted_switch::switch(bug.name)));
}
