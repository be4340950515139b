//! A copy of the workspace with every bug in it, below `target/planted`, and the simulator built from it. Only files that
//! changed are written, so that cargo builds little again.

use super::parse::constant;
use super::{Bug, all, apply};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What of the workspace is needed to build the simulator.
const MEMBERS: &[&str] = &["core", "sim"];
/// What of a member is not: nothing of it is in the simulator.
const LEFT_OUT: &[&str] = &["tests", "benches", "examples", "target"];

/// Plants every bug in a copy of the workspace and builds its simulator: the path of the binary, or what went wrong.
pub fn plant(workspace_root: &Path) -> Result<PathBuf, String> {
    let copy = copy(workspace_root)?;
    let target = copy.join("target");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args([
        "build",
        "--release",
        "--offline",
        "--quiet",
        "--package",
        "tenure-sim",
        "--bin",
        "tenure-sim",
    ]);
    build.arg("--target-dir").arg(&target).current_dir(&copy);
    // It is built again whenever a rule changes and runs for seconds, so it is worth more that it is built quickly.
    build.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    let built = build.output().map_err(|error| format!("cargo can not be started: {error}"))?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        return Err(format!("the copy with the planted bugs does not build:\n{said}"));
    }
    Ok(target.join("release").join(format!("tenure-sim{}", std::env::consts::EXE_SUFFIX)))
}

/// Makes the copy with every bug in it, and says where it is.
pub fn copy(workspace_root: &Path) -> Result<PathBuf, String> {
    let bugs = all();
    let mut files = BTreeMap::new();
    for member in MEMBERS {
        read_folder(workspace_root, Path::new(member), &mut files)?;
    }
    for file in ["Cargo.toml", "Cargo.lock"] {
        files.insert(PathBuf::from(file), read(&workspace_root.join(file))?);
    }
    for (file, text) in apply(&bugs, workspace_root).map_err(|problems| problems.join("\n"))? {
        files.insert(PathBuf::from(file), text.into_bytes());
    }
    let mut edit = |file: &str, change: &dyn Fn(&str) -> String| {
        let text = files.get_mut(Path::new(file)).ok_or(format!("{file} is missing"))?;
        *text = change(&String::from_utf8_lossy(text)).into_bytes();
        Ok::<(), String>(())
    };
    edit("Cargo.toml", &with_members)?;
    edit("core/Cargo.toml", &without_targets)?;
    edit("sim/Cargo.toml", &without_targets)?;
    edit("core/src/lib.rs", &|text| format!("{text}\npub mod planted;\n"))?;
    edit("sim/src/planted_switch.rs", &|_| SWITCH.into())?;
    files.insert("core/src/planted.rs".into(), switches(&bugs).into_bytes());
    let copy = workspace_root.join("target").join("planted");
    write(&copy, &files)?;
    Ok(copy)
}

const SWITCH: &str = "//! Switches a planted bug on.

/// Switches this bug on; false if there is none of this name.
pub fn switch(name: &str) -> bool {
    tenure_core::planted::switch(name)
}
";

/// The switch of the copy: one number that is read wherever a bug asks whether it is on.
fn switches(bugs: &[Bug]) -> String {
    let numbered = || (1..).zip(bugs);
    let names: String = numbered().map(|(_, bug)| format!("    {:?},\n", bug.name)).collect();
    let constants: String = numbered()
        .map(|(number, bug)| {
            format!("/// {}\npub const {}: usize = {number};\n", bug.breaks, constant(bug.name))
        })
        .collect();
    format!(
        "//! Which planted bug is on.

use core::sync::atomic::{{AtomicUsize, Ordering::Relaxed}};

const NAMES: &[&str] = &[
{names}];
{constants}
static ON: AtomicUsize = AtomicUsize::new(0);

/// True if the bug of this number is on.
#[inline(always)]
pub fn is_on(bug: usize) -> bool {{
    ON.load(Relaxed) == bug
}}

/// Switches the bug of this name on, and any other off; false if there is none of this name.
pub fn switch(name: &str) -> bool {{
    let found = NAMES.iter().position(|known| *known == name);
    ON.store(found.map_or(0, |at| at + 1), Relaxed);
    found.is_some()
}}
"
    )
}

/// The workspace's manifest, with the members that are in the copy.
fn with_members(text: &str) -> String {
    let Some(from) = text.find("\nmembers") else { return text.into() };
    let to = text[from..].find(']').map_or(text.len(), |at| from + at + 1);
    format!("{}\nmembers = {MEMBERS:?}{}", &text[..from], &text[to..])
}

/// A member's manifest, without the targets that are not in the copy.
fn without_targets(text: &str) -> String {
    let mut is_kept = true;
    let kept = text.lines().filter(|line| {
        if line.starts_with('[') {
            is_kept = !["[[bench]]", "[[test]]", "[[example]]"].contains(&line.trim_end());
        }
        is_kept
    });
    kept.map(|line| format!("{line}\n")).collect()
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{} can not be read: {error}", path.display()))
}

/// The files below a folder, by their path below the root.
fn read_folder(root: &Path, folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<(), String> {
    for (name, is_folder) in list(&root.join(folder))? {
        let path = folder.join(&name);
        let is_member = folder.parent() == Some(Path::new(""));
        if is_folder && !(is_member && LEFT_OUT.contains(&name.as_str())) {
            read_folder(root, &path, files)?;
        } else if !is_folder {
            files.insert(path.clone(), read(&root.join(path))?);
        }
    }
    Ok(())
}

/// Names in a folder, and whether they are folders.
fn list(folder: &Path) -> Result<Vec<(String, bool)>, String> {
    let wrong = |error| format!("{} can not be listed: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let is_folder = entry.file_type().map_err(wrong)?.is_dir();
        found.push((entry.file_name().to_string_lossy().into_owned(), is_folder));
    }
    Ok(found)
}

/// Makes the copy what it should be; what is so already is not touched.
fn write(copy: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) -> Result<(), String> {
    let mut old = BTreeMap::new();
    for member in MEMBERS.iter().filter(|member| copy.join(member).is_dir()) {
        read_folder(copy, Path::new(member), &mut old)?;
    }
    let wrong = |path: &Path| {
        let path = path.display().to_string();
        move |error| format!("{path} can not be written: {error}")
    };
    for path in old.keys().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(copy.join(path)).map_err(wrong(path))?;
    }
    for (path, text) in files.iter().filter(|(path, text)| old.get(*path) != Some(text)) {
        let to = copy.join(path);
        if fs::read(&to).is_ok_and(|is| is == *text) {
            continue;
        }
        let folder = to.parent().unwrap_or(copy);
        fs::create_dir_all(folder).and_then(|()| fs::write(&to, text)).map_err(wrong(&to))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_its_own_members_and_no_other_targets() {
        let text = "[workspace]\nresolver = \"2\"\nmembers = [\n  \"core\",\n  \"tests\",\n]\nx = 1\n";
        assert_eq!(
            with_members(text),
            "[workspace]\nresolver = \"2\"\nmembers = [\"core\", \"sim\"]\nx = 1\n"
        );
        let text = "[package]\na = 1\n\n[[bench]]\nname = \"x\"\n\n[lints]\nb = 1\n";
        assert_eq!(without_targets(text), "[package]\na = 1\n\n[lints]\nb = 1\n");
    }
}
