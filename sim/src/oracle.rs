//! The oracles of a world: what every machine did is held against the invariants of core, and what left a server, what is
//! durable and what was written outside against each other. They only look, and they are never switched off.

use crate::client::Answered;
use crate::line::{Modelled as Model, Models};
use crate::packet::{Proc, Reply, What};
use crate::server::Server;
use crate::situation::{Situation, Situations};
use crate::store::Store;
use crate::swarm::Config;
use crate::tables::Tables;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tenure_core::coordinator::Coordinator;
use tenure_core::coordinator::command::{Command, FailureKind, Held, Input as Fed};
use tenure_core::coordinator::effect::{Answer, Effect, Grant, Output as Said};
use tenure_core::coordinator::event::{Event, Return};
use tenure_core::coordinator::invariants::{self, SENTENCES, Violation, Watch};
use tenure_core::id::*;
use tenure_core::lifecycle::{Lifecycle, RunStatus};
use tenure_core::shard::command::{Input, Outcome};
use tenure_core::shard::effect::{NotTaken, Order, Output, Release};
use tenure_core::shard::lifecycle::Standing;
use tenure_core::shard::{Shard, Tap};
use tenure_core::steward::Steward;
use tenure_core::steward::lifecycle::Hold;
use tenure_core::time::{Now, Time};

/// How often a whole machine is checked, in its inputs.
const WHOLE_EVERY: u64 = 100;

/// The violation of a guarantee.
pub(crate) fn broken(number: &'static str, facts: String) -> Violation {
    let sentence = SENTENCES.iter().find(|(known, _)| *known == number).map_or("", |(_, sentence)| sentence);
    Violation { number, sentence, facts }
}

/// Everything that is watched in a world.
#[derive(Debug, Clone)]
pub struct Oracles {
    partitions: usize,
    watchers: Vec<Watcher>,
    models: Models,
    /// Under whom each batch was applied, per partition.
    appliers: Vec<Vec<Ownership>>,
    /// Every fencing number that left, with what it was for (S7).
    epochs: BTreeMap<(u16, Epoch), (RunId, WorkerId)>,
    /// The highest fencing number that wrote outside, for each piece of work.
    outside: BTreeMap<(RunId, NodeIx), Epoch>,
    /// Work that was taken from a holder by order and not by expiry: nobody waited for that holder to stop.
    taken_away: BTreeSet<(RunId, NodeIx)>,
    /// Runs that a client was told of.
    promised: BTreeMap<RunId, u64>,
    /// Rare situations that were seen.
    pub situations: Situations,
    /// Rows of lifecycle tables that were hit.
    pub tables: Tables,
    /// The last wall clock that a machine of each partition saw.
    walls: Vec<u64>,
    /// The latest machine time of each partition.
    latest: Vec<Time>,
    /// Audited events of all Coordinators.
    pub events: u64,
    /// Milliseconds from ready to started, as they came.
    pub waits: Vec<u32>,
}

/// What is watched of one Shard.
#[derive(Debug, Clone, Default)]
struct Watcher {
    watch: Watch,
    input: Option<(Now, Fed)>,
    inputs: u64,
    /// Store operations that began, and the last that ended well.
    begun: u64,
    confirmed: u64,
    tickets: BTreeMap<u64, u64>,
    batches: BTreeMap<u64, u64>,
    /// Rows came that were asked for, and the machine was not fed with them yet.
    fetched_rows: bool,
    /// The last batch formed, and whether anything changed since.
    formed: u64,
    dirty: bool,
    /// What is held back: the batch it needs, and the operations that had begun when it came.
    held: VecDeque<(u64, u64)>,
    looks: BTreeMap<RequestId, u64>,
    ownership: Ownership,
    loaded_at: u64,
    /// The store failed, and nothing was loaded anew.
    poisoned: bool,
    ready: BTreeMap<(RunId, NodeIx), u64>,
    violation: Option<Violation>,
}

/// Watches one input of one Shard.
pub(crate) struct Eye<'a> {
    watcher: &'a mut Watcher,
    model: Option<&'a mut Model>,
    situations: &'a mut Situations,
    tables: &'a mut Tables,
    events: &'a mut u64,
    latest: &'a mut Time,
    taken_away: &'a mut BTreeSet<(RunId, NodeIx)>,
    last_wall: &'a mut u64,
    waits: &'a mut Vec<u32>,
}

impl Oracles {
    /// Oracles that have seen nothing.
    pub fn new(config: &Config) -> Self {
        let partitions = usize::from(config.partitions);
        Self {
            partitions,
            watchers: vec![Watcher::default(); config.servers * partitions],
            models: Models::new(config),
            appliers: vec![Vec::new(); partitions],
            epochs: BTreeMap::new(),
            outside: BTreeMap::new(),
            taken_away: BTreeSet::new(),
            promised: BTreeMap::new(),
            situations: Situations::default(),
            tables: Tables::default(),
            walls: vec![0; partitions],
            latest: vec![Time::ZERO; partitions],
            events: 0,
            waits: Vec::new(),
        }
    }

    pub(crate) fn eye(&mut self, server: Proc, partition: u16) -> Eye<'_> {
        Eye {
            watcher: &mut self.watchers[server * self.partitions + usize::from(partition)],
            model: self.models.of(server, partition),
            situations: &mut self.situations,
            tables: &mut self.tables,
            events: &mut self.events,
            latest: &mut self.latest[usize::from(partition)],
            taken_away: &mut self.taken_away,
            last_wall: &mut self.walls[usize::from(partition)],
            waits: &mut self.waits,
        }
    }

    /// A server was killed: nothing it held back will ever leave.
    pub(crate) fn server_died(&mut self, server: Proc) {
        for watcher in &mut self.watchers[server * self.partitions..(server + 1) * self.partitions] {
            self.tables.take(watcher.watch.taken());
            *watcher = Watcher::default();
        }
    }

    /// A batch was applied.
    pub(crate) fn applied(&mut self, partition: u16, ownership: Ownership, batch: Batch) {
        let appliers = &mut self.appliers[usize::from(partition)];
        if appliers.last().is_some_and(|last| *last != ownership) {
            self.situations.saw(Situation::Takeover);
        }
        appliers.push(ownership);
        self.models.durable(partition, ownership, batch);
        debug_assert_eq!(appliers.len() as u64, batch.get());
    }

    pub(crate) fn steward_moved(&mut self, before: &[Hold], steward: &Steward) {
        for (before, (_, after, _)) in before.iter().zip(steward.holds()) {
            self.tables.moved(*before, after);
        }
    }

    /// A Shard owns its partition, or is about to know its rows.
    pub(crate) fn arrives(&mut self, server: Proc, partition: u16, input: &Input, loads: bool) {
        match input {
            Input::Own { ownership } => self.models.own(server, partition, *ownership),
            Input::Loaded { .. } if loads => self.models.load(server, partition),
            _ => {}
        }
        self.eye(server, partition).arrives(input, loads);
    }

    /// Something left a server (S7, S12, S45, S47).
    pub(crate) fn released(
        &mut self,
        server: Proc,
        partition: u16,
        release: &Release,
    ) -> Result<(), Violation> {
        let at = server * self.partitions + usize::from(partition);
        let watcher = &mut self.watchers[at];
        let (needs, came) = match release {
            Release::NotTaken { why, .. } => {
                if *why == NotTaken::Busy {
                    self.situations.saw(Situation::Busy);
                }
                return Ok(());
            }
            Release::Effect(_) => match watcher.held.pop_front() {
                Some(held) => held,
                None => return Err(broken("S45", "something left that was never held back".into())),
            },
            Release::View { request, .. } => (watcher.loaded_at, watcher.looks.remove(request).unwrap_or(0)),
        };
        if watcher.poisoned {
            return Err(broken(
                "S47",
                format!("partition {partition}: {release:?} left after the store failed"),
            ));
        }
        if came >= watcher.confirmed {
            let facts =
                format!("partition {partition}: {release:?} left by an operation begun before it came");
            return Err(broken("S12", facts));
        }
        let applied = self.appliers[usize::from(partition)].get((needs as usize).wrapping_sub(1));
        if needs > watcher.loaded_at && applied != Some(&watcher.ownership) {
            let facts = format!(
                "partition {partition}: {release:?} left, and batch {needs} was applied by {applied:?}"
            );
            return Err(broken("S45", facts));
        }
        if let Release::Effect(effect) = release {
            for (worker, grant) in grants(effect) {
                self.granted(partition, worker, grant)?;
            }
        }
        Ok(())
    }

    /// A grant left: nobody else ever had its fencing number (S7).
    fn granted(&mut self, partition: u16, worker: Option<WorkerId>, grant: &Grant) -> Result<(), Violation> {
        let Some(worker) = worker else { return Ok(()) };
        let known = *self.epochs.entry((partition, grant.epoch)).or_insert((grant.run, worker));
        if known != (grant.run, worker) {
            let (run, other) = known;
            let facts = format!(
                "epoch {} was given to {other} for {run}, and to {worker} for {}",
                grant.epoch, grant.run
            );
            return Err(broken("S7", facts));
        }
        Ok(())
    }

    /// An execution wrote outside, under its fencing number. If all clocks are within the bound, nobody else has a newer
    /// one by then: whoever may have lost its lease has stopped (S9).
    pub(crate) fn wrote_outside(&mut self, held: Held, tame: bool) -> Result<(), Violation> {
        let newest = self.outside.entry((held.run, held.node)).or_insert(held.epoch);
        if held.epoch < *newest && tame && !self.taken_away.contains(&(held.run, held.node)) {
            let facts = format!(
                "run {} node {}: epoch {} wrote outside after epoch {newest}",
                held.run, held.node, held.epoch
            );
            return Err(broken("S9", facts));
        }
        *newest = held.epoch.max(*newest);
        Ok(())
    }

    /// A client was answered: what it saw must have been so at some time between asking and being answered.
    pub(crate) fn answered(&mut self, store: &Store, answered: &Answered) -> Result<(), Violation> {
        match (&answered.what, &answered.reply) {
            (What::Command(Command::Submit(_)), Reply::Decided(Ok(Answer::Submitted { run, .. }))) => {
                if !store.past.contains_key(run) {
                    return Err(broken("S45", format!("run {run} was promised and is not stored")));
                }
                self.promised.entry(*run).or_insert(answered.ended);
                Ok(())
            }
            (What::Look(run), Reply::Seen(view)) => {
                let past = store.past.get(run).map_or(&[][..], |past| past);
                let at = |when: u64| past.iter().rev().find(|one| one.since <= when).map(|one| one.version);
                let (least, most) = (at(answered.began), at(answered.ended));
                match view {
                    Some(view) if Some(view.head.version.get()) < least => Err(broken(
                        "S12",
                        format!(
                            "run {run} was at version {least:?} when it was looked at, and {} was seen",
                            view.head.version
                        ),
                    )),
                    Some(view) if Some(view.head.version.get()) > most => Err(broken(
                        "S45",
                        format!(
                            "version {} of run {run} was seen, and {most:?} is stored",
                            view.head.version
                        ),
                    )),
                    _ => Ok(()),
                }
            }
            (What::Command(Command::Cancel(on)), Reply::Decided(Ok(_))) => {
                let past = store.past.get(&on.run).map_or(&[][..], |past| past);
                let ended = |status: RunStatus| status.is_terminal() || status == RunStatus::Ending;
                let series =
                    |when: u64| past.iter().rev().find(|one| one.since <= when).map(|one| one.series);
                // Whoever opened it again may have done so in the batch that ended it.
                let is_again = series(answered.began) < series(answered.ended);
                let is_so =
                    is_again || past.iter().any(|one| one.since <= answered.ended && ended(one.status));
                match is_so {
                    true => Ok(()),
                    false => {
                        Err(broken("S45", format!("run {} was said to be cancelled and is not", on.run)))
                    }
                }
            }
            _ => Ok(()),
        }
    }

    /// Adds up what the watchers of machines that still run have seen.
    pub(crate) fn add_up(&mut self) {
        self.watchers.iter().for_each(|watcher| self.tables.take(watcher.watch.taken()));
    }

    /// All has settled: nothing that was promised is gone, and every machine is sound.
    pub(crate) fn at_the_end(
        &self,
        store: &Store,
        servers: &[Server],
        config: &Config,
        clocks: &[Now],
    ) -> Result<(), Violation> {
        for run in self.promised.keys() {
            let part = &store.parts[usize::from(run.partition())];
            let is_there = part.rows.heads().any(|head| head.id == *run);
            let latest = self.latest[usize::from(run.partition())];
            let may_be_forgotten = latest.as_ms() >= config.limits.retention_ms;
            if !is_there && !may_be_forgotten {
                return Err(broken("S33", format!("run {run} was promised and is gone")));
            }
        }
        for (server, now) in servers.iter().zip(clocks) {
            for partition in 0..config.partitions {
                if let Some(machine) = server.machine(partition) {
                    invariants::check_state(machine)?;
                    let mut machine = machine.clone();
                    machine.take_changes(&mut Vec::new());
                    invariants::s46_rows_are_enough(&machine, *now)?;
                }
            }
        }
        Ok(())
    }
}

/// The grants that an effect hands out, and to whom, as far as it says.
fn grants(effect: &Effect) -> impl Iterator<Item = (Option<WorkerId>, &Grant)> {
    let (one, many): (Option<_>, &[Grant]) = match effect {
        Effect::Offer { grant, worker } | Effect::Hand { grant, worker } => {
            (Some((Some(worker.worker), &**grant)), &[])
        }
        Effect::Reply { result: Ok(Answer::Polled { grants, .. }), .. } => (None, grants),
        Effect::Reply { result: Ok(Answer::Reconciled { missed, .. }), .. } => (None, missed),
        _ => (None, &[]),
    };
    one.into_iter().chain(many.iter().map(|grant| (None, grant)))
}

impl Eye<'_> {
    /// An input is about to reach the Shard.
    fn arrives(&mut self, input: &Input, loads: bool) {
        let watcher = &mut *self.watcher;
        match input {
            Input::Answered { ticket, outcome } => {
                if *outcome == Outcome::Durable
                    && let Some(began) = watcher.tickets.get(ticket)
                {
                    watcher.confirmed = watcher.confirmed.max(*began);
                }
                watcher.poisoned |= *outcome == Outcome::Failed && watcher.tickets.contains_key(ticket);
            }
            Input::Resolved { ticket, found: Some((owner, last)) } if *owner == watcher.ownership => {
                if let Some(began) = watcher.tickets.get(ticket) {
                    watcher.confirmed = watcher.confirmed.max(*began);
                    let is_applied = watcher.batches.get(ticket).is_some_and(|batch| *batch <= last.get());
                    self.situations.saw(match is_applied {
                        true => Situation::UnknownApplied,
                        false => Situation::UnknownNotApplied,
                    });
                }
            }
            Input::Fetched { rows: Some(_), .. } => watcher.fetched_rows = true,
            Input::Look { request, .. } => drop(watcher.looks.insert(*request, watcher.begun)),
            Input::Own { ownership } => watcher.ownership = *ownership,
            Input::Loaded { opening: tenure_core::shard::command::Opening::Rows { batch, .. }, .. }
                if loads =>
            {
                (watcher.loaded_at, watcher.formed) = (batch.get(), batch.get());
            }
            _ => {}
        }
    }

    /// What came of it.
    pub(crate) fn end(self, shard: &Shard, before: Standing, out: &Output) -> Result<(), Violation> {
        let Eye { watcher, mut model, situations, tables, .. } = self;
        tables.stood(before, shard.standing());
        if std::mem::take(&mut watcher.fetched_rows) && shard.standing() == Standing::Serving {
            situations.saw(Situation::StalePage);
        }
        for order in &out.orders {
            match order {
                Order::Commit { ticket, batch, .. } => {
                    watcher.begun += 1;
                    watcher.tickets.insert(*ticket, watcher.begun);
                    watcher.batches.insert(*ticket, batch.get());
                    if batch.get() > watcher.formed {
                        if let Some(model) = &mut model {
                            model.seal(batch.get());
                        }
                        (watcher.formed, watcher.dirty) = (batch.get(), false);
                    }
                }
                Order::Check { ticket, .. } => {
                    watcher.begun += 1;
                    watcher.tickets.insert(*ticket, watcher.begun);
                }
                Order::Load { .. } => watcher.poisoned = false,
                Order::Lost { .. } | Order::Released { .. } => {
                    watcher.held.clear();
                    watcher.tickets.clear();
                    watcher.dirty = false;
                }
                Order::Fetch { .. } => situations.saw(Situation::PageIn),
                Order::Resolve { .. } | Order::Broken { .. } => {}
            }
        }
        while watcher.tickets.len() > 64 {
            watcher.tickets.pop_first();
        }
        while watcher.batches.len() > 64 {
            watcher.batches.pop_first();
        }
        match watcher.violation.take() {
            Some(violation) => Err(violation),
            None => tenure_core::shard::invariants::check(shard),
        }
    }

    fn see(&mut self, machine: &Coordinator, said: &Said) {
        *self.events += said.audit.len() as u64;
        self.look_around(said);
        for stamped in &said.audit {
            let now = stamped.at.as_ms();
            match &stamped.event {
                Event::NodeScheduled { run, node } => drop(self.watcher.ready.insert((*run, *node), now)),
                Event::NodeReturned { run, node, how: Return::Deregistered | Return::Superseded } => {
                    self.taken_away.insert((*run, *node));
                }
                Event::NodeFailed { run, node, failure, .. }
                    if matches!(failure.kind, FailureKind::TookTooLong | FailureKind::NoProgress) =>
                {
                    self.taken_away.insert((*run, *node));
                }
                Event::NodeStarted { run, node, .. } => {
                    if let Some(since) = self.watcher.ready.remove(&(*run, *node)) {
                        self.waits.push((now - since) as u32);
                    }
                }
                _ => {}
            }
        }
        *self.latest = machine.now().max(*self.latest);
        *self.last_wall = self.watcher.input.as_ref().map_or(0, |(now, _)| now.wall);
    }

    /// A machine recovers: with which wall clock, and what it hands out again.
    fn recovered(&mut self, said: &Said) {
        let wall = self.watcher.input.as_ref().map_or(0, |(now, _)| now.wall);
        const HALF_AN_HOUR_MS: u64 = 1_800_000;
        if wall + HALF_AN_HOUR_MS < *self.last_wall {
            self.situations.saw(Situation::WallWentBack);
        } else if wall > *self.last_wall + 5_000 * HALF_AN_HOUR_MS && *self.last_wall > 0 {
            self.situations.saw(Situation::WallWentAhead);
        }
        if said.effects.iter().any(|effect| matches!(effect, Effect::Deliver { .. } | Effect::Stop { .. })) {
            self.situations.saw(Situation::ResentAfterCrash);
        }
    }

    /// Notes rare situations.
    fn look_around(&mut self, said: &Said) {
        let fed = self.watcher.input.as_ref().map(|(_, fed)| fed);
        for stamped in &said.audit {
            if let Some(situation) = crate::sightings::of_event(&stamped.event, fed, said) {
                self.situations.saw(situation);
            }
        }
        if matches!(fed, Some(Fed::Recover)) {
            self.recovered(said);
        }
        let fed = self.watcher.input.as_ref().map(|(_, fed)| fed);
        if matches!(fed, Some(Fed::Pulse)) && said.audit.is_empty() {
            self.situations.saw(Situation::SweepAfterRenewal);
        }
        for effect in &said.effects {
            if let Effect::Reply { result, .. } = effect {
                for situation in crate::sightings::of_answer(result, fed, said) {
                    self.situations.saw(situation);
                }
            }
        }
    }
}

impl Tap for Eye<'_> {
    fn opened(&mut self, machine: &Coordinator) {
        self.tables.take(self.watcher.watch.taken());
        self.watcher.watch = Watch::new(machine);
    }

    fn before(&mut self, now: Now, _: &Coordinator, input: &Fed) {
        self.watcher.fetched_rows &= !matches!(input, Fed::Loaded(_));
        self.watcher.input = Some((now, input.clone()));
    }

    fn after(&mut self, machine: &Coordinator, said: &Said) {
        self.see(machine, said);
        let watcher = &mut *self.watcher;
        watcher.inputs += 1;
        watcher.dirty |= !said.audit.is_empty();
        let needs = watcher.formed + u64::from(watcher.dirty);
        watcher.held.extend(said.effects.iter().map(|_| (needs, watcher.begun)));
        let Some((now, input)) = &watcher.input else { return };
        if let Some(model) = &mut self.model {
            let whole = watcher.inputs.is_multiple_of(1_000) || matches!(input, Fed::Recover);
            let agreed = model.step(*now, input, said, machine);
            let agreed = agreed.and_then(|()| if whole { model.compare(machine) } else { Ok(()) });
            if let Err(disagreement) = agreed {
                watcher.violation.get_or_insert(Violation {
                    number: "model",
                    sentence: "a machine does what the reference model of the rules does",
                    facts: format!("{disagreement}\n  fed: {input:?}\n  happened: {:?}", said.audit),
                });
                model.strike();
            }
        }
        let whole = watcher.inputs.is_multiple_of(WHOLE_EVERY) || matches!(input, Fed::Recover);
        let seen = watcher.watch.observe(machine, input, said);
        let seen = seen.and_then(|()| if whole { invariants::check_state(machine) } else { Ok(()) });
        if let Err(violation) = seen {
            watcher.violation.get_or_insert(violation);
            // What it knew led astray, should the world go on.
            watcher.watch = Watch::new(machine);
        }
    }
}
