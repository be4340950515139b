//! From the texts in `bugs/` to bugs.

use super::{Bug, Edit};

/// Reads a text, or says which line can not be read and why.
pub(super) fn parse(text: &'static str) -> Result<Vec<Bug>, String> {
    let mut bugs: Vec<Bug> = Vec::new();
    let mut file = None;
    for (at, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {} of the planted bugs, {line:?}: {what}", at + 1);
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let (name, oracle) = rest.split_once("] ").ok_or_else(|| wrong("a name and a number"))?;
            bugs.push(Bug { name, breaks: "", oracle, edits: Vec::new() });
            file = None;
            continue;
        }
        let bug = bugs.last_mut().ok_or_else(|| wrong("no bug has begun"))?;
        if let Some(path) = line.strip_prefix("file ") {
            file = Some(path);
        } else if let Some(old) = line.strip_prefix('-') {
            let path = file.ok_or_else(|| wrong("in which file?"))?;
            let find = open_edit(bug, path);
            find.push(old.trim());
        } else if let Some(new) = line.strip_prefix('+') {
            let name = bug.name;
            let edit = bug.edits.last_mut().ok_or_else(|| wrong("what does it replace?"))?;
            edit.replace.push(switched(new.strip_prefix(' ').unwrap_or(new), name));
        } else if bug.breaks.is_empty() {
            bug.breaks = line;
        } else {
            return Err(wrong("neither a file nor a change"));
        }
    }
    match bugs.iter().find(|bug| bug.breaks.is_empty() || !is_whole(bug)) {
        Some(bug) => Err(format!("planted bug {}: it does not say all that it should", bug.name)),
        None => Ok(bugs),
    }
}

/// The lines to be found of the change that is being read; lines after a replacement begin the next change.
fn open_edit<'a>(bug: &'a mut Bug, path: &str) -> &'a mut Vec<&'static str> {
    let file = format!("core/src/{path}");
    if bug.edits.last().is_none_or(|edit| !edit.replace.is_empty() || edit.file != file) {
        bug.edits.push(Edit { file, find: Vec::new(), replace: Vec::new() });
    }
    let last = bug.edits.len() - 1;
    &mut bug.edits[last].find
}

/// A line that asks the switch of this bug where it says `PLANTED`.
fn switched(line: &str, bug: &str) -> String {
    line.replace("PLANTED", &format!("crate::planted::is_on(crate::planted::{})", constant(bug)))
}

/// The constant that stands for a bug in the copy.
pub(super) fn constant(bug: &str) -> String {
    bug.replace('-', "_").to_uppercase()
}

fn is_whole(bug: &Bug) -> bool {
    let asks = bug.edits.iter().all(|edit| edit.replace.iter().any(|line| line.contains("planted::is_on")));
    asks && !bug.edits.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_read_as_it_is_written() {
        let text = "# why\n\n[a-b] S8\nIt breaks.\nfile x.rs\n- one\n-   two\n+ one && PLANTED\n- three\n+ PLANTED\n";
        let bugs = parse(text).expect("it is sound");
        let [bug] = &bugs[..] else { panic!("{bugs:?}") };
        assert_eq!((bug.name, bug.oracle, bug.breaks), ("a-b", "S8", "It breaks."));
        assert_eq!(bug.edits.len(), 2);
        assert_eq!(bug.edits[0].find, ["one", "two"]);
        assert_eq!(bug.edits[0].file, "core/src/x.rs");
        assert_eq!(bug.edits[0].replace, ["one && crate::planted::is_on(crate::planted::A_B)"]);
    }

    #[test]
    fn what_can_not_be_read_is_said() {
        assert!(parse("- one\n").expect_err("no bug").contains("no bug has begun"));
        assert!(parse("[a] S1\nIt.\n- one\n").expect_err("no file").contains("in which file"));
        assert!(
            parse("[a] S1\nIt.\nfile x\n- one\n+ two\n").expect_err("no switch").contains("planted bug a")
        );
    }
}
