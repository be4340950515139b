//! Every refusal that core can give is given in some story, so that its sentence was read by someone.

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

#[test]
fn every_refusal_is_told_in_a_story() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(here.join("../core/src/coordinator/rejection.rs"));
    let source = source.expect("refusals are declared there");
    let mut declared = variants(&source, "Rejection");
    declared.extend(variants(&source, "Ineligible"));
    assert!(declared.len() > 50, "the declarations were not found: {declared:?}");

    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(here.join("scenarios")).expect("the scenarios are beside the tests") {
        let path = entry.expect("a readable folder").path();
        let script = std::fs::read_to_string(&path).expect("a readable script");
        let told = scenario::tell(&path.to_string_lossy(), &script);
        seen.extend(told.map(|told| told.seen).unwrap_or_default());
    }
    for (name, reason) in NEVER_A_REPLY {
        assert!(declared.remove(name), "{name} is not declared any more");
        assert!(!seen.contains(name), "{name} is a reply after all, although {reason}");
    }
    let untold: Vec<_> = declared.difference(&seen).collect();
    assert!(untold.is_empty(), "no story is refused with {untold:?}");
}
