//! A failing world as a file: its configuration, the choices that were not the dullest, and what they led to.

use crate::choice::{Choice, Step};
use crate::codec;
use crate::swarm::{Config, Profile};
use crate::trial::{self, Trial, Watching};
use serde::{Deserialize, Serialize};
use std::path::Path;

const MAGIC: &[u8; 8] = b"tenure-t";
/// Raised whenever a tape of before would mean something else: sites, choices or configuration changed.
const VERSION: u32 = 1;

/// A recorded world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tape {
    /// Which commit it was recorded with.
    pub commit: String,
    /// The seed it comes from.
    pub seed: u64,
    /// Its configuration.
    pub config: Config,
    /// The oracle it failed with.
    pub oracle: String,
    /// The digest at its end.
    pub digest: u64,
    /// Its choices.
    pub steps: Vec<Step>,
}

impl Tape {
    /// Records the world of a seed.
    pub fn of_seed(profile: Profile, seed: u64, only: Option<&'static str>) -> (Self, Trial) {
        let config = Config::of_seed(profile, seed);
        let watching = Watching { record: true, only, ..Watching::default() };
        let trial = trial::of_choice(config.clone(), Choice::of_seed(seed), watching);
        let oracle = trial.violation.as_ref().map_or(String::new(), |violation| violation.number.into());
        let steps = trial.recorded.clone();
        (Self { commit: commit(), seed, config, oracle, digest: trial.digest, steps }, trial)
    }

    /// Runs it.
    pub fn replay(&self, watching: Watching) -> Trial {
        trial::of_choice(self.config.clone(), Choice::of_steps(&self.steps), watching)
    }

    /// Its bytes: what it is, which version, how long, a check, and the rest.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = codec::encode(self);
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&codec::sum(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    /// The tape of these bytes, or what is wrong with them.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, String> {
        let (head, body) = bytes.split_at_checked(28).ok_or("it is too short to be a tape")?;
        if &head[..8] != MAGIC {
            return Err("it is no tape: it does not begin like one".into());
        }
        let number = |at: usize, len: usize| {
            let mut eight = [0; 8];
            eight[..len].copy_from_slice(&head[at..at + len]);
            u64::from_le_bytes(eight)
        };
        let version = number(8, 4);
        if version != u64::from(VERSION) {
            return Err(format!(
                "it is a tape of version {version}, and this program reads version {VERSION}; replay it with the commit that wrote it, or record its seed anew"
            ));
        }
        if number(12, 8) != body.len() as u64 || number(20, 8) != codec::sum(body) {
            return Err("it is damaged: its length or its check is not what it says".into());
        }
        let tape: Self = codec::decode(body)?;
        let sites = crate::site::Site::ALL.len();
        if tape.config.rates.len() != sites || tape.config.ops.len() != crate::client::Op::ALL.len() {
            return Err("its configuration is not one of this program".into());
        }
        Ok(tape)
    }

    /// Writes it to a file, in a folder that is made if it is not there.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        std::fs::write(path, self.to_bytes()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads it from a file.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::of_bytes(&bytes).map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// The commit of the sources this program was built from, as far as they are still there.
fn commit() -> String {
    let git = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.git");
    let head = std::fs::read_to_string(git.join("HEAD")).unwrap_or_default();
    let head = head.trim();
    let commit = match head.strip_prefix("ref: ") {
        Some(name) => std::fs::read_to_string(git.join(name)).unwrap_or_default(),
        None => head.to_string(),
    };
    if commit.is_empty() { "unknown".into() } else { commit.trim().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tape_of_another_version_or_with_damage_is_refused_in_words() {
        let (tape, _) = Tape::of_seed(Profile::Steady, 1, Some("none"));
        let bytes = tape.to_bytes();
        assert_eq!(Tape::of_bytes(&bytes).as_ref(), Ok(&tape));
        let mut newer = bytes.clone();
        newer[8] += 1;
        assert!(Tape::of_bytes(&newer).is_err_and(|error| error.contains("version 2")));
        let mut damaged = bytes.clone();
        *damaged.last_mut().expect("it has bytes") ^= 1;
        assert!(Tape::of_bytes(&damaged).is_err_and(|error| error.contains("damaged")));
        assert!(Tape::of_bytes(&bytes[..20]).is_err_and(|error| error.contains("short")));
    }
}
