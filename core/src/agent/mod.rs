//! The Agent: the whole logic of a worker process, for one worker id in one life of it. It keeps a session with every
//! partition that it may get work from, renews what it holds, decides what to start and what to stop, and reports until it
//! is answered. An adapter carries its requests, runs what it says must run, and tells it what happened.
//!
//! Families of methods: [`Agent::handle`] takes an input; [`Agent::next_deadline`] says when to call again; the queries
//! look without touching.
//!
//! Every input goes the same straight line:
//!
//! ```text
//! Input ─▶ doubt (what is past its guard band stops) ─▶ take (what the input says) ─▶ act (all that may be done now)
//! ```
//!
//! `take` changes what is known; `act` looks at what is known and says all that follows from it: it is level-triggered, so
//! nothing that was missed once is missed for ever, and doing it twice says nothing new.
//!
//! **A lease is measured on this machine's own clock from the moment the request was sent** that confirmed it, and is
//! trusted until `lease·(1 − drift)/(1 + drift) − guard` after that. What confirms is an answer that compared what is held on both
//! sides: a heartbeat whose digest matched, a reconciliation, and for what it brings, a poll. Nothing executes that is not
//! confirmed. A piece whose confirmation is late is stopped, and once its executor has stopped it is released and never
//! resumed: whether it was lost meanwhile is the partition's to say, and a released piece is with another worker at once.
//!
//! `Now::mono` must count the time that the machine sleeps (F14); `Now::wall` is not looked at.

mod act;
mod answer;
mod input;
pub mod invariants;
pub mod lifecycle;
mod memory;
mod notice;
mod order;
mod piece;
mod query;
mod report;
mod request;
mod session;
mod settings;

pub use input::{Input, Notice};
pub use order::{Order, Output, Refusal, Why};
pub use query::{PieceView, SessionView};
pub use settings::Settings;

use crate::time::{Deadline, Now};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use session::Session;

/// The logic of a worker process.
#[derive(Debug, Clone)]
pub struct Agent {
    settings: Settings,
    /// Its monotonic clock, as it was last read; never goes back.
    now: u64,
    sessions: BTreeMap<u16, Session>,
    /// Requests sent so far, over all partitions; the last one's number.
    requests: u64,
    /// Pieces of work that came so far.
    pieces: u64,
    /// Which partition was polled last, so that the next comes first.
    polled: u16,
    draining: Option<Draining>,
}

/// It is told to leave.
#[derive(Debug, Clone, Copy)]
struct Draining {
    /// When to stop what still runs.
    stop_at: u64,
    /// The process was told that it may end.
    said: bool,
}

/// What an input is handled with: the time, the counters of the Agent, and where orders go.
struct Turn<'a> {
    settings: &'a Settings,
    now: u64,
    requests: &'a mut u64,
    pieces: &'a mut u64,
    /// Slots that are free for new work.
    room: u32,
    is_draining: bool,
    /// How busy the Agent is, 0 to 100.
    load: u8,
    orders: &'a mut Vec<Order>,
}

impl Agent {
    /// An Agent that has not begun, for these partitions.
    pub fn new(settings: Settings, partitions: impl IntoIterator<Item = u16>) -> Self {
        let sessions = partitions.into_iter().map(|partition| (partition, Session::new(partition)));
        Self {
            settings,
            now: 0,
            sessions: sessions.collect(),
            requests: 0,
            pieces: 0,
            polled: 0,
            draining: None,
        }
    }

    /// What happened, and what must follow.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Output) {
        self.now = self.now.max(now.mono);
        self.doubt(out);
        self.take(input, out);
        self.act(out);
    }

    /// When to call again, and why.
    pub fn next_deadline(&self) -> Option<Deadline> {
        act::next_deadline(self)
    }

    /// What is past its guard band stops before anything else is looked at: after a long sleep the first thing that
    /// comes may be an answer from before it (F11, F14).
    fn doubt(&mut self, out: &mut Output) {
        self.each(out, |session, turn| session.doubt(turn));
    }

    /// What an input says.
    fn take(&mut self, input: Input, out: &mut Output) {
        match input {
            Input::Begin => self.each(out, |session, turn| session.begin(turn)),
            Input::Restart { partition } => self.with(partition, out, |session, turn| session.restart(turn)),
            Input::Drain { within_ms } => {
                let stop_at = within_ms.map_or(u64::MAX, |ms| self.now.saturating_add(ms));
                let said = self.draining.is_some_and(|draining| draining.said);
                self.draining = Some(Draining { stop_at, said });
            }
            Input::Replied { partition, request, result } => {
                self.with(partition, out, |session, turn| session.replied(request, result, turn));
            }
            Input::Noticed { partition, notice } => {
                self.with(partition, out, |session, turn| session.noticed(notice, turn));
            }
            Input::Reported(report) => {
                let (partition, held) = (report.run.partition(), report.held());
                if self.sessions.contains_key(&partition) {
                    self.with(partition, out, |session, turn| session.said(report, turn));
                } else {
                    out.orders.push(Order::Answer { held, result: Err(Refusal::NotRunning) });
                }
            }
            Input::Stopped { held } => {
                self.with(held.run.partition(), out, |session, turn| session.stopped(held, turn));
            }
            Input::Pulse => {}
        }
    }

    /// Does something with one session; nothing, if there is none.
    fn with(&mut self, partition: u16, out: &mut Output, take: impl FnOnce(&mut Session, &mut Turn<'_>)) {
        let (room, load) = (self.room(Some(partition)), self.load());
        let Some(session) = self.sessions.get_mut(&partition) else { return };
        let mut turn = Turn {
            settings: &self.settings,
            now: self.now,
            requests: &mut self.requests,
            pieces: &mut self.pieces,
            room,
            is_draining: self.draining.is_some(),
            load,
            orders: &mut out.orders,
        };
        take(session, &mut turn);
    }

    /// Does something with every session.
    fn each(&mut self, out: &mut Output, mut take: impl FnMut(&mut Session, &mut Turn<'_>)) {
        let load = self.load();
        for session in self.sessions.values_mut() {
            let mut turn = Turn {
                settings: &self.settings,
                now: self.now,
                requests: &mut self.requests,
                pieces: &mut self.pieces,
                // Only answers and notices bring new work.
                room: 0,
                is_draining: self.draining.is_some(),
                load,
                orders: &mut out.orders,
            };
            take(session, &mut turn);
        }
    }

    /// Slots that are free for new work: those that polls of others may fill are not.
    fn room(&self, answering: Option<u16>) -> u32 {
        let taken: usize = self.sessions.values().map(Session::slots_taken).sum();
        let others = self.sessions.values().filter(|session| Some(session.partition) != answering);
        let reserved: u64 = others.map(|session| u64::from(session.reserved())).sum();
        let free = u64::from(self.settings.spec.slots).saturating_sub(taken as u64).saturating_sub(reserved);
        free as u32
    }

    /// Places for execution that are taken.
    fn busy(&self) -> usize {
        let pieces = self.sessions.values().flat_map(|session| session.pieces.values());
        pieces.filter(|piece| piece.takes_place()).count()
    }

    fn load(&self) -> u8 {
        (self.busy() as u64 * 100 / u64::from(self.settings.parallel.max(1))).min(100) as u8
    }
}
