//! DESIGN.md must stay true: its lifecycle part is generated from the tables, and every file it names exists and names
//! the guarantee it is said to keep.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use tenure_core::agent::lifecycle::{LeaseState, PieceState, SessionState};
use tenure_core::lifecycle::{Health, Lifecycle, MessageState, Phase, RunStatus};
use tenure_core::shard::lifecycle::{BatchState, Standing};
use tenure_core::steward::lifecycle::Hold;

const BEGIN: &str = "<!-- lifecycles -->\n";
const END: &str = "<!-- /lifecycles -->";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn design() -> String {
    fs::read_to_string(root().join("DESIGN.md")).expect("DESIGN.md is there")
}

/// A diagram and a table of one lifecycle.
fn describe<L: Lifecycle>(text: &mut String) {
    let name = |state: &L| format!("{state:?}").to_lowercase();
    writeln!(text, "### {}\n\n```mermaid\nstateDiagram-v2", L::NAME).expect("text grows");
    for state in L::INITIAL {
        writeln!(text, "    [*] --> {}", name(state)).expect("text grows");
    }
    for (from, step, to) in L::TABLE {
        writeln!(text, "    {} --> {}: {step:?}", name(from), name(to)).expect("text grows");
    }
    for state in L::STATES.iter().filter(|state| state.is_terminal()) {
        writeln!(text, "    {} --> [*]", name(state)).expect("text grows");
    }
    text.push_str("```\n\n| from | step and where it leads |\n| --- | --- |\n");
    for state in L::STATES {
        let steps = L::TABLE.iter().filter(|(from, ..)| from == state);
        let steps: Vec<_> = steps.map(|(_, step, to)| format!("{step:?} → {}", name(to))).collect();
        writeln!(text, "| {} | {} |", name(state), steps.join(", ")).expect("text grows");
    }
    text.push('\n');
}

#[test]
fn the_lifecycles_are_those_of_the_tables() {
    let mut generated = String::from("\n");
    describe::<RunStatus>(&mut generated);
    describe::<Phase>(&mut generated);
    describe::<MessageState>(&mut generated);
    describe::<Health>(&mut generated);
    describe::<Standing>(&mut generated);
    describe::<BatchState>(&mut generated);
    describe::<Hold>(&mut generated);
    describe::<SessionState>(&mut generated);
    describe::<PieceState>(&mut generated);
    describe::<LeaseState>(&mut generated);
    let design = design();
    let (before, rest) = design.split_once(BEGIN).expect("DESIGN.md has a place for the lifecycles");
    let (written, after) = rest.split_once(END).expect("and its end");
    if std::env::var_os("TENURE_REWRITE").is_some() {
        fs::write(root().join("DESIGN.md"), format!("{before}{BEGIN}{generated}{END}{after}"))
            .expect("DESIGN.md is written");
    } else {
        assert_eq!(written, generated, "TENURE_REWRITE=1 writes the lifecycles anew");
    }
}

/// The text of a file, or of all files of a folder.
fn text_of(path: &Path) -> Option<String> {
    if path.is_dir() {
        let entries = fs::read_dir(path).ok()?;
        return Some(entries.filter_map(|entry| text_of(&entry.ok()?.path())).collect());
    }
    fs::read_to_string(path).ok()
}

#[test]
fn every_guarantee_is_kept_where_the_table_says() {
    let design = design();
    let rows = design.lines().filter(|line| line.starts_with("| S"));
    let mut seen = 0;
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (number, place) = (cells[1], cells[3].trim_matches('`'));
        let text = text_of(&root().join(place)).unwrap_or_else(|| panic!("{number}: there is no {place}"));
        let names_it = text
            .match_indices(number)
            .any(|(at, _)| !text[at + number.len()..].starts_with(|next: char| next.is_ascii_digit()));
        assert!(names_it, "{place} does not name {number}");
        seen += 1;
    }
    let expected = (1..=39).chain([43, 45, 46, 47, 49, 50, 51, 52]).count();
    assert_eq!(seen, expected, "every guarantee that applies is in the table");
}

#[test]
fn every_path_that_is_named_exists() {
    for (at, line) in design().lines().enumerate() {
        for part in line.split('`').skip(1).step_by(2) {
            let is_path =
                part.contains('/') && (part.ends_with(".rs") || part.ends_with('/')) && !part.contains(' ');
            assert!(!is_path || root().join(part).exists(), "DESIGN.md:{}: there is no {part}", at + 1);
        }
    }
}
