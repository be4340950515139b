//! Why something was refused: the caller's mistake or a lost race, with the facts.

use super::event::StopReason;
use crate::definition::Name;
use crate::graph::Problem;
use crate::id::*;
use crate::lifecycle::{Phase, RunStatus};
use crate::limits::LimitName;
use crate::time::Time;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Why something was refused. Nothing of it was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each refusal's sentence is in its Display; the fields are its facts")]
pub enum Rejection {
    UnknownRun { run: RunId },
    WrongPartition { run: RunId, here: u16 },
    UnknownNode { run: RunId, node: NodeIx },
    UnknownHandle { node: NodeIx, handle: HandleIx },
    UnknownSource { handle: HandleIx, source: u16 },
    UnknownEdge { node: NodeIx, edge: u16 },
    UnknownWorker { worker: WorkerId },
    UnknownDefinition { name: Name },
    UnknownVersion { name: Name, version: DefinitionVersion },
    UnknownAlias { name: Name, alias: Name },
    UnknownOutbox { id: OutboxId },
    BadGraph { problems: Vec<Problem> },
    BadName { name: Name },
    BadTime { ms: u64, max: u64 },
    NoConcurrency,
    LimitReached { limit: LimitName, max: u64 },
    KeyConflict { run: RunId },
    KeyExpired { minted_at: Time, oldest: Time },
    KeyFromFuture { minted_at: Time, now: Time },
    StaleVersion { expected: Version, actual: Version },
    StaleEpoch { held: Option<Epoch>, presented: Epoch },
    StaleAttempt { current: Attempt, presented: Attempt },
    StaleIncarnation { current: Incarnation, presented: Incarnation },
    StalePoll { last: PollId, presented: PollId },
    NotHolder { holder: WorkerId },
    ReportConflict { epoch: Epoch },
    WrongPhase { phase: Phase },
    Stopping { reason: StopReason },
    RunEnded { status: RunStatus },
    RunNotEnded { status: RunStatus },
    RunCompleted,
    NotPaused { status: RunStatus },
    AlreadyPaused,
    Paused,
    NotReady { phase: Phase },
    NotEligible { why: Ineligible },
    NotSuspended { phase: Phase },
    InputWaiting { handle: HandleIx, seq: Seq },
    InboxFull { capacity: u32 },
    MessageConflict { seq: Seq },
    Gap { expected: u64, presented: u64 },
    StreamEnded { count: u64 },
    EndConflict { received: u64, presented: u64 },
    HandleClosed,
    NotATrigger,
    IdMissing,
    CursorBehind { stored: u64, presented: u64 },
    NotClaimed { seq: Seq, claimed_through: Seq },
}

/// Why a worker may not have a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the sentences are in Display")]
pub enum Ineligible {
    OtherTenant,
    Executor,
    Capability,
    Label,
    NotAllowed,
    Forbidden,
    Full { slots: u32 },
    ParallelLimit { max: u32 },
    ConcurrencyKey { limit: u32 },
    Draining,
    Unhealthy,
    RunPaused,
}

impl fmt::Display for Ineligible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherTenant => f.write_str("the worker belongs to another tenant"),
            Self::Executor => f.write_str("the worker has none of the required executors"),
            Self::Capability => f.write_str("the worker lacks a required capability"),
            Self::Label => f.write_str("the worker lacks a required label"),
            Self::NotAllowed => f.write_str("the worker is not among the allowed ones"),
            Self::Forbidden => f.write_str("the worker is forbidden"),
            Self::Full { slots } => write!(f, "the worker holds all of its {slots} slots"),
            Self::ParallelLimit { max } => {
                write!(f, "the worker holds {max} of this kind, which is the limit")
            }
            Self::ConcurrencyKey { limit } => {
                write!(f, "the concurrency key is held {limit} times, which is the limit")
            }
            Self::Draining => f.write_str("the worker is draining"),
            Self::Unhealthy => f.write_str("the worker has not been heard of lately"),
            Self::RunPaused => f.write_str("the run is paused"),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownRun { run } => write!(f, "there is no run {run}"),
            Self::WrongPartition { run, here } => {
                write!(f, "run {run} belongs to partition {}, and this is partition {here}", run.partition())
            }
            Self::UnknownNode { run, node } if node.is_whole_run() => {
                write!(f, "run {run} is not given out as a whole; name one of its nodes")
            }
            Self::UnknownNode { run, node } => write!(f, "run {run} has no node {node}"),
            Self::UnknownHandle { node, handle } => write!(f, "node {node} has no handle {handle}"),
            Self::UnknownSource { handle, source } => {
                write!(f, "handle {handle} has no source {source} that may be written from here")
            }
            Self::UnknownEdge { node, edge } => write!(f, "node {node} has no stream edge {edge}"),
            Self::UnknownWorker { worker } => write!(f, "there is no worker {worker}; register it first"),
            Self::UnknownDefinition { name } => write!(f, "there is no definition {name:?}; add it first"),
            Self::UnknownVersion { name, version } => write!(f, "{name:?} has no version {version}"),
            Self::UnknownAlias { name, alias } => write!(f, "{name:?} has no alias {alias:?}"),
            Self::UnknownOutbox { id } => write!(f, "nothing is owed under number {id}"),
            Self::BadGraph { problems } => {
                write!(f, "the definition has {} problems: ", problems.len())?;
                for (at, problem) in problems.iter().enumerate() {
                    write!(f, "{}{problem}", if at == 0 { "" } else { "; " })?;
                }
                Ok(())
            }
            Self::BadName { name } => {
                write!(f, "{name:?} is no name: names are short, not empty and without control characters")
            }
            Self::NoConcurrency => f.write_str("a concurrency limit of 0 would never let the work start"),
            Self::BadTime { ms, max } => write!(f, "{ms} ms is not a time between 1 and {max} ms"),
            Self::LimitReached { limit, max } => write!(f, "the limit {limit} is {max}, and it is reached"),
            Self::KeyConflict { run } => {
                write!(f, "the key was used for another request, which opened run {run}; use a new key")
            }
            Self::KeyExpired { minted_at, oldest } => write!(
                f,
                "the key was minted at {minted_at}, and keys from before {oldest} are forgotten; mint a new one if the work is to be done again"
            ),
            Self::KeyFromFuture { minted_at, now } => {
                write!(f, "the key claims to be minted at {minted_at}, and it is {now}")
            }
            Self::StaleVersion { expected, actual } => {
                write!(f, "the run is at version {actual}, not {expected}; read it again")
            }
            Self::StaleEpoch { held: Some(held), presented } => {
                write!(f, "epoch {presented} is fenced: the work is held under epoch {held}")
            }
            Self::StaleEpoch { held: None, presented } => {
                write!(f, "epoch {presented} is fenced: nobody holds the work")
            }
            Self::StaleAttempt { current, presented } => {
                write!(
                    f,
                    "attempt {presented} is over, or has not come: attempt {current} is the current one"
                )
            }
            Self::StaleIncarnation { current, presented } => write!(
                f,
                "incarnation {presented} is fenced: the worker was registered again as {current}; stop, and do not register by yourself"
            ),
            Self::StalePoll { last, presented } => write!(f, "poll {presented} is older than poll {last}"),
            Self::NotHolder { holder } => write!(f, "the work is held by worker {holder}"),
            Self::ReportConflict { epoch } => {
                write!(f, "another report for epoch {epoch} was accepted before, with other content")
            }
            Self::WrongPhase { phase } => write!(f, "that can not be reported of work that is {phase}"),
            Self::Stopping { reason } => write!(
                f,
                "{}; stop and release it",
                match reason {
                    StopReason::RunEnding => "the run is ending",
                    StopReason::NotNeeded => "nothing needs this work any more",
                    StopReason::Preempted => "something more urgent needs the worker",
                    StopReason::Fenced => "the work is no longer yours",
                }
            ),
            Self::RunEnded { status } => write!(f, "the run is {status}"),
            Self::RunNotEnded { status } => {
                write!(f, "the run is {status}; only a failed or cancelled run can be retried")
            }
            Self::RunCompleted => f.write_str("the run completed; there is nothing to retry"),
            Self::NotPaused { status } => write!(f, "the run is {status}, not paused"),
            Self::AlreadyPaused => f.write_str("the run is paused already"),
            Self::Paused => f.write_str("the run is paused; let it continue first"),
            Self::NotReady { phase } => write!(f, "the work is {phase}, not ready"),
            Self::NotEligible { why } => why.fmt(f),
            Self::NotSuspended { phase } => write!(f, "the node is {phase}, not suspended"),
            Self::InputWaiting { handle, seq } => {
                write!(f, "message {seq} waits on handle {handle}: receive it before suspending")
            }
            Self::InboxFull { capacity } => {
                write!(f, "the inbox holds {capacity} messages, which is its capacity; wait for room")
            }
            Self::MessageConflict { seq } => {
                write!(f, "message {seq} has this id and another payload")
            }
            Self::Gap { expected, presented } => {
                write!(f, "message {presented} of the source came before message {expected}")
            }
            Self::StreamEnded { count } => write!(f, "the source ended its stream after {count} messages"),
            Self::EndConflict { received, presented } => {
                write!(f, "the source sent {received} messages, and the end says {presented}")
            }
            Self::HandleClosed => {
                f.write_str("the handle takes nothing more: all its sources have ended, or its node has")
            }
            Self::NotATrigger => f.write_str("a cursor belongs on a trigger handle only"),
            Self::IdMissing => f.write_str("an input for a trigger handle needs an id of its own"),
            Self::CursorBehind { stored, presented } => {
                write!(f, "cursor {presented} is not above {stored}, which is stored already")
            }
            Self::NotClaimed { seq, claimed_through } => {
                write!(f, "message {seq} is not claimed under this epoch; claimed is up to {claimed_through}")
            }
        }
    }
}

impl core::error::Error for Rejection {}
