//! What the invariants of all machines have in common: how a violation is said. Each machine has its own checks.

use alloc::string::String;
use core::fmt;

/// Something that must hold and does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which guarantee, as documents cite it.
    pub number: &'static str,
    /// What it promises.
    pub sentence: &'static str,
    /// What was found instead.
    pub facts: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is broken ({}): {}", self.number, self.sentence, self.facts)
    }
}

impl core::error::Error for Violation {}

/// Whether something holds.
pub type Holds = Result<(), Violation>;

/// The violation of a numbered guarantee, in the words of the machine it was found in.
pub(crate) fn broken(
    sentences: &[(&'static str, &'static str)],
    number: &'static str,
    facts: String,
) -> Violation {
    let sentence = sentences.iter().find(|(known, _)| *known == number).map_or("", |(_, sentence)| sentence);
    Violation { number, sentence, facts }
}
