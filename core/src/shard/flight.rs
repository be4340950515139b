//! Batches under way to the store, oldest first. Each sending has a ticket of its own, so that an answer to an earlier
//! sending of the same batch can not be taken for an answer to this one.

use super::Settings;
use super::effect::{Order, Release};
use super::lifecycle::{BatchState, BatchStep};
use crate::coordinator::event::Stamped;
use crate::coordinator::row::Change;
use crate::id::{Batch, Ownership};
use crate::lifecycle::Lifecycle;
use crate::time::Reason;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Rows on their way, or, without rows, an ownership check.
#[derive(Debug, Clone)]
pub(super) struct Flight {
    /// Which batch or check, counted as they are formed.
    pub(super) number: u64,
    pub(super) ticket: u64,
    pub(super) state: BatchState,
    pub(super) cargo: Option<Cargo>,
    /// What leaves with it.
    pub(super) effects: Vec<Release>,
    tries: u32,
    /// When to send it again, or to ask again about it, on the monotonic clock.
    again_at: u64,
    /// Since when nobody knows.
    doubtful_since: u64,
}

/// The rows of a batch, kept until it is durable.
#[derive(Debug, Clone)]
pub(super) struct Cargo {
    pub(super) batch: Batch,
    pub(super) changes: Arc<Vec<Change>>,
    pub(super) audit: Arc<Vec<Stamped>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Flights {
    queue: VecDeque<Flight>,
    tickets: u64,
    /// How many were ever formed.
    pub(super) formed: u64,
}

impl Flights {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// All that was formed up to this number is durable.
    pub(super) fn durable(&self) -> u64 {
        self.queue.front().map_or(self.formed, |flight| flight.number - 1)
    }

    /// True if something waits to be sent again or to be found out about: whatever was sent now would be refused.
    pub(super) fn are_held_up(&self) -> bool {
        self.queue.iter().any(|flight| flight.state.waits())
    }

    pub(super) fn held(&self) -> usize {
        self.queue.iter().map(|flight| flight.effects.len()).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Flight> + Clone {
        self.queue.iter()
    }

    pub(super) fn launch(&mut self, cargo: Option<Cargo>, effects: Vec<Release>, owner: Ownership) -> Order {
        self.formed += 1;
        self.tickets += 1;
        let flight = Flight {
            number: self.formed,
            ticket: self.tickets,
            state: BatchState::Sent,
            cargo,
            effects,
            tries: 0,
            again_at: u64::MAX,
            doubtful_since: 0,
        };
        let order = flight.order(owner);
        self.queue.push_back(flight);
        order
    }

    pub(super) fn find(&mut self, ticket: u64) -> Option<&mut Flight> {
        self.queue.iter_mut().find(|flight| flight.ticket == ticket && !flight.state.is_terminal())
    }

    /// The oldest, if it is durable: in this order alone do effects leave.
    pub(super) fn pop_durable(&mut self) -> Option<Flight> {
        let is_durable = self.queue.front().is_some_and(|flight| flight.state == BatchState::Durable);
        if is_durable { self.queue.pop_front() } else { None }
    }

    /// Sends again what is due. A batch is never sent while one before it waits to be; asking may be done at any time.
    pub(super) fn resend_due(&mut self, mono: u64, owner: Ownership, orders: &mut Vec<Order>) {
        let mut is_blocked = false;
        for flight in &mut self.queue {
            if flight.state == BatchState::Doubtful && flight.again_at <= mono {
                flight.again_at = u64::MAX;
                orders.push(Order::Resolve { ticket: flight.ticket });
            }
            if flight.state == BatchState::Delayed && flight.again_at <= mono && !is_blocked {
                self.tickets += 1;
                flight.resend(self.tickets);
                orders.push(flight.order(owner));
            }
            is_blocked |= flight.state.waits();
        }
    }

    /// True if something has been unknown for too long.
    pub(super) fn is_unresolved(&self, mono: u64, settings: &Settings) -> bool {
        let is_late =
            |flight: &Flight| flight.state == BatchState::Doubtful && flight.doubt_ends(settings) <= mono;
        self.queue.iter().any(is_late)
    }

    /// When something is to be sent or asked again, or has been unknown for too long. Whatever waits behind another that
    /// waits is not due before that one.
    pub(super) fn next_deadline(&self, settings: &Settings) -> Option<(u64, Reason)> {
        let mut waiting = self.queue.iter().filter(|flight| flight.state.waits());
        let first = waiting.next()?;
        let doubtful = |flight: &&Flight| flight.state == BatchState::Doubtful;
        let ask = |flight: &Flight| (flight.again_at.min(flight.doubt_ends(settings)), Reason::ResolveAgain);
        let send = (first.again_at, Reason::CommitAgain);
        let first = if doubtful(&first) { ask(first) } else { send };
        waiting.filter(doubtful).map(ask).chain([first]).min_by_key(|(at, _)| *at)
    }

    /// All are gone with the memory; counts go on, so that late answers find nothing.
    pub(super) fn drop_all(&mut self) {
        for mut flight in self.queue.drain(..).filter(|flight| !flight.state.is_terminal()) {
            flight.step(BatchStep::Drop);
        }
    }
}

impl Flight {
    fn doubt_ends(&self, settings: &Settings) -> u64 {
        self.doubtful_since.saturating_add(settings.resolve_ms)
    }

    fn step(&mut self, step: BatchStep) {
        self.state = self.state.next(step);
    }

    fn order(&self, ownership: Ownership) -> Order {
        let ticket = self.ticket;
        match &self.cargo {
            None => Order::Check { ticket, ownership },
            Some(Cargo { batch, changes, audit }) => {
                let (changes, audit) = (changes.clone(), audit.clone());
                Order::Commit { ticket, ownership, batch: *batch, changes, audit }
            }
        }
    }

    fn resend(&mut self, ticket: u64) {
        self.step(BatchStep::Resend);
        self.ticket = ticket;
        self.again_at = u64::MAX;
    }

    pub(super) fn confirm(&mut self) {
        self.step(BatchStep::Confirm);
    }

    /// It was not applied: the same rows are sent again later.
    pub(super) fn fail(&mut self, mono: u64, settings: &Settings) {
        if self.state == BatchState::Sent {
            self.step(BatchStep::Fail);
            self.wait(mono, settings);
        }
    }

    /// Nobody knows whether it was applied: the store is asked, at once and then again and again.
    pub(super) fn doubt(&mut self, mono: u64) {
        if self.state != BatchState::Doubtful {
            self.step(BatchStep::Doubt);
            self.doubtful_since = mono;
            self.again_at = mono;
        }
    }

    /// The store was asked whether it was applied, and did not answer.
    pub(super) fn ask_again(&mut self, mono: u64, settings: &Settings) {
        if self.state == BatchState::Doubtful {
            self.wait(mono, settings);
        }
    }

    /// The store says what its last batch is.
    pub(super) fn resolve(&mut self, last: Batch, ticket: u64) -> bool {
        let (BatchState::Doubtful, Some(cargo)) = (self.state, &self.cargo) else { return false };
        if last >= cargo.batch {
            self.confirm();
            return false;
        }
        self.resend(ticket);
        true
    }

    fn wait(&mut self, mono: u64, settings: &Settings) {
        self.again_at = mono.saturating_add(settings.wait_ms(self.tries));
        self.tries = self.tries.saturating_add(1);
    }
}

impl Flights {
    /// What the store says about a batch that nobody knew about; it is sent again if it was not applied.
    pub(super) fn resolve(&mut self, ticket: u64, last: Batch, owner: Ownership, orders: &mut Vec<Order>) {
        let fresh = self.tickets + 1;
        let Some(flight) = self.find(ticket) else { return };
        if flight.resolve(last, fresh) {
            orders.push(flight.order(owner));
            self.tickets = fresh;
        }
    }
}
