//! The durable truth: one row per entity, written once per batch however often it changed.
//!
//! The same structs are what the machine holds in memory, so that writing a row is a copy and nothing can be
//! forgotten between the two. What is volatile by design is not here.

use super::command::{Concurrency, Failure, MessageKey, SubmitKey, Suspension, WorkerSpec};
use super::effect::Outgoing;
use super::event::{By, EndCause, Outcome, Return, StopReason, WakeCause};
use super::state::WorkerKey;
use crate::definition::{Definition, Name};
use crate::id::*;
use crate::lifecycle::{Phase, RunStatus};
use crate::time::Time;
use crate::value::Value;
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A change to the store; a batch of them is committed as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "nearly all changes are runs, and a box for each costs more")]
pub enum Change {
    /// Write this row, in place of the one with its key.
    Put(Row),
    /// Remove the message of this key.
    DropMessage(MessageAt),
    /// Remove what is owed no longer.
    DropOutbox(OutboxId),
    /// Remove a worker.
    DropWorker(WorkerKey),
    /// Remove every ended run, with all that is its, and every refused debt, last used at or before this.
    Forget {
        /// In machine time; compared with [`RunHead::kept_from`] and [`OutboxRow::refused_at`].
        before: Time,
    },
}

/// A row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "nearly all rows are runs, and a box for each costs more")]
pub enum Row {
    /// The partition's own.
    Meta(MetaRow),
    /// A definition's version.
    Definition(Box<DefinitionRow>),
    /// What an alias points at.
    Alias(AliasRow),
    /// A worker.
    Worker(Box<WorkerRow>),
    /// A run; with one node, its node too.
    Run(RunRow),
    /// A node of a run with several.
    Node(NodeRow),
    /// An inbox.
    Inbox(InboxRow),
    /// A message.
    Message(MessageRow),
    /// An assignment that ended without an outcome. Append-only, never resident.
    History(HistoryRow),
    /// A result that came too late. Append-only, never resident.
    Late(LateRow),
    /// Something owed to the outside.
    Outbox(OutboxRow),
}

/// What makes a row unique: a store keeps the last one put under each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "one variant per kind of row")]
pub enum RowKey {
    Meta,
    Definition(DefinitionId),
    Alias(TenantId, Name, Name),
    Worker(WorkerKey),
    Run(RunId),
    Node(RunId, NodeIx),
    Inbox(RunId, NodeIx, HandleIx),
    Message(MessageAt),
    History(RunId, NodeIx, Epoch),
    Late(RunId, NodeIx, u32),
    Outbox(OutboxId),
}

impl Row {
    /// What makes it unique.
    pub fn key(&self) -> RowKey {
        match self {
            Self::Meta(_) => RowKey::Meta,
            Self::Definition(row) => RowKey::Definition(row.id),
            Self::Alias(row) => RowKey::Alias(row.tenant, row.definition.clone(), row.alias.clone()),
            Self::Worker(row) => RowKey::Worker(row.key),
            Self::Run(row) => RowKey::Run(row.head.id),
            Self::Node(row) => RowKey::Node(row.run, row.node),
            Self::Inbox(row) => RowKey::Inbox(row.run, row.node, row.handle),
            Self::Message(row) => RowKey::Message(row.at),
            Self::History(row) => RowKey::History(row.run, row.node, row.epoch),
            Self::Late(row) => RowKey::Late(row.late.run, row.late.node, row.number),
            Self::Outbox(row) => RowKey::Outbox(row.id),
        }
    }

    /// The run it belongs to, if it belongs to one.
    pub fn run(&self) -> Option<RunId> {
        match self {
            Self::Run(row) => Some(row.head.id),
            Self::Node(row) => Some(row.run),
            Self::Inbox(row) => Some(row.run),
            Self::Message(row) => Some(row.at.run),
            Self::History(row) => Some(row.run),
            Self::Late(row) => Some(row.late.run),
            Self::Meta(_) | Self::Definition(_) | Self::Alias(_) | Self::Worker(_) | Self::Outbox(_) => None,
        }
    }
}

/// What a partition counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MetaRow {
    /// Which partition.
    pub partition: u16,
    /// Number of the next run.
    pub next_run: u64,
    /// Number of the next grant (S7).
    pub next_epoch: Epoch,
    /// Number of the next definition.
    pub next_definition: DefinitionId,
    /// Number of the next thing owed.
    pub next_outbox: OutboxId,
    /// Number of the last step.
    pub step: u64,
    /// Machine time of the last change: the base after a restart.
    pub time: Time,
    /// What the wall clock showed then.
    pub wall: u64,
    /// When retention was last looked at.
    pub swept: Time,
    /// Suspended runs that wake until then are in memory; the others are not.
    pub paged_until: Time,
    /// The latest mint time of any key that was used.
    pub newest_key: Option<Time>,
}

/// A definition's version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DefinitionRow {
    /// Its number.
    pub id: DefinitionId,
    /// Whose.
    pub tenant: TenantId,
    /// Its number under its name.
    pub version: DefinitionVersion,
    /// Hash of its canonical bytes; runs are pinned to it (S21).
    pub hash: ContentHash,
    /// What people wrote.
    pub definition: Definition,
}

/// What an alias points at.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AliasRow {
    /// Whose.
    pub tenant: TenantId,
    /// The definition's name.
    pub definition: Name,
    /// The alias.
    pub alias: Name,
    /// What it points at.
    pub id: DefinitionId,
}

/// A worker. How fresh its session is and how busy it last was is not in here.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WorkerRow {
    /// Which.
    pub key: WorkerKey,
    /// Its life number (S35).
    pub incarnation: Incarnation,
    /// Its session; raised whenever leases lapse.
    pub session: Session,
    /// Leases of earlier sessions are dead: they are of a former life.
    pub fenced: Session,
    /// Leases of this length and of earlier sessions are dead: they were not renewed in time (S9).
    pub lapsed: Vec<(u64, Session)>,
    /// What it can do.
    pub spec: WorkerSpec,
    /// Gets nothing new.
    pub draining: bool,
    /// When it registered.
    pub registered_at: Time,
}

/// A run with all that is kept of it; the node is in here if it is the only one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunRow {
    /// The run.
    pub head: RunHead,
    /// The run as one piece of work, under `scope: run`.
    pub whole: Option<Box<Work>>,
    /// Its only node.
    pub node: Option<Work>,
}

/// What is kept of a run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunHead {
    /// Which.
    pub id: RunId,
    /// Whose.
    pub tenant: TenantId,
    /// Of what.
    pub definition: DefinitionId,
    /// Which time it is opened.
    pub series: Series,
    /// How often it changed (S3).
    pub version: Version,
    /// Where it stands.
    pub status: RunStatus,
    /// How it ends, once that is decided, and why.
    pub ending: Option<(Outcome, EndCause)>,
    /// Higher goes first.
    pub priority: u8,
    /// Tell the outside when it ended.
    pub notify: bool,
    /// When it was opened.
    pub created_at: Time,
    /// What the wall clock showed then.
    pub created_wall: u64,
    /// When it ended; until then, never.
    pub ended_at: Time,
    /// When it fails for having taken too long.
    pub deadline: Time,
    /// What it started from.
    pub input: Value,
    /// Under which key it was submitted.
    pub key: Option<SubmitKey>,
    /// What most runs do not have.
    pub rare: Option<Box<RunRare>>,
}

/// What most runs do not have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct RunRare {
    /// For finding it again.
    pub labels: Vec<(Name, Name)>,
    /// Limits how many pieces of work under one key are held at once.
    pub concurrency: Option<Concurrency>,
    /// A time limit of its own, in place of the definition's.
    pub deadline_ms: Option<u64>,
    /// Who created it.
    pub creator: Option<WorkerId>,
    /// The grant its creator took in the same step.
    pub created_held: Option<(NodeIx, Epoch)>,
    /// A node whose failure counts, while other branches finish.
    pub doomed: Option<NodeIx>,
    /// While it is suspended: when it wakes by itself at the latest, if ever.
    pub wake_at: Option<Time>,
}

/// A node of a run with several.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NodeRow {
    /// The run.
    pub run: RunId,
    /// Which node.
    pub node: NodeIx,
    /// What is kept of it.
    pub work: Work,
}

/// What is kept of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Work {
    /// Where it stands.
    pub phase: Phase,
    /// Its holder was told to stop.
    pub stop: Option<StopReason>,
    /// Number of the last start in this series.
    pub attempt: Attempt,
    /// Failures in this series.
    pub failures: u32,
    /// Lost holders in this series.
    pub losses: u32,
    /// Offers in this round.
    pub offers: u32,
    /// Fencing number of the last grant.
    pub epoch: Epoch,
    /// When it entered its phase.
    pub since: Time,
    /// When it last became ready; its place in the queue.
    pub ready_at: Time,
    /// When it last started.
    pub started_at: Time,
    /// Until when it waits, in back-off or suspended.
    pub until: Time,
    /// What came of it.
    pub output: Value,
    /// The last assignment; while the phase is held, the current one.
    pub assignment: Option<Assignment>,
    /// What most work does not have.
    pub rare: Option<Box<WorkRare>>,
}

/// Who has, or last had, a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assignment {
    /// Who.
    pub worker: WorkerId,
    /// In which life.
    pub incarnation: Incarnation,
    /// In which session it was claimed.
    pub session: Session,
    /// How long its lease lives without a sign of its worker.
    pub lease_ms: u64,
    /// The poll that got it.
    pub poll: PollId,
    /// When it was assigned.
    pub assigned_at: Time,
    /// When it was claimed; never, while it is only offered.
    pub claimed_at: Time,
    /// Who decided it.
    pub by: By,
}

/// What most work does not have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct WorkRare {
    /// The last failure.
    pub failure: Option<Failure>,
    /// What a checkpoint or suspension saved.
    pub state: Option<Value>,
    /// Where it said it is: step x of y.
    pub progress: Option<(u64, u64)>,
    /// What it waits for while suspended.
    pub suspension: Option<Suspension>,
    /// What woke it last.
    pub woken: Option<WakeCause>,
    /// Workers that are not asked again in this round.
    pub excluded: Vec<WorkerId>,
    /// The predecessors that satisfied its join, if not all had to.
    pub joined: Vec<NodeIx>,
    /// The last report that ended a grant without completing the work.
    pub report: Option<ReportMark>,
    /// Late results kept.
    pub late: u32,
}

/// Enough of a report to know a repeat of it (S32).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReportMark {
    /// Under which epoch.
    pub epoch: Epoch,
    /// Of which attempt.
    pub attempt: Attempt,
    /// A fixed digest of what it said.
    pub digest: u64,
}

/// An inbox: one handle of one node of one run. Messages up to `settled` are done with; those up to
/// `claimed_through` are the holder's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InboxRow {
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeIx,
    /// The handle.
    pub handle: HandleIx,
    /// The last seq given (S23).
    pub last: Seq,
    /// All up to here are consumed or dead (S26).
    pub settled: Seq,
    /// All up to here, and not settled, are claimed.
    pub claimed_through: Seq,
    /// Under which epoch.
    pub claim_epoch: Epoch,
    /// How often the first unsettled message was claimed and given back with blame.
    pub deliveries: u32,
    /// What came from each declared source, and how it ended.
    pub sources: Vec<SourceRow>,
    /// Nothing more is taken (S27).
    pub closed: bool,
    /// Outside events are sent here.
    pub registered: bool,
    /// Cursor of the last input stored.
    pub cursor_stored: Option<u64>,
    /// Cursor of the last input settled (S29).
    pub cursor_settled: Option<u64>,
}

/// A declared source of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct SourceRow {
    /// Its messages up to this one are stored.
    pub stored: u64,
    /// How many it sent in all, once it said so.
    pub ended: Option<u64>,
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MessageAt {
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeIx,
    /// The handle.
    pub handle: HandleIx,
    /// The place.
    pub seq: Seq,
}

/// A message. Written when it comes, dropped when it is consumed, or kept if it has an id of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MessageRow {
    /// Where it is.
    pub at: MessageAt,
    /// What makes it unique.
    pub id: MessageKey,
    /// What it says.
    pub value: Value,
    /// Position in the outside stream.
    pub cursor: Option<u64>,
    /// Put aside after too many attempts.
    pub dead: bool,
}

/// An assignment that ended without an outcome (S43).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HistoryRow {
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeIx,
    /// Its fencing number.
    pub epoch: Epoch,
    /// Who, and since when.
    pub assignment: Assignment,
    /// When it ended.
    pub ended_at: Time,
    /// How.
    pub how: HowEnded,
}

/// How an assignment ended without completing the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum HowEnded {
    /// The work is ready again.
    Returned(Return),
    /// The attempt failed.
    Failed(Failure),
    /// The work suspended itself.
    Suspended,
    /// The work was cancelled or not needed any more.
    Stopped,
}

/// A result that came too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LateRow {
    /// What it said.
    pub late: super::event::LateResult,
    /// Which of the node's late results.
    pub number: u32,
    /// When it came.
    pub at: Time,
}

/// Something owed to the outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OutboxRow {
    /// Its number.
    pub id: OutboxId,
    /// Whose.
    pub tenant: TenantId,
    /// What.
    pub outgoing: Outgoing,
    /// When the other side refused it for good: a dead letter.
    pub refused_at: Option<Time>,
}

impl Work {
    /// Work that waits, at this time.
    pub(crate) fn new(now: Time) -> Self {
        Self {
            phase: Phase::Waiting,
            stop: None,
            attempt: Attempt::new(0),
            failures: 0,
            losses: 0,
            offers: 0,
            epoch: Epoch::new(0),
            since: now,
            ready_at: Time::NEVER,
            started_at: Time::NEVER,
            until: Time::NEVER,
            output: Value::EMPTY,
            assignment: None,
            rare: None,
        }
    }

    pub(crate) fn rare(&mut self) -> &mut WorkRare {
        self.rare.get_or_insert_default()
    }

    /// What a checkpoint or suspension saved.
    pub fn state(&self) -> Option<Value> {
        self.rare.as_ref().and_then(|rare| rare.state)
    }

    /// The last failure.
    pub fn failure(&self) -> Option<Failure> {
        self.rare.as_ref().and_then(|rare| rare.failure)
    }

    pub(crate) fn suspension(&self) -> Option<&Suspension> {
        self.rare.as_ref().and_then(|rare| rare.suspension.as_ref())
    }

    pub(crate) fn excludes(&self, worker: WorkerId) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.excluded.contains(&worker))
    }

    /// True if a worker took it, and was not only offered it.
    pub fn is_claimed(&self) -> bool {
        self.phase.is_held() && self.assignment.is_some_and(|assignment| !assignment.claimed_at.is_never())
    }

    /// The worker that holds it, or was offered it, now.
    pub fn holder(&self) -> Option<WorkerId> {
        self.assignment.filter(|_| self.phase.is_held()).map(|assignment| assignment.worker)
    }
}

impl RunHead {
    pub(crate) fn concurrency(&self) -> Option<Concurrency> {
        self.rare.as_ref().and_then(|rare| rare.concurrency)
    }

    /// While it is suspended: when it wakes by itself at the latest.
    pub fn wake_at(&self) -> Time {
        self.rare.as_ref().and_then(|rare| rare.wake_at).unwrap_or(Time::NEVER)
    }

    pub(crate) fn doomed(&self) -> Option<NodeIx> {
        self.rare.as_ref().and_then(|rare| rare.doomed)
    }

    pub(crate) fn rare_mut(&mut self) -> &mut RunRare {
        self.rare.get_or_insert_default()
    }

    /// Labels it was submitted with.
    pub fn labels(&self) -> &[(Name, Name)] {
        self.rare.as_ref().map_or(&[], |rare| &rare.labels)
    }

    /// From when on the time counts that an ended run is kept, and with it its key.
    pub fn kept_from(&self) -> Time {
        self.ended_at.max(self.key.map_or(Time::ZERO, |key| key.minted_at))
    }
}

impl InboxRow {
    pub(crate) fn new(run: RunId, node: NodeIx, handle: HandleIx, sources: usize) -> Self {
        Self {
            run,
            node,
            handle,
            last: Seq::new(0),
            settled: Seq::new(0),
            claimed_through: Seq::new(0),
            claim_epoch: Epoch::new(0),
            deliveries: 0,
            sources: alloc::vec![SourceRow::default(); sources],
            closed: false,
            registered: false,
            cursor_stored: None,
            cursor_settled: None,
        }
    }

    /// True if messages wait that nobody has claimed.
    pub fn has_pending(&self) -> bool {
        self.last > self.claimed_through.max(self.settled)
    }

    /// True if some message is claimed.
    pub fn has_claimed(&self) -> bool {
        self.claimed_through > self.settled
    }

    /// Messages that are not settled.
    pub fn unsettled(&self) -> u64 {
        self.last.get() - self.settled.get()
    }

    /// True if every declared source said that it ended. A handle without sources never ends.
    pub fn has_ended(&self) -> bool {
        !self.sources.is_empty() && self.sources.iter().all(|source| source.ended == Some(source.stored))
    }
}
