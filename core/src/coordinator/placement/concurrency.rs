//! Per-key concurrency: how much is held under each key, and the work that waits for a key rather than in its queue.
//!
//! The rule that keeps order: of the work under one (key, class, limit), as many of the first as there are free
//! places are in the queue. So what a poll finds never depends on what happens to be parked.

use super::{Item, Key};
use crate::coordinator::command::Concurrency;
use crate::id::{KeyHash, TenantId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

#[derive(Debug, Clone, Default)]
pub(super) struct Concurrencies {
    keys: BTreeMap<(TenantId, KeyHash), Entry>,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    held: u32,
    /// By class and limit.
    parked: BTreeMap<(u32, u32), BTreeMap<Key, u32>>,
}

impl Concurrencies {
    pub(super) fn held(&self, tenant: TenantId, key: KeyHash) -> u32 {
        self.keys.get(&(tenant, key)).map_or(0, |entry| entry.held)
    }

    /// True if new work must be parked: its key is full, or work before it is parked.
    pub(super) fn parks(&self, tenant: TenantId, limit: Concurrency, class: u32, key: Key) -> bool {
        self.keys.get(&(tenant, limit.key)).is_some_and(|entry| {
            let first = entry.parked.get(&(class, limit.limit)).and_then(|parked| parked.first_key_value());
            entry.held >= limit.limit || first.is_some_and(|(first, _)| *first < key)
        })
    }

    pub(super) fn park(&mut self, tenant: TenantId, limit: Concurrency, item: Item) {
        let entry = self.keys.entry((tenant, limit.key)).or_default();
        entry.parked.entry((item.class, limit.limit)).or_default().insert(item.key, item.slot);
    }

    /// Takes the first of its kind out.
    pub(super) fn unpark(&mut self, tenant: TenantId, limit: Concurrency, class: u32) -> Option<(Key, u32)> {
        let entry = self.keys.get_mut(&(tenant, limit.key))?;
        let parked = entry.parked.get_mut(&(class, limit.limit))?;
        let first = parked.pop_first();
        if parked.is_empty() {
            entry.parked.remove(&(class, limit.limit));
        }
        first
    }

    pub(super) fn remove_parked(
        &mut self,
        tenant: TenantId,
        limit: Concurrency,
        class: u32,
        key: Key,
    ) -> bool {
        let Some(entry) = self.keys.get_mut(&(tenant, limit.key)) else { return false };
        let Some(parked) = entry.parked.get_mut(&(class, limit.limit)) else { return false };
        let was_there = parked.remove(&key).is_some();
        if parked.is_empty() {
            entry.parked.remove(&(class, limit.limit));
        }
        self.forget_if_empty(tenant, limit.key);
        was_there
    }

    pub(super) fn is_parked(&self, tenant: TenantId, limit: Concurrency, class: u32, key: Key) -> bool {
        let entry = self.keys.get(&(tenant, limit.key));
        let parked = entry.and_then(|entry| entry.parked.get(&(class, limit.limit)));
        parked.is_some_and(|parked| parked.contains_key(&key))
    }

    pub(super) fn hold(&mut self, tenant: TenantId, key: KeyHash) {
        self.keys.entry((tenant, key)).or_default().held += 1;
    }

    /// One place came free: the first of each kind that it lets in leaves.
    pub(super) fn release(&mut self, tenant: TenantId, key: KeyHash) -> Vec<(u32, Key, u32)> {
        let entry = self.keys.get_mut(&(tenant, key)).expect("what is released was held");
        entry.held -= 1;
        let held = entry.held;
        let mut freed = Vec::new();
        entry.parked.retain(|(class, limit), parked| {
            if held < *limit
                && let Some((key, slot)) = parked.pop_first()
            {
                freed.push((*class, key, slot));
            }
            !parked.is_empty()
        });
        self.forget_if_empty(tenant, key);
        freed
    }

    fn forget_if_empty(&mut self, tenant: TenantId, key: KeyHash) {
        if self.keys.get(&(tenant, key)).is_some_and(|entry| entry.held == 0 && entry.parked.is_empty()) {
            self.keys.remove(&(tenant, key));
        }
    }

    /// How much is held under each key.
    pub(super) fn all_held(&self) -> impl Iterator<Item = ((TenantId, KeyHash), u32)> + '_ {
        self.keys.iter().map(|(key, entry)| (*key, entry.held))
    }

    /// All that is parked: its class, its place in the order, and the slot of its run.
    pub(super) fn all_parked(&self) -> impl Iterator<Item = (u32, Key, u32)> + '_ {
        let parked = self.keys.values().flat_map(|entry| &entry.parked);
        parked.flat_map(|((class, _), items)| items.iter().map(|(key, slot)| (*class, *key, *slot)))
    }

    /// How much is parked, by class.
    pub(super) fn parked_by_class(&self) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for ((class, _), parked) in self.keys.values().flat_map(|entry| &entry.parked) {
            *counts.entry(*class).or_default() += parked.len();
        }
        counts
    }
}
