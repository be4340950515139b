//! Live leases, linked in the order they were granted. A lane's order is the order of epochs, so that what lapses
//! together is taken back in an order that a restored machine finds again.

use crate::id::{Epoch, NodeIx};
use alloc::vec::Vec;
use slab::Slab;

/// Where a lease is linked in; no meaning beyond.
pub(crate) type LeaseKey = u32;

const NONE: u32 = u32::MAX;

/// A lease, as a link of a list.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) epoch: Epoch,
    /// Slot of the run.
    pub(crate) run: u32,
    pub(crate) node: NodeIx,
    /// Slot of the worker.
    pub(crate) worker: u32,
    previous: u32,
    next: u32,
}

/// A list of leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    pub(crate) count: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NONE, tail: NONE, count: 0 }
    }
}

/// All live leases, and the list of those that lapsed and were not taken back yet.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leases {
    slab: Slab<Lease>,
    pub(crate) lapsed: List,
}

impl Leases {
    pub(crate) fn get(&self, key: LeaseKey) -> &Lease {
        &self.slab[key as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Links a new lease in where its epoch belongs: at the end of `list`, unless an older offer was accepted late.
    pub(crate) fn insert(
        &mut self,
        list: &mut List,
        epoch: Epoch,
        run: u32,
        node: NodeIx,
        worker: u32,
    ) -> LeaseKey {
        let (mut previous, mut next) = (list.tail, NONE);
        while previous != NONE && self.slab[previous as usize].epoch > epoch {
            (previous, next) = (self.slab[previous as usize].previous, previous);
        }
        let key = self.slab.insert(Lease { epoch, run, node, worker, previous, next }) as u32;
        match previous {
            NONE => list.head = key,
            previous => self.slab[previous as usize].next = key,
        }
        match next {
            NONE => list.tail = key,
            next => self.slab[next as usize].previous = key,
        }
        list.count += 1;
        key
    }

    /// The first and last lease of the list it is in know the list's ends; `list` must be that list.
    pub(crate) fn remove(&mut self, list: &mut List, key: LeaseKey) {
        let lease = self.slab.remove(key as usize);
        match lease.previous {
            NONE => list.head = lease.next,
            previous => self.slab[previous as usize].next = lease.next,
        }
        match lease.next {
            NONE => list.tail = lease.previous,
            next => self.slab[next as usize].previous = lease.previous,
        }
        list.count -= 1;
    }

    /// Removes a lease from the list of lapsed ones.
    pub(crate) fn remove_lapsed(&mut self, key: LeaseKey) {
        let mut lapsed = self.lapsed;
        self.remove(&mut lapsed, key);
        self.lapsed = lapsed;
    }

    /// Links a new lease in among the lapsed ones.
    pub(crate) fn insert_lapsed(&mut self, epoch: Epoch, run: u32, node: NodeIx, worker: u32) -> LeaseKey {
        let mut lapsed = self.lapsed;
        let key = self.insert(&mut lapsed, epoch, run, node, worker);
        self.lapsed = lapsed;
        key
    }

    /// Moves all of `list` behind the lapsed ones, without visiting any of them.
    pub(crate) fn lapse(&mut self, list: List) {
        if list.count == 0 {
            return;
        }
        match self.lapsed.tail {
            NONE => self.lapsed.head = list.head,
            tail => {
                self.slab[tail as usize].next = list.head;
                self.slab[list.head as usize].previous = tail;
            }
        }
        self.lapsed.tail = list.tail;
        self.lapsed.count += list.count;
    }

    /// Orders the lapsed ones by epoch, as a restored machine finds them.
    pub(crate) fn sort_lapsed(&mut self) {
        let mut keys: Vec<(Epoch, LeaseKey)> =
            self.iter(&self.lapsed).map(|(key, lease)| (lease.epoch, key)).collect();
        keys.sort_unstable();
        let key_at = |at: Option<usize>| at.and_then(|at| keys.get(at)).map_or(NONE, |(_, key)| *key);
        for (at, (_, key)) in keys.iter().enumerate() {
            let lease = &mut self.slab[*key as usize];
            (lease.previous, lease.next) = (key_at(at.checked_sub(1)), key_at(Some(at + 1)));
        }
        self.lapsed.head = key_at(Some(0));
        self.lapsed.tail = key_at(keys.len().checked_sub(1));
    }

    /// The leases of a list, oldest first.
    pub(crate) fn iter(&self, list: &List) -> impl Iterator<Item = (LeaseKey, &Lease)> {
        let first = list.head;
        core::iter::successors((first != NONE).then_some(first), |key| {
            let next = self.slab[*key as usize].next;
            (next != NONE).then_some(next)
        })
        .map(|key| (key, self.get(key)))
    }

    /// The leases of a list, newest first.
    pub(crate) fn iter_back(&self, list: &List) -> impl Iterator<Item = (LeaseKey, &Lease)> {
        let first = list.tail;
        core::iter::successors((first != NONE).then_some(first), |key| {
            let previous = self.slab[*key as usize].previous;
            (previous != NONE).then_some(previous)
        })
        .map(|key| (key, self.get(key)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_lapses_as_a_whole_and_keeps_its_order() {
        let mut leases = Leases::default();
        let (mut one, mut two) = (List::default(), List::default());
        let mut keys = Vec::new();
        for epoch in 1..=6 {
            let list = if epoch % 2 == 0 { &mut two } else { &mut one };
            keys.push(leases.insert(list, Epoch::new(epoch), 0, NodeIx::new(0), 0));
        }
        leases.remove(&mut one, keys[2]);
        leases.lapse(one);
        leases.lapse(List::default());
        leases.lapse(two);
        leases.remove_lapsed(keys[5]);
        let epochs =
            |leases: &Leases| leases.iter(&leases.lapsed).map(|(_, l)| l.epoch.get()).collect::<Vec<_>>();
        assert_eq!(epochs(&leases), [1, 5, 2, 4]);
        let mut back: Vec<_> = leases.iter_back(&leases.lapsed).map(|(_, l)| l.epoch.get()).collect();
        back.reverse();
        assert_eq!(back, epochs(&leases));
        assert_eq!((leases.lapsed.count, leases.len()), (4, 4));
    }
}
