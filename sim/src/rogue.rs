//! A worker that keeps to no rule: it holds on to what it lost, reports twice and differently, claims what it should not, and
//! comes back from the dead. Whatever it does must be harmless.

use crate::choice::Choice;
use crate::client::{value, worker_id};
use crate::packet::{Proc, Reply, Told};
use crate::site::Site;
use tenure_core::agent::Notice;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::{Answer, Grant};
use tenure_core::coordinator::held_digest;
use tenure_core::id::*;

/// A worker that keeps to no rule.
#[derive(Debug, Clone)]
pub struct Rogue {
    proc: Proc,
    worker: WorkerId,
    /// Per partition: the lives it had, and its last session.
    lives: Vec<(Vec<Incarnation>, Session)>,
    /// Everything it was ever given, held or not.
    grants: Vec<Grant>,
    polls: u64,
    requests: u64,
}

impl Rogue {
    /// A rogue that knows nothing.
    pub fn new(proc: Proc, index: usize, partitions: u16) -> Self {
        let lives = vec![(Vec::new(), Session::new(0)); usize::from(partitions)];
        Self { proc, worker: worker_id(index), lives, grants: Vec::new(), polls: 0, requests: 0 }
    }

    /// Its next request number.
    pub fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId::new((self.proc as u64) << 40 | self.requests)
    }

    /// An answer came.
    pub fn told(&mut self, told: Told) {
        let (lives, session) = &mut self.lives[usize::from(told.partition)];
        match told.reply {
            Reply::Decided(Ok(Answer::Registered { incarnation, session: first })) => {
                lives.push(incarnation);
                *session = first;
            }
            Reply::Decided(Ok(Answer::Polled { grants, .. })) => self.keep(grants),
            Reply::Decided(Ok(Answer::Reconciled { missed, .. })) => self.keep(missed),
            Reply::Decided(Ok(Answer::Beat { session: now, .. })) => *session = now,
            _ => {}
        }
    }

    fn keep(&mut self, grants: Vec<Grant>) {
        self.grants.extend(grants);
        let too_many = self.grants.len().saturating_sub(12);
        self.grants.drain(..too_many);
    }

    /// It was told something unasked.
    pub fn noticed(&mut self, notice: Notice) {
        if let Notice::Offer(grant) | Notice::Hand(grant) = notice {
            self.keep(vec![*grant]);
        }
    }

    fn arg(&self, bound: usize, choice: &mut Choice) -> usize {
        choice.pick(Site::RogueArg, self.proc, bound as u32) as usize
    }

    /// What it does next, and in which partition.
    pub fn act(&mut self, runs: &[RunId], choice: &mut Choice) -> Option<(u16, Command)> {
        let partition = self.arg(self.lives.len(), choice);
        let worker = self.worker;
        let (lives, session) = &self.lives[partition];
        let (old, session) = (lives.len().saturating_sub(1), *session);
        let Some(incarnation) = lives.last().copied() else {
            let registers = choice.pick(Site::RogueOp, self.proc, 2) == 1;
            return registers.then(|| (partition as u16, self.register()));
        };
        let command = match choice.pick(Site::RogueOp, self.proc, 12) {
            0 => return None,
            1 => self.register(),
            2 | 3 => {
                let epochs = self.grants.iter().map(|grant| grant.epoch);
                Command::Heartbeat(Heartbeat {
                    worker,
                    incarnation,
                    session,
                    held: held_digest(epochs),
                    load: 50,
                })
            }
            4 | 5 => {
                self.polls += u64::from(self.arg(3, choice) != 2);
                let max = 1 + self.arg(3, choice) as u32;
                Command::Poll { worker, incarnation, poll: PollId::new(self.polls), max, wait: max == 1 }
            }
            6 => {
                self.polls += 1;
                let run = *runs.get(self.arg(runs.len(), choice))?;
                let node = [NodeIx::new(0), NodeIx::WHOLE_RUN, NodeIx::new(1)][self.arg(3, choice)];
                let claim = Command::Claim { worker, incarnation, poll: PollId::new(self.polls), run, node };
                return Some((run.partition(), claim));
            }
            7 => {
                let of_here =
                    self.grants.iter().filter(|grant| usize::from(grant.run.partition()) == partition);
                Command::Reconcile { worker, incarnation, held: of_here.map(Grant::held).take(2).collect() }
            }
            _ => return self.report(old, choice),
        };
        Some((partition as u16, command))
    }

    fn register(&self) -> Command {
        let spec = WorkerSpec {
            executors: vec!["cpu".into()],
            slots: 2,
            quality: 90,
            rank: 90,
            ..WorkerSpec::default()
        };
        Command::Register { worker: self.worker, spec: Box::new(spec) }
    }

    /// A report on anything it was ever given, in any of its lives.
    fn report(&mut self, old: usize, choice: &mut Choice) -> Option<(u16, Command)> {
        let back = self.arg(self.grants.len(), choice);
        let grant = self.grants.get(self.grants.len().checked_sub(back + 1)?)?.clone();
        let partition = usize::from(grant.run.partition());
        let lives = &self.lives[partition].0;
        let older = self.arg(8, choice) == 7;
        let incarnation =
            *lives.get(if older { old.saturating_sub(1) } else { lives.len().checked_sub(1)? })?;
        let failure = Failure { kind: FailureKind::Retryable, detail: value(5) };
        let then = match self.arg(13, choice) {
            0..=2 => Then::Start,
            3 => Then::Complete { output: value(1) },
            4 => Then::Complete { output: value(2) },
            5 => Then::Fail { failure, poison: None },
            6 => Then::Release,
            7 => Then::Accept,
            8 => Then::Decline,
            9 => Then::Delegate { to: worker_id(self.arg(4, choice)) },
            10 => Then::Receive { handle: HandleIx::new(self.arg(2, choice) as u16), max: 1 },
            11 => Then::Progress { step: 1, total: 2 },
            _ => Then::Suspend(Box::new(Suspension {
                reason: "rogue".into(),
                state: value(3),
                on_message: true,
                after_ms: Some(2_000),
                at_wall: None,
            })),
        };
        let mut report = Report::new(grant.held(), then);
        report.attempt = (self.arg(2, choice) == 1).then_some(grant.attempt);
        if self.arg(6, choice) == 5 {
            let to = Sending::Run {
                run: grant.run,
                node: NodeIx::new(0),
                handle: HandleIx::new(1),
                id: MessageId::new(self.polls.into()),
                value: value(8),
            };
            report.sends = vec![to];
        }
        let command = Command::Report { worker: self.worker, incarnation, reports: vec![report] };
        Some((partition as u16, command))
    }
}
