//! What was before: each entity as it was when it was first touched since the last seal, so that a crash can be undone.

use super::Model;
use super::state::{Counts, Debt, Hold, Run, Worker};
use std::collections::VecDeque;
use tenure_core::coordinator::WorkerKey;
use tenure_core::definition::Name;
use tenure_core::id::*;

/// Something as it was.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Run(u64, Option<Box<Run>>),
    Worker(WorkerKey, Option<Box<Worker>>),
    Hold((WorkerKey, Epoch), Option<Hold>),
    Key((TenantId, KeyHash), Option<u64>),
    Under((TenantId, KeyHash), u32),
    Definitions(usize),
    Alias((TenantId, Name, Name), Option<DefinitionId>),
    Debt(OutboxId, Option<Debt>),
    Counts(Counts),
}

/// Undone from the back: first what no batch has yet, then batch by batch down to what is durable.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    /// Rises with every seal; an entity that is marked with it is in `open` already.
    pub(super) generation: u64,
    open: Vec<Undo>,
    sealed: VecDeque<(u64, Vec<Undo>)>,
    counts_kept: u64,
}

impl Journal {
    pub(super) fn new() -> Self {
        Self { generation: 1, open: Vec::new(), sealed: VecDeque::new(), counts_kept: 0 }
    }

    pub(super) fn push(&mut self, undo: Undo) {
        self.open.push(undo);
    }
}

impl Model {
    /// Everything so far belongs to this batch or an earlier one.
    pub fn seal(&mut self, batch: u64) {
        self.forget();
        let open = std::mem::take(&mut self.journal.open);
        self.journal.sealed.push_back((batch, open));
        self.journal.generation += 1;
    }

    /// That batch is durable: what it changed can not be taken back any more.
    pub fn durable(&mut self, batch: u64) {
        while self.journal.sealed.front().is_some_and(|(number, _)| *number <= batch) {
            self.journal.sealed.pop_front();
        }
    }

    /// The machine lost its memory: back to what was durable. Then it is restored from rows and told to recover.
    pub fn revert(&mut self) {
        let open = std::mem::take(&mut self.journal.open);
        self.undo(open);
        while let Some((_, batch)) = self.journal.sealed.pop_back() {
            self.undo(batch);
        }
        self.journal.generation += 1;
        self.forgets = None;
        self.touched.clear();
    }

    fn undo(&mut self, batch: Vec<Undo>) {
        for undo in batch.into_iter().rev() {
            match undo {
                Undo::Run(number, Some(run)) => drop(self.runs.insert(number, *run)),
                Undo::Run(number, None) => drop(self.runs.remove(&number)),
                Undo::Worker(key, Some(worker)) => drop(self.workers.insert(key, *worker)),
                Undo::Worker(key, None) => drop(self.workers.remove(&key)),
                Undo::Hold(key, Some(hold)) => drop(self.holds.insert(key, hold)),
                Undo::Hold(key, None) => drop(self.holds.remove(&key)),
                Undo::Key(key, Some(run)) => drop(self.keys.insert(key, run)),
                Undo::Key(key, None) => drop(self.keys.remove(&key)),
                Undo::Under(key, 0) => drop(self.under.remove(&key)),
                Undo::Under(key, held) => drop(self.under.insert(key, held)),
                Undo::Definitions(len) => self.definitions.truncate(len),
                Undo::Alias(key, Some(id)) => drop(self.aliases.insert(key, id)),
                Undo::Alias(key, None) => drop(self.aliases.remove(&key)),
                Undo::Debt(id, Some(debt)) => drop(self.debts.insert(id, debt)),
                Undo::Debt(id, None) => drop(self.debts.remove(&id)),
                Undo::Counts(counts) => self.counts = counts,
            }
        }
    }

    /// A run, to be changed. It is kept as it was, and compared after this step.
    pub(super) fn run_mut(&mut self, number: u64) -> Option<&mut Run> {
        let run = self.runs.get_mut(&number)?;
        if run.kept != self.journal.generation {
            self.journal.open.push(Undo::Run(number, Some(Box::new(run.clone()))));
            run.kept = self.journal.generation;
        }
        if run.touched != self.steps {
            run.touched = self.steps;
            self.touched.push(number);
        }
        Some(run)
    }

    /// A new run.
    pub(super) fn add_run(&mut self, mut run: Run) {
        let number = run.id.number();
        (run.kept, run.touched) = (self.journal.generation, self.steps);
        self.journal.open.push(Undo::Run(number, None));
        self.touched.push(number);
        self.runs.insert(number, run);
    }

    /// Forgets a run.
    pub(super) fn forget_run(&mut self, number: u64) {
        if let Some(run) = self.runs.remove(&number) {
            if let Some(key) = run.key {
                let whose = (run.tenant, key.key);
                if self.keys.get(&whose) == Some(&number) {
                    self.keys.remove(&whose);
                    self.journal.open.push(Undo::Key(whose, Some(number)));
                }
            }
            // Kept since the last seal: then the journal has it as it was.
            if run.kept != self.journal.generation {
                self.journal.open.push(Undo::Run(number, Some(Box::new(run))));
            }
        }
    }

    /// A worker, to be changed.
    pub(super) fn worker_mut(&mut self, key: WorkerKey) -> Option<&mut Worker> {
        let worker = self.workers.get_mut(&key)?;
        if worker.kept != self.journal.generation {
            self.journal.open.push(Undo::Worker(key, Some(Box::new(worker.clone()))));
            worker.kept = self.journal.generation;
        }
        Some(worker)
    }

    pub(super) fn set_worker(&mut self, key: WorkerKey, worker: Option<Worker>) {
        let was = match worker {
            Some(worker) => self.workers.insert(key, worker),
            None => self.workers.remove(&key),
        };
        // An entity may be in the journal twice; undone from the back, the first one stands.
        self.journal.open.push(Undo::Worker(key, was.map(Box::new)));
    }

    pub(super) fn set_hold(&mut self, key: (WorkerKey, Epoch), hold: Option<Hold>) {
        let was = match hold {
            Some(hold) => self.holds.insert(key, hold),
            None => self.holds.remove(&key),
        };
        self.journal.open.push(Undo::Hold(key, was));
    }

    pub(super) fn set_under(&mut self, key: (TenantId, KeyHash), held: u32) {
        let was = if held == 0 { self.under.remove(&key) } else { self.under.insert(key, held) };
        self.journal.open.push(Undo::Under(key, was.unwrap_or(0)));
    }

    pub(super) fn set_debt(&mut self, id: OutboxId, debt: Option<Debt>) {
        let was = match debt {
            Some(debt) => self.debts.insert(id, debt),
            None => self.debts.remove(&id),
        };
        self.journal.open.push(Undo::Debt(id, was));
    }

    /// What the partition counts, to be changed.
    pub(super) fn counts_mut(&mut self) -> &mut Counts {
        if self.journal.counts_kept != self.journal.generation {
            self.journal.counts_kept = self.journal.generation;
            self.journal.open.push(Undo::Counts(self.counts));
        }
        &mut self.counts
    }
}
