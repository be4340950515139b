//! The Coordinator: the authority for one partition. It decides about runs, nodes, workers, assignment, claims, leases,
//! inboxes, triggers, timers and recovery, and touches nothing outside itself.
//!
//! Families of methods: [`Coordinator::handle`] takes an input; [`Coordinator::next_deadline`] says when to call again;
//! [`Coordinator::take_changes`] hands out the rows to commit; [`Coordinator::restore`] builds it from rows; and the
//! queries look without touching.

pub mod command;
pub mod effect;
pub mod event;
pub mod invariants;
pub mod memory;
pub mod query;
pub mod rejection;
pub mod row;
pub mod why;

mod apply;
mod changes;
mod decide;
mod dispatch;
mod engine;
mod follow;
mod placement;
mod react;
mod recover;
mod restore;
mod state;

pub use restore::BadRows;
pub use state::WorkerKey;
pub use state::held_digest;

use crate::limits::Limits;
use crate::time::{Deadline, Now, Reason};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use command::Input;
use effect::Output;
use event::{Event, Stamped};
use placement::Placement;
use row::{Change, Row};
use state::{State, Timer};

/// The authority for one partition.
#[derive(Debug, Clone)]
pub struct Coordinator {
    state: State,
    placement: Placement,
    /// What was decided and is not applied yet: empty between inputs, kept for its memory.
    queue: VecDeque<Event>,
    /// The next event that is not volatile begins a new step.
    begins_step: bool,
}

impl Coordinator {
    /// A new partition, in which nothing has happened.
    pub fn new(partition: u16, limits: Limits) -> Self {
        Self::of(State::new(partition, limits))
    }

    fn of(state: State) -> Self {
        Self { state, placement: Placement::default(), queue: VecDeque::new(), begins_step: true }
    }

    /// What happened, and what must follow. Effects in `out` may leave once the rows touched so far are durable.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Output) {
        engine::Engine { core: self, out }.handle(now, input);
    }

    /// When to call again, and why.
    pub fn next_deadline(&self) -> Option<Deadline> {
        let (at, timer) = self.state.timers.first()?;
        let reason = self.reason(timer);
        Some(Deadline { at, mono: self.state.clock.mono_at(at), reason })
    }

    /// The rows touched since they were last taken, each once. What has ended or sleeps for long leaves memory.
    pub fn take_changes(&mut self, changes: &mut Vec<Change>) {
        changes::take_changes(self, changes);
    }

    /// A machine that knows what these rows say. Tell it to recover before anything else.
    pub fn restore(limits: Limits, rows: impl IntoIterator<Item = Row>) -> Result<Self, BadRows> {
        restore::restore(limits, rows)
    }

    /// Makes the state what it was after an audited event. For replaying an audit; nothing decides by it (S50).
    pub fn replay(&mut self, stamped: &Stamped) {
        let state = &mut self.state;
        (state.clock.now, state.clock.wall, state.meta.step) = (stamped.at, stamped.wall, stamped.step);
        apply::Applier { state, placement: &mut self.placement }.apply(&stamped.event);
        self.placement.forget_news();
    }

    /// The bounds it works within.
    pub fn limits(&self) -> &Limits {
        &self.state.limits
    }

    fn reason(&self, timer: Timer) -> Reason {
        match timer {
            Timer::Rescue => Reason::Rescue,
            Timer::Sweep => Reason::Sweep,
            Timer::PageIn => Reason::PageIn,
            Timer::Worker(_) => Reason::Worker,
            Timer::Run(_) => Reason::RunDeadline,
            Timer::Inbox(..) => Reason::MessageClaim,
            Timer::Outbox(_) => Reason::Outbox,
            Timer::Node(number, node) => why::node_reason(&self.state, number, node),
        }
    }
}
