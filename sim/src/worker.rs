//! A worker: the Agent that ships, and an executor that does as it is told, well or badly.

use crate::choice::Choice;
use crate::client::{POISON, TENANT, definition_of, value, worker_id};
use crate::definitions::{STREAM, TRIGGER};
use crate::packet::Proc;
use crate::site::Site;
use crate::swarm::Config;
use std::collections::BTreeMap;
use tenure_core::agent::lifecycle::SessionState;
use tenure_core::agent::{Agent, Input, Order, Output, Refusal, Settings, invariants};
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::{Delivery, Grant, Reported};
use tenure_core::coordinator::invariants::Violation;
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::definition::Capability;
use tenure_core::id::*;
use tenure_core::time::Now;
use tenure_core::value::Value;

/// What an execution is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Plain,
    Producer,
    Consumer(HandleIx),
}

/// How an execution means to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    Fail(FailureKind),
    Suspend,
    Release,
    Never,
}

/// Something that executes.
#[derive(Debug, Clone)]
pub struct Execution {
    grant: Box<Grant>,
    role: Role,
    end: End,
    /// Signs of progress before its end.
    steps: u32,
    /// It asked and was not answered.
    waiting: bool,
    /// Messages it took and has not said it is done with.
    taken: Option<(HandleIx, Seq)>,
    poisoned: Option<(HandleIx, Seq)>,
    received: u32,
    is_last: bool,
    slow: u64,
}

/// What a worker wants the world to do.
#[derive(Debug, Clone)]
pub enum Wish {
    /// Send a request to a partition's owner.
    Send(u16, RequestId, Command),
    /// Come back to an execution after this long.
    Tick(Held, u64),
    /// It may end.
    Drained,
}

/// A worker process.
#[derive(Debug, Clone)]
pub struct Worker {
    /// Which process.
    pub proc: Proc,
    /// The shipped machine.
    pub agent: Agent,
    executions: BTreeMap<(RunId, NodeIx, Epoch), Execution>,
    out: Output,
    /// What its Agent violated first.
    pub violation: Option<Violation>,
}

/// What a worker may look at and write to while it acts.
#[derive(Debug)]
pub struct Around<'a> {
    /// The source of choice.
    pub choice: &'a mut Choice,
    /// The world's configuration.
    pub config: &'a Config,
    /// What the worker's clock shows.
    pub now: Now,
    /// What it wants done.
    pub wishes: &'a mut Vec<Wish>,
}

fn key(held: Held) -> (RunId, NodeIx, Epoch) {
    (held.run, held.node, held.epoch)
}

impl Worker {
    /// A worker process that was just started.
    pub fn new(proc: Proc, index: usize, config: &Config) -> Self {
        let mut settings = Settings::new(worker_id(index), TENANT, config.slots);
        settings.spec = WorkerSpec {
            executors: vec!["cpu".into()],
            capabilities: if index.is_multiple_of(2) {
                vec![("gpu".into(), Capability::Number(2))]
            } else {
                vec![]
            },
            labels: Vec::new(),
            slots: config.slots,
            quality: 50 + index as u8,
            rank: 10 * index as u8,
        };
        settings.parallel = config.slots.div_ceil(2);
        settings.poll_ms = 30_000;
        settings.heartbeat_ms = config.limits.stale_ms / 2;
        settings.request_ms = 1_500 + u64::from(config.latency_ms) * 4;
        settings.backoff_ms = 10_000;
        settings.guard_ms = config.lease_ms / 20;
        Self {
            proc,
            agent: Agent::new(settings, 0..config.partitions),
            executions: BTreeMap::new(),
            out: Output::default(),
            violation: None,
        }
    }

    /// How many things execute.
    pub fn executing(&self) -> usize {
        self.executions.len()
    }

    /// True if a newer life of it is known somewhere, so that it does nothing there any more.
    pub fn is_fenced(&self) -> bool {
        let mut partitions = (0..).map_while(|partition| self.agent.session(partition));
        partitions.any(|session| session.state == SessionState::Fenced)
    }

    /// True if something executes here that will never end by itself.
    pub fn is_hung(&self) -> bool {
        self.executions.values().any(|execution| execution.end == End::Never)
    }

    /// Feeds the Agent, and does what it says.
    pub fn feed(&mut self, input: Input, around: &mut Around<'_>) {
        self.agent.handle(around.now, input, &mut self.out);
        if let Err(violation) = invariants::check(&self.agent, &self.out) {
            self.violation.get_or_insert(violation);
        }
        // What the executor says because of an order is said after all orders of this turn were followed.
        let mut said = Vec::new();
        for order in std::mem::take(&mut self.out.orders) {
            match order {
                Order::Send { partition, request, command } => {
                    around.wishes.push(Wish::Send(partition, request, command));
                }
                Order::Start { grant } => self.start(grant, around),
                Order::Stop { held, .. } => {
                    self.executions.remove(&key(held));
                    said.push(Input::Stopped { held });
                }
                Order::Answer { held, result } => said.extend(self.answered(held, result, around)),
                Order::Drained => around.wishes.push(Wish::Drained),
                Order::Fenced { .. } | Order::Unregistered { .. } => {}
            }
        }
        for input in said {
            self.feed(input, around);
        }
    }

    fn start(&mut self, grant: Box<Grant>, around: &mut Around<'_>) {
        if grant.node.is_whole_run() {
            return;
        }
        let (proc, held) = (self.proc, grant.held());
        let role = match (definition_of(&grant.input), grant.node.get()) {
            (STREAM, 0) => Role::Producer,
            (STREAM, 1) => Role::Consumer(HandleIx::new(0)),
            (TRIGGER, 0) => {
                Role::Consumer(HandleIx::new(around.choice.pick(Site::ExecutorArg, proc, 2) as u16))
            }
            _ => Role::Plain,
        };
        let steps = around.choice.pick(Site::ExecutorPlan, proc, 8).saturating_sub(5);
        let slow = if around.choice.happens(Site::SlowConsumer, proc, around.config.rate(Site::SlowConsumer))
        {
            20
        } else {
            1
        };
        let end = self.plan(around);
        let execution = Execution {
            grant,
            role,
            end,
            steps,
            waiting: false,
            taken: None,
            poisoned: None,
            received: 0,
            is_last: false,
            slow,
        };
        let wait = self.pace(&execution, around);
        self.executions.insert(key(held), execution);
        around.wishes.push(Wish::Tick(held, wait));
    }

    fn plan(&self, around: &mut Around<'_>) -> End {
        let (proc, config) = (self.proc, around.config);
        let mut happens = |site: Site| around.choice.happens(site, proc, config.rate(site));
        if happens(Site::PayloadMissing) {
            return End::Fail(FailureKind::PayloadMissing);
        }
        if happens(Site::PayloadDamaged) {
            return End::Fail(FailureKind::PayloadDamaged);
        }
        if happens(Site::WorkHang) {
            return End::Never;
        }
        if around.choice.is_calm() {
            return End::Complete;
        }
        match around.choice.pick(Site::ExecutorPlan, proc, 24) {
            18 | 19 => End::Fail(FailureKind::Retryable),
            20 => End::Fail(FailureKind::Final),
            21 | 22 => End::Suspend,
            23 => End::Release,
            _ => End::Complete,
        }
    }

    fn pace(&self, execution: &Execution, around: &mut Around<'_>) -> u64 {
        let most = around.config.work_ms;
        (1 + u64::from(around.choice.pick(Site::ExecutorTime, self.proc, most))) * execution.slow
    }

    /// Looks after one execution. True if it wrote something outside, under its epoch.
    pub fn tick(&mut self, held: Held, around: &mut Around<'_>) -> bool {
        self.feed(Input::Pulse, around);
        let Some(execution) = self.executions.get(&key(held)) else { return false };
        if execution.waiting || execution.end == End::Never {
            return execution.end != End::Never;
        }
        if let Some(report) = self.next_report(held, around) {
            self.feed(Input::Reported(report), around);
        }
        true
    }

    fn next_report(&mut self, held: Held, around: &mut Around<'_>) -> Option<Report> {
        let proc = self.proc;
        let execution = self.executions.get_mut(&key(held))?;
        let mut report = Report::new(held, Then::Start);
        if execution.steps > 0 {
            execution.steps -= 1;
            let step = u64::from(execution.steps);
            execution.waiting = step % 2 == 1;
            report.then = match execution.waiting {
                true => Then::Checkpoint { state: value(step) },
                false => Then::Progress { step: 10 - step.min(10), total: 10 },
            };
            if execution.role == Role::Producer {
                execution.waiting = true;
                let n = 1 + u64::from(execution.received);
                execution.received += 1;
                report.sends = vec![Sending::Stream { edge: 0, n, value: value(n) }];
                report.then = Then::Progress { step: n, total: n };
            }
            let wait = 1 + u64::from(around.choice.pick(Site::ExecutorTime, proc, around.config.work_ms));
            let pause = wait * execution.slow;
            if !execution.waiting {
                around.wishes.push(Wish::Tick(held, pause));
            }
            return Some(report);
        }
        execution.waiting = true;
        if let (Role::Consumer(handle), End::Complete | End::Suspend) = (execution.role, execution.end)
            && !execution.is_last
            && execution.received < 6
        {
            report.consume.extend(execution.taken.take());
            report.then = Then::Receive { handle, max: 2 };
            return Some(report);
        }
        report.consume.extend(execution.taken);
        report.then = execution.ending(proc, around);
        Some(report)
    }

    /// What the Agent passes on from the partition.
    fn answered(
        &mut self,
        held: Held,
        result: Result<Reported, Refusal>,
        around: &mut Around<'_>,
    ) -> Option<Input> {
        let execution = self.executions.get_mut(&key(held))?;
        execution.waiting = false;
        let pause =
            1 + u64::from(around.choice.pick(Site::ExecutorTime, self.proc, around.config.work_ms / 4 + 1));
        let pause = pause * execution.slow;
        match result {
            Ok(Reported::Messages { messages, last }) => {
                execution.receive(&messages, last);
                around.wishes.push(Wish::Tick(held, pause));
            }
            Ok(Reported::Accepted) if execution.is_over() => drop(self.executions.remove(&key(held))),
            Ok(Reported::Accepted) => around.wishes.push(Wish::Tick(held, pause)),
            Err(Refusal::Lost) => {
                self.executions.remove(&key(held));
                return Some(Input::Stopped { held });
            }
            Err(Refusal::Rejected(_) | Refusal::Busy | Refusal::NotRunning | Refusal::NotYours) => {
                if let Err(Refusal::Rejected(Rejection::InputWaiting { handle, .. })) = result {
                    execution.role = Role::Consumer(handle);
                }
                execution.reconsider();
                around.wishes.push(Wish::Tick(held, pause));
            }
        }
        None
    }
}

impl Execution {
    /// True if what it reported last ends it.
    fn is_over(&self) -> bool {
        self.steps == 0 && (self.role == Role::Plain || self.role == Role::Producer || self.ends_now())
    }

    fn ends_now(&self) -> bool {
        self.is_last || self.received >= 6 || !matches!(self.end, End::Complete | End::Suspend)
    }

    fn receive(&mut self, messages: &[Delivery], last: bool) {
        self.is_last = last;
        self.received += 1;
        for message in messages {
            let Role::Consumer(handle) = self.role else { continue };
            self.taken = Some((handle, message.seq));
            let is_poison = message.value.hash.value() & u128::from(POISON) != 0;
            if is_poison && self.poisoned.is_none() {
                self.poisoned = Some((handle, message.seq));
                self.end = End::Fail(FailureKind::Retryable);
            }
        }
        if messages.is_empty() && !last {
            // Nothing to do until something comes.
            self.end = if self.end == End::Complete { End::Suspend } else { self.end };
            self.received = 6;
        }
    }

    /// A report came to nothing: it tries something that may go through.
    fn reconsider(&mut self) {
        self.end = match self.end {
            End::Suspend => {
                (self.received, self.is_last) = (0, false);
                End::Complete
            }
            End::Complete if matches!(self.role, Role::Consumer(_)) => End::Release,
            End::Complete => End::Fail(FailureKind::Retryable),
            End::Fail(_) | End::Release | End::Never => End::Release,
        };
        self.taken = None;
        self.poisoned = None;
    }

    fn ending(&self, proc: Proc, around: &mut Around<'_>) -> Then {
        match self.end {
            End::Complete | End::Never => Then::Complete { output: self.output() },
            End::Fail(kind) => {
                let poison = self.poisoned.filter(|_| kind == FailureKind::Retryable);
                Then::Fail { failure: Failure { kind, detail: value(13) }, poison }
            }
            End::Suspend => {
                let after = around.choice.pick(Site::ExecutorArg, proc, 6);
                let after_ms =
                    [Some(5_000), None, Some(40_000), Some(200_000), None, Some(1_000)][after as usize];
                let at_wall = (after == 4).then(|| around.now.wall + 30_000);
                Then::Suspend(Box::new(Suspension {
                    reason: "waits".into(),
                    state: value(17),
                    on_message: matches!(self.role, Role::Consumer(_)),
                    after_ms,
                    at_wall,
                }))
            }
            End::Release => Then::Release,
        }
    }

    fn output(&self) -> Value {
        value(self.grant.run.number() << 8 | u64::from(self.grant.node.get()))
    }
}
