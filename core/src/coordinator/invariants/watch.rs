//! An observer of one machine. It is fed every input with all that came of it, keeps what it needs to know itself, and
//! runs every event and turn check. An input costs what it touches; its memory is bounded by what the machine holds, and
//! lately held.

use super::known::{Known, run_step, work_step};
use super::{ALL, Check, Holds, check_state};
use crate::coordinator::Coordinator;
use crate::coordinator::command::{Command, Envelope, Input};
use crate::coordinator::effect::{Answer, Effect, Grant, Output};
use crate::coordinator::event::{Event, Stamped};
use crate::coordinator::rejection::Rejection;
use crate::lifecycle::{
    Health, Lifecycle, MessageState, MessageStep, Phase, RunStatus, RunStep, WorkStep, WorkerStep,
};
use alloc::collections::BTreeSet;

/// One event, just before it is applied to what is known.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are what they are called")]
pub struct Moment<'a> {
    pub known: &'a Known,
    /// After the whole input.
    pub machine: &'a Coordinator,
    pub input: &'a Input,
    pub out: &'a Output,
    pub stamped: &'a Stamped,
    /// All events of the same step.
    pub step: &'a [Stamped],
}

/// An input and everything that came of it; what is known was led through all events.
#[derive(Debug)]
#[allow(missing_docs, reason = "the fields are what they are called")]
pub struct Turn<'a> {
    pub known: &'a Known,
    pub machine: &'a Coordinator,
    pub input: &'a Input,
    pub out: &'a Output,
}

/// Rows of the lifecycle tables that were seen to be taken.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "one set per table")]
pub struct Taken {
    pub work: BTreeSet<(Phase, WorkStep)>,
    pub runs: BTreeSet<(RunStatus, RunStep)>,
    pub messages: BTreeSet<(MessageState, MessageStep)>,
    pub workers: BTreeSet<(Health, WorkerStep)>,
}

/// An observer of one machine.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    known: Known,
    taken: Taken,
}

/// The commands of an input, as far as they were answered, with their answers.
pub(super) fn answered<'a>(
    input: &'a Input,
    out: &'a Output,
) -> impl Iterator<Item = (&'a Envelope, &'a Result<Answer, Rejection>)> {
    let asked = match input {
        Input::Command(envelope) => core::slice::from_ref(envelope),
        Input::Loaded(loaded) => loaded.load.again.as_deref().map_or(&[][..], core::slice::from_ref),
        Input::Pulse | Input::Recover => &[],
    };
    let replies = out.effects.iter().filter_map(|effect| match effect {
        Effect::Reply { request, result } => Some((request, result)),
        _ => None,
    });
    asked
        .iter()
        .zip(replies)
        .filter(|(asked, (request, _))| asked.request == **request)
        .map(|(asked, (_, result))| (asked, result))
}

/// Every grant that an output hands out.
pub(super) fn grants_of(out: &Output) -> impl Iterator<Item = &Grant> {
    out.effects.iter().flat_map(|effect| {
        let (one, many): (Option<&Grant>, &[Grant]) = match effect {
            Effect::Offer { grant, .. } | Effect::Hand { grant, .. } => (Some(grant), &[]),
            Effect::Reply { result: Ok(Answer::Polled { grants, .. }), .. } => (None, grants),
            Effect::Reply { result: Ok(Answer::Reconciled { missed, .. }), .. } => (None, missed),
            _ => (None, &[]),
        };
        one.into_iter().chain(many)
    })
}

impl Watch {
    /// An observer of a machine, from now on.
    pub fn new(machine: &Coordinator) -> Self {
        let mut watch = Self::default();
        watch.known.sync(machine);
        watch
    }

    /// Rows of the lifecycle tables that were seen to be taken.
    pub fn taken(&self) -> &Taken {
        &self.taken
    }

    /// Looks at an input and all that came of it. Call it before the rows are taken.
    pub fn observe(&mut self, machine: &Coordinator, input: &Input, out: &Output) -> Holds {
        self.known.begin(machine, input);
        let mut rest = &out.audit[..];
        while let Some(first) = rest.first() {
            let (step, after) = rest.split_at(rest.iter().take_while(|one| one.step == first.step).count());
            rest = after;
            for stamped in step {
                self.known.meet(machine, &stamped.event);
                let moment = Moment { known: &self.known, machine, input, out, stamped, step };
                for invariant in ALL {
                    if let Check::Event(check) = invariant.check {
                        check(&moment)?;
                    }
                }
                self.note(&stamped.event);
                self.known.advance(machine, stamped);
            }
        }
        let turn = Turn { known: &self.known, machine, input, out };
        for invariant in ALL {
            if let Check::Turn(check) = invariant.check {
                check(&turn)?;
            }
        }
        self.note_workers(machine, input, out);
        self.remember(machine, input, out);
        self.known.end(machine);
        Ok(())
    }

    /// Looks at an input and all that came of it, at what it did not touch, and at the state it left.
    pub fn observe_all(&mut self, machine: &Coordinator, input: &Input, out: &Output) -> Holds {
        self.known.whole = true;
        self.observe(machine, input, out)?;
        check_state(machine)
    }

    /// Forgets runs that left memory with the rows.
    pub fn settle(&mut self, machine: &Coordinator) {
        self.known.sync(machine);
    }

    fn note(&mut self, event: &Event) {
        if let Some((id, node, step)) = work_step(event)
            && let Some(work) = self.known.runs.get(&id).and_then(|run| run.work(node))
        {
            self.taken.work.insert((work.phase, step));
        }
        if let Some((id, step)) = run_step(event)
            && let Some(run) = self.known.runs.get(&id)
        {
            self.taken.runs.insert((run.head.status, step));
        }
        if let Event::RunRetried { run, .. } = event
            && let Some(run) = self.known.runs.get(run)
        {
            let reopened = run.works.iter().map(|(_, work)| work.phase).filter(|phase| phase.is_terminal());
            self.taken.work.extend(
                reopened.filter(|phase| *phase != Phase::Completed).map(|phase| (phase, WorkStep::Reopen)),
            );
        }
        let step = match event {
            Event::MessagesClaimed { .. } => Some((MessageState::Pending, MessageStep::Claim)),
            Event::MessagesReturned { .. } => Some((MessageState::Claimed, MessageStep::Return)),
            Event::MessagesConsumed { .. } => Some((MessageState::Claimed, MessageStep::Consume)),
            Event::MessageBuried { .. } => Some((MessageState::Pending, MessageStep::Bury)),
            _ => None,
        };
        self.taken.messages.extend(step);
        let worker = match event {
            Event::WorkerLeft { worker } => Some((worker, WorkerStep::Leave)),
            Event::WorkerDrained { worker, on: true } => Some((worker, WorkerStep::Drain)),
            Event::WorkerDrained { worker, on: false } => Some((worker, WorkerStep::Undrain)),
            _ => None,
        };
        if let Some((worker, step)) = worker
            && let Some(known) = self.known.workers.get(worker)
        {
            self.taken.workers.insert((known.health, step));
        }
    }

    /// Signs of life and silence are in no audit; they show in how a worker stood before and stands after.
    fn note_workers(&mut self, machine: &Coordinator, input: &Input, out: &Output) {
        if matches!(input, Input::Recover) {
            return;
        }
        let was_beat = |worker: crate::id::WorkerId| {
            answered(input, out).any(|(asked, result)| {
                result.is_ok()
                    && match &asked.command {
                        Command::Heartbeat(beat) => beat.worker == worker,
                        Command::Poll { worker: by, .. } => *by == worker,
                        _ => false,
                    }
            })
        };
        for key in &self.known.met {
            let Some(before) = self.known.worker_before(*key) else { continue };
            let Some(worker) = machine.state.workers.get(*key) else { continue };
            let heard = was_beat(key.worker);
            let step = match (before.health, worker.health) {
                (Health::Healthy, Health::Stale) => Some(WorkerStep::FallSilent),
                (Health::Stale, Health::Dead) => Some(WorkerStep::Die),
                (before, after) if heard && before.after(WorkerStep::Hear) == Some(after) => {
                    Some(WorkerStep::Hear)
                }
                _ => None,
            };
            self.taken.workers.extend(step.map(|step| (before.health, step)));
        }
    }

    /// Keeps what later inputs are judged by.
    fn remember(&mut self, machine: &Coordinator, input: &Input, out: &Output) {
        super::requests::remember_keys(&mut self.known, input, out);
        for grant in grants_of(out) {
            if let Some(run) = self.known.runs.get_mut(&grant.run)
                && run.stable_keys.iter().all(|(node, _)| *node != grant.node)
            {
                run.stable_keys.push((grant.node, grant.stable_key));
            }
        }
        if matches!(input, Input::Recover) {
            super::trace_grants::protect(&mut self.known, machine);
        }
    }
}
