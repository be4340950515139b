//! Rows out: what a batch touched, each once; and what leaves memory then, because it ended or sleeps for long.

use super::Coordinator;
use super::apply::Applier;
use super::row::{Change, NodeRow, Row, RunRow};
use super::state::{Nodes, Run, State, Timer};
use crate::id::{DefinitionId, NodeIx};
use crate::lifecycle::RunStatus;
use crate::time::Time;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// The rows touched since they were last taken, each once; then what may leave memory leaves.
pub(super) fn take_changes(core: &mut Coordinator, changes: &mut Vec<Change>) {
    let state = &mut core.state;
    let mut touched = core::mem::take(&mut state.touched);
    if core::mem::take(&mut touched.meta) {
        changes.push(Change::Put(Row::Meta(state.meta.clone())));
    }
    changes.append(&mut touched.changes);
    changes.reserve(touched.runs.len() + touched.nodes.len());
    for slot in touched.runs.drain(..) {
        let run = state.runs.at_mut(slot);
        run.touched = false;
        if let Nodes::One(node) = &mut run.nodes {
            node.touched = false;
        }
        changes.push(Change::Put(Row::Run(row_of(run))));
    }
    for (slot, ix) in touched.nodes.drain(..) {
        let run = state.runs.at_mut(slot);
        let (id, node) = (run.head.id, run.node_mut(ix));
        node.touched = false;
        changes.push(Change::Put(Row::Node(NodeRow { run: id, node: ix, work: node.work.clone() })));
    }
    for (slot, node, handle) in touched.inboxes.drain(..) {
        let run = state.runs.at_mut(slot);
        let inbox = run.inbox_mut(node, handle);
        inbox.touched = false;
        changes.push(Change::Put(Row::Inbox(inbox.row.clone())));
    }
    for key in touched.workers.drain(..) {
        match state.workers.slot(key) {
            None => changes.push(Change::DropWorker(key)),
            Some(slot) => {
                let worker = state.workers.at_mut(slot);
                if core::mem::take(&mut worker.touched) {
                    changes.push(Change::Put(Row::Worker(Box::new(worker.row.clone()))));
                }
            }
        }
    }
    while let Some(id) = touched.outbox.pop_first() {
        changes.push(match state.outbox.get(&id) {
            Some(entry) => Change::Put(Row::Outbox(entry.row)),
            None => Change::DropOutbox(id),
        });
    }
    let mut leaving = core::mem::take(&mut touched.leaving);
    let mut applier = Applier { state: &mut core.state, placement: &mut core.placement };
    leaving.drain(..).for_each(|number| leave(&mut applier, number));
    touched.leaving = leaving;
    // Last, so that the store forgets by what the rows of this batch say, and memory forgets the same.
    if let Some(before) = touched.forget.take() {
        changes.push(Change::Forget { before });
        forget(&mut applier, before);
    }
    core.state.touched = touched;
}

impl Coordinator {
    /// Every row of what is in memory, in a fixed order: what a store holds of it once all changes are committed.
    pub fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        let state = &self.state;
        let definitions = state.definitions.iter().map(|entry| Row::Definition(Box::new(entry.row.clone())));
        let names = state
            .names
            .iter()
            .flat_map(|(tenant, names)| names.iter().map(move |(name, entry)| (tenant, name, entry)));
        let aliases = names.flat_map(|(tenant, definition, entry)| {
            let row = move |(alias, id): (&crate::definition::Name, &DefinitionId)| {
                let (definition, alias) = (definition.clone(), alias.clone());
                Row::Alias(super::row::AliasRow { tenant: *tenant, definition, alias, id: *id })
            };
            entry.aliases.iter().map(row)
        });
        let workers = state.workers.in_order().into_iter();
        let workers = workers.map(|slot| Row::Worker(Box::new(state.workers.at(slot).row.clone())));
        let runs = state.runs.iter().flat_map(|(_, run)| rows_of(run));
        let owed = state.outbox.values().map(|entry| Row::Outbox(entry.row));
        let meta = core::iter::once(Row::Meta(state.meta.clone()));
        meta.chain(definitions).chain(aliases).chain(workers).chain(runs).chain(owed)
    }

    /// Feeds all that a machine holds in rows to a hasher of the caller's choice (S49).
    pub fn digest(&self, hasher: &mut impl core::hash::Hasher) {
        self.rows().for_each(|row| core::hash::Hash::hash(&row, hasher));
    }
}

/// A run's own row.
fn row_of(run: &Run) -> RunRow {
    let whole = run.whole.as_ref().map(|whole| Box::new(whole.work.clone()));
    let node = match &run.nodes {
        Nodes::One(node) => Some(node.work.clone()),
        Nodes::Many(_) => None,
    };
    RunRow { head: run.head.clone(), whole, node }
}

/// All rows of a run that are resident.
fn rows_of(run: &Run) -> impl Iterator<Item = Row> + '_ {
    let id = run.head.id;
    let nodes = match &run.nodes {
        Nodes::One(_) => &[][..],
        Nodes::Many(nodes) => nodes,
    };
    let nodes = nodes.iter().zip(0..).map(move |(node, at)| {
        Row::Node(NodeRow { run: id, node: NodeIx::new(at), work: node.work.clone() })
    });
    let inboxes = run.inboxes.iter().flat_map(|inbox| {
        let messages = inbox.messages.iter().map(|message| Row::Message(*message));
        core::iter::once(Row::Inbox(inbox.row.clone())).chain(messages)
    });
    core::iter::once(Row::Run(row_of(run))).chain(nodes).chain(inboxes)
}

/// An ended run stays for a while; one that sleeps beyond the horizon goes at once.
fn leave(applier: &mut Applier<'_>, number: u64) {
    let state = &mut *applier.state;
    state.runs.focus(number);
    let Some(run) = state.runs.get(number) else { return };
    if run.is_ended() {
        state.ended.push_back(number);
        while applier.state.ended.len() as u64 > applier.state.limits.resident_ended {
            let oldest = applier.state.ended.pop_front().expect("it is not empty");
            if applier.state.runs.get(oldest).is_some_and(Run::is_ended) {
                evict(applier, oldest);
            }
        }
    } else if !run.head.is_resident(state.meta.paged_until) {
        evict(applier, number);
    }
}

/// Takes a run out of memory. Nothing of it is held, queued or unwritten.
pub(super) fn evict(applier: &mut Applier<'_>, number: u64) {
    let State { timers, runs, keys, limits, .. } = &mut *applier.state;
    let Some(run) = runs.get_mut(number) else { return };
    assert!(run.held == 0 && run.active == 0, "only what is at rest leaves memory");
    timers.arm(Timer::Run(number), &mut run.armed, Time::NEVER);
    for node in run.work_ixs() {
        timers.arm(Timer::Node(number, node), &mut run.node_mut(node).armed, Time::NEVER);
    }
    match run.head.key {
        Some(key) if run.is_ended() => {
            keys.retire(run.head.tenant, key, run.head.ended_at, limits.resident_keys);
        }
        Some(key) => keys.sleep(run.head.tenant, key.key),
        None => {}
    }
    let (tenant, is_ended) = (run.head.tenant, run.is_ended());
    runs.remove(number);
    if !is_ended {
        applier.live_run_count(tenant, -1);
    }
}

/// Ended runs whose time is over go out of memory as they go out of the store, and so do the keys of ended runs.
fn forget(applier: &mut Applier<'_>, before: Time) {
    let runs = &applier.state.runs;
    let is_over = |run: &Run| run.is_ended() && run.head.kept_from() <= before;
    let ended = applier.state.ended.iter().copied();
    let over: Vec<u64> = ended.filter(|number| runs.get(*number).is_some_and(is_over)).collect();
    applier.state.ended.retain(|number| !over.contains(number));
    over.into_iter().for_each(|number| evict(applier, number));
    applier.state.keys.forget(before);
}

impl super::row::RunHead {
    /// True if a run with this row is in memory: it has not ended, and does not sleep beyond what is paged in. A store
    /// gives just these to [`Coordinator::restore`].
    pub fn is_resident(&self, paged_until: Time) -> bool {
        match self.status {
            RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled => false,
            RunStatus::Suspended => self.wake_at() <= paged_until,
            RunStatus::Running | RunStatus::Paused | RunStatus::Ending => true,
        }
    }
}
