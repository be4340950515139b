//! Things found by a dense number: slots, and pages of their places. Iterates by number, whatever the slots' order.

use super::slots::Slots;
use crate::mix::FixedState;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use hashbrown::HashMap;

const BITS: u32 = 10;
const WIDTH: usize = 1 << BITS;
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone)]
struct Page {
    slots: Box<[u32; WIDTH]>,
    used: u32,
}

/// Things found by a dense number.
#[derive(Debug, Clone)]
pub(crate) struct Dense<T> {
    /// Looked up, never iterated.
    pages: HashMap<u64, Page, FixedState>,
    /// The numbers of all pages.
    order: BTreeSet<u64>,
    things: Slots<T>,
    /// The number and slot that were last asked for by a writer: what one input touches is mostly one thing.
    focus: (u64, u32),
}

impl<T> Default for Dense<T> {
    fn default() -> Self {
        Self {
            pages: HashMap::default(),
            order: BTreeSet::new(),
            things: Slots::default(),
            focus: (u64::MAX, NONE),
        }
    }
}

impl<T> Dense<T> {
    /// The slot of `number`; it stays the same as long as the thing is here.
    #[inline]
    pub(crate) fn slot(&self, number: u64) -> Option<u32> {
        if self.focus.0 == number { Some(self.focus.1) } else { self.find(number) }
    }

    /// Remembers where `number` is, because much will be asked of it.
    pub(crate) fn focus(&mut self, number: u64) {
        if self.focus.0 != number
            && let Some(slot) = self.find(number)
        {
            self.focus = (number, slot);
        }
    }

    #[inline(never)]
    fn find(&self, number: u64) -> Option<u32> {
        let page = self.pages.get(&(number >> BITS))?;
        let slot = page.slots[number as usize & (WIDTH - 1)];
        (slot != NONE).then_some(slot)
    }

    #[inline]
    pub(crate) fn at(&self, slot: u32) -> &T {
        self.things.at(slot)
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, slot: u32) -> &mut T {
        self.things.at_mut(slot)
    }

    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.slot(number).map(|slot| self.at(slot))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.slot(number).map(|slot| self.at_mut(slot))
    }

    pub(crate) fn insert(&mut self, number: u64, thing: T) -> u32 {
        let page = self.pages.entry(number >> BITS).or_insert_with(|| {
            self.order.insert(number >> BITS);
            Page { slots: Box::new([NONE; WIDTH]), used: 0 }
        });
        let entry = &mut page.slots[number as usize & (WIDTH - 1)];
        assert_eq!(*entry, NONE, "number {number} is here already");
        let slot = self.things.insert(thing);
        *entry = slot;
        page.used += 1;
        self.focus = (number, slot);
        slot
    }

    /// Drops the thing of this number.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some(page) = self.pages.get_mut(&(number >> BITS)) else { return };
        let entry = &mut page.slots[number as usize & (WIDTH - 1)];
        let slot = core::mem::replace(entry, NONE);
        if slot == NONE {
            return;
        }
        page.used -= 1;
        self.focus = (u64::MAX, NONE);
        if page.used == 0 {
            self.pages.remove(&(number >> BITS));
            self.order.remove(&(number >> BITS));
        }
        self.things.remove(slot);
    }

    pub(crate) fn len(&self) -> usize {
        self.things.len()
    }

    /// Those from `number` on, by number.
    pub(crate) fn iter_from(&self, number: u64) -> impl Iterator<Item = (u64, &T)> {
        self.order.range(number >> BITS..).flat_map(move |page_number| {
            let page = &self.pages[page_number];
            let first = page_number << BITS;
            page.slots.iter().enumerate().filter(|(_, slot)| **slot != NONE).filter_map(move |(at, slot)| {
                let found = first + at as u64;
                (found >= number).then(|| (found, self.at(*slot)))
            })
        })
    }

    /// All, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.iter_from(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn it_iterates_by_number_and_forgets_empty_pages() {
        let mut dense = Dense::default();
        for number in [2800, 3, 1024, 1023] {
            dense.insert(number, number);
        }
        assert_eq!(dense.iter().map(|(number, _)| number).collect::<Vec<_>>(), [3, 1023, 1024, 2800]);
        assert_eq!(dense.iter_from(1024).map(|(number, _)| number).collect::<Vec<_>>(), [1024, 2800]);
        dense.remove(2800);
        dense.remove(2800);
        assert_eq!((dense.get(2800), dense.get(1024)), (None, Some(&1024)));
        assert_eq!((dense.len(), dense.pages.len(), dense.order.len()), (3, 2, 2));
    }
}
