//! Leases, incarnations and limits, as they stand between two inputs.

use super::{Holds, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::effect::Outgoing;
use crate::coordinator::state::{OutboxEntry, Run, WorkerKey, held_digest};
use crate::id::{Epoch, KeyHash, NodeIx, TenantId};
use crate::lifecycle::Phase;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Every piece of work that is held under a grant of its own.
pub(super) fn grants(machine: &Coordinator) -> impl Iterator<Item = (&Run, NodeIx)> {
    machine.state.runs.iter().flat_map(|(_, run)| {
        let is_own = |node: &NodeIx| run.whole.is_none() || node.is_whole_run();
        run.work_ixs()
            .filter(move |node| is_own(node) && run.work(*node).phase.is_held())
            .map(move |at| (run, at))
    })
}

/// One grant per piece of work, each under an epoch of its own that was minted before (S6).
pub fn s6_at_most_one_live_lease(machine: &Coordinator) -> Holds {
    let mut epochs = BTreeSet::new();
    for (run, node) in grants(machine) {
        let (id, work) = (run.head.id, run.work(node));
        let epoch = work.epoch;
        hold!("S6", epochs.insert(epoch), "epoch {epoch} is held twice, once for node {node} of run {id}");
        hold!("S6", epoch < machine.state.meta.next_epoch, "epoch {epoch} was not minted yet");
        hold!("S6", work.assignment.is_some(), "node {node} of run {id} is held by nobody");
    }
    for (_, run) in machine.state.runs.iter() {
        let Some(whole) = &run.whole else { continue };
        let held_by = whole.work.is_claimed();
        for node in run.node_ixs() {
            let phase = run.work(node).phase;
            let is_alone = !matches!(phase, Phase::Assigned | Phase::Claimed);
            hold!("S6", is_alone, "node {node} of run {} has a lease beside the run's", run.head.id);
            let is_covered = phase != Phase::Processing || held_by;
            hold!("S6", is_covered, "node {node} of run {} is executed without a lease", run.head.id);
        }
    }
    Ok(())
}

/// A grant to an older life is dead, and no grant is to a life that is yet to come (S35).
pub fn s35_older_lives_are_fenced(machine: &Coordinator) -> Holds {
    for (run, node) in grants(machine) {
        let Some(assignment) = run.work(node).assignment else { continue };
        let key = WorkerKey { tenant: run.head.tenant, worker: assignment.worker };
        let Some(worker) = machine.state.workers.get(key) else {
            hold!("S35", false, "worker {key} holds node {node} of run {}, and is not known", run.head.id);
            continue;
        };
        let (is, held) = (worker.row.incarnation, assignment.incarnation);
        hold!("S35", held <= is, "worker {key} holds under incarnation {held}, and is in {is}");
        if held < is && !assignment.claimed_at.is_never() {
            let is_fenced = assignment.session < worker.row.fenced;
            hold!("S35", is_fenced, "worker {key} came back, and a lease of its former life lives");
        }
    }
    Ok(())
}

/// Slots, parallel limits, live runs and message buffers are within their bounds (S38).
pub fn s38_limits_hold(machine: &Coordinator) -> Holds {
    let (state, limits) = (&machine.state, &machine.state.limits);
    let mut per_class: BTreeMap<(WorkerKey, u32), u32> = BTreeMap::new();
    let mut per_worker: BTreeMap<WorkerKey, u32> = BTreeMap::new();
    for (run, node) in grants(machine) {
        let Some(worker) = run.work(node).holder() else { continue };
        let key = WorkerKey { tenant: run.head.tenant, worker };
        let definition = state.definition_of(run);
        let count = per_class.entry((key, definition.class(node))).or_default();
        *count += 1;
        if let Some(max) = definition.work(node).requirement.max_parallel_per_worker {
            hold!("S38", *count <= max, "worker {key} holds {count} of a kind, and {max} are allowed");
        }
        if !is_dead(machine, run, node) {
            *per_worker.entry(key).or_default() += 1;
        }
    }
    for (key, held) in per_worker {
        let slots = state.workers.get(key).map_or(0, |worker| worker.row.spec.slots);
        hold!("S38", held <= slots, "worker {key} holds {held}, and has {slots} slots");
    }
    for (_, run) in state.runs.iter() {
        let nodes = &state.definition_of(run).row.definition.nodes;
        for inbox in &run.inboxes {
            let spec = &nodes[inbox.row.node.index()].handles[usize::from(inbox.row.handle.get())];
            let waiting = inbox.row.unsettled();
            hold!("S38", waiting <= u64::from(spec.capacity), "an inbox of run {} is over full", run.head.id);
        }
    }
    // News of an end is owed whatever the bound says: it must not be lost.
    let is_message = |entry: &&OutboxEntry| matches!(entry.row.outgoing, Outgoing::Message { .. });
    let messages = state.outbox.values().filter(is_message).count() as u64;
    hold!("S38", messages <= limits.outbox, "{messages} messages are owed");
    Ok(())
}

/// True if the session of a claimed grant is over, by what the worker's row says.
pub(super) fn is_dead(machine: &Coordinator, run: &Run, node: NodeIx) -> bool {
    let Some(assignment) = run.work(node).assignment.filter(|one| !one.claimed_at.is_never()) else {
        return false;
    };
    machine.state.workers.of(run.head.tenant, assignment.worker).is_none_or(|worker| {
        assignment.session < worker.row.fenced
            || worker
                .row
                .lapsed
                .iter()
                .any(|(ms, since)| *ms == assignment.lease_ms && assignment.session < *since)
    })
}

/// Lanes, digests, offers and the list of lapsed leases are exactly the held work (S52).
pub fn s52_leases_are_the_held_work(machine: &Coordinator) -> Holds {
    let state = &machine.state;
    let (mut lapsed, mut linked) = (0, 0);
    let mut lanes: BTreeMap<(WorkerKey, u64), Vec<Epoch>> = BTreeMap::new();
    let mut offers: BTreeMap<WorkerKey, Vec<Epoch>> = BTreeMap::new();
    let mut of_class: BTreeMap<(WorkerKey, u32), u32> = BTreeMap::new();
    let mut under: BTreeMap<(TenantId, KeyHash), u32> = BTreeMap::new();
    for (run, node) in grants(machine) {
        let work = run.work(node);
        let Some(assignment) = work.assignment else { continue };
        let key = WorkerKey { tenant: run.head.tenant, worker: assignment.worker };
        let class = state.definition_of(run).class(node);
        *of_class.entry((key, class)).or_default() += 1;
        if let Some(limit) = run.head.concurrency() {
            *under.entry((run.head.tenant, limit.key)).or_default() += 1;
        }
        let lease = run.node(node).lease;
        if assignment.claimed_at.is_never() {
            hold!("S52", lease.is_none(), "an offer of run {} has a lease", run.head.id);
            offers.entry(key).or_default().push(work.epoch);
            continue;
        }
        let Some(lease) = lease else {
            hold!("S52", false, "node {node} of run {} is claimed without a lease", run.head.id);
            continue;
        };
        linked += 1;
        let link = state.leases.get(lease);
        let is_same = (link.epoch, link.node) == (work.epoch, node)
            && state.runs.at(link.run).head.id == run.head.id
            && state.workers.at(link.worker).row.key == key;
        hold!("S52", is_same, "the lease of node {node} of run {} is another's", run.head.id);
        if is_dead(machine, run, node) {
            lapsed += 1;
        } else {
            lanes.entry((key, assignment.lease_ms)).or_default().push(work.epoch);
        }
    }
    hold!("S52", state.leases.len() == linked, "{} leases, {linked} claims", state.leases.len());
    let counted = state.leases.lapsed.count;
    hold!("S52", counted == lapsed, "{counted} leases are listed as lapsed, and {lapsed} are");
    for slot in state.workers.in_order() {
        let worker = state.workers.at(slot);
        let key = worker.row.key;
        for lane in &worker.lanes {
            let is: Vec<Epoch> = state.leases.iter(&lane.list).map(|(_, lease)| lease.epoch).collect();
            let mut should = lanes.remove(&(key, lane.lease_ms)).unwrap_or_default();
            should.sort_unstable();
            hold!("S52", is == should, "worker {key} has leases {is:?}, and rows say {should:?}");
            let digest = held_digest(should.iter().copied());
            hold!("S52", lane.digest == digest, "the digest of worker {key} is not that of its leases");
        }
        let offered: Vec<Epoch> = worker.offered.keys().copied().collect();
        let mut should = offers.remove(&key).unwrap_or_default();
        should.sort_unstable();
        hold!("S52", offered == should, "worker {key} has offers {offered:?}, and rows say {should:?}");
        for (class, held) in &worker.held_of_class {
            let should = of_class.get(&(key, *class)).copied().unwrap_or(0);
            hold!("S52", *held == should, "worker {key} counts {held} of class {class}, not {should}");
        }
    }
    hold!("S52", lanes.is_empty() && offers.is_empty(), "grants of workers that are not there");
    let held: BTreeMap<_, _> = machine.placement.keys_held().filter(|(_, held)| *held > 0).collect();
    hold!("S52", held == under, "concurrency keys count {held:?}, and rows say {under:?}");
    Ok(())
}
