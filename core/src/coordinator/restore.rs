//! Rows in: what a restored machine knows, and what is paged in because a command names it or its time comes.

use super::Coordinator;
use super::apply::{Applier, derive_joins};
use super::row::{InboxRow, MessageRow, NodeRow, Row, RunRow, Work};
use super::state::{DefinitionEntry, Inbox, Node, Nodes, Run, State, Worker, WorkerKey};
use crate::id::{DefinitionId, Epoch, NodeIx, RunId, WorkerId};
use crate::lifecycle::{Lifecycle, Phase};
use crate::limits::Limits;
use crate::time::Time;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

/// Rows that do not belong together. The store is damaged, or rows of something were left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the sentences are in Display")]
pub enum BadRows {
    NoMeta,
    SeveralMetas,
    DefinitionMissing { id: DefinitionId },
    DefinitionBad { id: DefinitionId },
    UnknownDefinition { run: RunId },
    UnknownWorker { run: RunId, worker: WorkerId },
    NodesMissing { run: RunId },
    InboxMissing { run: RunId },
    MessageMissing { run: RunId },
    RunTwice { run: RunId },
    NumberTooHigh { run: RunId },
    OtherPartition { partition: u16 },
}

impl fmt::Display for BadRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMeta => f.write_str("the partition's own row is missing"),
            Self::SeveralMetas => f.write_str("there are several partitions' own rows"),
            Self::DefinitionMissing { id } => write!(f, "definition {id} is missing"),
            Self::DefinitionBad { id } => write!(f, "definition {id} is no sound graph"),
            Self::UnknownDefinition { run } => write!(f, "run {run} is of a definition that is not there"),
            Self::UnknownWorker { run, worker } => {
                write!(f, "run {run} is held by worker {worker}, which is not there")
            }
            Self::NodesMissing { run } => {
                write!(f, "run {run} does not have the nodes of its definition, or half of one is missing")
            }
            Self::InboxMissing { run } => write!(f, "run {run} does not have the inboxes of its definition"),
            Self::MessageMissing { run } => write!(f, "run {run} has a gap in an inbox"),
            Self::RunTwice { run } => write!(f, "run {run} is there twice"),
            Self::NumberTooHigh { run } => write!(f, "run {run} is newer than its partition's own row"),
            Self::OtherPartition { partition } => write!(f, "the rows are those of partition {partition}"),
        }
    }
}

impl core::error::Error for BadRows {}

/// Rows of runs, sorted by what they belong to.
#[derive(Default)]
struct RunRows {
    runs: Vec<RunRow>,
    nodes: BTreeMap<u64, Vec<NodeRow>>,
    inboxes: BTreeMap<u64, Vec<InboxRow>>,
    messages: BTreeMap<u64, Vec<MessageRow>>,
}

impl RunRows {
    /// Takes a row in if it is a run's; gives it back otherwise.
    fn add(&mut self, row: Row) -> Option<Row> {
        match row {
            Row::Run(row) => self.runs.push(row),
            Row::Node(row) => self.nodes.entry(row.run.number()).or_default().push(row),
            Row::Inbox(row) => self.inboxes.entry(row.run.number()).or_default().push(row),
            Row::Message(row) => self.messages.entry(row.at.run.number()).or_default().push(row),
            Row::History(_) | Row::Late(_) => {}
            other => return Some(other),
        }
        None
    }
}

/// A machine that knows what these rows say. Rows may come in any order; in the order of [`Coordinator::rows`], what is
/// most of them goes straight into memory.
pub(super) fn restore(limits: Limits, rows: impl IntoIterator<Item = Row>) -> Result<Coordinator, BadRows> {
    let mut core = Coordinator::new(0, limits);
    let mut applier = Applier { state: &mut core.state, placement: &mut core.placement };
    let (mut meta, mut aliases, mut owed) = (None, Vec::new(), Vec::new());
    let (mut definitions, mut of_runs, mut granted) = (BTreeMap::new(), RunRows::default(), Vec::new());
    for row in rows {
        let other = match row {
            Row::Run(row) if meta.is_some() && is_simple(applier.state, &row) => {
                install_one(&mut applier, row, &mut of_runs, &mut granted)?;
                continue;
            }
            other => of_runs.add(other),
        };
        match other {
            Some(Row::Meta(row)) if meta.as_ref().is_some_and(|known| *known != row) => {
                return Err(BadRows::SeveralMetas);
            }
            Some(Row::Meta(row)) => {
                applier.state.meta = row.clone();
                applier.state.clock.now = row.time;
                meta = Some(row);
            }
            Some(Row::Definition(row)) => drop(definitions.insert(row.id, row)),
            Some(Row::Alias(row)) => aliases.push(row),
            Some(Row::Worker(row)) => {
                let mut worker = Worker::new(*row, applier.state.clock.now);
                applier.placement.enter(&mut worker);
                applier.state.workers.insert(worker);
            }
            Some(Row::Outbox(row)) => owed.push(row),
            _ => {}
        }
        while let Some(row) = definitions.remove(&DefinitionId::new(applier.state.definitions.len() as u32)) {
            let unbounded = Limits { nodes: u64::MAX, ..applier.state.limits.clone() };
            if crate::graph::check(&row.definition, &unbounded).is_err() {
                return Err(BadRows::DefinitionBad { id: row.id });
            }
            applier.definition_added(&row);
        }
    }
    let meta = meta.ok_or(BadRows::NoMeta)?;
    let known = DefinitionId::new(applier.state.definitions.len() as u32);
    if known < meta.next_definition || !definitions.is_empty() {
        return Err(BadRows::DefinitionMissing { id: known });
    }
    aliases.into_iter().for_each(|row| applier.alias_set(row));
    for row in owed.into_iter().filter(|row: &super::row::OutboxRow| row.refused_at.is_none()) {
        applier.outbox_added(row);
    }
    applier.state.meta = meta;
    install_all(&mut applier, of_runs, &mut granted)?;
    link_all(&mut applier, granted);
    for slot in applier.state.workers.in_order() {
        applier.relist(slot);
    }
    core.state.touched = Default::default();
    core.placement.forget_news();
    Ok(core)
}

/// True if a run's own row is all there is of it, and what it refers to is here.
fn is_simple(state: &State, row: &RunRow) -> bool {
    let definition = state.definitions.get(row.head.definition.get() as usize);
    let has_inbox =
        |entry: &DefinitionEntry| entry.row.definition.nodes.iter().any(|node| !node.handles.is_empty());
    let holder = row.node.as_ref().and_then(|work| work.holder());
    row.node.is_some()
        && definition.is_some_and(|entry| !has_inbox(entry))
        && holder.is_none_or(|worker| state.workers.of(row.head.tenant, worker).is_some())
}

/// A grant found in the rows of a run: its epoch, whose it is, and of what.
type Granted = (Epoch, u32, RunId, NodeIx);

/// Links grants in the order of their epochs, so that every lane is in that order again.
fn link_all(applier: &mut Applier<'_>, mut granted: Vec<Granted>) {
    granted.sort_unstable();
    for (epoch, worker, run, node) in granted {
        let assignment = applier.state.the_run(run).work(node).assignment.expect("a grant has a holder");
        if assignment.claimed_at.is_never() {
            applier.state.workers.at_mut(worker).offered.insert(epoch, (run, node));
        } else {
            applier.link_lease(run, node, epoch, worker, &assignment);
        }
        applier.count_grant(run, node, worker, true);
    }
}

/// Takes runs in, without leases; these are listed in `granted`.
fn install_all(
    applier: &mut Applier<'_>,
    mut rows: RunRows,
    granted: &mut Vec<Granted>,
) -> Result<(), BadRows> {
    rows.runs.sort_unstable_by_key(|row| row.head.id);
    for row in core::mem::take(&mut rows.runs) {
        install_one(applier, row, &mut rows, granted)?;
    }
    Ok(())
}

fn install_one(
    applier: &mut Applier<'_>,
    row: RunRow,
    rows: &mut RunRows,
    granted: &mut Vec<Granted>,
) -> Result<(), BadRows> {
    let (id, number) = (row.head.id, row.head.id.number());
    if applier.state.runs.slot(number).is_some() {
        return Err(BadRows::RunTwice { run: id });
    }
    if number >= applier.state.meta.next_run {
        return Err(BadRows::NumberTooHigh { run: id });
    }
    let run = assemble(applier.state, row, rows)?;
    for node in run.work_ixs().filter(|node| run.has_grant(*node)) {
        let work = run.work(node);
        let assignment = work.assignment.ok_or(BadRows::NodesMissing { run: id })?;
        let key = WorkerKey { tenant: run.head.tenant, worker: assignment.worker };
        let worker = applier.state.workers.slot(key);
        let worker = worker.ok_or(BadRows::UnknownWorker { run: id, worker: assignment.worker })?;
        granted.push((work.epoch, worker, id, node));
    }
    install(applier, run);
    Ok(())
}

/// A run in memory, from its rows.
fn assemble(state: &State, row: RunRow, rows: &mut RunRows) -> Result<Run, BadRows> {
    let RunRow { head, whole, node } = row;
    let (id, number) = (head.id, head.id.number());
    if head.definition.get() as usize >= state.definitions.len() {
        return Err(BadRows::UnknownDefinition { run: id });
    }
    let definition = state.definition(head.definition);
    if definition.row.tenant != head.tenant || definition.is_held_whole() != whole.is_some() {
        return Err(BadRows::UnknownDefinition { run: id });
    }
    let fresh = |work: Work| Node::new(work, 0);
    let nodes = match node {
        Some(work) => Nodes::One(fresh(work)),
        None => {
            let mut nodes = rows.nodes.remove(&number).unwrap_or_default();
            nodes.sort_unstable_by_key(|row| row.node);
            if nodes.iter().enumerate().any(|(at, row)| row.node.index() != at) {
                return Err(BadRows::NodesMissing { run: id });
            }
            Nodes::Many(nodes.into_iter().map(|row| fresh(row.work)).collect())
        }
    };
    let is_sound = |work: &Work| match work.phase {
        Phase::Suspended => work.suspension().is_some(),
        // Under the lease of the whole run, a node has no holder of its own.
        phase => !phase.is_held() || work.assignment.is_some() || whole.is_some(),
    };
    if !nodes.as_slice().iter().all(|node| is_sound(&node.work)) {
        return Err(BadRows::NodesMissing { run: id });
    }
    if nodes.as_slice().len() != definition.plan.len() || matches!(&nodes, Nodes::Many(all) if all.len() == 1)
    {
        return Err(BadRows::NodesMissing { run: id });
    }
    let inboxes = assemble_inboxes(state, &head, rows)?;
    let whole = whole.map(|work| Box::new(fresh(*work)));
    let (open, active, suspended, held) = (0, 0, 0, 0);
    let (stepped, armed, touched) = (0, Time::NEVER, false);
    let mut run = Run { head, whole, nodes, inboxes, open, active, suspended, held, stepped, armed, touched };
    for node in run.node_ixs() {
        let phase = run.work(node).phase;
        run.open += u32::from(!phase.is_terminal());
        run.active += u32::from(phase.is_active());
        run.suspended += u32::from(phase == Phase::Suspended);
    }
    run.held = run.work_ixs().filter(|node| run.has_grant(*node)).count() as u32;
    derive_joins(&mut run, definition);
    Ok(run)
}

fn assemble_inboxes(
    state: &State,
    head: &super::row::RunHead,
    rows: &mut RunRows,
) -> Result<Box<[Inbox]>, BadRows> {
    let (id, number) = (head.id, head.id.number());
    let handles = &state.definition(head.definition).row.definition.nodes;
    let expected: usize = handles.iter().map(|node| node.handles.len()).sum();
    if expected == 0 {
        return Ok(Box::default());
    }
    let mut inboxes: Vec<_> =
        rows.inboxes.remove(&number).unwrap_or_default().into_iter().map(Inbox::new).collect();
    inboxes.sort_unstable_by_key(|inbox| (inbox.row.node, inbox.row.handle));
    if inboxes.len() != expected {
        return Err(BadRows::InboxMissing { run: id });
    }
    let mut messages = rows.messages.remove(&number).unwrap_or_default();
    messages.sort_unstable_by_key(|message| message.at);
    for message in messages {
        let at = (message.at.node, message.at.handle);
        let place = inboxes.binary_search_by_key(&at, |inbox| (inbox.row.node, inbox.row.handle));
        inboxes[place.map_err(|_| BadRows::InboxMissing { run: id })?].add(message);
    }
    let is_gapless = |inbox: &Inbox| {
        let seqs = inbox.messages.iter().map(|message| message.at.seq.get());
        seqs.eq(inbox.row.settled.get() + 1..=inbox.row.last.get())
    };
    if inboxes.iter().all(is_gapless) { Ok(inboxes.into()) } else { Err(BadRows::MessageMissing { run: id }) }
}

/// Puts a run into memory and its ready work into the queues.
fn install(applier: &mut Applier<'_>, run: Run) {
    let (id, number) = (run.head.id, run.head.id.number());
    if let Some(key) = run.head.key {
        applier.state.keys.insert(run.head.tenant, key.key, number);
    }
    if !run.is_ended() {
        applier.live_run_count(run.head.tenant, 1);
    }
    let work = run.work_ixs();
    applier.state.runs.insert(number, run);
    for node in work {
        applier.enter_queue(id, node);
    }
}

/// Takes in rows of runs that were not resident, and says which came. A run whose rows do not belong together is left out,
/// as if the store did not have it.
pub(super) fn load(core: &mut Coordinator, rows: Vec<Row>) -> Vec<RunId> {
    let mut of_runs = RunRows::default();
    for row in rows {
        of_runs.add(row);
    }
    let mut applier = Applier { state: &mut core.state, placement: &mut core.placement };
    let mut runs = core::mem::take(&mut of_runs.runs);
    runs.sort_unstable_by_key(|row| row.head.id);
    let (mut granted, mut came) = (Vec::new(), Vec::new());
    for row in runs {
        let id = row.head.id;
        if install_one(&mut applier, row, &mut of_runs, &mut granted).is_ok() {
            came.push(id);
        }
    }
    link_all(&mut applier, granted);
    for id in &came {
        arm(&mut applier, *id);
        applier.state.touched.leaving.push(id.number());
    }
    came
}

/// Arms everything that a run waits for.
pub(super) fn arm(applier: &mut Applier<'_>, id: RunId) {
    let run = applier.state.the_run(id);
    let work = run.work_ixs();
    let inboxes: Vec<_> = run.inboxes.iter().map(|inbox| (inbox.row.node, inbox.row.handle)).collect();
    applier.arm_run(id);
    work.for_each(|node| applier.arm_node(id, node));
    inboxes.into_iter().for_each(|(node, handle)| applier.arm_inbox(id, node, handle));
}
