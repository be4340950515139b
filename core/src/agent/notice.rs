//! What a partition says unasked. A notice is a hint: it may be lost, late or said twice, so nothing is held because of one
//! and nothing is lost because of one; it only makes the Agent ask, accept, start or stop sooner.

use super::lifecycle::{LeaseState, PieceState, SessionState};
use super::piece::{Piece, Under};
use super::request::Kind;
use super::session::Session;
use super::{Notice, Turn, Why};
use crate::coordinator::command::{Held, Then};
use crate::coordinator::effect::Grant;
use crate::id::NodeIx;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Session {
    pub(super) fn noticed(&mut self, notice: Notice, turn: &mut Turn<'_>) {
        if !self.state.is_known() {
            return;
        }
        match notice {
            Notice::Offer(grant) => self.offer(grant, turn),
            Notice::Hand(grant) => self.hand(grant, turn),
            Notice::Stop { held, reason } => self.stop(held, Why::Asked(reason), turn),
            Notice::Wake => {
                self.is_woken = true;
                self.poll_at = turn.now;
            }
        }
    }

    /// Work is offered: it is accepted if there is room for it, and declined if not, so that others are asked at once.
    fn offer(&mut self, grant: Box<Grant>, turn: &mut Turn<'_>) {
        let held = grant.held();
        let is_known = self.pieces.contains_key(&held) || self.memory.knows(&grant, Under::Own);
        if is_known || grant.run.partition() != self.partition {
            return;
        }
        let is_wanted = turn.settings.takes_offers
            && self.state == SessionState::Active
            && !turn.is_draining
            && turn.room > 0
            && turn.settings.trusted_ms(grant.lease_ms) >= 2;
        let declined = self.pieces.values().filter(|piece| piece.under == Under::Nothing).count();
        if !is_wanted && declined >= turn.settings.declines as usize {
            return;
        }
        let (under, state, then) = if is_wanted {
            (Under::Own, PieceState::Offered, Then::Accept)
        } else {
            (Under::Nothing, PieceState::Reporting, Then::Decline)
        };
        *turn.pieces += 1;
        let mut piece = Piece::new(grant, under, state, *turn.pieces);
        piece.came_at = turn.now;
        piece.reports.push_back(piece.report(then));
        self.pieces.insert(held, piece);
    }

    /// A node is handed under the lease of its run. It may come before the answer that says that we hold the run.
    pub(super) fn hand(&mut self, grant: Box<Grant>, turn: &mut Turn<'_>) {
        let held = grant.held();
        let run = Held { node: NodeIx::WHOLE_RUN, ..held };
        let is_done = self.memory.knows(&grant, Under::Run);
        let handed = self.pieces.values().filter(|piece| piece.under == Under::Run).count();
        let is_too_much = handed + self.early.len() >= turn.settings.hands as usize;
        if is_done || is_too_much || grant.node.is_whole_run() || grant.run.partition() != self.partition {
            return;
        }
        let (lease, seen_at) = match self.pieces.get(&run) {
            Some(piece) if piece.state == PieceState::Claimed => (piece.lease, piece.seen_at),
            None if !self.flights.contains_key(&Kind::Poll) => return,
            Some(piece) if piece.state != PieceState::Offered => return,
            None | Some(_) => {
                if !self.early.iter().any(|early| early.held() == held && early.attempt == grant.attempt) {
                    self.early.push(*grant);
                }
                return;
            }
        };
        if lease != LeaseState::Confirmed {
            return;
        }
        if let Some(piece) = self.pieces.get_mut(&held) {
            // A later attempt: the one that is here is over, whoever said so, and this one waits for its end.
            if piece.grant.attempt < grant.attempt && piece.under == Under::Run {
                piece.next = Some(grant);
                self.lose(held, Why::Lost, turn);
            }
            return;
        }
        *turn.pieces += 1;
        let mut piece = Piece::new(grant, Under::Run, PieceState::Claimed, *turn.pieces);
        piece.since = *turn.requests;
        piece.confirm(seen_at);
        self.pieces.insert(held, piece);
    }

    /// A run became ours: what was handed of it before is looked at again.
    pub(super) fn hand_early(&mut self, run: Held, turn: &mut Turn<'_>) {
        if !run.node.is_whole_run() {
            return;
        }
        let of_run = |grant: &Grant| (grant.run, grant.epoch) == (run.run, run.epoch);
        let (ours, others): (Vec<Grant>, Vec<Grant>) =
            core::mem::take(&mut self.early).into_iter().partition(of_run);
        self.early = others;
        ours.into_iter().for_each(|grant| self.hand(Box::new(grant), turn));
    }
}
