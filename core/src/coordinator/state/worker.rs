//! A worker in memory: its row, how fresh its session is, and what it holds.

use super::{LeaseKey, List};
use crate::coordinator::row::WorkerRow;
use crate::id::{Epoch, NodeIx, PollId, RunId, Session, TenantId, WorkerId};
use crate::lifecycle::Health;
use crate::mix::{FixedState, mix};
use crate::time::Time;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use slab::Slab;

/// A worker of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerKey {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    pub worker: WorkerId,
}

impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.worker.fmt(f)
    }
}

/// The digest of a set of epochs that a heartbeat carries: order does not matter.
pub fn held_digest(epochs: impl IntoIterator<Item = Epoch>) -> u64 {
    epochs.into_iter().fold(0, |sum, epoch| sum ^ mix(epoch.get()))
}

/// Leases of one length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lane {
    pub(crate) lease_ms: u64,
    pub(crate) list: List,
    /// [`held_digest`] of the list.
    pub(crate) digest: u64,
}

/// A worker in memory.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) row: WorkerRow,
    /// Volatile: when it was last heard of.
    pub(crate) last_seen: Time,
    /// Volatile: it was heard of since the machine recovered.
    pub(crate) heard: bool,
    /// Volatile: how busy it last said it is.
    pub(crate) load: u8,
    /// Volatile, except for draining.
    pub(crate) health: Health,
    /// Volatile: it wants to be told when there is work.
    pub(crate) waits: bool,
    /// Volatile: its last poll; after a restart, the last that shows in a lease.
    pub(crate) last_poll: PollId,
    /// Leases by length, shortest first, so that what lapses together does so in one order; there are few lengths.
    pub(crate) lanes: Vec<Lane>,
    /// Its leases that lapsed and were not taken back yet.
    pub(crate) lapsed: u32,
    /// What it was offered and has not answered.
    pub(crate) offered: BTreeMap<Epoch, (RunId, NodeIx)>,
    /// Live leases per placement class, for classes that limit them.
    pub(crate) held_of_class: BTreeMap<u32, u32>,
    /// Its shape, in placement.
    pub(crate) shape: u32,
    /// Where placement lists it as open for offers, and as waiting.
    pub(crate) listed: [Option<crate::coordinator::placement::Key>; 2],
    /// When its timer is armed.
    pub(crate) armed: Time,
    pub(crate) touched: bool,
}

impl Worker {
    pub(crate) fn new(row: WorkerRow, now: Time) -> Self {
        let health = if row.draining { Health::Draining } else { Health::Healthy };
        Self {
            row,
            last_seen: now,
            heard: false,
            load: 0,
            health,
            waits: false,
            last_poll: PollId::new(0),
            lanes: Vec::new(),
            lapsed: 0,
            offered: BTreeMap::new(),
            held_of_class: BTreeMap::new(),
            shape: 0,
            listed: [None; 2],
            armed: Time::NEVER,
            touched: false,
        }
    }

    /// Leases and offers that count against its slots.
    pub(crate) fn held(&self) -> u32 {
        self.lanes.iter().map(|lane| lane.list.count).sum::<u32>() + self.offered.len() as u32
    }

    pub(crate) fn free_slots(&self) -> u32 {
        self.row.spec.slots.saturating_sub(self.held())
    }

    /// [`held_digest`] of all its live leases.
    pub(crate) fn digest(&self) -> u64 {
        self.lanes.iter().fold(0, |sum, lane| sum ^ lane.digest)
    }

    /// May be given something new (S36).
    pub(crate) fn is_open(&self) -> bool {
        self.health == Health::Healthy && self.free_slots() > 0
    }

    /// True if leases of this length and session lapsed or are of a former life.
    pub(crate) fn is_session_dead(&self, lease_ms: u64, session: Session) -> bool {
        session < self.row.fenced
            || self.row.lapsed.iter().any(|(length, since)| *length == lease_ms && session < *since)
    }

    pub(crate) fn lane_mut(&mut self, lease_ms: u64) -> &mut Lane {
        let at = self.lanes.partition_point(|lane| lane.lease_ms < lease_ms);
        if self.lanes.get(at).is_none_or(|lane| lane.lease_ms != lease_ms) {
            self.lanes.insert(at, Lane { lease_ms, list: List::default(), digest: 0 });
        }
        &mut self.lanes[at]
    }

    /// The shortest of the leases it holds.
    pub(crate) fn shortest_lease(&self) -> Option<u64> {
        self.lanes.iter().filter(|lane| lane.list.count > 0).map(|lane| lane.lease_ms).min()
    }
}

/// All workers; found by key, never iterated in an order that matters.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workers {
    slab: Slab<Worker>,
    index: HashMap<WorkerKey, u32, FixedState>,
    /// Where the worker is that the input at hand speaks of.
    focus: Option<(WorkerKey, u32)>,
    per_tenant: BTreeMap<TenantId, u64>,
}

impl Workers {
    pub(crate) fn slot(&self, key: WorkerKey) -> Option<u32> {
        match self.focus {
            Some((focus, slot)) if focus == key => Some(slot),
            _ => self.index.get(&key).copied(),
        }
    }

    /// Remembers where a worker is, because much will be asked of it.
    pub(crate) fn focus(&mut self, key: WorkerKey) {
        self.focus = self.slot(key).map(|slot| (key, slot));
    }

    pub(crate) fn get(&self, key: WorkerKey) -> Option<&Worker> {
        self.slot(key).map(|slot| self.at(slot))
    }

    pub(crate) fn of(&self, tenant: TenantId, worker: WorkerId) -> Option<&Worker> {
        self.get(WorkerKey { tenant, worker })
    }

    pub(crate) fn try_at(&self, slot: u32) -> Option<&Worker> {
        self.slab.get(slot as usize)
    }

    pub(crate) fn at(&self, slot: u32) -> &Worker {
        &self.slab[slot as usize]
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> &mut Worker {
        &mut self.slab[slot as usize]
    }

    pub(crate) fn insert(&mut self, worker: Worker) -> u32 {
        let key = worker.row.key;
        let slot = self.slab.insert(worker) as u32;
        self.index.insert(key, slot);
        *self.per_tenant.entry(key.tenant).or_default() += 1;
        slot
    }

    pub(crate) fn remove(&mut self, key: WorkerKey) -> Worker {
        self.focus = None;
        let slot = self.index.remove(&key).expect("an event names a known worker");
        let count = self.per_tenant.get_mut(&key.tenant).expect("its tenant is counted");
        *count -= 1;
        if *count == 0 {
            self.per_tenant.remove(&key.tenant);
        }
        self.slab.remove(slot as usize)
    }

    pub(crate) fn count(&self, tenant: TenantId) -> u64 {
        self.per_tenant.get(&tenant).copied().unwrap_or(0)
    }

    /// Slots of all workers, by key.
    pub(crate) fn in_order(&self) -> Vec<u32> {
        let mut slots: Vec<u32> = self.slab.iter().map(|(slot, _)| slot as u32).collect();
        slots.sort_unstable_by_key(|slot| self.at(*slot).row.key);
        slots
    }

    /// Leases of a worker that came with this poll, newest first.
    pub(crate) fn leases_of<'a>(
        &'a self,
        leases: &'a super::Leases,
        slot: u32,
    ) -> impl Iterator<Item = (LeaseKey, &'a super::leases::Lease)> {
        self.at(slot).lanes.iter().flat_map(|lane| leases.iter_back(&lane.list))
    }
}
