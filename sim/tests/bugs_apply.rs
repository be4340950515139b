//! The planted bugs fit the source as it is, and every guarantee that can have one has one.

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
        let (kind, number) = bug.oracle.split_at(1);
        let most = match kind {
            "S" => 52,
            "L" => 11,
            _ => panic!("{}: {} is no guarantee", bug.name, bug.oracle),
        };
        let number: u32 = number.parse().expect("a guarantee has a number");
        assert!((1..=most).contains(&number), "{}: {}", bug.name, bug.oracle);
    }
    assert!(names.len() >= 52, "{} bugs", names.len());
}

#[test]
fn every_guarantee_that_can_be_broken_in_core_has_a_bug() {
    let has: BTreeSet<&str> = bugs::all().iter().map(|bug| bug.oracle).collect();
    let safety = (1..=39).chain([45, 46, 47, 51, 52]).map(|number| format!("S{number}"));
    let liveness = [1, 2, 3, 4, 5, 7, 8, 9, 10].map(|number| format!("L{number}"));
    let lacking: Vec<String> = safety.chain(liveness).filter(|number| !has.contains(&**number)).collect();
    assert!(lacking.is_empty(), "no bug for {lacking:?}");
}

#[test]
fn what_ships_knows_no_bug() {
    assert!(bugs::all().iter().all(|bug| !tenure_sim::planted_switch::switch(bug.name)));
}
