//! How what is known is brought up to date: what an input touched, right after it; the rest now and then. An input costs
//! what it touches, not what is known.

use super::known::{
    DefinitionFacts, HeadFacts, InboxFacts, Known, RunFacts, WorkFacts, WorkerFacts, fingerprint,
};
use crate::coordinator::Coordinator;
use crate::coordinator::command::{Command, Input, MessageKey};
use crate::coordinator::event::Event;
use crate::coordinator::row::{MessageAt, Row};
use crate::coordinator::state::{Run, WorkerKey};
use crate::id::*;
use crate::lifecycle::{Health, Lifecycle};
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// How many inputs workers and definitions that are not touched wait to be looked at.
const WHOLE_EVERY: u64 = 128;

/// The worker that a command names.
fn named(command: &Command) -> Option<WorkerId> {
    match command {
        Command::Heartbeat(beat) => Some(beat.worker),
        Command::Register { worker, .. }
        | Command::Reconcile { worker, .. }
        | Command::Poll { worker, .. }
        | Command::Claim { worker, .. }
        | Command::Report { worker, .. }
        | Command::Drain { worker, .. }
        | Command::Deregister { worker, .. } => Some(*worker),
        Command::Submit(submit) => submit.claim.map(|(worker, _)| worker),
        _ => None,
    }
}

/// The worker that an event names.
fn worker_of(event: &Event) -> Option<WorkerKey> {
    match event {
        Event::NodeAssigned { worker, .. }
        | Event::NodeClaimed { worker, .. }
        | Event::WorkerDrained { worker, .. }
        | Event::WorkerLeft { worker }
        | Event::SessionLapsed { worker, .. } => Some(*worker),
        Event::WorkerRegistered(registered) => Some(registered.worker),
        _ => None,
    }
}

impl Known {
    /// An input came, and its rows with it.
    pub(super) fn begin(&mut self, machine: &Coordinator, input: &Input) {
        // Signs of life and silence are in no audit. A command touches whom it names, and time whose time it is.
        self.whole |= self.turns.is_multiple_of(WHOLE_EVERY) || matches!(input, Input::Recover);
        self.turns += 1;
        match input {
            Input::Command(envelope) if !self.whole => {
                let tenant = envelope.tenant;
                self.met.extend(named(&envelope.command).map(|worker| WorkerKey { tenant, worker }));
            }
            Input::Pulse if !self.whole && machine.state.now() < self.silence => {}
            _ => {
                self.silence = Time::NEVER;
                self.met.extend(self.workers.keys().copied());
            }
        }
        if let Input::Loaded(loaded) = input {
            self.load(&loaded.rows);
        }
    }

    /// An event comes: it meets a worker, and is not about a run that left memory.
    pub(super) fn meet(&mut self, machine: &Coordinator, event: &Event) {
        if let Some(key) = worker_of(event)
            && self.met.last() != Some(&key)
        {
            self.met.push(key);
        }
        if let Some(id) = event.run()
            && machine.state.run(id).is_none()
        {
            self.forget(id);
        }
    }

    /// A worker as it was before this input.
    pub fn worker_before(&self, key: WorkerKey) -> Option<&WorkerFacts> {
        match self.workers_before.get(&key) {
            Some(before) => before.as_ref(),
            None => self.workers.get(&key),
        }
    }

    /// Runs that this input changed or brought.
    pub(super) fn touched(&self) -> impl Iterator<Item = (RunId, &RunFacts)> {
        self.touched.iter().filter_map(|id| self.runs.get(id).map(|facts| (*id, facts)))
    }

    /// A run that changes.
    pub(super) fn run(&mut self, id: RunId) -> Option<&mut RunFacts> {
        let run = self.runs.get_mut(&id)?;
        if !run.touched {
            run.touched = true;
            self.touched.push(id);
        }
        Some(run)
    }

    /// A run that was not known.
    pub(super) fn add(&mut self, id: RunId, facts: RunFacts) {
        self.forget(id);
        self.runs.insert(id, facts);
        self.run(id);
    }

    /// Takes in what an input left of what it touched, and forgets what may be forgotten.
    pub(super) fn end(&mut self, machine: &Coordinator) {
        let state = &machine.state;
        let mut touched = core::mem::take(&mut self.touched);
        for id in touched.drain(..) {
            if let Some(run) = state.run(id) {
                self.sync_run(id, run, state.limits.retention_ms);
            }
            self.runs.get_mut(&id).into_iter().for_each(|facts| facts.touched = false);
        }
        self.touched = touched;
        let mut met = core::mem::take(&mut self.met);
        met.drain(..).for_each(|key| self.sync_worker(machine, key));
        self.met = met;
        self.workers_before.clear();
        self.next_epoch = self.next_epoch.max(state.meta.next_epoch.get());
        if self.protected_until <= state.now() {
            self.protected.clear();
        }
        while let Some((at, tenant, key)) = self.expiring.first().copied()
            && at <= state.now()
        {
            self.expiring.pop_first();
            if self.keys.get(&(tenant, key)).is_some_and(|facts| facts.until <= state.now()) {
                self.keys.remove(&(tenant, key));
            }
        }
        self.define(machine);
        // What is known is at most twice what is there, so that forgetting costs no more than adding did.
        let is_new = core::mem::take(&mut self.whole) && self.turns == 1;
        if is_new || self.runs.len() > 2 * state.runs.len() + 64 {
            self.sync(machine);
        }
    }

    /// Takes in what a machine holds that is not known yet, and forgets what it does not hold.
    pub(super) fn sync(&mut self, machine: &Coordinator) {
        let state = &machine.state;
        let gone: Vec<RunId> = self.runs.keys().copied().filter(|id| state.run(*id).is_none()).collect();
        gone.into_iter().for_each(|id| self.forget(id));
        if self.runs.len() != state.runs.len() {
            for (_, run) in state.runs.iter() {
                let is_known = self.runs.contains_key(&run.head.id);
                if !is_known {
                    self.runs.insert(run.head.id, RunFacts::of(run));
                    self.list(run.head.id);
                    self.count(run.head.id);
                }
            }
        }
        let known: Vec<WorkerKey> = self.workers.keys().copied().collect();
        known.into_iter().for_each(|key| self.sync_worker(machine, key));
        for slot in state.workers.in_order() {
            self.sync_worker(machine, state.workers.at(slot).row.key);
        }
        self.define(machine);
        debug_assert!(self.adds_up(), "what is counted and listed is what is known of the runs");
        self.next_epoch = self.next_epoch.max(state.meta.next_epoch.get());
    }

    fn define(&mut self, machine: &Coordinator) {
        for entry in machine.state.definitions.iter().skip(self.definitions.len()) {
            self.definitions.push((DefinitionFacts::of(&entry.row), fingerprint(&entry.row)));
        }
    }

    fn sync_run(&mut self, id: RunId, run: &Run, retention_ms: u64) {
        let Some(facts) = self.runs.get_mut(&id) else { return };
        (facts.head, facts.stepped) = (HeadFacts::of(&run.head), run.stepped);
        if run.work_ixs().eq(facts.works.iter().map(|(node, _)| *node)) {
            facts.works.iter_mut().for_each(|(node, work)| *work = WorkFacts::of(run.work(*node)));
        } else {
            facts.works = RunFacts::of(run).works;
        }
        if facts.inboxes.len() != run.inboxes.len() {
            facts.inboxes = run.inboxes.iter().map(InboxFacts::of).collect();
        }
        for (known, inbox) in facts.inboxes.iter_mut().zip(&run.inboxes) {
            if known.row != inbox.row {
                known.row.clone_from(&inbox.row);
            }
            if known.ids.len() != inbox.ids.len() {
                known.ids.clone_from(&inbox.ids);
            }
            known.cursors = (inbox.row.cursor_stored, inbox.row.cursor_settled);
        }
        self.list(id);
        self.count(id);
        // An ended run may be forgotten with its retention, a live one never; one out of memory stays as it was.
        if let Some(key) = run.head.key
            && let Some(facts) = self.keys.get_mut(&(run.head.tenant, key.key))
            && facts.run == id
        {
            let is_over = run.head.status.is_terminal();
            facts.until = if is_over { run.head.kept_from().after_ms(retention_ms) } else { Time::NEVER };
            if is_over {
                self.expiring.insert((facts.until, run.head.tenant, key.key));
            }
        }
    }

    fn sync_worker(&mut self, machine: &Coordinator, key: WorkerKey) {
        let Some(worker) = machine.state.workers.get(key) else {
            self.workers.remove(&key);
            return;
        };
        let limits = &machine.state.limits;
        self.silence = self.silence.min(match worker.health {
            Health::Healthy => worker.last_seen.after_ms(limits.stale_ms),
            Health::Stale => worker.last_seen.after_ms(limits.dead_ms),
            _ => Time::NEVER,
        });
        let Some(known) = self.workers.get_mut(&key) else {
            self.workers.insert(key, WorkerFacts::of(worker));
            return;
        };
        (known.health, known.last_seen) = (worker.health, worker.last_seen);
        let row = &worker.row;
        (known.incarnation, known.session, known.fenced) = (row.incarnation, row.session, row.fenced);
        if known.lapsed != row.lapsed {
            known.lapsed.clone_from(&row.lapsed);
        }
    }

    /// Lists what is claimed of a run under its holders, in place of what was.
    fn list(&mut self, id: RunId) {
        let Some(facts) = self.runs.get_mut(&id) else { return };
        if facts.claims().eq(facts.listed.iter().copied()) {
            return;
        }
        for (worker, node, _) in &facts.listed {
            self.held.remove(&(*worker, id, *node));
        }
        facts.listed = facts.claims().collect();
        self.held.extend(facts.listed.iter().map(|(worker, node, epoch)| ((*worker, id, *node), *epoch)));
    }

    /// Counts what is held of a run under its concurrency key.
    pub(super) fn count(&mut self, id: RunId) {
        let Some(facts) = self.runs.get_mut(&id) else { return };
        let Some(limit) = facts.head.concurrency else { return };
        let held = facts.own().iter().filter(|(_, work)| work.phase.is_held()).count() as u32;
        let before = core::mem::replace(&mut facts.counted, held);
        if before != held {
            let under = self.under.entry((facts.head.tenant, limit.key)).or_default();
            *under = *under + held - before;
            if *under == 0 {
                self.under.remove(&(facts.head.tenant, limit.key));
            }
        }
    }

    /// True if counts and lists are what all runs together give.
    fn adds_up(&self) -> bool {
        let (mut under, mut held) = (BTreeMap::new(), BTreeMap::new());
        for (id, facts) in &self.runs {
            held.extend(facts.claims().map(|(worker, node, epoch)| ((worker, *id, node), epoch)));
            let Some(limit) = facts.head.concurrency else { continue };
            let count = facts.own().iter().filter(|(_, work)| work.phase.is_held()).count() as u32;
            if count > 0 {
                *under.entry((facts.head.tenant, limit.key)).or_default() += count;
            }
        }
        (under, held) == (self.under.clone(), self.held.clone())
    }

    /// Forgets a run.
    fn forget(&mut self, id: RunId) {
        if let Some(facts) = self.runs.get_mut(&id) {
            facts.works.clear();
            self.list(id);
            self.count(id);
            self.runs.remove(&id);
        }
    }

    /// Takes in runs whose rows were loaded. What is known of one that was here before must be what was loaded.
    fn load(&mut self, rows: &[Row]) {
        let mut new = BTreeSet::new();
        for row in rows {
            let Row::Run(row) = row else { continue };
            if self.run(row.head.id).is_none() {
                let mut works = Vec::new();
                works.extend(row.node.as_ref().map(|work| (NodeIx::new(0), WorkFacts::of(work))));
                works.extend(row.whole.as_ref().map(|work| (NodeIx::WHOLE_RUN, WorkFacts::of(work))));
                self.add(row.head.id, RunFacts::new(HeadFacts::of(&row.head), works, Vec::new(), 0));
                new.insert(row.head.id);
            }
        }
        for row in rows {
            let id = row.run().filter(|id| new.contains(id));
            let Some(run) = id.and_then(|id| self.runs.get_mut(&id)) else { continue };
            match row {
                Row::Node(row) => run.works.push((row.node, WorkFacts::of(&row.work))),
                Row::Inbox(row) => run.inboxes.push(InboxFacts::new(row.clone())),
                _ => {}
            }
        }
        for id in &new {
            let Some(run) = self.runs.get_mut(id) else { continue };
            run.works.sort_unstable_by_key(|(node, _)| *node);
            run.inboxes.sort_unstable_by_key(|inbox| (inbox.row.node, inbox.row.handle));
        }
        for row in rows {
            let Row::Message(row) = row else { continue };
            let MessageAt { run, node, handle, seq } = row.at;
            let run = Some(run).filter(|id| new.contains(id)).and_then(|id| self.runs.get_mut(&id));
            if let MessageKey::Own(id) = row.id
                && let Some(inbox) = run.and_then(|run| run.inbox_mut(node, handle))
            {
                inbox.ids.insert(id, (row.value.hash, seq));
            }
        }
        new.into_iter().for_each(|id| {
            self.list(id);
            self.count(id);
        });
    }
}
