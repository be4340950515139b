//! Per-key concurrency: how much is held under each key, and the work that waits for a key rather than in its queue.
//!
//! The rule that keeps order: of the work under one (key, class, limit), as many of the first as there are free
//! places are in the queue, and no more. So what is parked follows from the state alone, and a restored machine parks
//! the same (S46). Work that some worker is excluded from is a group of its own: it must not stand in the way of work
//! that this worker may have.

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
    groups: BTreeMap<GroupKey, Group>,
}

/// Class and limit; and the work itself, if it stands alone.
type GroupKey = (u32, u32, Option<Key>);

/// Work of one class under one limit.
#[derive(Debug, Clone, Default)]
struct Group {
    queued: BTreeMap<Key, u32>,
    parked: BTreeMap<Key, u32>,
}

/// Work that goes into its queue or comes out of it because of what is held under its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Move {
    pub(super) class: u32,
    pub(super) key: Key,
    pub(super) slot: u32,
    pub(super) enters: bool,
}

impl Group {
    /// Makes the first `free` of all the ones that are queued.
    fn balance(&mut self, class: u32, free: usize, moves: &mut Vec<Move>) {
        loop {
            let first = self.parked.first_key_value().map(|(key, _)| *key);
            let last = self.queued.last_key_value().map(|(key, _)| *key);
            let is_over =
                self.queued.len() > free || last.is_some() && first.is_some_and(|first| Some(first) < last);
            if let Some((key, slot)) = is_over.then(|| self.queued.pop_last()).flatten() {
                self.parked.insert(key, slot);
                moves.push(Move { class, key, slot, enters: false });
            } else if self.queued.len() < free
                && let Some((key, slot)) = self.parked.pop_first()
            {
                self.queued.insert(key, slot);
                moves.push(Move { class, key, slot, enters: true });
            } else {
                return;
            }
        }
    }
}

impl Entry {
    fn balance(&mut self, only: Option<GroupKey>) -> Vec<Move> {
        let mut moves = Vec::new();
        let held = self.held;
        self.groups.retain(|(class, limit, alone), group| {
            if only.is_none_or(|only| only == (*class, *limit, *alone)) {
                group.balance(*class, limit.saturating_sub(held) as usize, &mut moves);
            }
            !(group.queued.is_empty() && group.parked.is_empty())
        });
        moves
    }
}

impl Concurrencies {
    pub(super) fn held(&self, tenant: TenantId, key: KeyHash) -> u32 {
        self.keys.get(&(tenant, key)).map_or(0, |entry| entry.held)
    }

    /// Work came; it, or what it displaces, is parked if there is no room under its key.
    pub(super) fn add(&mut self, tenant: TenantId, limit: Concurrency, item: Item) -> Vec<Move> {
        let entry = self.keys.entry((tenant, limit.key)).or_default();
        let at = (item.class, limit.limit, item.alone.then_some(item.key));
        entry.groups.entry(at).or_default().parked.insert(item.key, item.slot);
        entry.balance(Some(at))
    }

    /// Work went, wherever it waited; what takes its place in the queue enters it.
    pub(super) fn remove(&mut self, tenant: TenantId, limit: Concurrency, item: Item) -> Vec<Move> {
        let Some(entry) = self.keys.get_mut(&(tenant, limit.key)) else { return Vec::new() };
        let (at, key) = ((item.class, limit.limit, item.alone.then_some(item.key)), item.key);
        if let Some(group) = entry.groups.get_mut(&at) {
            group.queued.remove(&key);
            group.parked.remove(&key);
        }
        let moves = entry.balance(Some(at));
        self.forget_if_empty(tenant, limit.key);
        moves
    }

    /// One more place is taken.
    pub(super) fn hold(&mut self, tenant: TenantId, key: KeyHash) -> Vec<Move> {
        let entry = self.keys.entry((tenant, key)).or_default();
        entry.held += 1;
        entry.balance(None)
    }

    /// One place came free.
    pub(super) fn release(&mut self, tenant: TenantId, key: KeyHash) -> Vec<Move> {
        let entry = self.keys.get_mut(&(tenant, key)).expect("what is released was held");
        entry.held -= 1;
        let moves = entry.balance(None);
        self.forget_if_empty(tenant, key);
        moves
    }

    fn forget_if_empty(&mut self, tenant: TenantId, key: KeyHash) {
        if self.keys.get(&(tenant, key)).is_some_and(|entry| entry.held == 0 && entry.groups.is_empty()) {
            self.keys.remove(&(tenant, key));
        }
    }

    /// How much is held under each key.
    pub(super) fn all_held(&self) -> impl Iterator<Item = ((TenantId, KeyHash), u32)> + '_ {
        self.keys.iter().map(|(key, entry)| (*key, entry.held))
    }

    /// All that is parked: its class, its place in the order, and the slot of its run.
    pub(super) fn all_parked(&self) -> impl Iterator<Item = (u32, Key, u32)> + '_ {
        let groups = self.keys.values().flat_map(|entry| &entry.groups);
        groups.flat_map(|((class, ..), group)| group.parked.iter().map(|(key, slot)| (*class, *key, *slot)))
    }

    /// How much is parked, by class.
    pub(super) fn parked_by_class(&self) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for ((class, ..), group) in self.keys.values().flat_map(|entry| &entry.groups) {
            *counts.entry(*class).or_default() += group.parked.len();
        }
        counts
    }
}
