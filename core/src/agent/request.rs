//! Requests that are not answered: one of each kind per partition, repeated until they are. Every copy has a number of its
//! own, so that an answer says from when on it counts.

use super::piece::Piece;
use super::session::Session;
use super::{Order, Settings, Turn};
use crate::coordinator::command::{Command, Heartbeat, Report};
use crate::coordinator::held_digest;
use crate::id::{PollId, RequestId, WorkerId};
use crate::mix::fold;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// What is asked of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ask {
    Register,
    Heartbeat,
    Reconcile,
    /// Repeated as it is: the same number gets the same grants (F5).
    Poll {
        poll: PollId,
        max: u32,
    },
    /// Repeated as it is (F6).
    Report(Vec<Report>),
    Deregister,
}

/// Kinds of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Register,
    Heartbeat,
    Reconcile,
    Poll,
    Report,
    Deregister,
}

impl Ask {
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Register => Kind::Register,
            Self::Heartbeat => Kind::Heartbeat,
            Self::Reconcile => Kind::Reconcile,
            Self::Poll { .. } => Kind::Poll,
            Self::Report(_) => Kind::Report,
            Self::Deregister => Kind::Deregister,
        }
    }
}

/// A copy of a request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) request: RequestId,
    pub(super) at: u64,
}

/// A request that is not answered.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    pub(super) ask: Ask,
    /// Its copies, oldest first, within a bound. Whichever is answered first ends it.
    pub(super) copies: Vec<Sent>,
    /// How often it was repeated.
    pub(super) tries: u32,
    /// How long the last copy is waited for.
    pub(super) wait_ms: u64,
}

impl Flight {
    /// A free slot is kept for what a poll may bring, until it is late: a partition that does not answer must not keep
    /// the others from being asked. What then comes and finds no room is given back.
    pub(super) fn reserved(&self) -> u32 {
        match &self.ask {
            Ask::Poll { max, .. } if self.tries == 0 => *max,
            _ => 0,
        }
    }
}

/// How long to wait before the next try: doubled from try to try, capped, and less by up to a quarter, which is a hash and
/// so the same wherever it is worked out.
pub(super) fn wait_ms(settings: &Settings, tries: u32, salt: u64) -> u64 {
    let doubled = settings.request_ms.saturating_mul(1u64.checked_shl(tries).unwrap_or(u64::MAX));
    let most = doubled.min(settings.backoff_ms).max(1);
    most - jitter(settings.worker, salt) % (most / 4 + 1)
}

fn jitter(worker: WorkerId, salt: u64) -> u64 {
    let (hi, lo) = worker.halves();
    fold(&[hi, lo, salt])
}

impl Session {
    /// Sends a request, or a copy of it.
    pub(super) fn send(&mut self, ask: Ask, turn: &mut Turn<'_>) {
        *turn.requests += 1;
        let request = RequestId::new(*turn.requests);
        let sent = Sent { request, at: turn.now };
        let command = self.command(&ask, turn);
        let kind = ask.kind();
        let flight =
            self.flights.entry(kind).or_insert(Flight { ask, copies: Vec::new(), tries: 0, wait_ms: 0 });
        if !flight.copies.is_empty() {
            flight.tries = flight.tries.saturating_add(1);
        }
        flight.copies.push(sent);
        if flight.copies.len() > turn.settings.copies.max(1) as usize {
            flight.copies.remove(0);
        }
        flight.wait_ms = wait_ms(turn.settings, flight.tries, request.get());
        turn.orders.push(Order::Send { partition: self.partition, request, command });
    }

    fn command(&self, ask: &Ask, turn: &Turn<'_>) -> Command {
        let (worker, incarnation) = (turn.settings.worker, self.incarnation);
        let leased = || self.pieces.values().filter(|piece| piece.is_leased()).map(Piece::held);
        match ask {
            Ask::Register => Command::Register { worker, spec: Box::new(turn.settings.spec.clone()) },
            Ask::Heartbeat => {
                let (session, load) = (self.number, turn.load);
                let held = held_digest(leased().map(|held| held.epoch));
                Command::Heartbeat(Heartbeat { worker, incarnation, session, held, load })
            }
            Ask::Reconcile => Command::Reconcile { worker, incarnation, held: leased().collect() },
            Ask::Poll { poll, max } => {
                Command::Poll { worker, incarnation, poll: *poll, max: *max, wait: true }
            }
            Ask::Report(reports) => Command::Report { worker, incarnation, reports: reports.clone() },
            Ask::Deregister => Command::Deregister { worker, incarnation: Some(incarnation) },
        }
    }
    /// Repeats a request whose answer is late.
    pub(super) fn repeat(&mut self, kind: Kind, turn: &mut Turn<'_>) {
        if let Some(flight) = self.flights.get(&kind)
            && self.due(flight, turn.settings) <= turn.now
        {
            let ask = flight.ask.clone();
            self.send(ask, turn);
        }
    }

    /// When the answer to a request is late. Signs of life are not waited for longer than until the next one is due.
    pub(super) fn due(&self, flight: &Flight, settings: &Settings) -> u64 {
        let sent_at = flight.copies.last().map_or(0, |sent| sent.at);
        let wait_ms = match flight.ask {
            Ask::Heartbeat | Ask::Reconcile => flight.wait_ms.min(self.interval_ms(settings)),
            Ask::Register | Ask::Poll { .. } | Ask::Report(_) | Ask::Deregister => flight.wait_ms,
        };
        sent_at.saturating_add(wait_ms)
    }

    /// When to show itself next, if nothing is on its way.
    pub(super) fn beat_due(&self, settings: &Settings) -> u64 {
        self.beat_at.saturating_add(self.interval_ms(settings))
    }
}
