//! Changing the text of a file. Lines are compared without their indentation, so reformatting moves no bug.

use super::{Bug, Edit};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// What each file with a bug in it becomes, by its path below the root; or every reason why not, in words.
pub fn apply(bugs: &[Bug], root: &Path) -> Result<BTreeMap<String, String>, Vec<String>> {
    let mut by_file: BTreeMap<&str, Vec<(&Bug, &Edit)>> = BTreeMap::new();
    for bug in bugs {
        for edit in &bug.edits {
            by_file.entry(&edit.file).or_default().push((bug, edit));
        }
    }
    let (mut done, mut problems) = (BTreeMap::new(), Vec::new());
    for (file, edits) in by_file {
        match fs::read_to_string(root.join(file)) {
            Ok(text) => match change(&text, &edits) {
                Ok(text) => drop(done.insert(file.to_owned(), text)),
                Err(mut found) => problems.append(&mut found),
            },
            Err(error) => {
                let names: Vec<_> = edits.iter().map(|(bug, _)| bug.name).collect();
                problems.push(format!("planted bugs {names:?}: {file} can not be read: {error}"));
            }
        }
    }
    if problems.is_empty() { Ok(done) } else { Err(problems) }
}

/// Every bug that the source has moved away from, in words.
pub fn drift(bugs: &[Bug], root: &Path) -> Vec<String> {
    apply(bugs, root).err().unwrap_or_default()
}

/// The text of a file with all its bugs in it.
fn change(text: &str, edits: &[(&Bug, &Edit)]) -> Result<String, Vec<String>> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut places, mut problems) = (Vec::new(), Vec::new());
    for (bug, edit) in edits {
        match place(&lines, edit) {
            Ok(range) => places.push((range, *bug, *edit)),
            Err(what) => {
                let (name, file, find) = (bug.name, &edit.file, edit.find.join("\n    "));
                problems.push(format!("planted bug {name}: {what} in {file}:\n    {find}"));
            }
        }
    }
    places.sort_by_key(|(range, ..)| range.start);
    for pair in places.windows(2) {
        let [(first, one, edit), (second, other, _)] = pair else { continue };
        if second.start < first.end {
            let (at, file) = (second.start + 1, &edit.file);
            problems.push(format!(
                "planted bugs {} and {} both change line {at} of {file}",
                one.name, other.name
            ));
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let (mut changed, mut next) = (Vec::new(), 0);
    for (range, _, edit) in &places {
        changed.extend_from_slice(&lines[next..range.start]);
        changed.extend(edit.replace.iter().map(String::as_str));
        next = range.end;
    }
    changed.extend_from_slice(&lines[next..]);
    Ok(changed.join("\n") + "\n")
}

/// Where the lines of a change are, if they are in one place only.
fn place(lines: &[&str], edit: &Edit) -> Result<Range<usize>, String> {
    let length = edit.find.len();
    let is_here =
        |at: &usize| lines[*at..*at + length].iter().zip(&edit.find).all(|(is, find)| is.trim() == *find);
    let found: Vec<usize> = (0..(lines.len() + 1).saturating_sub(length)).filter(is_here).collect();
    match found[..] {
        [at] => Ok(at..at + length),
        [] => Err("this is not there any more".into()),
        _ => Err(format!("this is there {} times", found.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bug(name: &'static str, find: &[&'static str]) -> Bug {
        let (find, replace) = (find.to_vec(), vec![format!("{name};")]);
        Bug { name, breaks: "It.", oracle: "S1", edits: vec![Edit { file: "x.rs".into(), find, replace }] }
    }

    fn changed(text: &str, bugs: &[Bug]) -> Result<String, Vec<String>> {
        let edits: Vec<_> = bugs.iter().map(|bug| (bug, &bug.edits[0])).collect();
        change(text, &edits)
    }

    #[test]
    fn each_change_goes_to_its_place() {
        let bugs = [bug("second", &["c", "d"]), bug("first", &["a"])];
        assert_eq!(changed("  a\nb\n    c\nd\n", &bugs), Ok("first;\nb\nsecond;\n".into()));
    }

    #[test]
    fn what_moved_away_or_is_twice_there_or_overlaps_is_named() {
        let gone = changed("a\n", &[bug("one", &["b"])]).expect_err("it is gone");
        assert!(gone[0].contains("one") && gone[0].contains("x.rs") && gone[0].contains("b"), "{gone:?}");
        let twice = changed("a\na\n", &[bug("one", &["a"])]).expect_err("it is there twice");
        assert!(twice[0].contains("2 times"), "{twice:?}");
        let both = changed("a\nb\nc\n", &[bug("one", &["a", "b"]), bug("two", &["b", "c"])]);
        assert!(both.expect_err("they overlap")[0].contains("one and two"));
    }
}
