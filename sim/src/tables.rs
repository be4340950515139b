//! Which rows of the lifecycle tables were hit. Every row of every table must be, in a campaign.

use std::collections::BTreeSet;
use tenure_core::coordinator::invariants::Taken;
use tenure_core::lifecycle::{Health, Lifecycle, MessageState, Phase, RunStatus};
use tenure_core::shard::lifecycle::Standing;
use tenure_core::steward::lifecycle::Hold;

/// Rows that were hit.
#[derive(Debug, Clone, Default)]
pub struct Tables {
    taken: Taken,
    standings: BTreeSet<(Standing, Standing)>,
    holds: BTreeSet<(Hold, Hold)>,
}

impl Tables {
    pub(crate) fn take(&mut self, taken: &Taken) {
        let mine = &mut self.taken;
        mine.work.extend(&taken.work);
        mine.runs.extend(&taken.runs);
        mine.messages.extend(&taken.messages);
        mine.workers.extend(&taken.workers);
    }

    pub(crate) fn stood(&mut self, before: Standing, after: Standing) {
        if before != after {
            self.standings.insert((before, after));
        }
    }

    pub(crate) fn moved(&mut self, before: Hold, after: Hold) {
        if before != after {
            self.holds.insert((before, after));
        }
    }

    /// What another world hit.
    pub fn merge(&mut self, other: &Self) {
        self.take(&other.taken);
        self.standings.extend(&other.standings);
        self.holds.extend(&other.holds);
    }

    /// Every row, and whether it was hit. A step of a Shard or Steward is known by the states it leads between.
    pub fn rows(&self) -> Vec<(String, bool)> {
        let mut rows = Vec::new();
        list::<Phase>(&mut rows, |from, step, _| self.taken.work.contains(&(from, step)));
        list::<RunStatus>(&mut rows, |from, step, _| self.taken.runs.contains(&(from, step)));
        list::<MessageState>(&mut rows, |from, step, _| self.taken.messages.contains(&(from, step)));
        list::<Health>(&mut rows, |from, step, _| self.taken.workers.contains(&(from, step)));
        list::<Standing>(&mut rows, |from, _, to| self.standings.contains(&(from, to)));
        list::<Hold>(&mut rows, |from, _, to| self.holds.contains(&(from, to)));
        rows
    }
}

fn list<L: Lifecycle>(rows: &mut Vec<(String, bool)>, is_hit: impl Fn(L, L::Step, L) -> bool) {
    for (from, step, to) in L::TABLE {
        rows.push((format!("{}: {from:?} {step:?}", L::NAME), is_hit(*from, *step, *to)));
    }
}
