//! Which waiting work a worker gets, and which worker some work is offered to. An index over the state: it holds
//! nothing that a restored machine would not build again, and what it finds depends on the state alone (S37).
//!
//! Requirements are interned as classes and workers as shapes; which fit is worked out once per pair. Each class has
//! a queue ordered by (enqueue time less an allowance for priority, run, node), so ageing never sorts anything again.

mod board;
mod concurrency;
mod fit;
mod queue;

use board::Board;
pub(crate) use board::Key;
use concurrency::Concurrencies;
pub(crate) use fit::{Shape as ShapeSpec, fits, score_key};
use queue::Queue;

use super::rejection::Ineligible;
use super::state::{Run, State, Worker};
use crate::definition::{Assign, Requirement, WorkSpec};
use crate::id::{Epoch, KeyHash, NodeIx, RunId, TenantId, WorkerId};
use crate::lifecycle::Health;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;
use slab::Slab;

/// The index of waiting work and open workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placement {
    classes: Vec<Class>,
    class_index: BTreeMap<(TenantId, Mode, Requirement), u32>,
    shapes: Slab<Shape>,
    shape_index: BTreeMap<(TenantId, ShapeSpec), u32>,
    /// From classes to shapes: what is waiting. A shape is two sinks: for polls, and for offers.
    waiting: Board,
    /// From shapes to classes: who may be offered something, and who waits for a poll to find something.
    workers: [Board; 2],
    concurrencies: Concurrencies,
    /// Work that entered a queue, and workers that may have opened, since dispatch last looked.
    arrivals: VecDeque<(u32, NodeIx)>,
    opened: VecDeque<u32>,
    /// Some class is given out by offers, so that it matters when a worker opens.
    has_push: bool,
    /// Workers that wait to be told of work.
    idle: usize,
}

/// Work with one requirement.
#[derive(Debug, Clone)]
struct Class {
    tenant: TenantId,
    requirement: Requirement,
    mode: Mode,
    /// From (rank, run number, node) to the run's slot.
    queue: Queue,
}

/// How work of a class is given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mode {
    /// By offers; otherwise by polls.
    pub(crate) push: bool,
    /// Holders of a lower priority may be asked to release for it.
    pub(crate) preempts: bool,
}

impl Mode {
    pub(crate) fn of(work: &WorkSpec) -> Self {
        Self { push: matches!(work.assign, Assign::Push { .. }), preempts: work.preempts }
    }
}

/// Workers that can do the same.
#[derive(Debug, Clone)]
struct Shape {
    tenant: TenantId,
    spec: ShapeSpec,
    /// How many workers have it.
    count: u32,
    /// Workers by score: [`OPEN`] and [`IDLE`].
    listed: [BTreeMap<Key, u32>; 2],
    /// Leases that may be asked for, lowest priority first, newest first.
    preemptible: BTreeMap<(u8, Reverse<Epoch>), (RunId, NodeIx)>,
}

/// Something dispatch has to look at.
pub(crate) enum News {
    /// Work entered its queue: the run's slot, and the node.
    Arrived(u32, NodeIx),
    /// A worker may have room.
    Opened(u32),
}

/// Workers with a free slot.
pub(crate) const OPEN: usize = 0;
/// Workers with a free slot whose last poll found too little.
pub(crate) const IDLE: usize = 1;

/// A piece of work, as it stands in a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) class: u32,
    pub(crate) key: Key,
    pub(crate) slot: u32,
    pub(crate) concurrency: Option<(TenantId, crate::coordinator::command::Concurrency)>,
    /// It is offered, and some worker is excluded from it.
    pub(crate) alone: bool,
}

impl Item {
    /// How a piece of work stands in its queue. `slot` is the run's.
    pub(crate) fn of(state: &State, slot: u32, node: NodeIx) -> Self {
        let run = state.runs.at(slot);
        let work = run.work(node);
        let head = &run.head;
        let behind = u64::from(u8::MAX - head.priority).saturating_mul(state.limits.age_per_priority_ms);
        let rank = work.ready_at.as_ms().saturating_add(behind);
        let definition = state.definition_of(run);
        let is_push = matches!(definition.work(node).assign, Assign::Push { .. });
        Self {
            class: definition.class(node),
            key: (rank, head.id.number(), u64::from(node.get())),
            slot,
            concurrency: head.concurrency().map(|limit| (head.tenant, limit)),
            alone: is_push && work.rare.as_ref().is_some_and(|rare| !rare.excluded.is_empty()),
        }
    }
}

impl Placement {
    /// The class of a requirement; classes stay, as definitions do.
    pub(crate) fn intern_class(&mut self, tenant: TenantId, requirement: &Requirement, mode: Mode) -> u32 {
        if let Some(class) = self.class_index.get(&(tenant, mode, requirement.clone())) {
            return *class;
        }
        let class = self.classes.len() as u32;
        self.has_push |= mode.push;
        self.class_index.insert((tenant, mode, requirement.clone()), class);
        self.classes.push(Class { tenant, requirement: requirement.clone(), mode, queue: Queue::default() });
        for shape in 0..self.shapes.capacity() as u32 {
            if self.shapes.contains(shape as usize) {
                self.link(class, shape);
            }
        }
        class
    }

    /// Links a class and a shape in both directions, if they fit.
    fn link(&mut self, class: u32, shape: u32) {
        let (of_class, of_shape) = (&self.classes[class as usize], &self.shapes[shape as usize]);
        if of_class.tenant != of_shape.tenant || fits(&of_class.requirement, &of_shape.spec).is_err() {
            return;
        }
        let bonus = fit::relevance(&of_class.requirement, &of_shape.spec);
        let head = of_class.queue.first().map(|(key, _)| key);
        self.waiting.link(class, shape * 2 + u32::from(of_class.mode.push), 0, head);
        for (board, listed) in self.workers.iter_mut().zip(&of_shape.listed) {
            board.link(shape, class, bonus, listed.first_key_value().map(|(key, _)| *key));
        }
    }

    /// Gives a worker its shape.
    pub(crate) fn enter(&mut self, worker: &mut Worker) {
        let (tenant, spec) = (worker.row.key.tenant, ShapeSpec::of(&worker.row.spec));
        let shape = match self.shape_index.get(&(tenant, spec.clone())) {
            Some(shape) => *shape,
            None => {
                let empty = Shape {
                    tenant,
                    spec: spec.clone(),
                    count: 0,
                    listed: Default::default(),
                    preemptible: BTreeMap::new(),
                };
                let shape = self.shapes.insert(empty) as u32;
                self.shape_index.insert((tenant, spec), shape);
                for class in 0..self.classes.len() as u32 {
                    self.link(class, shape);
                }
                shape
            }
        };
        self.shapes[shape as usize].count += 1;
        worker.shape = shape;
    }

    /// Takes a worker's shape away.
    pub(crate) fn leave(&mut self, worker: &mut Worker) {
        self.list(worker, [None; 2], 0);
        let shape = worker.shape;
        let entry = &mut self.shapes[shape as usize];
        entry.count -= 1;
        if entry.count == 0 {
            let entry = self.shapes.remove(shape as usize);
            self.shape_index.remove(&(entry.tenant, entry.spec));
            self.waiting.unlink_sink(shape * 2);
            self.waiting.unlink_sink(shape * 2 + 1);
            self.workers.iter_mut().for_each(|board| board.unlink_source(shape));
        }
    }

    /// Lists a worker where it belongs now.
    pub(crate) fn relist(&mut self, worker: &mut Worker, slot: u32) {
        let key = worker.is_open().then(|| score_key(worker));
        self.list(worker, [key, key.filter(|_| worker.waits)], slot);
    }

    fn list(&mut self, worker: &mut Worker, keys: [Option<Key>; 2], slot: u32) {
        for (at, key) in keys.into_iter().enumerate() {
            if worker.listed[at] == key {
                continue;
            }
            let listed = &mut self.shapes[worker.shape as usize].listed[at];
            if let Some(old) = worker.listed[at] {
                listed.remove(&old);
                self.idle -= usize::from(at == IDLE);
            }
            if let Some(key) = key {
                listed.insert(key, slot);
                self.idle += usize::from(at == IDLE);
                if at == OPEN && worker.listed[at].is_none() && (self.has_push || worker.waits) {
                    self.opened.push_back(slot);
                }
                if listed.first_key_value().is_some_and(|(first, _)| *first == key) {
                    self.workers[at].fell(worker.shape, key);
                }
            }
            worker.listed[at] = key;
        }
    }

    /// Puts work into its queue.
    pub(crate) fn enqueue(&mut self, item: Item) {
        match item.concurrency {
            None => self.insert(item.class, item.key, item.slot),
            Some((tenant, limit)) => {
                let moves = self.concurrencies.add(tenant, limit, item);
                self.shift(moves);
            }
        }
    }

    /// Does what a concurrency key decided.
    fn shift(&mut self, moves: Vec<concurrency::Move>) {
        for one in moves {
            if one.enters {
                self.insert(one.class, one.key, one.slot);
            } else {
                self.classes[one.class as usize].queue.remove(&one.key);
            }
        }
    }

    fn insert(&mut self, class: u32, key: Key, slot: u32) {
        let Class { queue, mode, .. } = &mut self.classes[class as usize];
        queue.insert(key, slot);
        if mode.push || mode.preempts || self.idle > 0 {
            self.arrivals.push_back((slot, NodeIx::new(key.2 as u32)));
        }
        if queue.first() == Some((key, slot)) {
            self.waiting.fell(class, key);
        }
    }

    /// Takes work out of its queue, wherever it waits.
    pub(crate) fn dequeue(&mut self, item: Item) {
        let was_queued = self.classes[item.class as usize].queue.remove(&item.key);
        match item.concurrency {
            None => debug_assert!(was_queued, "ready work waits in its queue"),
            Some((tenant, limit)) => {
                let moves = self.concurrencies.remove(tenant, limit, item);
                self.shift(moves);
            }
        }
    }

    /// True if this work stands in its queue, and is not parked with its concurrency key.
    pub(crate) fn is_queued(&self, item: Item) -> bool {
        self.classes[item.class as usize].queue.contains(&item.key)
    }

    /// One more piece of work is held under a concurrency key.
    pub(crate) fn hold_key(&mut self, tenant: TenantId, key: KeyHash) {
        let moves = self.concurrencies.hold(tenant, key);
        self.shift(moves);
    }

    /// One piece less is; what waited for it may go.
    pub(crate) fn release_key(&mut self, tenant: TenantId, key: KeyHash) {
        let moves = self.concurrencies.release(tenant, key);
        self.shift(moves);
    }

    /// How many pieces of work are held under a concurrency key.
    pub(crate) fn held_under(&self, tenant: TenantId, key: KeyHash) -> u32 {
        self.concurrencies.held(tenant, key)
    }

    /// The work this worker gets next: by poll, or as an offer (S39).
    pub(crate) fn pick(&mut self, state: &State, worker: &Worker, push: bool) -> Option<(u32, NodeIx)> {
        let (mut best, mut after): (Option<(Key, u32)>, _) = (None, None);
        loop {
            let Self { classes, waiting, .. } = self;
            let head = |class: u32| classes[class as usize].queue.first().map(|(key, _)| key);
            let Some((head, class)) = waiting.next(worker.shape * 2 + u32::from(push), after, head) else {
                break;
            };
            if best.is_some_and(|(found, _)| found < head) {
                break;
            }
            after = Some((head, class));
            if self.bars(class, worker).is_err() {
                continue;
            }
            if let Some(first) = self.first_for(state, class, worker, push) {
                best = best.min(Some(first)).or(Some(first));
            }
            if best.is_some_and(|(found, _)| found == head) {
                break;
            }
        }
        best.map(|(key, slot)| (slot, NodeIx::new(key.2 as u32)))
    }

    /// The first of a class that may be given to this worker, as far as the work itself decides that.
    fn first_for(&self, state: &State, class: u32, worker: &Worker, push: bool) -> Option<(Key, u32)> {
        let queue = &self.classes[class as usize].queue;
        if !push {
            return queue.first();
        }
        let id = worker.row.key.worker;
        queue.iter().find(|(key, slot)| !state.runs.at(*slot).work(NodeIx::new(key.2 as u32)).excludes(id))
    }

    /// What bars this very worker from a class that its shape fits.
    fn bars(&self, class: u32, worker: &Worker) -> Result<(), Ineligible> {
        let requirement = &self.classes[class as usize].requirement;
        let id = worker.row.key.worker;
        if !requirement.allowed.is_empty() && !requirement.allowed.contains(&id) {
            return Err(Ineligible::NotAllowed);
        }
        if requirement.forbidden.contains(&id) {
            return Err(Ineligible::Forbidden);
        }
        match requirement.max_parallel_per_worker {
            Some(max) if worker.held_of_class.get(&class).copied().unwrap_or(0) >= max => {
                Err(Ineligible::ParallelLimit { max })
            }
            _ => Ok(()),
        }
    }

    /// True if leases of this class are counted per worker.
    pub(crate) fn limits_per_worker(&self, class: u32) -> bool {
        self.classes[class as usize].requirement.max_parallel_per_worker.is_some()
    }

    /// Whether a worker may have some ready work now, and if not, why (S36, S38).
    pub(crate) fn eligible(&self, run: &Run, class: u32, worker: &Worker) -> Result<(), Ineligible> {
        is_healthy(worker)?;
        self.may_hold(class, worker)?;
        self.has_room_under_key(run)
    }

    /// Whether a worker can do work of a class and has room for it, however it stands.
    pub(crate) fn may_hold(&self, class: u32, worker: &Worker) -> Result<(), Ineligible> {
        let of_class = &self.classes[class as usize];
        if of_class.tenant != worker.row.key.tenant {
            return Err(Ineligible::OtherTenant);
        }
        if worker.free_slots() == 0 {
            return Err(Ineligible::Full { slots: worker.row.spec.slots });
        }
        fits(&of_class.requirement, &self.shapes[worker.shape as usize].spec)?;
        self.bars(class, worker)
    }

    /// Whether one more piece of work of a run may be held under its concurrency key.
    pub(crate) fn has_room_under_key(&self, run: &Run) -> Result<(), Ineligible> {
        match run.head.concurrency() {
            Some(limit) if self.held_under(run.head.tenant, limit.key) >= limit.limit => {
                Err(Ineligible::ConcurrencyKey { limit: limit.limit })
            }
            _ => Ok(()),
        }
    }

    /// The best open worker for some work, and nobody of `excluded`.
    pub(crate) fn best_worker(&mut self, state: &State, class: u32, excluded: &[WorkerId]) -> Option<u32> {
        let (mut best, mut after): (Option<(Key, u32)>, _) = (None, None);
        loop {
            let Self { shapes, workers, .. } = self;
            let head =
                |shape: u32| shapes[shape as usize].listed[OPEN].first_key_value().map(|(key, _)| *key);
            let Some((worth, shape)) = workers[OPEN].next(class, after, head) else { break };
            if best.is_some_and(|(found, _)| found <= worth) {
                break;
            }
            let bonus = self.workers[OPEN].bonus(shape, class).unwrap_or(0);
            let acceptable = self.shapes[shape as usize].listed[OPEN].iter().find(|(_, slot)| {
                let worker = state.workers.at(**slot);
                !excluded.contains(&worker.row.key.worker) && self.bars(class, worker).is_ok()
            });
            if let Some((key, slot)) = acceptable {
                let key = (key.0.saturating_sub(bonus), key.1, key.2);
                if best.is_none_or(|(found, _)| key < found) {
                    best = Some((key, *slot));
                }
            }
            after = Some((worth, shape));
        }
        best.map(|(_, slot)| slot)
    }

    /// A waiting worker that a poll would give work of this class.
    pub(crate) fn idle_worker(&mut self, state: &State, class: u32) -> Option<u32> {
        let mut after = None;
        loop {
            let Self { shapes, workers, .. } = self;
            let head =
                |shape: u32| shapes[shape as usize].listed[IDLE].first_key_value().map(|(key, _)| *key);
            let (key, shape) = workers[IDLE].next(class, after, head)?;
            let mut listed = self.shapes[shape as usize].listed[IDLE].values();
            if let Some(slot) = listed.find(|slot| self.bars(class, state.workers.at(**slot)).is_ok()) {
                return Some(*slot);
            }
            after = Some((key, shape));
        }
    }

    /// Notes or forgets that a lease may be asked for.
    pub(crate) fn set_preemptible(
        &mut self,
        shape: u32,
        priority: u8,
        epoch: Epoch,
        work: Option<(RunId, NodeIx)>,
    ) {
        let preemptible = &mut self.shapes[shape as usize].preemptible;
        match work {
            Some(work) => drop(preemptible.insert((priority, Reverse(epoch)), work)),
            None => drop(preemptible.remove(&(priority, Reverse(epoch)))),
        }
    }

    /// All leases that may be asked for.
    pub(crate) fn preemptible_items(&self) -> Vec<(Epoch, RunId, NodeIx)> {
        let shapes = self.shapes.iter().flat_map(|(_, shape)| &shape.preemptible);
        shapes.map(|((_, Reverse(epoch)), (run, node))| (*epoch, *run, *node)).collect()
    }

    /// True if any lease of a worker of this shape may be asked for.
    pub(crate) fn has_preemptible(&self, shape: u32) -> bool {
        !self.shapes[shape as usize].preemptible.is_empty()
    }

    /// The lease to ask for when work of this class and priority finds every fitting worker full.
    pub(crate) fn victim(&mut self, class: u32, priority: u8) -> Option<(RunId, NodeIx)> {
        let push = u32::from(self.classes[class as usize].mode.push);
        let shapes = self.waiting.sinks_of(class).map(|sink| (sink - push) / 2);
        let lowest = shapes.filter_map(|shape| self.shapes[shape as usize].preemptible.first_key_value());
        let (key, work) = lowest.min_by_key(|(key, _)| **key)?;
        (key.0 < priority).then_some(*work)
    }

    /// What a worker could do now, best first, without taking it. Only for looking: it visits every fitting class.
    pub(crate) fn list_for(&self, state: &State, worker: &Worker, most: usize) -> Vec<(u32, NodeIx)> {
        let mut found: Vec<(Key, u32)> = Vec::new();
        for (class, of_class) in self.classes.iter().enumerate() {
            let sink = worker.shape * 2 + u32::from(of_class.mode.push);
            if self.waiting.bonus(class as u32, sink).is_none() || self.bars(class as u32, worker).is_err() {
                continue;
            }
            let waiting = of_class.queue.iter().filter(|(_, slot)| {
                let head = &state.runs.at(*slot).head;
                head.concurrency().is_none_or(|limit| self.held_under(head.tenant, limit.key) < limit.limit)
            });
            found.extend(waiting.take(most));
        }
        found.sort_unstable();
        found.truncate(most);
        found.into_iter().map(|(key, slot)| (slot, NodeIx::new(key.2 as u32))).collect()
    }

    /// A worker may have room for something that did not fit before.
    pub(crate) fn worker_opened(&mut self, slot: u32) {
        if self.has_push || self.idle > 0 {
            self.opened.push_back(slot);
        }
    }

    /// A worker gets nothing new any more. Work that was declined by the others may have waited for its room, so all that
    /// waits for an offer is looked at again.
    pub(crate) fn worker_gone(&mut self) {
        let pushed = self.classes.iter().filter(|class| class.mode.push);
        let waiting = pushed.flat_map(|class| class.queue.iter());
        self.arrivals.extend(waiting.map(|(key, slot)| (slot, NodeIx::new(key.2 as u32))));
    }

    /// True if there is anything dispatch has to look at.
    pub(crate) fn has_news(&self) -> bool {
        !self.arrivals.is_empty() || !self.opened.is_empty()
    }

    /// The next thing dispatch has to look at.
    pub(crate) fn next_news(&mut self) -> Option<News> {
        // Arrivals first, in the order they came.
        if let Some((slot, node)) = self.arrivals.pop_front() {
            return Some(News::Arrived(slot, node));
        }
        self.opened.pop_front().map(News::Opened)
    }

    /// Forgets what dispatch has not looked at: it is about to look at everything.
    pub(crate) fn forget_news(&mut self) {
        self.arrivals.clear();
        self.opened.clear();
    }

    /// True if this class is given out by offers.
    pub(crate) fn is_push(&self, class: u32) -> bool {
        self.classes[class as usize].mode.push
    }

    /// True if some fitting worker has room.
    pub(crate) fn has_open_worker(&mut self, state: &State, class: u32) -> bool {
        self.best_worker(state, class, &[]).is_some()
    }

    /// How much waits in each class: of whom, for what, how it is given out, queued, blocked by a key.
    pub(crate) fn depths(&self) -> impl Iterator<Item = (TenantId, &Requirement, bool, usize, usize)> {
        let parked = self.concurrencies.parked_by_class();
        self.classes.iter().enumerate().map(move |(class, entry)| {
            let blocked = parked.get(&(class as u32)).copied().unwrap_or(0);
            (entry.tenant, &entry.requirement, entry.mode.push, entry.queue.len(), blocked)
        })
    }

    /// How much of the same class goes before some work. Only for looking: it counts.
    pub(crate) fn ahead_of(&self, item: Item) -> u64 {
        self.classes[item.class as usize].queue.iter().take_while(|(key, _)| *key < item.key).count() as u64
    }

    /// How many pieces of work are held under each concurrency key.
    pub(crate) fn keys_held(&self) -> impl Iterator<Item = ((TenantId, KeyHash), u32)> + '_ {
        self.concurrencies.all_held()
    }

    /// All that waits, queued or parked: its class, its place in the order, and the slot of its run.
    pub(crate) fn waiting_items(&self) -> Vec<(u32, Key, u32)> {
        let classes = self.classes.iter().zip(0..);
        let queued =
            classes.flat_map(|(of, class)| of.queue.iter().map(move |(key, slot)| (class, key, slot)));
        queued.chain(self.concurrencies.all_parked()).collect()
    }

    /// True if any known worker of the tenant fits the class, whatever it holds.
    pub(crate) fn has_fitting_worker(&self, class: u32) -> bool {
        self.waiting.sinks_of(class).next().is_some()
    }
}

/// Whether a worker may be given anything new at all (S36).
pub(crate) fn is_healthy(worker: &Worker) -> Result<(), Ineligible> {
    match worker.health {
        Health::Healthy => Ok(()),
        Health::Draining => Err(Ineligible::Draining),
        Health::Stale | Health::Dead | Health::Gone => Err(Ineligible::Unhealthy),
    }
}
