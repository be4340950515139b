//! What an event does to workers, leases, keys and debts.

use super::journal::Undo;
use super::state::{Debt, Def, Hold, Worker};
use super::{Model, Step, Wanted, wrong};
use std::sync::Arc;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::event::{DefinitionAdded, WorkerRegistered};
use tenure_core::definition::Name;
use tenure_core::id::*;
use tenure_core::lifecycle::Lifecycle;
use tenure_core::time::Time;

impl Model {
    /// A grant was made: it takes up a slot, and a place under the run's concurrency key (S38).
    pub(super) fn take(&mut self, key: WorkerKey, epoch: Epoch, hold: Hold) {
        self.set_hold((key, epoch), Some(hold));
        if let Some(worker) = self.worker_mut(key) {
            worker.used += 1;
        }
        self.count_under(hold.run, 1);
    }

    /// A grant is over.
    pub(super) fn let_go(&mut self, number: u64, node: NodeIx) -> Step {
        let Some(run) = self.runs.get(&number) else { return Ok(()) };
        let Some(work) = run.node(node) else { return Ok(()) };
        let Some(tenure) = work.tenure.filter(|_| work.phase.is_held()) else { return Ok(()) };
        if run.grant_of(node) != node {
            return Ok(());
        }
        let (key, epoch) = (WorkerKey { tenant: run.tenant, worker: tenure.worker }, work.epoch);
        if !self.holds.contains_key(&(key, epoch)) {
            return Err(wrong("S6: a lease ends that nobody has", "a lease", (number, node, epoch)));
        }
        let hold = self.holds[&(key, epoch)];
        self.set_hold((key, epoch), None);
        // What lapsed, or is of a former life, took up no slot any more.
        if let Some(worker) = self.worker_mut(key)
            && worker.counts(&hold)
        {
            worker.used -= 1;
        }
        self.count_under(number, -1);
        Ok(())
    }

    fn count_under(&mut self, number: u64, change: i32) {
        let Some(run) = self.runs.get(&number) else { return };
        let Some(concurrency) = run.concurrency else { return };
        let key = (run.tenant, concurrency.key);
        let held = self.under.get(&key).copied().unwrap_or(0);
        self.set_under(key, held.saturating_add_signed(change));
    }

    /// S7: a number of a grant is above all before it.
    pub(super) fn mint(&mut self, epoch: u64) -> Step {
        if epoch <= self.counts.last_epoch {
            return Err(wrong("S7: epochs strictly grow", self.counts.last_epoch, epoch));
        }
        self.counts_mut().last_epoch = epoch;
        Ok(())
    }

    pub(super) fn apply_registered(&mut self, at: Time, event: &WorkerRegistered) -> Step {
        self.mint(event.incarnation.get())?;
        let key = event.worker;
        let (session, fenced, lapsed) = match self.workers.get(&key) {
            Some(known) => {
                let session = Session::new(known.session.get() + 1);
                (session, session, known.lapsed.clone())
            }
            None => (Session::new(1), Session::new(0), Vec::new()),
        };
        let worker = Worker {
            key,
            incarnation: event.incarnation,
            session,
            fenced,
            lapsed,
            spec: event.spec.clone(),
            draining: false,
            last_seen: at,
            last_poll: None,
            used: 0,
            kept: self.journal.generation,
        };
        self.set_worker(key, Some(worker));
        Ok(())
    }

    pub(super) fn apply_lapsed(&mut self, key: WorkerKey, lease_ms: u64) {
        let Some(known) = self.workers.get(&key) else { return };
        let lane = self
            .holds_of(key)
            .filter(|(_, hold)| !hold.offered && hold.lease_ms == lease_ms && known.counts(hold));
        let lapses = lane.count() as u32;
        let Some(worker) = self.worker_mut(key) else { return };
        worker.used -= lapses;
        worker.session = Session::new(worker.session.get() + 1);
        let session = worker.session;
        worker.lapsed.retain(|(length, _)| *length != lease_ms);
        worker.lapsed.push((lease_ms, session));
    }

    pub(super) fn apply_defined(&mut self, event: &DefinitionAdded) -> Step {
        let DefinitionAdded { id, tenant, version, hash, definition } = event;
        let def = Def::new(*id, *tenant, *version, *hash, definition);
        if !def.is_acyclic() {
            return Err(wrong("S21: a graph is acyclic", "no cycle", &definition.name));
        }
        if id.get() as usize != self.definitions.len() {
            return Err(wrong("definitions are counted", self.definitions.len(), id));
        }
        self.journal.push(Undo::Definitions(self.definitions.len()));
        self.definitions.push(Arc::new(def));
        Ok(())
    }

    pub(super) fn apply_alias(&mut self, tenant: TenantId, name: &Name, alias: &Name, id: DefinitionId) {
        let key = (tenant, name.clone(), alias.clone());
        let was = self.aliases.insert(key.clone(), id);
        self.journal.push(Undo::Alias(key, was));
    }

    pub(super) fn apply_enqueued(&mut self, id: OutboxId, debt: Debt) -> Step {
        let expected = self.counts.next_outbox.unwrap_or(id.get());
        if id.get() != expected {
            return Err(wrong("debts are counted", expected, id));
        }
        self.counts_mut().next_outbox = Some(id.get() + 1);
        self.set_debt(id, Some(debt));
        self.wanted.push(Wanted::Deliver(id));
        Ok(())
    }

    /// What ended and whose time is over is to be forgotten.
    pub(super) fn apply_swept(&mut self, at: Time, until: Time) -> Step {
        if until > at {
            return Err(wrong("S33: nothing is forgotten before its time", at, until));
        }
        self.counts_mut().swept = Some(until);
        self.forgets = Some(until);
        Ok(())
    }

    /// S33, S52: it is forgotten with the batch that says so, as it is by then: a run that was opened again stays.
    pub(super) fn forget(&mut self) {
        let Some(until) = self.forgets.take() else { return };
        let kept_ms = self.limits.retention_ms;
        let is_over =
            |run: &&super::Run| run.status.is_terminal() && run.kept_from().after_ms(kept_ms) <= until;
        let mut over: Vec<u64> = self.runs.values().filter(is_over).map(|run| run.id.number()).collect();
        over.sort_unstable();
        over.into_iter().for_each(|number| self.forget_run(number));
        let refused = |debt: &Debt| debt.refused_at.is_some_and(|when| when.after_ms(kept_ms) <= until);
        let old: Vec<_> = self.debts.iter().filter(|(_, debt)| refused(debt)).map(|(id, _)| *id).collect();
        old.into_iter().for_each(|id| self.set_debt(id, None));
    }
}
