//! From a command to events or a refusal. Nothing here writes: it reads the state and says what happens.
//!
//! Consequences of events (a join that fires, a run that ends) are not here but in `follow`.

mod admin;
mod define;
pub(crate) mod due;
mod inbox;
mod poll;
pub(crate) mod progress;
mod report;
mod submit;
mod worker;

pub(crate) use poll::{Wanted, creators_share};

use super::event::Event;
use super::rejection::Rejection;
use super::state::{Run, State, Worker, WorkerKey};
use crate::id::{Incarnation, NodeIx, RunId, TenantId, WorkerId};
use crate::limits::LimitName;
use crate::value::{Place, Value};
use alloc::collections::VecDeque;

/// What a decision reads, and where it says what happens.
pub(crate) struct Decision<'a> {
    pub(crate) state: &'a State,
    pub(crate) tenant: TenantId,
    pub(crate) events: &'a mut VecDeque<Event>,
}

impl<'a> Decision<'a> {
    /// The run a command names. What a command names was loaded before, so what is not here is nowhere.
    fn run(&self, id: RunId) -> Result<&'a Run, Rejection> {
        let here = self.state.meta.partition;
        if id.partition() != here {
            return Err(Rejection::WrongPartition { run: id, here });
        }
        match self.state.runs.get(id.number()) {
            Some(run) if run.head.id == id && run.head.tenant == self.tenant => Ok(run),
            _ => Err(Rejection::UnknownRun { run: id }),
        }
    }

    /// The run a command names, and a node of it.
    fn node(&self, id: RunId, node: NodeIx) -> Result<&'a Run, Rejection> {
        let run = self.run(id)?;
        if run.has_node(node) { Ok(run) } else { Err(Rejection::UnknownNode { run: id, node }) }
    }

    /// The worker a command speaks for.
    fn worker(&self, worker: WorkerId, incarnation: Incarnation) -> Result<&'a Worker, Rejection> {
        let known = self.state.workers.of(self.tenant, worker).ok_or(Rejection::UnknownWorker { worker })?;
        if known.row.incarnation != incarnation {
            let current = known.row.incarnation;
            return Err(Rejection::StaleIncarnation { current, presented: incarnation });
        }
        Ok(known)
    }

    fn key(&self, worker: WorkerId) -> WorkerKey {
        WorkerKey { tenant: self.tenant, worker }
    }

    fn limit(&self, limit: LimitName, is: u64) -> Result<(), Rejection> {
        let max = self.state.limits.of(limit);
        if is > max { Err(Rejection::LimitReached { limit, max }) } else { Ok(()) }
    }

    /// A payload kept inline must be small.
    fn value(&self, value: &Value) -> Result<(), Rejection> {
        match value.place {
            Place::Inline => self.limit(LimitName::InlineBytes, value.len),
            Place::Stored | Place::External => Ok(()),
        }
    }

    fn time(&self, ms: u64) -> Result<(), Rejection> {
        let max = self.state.limits.longest_ms;
        if ms == 0 || ms > max { Err(Rejection::BadTime { ms, max }) } else { Ok(()) }
    }
}
