//! All that may be done now, and when there will be more: what is known is looked at, and what follows from it is ordered.
//! Doing it again at the same instant orders nothing.

use super::lifecycle::{LeaseState, PieceState, PieceStep, SessionState, SessionStep};
use super::piece::{Piece, Under};
use super::request::{Ask, Flight, Kind};
use super::session::Session;
use super::{Agent, Draining, Order, Output, Settings, Turn, Why};
use crate::coordinator::command::{Held, Then};
use crate::lifecycle::Lifecycle;
use crate::time::{Deadline, Reason, Time};
use alloc::vec::Vec;
use core::cmp::Reverse;

impl Agent {
    pub(super) fn act(&mut self, out: &mut Output) {
        if let Some(draining) = self.draining {
            let is_over = draining.stop_at <= self.now;
            self.each(out, |session, turn| session.drain(is_over, turn));
        }
        self.each(out, |session, turn| {
            session.doubt(turn);
            session.give_up_idle_runs(turn);
            session.close_runs(turn);
        });
        self.begin_waiting();
        self.each(out, |session, turn| session.ask(turn));
        self.poll(out);
        self.say_drained(out);
    }

    /// Fills free places: higher priority first, then in the order in which they came.
    fn begin_waiting(&mut self) {
        let places = (self.settings.parallel as usize).saturating_sub(self.busy());
        if places == 0 {
            return;
        }
        let known = self.sessions.values().filter(|session| session.state.is_known());
        let waiting = known.flat_map(|session| session.pieces.values()).filter(|piece| {
            piece.state == PieceState::Claimed
                && !piece.is_whole_run()
                && piece.lease == LeaseState::Confirmed
        });
        let mut waiting: Vec<_> =
            waiting.map(|piece| (Reverse(piece.grant.priority), piece.order, piece.held())).collect();
        waiting.sort_unstable();
        for (_, _, held) in waiting.into_iter().take(places) {
            let session = self.sessions.get_mut(&held.run.partition());
            let piece = session.and_then(|session| session.pieces.get_mut(&held));
            let piece = piece.expect("it was just found");
            piece.step(PieceStep::Begin);
            piece.reports.push_back(piece.report(Then::Start));
        }
    }

    /// Asks for as much as there is room for, one partition after the other.
    fn poll(&mut self, out: &mut Output) {
        if !self.sessions.values().any(|session| session.may_poll(self.now)) {
            return;
        }
        let after = self.sessions.range(self.polled.saturating_add(1)..).map(|(partition, _)| *partition);
        let before = self.sessions.range(..=self.polled).map(|(partition, _)| *partition);
        let turns: Vec<u16> = after.chain(before).collect();
        for partition in turns {
            let max = self.room(None).min(self.settings.poll);
            let mut is_asked = false;
            self.with(partition, out, |session, turn| is_asked = session.poll(max, turn));
            if is_asked {
                self.polled = partition;
            }
        }
    }

    fn say_drained(&mut self, out: &mut Output) {
        let is_gone = |session: &Session| {
            matches!(session.state, SessionState::Left | SessionState::Fenced) && session.pieces.is_empty()
        };
        if let Some(draining @ Draining { said: false, .. }) = &mut self.draining
            && self.sessions.values().all(is_gone)
        {
            draining.said = true;
            out.orders.push(Order::Drained);
        }
    }
}

impl Session {
    /// Takes nothing new. What only waits goes back at once, because another worker may start it now; what runs goes on,
    /// and so do runs held as a whole, until the time for draining is over.
    fn drain(&mut self, is_over: bool, turn: &mut Turn<'_>) {
        if self.state == SessionState::Active {
            self.state = self.state.next(SessionStep::Drain);
            // What a poll on its way brings is given back when we leave, or found by a heartbeat.
            self.flights.remove(&Kind::Poll);
        }
        let goes = |piece: &&Piece| {
            let waits =
                piece.state == PieceState::Claimed && piece.under == Under::Own && !piece.is_whole_run();
            waits || (is_over && piece.needs_lease())
        };
        let going: Vec<Held> = self.pieces.values().filter(goes).map(Piece::held).collect();
        going.into_iter().for_each(|held| self.stop(held, Why::Draining, turn));
    }

    /// A run held as a whole of which nothing is handed for long lost a notice on the way: given back, it is given out
    /// again with all its nodes (L4).
    fn give_up_idle_runs(&mut self, turn: &mut Turn<'_>) {
        let idle: Vec<Held> = self
            .pieces
            .values()
            .filter(|piece| self.idle_until(piece, turn.settings).is_some_and(|until| until <= turn.now))
            .map(Piece::held)
            .collect();
        idle.into_iter().for_each(|held| self.stop(held, Why::Unconfirmed, turn));
    }

    /// Until when a run with nothing to do is kept.
    fn idle_until(&self, piece: &Piece, settings: &Settings) -> Option<u64> {
        let is_idle = piece.is_whole_run()
            && piece.state == PieceState::Claimed
            && self.nodes_of(piece.held()).is_empty();
        is_idle.then(|| piece.idle_from.saturating_add(settings.idle_run_ms))
    }

    /// Sends what is due, but for new polls, which wait for their turn.
    fn ask(&mut self, turn: &mut Turn<'_>) {
        match self.state {
            SessionState::Unregistered if turn.is_draining => {
                if self.pieces.is_empty() {
                    self.state = self.state.next(SessionStep::Depart);
                }
            }
            SessionState::Unregistered => {
                // What executes under a former life must have stopped before the next one begins.
                if self.register_at <= turn.now && self.pieces.is_empty() {
                    self.state = self.state.next(SessionStep::Register);
                    self.send(Ask::Register, turn);
                }
            }
            SessionState::Registering => {
                if turn.is_draining && self.is_unheard(Kind::Register, turn) {
                    self.flights.clear();
                    self.state = self.state.next(SessionStep::Refuse).next(SessionStep::Depart);
                } else {
                    self.repeat(Kind::Register, turn);
                }
            }
            SessionState::Active | SessionState::Draining => {
                self.show(turn);
                self.reconcile(turn);
                self.report(turn);
                self.repeat(Kind::Poll, turn);
                let is_through = self.pieces.is_empty() && !self.flights.contains_key(&Kind::Report);
                if self.state == SessionState::Draining && is_through {
                    self.flights.clear();
                    self.state = self.state.next(SessionStep::Leave);
                    self.send(Ask::Deregister, turn);
                }
            }
            SessionState::Leaving => {
                if self.is_unheard(Kind::Deregister, turn) {
                    self.flights.clear();
                    self.state = self.state.next(SessionStep::Depart);
                } else {
                    self.repeat(Kind::Deregister, turn);
                }
            }
            SessionState::Fenced | SessionState::Left => {}
        }
    }

    /// True if a request was repeated so often that nobody will hear it.
    fn is_unheard(&self, kind: Kind, turn: &Turn<'_>) -> bool {
        let is_last = |flight: &Flight| flight.tries >= turn.settings.farewells;
        self.flights
            .get(&kind)
            .is_none_or(|flight| is_last(flight) && self.due(flight, turn.settings) <= turn.now)
    }

    /// A sign of life, when it is due or when an offer waits for one.
    fn show(&mut self, turn: &mut Turn<'_>) {
        if self.flights.contains_key(&Kind::Heartbeat) {
            self.repeat(Kind::Heartbeat, turn);
        } else if self.beat_due(turn.settings) <= turn.now || self.has_stale_offer(turn.settings, turn.now) {
            self.beat_at = turn.now;
            self.send(Ask::Heartbeat, turn);
        }
    }

    fn reconcile(&mut self, turn: &mut Turn<'_>) {
        if self.flights.contains_key(&Kind::Reconcile) {
            self.repeat(Kind::Reconcile, turn);
        } else if core::mem::take(&mut self.wants_reconcile) {
            self.send(Ask::Reconcile, turn);
        }
    }

    fn may_poll(&self, now: u64) -> bool {
        self.state == SessionState::Active && self.poll_at <= now && !self.flights.contains_key(&Kind::Poll)
    }

    /// Asks for up to `max` pieces of work. True if it did.
    fn poll(&mut self, max: u32, turn: &mut Turn<'_>) -> bool {
        let max = max.min(self.poll_most);
        let is_due = max > 0 && self.may_poll(turn.now);
        if is_due {
            self.poll = self.poll.next();
            self.is_woken = false;
            self.send(Ask::Poll { poll: self.poll, max }, turn);
        }
        is_due
    }

    /// Every instant at which there will be something to do.
    pub(super) fn deadlines(
        &self,
        settings: &Settings,
        now: u64,
        room: u32,
        mut at: impl FnMut(u64, Reason),
    ) {
        for flight in self.flights.values() {
            at(self.due(flight, settings), Reason::Answer);
        }
        let is_working = matches!(self.state, SessionState::Active | SessionState::Draining);
        if self.state == SessionState::Unregistered && self.pieces.is_empty() {
            at(self.register_at, Reason::Register);
        }
        if is_working && !self.flights.contains_key(&Kind::Heartbeat) {
            at(self.beat_due(settings), Reason::Heartbeat);
        }
        if self.state == SessionState::Active && room > 0 && !self.flights.contains_key(&Kind::Poll) {
            at(self.poll_at, Reason::Poll);
        }
        for piece in self.pieces.values() {
            if piece.needs_lease() && piece.lease == LeaseState::Confirmed {
                at(piece.until(settings), Reason::Guard);
            }
            // What may be sent and was not waits for the answer to what is on its way.
            if is_working && !piece.flying && !piece.reports.is_empty() && piece.retry_at > now {
                at(piece.retry_at, Reason::Report);
            }
            if let Some(until) = self.idle_until(piece, settings) {
                at(until, Reason::IdleRun);
            }
        }
    }
}

/// The first instant at which there will be something to do. What waits for an answer on its way has that one's.
pub(super) fn next_deadline(agent: &Agent) -> Option<Deadline> {
    let mut first: Option<(u64, Reason)> = None;
    let mut at = |instant: u64, reason: Reason| {
        if instant != u64::MAX && first.is_none_or(|first| (instant, reason) < first) {
            first = Some((instant, reason));
        }
    };
    let room = agent.room(None);
    for session in agent.sessions.values() {
        session.deadlines(&agent.settings, agent.now, room, &mut at);
    }
    if let Some(draining) = agent.draining.filter(|draining| draining.stop_at > agent.now) {
        at(draining.stop_at, Reason::Drain);
    }
    first.map(|(mono, reason)| Deadline { at: Time::from_ms(mono), mono, reason })
}
