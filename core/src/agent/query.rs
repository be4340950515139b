//! Read-only views of an Agent.

use super::lifecycle::{LeaseState, PieceState, SessionState};
use super::{Agent, Settings};
use crate::coordinator::command::Held;
use crate::id::{Attempt, Incarnation, Session as SessionNumber};

/// How an Agent stands with one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionView {
    /// Which partition.
    pub partition: u16,
    /// How it stands.
    pub state: SessionState,
    /// Its life number there; the last one, if it has none now.
    pub incarnation: Incarnation,
    /// Its session there.
    pub session: SessionNumber,
}

/// A piece of work in an Agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceView {
    /// What it is.
    pub held: Held,
    /// Which attempt.
    pub attempt: Attempt,
    /// Where it stands.
    pub state: PieceState,
    /// How sure its lease is.
    pub lease: LeaseState,
    /// Until when, on the Agent's clock.
    pub sure_until: u64,
}

impl Agent {
    /// Who it is, and its bounds.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How it stands with a partition.
    pub fn session(&self, partition: u16) -> Option<SessionView> {
        let session = self.sessions.get(&partition)?;
        Some(SessionView {
            partition,
            state: session.state,
            incarnation: session.incarnation,
            session: session.number,
        })
    }

    /// All pieces of work in it that are not over.
    pub fn pieces(&self) -> impl Iterator<Item = PieceView> {
        let pieces = self.sessions.values().flat_map(|session| session.pieces.values());
        pieces.map(|piece| PieceView {
            held: piece.held(),
            attempt: piece.grant.attempt,
            state: piece.state,
            lease: piece.lease,
            sure_until: piece.until(&self.settings),
        })
    }

    /// A piece of work in it.
    pub fn piece(&self, held: Held) -> Option<PieceView> {
        self.pieces().find(|piece| piece.held == held)
    }

    /// True once it left every partition, or was fenced there, and nothing executes.
    pub fn is_drained(&self) -> bool {
        self.draining.is_some_and(|draining| draining.said)
    }
}
