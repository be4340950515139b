//! Whether a worker's shape fits a requirement (hard), and how good a worker is (soft, integer, totally ordered).

use super::Key;
use crate::coordinator::command::WorkerSpec;
use crate::coordinator::rejection::Ineligible;
use crate::coordinator::state::Worker;
use crate::definition::{Capability, Name, Requirement};
use alloc::vec::Vec;

/// What of a worker decides which work fits it; workers that are alike share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shape {
    executors: Vec<Name>,
    capabilities: Vec<(Name, Capability)>,
    labels: Vec<Name>,
}

impl Shape {
    pub(crate) fn of(spec: &WorkerSpec) -> Self {
        let mut shape = Self {
            executors: spec.executors.clone(),
            capabilities: spec.capabilities.clone(),
            labels: spec.labels.clone(),
        };
        shape.executors.sort_unstable();
        shape.capabilities.sort_unstable();
        shape.labels.sort_unstable();
        shape
    }

    fn has(&self, name: &Name, required: &Capability) -> bool {
        let of_name = self.capabilities.iter().filter(|(known, _)| known == name);
        of_name.map(|(_, capability)| capability).any(|capability| match (capability, required) {
            (Capability::Text(has), Capability::Text(wants)) => has == wants,
            (Capability::Number(has), Capability::Number(wants)) => has >= wants,
            (Capability::Text(_), Capability::Number(_)) | (Capability::Number(_), Capability::Text(_)) => {
                false
            }
        })
    }
}

/// Whether a shape fits a requirement; what bars a worker by its name is not looked at here.
pub(crate) fn fits(requirement: &Requirement, shape: &Shape) -> Result<(), Ineligible> {
    let executors = &requirement.executors;
    if !executors.is_empty() && !executors.iter().any(|wanted| shape.executors.binary_search(wanted).is_ok())
    {
        return Err(Ineligible::Executor);
    }
    if !requirement.capabilities.iter().all(|(name, required)| shape.has(name, required)) {
        return Err(Ineligible::Capability);
    }
    if !requirement.labels.iter().all(|label| shape.labels.binary_search(label).is_ok()) {
        return Err(Ineligible::Label);
    }
    Ok(())
}

/// Points for having a relevant capability: 10, or none.
pub(crate) fn relevance(requirement: &Requirement, shape: &Shape) -> u64 {
    let relevant = requirement.relevant.iter();
    let found = relevant.filter(|name| shape.capabilities.iter().any(|(known, _)| known == *name)).count();
    if found > 0 { 10 } else { 0 }
}

/// A worker's place among those that fit: points for load (40), connection quality (30) and election rank (20), in
/// steps of a tenth so that small changes move nothing; then by id. Smaller is better; relevance comes on top.
pub(crate) fn score_key(worker: &Worker) -> Key {
    let tenths = |percent: u8| u64::from(percent.min(100)) / 10;
    let spec = &worker.row.spec;
    let score = (10 - tenths(worker.load)) * 4 + tenths(spec.quality) * 3 + tenths(spec.rank) * 2;
    let (hi, lo) = worker.row.key.worker.halves();
    (100 - score, hi, lo)
}
