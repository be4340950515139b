//! A session with one partition: what is held of it, what stops and ends, and how the session itself ends. Requests and
//! their answers are in `request` and `answer`.

use super::lifecycle::{LeaseState, LeaseStep, PieceState, PieceStep, SessionState, SessionStep};
use super::memory::Memory;
use super::piece::{Piece, Under};
use super::request::{Flight, Kind, Sent, wait_ms};
use super::{Order, Refusal, Settings, Turn, Why};
use crate::coordinator::command::{Held, Then};
use crate::coordinator::effect::Grant;
use crate::id::{Incarnation, NodeIx, PollId, Session as SessionNumber};
use crate::lifecycle::Lifecycle;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A session with one partition.
#[derive(Debug, Clone)]
pub(super) struct Session {
    pub(super) partition: u16,
    pub(super) state: SessionState,
    pub(super) incarnation: Incarnation,
    pub(super) number: SessionNumber,
    /// When the last request was sent whose answer said that this session is current.
    pub(super) seen_at: u64,
    /// What is not answered, one of each kind.
    pub(super) flights: BTreeMap<Kind, Flight>,
    /// Copies of registrations that were not answered when another one was: they may have taken this life's place.
    pub(super) strays: Vec<Sent>,
    /// When to register, and how often that came to nothing.
    pub(super) register_at: u64,
    pub(super) tries: u32,
    /// When it last showed itself.
    pub(super) beat_at: u64,
    /// What is held here is not what the partition thinks, or may not be.
    pub(super) wants_reconcile: bool,
    /// The last poll, and when to poll again.
    pub(super) poll: PollId,
    pub(super) poll_at: u64,
    /// It was told that there is work since the last poll was sent.
    pub(super) is_woken: bool,
    /// Reports in one request, if the partition takes fewer than the settings say.
    pub(super) reports: u32,
    /// Pieces of work that the partition gives in one poll, as far as it said.
    pub(super) poll_most: u32,
    /// The last piece that was reported on, so that the next comes first.
    pub(super) reported: Option<Held>,
    pub(super) pieces: BTreeMap<Held, Piece>,
    /// Nodes that were handed before their run was known to be held.
    pub(super) early: Vec<Grant>,
    pub(super) memory: Memory,
}

impl Session {
    pub(super) fn new(partition: u16) -> Self {
        Self {
            partition,
            state: SessionState::Unregistered,
            incarnation: Incarnation::new(0),
            number: SessionNumber::new(0),
            seen_at: 0,
            flights: BTreeMap::new(),
            strays: Vec::new(),
            register_at: u64::MAX,
            tries: 0,
            beat_at: 0,
            wants_reconcile: false,
            poll: PollId::new(0),
            poll_at: 0,
            is_woken: false,
            reports: u32::MAX,
            poll_most: u32::MAX,
            reported: None,
            pieces: BTreeMap::new(),
            early: Vec::new(),
            memory: Memory::default(),
        }
    }

    pub(super) fn slots_taken(&self) -> usize {
        self.pieces.values().filter(|piece| piece.takes_slot()).count()
    }

    pub(super) fn reserved(&self) -> u32 {
        self.flights.get(&Kind::Poll).map_or(0, Flight::reserved)
    }

    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        if self.state == SessionState::Unregistered {
            self.register_at = self.register_at.min(turn.now);
        }
    }

    /// Somebody who knows better than this Agent says that it may take its place back.
    pub(super) fn restart(&mut self, turn: &mut Turn<'_>) {
        if self.state == SessionState::Fenced {
            self.state = self.state.next(SessionStep::Restart);
            (self.register_at, self.tries) = (turn.now, 0);
        }
    }

    /// How often it should show itself: what it holds says so, and a third of the trusted time is always enough.
    pub(super) fn interval_ms(&self, settings: &Settings) -> u64 {
        let leased = self.pieces.values().filter(|piece| piece.is_leased());
        let wanted = leased.map(|piece| {
            let trusted_ms = settings.trusted_ms(piece.grant.lease_ms);
            piece.grant.heartbeat_ms.min(trusted_ms / 3)
        });
        wanted.min().unwrap_or(u64::MAX).min(settings.heartbeat_ms).max(1)
    }

    /// Leases that were not confirmed in time are unknown from now on, and what runs under them stops.
    pub(super) fn doubt(&mut self, turn: &mut Turn<'_>) {
        let is_late = |piece: &&Piece| {
            piece.lease == LeaseState::Confirmed
                && piece.needs_lease()
                && piece.until(turn.settings) <= turn.now
        };
        let late: Vec<Held> = self.pieces.values().filter(is_late).map(Piece::held).collect();
        for held in late {
            if let Some(piece) = self.pieces.get_mut(&held) {
                piece.lease = piece.lease.next(LeaseStep::Doubt);
                // Whoever can not keep what it gets does not ask for more at once.
                self.poll_at = self.poll_at.max(turn.now.saturating_add(turn.settings.poll_ms));
                self.stop(held, Why::Unconfirmed, turn);
            }
        }
    }

    /// A piece of work must not go on: its executor is told, and what does not execute is given back.
    pub(super) fn stop(&mut self, held: Held, why: Why, turn: &mut Turn<'_>) {
        let Some(piece) = self.pieces.get_mut(&held) else { return };
        match piece.state {
            // The answer to its acceptance says what becomes of it, if that is on its way.
            PieceState::Offered if piece.flying => {}
            PieceState::Offered => self.finish(held, turn),
            PieceState::Claimed if piece.is_whole_run() => {
                piece.step(PieceStep::Stop);
                self.nodes_of(held).into_iter().for_each(|node| self.stop(node, why, turn));
            }
            // Of a node that did not begin under its run's lease the partition knows nothing.
            PieceState::Claimed if piece.under == Under::Run => self.finish(held, turn),
            PieceState::Starting if !piece.flying => {
                piece.reports.clear();
                if piece.under == Under::Run { self.finish(held, turn) } else { self.release(held) }
            }
            PieceState::Claimed | PieceState::Starting => self.release(held),
            PieceState::Running => {
                piece.step(PieceStep::Stop);
                piece.stop = Some(why);
                turn.orders.push(Order::Stop { held, why });
            }
            PieceState::Reporting => piece.stop = piece.stop.or(Some(why)),
            PieceState::Stopping | PieceState::Done => {}
        }
    }

    /// A partition said, in an answer, that a piece of work is not ours.
    pub(super) fn lose(&mut self, held: Held, why: Why, turn: &mut Turn<'_>) {
        let Some(piece) = self.pieces.get_mut(&held) else { return };
        piece.lease = piece.lease.next(LeaseStep::Lose);
        let is_run = piece.is_whole_run();
        match piece.state {
            PieceState::Claimed if is_run => piece.step(PieceStep::Stop),
            PieceState::Offered | PieceState::Claimed | PieceState::Starting => self.finish(held, turn),
            PieceState::Running => self.stop(held, why, turn),
            // It ends when its executor or its report is answered.
            PieceState::Stopping | PieceState::Reporting | PieceState::Done => {}
        }
        if is_run {
            self.nodes_of(held).into_iter().for_each(|node| self.lose(node, why, turn));
        }
    }

    /// The nodes that live under the lease of this run.
    pub(super) fn nodes_of(&self, run: Held) -> Vec<Held> {
        let of_run =
            |held: &&Held| (held.run, held.epoch) == (run.run, run.epoch) && !held.node.is_whole_run();
        self.pieces.keys().filter(of_run).copied().collect()
    }

    /// A piece of work goes back to its partition, behind what was to be reported on it.
    pub(super) fn release(&mut self, held: Held) {
        let Some(piece) = self.pieces.get_mut(&held) else { return };
        piece.step(PieceStep::Report);
        piece.reports.push_back(piece.report(Then::Release));
    }

    /// A piece of work is over. What was never begun under its run's lease may be handed again.
    pub(super) fn finish(&mut self, held: Held, turn: &mut Turn<'_>) {
        let Some(mut piece) = self.pieces.remove(&held) else { return };
        piece.step(PieceStep::Finish);
        if piece.owed {
            turn.orders.push(Order::Answer { held, result: Err(Refusal::Lost) });
        }
        if piece.started || piece.under != Under::Run {
            self.memory.remember(&piece.grant, piece.under, turn.settings.remembered);
        }
        if let Some(run) = self.run_of(held) {
            run.idle_from = turn.now;
        }
        if let Some(next) = piece.next {
            self.hand(next, turn);
        }
    }

    /// The run whose lease a node lives under.
    pub(super) fn run_of(&mut self, held: Held) -> Option<&mut Piece> {
        self.pieces.get_mut(&Held { node: NodeIx::WHOLE_RUN, ..held })
    }

    /// This life is over in this partition: whatever was asked is moot, and what executes must stop.
    pub(super) fn drop_all(&mut self, why: Why, turn: &mut Turn<'_>) {
        self.flights.clear();
        self.strays.clear();
        self.early.clear();
        (self.wants_reconcile, self.is_woken) = (false, false);
        let held: Vec<Held> = self.pieces.keys().copied().collect();
        for held in held {
            if let Some(piece) = self.pieces.get_mut(&held) {
                (piece.flying, piece.next) = (false, None);
                piece.reports.clear();
                let is_reporting = piece.state == PieceState::Reporting;
                self.lose(held, why, turn);
                if is_reporting {
                    self.finish(held, turn);
                }
            }
        }
        self.close_runs(turn);
    }

    /// Another life took our place. It may be one of our own, if a registration of ours was not answered; otherwise it is
    /// not for us to take the place back (L10).
    pub(super) fn fence(&mut self, current: Incarnation, turn: &mut Turn<'_>) {
        let may_be_ours = !self.strays.is_empty();
        self.drop_all(Why::Fenced, turn);
        if may_be_ours && self.state != SessionState::Leaving {
            self.forgotten(turn);
        } else {
            self.state = self.state.next(SessionStep::Fence);
            turn.orders.push(Order::Fenced { partition: self.partition, current });
        }
    }

    /// The partition does not know us: our leases ended with its memory of us, and nobody else took our place. So we may
    /// come back, after a while, and once nothing executes here any more.
    pub(super) fn forget(&mut self, turn: &mut Turn<'_>) {
        self.drop_all(Why::Lost, turn);
        if self.state == SessionState::Leaving {
            self.state = self.state.next(SessionStep::Depart);
        } else {
            self.forgotten(turn);
        }
    }

    fn forgotten(&mut self, turn: &mut Turn<'_>) {
        self.state = self.state.next(SessionStep::Forget);
        self.register_later(turn);
    }

    pub(super) fn register_later(&mut self, turn: &mut Turn<'_>) {
        let salt = u64::from(self.partition) << 32 | u64::from(self.tries);
        self.register_at = turn.now.saturating_add(wait_ms(turn.settings, self.tries, salt));
        self.tries = self.tries.saturating_add(1);
    }

    /// Runs held as a whole that were stopped are given back once nothing of them executes.
    pub(super) fn close_runs(&mut self, turn: &mut Turn<'_>) {
        let stopping =
            self.pieces.values().filter(|piece| piece.is_whole_run() && piece.state == PieceState::Stopping);
        let ready: Vec<Held> = stopping.map(Piece::held).collect();
        for held in ready {
            if self.nodes_of(held).is_empty() {
                self.close(held, turn);
            }
        }
    }

    /// What was stopped and does not execute any more is given back, if it may be ours.
    pub(super) fn close(&mut self, held: Held, turn: &mut Turn<'_>) {
        let Some(piece) = self.pieces.get(&held) else { return };
        if piece.lease == LeaseState::Lost || !self.state.is_known() {
            self.finish(held, turn);
        } else {
            self.release(held);
        }
    }
}
