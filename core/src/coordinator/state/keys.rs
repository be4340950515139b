//! Idempotency keys: from a key to the number of the run it opened. A resident hash, with the keys of ended runs
//! bounded; what is no longer here is looked up in the store, and what the store forgot is refused by its mint time.

use crate::coordinator::command::SubmitKey;
use crate::id::{KeyHash, RunId, TenantId};
use crate::mix::{FixedState, mix};
use crate::time::Time;
use alloc::collections::VecDeque;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry as MapEntry;

/// The keys in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    /// Looked up, never iterated.
    runs: HashMap<(u64, u64), Entry, FixedState>,
    /// Keys of ended runs, oldest first. One that was loaded and left again is here again.
    ended: VecDeque<Ended>,
    /// The latest mint time of a key that is not here any more, if there is one. A key minted after that and not here
    /// was never used (S33).
    newest_gone: Option<Time>,
}

#[derive(Debug, Clone, Copy)]
struct Ended {
    key: (u64, u64),
    minted_at: Time,
    ended_at: Time,
}

/// A run's number, how many of its lives in memory are not forgotten, and whether it sleeps outside: in one word, because
/// there is one for every run in flight. A life is forgotten when its listing as ended is dropped, so that nothing has to
/// be found again when the run leaves memory.
#[derive(Debug, Clone, Copy)]
struct Entry(u64);

impl Entry {
    const LIFE: u64 = 1 << RunId::NUMBER_BITS;
    const SLEEPS: u64 = 1 << 63;

    fn run(self) -> u64 {
        self.0 & (Self::LIFE - 1)
    }

    fn has_life(self) -> bool {
        self.0 & !Self::SLEEPS >= Self::LIFE
    }
}

/// Tenants do not share keys, so both are folded into one.
fn folded(tenant: TenantId, key: KeyHash) -> (u64, u64) {
    let ((tenant_hi, tenant_lo), (hi, lo)) = (tenant.halves(), key.halves());
    (mix(tenant_hi) ^ hi, mix(tenant_lo) ^ lo)
}

impl Keys {
    /// The run opened under this key, if the key is in memory.
    pub(crate) fn run(&self, tenant: TenantId, key: KeyHash) -> Option<u64> {
        self.runs.get(&folded(tenant, key)).map(|entry| entry.run())
    }

    /// A run came into memory: opened, or loaded.
    pub(crate) fn insert(&mut self, tenant: TenantId, key: KeyHash, run: u64) {
        let entry = self.runs.entry(folded(tenant, key)).or_insert(Entry(run));
        if entry.0 & Entry::SLEEPS == 0 {
            entry.0 += Entry::LIFE;
        }
        entry.0 &= !Entry::SLEEPS;
    }

    /// The run sleeps and leaves memory: its life goes on.
    pub(crate) fn sleep(&mut self, tenant: TenantId, key: KeyHash) {
        if let Some(entry) = self.runs.get_mut(&folded(tenant, key)) {
            entry.0 |= Entry::SLEEPS;
        }
    }

    /// The run ended and leaves memory; the key stays until `most` others ended after it.
    pub(crate) fn retire(&mut self, tenant: TenantId, key: SubmitKey, ended_at: Time, most: u64) {
        let (minted_at, key) = (key.minted_at, folded(tenant, key.key));
        self.ended.push_back(Ended { key, minted_at, ended_at });
        while self.ended.len() as u64 > most {
            self.drop_oldest();
        }
    }

    /// Keys of runs that ended so long ago that the store forgot them are forgotten here too.
    pub(crate) fn forget(&mut self, before: Time) {
        while self.ended.front().is_some_and(|oldest| oldest.ended_at <= before) {
            self.drop_oldest();
        }
    }

    /// Drops the oldest listing, and with the last life the key.
    fn drop_oldest(&mut self) {
        let Some(Ended { key, minted_at, .. }) = self.ended.pop_front() else { return };
        let MapEntry::Occupied(mut entry) = self.runs.entry(key) else { return };
        entry.get_mut().0 -= Entry::LIFE;
        if !entry.get().has_life() {
            entry.remove();
            self.newest_gone = self.newest_gone.max(Some(minted_at));
        }
    }

    /// True if a key minted then would be here, had it been used.
    pub(crate) fn is_complete_since(&self, minted_at: Time) -> bool {
        self.newest_gone.is_none_or(|newest| minted_at > newest)
    }

    /// Forgets everything: a restored machine has only the keys of its resident runs, and so must this one. `newest` is
    /// the latest mint time of any key that was ever used.
    pub(crate) fn restart(&mut self, newest: Option<Time>) {
        *self = Self { newest_gone: newest, ..Self::default() };
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }
}
