//! Every refusal that core can give, and every answer to why nothing moves, is given in some story, so that its sentence
//! was read by someone.

use std::collections::BTreeSet;
use std::path::Path;
use tenure_tests::scenario;

/// What no command is refused with. Each needs its reason.
const NEVER_A_REPLY: [(&str, &str); 2] = [
    ("Ineligible::OtherTenant", "a run of another tenant is unknown before anyone asks who may have it"),
    (
        "Ineligible::RunPaused",
        "a claim on a paused run is refused as Rejection::Paused; this is for explanations",
    ),
];

fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let opening = format!("pub enum {name} {{");
    let body = source.split(&opening).nth(1).expect("the enum is declared there");
    let body = body.split("\n}").next().unwrap_or_default();
    let starts = |line: &str| {
        let line = line.strip_prefix("    ")?;
        let variant: String = line.chars().take_while(|letter| letter.is_alphanumeric()).collect();
        variant.starts_with(char::is_uppercase).then(|| format!("{name}::{variant}"))
    };
    body.lines().filter_map(starts).collect()
}

fn declared(file: &str, names: &[&str]) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src/coordinator").join(file);
    let source = std::fs::read_to_string(path).expect("they are declared there");
    names.iter().flat_map(|name| variants(&source, name)).collect()
}

/// What is seen in any of the stories.
fn seen() -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    for entry in std::fs::read_dir(folder).expect("the scenarios are beside the tests") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            continue;
        }
        let script = std::fs::read_to_string(&path).expect("a readable script");
        let told = scenario::tell(&path.to_string_lossy(), &script);
        seen.extend(told.map(|told| told.seen).unwrap_or_default());
    }
    seen
}

#[test]
fn every_refusal_is_told_in_a_story() {
    let mut declared = declared("rejection.rs", &["Rejection", "Ineligible"]);
    assert!(declared.len() > 50, "the declarations were not found: {declared:?}");
    let seen = seen();
    for (name, reason) in NEVER_A_REPLY {
        assert!(declared.remove(name), "{name} is not declared any more");
        assert!(!seen.contains(name), "{name} is a reply after all, although {reason}");
    }
    let untold: Vec<_> = declared.difference(&seen).collect();
    assert!(untold.is_empty(), "no story is refused with {untold:?}");
}

#[test]
fn every_answer_to_why_is_told_in_a_story() {
    let mut declared = declared("why.rs", &["Waiting"]);
    assert!(declared.len() > 10, "the declarations were not found: {declared:?}");
    assert!(declared.remove("Waiting::Nothing"), "what is over waits for nothing, and is not listed");
    let seen = seen();
    let untold: Vec<_> = declared.difference(&seen).collect();
    assert!(untold.is_empty(), "no story asks why of {untold:?}");
}
