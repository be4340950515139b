//! Idempotency keys: from a key to the number of the run it opened. A resident hash, with the keys of ended runs
//! bounded; what is no longer here is looked up in the store, and what the store forgot is refused by its mint time.

use crate::id::{KeyHash, TenantId};
use crate::mix::FixedState;
use crate::time::Time;
use alloc::collections::VecDeque;
use hashbrown::HashMap;

/// The keys in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keys {
    /// Looked up, never iterated.
    runs: HashMap<(u64, u64), Entry, FixedState>,
    /// Keys of ended runs, oldest first, with the time they ended. One that was loaded and left again is here again.
    ended: VecDeque<(Time, (u64, u64))>,
    /// A key minted after this that is not here was never used (S33).
    complete_since: Time,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    run: u64,
    /// How often it is listed as ended.
    listed: u32,
    /// Its run is in memory, or sleeps.
    live: bool,
}

/// Tenants do not share keys, so both are folded into one.
fn folded(tenant: TenantId, key: KeyHash) -> (u64, u64) {
    let ((tenant_hi, tenant_lo), (hi, lo)) = (tenant.halves(), key.halves());
    (crate::mix::fold(&[tenant_hi, tenant_lo]) ^ hi, crate::mix::fold(&[tenant_lo, tenant_hi, 1]) ^ lo)
}

impl Keys {
    /// The run opened under this key, if the key is in memory.
    pub(crate) fn run(&self, tenant: TenantId, key: KeyHash) -> Option<u64> {
        self.runs.get(&folded(tenant, key)).map(|entry| entry.run)
    }

    pub(crate) fn insert(&mut self, tenant: TenantId, key: KeyHash, run: u64) {
        let entry = self.runs.entry(folded(tenant, key)).or_insert(Entry { run, listed: 0, live: true });
        (entry.run, entry.live) = (run, true);
    }

    /// The run ended and leaves memory; the key stays until `most` others ended after it.
    pub(crate) fn retire(&mut self, tenant: TenantId, key: KeyHash, ended_at: Time, most: u64) {
        let key = folded(tenant, key);
        if let Some(entry) = self.runs.get_mut(&key) {
            (entry.listed, entry.live) = (entry.listed + 1, false);
            self.ended.push_back((ended_at, key));
        }
        while self.ended.len() as u64 > most {
            let (ended_at, key) = self.ended.pop_front().expect("it is not empty");
            let Some(entry) = self.runs.get_mut(&key) else { continue };
            entry.listed -= 1;
            if entry.listed == 0 && !entry.live {
                self.runs.remove(&key);
                self.complete_since = self.complete_since.max(ended_at);
            }
        }
    }

    /// True if a key minted then would be here, had it been used.
    pub(crate) fn is_complete_since(&self, minted_at: Time) -> bool {
        minted_at > self.complete_since
    }

    /// Forgets everything: a restored machine has only the keys of its resident runs, and so must this one.
    pub(crate) fn restart(&mut self, now: Time) {
        *self = Self { complete_since: now, ..Self::default() };
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }
}
