//! Runs, joins and graphs, as they stand between two inputs.

use super::{Holds, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::state::{DefinitionEntry, Run};
use crate::definition::{Definition, EdgeKind, Join};
use crate::id::NodeIx;
use crate::lifecycle::{Lifecycle, Phase, RunStatus};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// The nodes whose output a node waits for, from the names in its definition.
pub(super) fn predecessors(definition: &Definition, node: NodeIx) -> Vec<NodeIx> {
    let Some(spec) = definition.nodes.get(node.index()) else { return Vec::new() };
    let edges = definition.edges.iter().filter(|edge| edge.to == spec.name && edge.kind == EdgeKind::Data);
    let at = |name: &str| definition.nodes.iter().position(|other| &*other.name == name);
    edges.filter_map(|edge| at(&edge.from)).map(|at| NodeIx::new(at as u32)).collect()
}

/// How many predecessors must complete, from the definition alone.
pub(super) fn need(definition: &Definition, node: NodeIx) -> usize {
    let all = predecessors(definition, node).len();
    match definition.nodes.get(node.index()).map(|spec| spec.join) {
        Some(Join::Any) => all.min(1),
        Some(Join::AtLeast(n)) => n as usize,
        Some(Join::All) | None => all,
    }
}

/// True if a node waits for a first message besides its join.
pub(super) fn waits_for_input(definition: &Definition, node: NodeIx) -> bool {
    definition.nodes.get(node.index()).is_some_and(|spec| {
        let is_fed = |kind: &EdgeKind| matches!(kind, EdgeKind::Stream { .. });
        spec.handles.iter().any(|handle| handle.trigger)
            || definition.edges.iter().any(|edge| edge.to == spec.name && is_fed(&edge.kind))
    })
}

fn runs(machine: &Coordinator) -> impl Iterator<Item = (&Run, &DefinitionEntry)> {
    machine.state.runs.iter().map(|(_, run)| (run, machine.state.definition_of(run)))
}

/// An ended run has only terminal nodes, nothing held, and an outcome that its status shows (S4).
pub fn s4_an_ended_run_holds_nothing(machine: &Coordinator) -> Holds {
    for (run, _) in runs(machine).filter(|(run, _)| run.head.status.is_terminal()) {
        let id = run.head.id;
        for node in run.work_ixs() {
            let phase = run.work(node).phase;
            hold!("S4", phase.is_terminal(), "run {id} ended, and node {node} is {phase}");
        }
        hold!("S4", run.held == 0, "run {id} ended with {} grants", run.held);
        let claimed = run.inboxes.iter().find(|inbox| inbox.row.has_claimed());
        hold!("S4", claimed.is_none(), "run {id} ended with claimed messages");
        let completed = run.head.status == RunStatus::Completed;
        let failed = run.node_ixs().any(|node| run.work(node).phase == Phase::Cancelled);
        hold!("S4", !(completed && failed), "run {id} completed, and a node of it was cancelled");
    }
    Ok(())
}

/// A run has exactly the nodes and inboxes that its definition declares, whatever was retried (S17).
pub fn s17_a_run_has_the_nodes_of_its_definition(machine: &Coordinator) -> Holds {
    for (run, definition) in runs(machine) {
        let (id, declared) = (run.head.id, &definition.row.definition);
        let (is, should) = (run.nodes.as_slice().len(), declared.nodes.len());
        hold!("S17", is == should, "run {id} has {is} nodes, and its definition {should}");
        let handles = declared.nodes.iter().enumerate().flat_map(|(at, node)| {
            (0..node.handles.len()).map(move |handle| (NodeIx::new(at as u32), handle as u16))
        });
        let has = run.inboxes.iter().map(|inbox| (inbox.row.node, inbox.row.handle.get()));
        hold!("S17", has.eq(handles), "run {id} does not have the inboxes of its definition");
        hold!("S17", run.head.series.get() > 0, "run {id} is in no series");
    }
    Ok(())
}

/// What a join still needs is what its set of completed predecessors says (S19).
pub fn s19_joins_are_derived_from_their_sets(machine: &Coordinator) -> Holds {
    for (run, definition) in runs(machine) {
        for node in run.node_ixs() {
            let declared = &definition.row.definition;
            let done = predecessors(declared, node)
                .into_iter()
                .filter(|from| run.work(*from).phase == Phase::Completed);
            let missing = need(declared, node).saturating_sub(done.count()) as u32;
            let (id, is) = (run.head.id, run.node(node).missing);
            hold!("S19", is == missing, "node {node} of run {id} misses {is}, and its set says {missing}");
        }
    }
    Ok(())
}

/// No node of an open run waits although its join is satisfied and its first message is there (S20).
pub fn s20_no_satisfied_join_waits(machine: &Coordinator) -> Holds {
    for (run, definition) in runs(machine).filter(|(run, _)| run.head.ending.is_none()) {
        let declared = &definition.row.definition;
        for node in run.node_ixs().filter(|node| run.work(*node).phase == Phase::Waiting) {
            let preceding = predecessors(declared, node);
            let done = preceding.iter().filter(|from| run.work(**from).phase == Phase::Completed).count();
            let has_message = run.inboxes_of(node).iter().any(|inbox| inbox.row.unsettled() > 0);
            let waits = done < need(declared, node) || (waits_for_input(declared, node) && !has_message);
            hold!("S20", waits, "node {node} of run {} waits for nothing", run.head.id);
        }
    }
    Ok(())
}

/// Every definition's graph can be walked to its end (S21).
pub fn s21_graphs_are_acyclic(machine: &Coordinator) -> Holds {
    for entry in &machine.state.definitions {
        let definition = &entry.row.definition;
        let mut left: BTreeSet<&str> = definition.nodes.iter().map(|node| &*node.name).collect();
        loop {
            let is_free = |name: &&str| {
                !definition.edges.iter().any(|edge| *edge.to == **name && left.contains(&*edge.from))
            };
            let free: Vec<&str> = left.iter().copied().filter(is_free).collect();
            if free.is_empty() {
                break;
            }
            left.retain(|name| !free.contains(name));
        }
        hold!("S21", left.is_empty(), "definition {} has a cycle through {left:?}", entry.row.id);
    }
    for (run, entry) in runs(machine) {
        hold!("S21", entry.row.id == run.head.definition, "run {} lost its definition", run.head.id);
    }
    Ok(())
}
