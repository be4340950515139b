//! Which reference model goes with which machine. Several servers may each have a machine of one partition; what is durable
//! is one line through all of them, and whoever loads the partition begins where that line ends.

use crate::model::{Disagreement, Model};
use crate::packet::Proc;
use crate::swarm::Config;
use std::collections::BTreeMap;
use tenure_core::coordinator::Coordinator;
use tenure_core::coordinator::command::Input;
use tenure_core::coordinator::effect::Output;
use tenure_core::id::{Batch, Ownership};
use tenure_core::time::Now;

/// A model, as long as it agrees with its machine.
#[derive(Debug, Clone)]
pub(crate) struct Modelled {
    model: Model,
    /// It disagreed once, and means nothing any more.
    is_struck: bool,
}

impl Modelled {
    pub(crate) fn step(
        &mut self,
        now: Now,
        input: &Input,
        said: &Output,
        machine: &Coordinator,
    ) -> Result<(), Disagreement> {
        if self.is_struck { Ok(()) } else { self.model.step(now, input, said, machine) }
    }

    pub(crate) fn compare(&self, machine: &Coordinator) -> Result<(), Disagreement> {
        if self.is_struck { Ok(()) } else { self.model.compare(machine) }
    }

    pub(crate) fn seal(&mut self, batch: u64) {
        self.model.seal(batch);
    }

    pub(crate) fn strike(&mut self) {
        self.is_struck = true;
    }
}

/// The models of a world.
#[derive(Debug, Clone)]
pub(crate) struct Models {
    partitions: usize,
    fresh: Vec<Modelled>,
    /// By server and partition.
    models: Vec<Option<Modelled>>,
    /// Whose machine works under a fencing number.
    owners: BTreeMap<(u16, Ownership), usize>,
    /// Whose model the last durable batch went through, by partition.
    line: Vec<Option<usize>>,
}

impl Models {
    pub(crate) fn new(config: &Config) -> Self {
        let partitions = usize::from(config.partitions);
        let fresh =
            |partition| Modelled { model: Model::new(partition, config.limits.clone()), is_struck: false };
        Self {
            partitions,
            fresh: (0..config.partitions).map(fresh).collect(),
            models: vec![None; config.servers * partitions],
            owners: BTreeMap::new(),
            line: vec![None; partitions],
        }
    }

    fn at(&self, server: Proc, partition: u16) -> usize {
        server * self.partitions + usize::from(partition)
    }

    pub(crate) fn of(&mut self, server: Proc, partition: u16) -> Option<&mut Modelled> {
        let at = self.at(server, partition);
        self.models[at].as_mut()
    }

    pub(crate) fn own(&mut self, server: Proc, partition: u16, ownership: Ownership) {
        let at = self.at(server, partition);
        self.owners.insert((partition, ownership), at);
    }

    /// A machine is made from what is durable, and so is its model.
    pub(crate) fn load(&mut self, server: Proc, partition: u16) {
        let at = self.at(server, partition);
        let line = self.line[usize::from(partition)].and_then(|at| self.models[at].clone());
        let mut model = line.unwrap_or_else(|| self.fresh[usize::from(partition)].clone());
        model.model.revert();
        self.models[at] = Some(model);
    }

    pub(crate) fn durable(&mut self, partition: u16, ownership: Ownership, batch: Batch) {
        let Some(at) = self.owners.get(&(partition, ownership)) else { return };
        self.line[usize::from(partition)] = Some(*at);
        if let Some(model) = &mut self.models[*at] {
            model.model.durable(batch.get());
        }
    }
}
