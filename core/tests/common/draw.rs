//! What happens next, from one number and from what the world knows: mostly things that make sense, some that do not.

use super::{Memory, World, definitions, tenant};
use std::collections::BTreeSet;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::held_digest;
use tenure_core::coordinator::row::{Row, RowKey, Work};
use tenure_core::definition::Capability;
use tenure_core::id::*;
use tenure_core::lifecycle::{Phase, RunStatus};
use tenure_core::time::{Now, Time};
use tenure_core::value::Value;

/// A stream of small numbers from one number.
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn of<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        list.get(self.below(list.len() as u64) as usize)
    }
}

pub fn kind(command: &Command) -> &'static str {
    match command {
        Command::Define { .. } => "define",
        Command::SetAlias { .. } => "set alias",
        Command::Submit(_) => "submit",
        Command::Cancel(_) => "cancel",
        Command::Pause(_) => "pause",
        Command::Continue(_) => "continue",
        Command::Retry(_) => "retry",
        Command::Wake { .. } => "wake",
        Command::Send(_) => "send",
        Command::EndStream { .. } => "end stream",
        Command::Register { .. } => "register",
        Command::Heartbeat(_) => "heartbeat",
        Command::Reconcile { .. } => "reconcile",
        Command::Poll { .. } => "poll",
        Command::Claim { .. } => "claim",
        Command::Report { .. } => "report",
        Command::Drain { .. } => "drain",
        Command::Deregister { .. } => "deregister",
        Command::Acknowledge { .. } => "acknowledge",
    }
}

pub fn then_kind(then: &Then) -> &'static str {
    match then {
        Then::Accept => "accept",
        Then::Decline => "decline",
        Then::Delegate { .. } => "delegate",
        Then::Start => "start",
        Then::Receive { .. } => "receive",
        Then::Progress { .. } => "progress",
        Then::Checkpoint { .. } => "checkpoint",
        Then::Complete { .. } => "complete",
        Then::Fail { .. } => "fail",
        Then::Suspend(_) => "suspend",
        Then::Release => "release",
    }
}

/// Every kind that must have been accepted once in a campaign.
pub const KINDS: &[&str] = &[
    "define",
    "set alias",
    "submit",
    "cancel",
    "pause",
    "continue",
    "retry",
    "wake",
    "send",
    "end stream",
    "register",
    "heartbeat",
    "reconcile",
    "poll",
    "claim",
    "report",
    "drain",
    "deregister",
    "acknowledge",
    "accept",
    "decline",
    "delegate",
    "start",
    "receive",
    "progress",
    "checkpoint",
    "complete",
    "fail",
    "suspend",
    "release",
    "grant",
    "creator's claim",
    "consume",
    "send from a report",
];

fn value(n: u64) -> Value {
    Value::inline(ContentHash::new(u128::from(n) + 1), 8)
}

impl World {
    /// Does one thing.
    pub fn act(&mut self, number: u64) {
        let mut draw = Draw(number);
        let ms = [0, 0, 0, 0, 1, 1, 2, 5, 10, 30, 80, 250][draw.below(12) as usize];
        self.pass(ms);
        match draw.below(100) {
            0..=11 => self.submit(&mut draw),
            12..=27 => self.poll(&mut draw),
            28..=62 => self.report(&mut draw),
            63..=67 => self.beat(&mut draw),
            68..=73 => self.on_run(&mut draw),
            74..=80 => self.message(&mut draw),
            81..=84 => self.worker(&mut draw),
            85..=90 => self.time(&mut draw),
            91..=92 => self.claim(&mut draw),
            93 => self.acknowledge(&mut draw),
            94..=95 => self.repeat(&mut draw),
            96 => self.alias(&mut draw),
            97 => self.reconcile(&mut draw),
            _ => self.feed(Input::Pulse),
        }
    }

    fn any_worker(&mut self, draw: &mut Draw) -> Option<(WorkerKey, Incarnation)> {
        let known: Vec<_> = self.workers.iter().map(|(key, (life, _))| (*key, *life)).collect();
        if known.len() < 3 {
            self.register(draw);
        }
        let (key, life) = *draw.of(&known)?;
        let life = if draw.one_in(40) { Incarnation::new(life.get().saturating_sub(1)) } else { life };
        Some((key, life))
    }

    fn register(&mut self, draw: &mut Draw) {
        let mut spec = WorkerSpec { slots: 1 + draw.below(3) as u32, ..WorkerSpec::default() };
        spec.quality = draw.below(101) as u8;
        if draw.one_in(2) {
            spec.capabilities.push(("gpu".into(), Capability::Number(1 + draw.below(3))));
        }
        if !draw.one_in(3) {
            spec.executors.push("cpu".into());
        }
        let worker = WorkerId::new(u128::from(draw.below(4)) + 1);
        self.say(tenant(draw.below(2)), Command::Register { worker, spec: Box::new(spec) });
    }

    fn submit(&mut self, draw: &mut Draw) {
        let definitions = definitions::all();
        let with_inbox: Vec<_> =
            definitions.iter().filter(|one| one.nodes.iter().any(|node| !node.handles.is_empty())).collect();
        let any = draw.of(&definitions).expect("there are some");
        let name = &draw.of(&with_inbox).filter(|_| draw.one_in(3)).copied().unwrap_or(any).name;
        let mut submit = Submit::new(name, value(draw.below(3)), draw.next());
        submit.priority = [10, 128, 200][draw.below(3) as usize];
        submit.notify = draw.one_in(4);
        let whose = tenant(draw.below(2));
        if draw.one_in(3) {
            submit.key = Some(self.key(whose, draw));
        }
        if draw.one_in(3) {
            let limit = 1 + draw.below(2) as u32;
            submit.concurrency = Some(Concurrency { key: KeyHash::new(u128::from(draw.below(2))), limit });
        }
        if draw.one_in(5) {
            submit.deadline_ms = Some(500 + draw.below(8_000));
        }
        if draw.one_in(8) {
            submit.which = [Which::Alias("stable".into()), Which::Version(DefinitionVersion::new(1))]
                [draw.below(2) as usize]
                .clone();
        }
        if draw.one_in(4) {
            let mine = self.workers.iter().filter(|(key, _)| key.tenant == whose);
            let mine: Vec<_> = mine.map(|(key, (life, _))| (key.worker, *life)).collect();
            submit.claim = draw.of(&mine).copied();
        }
        self.say(whose, Command::Submit(Box::new(submit)));
    }

    /// A new key, or one that was used before; a key has one mint time, whoever repeats it.
    fn key(&mut self, whose: TenantId, draw: &mut Draw) -> SubmitKey {
        let mut used: Vec<SubmitKey> =
            self.keys.iter().filter(|(by, _)| *by == whose).map(|(_, key)| *key).collect();
        if used.is_empty() || draw.one_in(3) {
            // The machine's own time, as an answer showed it, or some time ago, or a lie.
            let now = self.audit.last().map_or(0, |stamped| stamped.at.as_ms());
            let minted = match draw.below(8) {
                0 => now.saturating_sub(draw.below(40_000)),
                1 => now + draw.below(5_000),
                _ => now,
            };
            let key = KeyHash::new(self.keys.len() as u128 + 1);
            let (fingerprint, minted_at) = (ContentHash::new(1), Time::from_ms(minted));
            self.keys.push((whose, SubmitKey { key, fingerprint, minted_at }));
            used = vec![SubmitKey { key, fingerprint, minted_at }];
        }
        let recent = used.len().saturating_sub(6);
        let mut key = *draw.of(&used[recent..]).expect("one was just made");
        if draw.one_in(8) {
            key.fingerprint = ContentHash::new(2);
        }
        key
    }

    fn poll(&mut self, draw: &mut Draw) {
        let Some((key, incarnation)) = self.any_worker(draw) else { return };
        let last = self.polls.entry(key).or_default();
        *last += u64::from(!draw.one_in(6));
        let poll = PollId::new(*last);
        let (worker, max, wait) = (key.worker, 1 + draw.below(3) as u32, draw.one_in(2));
        self.say(key.tenant, Command::Poll { worker, incarnation, poll, max, wait });
    }

    fn claim(&mut self, draw: &mut Draw) {
        let Some((key, incarnation)) = self.any_worker(draw) else { return };
        let ready: Vec<(RunId, NodeIx)> = self
            .works()
            .filter(|(_, _, work)| work.phase == Phase::Ready)
            .map(|(run, node, _)| (run, node))
            .collect();
        let Some((run, node)) = draw.of(&ready).copied() else { return };
        let last = self.polls.entry(key).or_default();
        *last += 1;
        let poll = PollId::new(*last);
        self.say(key.tenant, Command::Claim { worker: key.worker, incarnation, poll, run, node });
    }

    /// Every piece of work in the store.
    fn works(&self) -> impl Iterator<Item = (RunId, NodeIx, &Work)> {
        self.store.rows().flat_map(|row| match row {
            Row::Run(row) => {
                let whole = row.whole.as_deref().map(|work| (row.head.id, NodeIx::WHOLE_RUN, work));
                let node = row.node.as_ref().map(|work| (row.head.id, NodeIx::new(0), work));
                whole.into_iter().chain(node).collect::<Vec<_>>()
            }
            Row::Node(row) => vec![(row.run, row.node, &row.work)],
            _ => Vec::new(),
        })
    }

    fn work(&self, run: RunId, node: NodeIx) -> Option<&Work> {
        match self.store.get(&RowKey::Node(run, node)) {
            Some(Row::Node(row)) => Some(&row.work),
            _ => match self.store.get(&RowKey::Run(run)) {
                Some(Row::Run(row)) if node.is_whole_run() => row.whole.as_deref(),
                Some(Row::Run(row)) if node.get() == 0 => row.node.as_ref(),
                _ => None,
            },
        }
    }

    /// True if the store says that this is what is held now.
    fn is_current(&self, memory: &Memory) -> bool {
        let Held { run, node, epoch } = memory.held;
        let whole = self.work(run, NodeIx::WHOLE_RUN);
        let grant = whole.or_else(|| self.work(run, node));
        grant.is_some_and(|work| work.phase.is_held() && work.epoch == epoch)
    }

    fn report(&mut self, draw: &mut Draw) {
        let current: Vec<Memory> =
            self.memories.iter().filter(|memory| self.is_current(memory)).copied().collect();
        let from = if current.is_empty() || draw.one_in(12) { self.memories.clone() } else { current };
        let Some(memory) = draw.of(&from).copied() else { return self.poll(draw) };
        let mut reports = vec![self.one_report(memory, draw)];
        if draw.one_in(6) {
            reports.push(self.one_report(memory, draw));
        }
        let Memory { key, mut incarnation, .. } = memory;
        if draw.one_in(40) {
            incarnation = self.workers.get(&key).map_or(incarnation, |known| known.0);
        }
        self.say(key.tenant, Command::Report { worker: key.worker, incarnation, reports });
    }

    fn one_report(&self, memory: Memory, draw: &mut Draw) -> Report {
        let mut held = memory.held;
        // The holder of a whole run speaks of its nodes too.
        let phases: Vec<NodeIx> = self
            .works()
            .filter(|(run, node, work)| {
                *run == held.run
                    && !node.is_whole_run()
                    && matches!(work.phase, Phase::Ready | Phase::Processing)
            })
            .map(|(_, node, _)| node)
            .collect();
        let whole = self.work(held.run, NodeIx::WHOLE_RUN);
        if whole.is_some_and(|work| work.is_claimed()) && held.node.is_whole_run() && !draw.one_in(4) {
            held.node = draw.of(&phases).copied().unwrap_or(held.node);
        }
        let phase = self.work(held.run, held.node).map_or(Phase::Waiting, |work| work.phase);
        let mut report = Report::new(held, self.then(phase, held, draw));
        let inbox = |handle| match self.store.get(&RowKey::Inbox(held.run, held.node, HandleIx::new(handle)))
        {
            Some(Row::Inbox(row)) => Some(row.clone()),
            _ => None,
        };
        let is_blaming = matches!(report.then, Then::Fail { poison: Some(_), .. });
        for handle in (0..2).filter(|_| !is_blaming) {
            if let Some(row) = inbox(handle).filter(|row| row.has_claimed() || draw.one_in(20))
                && draw.one_in(2)
            {
                let most = row.claimed_through.get().saturating_sub(row.settled.get());
                let through = row.settled.get() + 1 + draw.below(most.max(1));
                report.consume.push((HandleIx::new(handle), Seq::new(through)));
            }
        }
        if phase == Phase::Processing && draw.one_in(3) {
            self.add_sends(&mut report, draw);
        }
        report
    }

    fn add_sends(&self, report: &mut Report, draw: &mut Draw) {
        let next = match self.store.get(&RowKey::Inbox(report.run, NodeIx::new(1), HandleIx::new(0))) {
            Some(Row::Inbox(row)) => row.sources.get(1).map(|source| source.stored + 1),
            _ => None,
        };
        if let Some(n) = next.filter(|_| report.node.get() == 0) {
            for more in 0..1 + draw.below(2) {
                report.sends.push(Sending::Stream { edge: 0, n: n + more, value: value(n) });
            }
        } else if let Some((_, run)) = draw.of(&self.runs).copied().filter(|_| draw.one_in(2)) {
            let (node, handle, id) =
                (NodeIx::new(0), HandleIx::new(1), MessageId::new(u128::from(draw.below(9))));
            report.sends.push(Sending::Run { run, node, handle, id, value: value(1) });
        }
    }

    fn then(&self, phase: Phase, held: Held, draw: &mut Draw) -> Then {
        let has =
            |handle| self.store.get(&RowKey::Inbox(held.run, held.node, HandleIx::new(handle))).is_some();
        let handle = HandleIx::new(if has(1) { draw.below(2) as u16 } else { 0 });
        let has_inbox = has(0);
        match phase {
            Phase::Assigned => match draw.below(8) {
                0..=4 => Then::Accept,
                5 => Then::Decline,
                _ => Then::Delegate { to: WorkerId::new(u128::from(draw.below(4)) + 1) },
            },
            Phase::Claimed | Phase::Ready if !draw.one_in(5) => match draw.below(8) {
                0..=5 => Then::Start,
                6 => Then::Complete { output: value(draw.below(3)) },
                _ => Then::Release,
            },
            Phase::Processing if has_inbox && draw.one_in(2) => match draw.below(5) {
                0..=2 => Then::Receive { handle, max: 1 + draw.below(3) as u32 },
                3 => Then::Suspend(Box::new(self.suspension(draw))),
                _ => Then::Fail { failure: failure(draw), poison: self.poison(held, handle) },
            },
            _ => match draw.below(14) {
                0..=5 => Then::Complete { output: value(draw.below(3)) },
                6..=7 => Then::Fail { failure: failure(draw), poison: None },
                8 => Then::Release,
                9..=10 => Then::Suspend(Box::new(self.suspension(draw))),
                11 => Then::Checkpoint { state: value(draw.below(9)) },
                12 => Then::Progress { step: draw.below(9), total: 9 },
                _ => Then::Start,
            },
        }
    }

    fn poison(&self, held: Held, handle: HandleIx) -> Option<(HandleIx, Seq)> {
        match self.store.get(&RowKey::Inbox(held.run, held.node, handle)) {
            Some(Row::Inbox(row)) if row.has_claimed() => Some((handle, Seq::new(row.settled.get() + 1))),
            _ => None,
        }
    }

    fn suspension(&self, draw: &mut Draw) -> Suspension {
        let after_ms = [None, Some(300), Some(2_000), Some(15_000)][draw.below(4) as usize];
        let at_wall = draw.one_in(4).then(|| self.now.wall + draw.below(6_000));
        Suspension { reason: "input".into(), state: value(7), on_message: draw.one_in(2), after_ms, at_wall }
    }

    fn beat(&mut self, draw: &mut Draw) {
        let Some((key, incarnation)) = self.any_worker(draw) else { return };
        let session = self.workers.get(&key).map_or(Session::new(0), |known| known.1);
        let mine = self.memories.iter().filter(|memory| memory.key == key && self.is_current(memory));
        let held = held_digest(mine.map(|memory| memory.held.epoch));
        let load = draw.below(120) as u8;
        self.say(
            key.tenant,
            Command::Heartbeat(Heartbeat { worker: key.worker, incarnation, session, held, load }),
        );
    }

    fn reconcile(&mut self, draw: &mut Draw) {
        let Some((key, incarnation)) = self.any_worker(draw) else { return };
        let held =
            self.memories.iter().filter(|memory| memory.key == key).map(|memory| memory.held).collect();
        self.say(key.tenant, Command::Reconcile { worker: key.worker, incarnation, held });
    }

    fn on_run(&mut self, draw: &mut Draw) {
        let Some((whose, run)) = draw.of(&self.runs).copied() else { return };
        let head = self.heads().find(|head| head.id == run);
        let (status, version) =
            head.map_or((RunStatus::Running, Version::new(1)), |head| (head.status, head.version));
        let if_version = match draw.below(3) {
            0 => Some(version),
            1 if draw.one_in(4) => Some(Version::new(version.get() + 1)),
            _ => None,
        };
        let on = OnRun { run, if_version };
        let whose = if draw.one_in(30) { tenant(draw.below(2)) } else { whose };
        self.say(
            whose,
            match (status, draw.below(6)) {
                (RunStatus::Failed | RunStatus::Cancelled, 0..=3) => Command::Retry(on),
                (RunStatus::Paused, 0..=3) => Command::Continue(on),
                (RunStatus::Suspended, 0..=1) => {
                    Command::Wake { run, node: NodeIx::new(draw.below(3) as u32) }
                }
                (_, 0..=1) => Command::Cancel(on),
                (_, 2..=4) => Command::Pause(on),
                _ => Command::Retry(on),
            },
        );
    }

    fn message(&mut self, draw: &mut Draw) {
        let ended: BTreeSet<RunId> =
            self.heads().filter(|head| head.ending.is_some()).map(|head| head.id).collect();
        let inboxes: Vec<_> = self
            .store
            .rows()
            .filter_map(|row| match row {
                Row::Inbox(row) if !(row.closed || ended.contains(&row.run)) || draw.one_in(9) => {
                    Some(row.clone())
                }
                _ => None,
            })
            .collect();
        let Some(row) = draw.of(&inboxes).cloned() else { return };
        let whose = self.runs.iter().find(|(_, run)| *run == row.run).map_or(tenant(0), |(whose, _)| *whose);
        let (run, node, handle) = (row.run, row.node, row.handle);
        if !row.sources.is_empty() && draw.one_in(4) {
            let count = row.sources[0].stored;
            return self.say(whose, Command::EndStream { run, node, handle, source: 0, count });
        }
        let id = match row.sources.first() {
            Some(source) if draw.one_in(2) => {
                MessageKey::Stream { source: 0, n: source.stored + draw.below(3).min(1) }
            }
            _ => MessageKey::Own(MessageId::new(u128::from(draw.below(8)))),
        };
        let cursor = draw.one_in(2).then(|| row.cursor_stored.unwrap_or(0) + draw.below(4));
        let cursor = cursor.filter(|_| row.sources.is_empty() && handle.get() == 0);
        let value = value(draw.below(6) / 5);
        self.say(whose, Command::Send(Box::new(SendCommand { run, node, handle, id, value, cursor })));
    }

    fn worker(&mut self, draw: &mut Draw) {
        let Some((key, incarnation)) = self.any_worker(draw) else { return };
        let worker = key.worker;
        match draw.below(8) {
            0..=2 => self.register(draw),
            3..=6 => self.say(key.tenant, Command::Drain { worker, on: draw.one_in(2) }),
            _ => {
                let incarnation = draw.one_in(2).then_some(incarnation);
                self.say(key.tenant, Command::Deregister { worker, incarnation });
            }
        }
    }

    fn time(&mut self, draw: &mut Draw) {
        match draw.below(12) {
            0..=5 => {
                // Exactly when something is due, or a moment around it.
                if let Some(deadline) = self.machine.next_deadline() {
                    let ms = deadline.mono.saturating_sub(self.now.mono) + draw.below(3);
                    self.pass(ms.saturating_sub(1).min(6_000));
                }
                self.feed(Input::Pulse);
            }
            6 => {
                self.pass(2_000 + draw.below(14_000));
                self.feed(Input::Pulse);
            }
            7 => {
                let wall = [0, self.now.wall + 3_600_000, self.now.wall.saturating_sub(7_000)]
                    [draw.below(3) as usize];
                self.now = Now::new(self.now.mono, wall);
                self.feed(Input::Pulse);
            }
            8 => self.feed(Input::Recover),
            9 => self.fork(),
            _ => self.feed(Input::Pulse),
        }
    }

    fn acknowledge(&mut self, draw: &mut Draw) {
        let Some((whose, id)) = draw.of(&self.owed).copied() else { return };
        self.say(whose, Command::Acknowledge { id, taken: !draw.one_in(3) });
    }

    fn repeat(&mut self, draw: &mut Draw) {
        if let Some(envelope) = draw.of(&self.said).cloned() {
            self.say(envelope.tenant, envelope.command);
        }
    }

    fn alias(&mut self, draw: &mut Draw) {
        let definitions = definitions::all();
        let definition = draw.of(&definitions).expect("there are some").name.clone();
        let version = DefinitionVersion::new(1 + draw.below(10) as u32 / 9);
        self.say(tenant(draw.below(2)), Command::SetAlias { definition, alias: "stable".into(), version });
    }
}

fn failure(draw: &mut Draw) -> Failure {
    let kinds = [
        FailureKind::Retryable,
        FailureKind::Retryable,
        FailureKind::Retryable,
        FailureKind::Final,
        FailureKind::PayloadMissing,
    ];
    Failure { kind: kinds[draw.below(5) as usize], detail: value(draw.below(4)) }
}
