//! What a partition answered: registration, signs of life and what they confirm, grants, and refusals of whole requests.
//! An answer that was not asked for, or that comes a second time, changes nothing.

use super::lifecycle::{PieceState, PieceStep, SessionStep};
use super::piece::{Piece, Under};
use super::request::{Ask, Flight, Sent};
use super::session::Session;
use super::{Order, Turn, Why};
use crate::coordinator::command::{Held, Then};
use crate::coordinator::effect::{Answer, Grant};
use crate::coordinator::rejection::Rejection;
use crate::id::{Incarnation, NodeIx, PollId, RequestId, Session as SessionNumber};
use crate::lifecycle::Lifecycle;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Session {
    /// A partition answered. What was not asked, or was answered before, is not looked at.
    pub(super) fn replied(
        &mut self,
        request: RequestId,
        result: Result<Answer, Rejection>,
        turn: &mut Turn<'_>,
    ) {
        let of_flight = |flight: &Flight| flight.copies.iter().find(|sent| sent.request == request).copied();
        let found = self.flights.iter().find_map(|(kind, flight)| Some((*kind, of_flight(flight)?)));
        let Some((kind, sent)) = found else { return self.stray(request, result, turn) };
        let flight = self.flights.remove(&kind).expect("it was just found");
        match (&flight.ask, result) {
            (Ask::Register, Ok(Answer::Registered { incarnation, session })) => {
                let strays = flight.copies.into_iter().filter(|copy| copy.request != request);
                self.admit((incarnation, session), sent, strays.collect(), turn);
            }
            (Ask::Register, Err(rejection)) => {
                self.state = self.state.next(SessionStep::Refuse);
                self.register_later(turn);
                turn.orders.push(Order::Unregistered { partition: self.partition, rejection });
            }
            (Ask::Heartbeat, Ok(Answer::Beat { session, reconcile, .. })) => {
                self.beat(session, reconcile, sent);
            }
            (Ask::Reconcile, Ok(Answer::Reconciled { session, lost, missed })) => {
                self.reconciled(session, &lost, missed, sent, turn);
            }
            (Ask::Poll { max, .. }, Ok(Answer::Polled { session, grants })) => {
                self.polled(*max, session, grants, sent, turn);
            }
            (Ask::Report(_), Ok(Answer::Reported(results))) => {
                let Ask::Report(reports) = flight.ask else { unreachable!("it was just matched") };
                self.answered(reports, results, turn);
            }
            (Ask::Deregister, Ok(Answer::Done)) => self.state = self.state.next(SessionStep::Depart),
            (_, Err(rejection)) => self.refused(flight, rejection, turn),
            // Nonsense is no answer: the request is repeated when its time has come.
            (_, Ok(_)) => drop(self.flights.insert(kind, flight)),
        }
    }

    /// An answer to a registration after another was answered: the later life counts, the earlier does not.
    fn stray(&mut self, request: RequestId, result: Result<Answer, Rejection>, turn: &mut Turn<'_>) {
        let Some(at) = self.strays.iter().position(|sent| sent.request == request) else { return };
        let sent = self.strays.remove(at);
        if let Ok(Answer::Registered { incarnation, session }) = result
            && incarnation > self.incarnation
            && self.state.is_known()
        {
            let strays = core::mem::take(&mut self.strays);
            self.drop_all(Why::Lost, turn);
            self.admit((incarnation, session), sent, strays, turn);
        }
    }

    fn admit(
        &mut self,
        (incarnation, number): (Incarnation, SessionNumber),
        sent: Sent,
        strays: Vec<Sent>,
        turn: &mut Turn<'_>,
    ) {
        self.state = self.state.next(SessionStep::Admit);
        (self.incarnation, self.number, self.seen_at) = (incarnation, number, sent.at);
        self.strays = strays;
        (self.beat_at, self.poll_at, self.poll) = (turn.now, turn.now, PollId::new(0));
    }

    /// A heartbeat confirms what was held when it was sent, if both sides hold the same.
    fn beat(&mut self, number: SessionNumber, reconcile: bool, sent: Sent) {
        self.tries = 0;
        if number == self.number {
            self.seen_at = self.seen_at.max(sent.at);
        }
        if number != self.number || reconcile {
            self.wants_reconcile = true;
        } else {
            self.confirm(sent);
        }
    }

    /// Leases that were held when this was sent are held.
    fn confirm(&mut self, sent: Sent) {
        let held = self.pieces.values_mut().filter(|piece| piece.since < sent.request.get());
        held.filter(|piece| piece.state != PieceState::Offered).for_each(|piece| piece.confirm(sent.at));
    }

    /// The partition compared what we said we hold with what we hold. A new session does not end all leases, only those
    /// that were shorter than the silence before it, and those are among the lost.
    fn reconciled(
        &mut self,
        number: SessionNumber,
        lost: &[Held],
        missed: Vec<Grant>,
        sent: Sent,
        turn: &mut Turn<'_>,
    ) {
        (self.number, self.seen_at) = (number, self.seen_at.max(sent.at));
        lost.iter().for_each(|held| self.lose(*held, Why::Lost, turn));
        self.confirm(sent);
        for grant in missed {
            if self.memory.knows(&grant, Under::Own) && grant.run.partition() == self.partition {
                // It is over here and held there: it is given back, which is refused if this is old news.
                self.give_back(Box::new(grant), turn);
            } else {
                self.claimed(Box::new(grant), sent, turn);
            }
        }
    }

    fn polled(
        &mut self,
        max: u32,
        number: SessionNumber,
        grants: Vec<Grant>,
        sent: Sent,
        turn: &mut Turn<'_>,
    ) {
        if number == self.number {
            self.seen_at = self.seen_at.max(sent.at);
        } else {
            self.wants_reconcile = true;
        }
        let is_satisfied = grants.len() as u64 >= u64::from(max);
        let now = turn.now;
        let again_ms = if is_satisfied || self.is_woken { 0 } else { turn.settings.poll_ms };
        self.poll_at = now.saturating_add(again_ms);
        for grant in grants {
            if !self.memory.knows(&grant, Under::Own) {
                self.claimed(Box::new(grant), sent, turn);
            }
        }
        let Self { early, pieces, .. } = self;
        early.retain(|grant| {
            let run = Held { node: NodeIx::WHOLE_RUN, ..grant.held() };
            pieces.get(&run).is_some_and(|piece| piece.state == PieceState::Offered)
        });
    }

    /// Work is ours, as the answer to what was sent then says.
    fn claimed(&mut self, grant: Box<Grant>, sent: Sent, turn: &mut Turn<'_>) {
        let held = grant.held();
        if let Some(piece) = self.pieces.get_mut(&held) {
            if piece.state == PieceState::Offered {
                self.accepted(held, sent.at, turn);
            }
            return;
        }
        if grant.run.partition() != self.partition {
            return;
        }
        if turn.room == 0 || turn.is_draining {
            return self.give_back(grant, turn);
        }
        turn.room -= 1;
        *turn.pieces += 1;
        let mut piece = Piece::new(grant, Under::Own, PieceState::Claimed, *turn.pieces);
        (piece.since, piece.idle_from) = (*turn.requests, turn.now);
        piece.confirm(sent.at);
        self.pieces.insert(held, piece);
        self.hand_early(held, turn);
    }

    /// An offer became ours.
    pub(super) fn accepted(&mut self, held: Held, seen_at: u64, turn: &mut Turn<'_>) {
        let piece = self.pieces.get_mut(&held).expect("it was just found");
        piece.step(PieceStep::Accept);
        piece.reports.clear();
        (piece.since, piece.idle_from) = (*turn.requests, turn.now);
        piece.confirm(seen_at);
        self.hand_early(held, turn);
    }

    /// Work that there is no place for goes back at once.
    fn give_back(&mut self, grant: Box<Grant>, turn: &mut Turn<'_>) {
        let held = grant.held();
        if self.pieces.contains_key(&held) {
            return;
        }
        *turn.pieces += 1;
        let mut piece = Piece::new(grant, Under::Own, PieceState::Reporting, *turn.pieces);
        piece.since = *turn.requests;
        piece.reports.push_back(piece.report(Then::Release));
        self.pieces.insert(held, piece);
    }

    /// A request was refused as a whole.
    fn refused(&mut self, flight: Flight, rejection: Rejection, turn: &mut Turn<'_>) {
        match (flight.ask, rejection) {
            (_, Rejection::StaleIncarnation { current, presented })
                if current > presented && presented == self.incarnation =>
            {
                self.fence(current, turn);
            }
            (_, Rejection::UnknownWorker { .. }) => self.forget(turn),
            (Ask::Poll { .. }, rejection) => {
                if let Rejection::StalePoll { last, .. } = rejection {
                    self.poll = self.poll.max(last);
                }
                self.poll_at = turn.now.saturating_add(turn.settings.poll_ms);
            }
            (Ask::Report(reports), rejection) => {
                if let Rejection::LimitReached { max, .. } = rejection {
                    self.reports = u32::try_from(max).unwrap_or(u32::MAX).max(1);
                }
                reports.into_iter().for_each(|report| self.again(report, turn));
            }
            (Ask::Deregister, _) => self.state = self.state.next(SessionStep::Depart),
            // They come again by themselves.
            (Ask::Register | Ask::Heartbeat | Ask::Reconcile, _) => {}
        }
    }
}
