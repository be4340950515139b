//! A piece of work in an Agent: where it stands, how sure its lease is, and what is to be reported on it.

use super::lifecycle::{LeaseState, LeaseStep, PieceState, PieceStep};
use super::{Settings, Why};
use crate::coordinator::command::{Held, Report, Then};
use crate::coordinator::effect::Grant;
use crate::lifecycle::Lifecycle;
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// Whose lease a piece of work lives under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Under {
    /// Its own.
    Own,
    /// That of its run, which is a piece of its own here.
    Run,
    /// None: it was offered and is declined.
    Nothing,
}

/// A piece of work in an Agent.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) grant: Box<Grant>,
    pub(super) under: Under,
    pub(super) state: PieceState,
    pub(super) lease: LeaseState,
    /// When the request was sent that last confirmed its lease.
    pub(super) seen_at: u64,
    /// The last request that was sent before it was held; those after it speak of it.
    pub(super) since: u64,
    /// In which order it came, and when.
    pub(super) order: u64,
    pub(super) came_at: u64,
    /// The executor was told to start it.
    pub(super) started: bool,
    /// Why it must stop, if it must.
    pub(super) stop: Option<Why>,
    /// To be reported, in this order, one at a time.
    pub(super) reports: VecDeque<Report>,
    /// One report on it is on its way.
    pub(super) flying: bool,
    /// The executor waits to hear what became of the outcome.
    pub(super) owed: bool,
    /// When to report again what was refused for now, and how often it was.
    pub(super) retry_at: u64,
    pub(super) tries: u32,
    /// Since when a run held as a whole has nothing to do here.
    pub(super) idle_from: u64,
    /// A later attempt of the same node, handed before this one was over.
    pub(super) next: Option<Box<Grant>>,
}

impl Piece {
    pub(super) fn new(grant: Box<Grant>, under: Under, state: PieceState, order: u64) -> Self {
        Self {
            grant,
            under,
            state,
            lease: LeaseState::Unknown,
            seen_at: 0,
            since: 0,
            order,
            came_at: 0,
            started: false,
            stop: None,
            reports: VecDeque::new(),
            flying: false,
            owed: false,
            retry_at: 0,
            tries: 0,
            idle_from: 0,
            next: None,
        }
    }

    pub(super) fn held(&self) -> Held {
        self.grant.held()
    }

    pub(super) fn step(&mut self, step: PieceStep) {
        self.state = self.state.next(step);
    }

    pub(super) fn is_whole_run(&self) -> bool {
        self.grant.node.is_whole_run()
    }

    /// True if it takes one of the worker's slots.
    pub(super) fn takes_slot(&self) -> bool {
        self.under == Under::Own
    }

    /// True if it takes one of the places for execution, which it does until its outcome is answered.
    pub(super) fn takes_place(&self) -> bool {
        self.state == PieceState::Starting || self.started
    }

    /// True if the partition should list it among the leases of this worker.
    pub(super) fn is_leased(&self) -> bool {
        self.under == Under::Own && self.state != PieceState::Offered && self.lease != LeaseState::Lost
    }

    /// True if it may go on only while its lease is confirmed.
    pub(super) fn needs_lease(&self) -> bool {
        matches!(self.state, PieceState::Claimed | PieceState::Starting | PieceState::Running)
    }

    /// Until when its lease is sure. It counts from when the request was sent, never from when the answer came.
    pub(super) fn until(&self, settings: &Settings) -> u64 {
        self.seen_at.saturating_add(settings.trusted_ms(self.grant.lease_ms))
    }

    /// A request that was sent then was answered, and it is held.
    pub(super) fn confirm(&mut self, sent_at: u64) {
        if self.lease != LeaseState::Lost {
            self.lease = self.lease.next(LeaseStep::Confirm);
            self.seen_at = self.seen_at.max(sent_at);
        }
    }

    /// A report on it. Only under the lease of a whole run must it name its attempt; elsewhere the epoch says it all.
    pub(super) fn report(&self, then: Then) -> Report {
        Report { attempt: self.attempt(), ..Report::new(self.held(), then) }
    }

    pub(super) fn attempt(&self) -> Option<crate::id::Attempt> {
        (self.under == Under::Run).then_some(self.grant.attempt)
    }
}
