//! What can be asked of a Coordinator. Commands are imperatives; every one that changes held work carries its epoch.

use crate::definition::{Capability, Definition, Name};
use crate::id::*;
use crate::time::Time;
use crate::value::Value;
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use super::row::Row;

/// What a Coordinator is fed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Somebody asks for something.
    Command(Envelope),
    /// Time passed; fire what is due, in a bounded portion.
    Pulse,
    /// The rows that were needed, and the inputs that needed them.
    Loaded(Loaded),
    /// The machine was restored, or takes over: what is volatile starts anew.
    Recover,
}

/// A command, whose it is, and to whom the answer goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Comes back with the reply.
    pub request: RequestId,
    /// From the credential, never from the body.
    pub tenant: TenantId,
    /// What is asked.
    pub command: Command,
}

/// Something to be looked up in the store: give it back as [`Loaded`], with all rows the store has of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// What is needed.
    pub needs: Vec<Need>,
    /// The command that names it, to be presented again.
    pub again: Option<Box<Envelope>>,
}

/// Rows of what was not resident.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// What was asked for.
    pub load: Load,
    /// All rows of it; what the store does not have is not among them.
    pub rows: Vec<Row>,
}

/// Something that is in the store and not in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Need {
    /// The run of this number, with its nodes, inboxes and messages.
    Run {
        /// The dense number in its id.
        number: u64,
    },
    /// The run that was submitted under this key, if any.
    Key {
        /// Whose key.
        tenant: TenantId,
        /// Its hash.
        key: KeyHash,
    },
    /// Suspended runs that wake at or before this time, and are not in memory.
    Waking {
        /// In machine time.
        until: Time,
    },
    /// Suspended runs that have an inbox where outside events are registered and that is not closed.
    Registered,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Adds a definition, or finds that its content is known.
    Define {
        /// What people wrote.
        definition: Box<Definition>,
        /// Hash of its canonical bytes, made at the edge.
        hash: ContentHash,
    },
    /// Points a name (`stable`) at a version of a definition.
    SetAlias {
        /// The definition's name.
        definition: Name,
        /// The alias.
        alias: Name,
        /// What it points at from now on.
        version: DefinitionVersion,
    },
    /// Opens a run.
    Submit(Box<Submit>),
    /// Ends a run; holders are told, and it ends when they answer or their leases do.
    Cancel(OnRun),
    /// Gives out nothing new of a run.
    Pause(OnRun),
    /// Lets a paused run go on.
    Continue(OnRun),
    /// Opens the next series of a run that failed or was cancelled.
    Retry(OnRun),
    /// Wakes a suspended node by hand.
    Wake {
        /// The run.
        run: RunId,
        /// The node.
        node: NodeIx,
    },
    /// Puts a message into an inbox.
    Send(Box<SendCommand>),
    /// Ends an outside source's stream.
    EndStream {
        /// The run.
        run: RunId,
        /// The node.
        node: NodeIx,
        /// The handle.
        handle: HandleIx,
        /// Which of its declared outside sources.
        source: u16,
        /// How many messages it sent in all.
        count: u64,
    },
    /// Makes a worker known, under a new incarnation.
    Register {
        /// The worker.
        worker: WorkerId,
        /// What it can do.
        spec: Box<WorkerSpec>,
    },
    /// Says that a worker lives, for all that it holds at once.
    Heartbeat(Heartbeat),
    /// Says what a worker believes it holds.
    Reconcile {
        /// Who.
        worker: WorkerId,
        /// In which life.
        incarnation: Incarnation,
        /// The grants it has.
        held: Vec<Held>,
    },
    /// Asks for up to `max` pieces of work, assigned and claimed in one step.
    Poll {
        /// Who.
        worker: WorkerId,
        /// In which life.
        incarnation: Incarnation,
        /// The worker's own number for this poll; a repeat gets the same grants.
        poll: PollId,
        /// How many at the most.
        max: u32,
        /// Tell this worker when something comes, if there is not enough now.
        wait: bool,
    },
    /// Asks for one piece of work by name.
    Claim {
        /// Who.
        worker: WorkerId,
        /// In which life.
        incarnation: Incarnation,
        /// The worker's own number for this, from the same series as polls.
        poll: PollId,
        /// The run.
        run: RunId,
        /// The node, or [`NodeIx::WHOLE_RUN`].
        node: NodeIx,
    },
    /// Reports on pieces of work; one bad report refuses that one only.
    Report {
        /// Who.
        worker: WorkerId,
        /// In which life.
        incarnation: Incarnation,
        /// What about.
        reports: Vec<Report>,
    },
    /// Gives a worker nothing new, or something new again.
    Drain {
        /// Who.
        worker: WorkerId,
        /// Which of the two.
        on: bool,
    },
    /// Takes a worker off the list; what it held is given out anew.
    Deregister {
        /// Who.
        worker: WorkerId,
        /// In which life; none for an administrator, who means any.
        incarnation: Option<Incarnation>,
    },
    /// Says that something owed to the outside arrived, or will never be taken.
    Acknowledge {
        /// What.
        id: OutboxId,
        /// False if the other side refused it for good.
        taken: bool,
    },
}

/// A run, and the version the caller saw of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnRun {
    /// Which.
    pub run: RunId,
    /// Refuse if it has changed since (S3).
    pub if_version: Option<Version>,
}

/// Opens a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submit {
    /// Name of what is to be run.
    pub definition: Name,
    /// Which version of it.
    pub which: Which,
    /// What it starts from.
    pub input: Value,
    /// Random part of the new run's id.
    pub random: u64,
    /// Makes a repeat of this request harmless.
    pub key: Option<SubmitKey>,
    /// Higher goes first.
    pub priority: u8,
    /// For finding it again.
    pub labels: Vec<(Name, Name)>,
    /// Limits how many pieces of work under one key are held at once.
    pub concurrency: Option<Concurrency>,
    /// Overrides the definition's deadline.
    pub deadline_ms: Option<u64>,
    /// The creator takes the first piece of work itself, if it can.
    pub claim: Option<(WorkerId, Incarnation)>,
    /// Tell the outside when it ended, until acknowledged.
    pub notify: bool,
}

impl Submit {
    /// The latest version of a definition, with no key and all defaults.
    pub fn new(definition: &str, input: Value, random: u64) -> Self {
        Self {
            definition: definition.into(),
            which: Which::Latest,
            input,
            random,
            key: None,
            priority: 128,
            labels: Vec::new(),
            concurrency: None,
            deadline_ms: None,
            claim: None,
            notify: false,
        }
    }
}

/// Which version of a definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// The last one added.
    Latest,
    /// This one.
    Version(DefinitionVersion),
    /// The one this alias points at.
    Alias(Name),
}

/// An idempotency key. It carries the machine time its maker last saw, so that a repeat that comes after the key
/// was forgotten can be told from a new request and is refused, never executed again (S33).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SubmitKey {
    /// Hash of what the submitter wrote.
    pub key: KeyHash,
    /// Hash of the whole request: another request under the same key is a conflict.
    pub fingerprint: ContentHash,
    /// Machine time, as a reply showed it, when the key was made.
    pub minted_at: Time,
}

/// A limit on pieces of work held at once under one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Concurrency {
    /// Hash of the key; tenants do not share keys.
    pub key: KeyHash,
    /// How many this run allows.
    pub limit: u32,
}

/// Puts a message into an inbox from outside the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendCommand {
    /// The run.
    pub run: RunId,
    /// The node.
    pub node: NodeIx,
    /// The handle.
    pub handle: HandleIx,
    /// What makes it unique.
    pub id: MessageKey,
    /// What it says.
    pub value: Value,
    /// Position in the outside stream, on a trigger handle.
    pub cursor: Option<u64>,
}

/// What makes a message unique within its inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MessageKey {
    /// An id of its own: same id, same payload is a no-op; another payload is a conflict (S22).
    Own(MessageId),
    /// The n-th message, from 1, of a declared source; deduplicated by a watermark.
    Stream {
        /// Which source.
        source: u16,
        /// Which of its messages.
        n: u64,
    },
}

/// What a worker can do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Kinds of work it can execute.
    pub executors: Vec<Name>,
    /// What else it has.
    pub capabilities: Vec<(Name, Capability)>,
    /// How it is marked.
    pub labels: Vec<Name>,
    /// Pieces of work it may hold.
    pub slots: u32,
    /// Connection quality, 0 to 100.
    pub quality: u8,
    /// Election rank, 0 to 100; higher is preferred.
    pub rank: u8,
}

/// One sign of life for all that a worker holds; it costs O(1) and no row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Who.
    pub worker: WorkerId,
    /// In which life.
    pub incarnation: Incarnation,
    /// The session it believes to be in.
    pub session: Session,
    /// [`held_digest`](super::held_digest) of the epochs it holds.
    pub held: u64,
    /// How busy it is, 0 to 100.
    pub load: u8,
}

/// A grant that a worker believes it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Held {
    /// The run.
    pub run: RunId,
    /// The node, or the whole run.
    pub node: NodeIx,
    /// Its fencing number.
    pub epoch: Epoch,
}

/// A report on one piece of work. All of it is accepted, or none (S25).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The run.
    pub run: RunId,
    /// The node, or the whole run.
    pub node: NodeIx,
    /// The fencing number of the grant; only the current one is accepted (S8).
    pub epoch: Epoch,
    /// Which attempt it speaks of, as the grant says. Under the lease of a whole run one epoch covers several attempts
    /// of a node, so whoever holds a run should say it; none means the current one.
    pub attempt: Option<Attempt>,
    /// Messages that are done with, up to and including a seq per handle.
    pub consume: Vec<(HandleIx, Seq)>,
    /// Messages to other nodes and runs.
    pub sends: Vec<Sending>,
    /// What happened.
    pub then: Then,
}

impl Report {
    /// A report that carries no messages, on the current attempt.
    pub const fn new(held: Held, then: Then) -> Self {
        let Held { run, node, epoch } = held;
        Self { run, node, epoch, attempt: None, consume: Vec::new(), sends: Vec::new(), then }
    }

    /// What it is about.
    pub const fn held(&self) -> Held {
        Held { run: self.run, node: self.node, epoch: self.epoch }
    }
}

/// A message from a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sending {
    /// Along one of the node's own stream edges, numbered from 1 over all attempts.
    Stream {
        /// Position of the edge among those that leave the node.
        edge: u16,
        /// Which message of this stream.
        n: u64,
        /// What it says.
        value: Value,
    },
    /// To a handle of any run; delivered through the outbox with this id.
    Run {
        /// To which run.
        run: RunId,
        /// To which node.
        node: NodeIx,
        /// To which handle.
        handle: HandleIx,
        /// What makes it unique there, whatever happens on the way.
        id: MessageId,
        /// What it says.
        value: Value,
    },
}

/// What happened to a piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Then {
    /// It was accepted after an offer.
    Accept,
    /// It was declined after an offer.
    Decline,
    /// The worker it was offered to passes it on.
    Delegate {
        /// To whom.
        to: WorkerId,
    },
    /// Execution begins.
    Start,
    /// Asks for messages: those already claimed under this epoch, or else new ones.
    Receive {
        /// From which handle.
        handle: HandleIx,
        /// How many at the most.
        max: u32,
    },
    /// It goes on, and shows where it is.
    Progress {
        /// This step.
        step: u64,
        /// Of so many.
        total: u64,
    },
    /// It saves where it is, for its next attempt.
    Checkpoint {
        /// Whatever it needs.
        state: Value,
    },
    /// It is done.
    Complete {
        /// What came of it.
        output: Value,
    },
    /// It failed.
    Fail {
        /// Why.
        failure: Failure,
        /// The message that caused it, which is put aside at once.
        poison: Option<(HandleIx, Seq)>,
    },
    /// It saves its state and lets go until woken.
    Suspend(Box<Suspension>),
    /// It lets go; another worker may take it.
    Release,
}

/// Why something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// What it said.
    pub detail: Value,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FailureKind {
    /// The worker says it may work next time.
    Retryable,
    /// The worker says there is no use in trying again.
    Final,
    /// A payload it needs is missing.
    PayloadMissing,
    /// A payload it needs does not have its hash.
    PayloadDamaged,
    /// Nobody started it in time.
    NotStartedInTime,
    /// It took too long.
    TookTooLong,
    /// Its worker was alive, but it showed no progress.
    NoProgress,
    /// It lost its holder too often.
    LostTooOften,
    /// Nobody would take it.
    NobodyLeft,
}

impl FailureKind {
    /// True if another attempt may help.
    pub const fn may_retry(self) -> bool {
        matches!(self, Self::Retryable | Self::TookTooLong | Self::NoProgress)
    }
}

/// What a suspended node saved, and what wakes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Suspension {
    /// Why, for people.
    pub reason: Name,
    /// What it needs to go on.
    pub state: Value,
    /// Wake on any message or trigger input for this node.
    pub on_message: bool,
    /// Wake after this long.
    pub after_ms: Option<u64>,
    /// Wake when the wall clock shows this (a calendar timer).
    pub at_wall: Option<u64>,
}
