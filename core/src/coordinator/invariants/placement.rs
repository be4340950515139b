//! The queues and what they give out, against a look at everything.

use super::ownership::{grants, is_dead};
use super::{Holds, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::state::{Run, Worker};
use crate::definition::{Assign, Capability, Requirement};
use crate::id::NodeIx;
use crate::lifecycle::{Health, Phase, RunStatus};
use alloc::vec::Vec;

/// Ready work that may be given out, with its place in the order.
fn waiting(machine: &Coordinator) -> impl Iterator<Item = ((u64, u64, u64), &Run, NodeIx)> {
    let state = &machine.state;
    state.runs.iter().flat_map(move |(number, run)| {
        let gives_out = matches!(run.head.status, RunStatus::Running | RunStatus::Suspended);
        let own = |node: &NodeIx| run.whole.is_none() || node.is_whole_run();
        let ready = run
            .work_ixs()
            .filter(move |node| gives_out && own(node) && run.work(*node).phase == Phase::Ready);
        ready.map(move |node| {
            let behind = u64::from(u8::MAX - run.head.priority) * state.limits.age_per_priority_ms;
            let rank = run.work(node).ready_at.as_ms().saturating_add(behind);
            ((rank, number, u64::from(node.get())), run, node)
        })
    })
}

/// What stands in queues, or is parked with its concurrency key, is exactly the ready work (S37).
pub fn s37_queues_are_the_ready_work(machine: &Coordinator) -> Holds {
    let state = &machine.state;
    let mut should: Vec<_> = waiting(machine)
        .map(|(key, run, node)| (state.definition_of(run).class(node), key, run.head.id))
        .collect();
    let mut is: Vec<_> = machine
        .placement
        .waiting_items()
        .into_iter()
        .map(|(class, key, slot)| (class, key, state.runs.at(slot).head.id))
        .collect();
    should.sort_unstable();
    is.sort_unstable();
    hold!("S37", is == should, "queued is {is:?}, and ready is {should:?}");
    for (_, run) in state.runs.iter() {
        for node in run.work_ixs() {
            let stands =
                should.iter().any(|(_, key, id)| *id == run.head.id && key.2 == u64::from(node.get()));
            let queued = run.node(node).queued;
            hold!("S37", queued == stands, "node {node} of run {} is marked queued: {queued}", run.head.id);
        }
    }
    Ok(())
}

fn has(worker: &Worker, requirement: &Requirement) -> bool {
    let (spec, id) = (&worker.row.spec, worker.row.key.worker);
    let covers = |name: &str, wanted: &Capability| {
        spec.capabilities.iter().any(|(known, capability)| {
            **known == *name
                && match (capability, wanted) {
                    (Capability::Number(has), Capability::Number(wants)) => has >= wants,
                    (has, wants) => has == wants,
                }
        })
    };
    (requirement.executors.is_empty() || requirement.executors.iter().any(|one| spec.executors.contains(one)))
        && requirement.capabilities.iter().all(|(name, wanted)| covers(name, wanted))
        && requirement.labels.iter().all(|label| spec.labels.contains(label))
        && (requirement.allowed.is_empty() || requirement.allowed.contains(&id))
        && !requirement.forbidden.contains(&id)
}

/// A poll or an offer gets the first, by rank, of all that a look at everything finds for the worker (S39).
pub fn s39_the_first_eligible_is_picked(machine: &Coordinator) -> Holds {
    let state = &machine.state;
    for slot in state.workers.in_order() {
        let worker = state.workers.at(slot);
        let key = worker.row.key;
        if worker.health != Health::Healthy || worker.free_slots() == 0 {
            continue;
        }
        let may = |run: &Run, node: NodeIx, push: bool| {
            let definition = state.definition_of(run);
            let spec = definition.work(node);
            let alike = grants(machine).filter(|(other, at)| {
                other.head.tenant == key.tenant
                    && other.work(*at).holder() == Some(key.worker)
                    && state.definition_of(other).class(*at) == definition.class(node)
            });
            let most = spec.requirement.max_parallel_per_worker;
            let under = |limit: crate::coordinator::command::Concurrency| {
                grants(machine)
                    .filter(|(other, _)| {
                        other.head.tenant == run.head.tenant
                            && other.head.concurrency().is_some_and(|one| one.key == limit.key)
                    })
                    .count() as u32
            };
            run.head.tenant == key.tenant
                && matches!(spec.assign, Assign::Push { .. }) == push
                && has(worker, &spec.requirement)
                && most.is_none_or(|most| (alike.count() as u32) < most)
                && run.head.concurrency().is_none_or(|limit| under(limit) < limit.limit)
                && !(push && run.work(node).excludes(key.worker))
        };
        for push in [false, true] {
            let best =
                waiting(machine).filter(|(_, run, node)| may(run, *node, push)).map(|(key, ..)| key).min();
            let picked = machine.placement.clone().pick(state, worker, push);
            let picked =
                picked.map(|(slot, node)| (state.runs.at(slot).head.id.number(), u64::from(node.get())));
            let should = best.map(|key| (key.1, key.2));
            hold!("S39", picked == should, "worker {key} would get {picked:?}, and {should:?} comes first");
        }
    }
    Ok(())
}

/// Work that may be asked to make room is exactly the live leases that allow it and were not asked (S52).
pub fn s52_preemptible_leases_live(machine: &Coordinator) -> Holds {
    let may = |run: &Run, node: NodeIx| {
        let work = run.work(node);
        machine.state.definition_of(run).work(node).preemptible
            && work.is_claimed()
            && work.stop.is_none()
            && !is_dead(machine, run, node)
    };
    let held = grants(machine).filter(|(run, node)| may(run, *node));
    let mut should: Vec<_> = held.map(|(run, node)| (run.work(node).epoch, run.head.id, node)).collect();
    let mut is = machine.placement.preemptible_items();
    should.sort_unstable();
    is.sort_unstable();
    hold!("S52", is == should, "may be asked: {is:?}, and live: {should:?}");
    Ok(())
}
