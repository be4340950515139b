//! Style as a test: what the code must not contain, how long files and functions may be, which way dependencies point.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All files with this ending below a folder, with their texts.
fn files(folder: &str, ending: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == ending) {
                let text = fs::read_to_string(&path).expect("source is text");
                found.push((path, text));
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has no {ending} files");
    found
}

/// The part of a source file before its tests.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

/// Code without comments, line by line.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = without_tests(text).lines().enumerate();
    lines.map(|(at, line)| (at + 1, line.split("//").next().unwrap_or("")))
}

#[test]
fn core_has_no_clock_no_randomness_no_io_and_no_floats() {
    let banned = [
        "std::",
        "f32",
        "f64",
        "unsafe",
        "Instant",
        "SystemTime",
        "rand::",
        "println!",
        "RandomState",
        "todo!",
    ];
    for (path, text) in files("core/src", "rs") {
        for (at, line) in code(&text) {
            let word = banned.iter().find(|word| {
                line.match_indices(**word).any(|(at, word)| {
                    let before = line[..at].chars().next_back().unwrap_or(' ');
                    let after = line[at + word.len()..].chars().next().unwrap_or(' ');
                    !before.is_alphanumeric()
                        && (word.ends_with(':') || word.ends_with('!') || !after.is_alphanumeric())
                })
            });
            let allowed = line.contains("forbid(unsafe_code)");
            assert!(word.is_none() || allowed, "{}:{at}: {word:?}", path.display());
        }
    }
}

#[test]
fn hash_maps_are_only_where_they_are_never_iterated() {
    let allowed = ["state/dense.rs", "state/keys.rs", "state/worker.rs"];
    for (path, text) in files("core/src", "rs") {
        let uses = code(&text).any(|(_, line)| line.contains("HashMap"));
        let path = path.display().to_string();
        assert!(!uses || allowed.iter().any(|end| path.ends_with(end)), "{path} uses a hash map");
        if uses {
            for method in [
                ".runs.iter()",
                ".runs.keys()",
                ".runs.values()",
                ".pages.iter()",
                ".pages.keys()",
                ".pages.values()",
                "index.iter()",
                "index.keys()",
                "index.values()",
            ] {
                assert!(!text.contains(method), "{path} iterates over a hash map");
            }
        }
    }
}

#[test]
fn files_and_functions_stay_readable() {
    for (path, text) in files("core/src", "rs").into_iter().chain(files("tests/src", "rs")) {
        let length = without_tests(&text).lines().count();
        assert!(length <= 620, "{} has {length} lines before its tests", path.display());
        let mut start: Option<(usize, usize, &str)> = None;
        for (at, line) in without_tests(&text).lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let begins = line.trim_start().starts_with("fn ") || line.contains(" fn ");
            if begins
                && !line.trim_start().starts_with("//")
                && start.is_none()
                && !line.trim_end().ends_with(';')
            {
                start = Some((at, indent, line.trim()));
            }
            if let Some((from, depth, name)) = start
                && indent == depth
                && line.trim_start().starts_with('}')
            {
                // A match over all events, commands or refusals is long and flat.
                let is_flat = [
                    "fn apply",
                    "fn answer",
                    "fn fmt",
                    "fn is_moot",
                    "fn react",
                    "fn follow",
                    "fn event",
                    "fn run(&self)",
                ];
                let is_flat = is_flat.iter().any(|flat| name.contains(flat));
                assert!(at - from <= 80 || is_flat, "{}:{}: {name} is long", path.display(), from + 1);
                start = None;
            }
        }
    }
}

#[test]
fn names_say_what_things_are() {
    for (path, text) in files("core/src", "rs") {
        for (at, line) in code(&text) {
            for banned in ["fn get_", "Manager", "Service", "Helper", "mod util", "fn process_"] {
                let is_found = line.replace("fn get_mut(", "").contains(banned);
                assert!(!is_found, "{}:{at}: {banned}", path.display());
            }
        }
    }
}

#[test]
fn every_file_says_what_it_is() {
    for (path, text) in files("core/src", "rs").into_iter().chain(files("tests", "rs")) {
        assert!(text.starts_with("//! "), "{} does not begin with what it is", path.display());
    }
}

#[test]
fn core_depends_on_nothing_of_the_workspace() {
    let manifest = fs::read_to_string(root().join("core/Cargo.toml")).expect("core has a manifest");
    let dependencies = manifest.split("[dependencies]").nth(1).expect("it has dependencies");
    let dependencies = dependencies.split("\n[").next().unwrap_or("");
    let names = dependencies.lines().filter_map(|line| line.split(['.', ' ', '=']).next());
    let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["serde", "slab", "hashbrown"], "each dependency of core is a decision in DESIGN.md");
    for (path, text) in files("core/src/coordinator/decide", "rs") {
        assert!(!without_tests(&text).contains("&mut State"), "{} writes state", path.display());
    }
    for place in ["core/src/coordinator/follow.rs", "core/src/coordinator/react.rs"] {
        let text = fs::read_to_string(root().join(place)).expect("it is there");
        assert!(!without_tests(&text).contains("&mut State"), "{place} writes state");
    }
}

#[test]
fn the_embedding_example_stays_short() {
    let text = fs::read_to_string(root().join("core/examples/embed.rs")).expect("it is there");
    let lines = text.lines().count();
    assert!(lines < 80, "embed.rs has {lines} lines; it is the first code an embedder reads");
}
