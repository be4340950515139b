//! A board: many sources, each with a smallest key; many sinks, each linked to some of the sources; and for every
//! sink the smallest key among its sources, found at a cost that does not grow with either number.
//!
//! It serves both directions of placement: waiting work by class seen from a worker's shape, and open workers by
//! shape seen from a class of work. A sink's entry for a source is a lower bound of the source's smallest key. It is
//! put right when it is looked at, so a source that moves on tells nobody; only a sink whose entry was taken away
//! because the source was empty, or a new key below everything posted, causes an insertion. Each is paid for by the
//! look that took the entry away.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Bound;

/// What things on a board are ordered by; unique over all sources.
pub(crate) type Key = (u64, u64, u64);

/// A board.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board {
    sources: Vec<Source>,
    sinks: Vec<Sink>,
}

#[derive(Debug, Clone, Default)]
struct Source {
    /// Linked sinks in order, and what the source is worth more to each.
    links: Vec<(u32, u64)>,
    /// Linked sinks that have no entry.
    absent: Vec<u32>,
    /// No entry of a sink that is not absent is above this.
    posted: Key,
}

/// The entries of a sink: a key, and the source it was of. The first is kept apart, because it is nearly always the one
/// that is looked at and put right.
#[derive(Debug, Clone, Default)]
struct Sink {
    first: Option<(Key, u32)>,
    rest: BTreeSet<(Key, u32)>,
}

impl Sink {
    fn insert(&mut self, entry: (Key, u32)) {
        match &mut self.first {
            None => self.first = Some(entry),
            Some(first) if entry < *first => drop(self.rest.insert(core::mem::replace(first, entry))),
            Some(first) if entry > *first => drop(self.rest.insert(entry)),
            Some(_) => {}
        }
    }

    fn remove(&mut self, entry: (Key, u32)) {
        if self.first == Some(entry) {
            self.first = self.rest.pop_first();
        } else {
            self.rest.remove(&entry);
        }
    }

    /// Makes the key of an entry larger.
    fn raise(&mut self, entry: (Key, u32), key: Key) {
        let raised = (key, entry.1);
        if self.first == Some(entry) && self.rest.first().is_none_or(|next| raised < *next) {
            self.first = Some(raised);
        } else {
            self.remove(entry);
            self.insert(raised);
        }
    }

    fn next(&self, after: Option<(Key, u32)>) -> Option<(Key, u32)> {
        match after {
            Some(after) if self.first.is_none_or(|first| first <= after) => {
                self.rest.range((Bound::Excluded(after), Bound::Unbounded)).next().copied()
            }
            _ => self.first,
        }
    }

    fn retain(&mut self, keeps: impl Fn(u32) -> bool) {
        self.rest.retain(|(_, source)| keeps(*source));
        if self.first.is_some_and(|(_, source)| !keeps(source)) {
            self.first = self.rest.pop_first();
        }
    }
}

fn worth(key: Key, bonus: u64) -> Key {
    (key.0.saturating_sub(bonus), key.1, key.2)
}

impl Board {
    fn source(&mut self, source: u32) -> &mut Source {
        if self.sources.len() <= source as usize {
            self.sources.resize_with(source as usize + 1, Source::default);
        }
        &mut self.sources[source as usize]
    }

    fn sink(&mut self, sink: u32) -> &mut Sink {
        if self.sinks.len() <= sink as usize {
            self.sinks.resize_with(sink as usize + 1, Sink::default);
        }
        &mut self.sinks[sink as usize]
    }

    /// Links a sink to a source whose smallest key is `head`.
    pub(crate) fn link(&mut self, source: u32, sink: u32, bonus: u64, head: Option<Key>) {
        self.sink(sink);
        let entry = self.source(source);
        let at = entry.links.partition_point(|(linked, _)| *linked < sink);
        entry.links.insert(at, (sink, bonus));
        match head {
            None => entry.absent.push(sink),
            Some(head) => {
                entry.posted = entry.posted.max(head);
                self.sink(sink).insert((worth(head, bonus), source));
            }
        }
    }

    /// Takes a sink off the board.
    pub(crate) fn unlink_sink(&mut self, sink: u32) {
        for source in &mut self.sources {
            source.links.retain(|(linked, _)| *linked != sink);
            source.absent.retain(|linked| *linked != sink);
        }
        *self.sink(sink) = Sink::default();
    }

    /// Takes a source off the board.
    pub(crate) fn unlink_source(&mut self, source: u32) {
        let links = core::mem::take(self.source(source)).links;
        for (sink, _) in links {
            self.sink(sink).retain(|linked| linked != source);
        }
    }

    /// A source's smallest key fell to `key`, or the source was empty and is not any more.
    pub(crate) fn fell(&mut self, source: u32, key: Key) {
        self.source(source);
        let Self { sources, sinks } = self;
        let entry = &mut sources[source as usize];
        if key < entry.posted {
            for (sink, bonus) in &entry.links {
                sinks[*sink as usize].insert((worth(key, *bonus), source));
            }
            entry.absent.clear();
            entry.posted = key;
        } else {
            for sink in entry.absent.drain(..) {
                let at =
                    entry.links.binary_search_by_key(&sink, |(linked, _)| *linked).expect("it is linked");
                sinks[sink as usize].insert((worth(key, entry.links[at].1), source));
                entry.posted = entry.posted.max(key);
            }
        }
    }

    /// The next source of a sink after `after`, by worth; `head` tells a source's smallest key.
    pub(crate) fn next(
        &mut self,
        sink: u32,
        after: Option<(Key, u32)>,
        head: impl Fn(u32) -> Option<Key>,
    ) -> Option<(Key, u32)> {
        let Self { sources, sinks } = self;
        let entries = sinks.get_mut(sink as usize)?;
        loop {
            let (key, source) = entries.next(after)?;
            let entry = &mut sources[source as usize];
            let at = entry.links.binary_search_by_key(&sink, |(linked, _)| *linked).expect("it is linked");
            match head(source) {
                Some(head) => {
                    let actual = worth(head, entry.links[at].1);
                    match actual.cmp(&key) {
                        Ordering::Equal => return Some((key, source)),
                        Ordering::Less => entries.remove((key, source)),
                        Ordering::Greater => {
                            entries.raise((key, source), actual);
                            entry.posted = entry.posted.max(head);
                        }
                    }
                }
                None => {
                    entries.remove((key, source));
                    entry.absent.push(sink);
                }
            }
        }
    }

    /// The sinks linked to a source.
    pub(crate) fn sinks_of(&self, source: u32) -> impl Iterator<Item = u32> + '_ {
        self.sources
            .get(source as usize)
            .into_iter()
            .flat_map(|entry| entry.links.iter().map(|(sink, _)| *sink))
    }

    /// What a source is worth more to a sink, if they are linked.
    pub(crate) fn bonus(&self, source: u32, sink: u32) -> Option<u64> {
        let links = &self.sources.get(source as usize)?.links;
        links.binary_search_by_key(&sink, |(linked, _)| *linked).ok().map(|at| links[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::mix;
    use alloc::vec;

    /// Against the obvious way: look at every linked source.
    #[test]
    fn a_sink_always_finds_the_smallest_key_of_its_sources() {
        for seed in 0..200u64 {
            let mut draw = {
                let mut state = seed;
                move |n: u64| {
                    state = mix(state);
                    state % n
                }
            };
            let (sources, sinks) = (5u32, 4u32);
            let mut board = Board::default();
            let mut queues: Vec<BTreeSet<Key>> = vec![BTreeSet::new(); sources as usize];
            let mut bonus = vec![vec![None; sinks as usize]; sources as usize];
            for source in 0..sources {
                for sink in 0..sinks {
                    if draw(3) > 0 {
                        let worth = draw(3);
                        bonus[source as usize][sink as usize] = Some(worth);
                        board.link(source, sink, worth, None);
                    }
                }
            }
            for step in 0..300 {
                let source = draw(u64::from(sources)) as u32;
                if draw(2) == 0 {
                    let key = (10 + draw(20), step, 0);
                    queues[source as usize].insert(key);
                    if queues[source as usize].first() == Some(&key) {
                        board.fell(source, key);
                    }
                }
                let sink = draw(u64::from(sinks)) as u32;
                let found = board.next(sink, None, |source| queues[source as usize].first().copied());
                let expected = (0..sources)
                    .filter_map(|source| {
                        let bonus = bonus[source as usize][sink as usize]?;
                        Some((worth(*queues[source as usize].first()?, bonus), source))
                    })
                    .min();
                assert_eq!(found, expected, "seed {seed}, step {step}");
                if let (Some((key, source)), 0) = (found, draw(3)) {
                    let second = board.next(sink, found, |source| queues[source as usize].first().copied());
                    assert!(second.is_none_or(|(other, at)| other > key && at != source));
                }
                if let (Some((_, source)), 0) = (found, draw(2)) {
                    queues[source as usize].pop_first();
                }
            }
        }
    }
}
