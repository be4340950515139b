//! The Shard: the durability gate around one Coordinator. It decides what is committed together, when an effect may leave
//! (S12, S45), what is read back into memory, and when its memory can no longer be believed (S47). It knows no rule of
//! runs or workers: those are the Coordinator's.
//!
//! Families of methods: [`Shard::handle`] takes an input; [`Shard::next_deadline`] says when to call again; the rest looks.
//!
//! While one batch commits, the next one forms, so batches grow with load by themselves and an idle Shard waits for
//! nothing. Effects of a batch leave when it and all before it are durable. What changed nothing, a heartbeat or a look,
//! leaves by an ownership check that began after it came.

pub mod command;
pub mod effect;
pub mod invariants;
pub mod lifecycle;
pub mod memory;

mod flight;
mod paging;
mod turn;

use crate::coordinator::Coordinator;
use crate::coordinator::command::Input as Fed;
use crate::coordinator::effect::Output as Said;
use crate::coordinator::event::Stamped;
use crate::id::{Batch, Ownership};
use crate::limits::Limits;
use crate::time::{Deadline, Now, Reason, Time};
use alloc::boxed::Box;
use alloc::vec::Vec;
use command::Input;
use effect::{Output, Release};
use flight::Flights;
use lifecycle::Standing;
use paging::Pages;

/// How a Shard works. Every bound has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Batches that may be under way at once.
    pub in_flight: usize,
    /// The store is locked to this process, so that what changed nothing needs no ownership check.
    pub exclusive: bool,
    /// How long to wait before a commit that was not applied is sent again; doubled each time.
    pub retry_ms: u64,
    /// The longest such wait.
    pub retry_most_ms: u64,
    /// How long a commit may stay unknown before all memory is dropped.
    pub resolve_ms: u64,
    /// Effects that may wait for the store; beyond it, only signs of life and reports are taken, and time goes on. Beyond
    /// twice as many nothing is taken, and time stands still until the store answers.
    pub held: usize,
    /// Fetches that may be under way at once.
    pub fetches: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            in_flight: 1,
            exclusive: false,
            retry_ms: 20,
            retry_most_ms: 5_000,
            resolve_ms: 10_000,
            held: 100_000,
            fetches: 64,
        }
    }
}

impl Settings {
    /// How long to wait before the next try, after so many.
    fn wait_ms(&self, tries: u32) -> u64 {
        self.retry_ms.saturating_mul(1 << tries.min(20)).min(self.retry_most_ms)
    }
}

/// Sees what passes between a Shard and its Coordinator: recorders and tests. It can not change anything.
pub trait Tap {
    /// A machine was made from rows, and was told nothing yet.
    fn opened(&mut self, _machine: &Coordinator) {}
    /// The machine is about to be fed.
    fn before(&mut self, _now: Now, _machine: &Coordinator, _input: &Fed) {}
    /// What came of it; its rows were not taken yet.
    fn after(&mut self, _machine: &Coordinator, _said: &Said) {}
}

impl Tap for () {}

/// The durability gate around one Coordinator.
#[derive(Debug, Clone)]
pub struct Shard {
    partition: u16,
    limits: Limits,
    settings: Settings,
    standing: Standing,
    ownership: Ownership,
    machine: Option<Box<Coordinator>>,
    /// The last batch that was formed.
    batch: Batch,
    /// What the next batch will let go, and what happened in it.
    forming: Forming,
    flights: Flights,
    pages: Pages,
    /// Scratch, kept for its memory.
    said: Said,
}

#[derive(Debug, Clone, Default)]
struct Forming {
    effects: Vec<Release>,
    audit: Vec<Stamped>,
}

impl Shard {
    /// A Shard that owns nothing yet.
    pub fn new(partition: u16, limits: Limits, settings: Settings) -> Self {
        Self {
            partition,
            limits,
            settings,
            standing: Standing::Empty,
            ownership: Ownership::default(),
            machine: None,
            batch: Batch::default(),
            forming: Forming::default(),
            flights: Flights::default(),
            pages: Pages::default(),
            said: Said::default(),
        }
    }

    /// What happened, and what must follow.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Output) {
        self.handle_with(now, input, out, &mut ());
    }

    /// The same, and somebody watches.
    pub fn handle_with(&mut self, now: Now, input: Input, out: &mut Output, tap: &mut impl Tap) {
        turn::Turn { shard: self, now, out, tap }.run(input);
    }

    /// When to call again, and why.
    pub fn next_deadline(&self) -> Option<Deadline> {
        let decides = self.standing == Standing::Serving && !self.is_flooded();
        let machine = self.machine.as_ref().filter(|_| decides);
        let own = |mono: u64, reason: Reason| Deadline { at: Time::from_ms(mono), mono, reason };
        let flights = self.flights.next_deadline(&self.settings).map(|(mono, reason)| own(mono, reason));
        let pages = self.pages.next_deadline(self.flights.durable(), self.settings.fetches);
        let pages = pages.map(|mono| own(mono, Reason::PageIn));
        let all = [machine.and_then(|machine| machine.next_deadline()), flights, pages];
        all.into_iter().flatten().min_by_key(|deadline| deadline.mono)
    }

    /// How it stands with its partition.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// Under which fencing number it owns, or last owned, its partition.
    pub fn ownership(&self) -> Ownership {
        self.ownership
    }

    /// Which partition it is for.
    pub fn partition(&self) -> u16 {
        self.partition
    }

    /// The Coordinator inside, to look at. What is seen here may not be durable yet.
    pub fn machine(&self) -> Option<&Coordinator> {
        self.machine.as_deref()
    }

    /// True if nothing waits for the store.
    pub fn is_idle(&self) -> bool {
        self.held() == 0 && self.flights.is_empty()
    }

    fn is_busy(&self) -> bool {
        self.held() >= self.settings.held
    }

    /// So much waits for the store that nothing more may be added to it.
    fn is_flooded(&self) -> bool {
        self.held() >= self.settings.held.saturating_mul(2)
    }

    /// Things that wait for the store.
    fn held(&self) -> usize {
        self.forming.effects.len() + self.flights.held() + self.pages.waiting()
    }
}
