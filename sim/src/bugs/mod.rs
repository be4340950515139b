//! Planted bugs: small changes to the rules of core, each of which an oracle must catch. They are texts in `bugs/`, and
//! are applied to a copy of the workspace, all at once, behind a switch that is asked at run time. So core's own source
//! knows nothing of them, and one build serves all.
//!
//! A bug is written like this; `PLANTED` is true while the bug is switched on:
//!
//! ```text
//! [name-of-the-bug] S8
//! What goes wrong, in one sentence.
//! file coordinator/decide/report.rs
//! - the lines as they are, which occur once in the file
//! + the lines as they are to be, which ask PLANTED
//! ```
//!
//! The file is relative to `core/src`; how lines are indented does not matter; a bug may have several changes.

mod edit;
mod parse;
mod plant;

pub use edit::{apply, drift};
pub use plant::{copy, plant};

/// A change to the rules that an oracle must catch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bug {
    /// What it is switched on by.
    pub name: &'static str,
    /// What goes wrong, in one sentence.
    pub breaks: &'static str,
    /// The number of the guarantee that is broken: S1 to S52, L1 to L11.
    pub oracle: &'static str,
    /// The changes that make it.
    pub edits: Vec<Edit>,
}

/// One change to one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Below the root of the workspace.
    pub file: String,
    /// Lines that occur once in the file, without their indentation.
    pub find: Vec<&'static str>,
    /// What they become.
    pub replace: Vec<String>,
}

const TEXTS: &[&str] = &[
    include_str!("../../bugs/runs.txt"),
    include_str!("../../bugs/ownership.txt"),
    include_str!("../../bugs/inboxes.txt"),
    include_str!("../../bugs/lasting.txt"),
    include_str!("../../bugs/servers.txt"),
    include_str!("../../bugs/agents.txt"),
];

/// Every planted bug. The texts are part of this crate, so one that can not be read is our bug.
pub fn all() -> Vec<Bug> {
    let bugs = TEXTS.iter().map(|text| parse::parse(text)).collect::<Result<Vec<_>, _>>();
    bugs.unwrap_or_else(|what| panic!("{what}")).into_iter().flatten().collect()
}
