//! What is not in memory and is being read back. Rows that were read while the same run was written by a batch formed
//! meanwhile are too old, and are read again: else a run that left memory in that batch would come back as it was before.

use crate::coordinator::command::{Load, Need};
use crate::coordinator::row::{Change, Row};
use crate::id::{KeyHash, RequestId, RunId, TenantId};
use crate::lifecycle::RunStatus;
use crate::time::Time;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Something to be read, and what is done with it.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) load: Load,
    pub(super) look: Option<Look>,
    /// All that was formed up to here must be durable first, or its rows would be missed.
    pub(super) after: u64,
    /// Not before this, on the monotonic clock: the store did not answer the last time.
    pub(super) again_at: u64,
    pub(super) tries: u32,
    /// How often what was read was too old. From the second time on nothing is formed until it was read once more, so that
    /// steady writing can not starve it (L9).
    pub(super) stale: u32,
}

impl Wanted {
    pub(super) fn new(load: Load, look: Option<Look>, after: u64) -> Self {
        Self { load, look, after, again_at: 0, tries: 0, stale: 0 }
    }

    fn holds_up(&self) -> bool {
        self.stale > 1
    }

    /// True if the machine itself asked for what wakes soon: a later one of these asks for more.
    fn is_waking(&self) -> bool {
        self.load.again.is_none() && matches!(self.load.needs[..], [Need::Waking { .. }])
    }
}

/// Somebody who wants to see a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) request: RequestId,
    pub(super) tenant: TenantId,
    pub(super) run: RunId,
}

#[derive(Debug, Clone)]
struct Fetching {
    wanted: Wanted,
    /// All that was formed up to here was durable when it began.
    began: u64,
}

/// What a batch says about the runs it touched.
#[derive(Debug, Clone)]
struct Written {
    number: u64,
    runs: Vec<WrittenRun>,
    forgot: bool,
}

#[derive(Debug, Clone, Copy)]
struct WrittenRun {
    number: u64,
    key: Option<(TenantId, KeyHash)>,
    /// When it wakes, if it sleeps.
    wakes: Option<Time>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Pages {
    wanted: VecDeque<Wanted>,
    fetching: BTreeMap<u64, Fetching>,
    fetches: u64,
    /// What was written since the oldest fetch began, or is not durable yet and may be missed by the next.
    written: VecDeque<Written>,
    /// How many of those that wait hold up what is formed.
    holding: usize,
}

impl Pages {
    pub(super) fn waiting(&self) -> usize {
        self.wanted.len() + self.fetching.len()
    }

    /// Puts something in the queue, which is in the order of `after`: it only grows.
    pub(super) fn want(&mut self, wanted: Wanted) {
        if wanted.is_waking() {
            // The machine asks again if the rows do not come; what has not begun is not needed twice.
            self.wanted.retain(|older| !older.is_waking() || older.holds_up());
        }
        self.holding += usize::from(wanted.holds_up());
        self.wanted.push_back(wanted);
    }

    /// True if nothing may be formed until something was read.
    pub(super) fn hold_up(&self) -> bool {
        self.holding > 0
    }

    /// Those that may begin, but for the time; none if enough are under way.
    fn ready(&self, durable: u64, most: usize) -> impl Iterator<Item = &Wanted> {
        let has_room = self.fetching.len() < most.max(1);
        self.wanted.iter().take_while(move |wanted| has_room && wanted.after <= durable)
    }

    /// The next fetch that may begin, with its number.
    pub(super) fn begin(&mut self, mono: u64, durable: u64, most: usize) -> Option<(u64, Vec<Need>)> {
        let at = self.ready(durable, most).position(|wanted| wanted.again_at <= mono)?;
        let wanted = self.wanted.remove(at)?;
        self.fetches += 1;
        let needs = wanted.load.needs.clone();
        self.fetching.insert(self.fetches, Fetching { wanted, began: durable });
        Some((self.fetches, needs))
    }

    /// Notes what a batch writes, for the fetches under way and those that may begin before it is durable.
    pub(super) fn formed(&mut self, number: u64, changes: &[Change]) {
        if self.waiting() == 0 {
            return;
        }
        let forgot = changes.iter().any(|change| matches!(change, Change::Forget { .. }));
        self.written.push_back(Written {
            number,
            runs: changes.iter().filter_map(written_run).collect(),
            forgot,
        });
    }

    /// Takes a fetch that ended, and whether what it read may be used.
    pub(super) fn end(&mut self, fetch: u64, rows: &[Row], durable: u64) -> Option<(Wanted, bool)> {
        let Fetching { wanted, began } = self.fetching.remove(&fetch)?;
        self.holding -= usize::from(wanted.holds_up());
        let mut since = self.written.iter().filter(|written| written.number > began);
        let is_current = since.all(|written| !written.spoils(&wanted.load.needs, rows));
        let oldest = self.fetching.values().map(|fetching| fetching.began).chain([durable]).min();
        self.written.retain(|written| oldest.is_some_and(|oldest| written.number > oldest));
        Some((wanted, is_current))
    }

    pub(super) fn is_moving(&self) -> bool {
        !self.fetching.is_empty()
    }

    /// When a fetch that failed is tried again.
    pub(super) fn next_deadline(&self, durable: u64, most: usize) -> Option<u64> {
        self.ready(durable, most).map(|wanted| wanted.again_at).min()
    }

    /// Everything that waits, none of which was done.
    pub(super) fn drop_all(&mut self) -> impl Iterator<Item = Wanted> {
        let fetching = core::mem::take(&mut self.fetching);
        self.written.clear();
        self.holding = 0;
        core::mem::take(&mut self.wanted).into_iter().chain(fetching.into_values().map(|one| one.wanted))
    }
}

impl Written {
    fn spoils(&self, needs: &[Need], rows: &[Row]) -> bool {
        let was_read = |run: &WrittenRun| {
            rows.iter().any(|row| row.run().is_some_and(|read| read.number() == run.number))
        };
        let is_needed = |run: &WrittenRun| {
            needs.iter().any(|need| match need {
                Need::Run { number } => run.number == *number,
                Need::Key { tenant, key } => run.key == Some((*tenant, *key)),
                Need::Waking { until } => run.wakes.is_some_and(|at| at <= *until),
                Need::Registered => run.wakes.is_some(),
            })
        };
        (self.forgot && !rows.is_empty()) || self.runs.iter().any(|run| was_read(run) || is_needed(run))
    }
}

fn written_run(change: &Change) -> Option<WrittenRun> {
    let plain = |run: RunId| WrittenRun { number: run.number(), key: None, wakes: None };
    match change {
        Change::Put(Row::Run(row)) => {
            let head = &row.head;
            let wakes = (head.status == RunStatus::Suspended).then(|| head.wake_at());
            Some(WrittenRun { key: head.key.map(|key| (head.tenant, key.key)), wakes, ..plain(head.id) })
        }
        Change::Put(row) => row.run().map(plain),
        Change::DropMessage(at) => Some(plain(at.run)),
        Change::DropOutbox(_) | Change::DropWorker(_) | Change::Forget { .. } => None,
    }
}
