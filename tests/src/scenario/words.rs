//! The words of one line: positional ones, options `name=value`, and flags. Whatever is left over is a mistake.

use std::str::FromStr;

/// What was wrong with a line.
pub(crate) type Fault = String;

/// The words of a line that were not taken yet.
#[derive(Debug, Clone)]
pub(super) struct Words<'a> {
    left: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// Splits a line at white space. `''` stands for the empty word.
    pub(super) fn of(line: &'a str) -> Self {
        Self { left: line.split_whitespace().map(|word| if word == "''" { "" } else { word }).collect() }
    }

    /// The next positional word.
    pub(super) fn next(&mut self, what: &str) -> Result<&'a str, Fault> {
        self.maybe_next().ok_or_else(|| format!("{what} is missing"))
    }

    /// The next positional word, if there is one.
    pub(super) fn maybe_next(&mut self) -> Option<&'a str> {
        let at = self.left.iter().position(|word| !word.contains('='))?;
        Some(self.left.remove(at))
    }

    /// The value of an option, if it is given.
    pub(super) fn option(&mut self, name: &str) -> Option<&'a str> {
        let is_it = |word: &&str| word.split_once('=').is_some_and(|(key, _)| key == name);
        let at = self.left.iter().position(is_it)?;
        let value = self.left.remove(at).split_once('=').map_or("", |(_, value)| value);
        Some(if value == "''" { "" } else { value })
    }

    /// The value of an option that must be given.
    pub(super) fn required(&mut self, name: &str) -> Result<&'a str, Fault> {
        self.option(name).ok_or_else(|| format!("{name}= is missing"))
    }

    /// All values of an option that may be given several times.
    pub(super) fn options(&mut self, name: &str) -> Vec<&'a str> {
        std::iter::from_fn(|| self.option(name)).collect()
    }

    /// The value of an option as a number.
    pub(crate) fn number<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Fault> {
        self.option(name).map(|text| number(text)).transpose()
    }

    /// The value of an option as a time.
    pub(super) fn time(&mut self, name: &str) -> Result<Option<u64>, Fault> {
        self.option(name).map(millis).transpose()
    }

    /// The comma-separated values of an option.
    pub(super) fn list(&mut self, name: &str) -> Vec<&'a str> {
        self.option(name).map_or(Vec::new(), |text| text.split(',').collect())
    }

    /// True if a word is there.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        let at = self.left.iter().position(|word| *word == name);
        at.map(|at| self.left.remove(at)).is_some()
    }

    /// Fails if anything is left.
    pub(super) fn finish(self) -> Result<(), Fault> {
        match self.left.first() {
            None => Ok(()),
            Some(word) => Err(format!("{word:?} is not understood here")),
        }
    }
}

/// A number.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, Fault> {
    text.parse().map_err(|_| format!("{text:?} is not a number that fits here"))
}

const UNITS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 24 * 3_600_000),
    ("y", 365 * 24 * 3_600_000),
];

/// A time such as `500ms`, `30s`, `5m`, `1h`, `2d`, `10y`, or `0`, in milliseconds.
pub(crate) fn millis(text: &str) -> Result<u64, Fault> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (count, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, ms)| *ms);
    match (count.parse::<u64>(), unit) {
        (Ok(0), None) if text == "0" => Ok(0),
        (Ok(count), Some(unit)) => {
            count.checked_mul(unit).ok_or_else(|| format!("{text:?} is too long a time"))
        }
        _ => Err(format!("{text:?} is not a time such as 500ms, 30s, 5m, 1h, 2d or 10y")),
    }
}

/// A time as [`millis`] reads it, in the largest unit that leaves no rest.
pub(crate) fn time_text(ms: u64) -> String {
    let unit = UNITS[..5].iter().rev().find(|(_, unit)| ms > 0 && ms.is_multiple_of(*unit));
    unit.map_or_else(|| "0".into(), |(name, unit)| format!("{}{name}", ms / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_the_same_way() {
        for text in ["0", "500ms", "30s", "90s", "5m", "1h", "2d"] {
            assert_eq!(millis(text).map(time_text).as_deref(), Ok(text));
        }
        assert!(millis("5 weeks").is_err() && millis("s").is_err() && millis("").is_err());
    }

    #[test]
    fn what_is_left_over_is_a_mistake() {
        let mut words = Words::of("poll w1 max=3 wiat");
        assert_eq!(words.next("verb"), Ok("poll"));
        assert_eq!(words.number::<u32>("max"), Ok(Some(3)));
        assert_eq!(words.next("worker"), Ok("w1"));
        assert!(!words.flag("wait"));
        assert_eq!(words.finish(), Err("\"wiat\" is not understood here".into()));
    }
}
