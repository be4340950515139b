//! What must be done once the rows behind it are durable. Nothing here was done yet.

use super::command::{Failure, Held, Load, MessageKey};
use super::event::{Outcome, Stamped, StopReason, WakeCause};
use super::rejection::Rejection;
use super::state::WorkerKey;
use crate::id::*;
use crate::time::Time;
use crate::value::Value;
use alloc::boxed::Box;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Where a Coordinator puts what it has to say. The caller owns it and uses it again.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// To be done, in this order, once the rows touched so far are durable (S45).
    pub effects: Vec<Effect>,
    /// What happened, for the audit; may be dropped.
    pub audit: Vec<Stamped>,
    /// What is not resident and is needed: look it up, and give it back as [`super::command::Loaded`].
    pub loads: Vec<Load>,
}

impl Output {
    /// Empties it and keeps its memory.
    pub fn clear(&mut self) {
        self.effects.clear();
        self.audit.clear();
        self.loads.clear();
    }
}

/// Something to be done outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Answer a request.
    Reply {
        /// Which.
        request: RequestId,
        /// With what.
        result: Result<Answer, Rejection>,
    },
    /// Offer work to a worker, which accepts or declines.
    Offer {
        /// To whom.
        worker: WorkerKey,
        /// What.
        grant: Box<Grant>,
    },
    /// Give a node to the worker that holds its whole run.
    Hand {
        /// To whom.
        worker: WorkerKey,
        /// What.
        grant: Box<Grant>,
    },
    /// Tell a holder to stop.
    Stop {
        /// Whom.
        worker: WorkerKey,
        /// What it holds.
        held: Held,
        /// Why.
        reason: StopReason,
    },
    /// Tell a worker that a poll may find something.
    Wake {
        /// Whom.
        worker: WorkerKey,
    },
    /// Tell the owner that no worker is left to offer this to.
    NobodyLeft {
        /// The run.
        run: RunId,
        /// The node.
        node: NodeIx,
        /// How many offers were made so far.
        offers: u32,
    },
    /// Tell senders that a full inbox has room again.
    Room {
        /// The run.
        run: RunId,
        /// The node.
        node: NodeIx,
        /// The handle.
        handle: HandleIx,
    },
    /// Deliver something owed to the outside, and acknowledge it.
    Deliver {
        /// Under which number.
        id: OutboxId,
        /// What.
        outgoing: Outgoing,
    },
    /// Have outside events sent to this handle, from this cursor on.
    RegisterTrigger {
        /// The run.
        run: RunId,
        /// The node.
        node: NodeIx,
        /// The handle.
        handle: HandleIx,
        /// Skip what is not above this.
        after: Option<u64>,
    },
    /// A run ended.
    RunEnded {
        /// Which.
        run: RunId,
        /// How.
        outcome: Outcome,
    },
}

/// Something owed to the outside until it is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outgoing {
    /// A message to a handle of another run, or of this one.
    Message {
        /// Who sent it.
        from: RunId,
        /// To which run.
        run: RunId,
        /// To which node.
        node: NodeIx,
        /// To which handle.
        handle: HandleIx,
        /// What makes it unique there.
        id: MessageId,
        /// What it says.
        value: Value,
    },
    /// The news that a run ended.
    Ended {
        /// Which.
        run: RunId,
        /// How.
        outcome: Outcome,
    },
}

/// What an accepted command is answered with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It was done, or had been done.
    Done,
    /// A definition's version.
    Defined {
        /// Which.
        id: DefinitionId,
        /// Its number under its name.
        version: DefinitionVersion,
    },
    /// A run was opened, now or when this key was first used.
    Submitted {
        /// Which.
        run: RunId,
        /// What the creator took itself.
        held: Option<Held>,
    },
    /// A worker is known.
    Registered {
        /// Its life number.
        incarnation: Incarnation,
        /// Its session.
        session: Session,
    },
    /// A worker was heard.
    Beat {
        /// Its session.
        session: Session,
        /// What it holds is not what we think it holds: it should reconcile.
        reconcile: bool,
        /// Machine time, for keys to be minted with.
        now: Time,
    },
    /// What a worker holds and does not.
    Reconciled {
        /// Its session.
        session: Session,
        /// What it must stop: it holds these no longer.
        lost: Vec<Held>,
        /// What it holds without knowing.
        missed: Vec<Grant>,
    },
    /// What a poll got.
    Polled {
        /// The worker's session.
        session: Session,
        /// In the order they should be done.
        grants: Vec<Grant>,
    },
    /// What each report got.
    Reported(Vec<Result<Reported, Rejection>>),
    /// A message is in its inbox.
    Appended {
        /// Where.
        seq: Seq,
    },
}

/// What an accepted report is answered with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reported {
    /// It was taken, or had been taken.
    Accepted,
    /// Messages, and whether any more will ever come.
    Messages {
        /// In order.
        messages: Vec<Delivery>,
        /// All sources ended, and nothing is behind these.
        last: bool,
    },
}

/// A message as its consumer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its place.
    pub seq: Seq,
    /// Its id.
    pub id: MessageKey,
    /// What it says.
    pub value: Value,
    /// Position in the outside stream.
    pub cursor: Option<u64>,
    /// How often it was handed out before.
    pub deliveries: u32,
}

/// Work given to a worker: all that an execution needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The run.
    pub run: RunId,
    /// The node, or the whole run.
    pub node: NodeIx,
    /// The fencing number; every report carries it.
    pub epoch: Epoch,
    /// Which definition.
    pub definition: DefinitionId,
    /// The run's series.
    pub series: Series,
    /// Number of the start that comes next.
    pub attempt: Attempt,
    /// How long the lease lives without a sign of the worker.
    pub lease_ms: u64,
    /// How often it should show itself.
    pub heartbeat_ms: u64,
    /// For ordering several grants.
    pub priority: u8,
    /// The same on every attempt, for outside systems (S34).
    pub stable_key: u128,
    /// Another one on every attempt.
    pub attempt_key: u128,
    /// What the run started from.
    pub input: Value,
    /// What its predecessors made, by node.
    pub inputs: Vec<(NodeIx, Value)>,
    /// What an earlier attempt or a suspension saved.
    pub state: Option<Value>,
    /// What woke it, if it was suspended.
    pub woken: Option<WakeCause>,
    /// How the last attempt failed, if it did.
    pub last_failure: Option<Failure>,
}

impl Grant {
    /// What every report on it carries.
    pub const fn held(&self) -> Held {
        Held { run: self.run, node: self.node, epoch: self.epoch }
    }
}
