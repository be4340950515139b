//! One input of a Shard, from its arrival to what is formed and let go because of it.

use super::command::{Input, Opening, Outcome};
use super::effect::{Loss, NotTaken, Order, Output, Release};
use super::flight::Cargo;
use super::lifecycle::{Standing, StandingStep};
use super::paging::{Look, Wanted};
use super::{Forming, Shard, Tap};
use crate::coordinator::command::{Command, Envelope, Input as Fed, Load, Loaded, Need};
use crate::coordinator::row::Row;
use crate::coordinator::{BadRows, Coordinator};
use crate::id::{Batch, Ownership, RequestId};
use crate::lifecycle::Lifecycle;
use crate::time::Now;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

pub(super) struct Turn<'a, T> {
    pub(super) shard: &'a mut Shard,
    pub(super) now: Now,
    pub(super) out: &'a mut Output,
    pub(super) tap: &'a mut T,
}

impl<T: Tap> Turn<'_, T> {
    pub(super) fn run(&mut self, input: Input) {
        match input {
            Input::Own { ownership } => self.own(ownership),
            Input::Loaded { ownership, opening } => self.loaded(ownership, opening),
            Input::Command(envelope) => self.command(envelope),
            Input::Look { request, tenant, run } => self.look(Look { request, tenant, run }),
            Input::Answered { ticket, outcome } => self.answered(ticket, outcome),
            Input::Resolved { ticket, found } => self.resolved(ticket, found),
            Input::Fetched { fetch, rows } => self.fetched(fetch, rows),
            Input::Pulse => self.pulse(),
            Input::Close => self.close(),
        }
        self.release();
        self.begin_fetches();
        self.form();
        self.finish_closing();
    }

    fn step(&mut self, step: StandingStep) {
        self.shard.standing = self.shard.standing.next(step);
    }

    fn is_serving(&self) -> bool {
        self.shard.standing == Standing::Serving
    }

    fn own(&mut self, ownership: Ownership) {
        if ownership <= self.shard.ownership {
            return;
        }
        match self.shard.standing {
            Standing::Empty => {}
            Standing::Broken => self.step(StandingStep::Close),
            Standing::Loading | Standing::Serving | Standing::Closing => self.lose(Loss::Fenced),
        }
        self.step(StandingStep::Own);
        self.shard.ownership = ownership;
        self.out.orders.push(Order::Load { ownership });
    }

    fn loaded(&mut self, ownership: Ownership, opening: Opening) {
        if self.shard.standing != Standing::Loading || self.shard.ownership != ownership {
            return;
        }
        match opening {
            Opening::Failed => self.lose(Loss::NotLoaded),
            Opening::Damaged => self.spoil(None),
            Opening::Rows { batch, rows } => match self.machine_of(batch, rows) {
                Err(bad) => self.spoil(Some(bad)),
                Ok(machine) => self.serve(batch, machine),
            },
        }
    }

    /// A machine of what was read. No rows is a new partition only if nothing was ever committed: one that lost its rows
    /// would mint its epochs anew (S7).
    fn machine_of(&self, batch: Batch, rows: Vec<Row>) -> Result<Coordinator, BadRows> {
        let (limits, partition) = (self.shard.limits.clone(), self.shard.partition);
        if rows.is_empty() && batch == Batch::default() {
            return Ok(Coordinator::new(partition, limits));
        }
        let of_another = rows.iter().find_map(|row| match row {
            Row::Meta(meta) if meta.partition != partition => Some(meta.partition),
            _ => None,
        });
        match of_another {
            Some(partition) => Err(BadRows::OtherPartition { partition }),
            None => Coordinator::restore(limits, rows),
        }
    }

    fn serve(&mut self, batch: Batch, machine: Coordinator) {
        self.step(StandingStep::Load);
        self.shard.batch = batch;
        self.tap.opened(&machine);
        self.shard.machine = Some(Box::new(machine));
        self.feed(Fed::Recover);
    }

    fn spoil(&mut self, why: Option<BadRows>) {
        self.step(StandingStep::Spoil);
        self.out.orders.push(Order::Broken { ownership: self.shard.ownership, why });
    }

    fn command(&mut self, envelope: Envelope) {
        let is_vital = matches!(envelope.command, Command::Heartbeat(_) | Command::Report { .. });
        let is_full = if is_vital { self.shard.is_flooded() } else { self.shard.is_busy() };
        if self.may_begin(envelope.request, is_full) {
            self.feed(Fed::Command(envelope));
        }
    }

    /// True if a request may be taken; else it is told so.
    fn may_begin(&mut self, request: RequestId, is_full: bool) -> bool {
        let why = match self.is_serving() {
            true if !is_full => return true,
            true => NotTaken::Busy,
            false => NotTaken::NotOwner,
        };
        self.out.effects.push(Release::NotTaken { request, why });
        false
    }

    fn look(&mut self, look: Look) {
        if !self.may_begin(look.request, self.shard.is_busy()) || self.show(look) {
            return;
        }
        if look.run.partition() != self.shard.partition {
            self.shard.forming.effects.push(Release::View { request: look.request, view: None });
            return;
        }
        let needs = alloc::vec![Need::Run { number: look.run.number() }];
        self.want(Load { needs, again: None }, Some(look));
    }

    /// Shows a run that is in memory.
    fn show(&mut self, look: Look) -> bool {
        let view = self.shard.machine.as_ref().and_then(|machine| machine.run(look.tenant, look.run));
        let is_there = view.is_some();
        if is_there {
            let view = view.map(Box::new);
            self.shard.forming.effects.push(Release::View { request: look.request, view });
        }
        is_there
    }

    fn want(&mut self, load: Load, look: Option<Look>) {
        let after = self.shard.flights.formed;
        self.shard.pages.want(Wanted::new(load, look, after));
    }

    /// Lets the Coordinator decide, and holds what it says.
    fn feed(&mut self, input: Fed) {
        let shard = &mut *self.shard;
        let Some(machine) = &mut shard.machine else { return };
        self.tap.before(self.now, machine, &input);
        machine.handle(self.now, input, &mut shard.said);
        self.tap.after(machine, &shard.said);
        shard.forming.effects.extend(shard.said.effects.drain(..).map(Release::Effect));
        shard.forming.audit.append(&mut shard.said.audit);
        let loads = core::mem::take(&mut shard.said.loads);
        loads.into_iter().for_each(|load| self.want(load, None));
    }

    fn answered(&mut self, ticket: u64, outcome: Outcome) {
        let (mono, settings) = (self.now.mono, &self.shard.settings);
        let Some(flight) = self.shard.flights.find(ticket) else { return };
        match outcome {
            Outcome::Durable => flight.confirm(),
            Outcome::NotApplied => flight.fail(mono, settings),
            // A check that nobody answered is asked again; it can not have done anything.
            Outcome::Unknown if flight.cargo.is_none() => flight.fail(mono, settings),
            Outcome::Unknown => flight.doubt(mono),
            Outcome::Fenced => return self.lose(Loss::Fenced),
            Outcome::Failed => return self.lose(Loss::StoreFailed),
        }
        self.resend_due();
    }

    fn resolved(&mut self, ticket: u64, found: Option<(Ownership, Batch)>) {
        let shard = &mut *self.shard;
        let Some(flight) = shard.flights.find(ticket) else { return };
        match found {
            None => flight.ask_again(self.now.mono, &shard.settings),
            Some((owner, _)) if owner != shard.ownership => return self.lose(Loss::Fenced),
            Some((owner, last)) => shard.flights.resolve(ticket, last, owner, &mut self.out.orders),
        }
        self.resend_due();
    }

    fn resend_due(&mut self) {
        let shard = &mut *self.shard;
        if shard.flights.is_unresolved(self.now.mono, &shard.settings) {
            return self.lose(Loss::Unresolved);
        }
        shard.flights.resend_due(self.now.mono, shard.ownership, &mut self.out.orders);
    }

    fn fetched(&mut self, fetch: u64, rows: Option<Vec<Row>>) {
        let (read, durable) = (rows.as_deref().unwrap_or_default(), self.shard.flights.durable());
        let Some((mut wanted, is_current)) = self.shard.pages.end(fetch, read, durable) else { return };
        wanted.after = self.shard.flights.formed;
        let Some(rows) = rows else {
            wanted.again_at = self.now.mono.saturating_add(self.shard.settings.wait_ms(wanted.tries));
            // Nothing is held up for a store that does not answer.
            (wanted.tries, wanted.stale) = (wanted.tries.saturating_add(1), 0);
            return self.shard.pages.want(wanted);
        };
        if !is_current {
            (wanted.again_at, wanted.stale) = (0, wanted.stale + 1);
            return self.shard.pages.want(wanted);
        }
        self.feed(Fed::Loaded(Loaded { load: wanted.load, rows }));
        if let Some(look) = wanted.look
            && !self.show(look)
        {
            self.shard.forming.effects.push(Release::View { request: look.request, view: None });
        }
    }

    fn pulse(&mut self) {
        let due = self.shard.machine.as_ref().and_then(|machine| machine.next_deadline());
        let is_due = due.is_some_and(|deadline| deadline.mono <= self.now.mono);
        if self.is_serving() && is_due && !self.shard.is_flooded() {
            self.feed(Fed::Pulse);
        }
        self.resend_due();
    }

    fn close(&mut self) {
        match self.shard.standing {
            Standing::Serving => {
                self.step(StandingStep::Close);
                self.turn_away();
            }
            Standing::Loading | Standing::Broken => {
                self.step(StandingStep::Close);
                self.out.orders.push(Order::Released { ownership: self.shard.ownership });
            }
            Standing::Empty | Standing::Closing => {}
        }
    }

    /// Nothing was done about what waits to be read.
    fn turn_away(&mut self) {
        let why = NotTaken::NotOwner;
        for wanted in self.shard.pages.drop_all() {
            let asked = wanted.look.map(|look| look.request);
            let asked = asked.or(wanted.load.again.map(|envelope| envelope.request));
            self.out.effects.extend(asked.map(|request| Release::NotTaken { request, why }));
        }
    }

    fn finish_closing(&mut self) {
        if self.shard.standing == Standing::Closing && self.shard.flights.is_empty() {
            self.step(StandingStep::Release);
            self.shard.machine = None;
            self.out.orders.push(Order::Released { ownership: self.shard.ownership });
        }
    }

    /// Forgets everything that may not be so (S47). What was held never leaves.
    fn lose(&mut self, why: Loss) {
        self.step(StandingStep::Lose);
        self.shard.machine = None;
        self.shard.flights.drop_all();
        self.shard.forming = Forming::default();
        self.turn_away();
        self.out.orders.push(Order::Lost { ownership: self.shard.ownership, why });
    }

    /// Lets go what is durable, in order (S45).
    fn release(&mut self) {
        while let Some(mut flight) = self.shard.flights.pop_durable() {
            self.out.effects.append(&mut flight.effects);
        }
    }

    fn begin_fetches(&mut self) {
        let shard = &mut *self.shard;
        if shard.standing != Standing::Serving {
            return;
        }
        let (durable, most) = (shard.flights.durable(), shard.settings.fetches);
        while let Some((fetch, needs)) = shard.pages.begin(self.now.mono, durable, most) {
            self.out.orders.push(Order::Fetch { fetch, ownership: shard.ownership, needs });
        }
    }

    /// Sends what was decided since the last batch, if there is room under way.
    fn form(&mut self) {
        let shard = &mut *self.shard;
        let Some(machine) = &mut shard.machine else { return };
        let is_full = shard.flights.len() >= shard.settings.in_flight.max(1);
        if is_full || shard.flights.are_held_up() || shard.pages.hold_up() {
            return;
        }
        let mut changes = Vec::new();
        machine.take_changes(&mut changes);
        if changes.is_empty() && shard.forming.effects.is_empty() {
            return;
        }
        if changes.is_empty() && shard.settings.exclusive {
            if shard.flights.is_empty() {
                self.out.effects.append(&mut shard.forming.effects);
            }
            return;
        }
        let Forming { effects, audit } = core::mem::take(&mut shard.forming);
        let cargo = (!changes.is_empty()).then(|| {
            shard.batch = Batch::new(shard.batch.get() + 1);
            Cargo { batch: shard.batch, changes: Arc::new(changes), audit: Arc::new(audit) }
        });
        if let Some(cargo) = &cargo {
            shard.pages.formed(shard.flights.formed + 1, &cargo.changes);
        }
        let order = shard.flights.launch(cargo, effects, shard.ownership);
        self.out.orders.push(order);
    }
}
