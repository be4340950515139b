//! Who may have a piece of work: the hard conditions of placement (S36, S38).

use super::Model;
use super::state::{Hold, Run, Worker};
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::WorkerSpec;
use tenure_core::coordinator::rejection::Ineligible;
use tenure_core::definition::{Capability, Requirement};
use tenure_core::id::*;

impl Model {
    /// Every reason why this worker may not have this work now.
    pub(super) fn unfit(&self, run: &Run, node: NodeIx, key: WorkerKey) -> Vec<Ineligible> {
        let mut why = Vec::new();
        let Some(worker) = self.workers.get(&key) else { return vec![Ineligible::OtherTenant] };
        if run.tenant != key.tenant {
            why.push(Ineligible::OtherTenant);
        }
        if worker.draining {
            why.push(Ineligible::Draining);
        }
        if self.pulsed_at >= worker.last_seen.after_ms(self.limits.stale_ms) {
            why.push(Ineligible::Unhealthy);
        }
        let requirement = &run.def.work(node).requirement;
        misfits(requirement, worker, &mut why);
        if worker.used >= worker.spec.slots {
            why.push(Ineligible::Full { slots: worker.spec.slots });
        }
        if let Some(max) = requirement.max_parallel_per_worker
            && self.held_alike(key, requirement) >= max
        {
            why.push(Ineligible::ParallelLimit { max });
        }
        if let Some(limit) = self.full_key(run) {
            why.push(Ineligible::ConcurrencyKey { limit });
        }
        why
    }

    /// The limit of the run's concurrency key, if it is reached.
    pub(super) fn full_key(&self, run: &Run) -> Option<u32> {
        let concurrency = run.concurrency?;
        let held = self.under.get(&(run.tenant, concurrency.key)).copied().unwrap_or(0);
        (held >= concurrency.limit).then_some(concurrency.limit)
    }

    fn held_alike(&self, key: WorkerKey, requirement: &Requirement) -> u32 {
        let worker = self.workers.get(&key);
        let counts = |hold: &Hold| worker.is_some_and(|worker| worker.counts(hold));
        let alike = self.holds_of(key).filter(|(_, hold)| counts(hold)).filter(|(_, hold)| {
            self.runs.get(&hold.run).is_some_and(|run| run.def.work(hold.node).requirement == *requirement)
        });
        alike.count() as u32
    }
}

fn misfits(requirement: &Requirement, worker: &Worker, why: &mut Vec<Ineligible>) {
    let (spec, id) = (&worker.spec, worker.key.worker);
    if !requirement.executors.is_empty()
        && !requirement.executors.iter().any(|one| spec.executors.contains(one))
    {
        why.push(Ineligible::Executor);
    }
    if !requirement.capabilities.iter().all(|(name, need)| has(spec, name, need)) {
        why.push(Ineligible::Capability);
    }
    if !requirement.labels.iter().all(|label| spec.labels.contains(label)) {
        why.push(Ineligible::Label);
    }
    if !requirement.allowed.is_empty() && !requirement.allowed.contains(&id) {
        why.push(Ineligible::NotAllowed);
    }
    if requirement.forbidden.contains(&id) {
        why.push(Ineligible::Forbidden);
    }
}

/// Texts equal, numbers at least.
fn has(spec: &WorkerSpec, name: &str, need: &Capability) -> bool {
    spec.capabilities.iter().any(|(known, value)| {
        **known == *name
            && match (need, value) {
                (Capability::Text(need), Capability::Text(has)) => need == has,
                (Capability::Number(need), Capability::Number(has)) => has >= need,
                _ => false,
            }
    })
}
