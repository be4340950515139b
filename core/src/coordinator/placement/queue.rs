//! A queue: work in the order of its keys. Nearly all work comes in that order, so it stands in a line; only what has to
//! go before something in the line is kept in a tree.

use super::Key;
use alloc::collections::{BTreeMap, VecDeque};

/// In the line, in place of the run's slot: it left before its turn came.
const GONE: u32 = u32::MAX;

/// Work in the order of its keys, with the slots of its runs.
#[derive(Debug, Clone, Default)]
pub(super) struct Queue {
    /// By rising key. Neither the first nor the last is gone.
    line: VecDeque<(Key, u32)>,
    /// How many of the line are gone; never most of them.
    gone: usize,
    others: BTreeMap<Key, u32>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.line.len() - self.gone + self.others.len()
    }

    pub(super) fn insert(&mut self, key: Key, slot: u32) {
        if self.line.back().is_none_or(|(last, _)| *last < key) {
            self.line.push_back((key, slot));
        } else {
            self.others.insert(key, slot);
        }
    }

    /// True if it was here.
    pub(super) fn remove(&mut self, key: &Key) -> bool {
        let Some(at) = self.place(key) else { return self.others.remove(key).is_some() };
        self.line[at].1 = GONE;
        self.gone += 1;
        self.tidy();
        true
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.place(key).is_some() || self.others.contains_key(key)
    }

    pub(super) fn first(&self) -> Option<(Key, u32)> {
        let other = self.others.first_key_value().map(|(key, slot)| (*key, *slot));
        match (self.line.front().copied(), other) {
            (Some(in_line), Some(other)) => Some(in_line.min(other)),
            (in_line, other) => in_line.or(other),
        }
    }

    /// All, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, u32)> + '_ {
        let mut line = self.line.iter().filter(|(_, slot)| *slot != GONE).copied().peekable();
        let mut others = self.others.iter().map(|(key, slot)| (*key, *slot)).peekable();
        core::iter::from_fn(move || match (line.peek(), others.peek()) {
            (Some(in_line), Some(other)) if other < in_line => others.next(),
            (None, _) => others.next(),
            _ => line.next(),
        })
    }

    /// Where in the line it stands.
    fn place(&self, key: &Key) -> Option<usize> {
        let is_first = self.line.front().is_some_and(|(first, _)| first == key);
        let at = if is_first { 0 } else { self.line.binary_search_by_key(key, |(key, _)| *key).ok()? };
        (self.line[at].1 != GONE).then_some(at)
    }

    /// Drops what is gone where that is cheap: at the ends, and everywhere once it is most of the line.
    fn tidy(&mut self) {
        while self.line.front().is_some_and(|(_, slot)| *slot == GONE) {
            self.line.pop_front();
            self.gone -= 1;
        }
        while self.line.back().is_some_and(|(_, slot)| *slot == GONE) {
            self.line.pop_back();
            self.gone -= 1;
        }
        if self.gone * 2 > self.line.len() {
            self.line.retain(|(_, slot)| *slot != GONE);
            self.gone = 0;
        }
        if self.line.len() * 4 < self.line.capacity() && self.line.capacity() > 64 {
            self.line.shrink_to(self.line.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::mix;
    use alloc::vec::Vec;

    /// Against the obvious way: everything in a tree.
    #[test]
    fn a_queue_is_in_the_order_of_its_keys_whatever_order_they_came_and_went_in() {
        for seed in 0..100u64 {
            let mut random = seed;
            let mut draw = |n: u64| {
                random = mix(random);
                random % n
            };
            let (mut queue, mut tree) = (Queue::default(), BTreeMap::new());
            for step in 0..500 {
                // Mostly in order, sometimes early; more come than go, and then more go than come.
                let key = (if draw(4) == 0 { draw(step + 1) } else { step }, draw(2), 0);
                if draw(10) < if step < 300 { 7 } else { 3 } {
                    tree.entry(key).or_insert_with(|| {
                        queue.insert(key, step as u32);
                        step as u32
                    });
                } else {
                    let at = if draw(2) == 0 { 0 } else { draw(tree.len() as u64 + 1) as usize };
                    let key = tree.keys().nth(at).copied().unwrap_or(key);
                    assert_eq!(queue.contains(&key), tree.contains_key(&key));
                    assert_eq!(queue.remove(&key), tree.remove(&key).is_some());
                }
                assert_eq!(queue.first(), tree.iter().next().map(|(key, slot)| (*key, *slot)));
                assert_eq!(queue.len(), tree.len());
            }
            let all: Vec<_> = tree.into_iter().collect();
            assert_eq!(queue.iter().collect::<Vec<_>>(), all, "seed {seed}");
        }
    }
}
