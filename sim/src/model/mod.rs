//! A reference model of the rules, written from the design alone: small, obvious, and sharing no rule with core.
//!
//! It is a labelled automaton. It is given each input of the machine with all that came of it, and it has its own state.
//! What the rules leave open (which worker, when within a portion something due fires, epochs, jitter) it takes from the
//! audit after checking that it is legal. What they do not leave open it demands: `rules` says what must follow and
//! complains if it did not, `obey_*` says what a command must be answered, and `compare` looks at what the machine holds.
//!
//! An event is explained in one of four ways, tried in this order: time brings it about (`due`); it follows from the state
//! (`rules`); it is a free choice that is legal (`choice`); or it is the next thing the command demands (`obey_*`).
//!
//! Machine time is derived as the design has it: the time of the last audited change, moved on at `Recover` by the wall
//! time that passed within its bounds, plus the monotonic time since. Every audited event must carry exactly that time.

mod answers;
mod apply_inbox;
mod apply_node;
mod apply_run;
mod apply_worker;
mod choice;
mod compare;
mod due;
mod effects;
mod fit;
mod journal;
mod obey;
mod obey_inbox;
mod obey_plan;
mod obey_report;
mod obey_run;
mod obey_submit;
mod obey_worker;
mod rules;
mod state;

use journal::Journal;
use state::{Counts, Debt, Def, Hold, Inbox, Node, Run, Worker};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use tenure_core::Coordinator;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::{Held, Input, Need};
use tenure_core::coordinator::effect::Output;
use tenure_core::coordinator::event::{Event, Outcome, Stamped, StopReason};
use tenure_core::definition::Name;
use tenure_core::id::*;
use tenure_core::limits::Limits;
use tenure_core::time::{Now, Time};

/// Where the machine and the model differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// Which rule, by its number where it has one.
    pub about: String,
    /// What the rules demand.
    pub expected: String,
    /// What the machine did.
    pub found: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  expected: {}\n  found: {}", self.about, self.expected, self.found)
    }
}

impl std::error::Error for Disagreement {}

type Step<T = ()> = Result<T, Disagreement>;

fn wrong(about: &str, expected: impl fmt::Debug, found: impl fmt::Debug) -> Disagreement {
    Disagreement { about: about.into(), expected: format!("{expected:?}"), found: format!("{found:?}") }
}

fn same<T: PartialEq + fmt::Debug>(about: &str, expected: &T, found: &T) -> Step {
    if expected == found { Ok(()) } else { Err(wrong(about, expected, found)) }
}

/// Run numbers are dense; spreading them is enough.
#[derive(Debug, Clone, Copy, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// An effect that an event demands, in the order of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Offer(WorkerKey, Held),
    Stop(WorkerKey, Held, StopReason),
    Deliver(OutboxId),
    Register(RunId, NodeIx, HandleIx, Option<u64>),
    Ended(RunId, Outcome),
    Room(RunId, NodeIx, HandleIx),
}

/// The reference model of one partition.
#[derive(Debug, Clone)]
pub struct Model {
    partition: u16,
    limits: Limits,
    runs: HashMap<u64, Run, BuildHasherDefault<Spread>>,
    workers: BTreeMap<WorkerKey, Worker>,
    /// Every lease and offer, by whose it is.
    holds: BTreeMap<(WorkerKey, Epoch), Hold>,
    /// The run that was submitted under a key.
    keys: BTreeMap<(TenantId, KeyHash), u64>,
    /// Pieces of work held or offered under a concurrency key.
    under: BTreeMap<(TenantId, KeyHash), u32>,
    definitions: Vec<Arc<Def>>,
    aliases: BTreeMap<(TenantId, Name, Name), DefinitionId>,
    debts: BTreeMap<OutboxId, Debt>,
    counts: Counts,
    /// Machine time was this when the monotonic clock showed that.
    base: (Time, u64),
    now: Time,
    /// What the wall clock shows.
    wall: u64,
    recovered_at: Time,
    /// Everything that was due by then has fired.
    pulsed_at: Time,
    journal: Journal,
    steps: u64,
    /// Runs that this step touched.
    touched: Vec<u64>,
    wanted: Vec<Wanted>,
    /// The event at hand was brought about by time.
    is_by_time: bool,
    /// The worker whose sign of life the command at hand is.
    speaks: Option<WorkerKey>,
    /// The attempt and content of the report at hand.
    said: (u32, u64),
    /// Rows came of all that wakes up to here.
    looked: Option<Time>,
    /// The next batch forgets what was over by then.
    forgets: Option<Time>,
}

/// What happened in a step, not yet explained.
struct Events<'a> {
    audit: &'a [Stamped],
    next: usize,
}

impl<'a> Events<'a> {
    fn peek(&self) -> Option<&'a Stamped> {
        self.audit.get(self.next)
    }

    /// The last one that was explained.
    fn last(&self) -> Option<&'a Event> {
        self.next.checked_sub(1).and_then(|last| self.audit.get(last)).map(|stamped| &stamped.event)
    }
}

impl Model {
    /// A new partition, in which nothing has happened.
    pub fn new(partition: u16, limits: Limits) -> Self {
        let counts =
            Counts { next_run: 0, last_epoch: 0, next_outbox: None, step: 0, changed: None, swept: None };
        Self {
            partition,
            limits,
            runs: HashMap::default(),
            workers: BTreeMap::new(),
            holds: BTreeMap::new(),
            keys: BTreeMap::new(),
            under: BTreeMap::new(),
            definitions: Vec::new(),
            aliases: BTreeMap::new(),
            debts: BTreeMap::new(),
            counts,
            base: (Time::ZERO, 0),
            now: Time::ZERO,
            wall: 0,
            recovered_at: Time::ZERO,
            pulsed_at: Time::ZERO,
            journal: Journal::new(),
            steps: 0,
            touched: Vec::new(),
            wanted: Vec::new(),
            is_by_time: false,
            speaks: None,
            said: (0, 0),
            looked: None,
            forgets: None,
        }
    }

    /// One input of the machine and all that came of it; compares what it touched.
    pub fn step(&mut self, now: Now, input: &Input, out: &Output, machine: &Coordinator) -> Step {
        self.steps += 1;
        self.touched.clear();
        self.wanted.clear();
        (self.speaks, self.looked) = (None, None);
        if matches!(input, Input::Recover) {
            self.recover(now);
        }
        self.wall = now.wall;
        self.now = self.base.0.after_ms(now.mono.saturating_sub(self.base.1));
        same("machine time is the base and the monotonic time since", &self.now, &machine.now())?;
        let mut events = Events { audit: &out.audit, next: 0 };
        match input {
            Input::Command(envelope) => self.obey(now, envelope, out, &mut events)?,
            Input::Loaded(loaded) => {
                self.looked = loaded.load.needs.iter().filter_map(waking).max();
                if let Some(envelope) = &loaded.load.again {
                    self.obey(now, envelope, out, &mut events)?;
                }
            }
            Input::Pulse | Input::Recover => {}
        }
        self.drain(now, &mut events)?;
        if let Some(stamped) = events.peek() {
            return Err(wrong("no rule brings this about", "nothing more", &stamped.event));
        }
        if matches!(input, Input::Pulse) && machine.next_deadline().is_none_or(|next| next.at > self.now) {
            self.pulsed_at = self.now;
        }
        if matches!(input, Input::Recover) {
            self.check_resent(out)?;
        } else {
            self.check_effects(out)?;
        }
        for touched in 0..self.touched.len() {
            let number = self.touched[touched];
            let Some(run) = self.runs.get(&number) else { continue };
            if let Some((about, node)) = rules::left_undone(run) {
                return Err(wrong(about, "it happens in this step", (run.id, node)));
            }
            self.compare_run(run, machine)?;
        }
        if let Input::Loaded(loaded) = input {
            self.compare_loaded(&loaded.rows, machine)?;
        }
        Ok(())
    }

    /// What is volatile starts anew: every live lease gets its full time, and time moves on by what the wall clock
    /// shows, within its bounds (S16, F18, F19).
    fn recover(&mut self, now: Now) {
        let base = self.counts.changed.map_or(Time::ZERO, |(at, wall)| {
            at.after_ms(now.wall.saturating_sub(wall).min(self.limits.restart_jump_ms))
        });
        (self.base, self.recovered_at, self.pulsed_at) = ((base, now.mono), base, base);
        let keys: Vec<WorkerKey> = self.workers.keys().copied().collect();
        for key in keys {
            let last = self.live(key).map(|(_, hold)| hold.poll).max();
            if let Some(worker) = self.workers.get_mut(&key) {
                (worker.last_seen, worker.last_poll) = (base, last);
            }
        }
        let claimed: Vec<u64> =
            self.runs.values().filter(|run| has_claims(run)).map(|r| r.id.number()).collect();
        for number in claimed {
            let run = self.runs.get_mut(&number).expect("it was just there");
            run.inboxes
                .iter_mut()
                .filter(|inbox| inbox.has_claimed())
                .for_each(|inbox| inbox.claimed_at = base);
        }
    }

    /// Explains events that no command demands.
    fn drain(&mut self, now: Now, events: &mut Events<'_>) -> Step {
        while let Some(stamped) = events.peek() {
            let event = &stamped.event;
            self.is_by_time = self.is_due(event, self.now, now);
            let is_lawful = self.is_by_time
                || event
                    .run()
                    .and_then(|run| self.runs.get(&run.number()))
                    .is_some_and(|run| run.follows(event))
                || self.is_choice(event)?;
            if !is_lawful {
                break;
            }
            self.apply(now, stamped)?;
            events.next += 1;
        }
        self.is_by_time = false;
        Ok(())
    }

    /// The next event must be this one; `alike` compares what is not a label.
    fn demand(
        &mut self,
        now: Now,
        events: &mut Events<'_>,
        about: &str,
        alike: impl Fn(&Event) -> bool,
    ) -> Step {
        match events.peek() {
            Some(stamped) if alike(&stamped.event) => {
                events.next += 1;
                self.apply(now, stamped)
            }
            found => Err(wrong(about, "another event here", found.map(|stamped| &stamped.event))),
        }
    }

    fn apply(&mut self, now: Now, stamped: &Stamped) -> Step {
        let Stamped { at, wall, step, event } = stamped;
        if (*at, *wall) != (self.now, now.wall) {
            return Err(wrong("an event carries the time of its input", (self.now, now.wall), (at, wall)));
        }
        if *step < self.counts.step {
            return Err(wrong("steps are counted up", self.counts.step, step));
        }
        let (step, at, wall) = (*step, *at, *wall);
        let counts = self.counts_mut();
        (counts.step, counts.changed) = (step, Some((at, wall)));
        self.apply_event(at, step, event)?;
        if let Some(run) = event.run()
            && apply_run::raises_version(event)
        {
            self.bump(run, step);
        }
        Ok(())
    }

    fn apply_event(&mut self, at: Time, step: u64, event: &Event) -> Step {
        match event {
            Event::DefinitionAdded(added) => self.apply_defined(added),
            Event::AliasSet { tenant, definition, alias, id } => {
                self.apply_alias(*tenant, definition, alias, *id);
                Ok(())
            }
            Event::RunCreated(created) => self.apply_created(at, step, created),
            Event::RunSuspended { run }
            | Event::RunWoken { run }
            | Event::RunPaused { run }
            | Event::RunContinued { run }
            | Event::RunEnding { run, .. }
            | Event::RunCompleted { run }
            | Event::RunFailed { run }
            | Event::RunCancelled { run }
            | Event::RunRetried { run, .. } => self.apply_run(at, event, *run),
            Event::ReportTaken { run, node, epoch, digest } => self.apply_mark(*run, *node, *epoch, *digest),
            Event::MessageAppended { .. }
            | Event::MessagesClaimed { .. }
            | Event::MessagesReturned { .. }
            | Event::MessagesConsumed { .. }
            | Event::MessageBuried { .. }
            | Event::StreamEnded { .. }
            | Event::HandleClosed { .. }
            | Event::TriggerRegistered { .. }
            | Event::TriggerInputReceived { .. }
            | Event::TriggerCursorAdvanced { .. } => self.apply_inbox(at, event),
            Event::OutboxEnqueued { id, tenant, outgoing } => {
                let debt = Debt { tenant: *tenant, outgoing: **outgoing, refused_at: None };
                self.apply_enqueued(*id, debt)
            }
            Event::OutboxSent { id } => {
                self.set_debt(*id, None);
                Ok(())
            }
            Event::OutboxRefused { id } => {
                let debt = self.debts.get(id).map(|debt| Debt { refused_at: Some(at), ..*debt });
                self.set_debt(*id, debt);
                Ok(())
            }
            Event::WorkerRegistered(registered) => self.apply_registered(at, registered),
            Event::WorkerDrained { worker, on } => {
                if let Some(known) = self.worker_mut(*worker) {
                    known.draining = *on;
                }
                Ok(())
            }
            Event::WorkerLeft { worker } => {
                self.set_worker(*worker, None);
                Ok(())
            }
            Event::SessionLapsed { worker, lease_ms } => {
                self.apply_lapsed(*worker, *lease_ms);
                Ok(())
            }
            Event::PagedIn { .. } => Ok(()),
            Event::Swept { until } => self.apply_swept(at, *until),
            _ if event.is_volatile() => Err(wrong("volatile events are not audited", "none", event)),
            _ => self.apply_node(at, event),
        }
    }
}

fn waking(need: &Need) -> Option<Time> {
    match need {
        Need::Waking { until } => Some(*until),
        Need::Run { .. } | Need::Key { .. } | Need::Registered => None,
    }
}

fn has_claims(run: &Run) -> bool {
    run.inboxes.iter().any(|inbox| inbox.has_claimed())
}
