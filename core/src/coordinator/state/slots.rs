//! Things at slots. They lie in chunks, so that growing never moves what is there: a million runs are not copied because
//! one more came.

use alloc::boxed::Box;
use alloc::vec::Vec;

const BITS: u32 = 8;
const WIDTH: usize = 1 << BITS;

/// Things at slots; a slot that was freed last is used again first.
#[derive(Debug, Clone)]
pub(crate) struct Slots<T> {
    chunks: Vec<Box<[Option<T>; WIDTH]>>,
    free: Vec<u32>,
    /// The first slot that was never used.
    fresh: u32,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), fresh: 0 }
    }
}

impl<T> Slots<T> {
    #[inline]
    fn place(&mut self, slot: u32) -> &mut Option<T> {
        &mut self.chunks[slot as usize >> BITS][slot as usize % WIDTH]
    }

    #[inline]
    pub(crate) fn at(&self, slot: u32) -> &T {
        self.chunks[slot as usize >> BITS][slot as usize % WIDTH].as_ref().expect("a slot in use")
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, slot: u32) -> &mut T {
        self.place(slot).as_mut().expect("a slot in use")
    }

    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        let slot = self.free.pop().unwrap_or(self.fresh);
        if slot as usize == self.chunks.len() * WIDTH {
            let chunk: Vec<Option<T>> = core::iter::repeat_with(|| None).take(WIDTH).collect();
            self.chunks.push(chunk.try_into().ok().expect("as long as it was made"));
        }
        self.fresh = self.fresh.max(slot + 1);
        *self.place(slot) = Some(thing);
        slot
    }

    /// Drops what is at a slot in use.
    pub(crate) fn remove(&mut self, slot: u32) {
        *self.place(slot) = None;
        self.free.push(slot);
    }

    pub(crate) fn len(&self) -> usize {
        self.fresh as usize - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_slot_is_used_again_and_nothing_moves() {
        let mut slots = Slots::default();
        let all: Vec<u32> = (0..600).map(|thing| slots.insert(thing)).collect();
        assert!(all.iter().zip(0..).all(|(slot, thing)| *slots.at(*slot) == thing));
        slots.remove(all[3]);
        slots.remove(all[400]);
        assert_eq!((slots.insert(1_000), slots.insert(1_001), slots.len()), (all[400], all[3], 600));
        *slots.at_mut(all[3]) += 1;
        assert_eq!((*slots.at(all[3]), *slots.at(all[599])), (1_002, 599));
    }
}
