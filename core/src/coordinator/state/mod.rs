//! What a Coordinator knows. Everything here either is in a row or is derived from rows; what is volatile says so.
//!
//! Only `apply` writes it. Nothing here decides.

mod dense;
mod inbox;
mod keys;
mod leases;
mod run;
mod slots;
mod timers;
mod touched;
mod worker;

pub(crate) use dense::Dense;
pub(crate) use inbox::Inbox;
pub(crate) use keys::Keys;
pub(crate) use leases::{LeaseKey, Leases, List};
pub(crate) use run::{Node, Nodes, Run};
pub(crate) use timers::{Timer, Timers};
pub(crate) use touched::Touched;
pub(crate) use worker::{Worker, Workers};
pub use worker::{WorkerKey, held_digest};

use super::row::{DefinitionRow, MetaRow, OutboxRow};
use crate::definition::{Name, NodeSpec, Scope, WorkSpec};
use crate::graph::Plan;
use crate::id::*;
use crate::limits::Limits;
use crate::time::{Now, Time};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// What a Coordinator knows.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) limits: Limits,
    pub(crate) meta: MetaRow,
    /// Volatile: how the adapter's clock maps to machine time.
    pub(crate) clock: Clock,
    pub(crate) runs: Dense<Run>,
    pub(crate) workers: Workers,
    pub(crate) definitions: Vec<DefinitionEntry>,
    pub(crate) names: BTreeMap<TenantId, BTreeMap<Name, NameEntry>>,
    pub(crate) leases: Leases,
    pub(crate) keys: Keys,
    pub(crate) outbox: BTreeMap<OutboxId, OutboxEntry>,
    pub(crate) timers: Timers,
    /// When the timers of the partition itself are armed.
    pub(crate) armed: PartitionTimers,
    /// Ended runs in memory, oldest first.
    pub(crate) ended: VecDeque<u64>,
    /// Resident runs that have not ended, by tenant.
    pub(crate) live_runs: BTreeMap<TenantId, u64>,
    pub(crate) touched: Touched,
}

/// When the timers of the partition itself are armed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionTimers {
    pub(crate) rescue: Time,
    pub(crate) sweep: Time,
    pub(crate) page: Time,
    /// Volatile: the next portion of lapsed leases is not taken back before this (F22).
    pub(crate) rescue_from: Time,
}

impl PartitionTimers {
    /// Nothing is armed.
    pub(crate) const NONE: Self =
        Self { rescue: Time::NEVER, sweep: Time::NEVER, page: Time::NEVER, rescue_from: Time::ZERO };
}

/// How the adapter's clock maps to machine time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    /// Machine time when the machine was told to recover.
    base: Time,
    /// The monotonic reading then.
    mono: u64,
    /// The latest machine time seen; it never falls.
    pub(crate) now: Time,
    /// The latest wall reading.
    pub(crate) wall: u64,
}

impl Clock {
    /// Takes a reading.
    pub(crate) fn read(&mut self, now: Now) {
        self.now = self.now.max(self.base.after_ms(now.mono.saturating_sub(self.mono)));
        self.wall = now.wall;
    }

    /// Starts anew from `base` at this reading.
    pub(crate) fn restart(&mut self, base: Time, now: Now) {
        *self = Self { base, mono: now.mono, now: base, wall: now.wall };
    }

    /// The monotonic reading at a machine time.
    pub(crate) fn mono_at(&self, at: Time) -> u64 {
        self.mono.saturating_add(at.since(self.base))
    }
}

/// A definition with what is derived from it.
#[derive(Debug, Clone)]
pub(crate) struct DefinitionEntry {
    pub(crate) row: DefinitionRow,
    pub(crate) plan: Plan,
    /// Placement class of every node.
    pub(crate) classes: Vec<u32>,
    /// Placement class of the run as a whole.
    pub(crate) whole_class: Option<u32>,
}

impl DefinitionEntry {
    pub(crate) fn node(&self, node: NodeIx) -> Option<&NodeSpec> {
        self.row.definition.nodes.get(node.index())
    }

    /// How a piece of work is given out and held.
    pub(crate) fn work(&self, node: NodeIx) -> &WorkSpec {
        match &self.row.definition.settings.scope {
            Scope::Run(work) if node.is_whole_run() => work,
            _ => &self.row.definition.nodes[node.index()].work,
        }
    }

    pub(crate) fn class(&self, node: NodeIx) -> u32 {
        if node.is_whole_run() {
            self.whole_class.expect("only a run held as a whole is placed as a whole")
        } else {
            self.classes[node.index()]
        }
    }

    pub(crate) fn is_held_whole(&self) -> bool {
        matches!(self.row.definition.settings.scope, Scope::Run(_))
    }

    /// True if a node waits for a first message besides its join.
    pub(crate) fn waits_for_input(&self, node: NodeIx) -> bool {
        !self.plan.streams_into(node).is_empty()
            || self.row.definition.nodes[node.index()].handles.iter().any(|handle| handle.trigger)
    }

    /// How many sources a handle has, outside ones first, then stream edges.
    pub(crate) fn sources(&self, node: NodeIx, handle: HandleIx) -> usize {
        let outside =
            self.row.definition.nodes[node.index()].handles[usize::from(handle.get())].sources.len();
        outside + self.plan.streams_into(node).iter().filter(|stream| stream.handle == handle).count()
    }
}

/// The versions of a definition's name.
#[derive(Debug, Clone, Default)]
pub(crate) struct NameEntry {
    /// In order; version n is at n - 1.
    pub(crate) versions: Vec<DefinitionId>,
    pub(crate) aliases: BTreeMap<Name, DefinitionId>,
}

/// Something owed, and when it was last handed out (volatile).
#[derive(Debug, Clone)]
pub(crate) struct OutboxEntry {
    pub(crate) row: OutboxRow,
    pub(crate) tried_at: Time,
}

impl State {
    pub(crate) fn new(partition: u16, limits: Limits) -> Self {
        let paged_until = Time::from_ms(limits.page_horizon_ms);
        Self {
            limits,
            meta: MetaRow {
                partition,
                next_run: 1,
                next_epoch: Epoch::new(1),
                next_definition: DefinitionId::new(0),
                next_outbox: OutboxId::new(1),
                step: 0,
                time: Time::ZERO,
                wall: 0,
                swept: Time::ZERO,
                paged_until,
                newest_key: None,
            },
            clock: Clock::default(),
            runs: Dense::default(),
            workers: Workers::default(),
            definitions: Vec::new(),
            names: BTreeMap::new(),
            leases: Leases::default(),
            keys: Keys::default(),
            outbox: BTreeMap::new(),
            timers: Timers::default(),
            armed: PartitionTimers::NONE,
            ended: VecDeque::new(),
            live_runs: BTreeMap::new(),
            touched: Touched::default(),
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now
    }

    /// The run of this id, if it is resident.
    pub(crate) fn run(&self, id: RunId) -> Option<&Run> {
        self.runs.get(id.number()).filter(|run| run.head.id == id)
    }

    /// The run of this id, which an event names: it must be there.
    pub(crate) fn the_run(&self, id: RunId) -> &Run {
        self.runs.get(id.number()).expect("an event names a resident run")
    }

    pub(crate) fn the_run_mut(&mut self, id: RunId) -> &mut Run {
        self.runs.get_mut(id.number()).expect("an event names a resident run")
    }

    pub(crate) fn definition(&self, id: DefinitionId) -> &DefinitionEntry {
        &self.definitions[id.get() as usize]
    }

    /// The versions of a name.
    pub(crate) fn name(&self, tenant: TenantId, name: &str) -> Option<&NameEntry> {
        self.names.get(&tenant)?.get(name)
    }

    pub(crate) fn name_mut(&mut self, tenant: TenantId, name: &Name) -> &mut NameEntry {
        self.names.entry(tenant).or_default().entry(name.clone()).or_default()
    }

    /// The definition a run is pinned to.
    pub(crate) fn definition_of(&self, run: &Run) -> &DefinitionEntry {
        self.definition(run.head.definition)
    }

    /// True if the grant of this work is dead: its session lapsed, or its worker was silent too long (S9).
    pub(crate) fn is_lease_dead(&self, run: &Run, node: NodeIx) -> bool {
        let work = run.work(node);
        let Some(assignment) = work.assignment.filter(|_| work.phase.is_held()) else { return false };
        if assignment.claimed_at.is_never() {
            return false;
        }
        let worker = self.workers.of(run.head.tenant, assignment.worker);
        worker.is_none_or(|worker| {
            worker.is_session_dead(assignment.lease_ms, assignment.session)
                || self.now() >= worker.last_seen.after_ms(assignment.lease_ms)
        })
    }
}
