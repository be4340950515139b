//! What happened. Nothing else changes state, so this is the complete audit; nothing reads it to decide.
//!
//! Names follow the seeds' fourteen audit events where the meaning is the same.

use super::command::{Concurrency, Failure, MessageKey, SubmitKey, Suspension, WorkerSpec};
use super::effect::Outgoing;
use super::state::WorkerKey;
use crate::definition::{Definition, Name};
use crate::id::*;
use crate::time::Time;
use crate::value::Value;
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// An event with the time it happened at and the step it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// Machine time.
    pub at: Time,
    /// Wall time, for people.
    pub wall: u64,
    /// Number of the step; events of one step stand or fall together.
    pub step: u64,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(
    missing_docs,
    reason = "the variants say what happened, the fields to what; see the struct-level notes"
)]
pub enum Event {
    DefinitionAdded(Box<DefinitionAdded>),
    AliasSet {
        tenant: TenantId,
        definition: Name,
        alias: Name,
        id: DefinitionId,
    },

    RunCreated(Box<RunCreated>),
    RunSuspended {
        run: RunId,
    },
    RunWoken {
        run: RunId,
    },
    RunPaused {
        run: RunId,
    },
    RunContinued {
        run: RunId,
    },
    /// The outcome is decided; what is held is told to stop.
    RunEnding {
        run: RunId,
        outcome: Outcome,
        cause: EndCause,
    },
    RunCompleted {
        run: RunId,
    },
    RunFailed {
        run: RunId,
    },
    RunCancelled {
        run: RunId,
    },
    RunRetried {
        run: RunId,
        series: Series,
        deadline: Time,
    },

    NodeScheduled {
        run: RunId,
        node: NodeIx,
    },
    NodeAssigned {
        run: RunId,
        node: NodeIx,
        epoch: Epoch,
        worker: WorkerKey,
        by: By,
    },
    /// An assignment was accepted, or work was assigned and claimed in one step.
    NodeClaimed {
        run: RunId,
        node: NodeIx,
        epoch: Epoch,
        worker: WorkerKey,
        poll: PollId,
        by: By,
    },
    NodeStarted {
        run: RunId,
        node: NodeIx,
        attempt: Attempt,
    },
    NodeProgressed {
        run: RunId,
        node: NodeIx,
        step: u64,
        total: u64,
    },
    NodeCheckpointed {
        run: RunId,
        node: NodeIx,
        state: Value,
    },
    NodeCompleted {
        run: RunId,
        node: NodeIx,
        output: Value,
    },
    /// An attempt failed: it is tried again at `retry_at`, or it failed for good.
    NodeFailed {
        run: RunId,
        node: NodeIx,
        failure: Failure,
        retry_at: Option<Time>,
    },
    /// Nobody is left to offer it to; it is offered again later.
    NodeUntaken {
        run: RunId,
        node: NodeIx,
        again_at: Time,
    },
    /// It left its holder without an outcome and is ready again.
    NodeReturned {
        run: RunId,
        node: NodeIx,
        how: Return,
    },
    NodeSuspended {
        run: RunId,
        node: NodeIx,
        suspension: Box<Suspension>,
        wake_at: Time,
    },
    /// A calendar timer came due, and the wall clock had been set back.
    NodePostponed {
        run: RunId,
        node: NodeIx,
        wake_at: Time,
    },
    NodeResumed {
        run: RunId,
        node: NodeIx,
        cause: WakeCause,
    },
    /// A run held as a whole has nothing to do for now and leaves its holder.
    RunParked {
        run: RunId,
    },
    NodeCancelled {
        run: RunId,
        node: NodeIx,
    },
    NodeSkipped {
        run: RunId,
        node: NodeIx,
    },
    StopAsked {
        run: RunId,
        node: NodeIx,
        reason: StopReason,
    },
    /// A worker's report ended its grant; a repeat of it gets the same answer.
    ReportTaken {
        run: RunId,
        node: NodeIx,
        epoch: Epoch,
        digest: u64,
    },
    /// A failure that counts, in a run whose other branches finish first.
    RunDoomed {
        run: RunId,
        node: NodeIx,
    },
    /// A result that came too late: refused, and kept.
    LateResult(Box<LateResult>),

    MessageAppended {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
        seq: Seq,
        message: Box<NewMessage>,
    },
    MessagesClaimed {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
        through: Seq,
        epoch: Epoch,
    },
    /// All claimed messages of the handle are pending again; the first was to blame if anything was.
    MessagesReturned {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
        blame: bool,
    },
    /// `room`: the inbox was full before.
    MessagesConsumed {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
        through: Seq,
        room: bool,
    },
    /// The first unsettled message is put aside.
    MessageBuried {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
        seq: Seq,
    },
    StreamEnded {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
        source: u16,
        count: u64,
    },
    HandleClosed {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
    },
    TriggerRegistered {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
    },
    TriggerInputReceived {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
        seq: Seq,
        message: Box<NewMessage>,
    },
    TriggerCursorAdvanced {
        run: RunId,
        node: NodeIx,
        handle: HandleIx,
        cursor: u64,
    },

    OutboxEnqueued {
        id: OutboxId,
        tenant: TenantId,
        outgoing: Box<Outgoing>,
    },
    OutboxSent {
        id: OutboxId,
    },
    OutboxRefused {
        id: OutboxId,
    },

    WorkerRegistered(Box<WorkerRegistered>),
    WorkerDrained {
        worker: WorkerKey,
        on: bool,
    },
    WorkerLeft {
        worker: WorkerKey,
    },
    /// Leases of this length were not renewed in time; they are dead, visited or not.
    SessionLapsed {
        worker: WorkerKey,
        lease_ms: u64,
    },
    /// Volatile: not in the audit, not in any row.
    WorkerSeen {
        worker: WorkerKey,
        load: Option<u8>,
    },
    /// Volatile: the worker waits to be told when there is work, or no longer does.
    WorkerWaits {
        worker: WorkerKey,
        waits: bool,
    },
    /// Volatile: a waiting worker is told to poll.
    WorkerCalled {
        worker: WorkerKey,
    },
    /// Volatile: no known worker fits the work.
    NodeUnplaced {
        run: RunId,
        node: NodeIx,
    },
    /// Volatile: how a worker stands.
    WorkerSilent {
        worker: WorkerKey,
    },
    /// Volatile: the last poll of a worker.
    WorkerPolled {
        worker: WorkerKey,
        poll: PollId,
    },
    /// Volatile: when what is owed was last handed out.
    OutboxTried {
        id: OutboxId,
    },

    /// Suspended runs that wake until then are in memory.
    PagedIn {
        until: Time,
    },
    /// Everything that ended and whose time is over may be forgotten.
    Swept {
        until: Time,
    },
}

impl Event {
    /// The run it is about, if it is about one that is there already.
    pub const fn run(&self) -> Option<RunId> {
        match self {
            Self::RunSuspended { run, .. }
            | Self::RunWoken { run, .. }
            | Self::RunPaused { run, .. }
            | Self::RunContinued { run, .. }
            | Self::RunEnding { run, .. }
            | Self::RunCompleted { run, .. }
            | Self::RunFailed { run, .. }
            | Self::RunCancelled { run, .. }
            | Self::RunRetried { run, .. }
            | Self::NodeScheduled { run, .. }
            | Self::NodeAssigned { run, .. }
            | Self::NodeClaimed { run, .. }
            | Self::NodeStarted { run, .. }
            | Self::NodeProgressed { run, .. }
            | Self::NodeCheckpointed { run, .. }
            | Self::NodeCompleted { run, .. }
            | Self::NodeFailed { run, .. }
            | Self::NodeUntaken { run, .. }
            | Self::NodeReturned { run, .. }
            | Self::NodeSuspended { run, .. }
            | Self::NodePostponed { run, .. }
            | Self::NodeResumed { run, .. }
            | Self::RunParked { run, .. }
            | Self::NodeCancelled { run, .. }
            | Self::NodeSkipped { run, .. }
            | Self::StopAsked { run, .. }
            | Self::ReportTaken { run, .. }
            | Self::RunDoomed { run, .. }
            | Self::MessageAppended { run, .. }
            | Self::MessagesClaimed { run, .. }
            | Self::MessagesReturned { run, .. }
            | Self::MessagesConsumed { run, .. }
            | Self::MessageBuried { run, .. }
            | Self::StreamEnded { run, .. }
            | Self::HandleClosed { run, .. }
            | Self::TriggerRegistered { run, .. }
            | Self::TriggerInputReceived { run, .. }
            | Self::TriggerCursorAdvanced { run, .. }
            | Self::NodeUnplaced { run, .. } => Some(*run),
            Self::LateResult(late) => Some(late.run),
            _ => None,
        }
    }

    /// True if it changes nothing that a row says: it is not audited, and a restart forgets it.
    pub const fn is_volatile(&self) -> bool {
        matches!(
            self,
            Self::WorkerSeen { .. }
                | Self::WorkerWaits { .. }
                | Self::WorkerCalled { .. }
                | Self::NodeUnplaced { .. }
                | Self::WorkerSilent { .. }
                | Self::WorkerPolled { .. }
                | Self::OutboxTried { .. }
        )
    }
}

/// A definition was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct DefinitionAdded {
    pub id: DefinitionId,
    pub tenant: TenantId,
    pub version: DefinitionVersion,
    pub hash: ContentHash,
    pub definition: Definition,
}

/// A run was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RunCreated {
    pub run: RunId,
    pub tenant: TenantId,
    pub definition: DefinitionId,
    pub input: Value,
    pub key: Option<SubmitKey>,
    pub priority: u8,
    pub labels: Vec<(Name, Name)>,
    pub concurrency: Option<Concurrency>,
    pub deadline_ms: Option<u64>,
    pub deadline: Time,
    pub creator: Option<WorkerId>,
    pub notify: bool,
}

/// A worker was registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct WorkerRegistered {
    pub worker: WorkerKey,
    pub incarnation: Incarnation,
    pub spec: WorkerSpec,
}

/// A message, before it has a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct NewMessage {
    pub id: MessageKey,
    pub value: Value,
    pub cursor: Option<u64>,
}

/// A result of a holder that was no longer one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct LateResult {
    pub run: RunId,
    pub node: NodeIx,
    pub epoch: Epoch,
    pub worker: WorkerId,
    pub result: Result<Value, Failure>,
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Outcome {
    /// It succeeded.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Failed,
}

/// What decided a run's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum EndCause {
    /// All its nodes ended.
    AllDone,
    /// This node failed for good.
    NodeFailed(NodeIx),
    /// It took too long.
    Deadline,
    /// Somebody asked for it.
    Asked,
}

/// Who decided an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum By {
    /// The worker polled.
    Poll,
    /// The worker asked for it by name.
    Claim,
    /// Placement chose the worker.
    Placement,
    /// Another worker passed it on.
    Delegation,
    /// The creator took it itself.
    Creator,
}

/// How work left a holder without an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Return {
    /// The worker did not answer an offer in time.
    TimedOut,
    /// The worker declined an offer.
    Declined,
    /// The worker passed an offer on.
    Delegated,
    /// The lease was not renewed in time.
    Expired,
    /// The worker came back under a new incarnation.
    Superseded,
    /// The worker let go of it.
    Released,
    /// The worker let go of it because it was asked to.
    Preempted,
    /// The worker left.
    Deregistered,
}

impl Return {
    /// True if it uses up one of the losses (S13).
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::Expired | Self::Superseded)
    }

    /// True if the worker is not offered the same work again in this round.
    pub const fn excludes(self) -> bool {
        matches!(self, Self::TimedOut | Self::Declined | Self::Delegated | Self::Expired | Self::Superseded)
    }
}

/// Why a holder is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StopReason {
    /// Its run ends.
    RunEnding,
    /// Nothing needs it any more.
    NotNeeded,
    /// Something more urgent needs the worker; checkpoint and release.
    Preempted,
    /// It is no longer the holder's: it took too long, or was given to another.
    Fenced,
}

/// What woke a suspended node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WakeCause {
    /// A message or trigger input.
    Message,
    /// Its timer.
    Timer,
    /// A person.
    Hand,
}
