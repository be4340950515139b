//! What travels between processes.

use tenure_core::agent::Notice;
use tenure_core::coordinator::command::Command;
use tenure_core::coordinator::effect::Answer;
use tenure_core::coordinator::event::Outcome;
use tenure_core::coordinator::query::RunView;
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::id::{HandleIx, NodeIx, OutboxId, RequestId, RunId};
use tenure_core::shard::effect::NotTaken;

/// Which process, in the order servers, agents, rogues, clients, the outside.
pub type Proc = usize;

/// What travels.
#[derive(Debug, Clone)]
pub enum Packet {
    /// Somebody asks the owner of a partition, over any server.
    Ask(Ask),
    /// What was asked is answered.
    Told(Told),
    /// A worker is told something unasked.
    Notice(u16, Notice),
    /// The outside is told that a run ended.
    Ended {
        /// By whom.
        server: Proc,
        /// Of which partition.
        partition: u16,
        /// Under which number.
        id: OutboxId,
        /// Which run.
        run: RunId,
        /// How.
        outcome: Outcome,
    },
    /// The outside took that note.
    EndedTaken(u16, OutboxId),
    /// The outside is asked to send events to a handle, from a cursor on.
    Register {
        /// Which run.
        run: RunId,
        /// Which node.
        node: NodeIx,
        /// Which handle.
        handle: HandleIx,
        /// Not up to here.
        after: Option<u64>,
    },
}

/// A request.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Who wants to know.
    pub asker: Proc,
    /// Their number for it.
    pub request: RequestId,
    /// Which partition decides.
    pub partition: u16,
    /// How often it was passed on.
    pub hops: u8,
    /// What.
    pub what: What,
}

/// What is asked.
#[derive(Debug, Clone)]
pub enum What {
    /// To do something.
    Command(Command),
    /// To see a run.
    Look(RunId),
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Told {
    /// To which request.
    pub request: RequestId,
    /// Of which partition.
    pub partition: u16,
    /// What.
    pub reply: Reply,
}

/// What is answered.
#[derive(Debug, Clone)]
pub enum Reply {
    /// It was decided.
    Decided(Result<Answer, Rejection>),
    /// A run as it is.
    Seen(Option<Box<RunView>>),
    /// Nothing was done about it.
    NotTaken(NotTaken),
}
