//! The machine of a script, its store, its clocks, and what each worker believes.

use super::gate::{self, Gates};
use super::names::Names;
use super::print;
use super::words::{Fault, time_text};
use std::collections::{BTreeMap, BTreeSet};
use tenure_core::Coordinator;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::{Command, Envelope, Held, Input, Loaded};
use tenure_core::coordinator::effect::{Answer, Effect, Grant, Output, Reported};
use tenure_core::coordinator::event::StopReason;
use tenure_core::coordinator::memory::MemoryStore;
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::coordinator::row::Change;
use tenure_core::id::*;
use tenure_core::limits::Limits;
use tenure_core::time::{Now, Time};

/// Pulses that one line may cause; more means that something is due again and again.
const MOST_PULSES: u32 = 100_000;

/// What a key that a grant carries is of: a piece of work, or one attempt at it.
type KeyOf = (RunId, NodeIx, Option<(Series, Attempt)>);

/// What a worker believes of itself, from the answers it got.
#[derive(Debug, Clone, Default)]
pub(super) struct Belief {
    /// Its life number.
    pub(super) incarnation: Incarnation,
    /// Its session.
    pub(super) session: Session,
    /// Its last poll.
    pub(super) poll: u64,
    /// What it holds.
    pub(super) held: BTreeMap<(RunId, NodeIx), Epoch>,
    /// The last epoch it had of each piece of work, held or not: a zombie reports under it.
    pub(super) epochs: BTreeMap<(RunId, NodeIx), Epoch>,
}

/// A machine and everything around it.
#[derive(Debug)]
pub(super) struct World {
    machine: Coordinator,
    /// The machine that was lost at the last crash and told to recover: fed the same, it must say the same (S46).
    twin: Option<Coordinator>,
    limits: Limits,
    /// In a story of Shards, these decide, and the machine here is not spoken to.
    pub(super) gates: Option<Gates>,
    /// What was committed.
    pub(super) store: MemoryStore,
    /// Names, both ways.
    pub(super) names: Names,
    /// What workers believe.
    pub(super) beliefs: BTreeMap<WorkerKey, Belief>,
    /// What was seen: refusals as `Rejection::X` and `Ineligible::Y`, answers to why as `Waiting::Z`.
    pub(super) seen: BTreeSet<String>,
    mono: u64,
    wall: u64,
    /// Machine time, and the monotonic reading, when the machine last recovered.
    base: (Time, u64),
    requests: u64,
    /// Stable and attempt keys that were handed out, and for what (S34).
    keys: BTreeMap<u128, KeyOf>,
    lines: Vec<String>,
    /// What the machine did wrong, whatever the script says.
    pub(super) broken: Option<Fault>,
}

impl World {
    /// A new partition that was told to recover.
    pub(super) fn new(limits: Limits) -> Result<Self, Fault> {
        let mut world = Self {
            machine: Coordinator::new(0, limits.clone()),
            twin: None,
            limits,
            gates: None,
            store: MemoryStore::default(),
            names: Names::default(),
            beliefs: BTreeMap::new(),
            seen: BTreeSet::new(),
            mono: 5_000,
            wall: 1_800_000_000_000,
            base: (Time::ZERO, 5_000),
            requests: 0,
            keys: BTreeMap::new(),
            lines: Vec::new(),
            broken: None,
        };
        world.feed(Input::Recover)?;
        world.lines.clear();
        Ok(world)
    }

    /// What was said since the last time.
    pub(super) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// Says something in the output.
    pub(super) fn say(&mut self, line: String) {
        self.lines.push(line);
    }

    /// Machine time.
    pub(super) fn machine(&self) -> &Coordinator {
        &self.machine
    }

    /// Machine time.
    pub(super) fn now(&self) -> Time {
        self.base.0.after_ms(self.mono - self.base.1)
    }

    /// What the wall clock shows.
    pub(super) fn wall(&self) -> u64 {
        self.wall
    }

    /// Sets the wall clock.
    pub(super) fn set_wall(&mut self, wall: u64) {
        self.wall = wall;
    }

    /// Lets time pass without telling the machine.
    pub(super) fn pass(&mut self, ms: u64) {
        self.mono += ms;
        self.wall += ms;
    }

    /// Lets time pass, and pulses at every deadline on the way.
    pub(super) fn pass_and_pulse(&mut self, ms: u64) -> Result<(), Fault> {
        if self.gates.is_some() {
            return gate::pass_and_pulse(self, ms);
        }
        let until = self.mono + ms;
        for _ in 0..MOST_PULSES {
            match self.machine.next_deadline() {
                Some(deadline) if deadline.mono <= until => {
                    self.pass(deadline.mono.saturating_sub(self.mono));
                    let said = self.lines.len();
                    self.feed(Input::Pulse)?;
                    if self.lines.len() > said {
                        let now = time_text(self.now().as_ms());
                        self.lines.insert(said, format!("@ {now}"));
                    }
                }
                _ => {
                    self.pass(until - self.mono);
                    return Ok(());
                }
            }
        }
        let next = self.machine.next_deadline();
        self.breaks(format!("after {MOST_PULSES} pulses something is still due: {next:?}"))
    }

    /// A number for a request.
    pub(super) fn next_request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId::new(self.requests)
    }

    /// The bounds of this story.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What the monotonic clock shows.
    pub(super) fn mono(&self) -> u64 {
        self.mono
    }

    /// How many lines were said.
    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Says something before what was said from there on.
    pub(super) fn say_at(&mut self, at: usize, line: String) {
        self.lines.insert(at, line);
    }

    /// Asks the machine for something.
    pub(super) fn ask(&mut self, tenant: TenantId, command: Command) -> Result<(), Fault> {
        let request = self.next_request();
        if self.gates.is_some() {
            return gate::ask(self, request, tenant, command);
        }
        self.feed(Input::Command(Envelope { request, tenant, command }))
    }

    /// Drops the machine and restores it from the rows after `down_ms`.
    pub(super) fn crash(&mut self, down_ms: u64) -> Result<(), Fault> {
        let restored = self.restored()?;
        self.twin = Some(std::mem::replace(&mut self.machine, restored));
        self.wall += down_ms;
        // A process that starts anew has another zero of its monotonic clock.
        self.mono = 77;
        self.recover()
    }

    /// Tells the machine to recover.
    pub(super) fn recover(&mut self) -> Result<(), Fault> {
        let base = match self.store.meta() {
            None => Time::ZERO,
            Some(meta) => {
                let passed = self.wall.saturating_sub(meta.wall).min(self.limits.restart_jump_ms);
                meta.time.after_ms(passed)
            }
        };
        self.base = (base, self.mono);
        self.feed(Input::Recover)
    }

    /// A machine from the rows committed so far; it must succeed.
    pub(super) fn restored(&self) -> Result<Coordinator, Fault> {
        if self.store.meta().is_none() {
            return Ok(Coordinator::new(0, self.limits.clone()));
        }
        let restored = Coordinator::restore(self.limits.clone(), self.store.resident().cloned());
        restored.map_err(|bad| format!("the rows do not restore: {bad}"))
    }

    /// Feeds the machine, commits its rows, gives it what it needs, and prints what it says.
    fn feed(&mut self, input: Input) -> Result<(), Fault> {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let (mut out, mut changes) = (Output::default(), Vec::new());
            let (speaker, now) = (speaker(&input), Now::new(self.mono, self.wall));
            let as_given = self.twin.is_some().then(|| input.clone());
            self.machine.handle(now, input, &mut out);
            self.machine.take_changes(&mut changes);
            if let (Some(twin), Some(input)) = (&mut self.twin, as_given) {
                let same = say_the_same(twin, now, input, (&out, &changes));
                same.or_else(|fault| self.breaks(fault))?;
            }
            self.store.commit(changes);
            out.audit.iter().for_each(|stamped| self.names.learn(&stamped.event));
            for effect in &out.effects {
                self.hear(speaker.as_ref(), effect)?;
            }
            print::output(self, &out);
            for load in out.loads {
                let rows = self.store.find(&load.needs);
                inputs.push(Input::Loaded(Loaded { load, rows }));
            }
        }
        Ok(())
    }

    /// The machine did something wrong.
    pub(super) fn breaks(&mut self, fault: Fault) -> Result<(), Fault> {
        self.broken = Some(fault.clone());
        Err(fault)
    }

    /// Workers learn from what reaches them.
    pub(super) fn hear(&mut self, speaker: Option<&Speaker>, effect: &Effect) -> Result<(), Fault> {
        match effect {
            Effect::Offer { worker, grant } => {
                self.check_keys(grant)?;
                self.belief(*worker).epochs.insert((grant.run, grant.node), grant.epoch);
            }
            Effect::Hand { worker, grant } => {
                self.check_keys(grant)?;
                self.belief(*worker).epochs.insert((grant.run, grant.node), grant.epoch);
            }
            Effect::Stop { worker, held, reason } => {
                let is_over = match reason {
                    StopReason::Fenced => true,
                    StopReason::NotNeeded => held.node.is_whole_run(),
                    StopReason::RunEnding | StopReason::Preempted => false,
                };
                if is_over {
                    self.let_go(*worker, *held);
                }
            }
            Effect::Reply { result: Ok(answer), .. } => {
                if let Some(speaker) = speaker {
                    self.answered(speaker, answer)?;
                }
            }
            Effect::Reply { result: Err(rejection), .. } => self.note(rejection),
            _ => {}
        }
        Ok(())
    }

    /// What a worker believes.
    pub(super) fn belief(&mut self, worker: WorkerKey) -> &mut Belief {
        self.beliefs.entry(worker).or_default()
    }

    fn let_go(&mut self, worker: WorkerKey, held: Held) {
        let belief = self.belief(worker);
        if belief.held.get(&(held.run, held.node)) == Some(&held.epoch) {
            belief.held.remove(&(held.run, held.node));
        }
    }

    fn take(&mut self, worker: WorkerKey, grant: &Grant) -> Result<(), Fault> {
        self.check_keys(grant)?;
        let belief = self.belief(worker);
        belief.held.insert((grant.run, grant.node), grant.epoch);
        belief.epochs.insert((grant.run, grant.node), grant.epoch);
        Ok(())
    }

    fn answered(&mut self, speaker: &Speaker, answer: &Answer) -> Result<(), Fault> {
        let worker = speaker.worker;
        match answer {
            Answer::Registered { incarnation, session } => {
                let epochs = std::mem::take(&mut self.belief(worker).epochs);
                let (incarnation, session) = (*incarnation, *session);
                *self.belief(worker) = Belief { incarnation, session, epochs, ..Belief::default() };
            }
            Answer::Beat { session, .. } => self.belief(worker).session = *session,
            Answer::Polled { session, grants } => {
                self.belief(worker).session = *session;
                grants.iter().try_for_each(|grant| self.take(worker, grant))?;
            }
            Answer::Submitted { held: Some(held), .. } => {
                let belief = self.belief(worker);
                belief.held.insert((held.run, held.node), held.epoch);
                belief.epochs.insert((held.run, held.node), held.epoch);
            }
            Answer::Reconciled { session, lost, missed } => {
                self.belief(worker).session = *session;
                lost.iter().for_each(|held| self.let_go(worker, *held));
                missed.iter().try_for_each(|grant| self.take(worker, grant))?;
            }
            Answer::Reported(results) => {
                for (result, (held, meaning)) in results.iter().zip(&speaker.reports) {
                    match result {
                        Ok(Reported::Accepted) if *meaning == Meaning::Begun => {
                            self.belief(worker).held.insert((held.run, held.node), held.epoch);
                        }
                        Ok(_) if *meaning == Meaning::Over => self.let_go(worker, *held),
                        Ok(_) => {}
                        Err(rejection) => {
                            self.note(rejection);
                            if matches!(rejection, Rejection::StaleEpoch { .. } | Rejection::Stopping { .. })
                            {
                                self.let_go(worker, *held);
                            }
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn note(&mut self, rejection: &Rejection) {
        let name = |debug: String| {
            debug.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default().to_string()
        };
        self.seen.insert(format!("Rejection::{}", name(format!("{rejection:?}"))));
        if let Rejection::NotEligible { why } = rejection {
            self.seen.insert(format!("Ineligible::{}", name(format!("{why:?}"))));
        }
    }

    /// The stable key is the same on every attempt and of nothing else; the attempt key is of one attempt (S34).
    fn check_keys(&mut self, grant: &Grant) -> Result<(), Fault> {
        let of_attempt = Some((grant.series, grant.attempt));
        for (key, of) in [(grant.stable_key, None), (grant.attempt_key, of_attempt)] {
            let is = (grant.run, grant.node, of);
            let first = *self.keys.entry(key).or_insert(is);
            if first != is {
                return self.breaks(format!("the key of {first:?} was given to {is:?} too"));
            }
        }
        let stable = self.keys.values().filter(|of| **of == (grant.run, grant.node, None)).count();
        if stable == 1 { Ok(()) } else { self.breaks("a node has two stable keys".into()) }
    }
}

/// Fails unless the machine that was lost says and writes what the restored one did.
fn say_the_same(
    lost: &mut Coordinator,
    now: Now,
    input: Input,
    (said, written): (&Output, &Vec<Change>),
) -> Result<(), Fault> {
    let (mut out, mut changes) = (Output::default(), Vec::new());
    lost.handle(now, input, &mut out);
    lost.take_changes(&mut changes);
    if (&out.effects, &out.audit, &out.loads, &changes) == (&said.effects, &said.audit, &said.loads, written)
    {
        return Ok(());
    }
    let restored = format!("{said:#?} {written:#?}");
    let lost = format!("{out:#?} {changes:#?}");
    let differs = restored.lines().zip(lost.lines()).find(|(restored, lost)| restored != lost);
    match differs {
        None => Err("the restored machine says more or less than the lost one would".into()),
        Some((restored, lost)) => Err(format!(
            "the restored machine says {:?}, and the lost one would say {:?}",
            restored.trim(),
            lost.trim()
        )),
    }
}

/// Who asked, and what its reports would mean for what it holds.
#[derive(Debug)]
pub(super) struct Speaker {
    worker: WorkerKey,
    reports: Vec<(Held, Meaning)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Begun,
    Over,
    Neither,
}

/// Who asks with this input, if it is a worker.
pub(super) fn speaker(input: &Input) -> Option<Speaker> {
    use tenure_core::coordinator::command::Then;
    let envelope = match input {
        Input::Command(envelope) => envelope,
        Input::Loaded(loaded) => loaded.load.again.as_deref()?,
        Input::Pulse | Input::Recover => return None,
    };
    let tenant = envelope.tenant;
    let of = |worker: WorkerId| Some(Speaker { worker: WorkerKey { tenant, worker }, reports: Vec::new() });
    match &envelope.command {
        Command::Register { worker, .. } | Command::Reconcile { worker, .. } => of(*worker),
        Command::Poll { worker, .. } | Command::Claim { worker, .. } => of(*worker),
        Command::Heartbeat(beat) => of(beat.worker),
        Command::Submit(submit) => of(submit.claim?.0),
        Command::Report { worker, reports, .. } => {
            let what = |then: &Then| match then {
                Then::Accept => Meaning::Begun,
                Then::Complete { .. } | Then::Fail { .. } | Then::Suspend(_) | Then::Release => Meaning::Over,
                _ => Meaning::Neither,
            };
            let reports = reports.iter().map(|report| {
                let held = Held { run: report.run, node: report.node, epoch: report.epoch };
                (held, what(&report.then))
            });
            Some(Speaker { worker: WorkerKey { tenant, worker: *worker }, reports: reports.collect() })
        }
        _ => None,
    }
}
