//! From a definition to a plan: Kahn's algorithm, and all problems at once with the names involved.
//!
//! Time and memory are linear in nodes and edges. Nothing here knows about runs.

use crate::definition::{Definition, EdgeKind, Join, Name, NodeKind, Scope, WorkSpec};
use crate::id::{HandleIx, NodeIx};
use crate::limits::{LimitName, Limits};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use serde::{Deserialize, Serialize};

/// One thing that is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Problem {
    /// There is no node.
    Empty,
    /// Two nodes have one name.
    DuplicateNode(Name),
    /// An edge names a node that is not there.
    UnknownNode {
        /// The edge's other end.
        at: Name,
        /// The name that is not there.
        name: Name,
    },
    /// A node depends on itself.
    SelfEdge(Name),
    /// Two equal edges.
    DuplicateEdge(Name, Name),
    /// These nodes depend on each other in a ring; the first is not repeated at the end.
    Cycle(Vec<Name>),
    /// No node is without predecessors.
    NoEntry,
    /// No node is without successors.
    NoExit,
    /// It could only be reached through a cycle.
    Unreachable(Name),
    /// A stream edge names a handle that its target does not have.
    UnknownHandle {
        /// The target.
        node: Name,
        /// The handle.
        handle: Name,
    },
    /// Two handles of a node have one name.
    DuplicateHandle(Name, Name),
    /// A handle would never take a message.
    NoCapacity(Name, Name),
    /// A join waits for more predecessors than there are, or for none.
    BadJoin {
        /// The node.
        node: Name,
        /// What it waits for.
        wants: u32,
        /// Its predecessors.
        has: u32,
    },
    /// A timer can not have an inbox.
    HandlesNotAllowed(Name),
    /// A time is zero or longer than allowed.
    BadTime {
        /// The node, or the definition itself.
        node: Name,
        /// Which time, as written in the definition.
        field: TimeField,
        /// What it says.
        ms: u64,
    },
    /// A budget is zero, so that it could never be started.
    NoBudget(Name),
    /// A name is empty, too long or has control characters.
    BadName(Name),
    /// There is too much of something.
    OverLimit {
        /// Of what.
        limit: LimitName,
        /// How much is allowed.
        max: u64,
        /// How much there is.
        is: u64,
    },
}

/// A time setting of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum TimeField {
    LeaseMs,
    HeartbeatMs,
    AcceptMs,
    MaxBackoffMs,
    ReadyToStartMs,
    StartToFinishMs,
    ProgressMs,
    DelayMs,
    DeadlineMs,
    ClaimMs,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it has no nodes"),
            Self::DuplicateNode(name) => write!(f, "two nodes are named {name:?}"),
            Self::UnknownNode { at, name } => write!(f, "an edge of {at:?} names {name:?}, which is no node"),
            Self::SelfEdge(name) => write!(f, "{name:?} depends on itself"),
            Self::DuplicateEdge(from, to) => write!(f, "the edge {from:?} -> {to:?} is there twice"),
            Self::Cycle(names) => {
                f.write_str("a cycle: ")?;
                names.iter().try_for_each(|name| write!(f, "{name:?} -> "))?;
                write!(f, "{:?}", names.first().map_or("", |name| name))
            }
            Self::NoEntry => f.write_str("no node is without predecessors, so nothing could start"),
            Self::NoExit => f.write_str("no node is without successors, so nothing could end"),
            Self::Unreachable(name) => write!(f, "{name:?} can only be reached through a cycle"),
            Self::UnknownHandle { node, handle } => write!(f, "{node:?} has no handle {handle:?}"),
            Self::DuplicateHandle(node, handle) => write!(f, "{node:?} has two handles named {handle:?}"),
            Self::NoCapacity(node, handle) => write!(f, "handle {handle:?} of {node:?} has no capacity"),
            Self::BadJoin { node, wants, has } => {
                write!(f, "{node:?} waits for {wants} of its {has} predecessors")
            }
            Self::HandlesNotAllowed(node) => {
                write!(f, "{node:?} can not have handles: it is a timer")
            }
            Self::BadTime { node, field, ms } => {
                write!(f, "{field:?} of {node:?} is {ms} ms, which is zero or too long")
            }
            Self::NoBudget(node) => {
                write!(f, "{node:?} may not fail or be lost even once: budgets start at 1")
            }
            Self::BadName(name) => {
                write!(f, "{name:?} is no name: names are short, not empty and without control characters")
            }
            Self::OverLimit { limit, max, is } => write!(f, "{is} of {limit}, and {max} are allowed"),
        }
    }
}

/// A definition that was found to be sound, ready to be walked.
#[derive(Debug, Clone)]
pub struct Plan {
    order: Vec<NodeIx>,
    data_into: Adjacency,
    data_out_of: Adjacency,
    streams_into: Vec<Vec<Stream>>,
    streams_out_of: Vec<Vec<Stream>>,
    need: Vec<u32>,
    exits: Vec<NodeIx>,
}

/// A stream edge, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Who sends.
    pub from: NodeIx,
    /// Who receives.
    pub to: NodeIx,
    /// Through which handle.
    pub handle: HandleIx,
    /// Which of the handle's sources the sender is.
    pub source: u16,
}

impl Plan {
    /// An order in which every node comes after its predecessors.
    pub fn order(&self) -> &[NodeIx] {
        &self.order
    }

    /// The nodes whose output it waits for.
    pub fn predecessors(&self, node: NodeIx) -> &[NodeIx] {
        self.data_into.of(node)
    }

    /// The nodes that wait for its output.
    pub fn successors(&self, node: NodeIx) -> &[NodeIx] {
        self.data_out_of.of(node)
    }

    /// The streams it receives.
    pub fn streams_into(&self, node: NodeIx) -> &[Stream] {
        &self.streams_into[node.index()]
    }

    /// The streams it sends.
    pub fn streams_out_of(&self, node: NodeIx) -> &[Stream] {
        &self.streams_out_of[node.index()]
    }

    /// How many predecessors must complete.
    pub fn need(&self, node: NodeIx) -> u32 {
        self.need[node.index()]
    }

    /// The nodes whose outputs are the run's.
    pub fn exits(&self) -> &[NodeIx] {
        &self.exits
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.need.len()
    }

    /// Never: an empty definition is a problem.
    pub fn is_empty(&self) -> bool {
        self.need.is_empty()
    }
}

/// Neighbours of every node in one flat list.
#[derive(Debug, Clone)]
struct Adjacency {
    starts: Vec<u32>,
    list: Vec<NodeIx>,
}

impl Adjacency {
    /// Neighbours in the order of `pairs`, for `nodes` nodes.
    fn build(nodes: usize, pairs: impl Iterator<Item = (usize, usize)> + Clone) -> Self {
        let mut starts = vec![0u32; nodes + 1];
        for (at, _) in pairs.clone() {
            starts[at + 1] += 1;
        }
        for index in 0..nodes {
            starts[index + 1] += starts[index];
        }
        let mut fill: Vec<u32> = starts[..nodes].to_vec();
        let mut list = vec![NodeIx::default(); starts[nodes] as usize];
        for (at, other) in pairs {
            list[fill[at] as usize] = NodeIx::new(other as u32);
            fill[at] += 1;
        }
        Self { starts, list }
    }

    fn range(&self, node: usize) -> Range<usize> {
        self.starts[node] as usize..self.starts[node + 1] as usize
    }

    fn of(&self, node: NodeIx) -> &[NodeIx] {
        &self.list[self.range(node.index())]
    }
}

/// Checks a definition. Every problem is reported, not only the first.
pub fn check(definition: &Definition, limits: &Limits) -> Result<Plan, Vec<Problem>> {
    let mut problems = Vec::new();
    over_limit(&mut problems, limits, LimitName::Nodes, definition.nodes.len());
    over_limit(&mut problems, limits, LimitName::Edges, definition.edges.len());
    if !problems.is_empty() {
        return Err(problems);
    }
    if definition.nodes.is_empty() {
        problems.push(Problem::Empty);
        return Err(problems);
    }
    check_settings(definition, limits, &mut problems);
    let edges = resolve(definition, &mut problems);
    let plan = arrange(definition, &edges, &mut problems);
    if problems.is_empty() { Ok(plan) } else { Err(problems) }
}

fn over_limit(problems: &mut Vec<Problem>, limits: &Limits, limit: LimitName, is: usize) {
    let max = limits.of(limit);
    if is as u64 > max {
        problems.push(Problem::OverLimit { limit, max, is: is as u64 });
    }
}

/// True for a name that may be stored and shown.
pub fn is_name(name: &str, limits: &Limits) -> bool {
    !name.is_empty() && name.len() as u64 <= limits.name_bytes && !name.chars().any(char::is_control)
}

fn check_settings(definition: &Definition, limits: &Limits, problems: &mut Vec<Problem>) {
    if !is_name(&definition.name, limits) {
        problems.push(Problem::BadName(definition.name.clone()));
    }
    let mut time = |node: &Name, field: TimeField, ms: u64| {
        if ms == 0 || ms > limits.longest_ms {
            problems.push(Problem::BadTime { node: node.clone(), field, ms });
        }
    };
    if let Some(ms) = definition.settings.deadline_ms {
        time(&definition.name, TimeField::DeadlineMs, ms);
    }
    let whole_run = match &definition.settings.scope {
        Scope::Run(work) => Some((&definition.name, &**work)),
        Scope::Node => None,
    };
    for (name, work) in definition.nodes.iter().map(|node| (&node.name, &node.work)).chain(whole_run) {
        times_of(work, |field, ms| time(name, field, ms));
    }
    for node in &definition.nodes {
        if let NodeKind::Timer { delay_ms } = node.kind {
            time(&node.name, TimeField::DelayMs, delay_ms);
        }
        for handle in &node.handles {
            time(&node.name, TimeField::ClaimMs, handle.claim_ms);
        }
    }
    for node in &definition.nodes {
        if node.work.retry.max_failures == 0 || node.work.retry.max_losses == 0 {
            problems.push(Problem::NoBudget(node.name.clone()));
        }
        if !node.handles.is_empty() && node.kind != NodeKind::Work {
            problems.push(Problem::HandlesNotAllowed(node.name.clone()));
        }
        check_handles(node.name.clone(), &node.handles, limits, problems);
        let requirement = &node.work.requirement;
        let names = requirement.executors.iter().chain(&requirement.labels).chain(&requirement.relevant);
        for name in names.chain(requirement.capabilities.iter().map(|(name, _)| name)).chain([&node.name]) {
            if !is_name(name, limits) {
                problems.push(Problem::BadName(name.clone()));
            }
        }
    }
}

fn times_of(work: &WorkSpec, mut time: impl FnMut(TimeField, u64)) {
    time(TimeField::LeaseMs, work.lease_ms);
    time(TimeField::HeartbeatMs, work.heartbeat_ms);
    if let crate::definition::Assign::Push { accept_ms } = work.assign {
        time(TimeField::AcceptMs, accept_ms);
    }
    time(TimeField::MaxBackoffMs, work.retry.max_backoff_ms);
    let optional = [
        (TimeField::ReadyToStartMs, work.timeouts.ready_to_start_ms),
        (TimeField::StartToFinishMs, work.timeouts.start_to_finish_ms),
        (TimeField::ProgressMs, work.timeouts.progress_ms),
    ];
    for (field, ms) in optional {
        if let Some(ms) = ms {
            time(field, ms);
        }
    }
}

fn check_handles(
    node: Name,
    handles: &[crate::definition::HandleSpec],
    limits: &Limits,
    problems: &mut Vec<Problem>,
) {
    over_limit(problems, limits, LimitName::Handles, handles.len());
    let mut names = BTreeSet::new();
    for handle in handles {
        if !is_name(&handle.name, limits) {
            problems.push(Problem::BadName(handle.name.clone()));
        }
        if !names.insert(&handle.name) {
            problems.push(Problem::DuplicateHandle(node.clone(), handle.name.clone()));
        }
        if handle.capacity == 0 || handle.max_deliveries == 0 {
            problems.push(Problem::NoCapacity(node.clone(), handle.name.clone()));
        }
        over_limit(problems, limits, LimitName::Sources, handle.sources.len());
    }
}

/// An edge with its ends found.
struct Found {
    from: usize,
    to: usize,
    handle: Option<HandleIx>,
}

fn resolve(definition: &Definition, problems: &mut Vec<Problem>) -> Vec<Found> {
    let mut index = BTreeMap::new();
    for (at, node) in definition.nodes.iter().enumerate() {
        if index.insert(&*node.name, at).is_some() {
            problems.push(Problem::DuplicateNode(node.name.clone()));
        }
    }
    let mut found = Vec::with_capacity(definition.edges.len());
    for edge in &definition.edges {
        let (from, to) = (index.get(&*edge.from), index.get(&*edge.to));
        if from.is_none() {
            problems.push(Problem::UnknownNode { at: edge.to.clone(), name: edge.from.clone() });
        }
        if to.is_none() {
            problems.push(Problem::UnknownNode { at: edge.from.clone(), name: edge.to.clone() });
        }
        let (Some(from), Some(to)) = (from.copied(), to.copied()) else { continue };
        if from == to {
            problems.push(Problem::SelfEdge(edge.from.clone()));
            continue;
        }
        let handle = match &edge.kind {
            EdgeKind::Data => None,
            EdgeKind::Stream { handle } => {
                let handles = &definition.nodes[to].handles;
                let Some(at) = handles.iter().position(|known| known.name == *handle) else {
                    problems.push(Problem::UnknownHandle { node: edge.to.clone(), handle: handle.clone() });
                    continue;
                };
                Some(HandleIx::new(at as u16))
            }
        };
        found.push(Found { from, to, handle });
    }
    let mut sorted: Vec<_> = found.iter().map(|edge| (edge.from, edge.to, edge.handle)).collect();
    sorted.sort_unstable();
    for pair in sorted.windows(2) {
        if pair[0] == pair[1] {
            let name = |at: usize| definition.nodes[at].name.clone();
            problems.push(Problem::DuplicateEdge(name(pair[0].0), name(pair[0].1)));
        }
    }
    found
}

fn arrange(definition: &Definition, edges: &[Found], problems: &mut Vec<Problem>) -> Plan {
    let count = definition.nodes.len();
    let out_of = Adjacency::build(count, edges.iter().map(|edge| (edge.from, edge.to)));
    let into = Adjacency::build(count, edges.iter().map(|edge| (edge.to, edge.from)));
    let data = || edges.iter().filter(|edge| edge.handle.is_none());
    let data_out_of = Adjacency::build(count, data().map(|edge| (edge.from, edge.to)));
    let data_into = Adjacency::build(count, data().map(|edge| (edge.to, edge.from)));

    let (order, left) = peel(count, &out_of, &into);
    if (0..count).all(|node| !into.range(node).is_empty()) {
        problems.push(Problem::NoEntry);
    }
    if (0..count).all(|node| !out_of.range(node).is_empty()) {
        problems.push(Problem::NoExit);
    }
    report_cycles(definition, &out_of, &into, &left, problems);

    let mut need = Vec::with_capacity(count);
    for (at, node) in definition.nodes.iter().enumerate() {
        let has = data_into.range(at).len() as u32;
        let wants = match node.join {
            Join::All => has,
            Join::Any => has.min(1),
            Join::AtLeast(n) => n,
        };
        if wants > has || (wants == 0 && has > 0) {
            problems.push(Problem::BadJoin { node: node.name.clone(), wants, has });
        }
        need.push(wants);
    }
    let (streams_into, streams_out_of) = arrange_streams(definition, edges);
    let exits = (0..count).filter(|node| out_of.range(*node).is_empty());
    let exits = exits.map(|node| NodeIx::new(node as u32)).collect();
    Plan { order, data_into, data_out_of, streams_into, streams_out_of, need, exits }
}

fn arrange_streams(definition: &Definition, edges: &[Found]) -> (Vec<Vec<Stream>>, Vec<Vec<Stream>>) {
    let count = definition.nodes.len();
    let (mut into, mut out_of) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for edge in edges {
        let Some(handle) = edge.handle else { continue };
        let known: &mut Vec<Stream> = &mut into[edge.to];
        let outside = definition.nodes[edge.to].handles[usize::from(handle.get())].sources.len();
        let before = known.iter().filter(|stream| stream.handle == handle).count();
        let stream = Stream {
            from: NodeIx::new(edge.from as u32),
            to: NodeIx::new(edge.to as u32),
            handle,
            source: (outside + before) as u16,
        };
        known.push(stream);
        out_of[edge.from].push(stream);
    }
    (into, out_of)
}

/// Kahn's algorithm: an order of what can be ordered, and for every node whether it was left over.
fn peel(count: usize, out_of: &Adjacency, into: &Adjacency) -> (Vec<NodeIx>, Vec<bool>) {
    let mut missing: Vec<usize> = (0..count).map(|node| into.range(node).len()).collect();
    let mut ready: VecDeque<usize> = (0..count).filter(|node| missing[*node] == 0).collect();
    let mut order = Vec::with_capacity(count);
    let mut left = vec![true; count];
    while let Some(node) = ready.pop_front() {
        left[node] = false;
        order.push(NodeIx::new(node as u32));
        for next in &out_of.list[out_of.range(node)] {
            missing[next.index()] -= 1;
            if missing[next.index()] == 0 {
                ready.push_back(next.index());
            }
        }
    }
    (order, left)
}

/// Of what Kahn's algorithm left over: rings with their paths, and what merely hangs behind a ring.
fn report_cycles(
    definition: &Definition,
    out_of: &Adjacency,
    into: &Adjacency,
    left: &[bool],
    problems: &mut Vec<Problem>,
) {
    let count = left.len();
    let name = |node: usize| definition.nodes[node].name.clone();
    // Peeling from the other end leaves only nodes on a ring or between two rings.
    let (_, left_backwards) = peel(count, into, out_of);
    let on_ring = |node: usize| left[node] && left_backwards[node];
    for node in (0..count).filter(|node| left[*node] && !left_backwards[*node]) {
        problems.push(Problem::Unreachable(name(node)));
    }
    // A walk along the edges meets a node of its own path exactly where a ring closes.
    let (mut walked, mut place, mut reported) = (vec![false; count], vec![None; count], vec![false; count]);
    let mut found = 0;
    for start in (0..count).filter(|node| on_ring(*node)) {
        if walked[start] {
            continue;
        }
        let mut path: Vec<(usize, usize)> = Vec::new();
        let mut enter = Some(start);
        while let Some(node) = enter.take().or_else(|| path.last().map(|(node, _)| *node)) {
            if !walked[node] {
                walked[node] = true;
                place[node] = Some(path.len());
                path.push((node, out_of.range(node).start));
            }
            let (_, edge) = path.last_mut().expect("the node is on the path");
            if *edge == out_of.range(node).end {
                place[node] = None;
                path.pop();
                continue;
            }
            let next = out_of.list[*edge].index();
            *edge += 1;
            match place[next] {
                None if on_ring(next) && !walked[next] => enter = Some(next),
                Some(from)
                    if found < MOST_CYCLES && path[from..].iter().all(|(node, _)| !reported[*node]) =>
                {
                    found += 1;
                    path[from..].iter().for_each(|(node, _)| reported[*node] = true);
                    problems.push(Problem::Cycle(path[from..].iter().map(|(node, _)| name(*node)).collect()));
                }
                _ => {}
            }
        }
    }
}

/// Rings reported at the most; each has nodes of its own.
const MOST_CYCLES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{HandleSpec, NodeSpec};
    use alloc::format;
    use alloc::string::{String, ToString};

    fn problems(nodes: &[&str], edges: &[(&str, &str)]) -> Vec<String> {
        let nodes = nodes.iter().map(|name| NodeSpec::new(name)).collect();
        let edges = edges.iter().map(|(from, to)| crate::definition::Edge::data(from, to)).collect();
        match check(&Definition::new("d", nodes, edges), &Limits::default()) {
            Ok(_) => Vec::new(),
            Err(problems) => problems.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn all_problems_are_reported_at_once_with_names() {
        let found = problems(
            &["a", "a", "b", "c", "d"],
            &[("b", "c"), ("c", "b"), ("c", "d"), ("a", "a"), ("a", "x"), ("b", "c")],
        );
        for part in [
            "named \"a\"",
            "\"x\"",
            "\"a\" depends on itself",
            "twice",
            "\"b\" -> \"c\" -> \"b\"",
            "\"d\" can only",
        ] {
            assert!(found.iter().any(|text| text.contains(part)), "{part} not in {found:?}");
        }
    }

    #[test]
    fn a_ring_has_no_entry_and_no_exit() {
        let found = problems(&["a", "b"], &[("a", "b"), ("b", "a")]);
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn two_rings_are_two_problems() {
        let edges = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "c")];
        let found = problems(&["a", "b", "c", "d"], &edges);
        assert_eq!(found.iter().filter(|text| text.contains("a cycle")).count(), 2, "{found:?}");
    }

    #[test]
    fn the_order_respects_every_edge_and_streams_know_their_source() {
        let mut sink = NodeSpec::new("sink");
        sink.handles.push(HandleSpec { sources: vec!["outside".into()], ..HandleSpec::new("in") });
        let nodes = vec![sink, NodeSpec::new("a"), NodeSpec::new("b")];
        let edges = vec![
            crate::definition::Edge::stream("a", "sink", "in"),
            crate::definition::Edge::stream("b", "sink", "in"),
        ];
        let plan = check(&Definition::new("d", nodes, edges), &Limits::default()).unwrap();
        assert_eq!(plan.order().last(), Some(&NodeIx::new(0)));
        assert_eq!(plan.streams_into(NodeIx::new(0)).iter().map(|s| s.source).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(plan.exits(), [NodeIx::new(0)]);
    }

    #[test]
    fn a_graph_over_its_limit_is_refused_without_being_walked() {
        let limits = Limits { edges: 1, ..Limits::default() };
        let nodes = ["a", "b", "c"].map(NodeSpec::new).to_vec();
        let edges = vec![crate::definition::Edge::data("a", "b"), crate::definition::Edge::data("b", "c")];
        let found = check(&Definition::new("d", nodes, edges), &limits).unwrap_err();
        assert_eq!(format!("{}", found[0]), "2 of edges, and 1 are allowed");
    }
}
