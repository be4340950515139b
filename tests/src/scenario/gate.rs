//! Stories of a Shard: commands go through the gate, and what its store does is told line by line. All servers of a
//! story share one store and one clock.

use super::print;
use super::words::{Fault, Words, time_text};
use super::world::{Speaker, World, speaker};
use std::collections::BTreeMap;
use tenure_core::Coordinator;
use tenure_core::coordinator::command::{Command, Envelope, Need};
use tenure_core::coordinator::effect::Output as Said;
use tenure_core::coordinator::event::Stamped;
use tenure_core::coordinator::row::RowKey;
use tenure_core::id::{RequestId, TenantId};
use tenure_core::limits::Limits;
use tenure_core::shard::command::{Input, Opening, Outcome};
use tenure_core::shard::effect::{Order, Output, Release};
use tenure_core::shard::memory::MemoryPartition;
use tenure_core::shard::{Settings, Shard, Tap, invariants};
use tenure_core::time::Now;

/// The servers of a story, and their store.
#[derive(Debug)]
pub(super) struct Gates {
    servers: BTreeMap<String, Server>,
    /// The one that is spoken to.
    at: String,
    store: MemoryPartition,
    limits: Limits,
    settings: Settings,
}

/// An order, by name; the answer of a store that did it; and whether the Shard was told something else.
type Pending = (String, Order, Option<Input>, bool);

#[derive(Debug)]
struct Server {
    shard: Shard,
    orders: Vec<Pending>,
    speakers: BTreeMap<RequestId, Speaker>,
}

/// Hears what happened.
#[derive(Default)]
struct Ear(Vec<Stamped>);

impl Tap for Ear {
    fn after(&mut self, _machine: &Coordinator, said: &Said) {
        self.0.extend(said.audit.iter().cloned());
    }
}

impl Gates {
    /// From the first line: `shard in_flight=2 exclusive held=3 fetches=1`.
    pub(super) fn new(words: &mut Words<'_>, limits: Limits) -> Result<Self, Fault> {
        let usual = Settings::default();
        let settings = Settings {
            in_flight: words.number("in_flight")?.unwrap_or(usual.in_flight),
            held: words.number("held")?.unwrap_or(usual.held),
            fetches: words.number("fetches")?.unwrap_or(usual.fetches),
            exclusive: words.flag("exclusive"),
            ..usual
        };
        let store = MemoryPartition::default();
        let mut gates = Self { servers: BTreeMap::new(), at: String::new(), store, limits, settings };
        gates.speak_to("s1");
        Ok(gates)
    }

    fn speak_to(&mut self, name: &str) {
        let shard = || Shard::new(0, self.limits.clone(), self.settings.clone());
        let fresh = || Server { shard: shard(), orders: Vec::new(), speakers: BTreeMap::new() };
        self.servers.entry(name.into()).or_insert_with(fresh);
        self.at = name.into();
    }

    fn server(&mut self) -> &mut Server {
        self.servers.get_mut(&self.at).expect("the one that is spoken to is there")
    }

    fn pending(&mut self, name: &str) -> Result<Pending, Fault> {
        let orders = &mut self.server().orders;
        let at = orders.iter().position(|(known, ..)| known == name);
        at.map(|at| orders.remove(at)).ok_or_else(|| format!("no order is named {name}"))
    }
}

/// Sends a command through the gate.
pub(super) fn ask(
    world: &mut World,
    request: RequestId,
    tenant: TenantId,
    command: Command,
) -> Result<(), Fault> {
    feed(world, Input::Command(Envelope { request, tenant, command }))
}

/// What is done around a Shard, if the verb is of that kind.
pub(super) fn around(
    world: &mut World,
    tenant: TenantId,
    verb: &str,
    words: &mut Words<'_>,
) -> Option<Result<(), Fault>> {
    let gates = world.gates.as_mut()?;
    Some(match verb {
        "server" => words.next("a server").map(|name| gates.speak_to(name)),
        "own" => {
            let ownership = gates.store.give_out();
            feed(world, Input::Own { ownership })
        }
        "close" => feed(world, Input::Close),
        "look" => look(world, tenant, words),
        "apply" => apply(gates, words),
        "answer" => answer(world, words),
        "ok" => ok(world, words),
        "crash" => {
            gates.servers.remove(&gates.at);
            let name = gates.at.clone();
            gates.speak_to(&name);
            Ok(())
        }
        "recover" | "show" | "why" | "why_not" | "runs" => Err(format!("{verb} is not told of a Shard")),
        _ => return None,
    })
}

fn look(world: &mut World, tenant: TenantId, words: &mut Words<'_>) -> Result<(), Fault> {
    let run = world.names.run(words.next("a run")?)?;
    let request = world.next_request();
    feed(world, Input::Look { request, tenant, run })
}

/// The store does what it was told; its answer is on the way.
fn apply(gates: &mut Gates, words: &mut Words<'_>) -> Result<(), Fault> {
    let name = words.next("an order")?;
    let (name, order, _, is_told) = gates.pending(name)?;
    let answer = gates.store.carry_out(&order);
    gates.server().orders.push((name, order, answer, is_told));
    Ok(())
}

/// The Shard hears the answer that is on the way, or another one. The order can still be applied later.
fn answer(world: &mut World, words: &mut Words<'_>) -> Result<(), Fault> {
    let (name, given) = (words.next("an order")?, words.maybe_next());
    let gates = world.gates.as_mut().expect("this is a story of Shards");
    let (name, order, kept, _) = gates.pending(name)?;
    let outcome = match given {
        None => {
            let kept = kept.ok_or_else(|| format!("{name} was not applied and has no answer"))?;
            return feed(world, kept);
        }
        Some("durable") => Outcome::Durable,
        Some("not_applied") => Outcome::NotApplied,
        Some("unknown" | "none") => Outcome::Unknown,
        Some("failed") => Outcome::Failed,
        Some("fenced") => Outcome::Fenced,
        Some(other) => return Err(format!("{other:?} is no answer of a store")),
    };
    let input = match &order {
        Order::Commit { ticket, .. } | Order::Check { ticket, .. } => {
            Input::Answered { ticket: *ticket, outcome }
        }
        Order::Resolve { ticket } => Input::Resolved { ticket: *ticket, found: None },
        Order::Fetch { fetch, .. } => Input::Fetched { fetch: *fetch, rows: None },
        Order::Load { ownership } => Input::Loaded { ownership: *ownership, opening: Opening::Failed },
        Order::Released { .. } | Order::Lost { .. } | Order::Broken { .. } => {
            return Err("that is not answered".into());
        }
    };
    gates.server().orders.push((name, order, kept, true));
    feed(world, input)
}

/// The store does an order and answers; or all there are, and those that follow from them.
fn ok(world: &mut World, words: &mut Words<'_>) -> Result<(), Fault> {
    let mut names: Vec<String> =
        std::iter::from_fn(|| words.maybe_next()).map(|name| name.to_string()).collect();
    let all = names.is_empty();
    loop {
        let gates = world.gates.as_mut().expect("this is a story of Shards");
        if all {
            let untold = gates.server().orders.iter().find(|(.., is_told)| !is_told);
            names.extend(untold.map(|(name, ..)| name.clone()));
        }
        if names.is_empty() {
            return Ok(());
        }
        let (_, order, kept, _) = gates.pending(&names.remove(0))?;
        let answer = kept.or_else(|| gates.store.carry_out(&order));
        feed(world, answer.ok_or("that is not answered")?)?;
    }
}

/// Lets time pass, and pulses the server that is spoken to at every deadline on the way.
pub(super) fn pass_and_pulse(world: &mut World, ms: u64) -> Result<(), Fault> {
    let until = world.mono() + ms;
    for _ in 0..10_000 {
        let gates = world.gates.as_mut().expect("this is a story of Shards");
        let deadline = gates.server().shard.next_deadline().filter(|deadline| deadline.mono <= until);
        let Some(deadline) = deadline else {
            world.pass(until - world.mono());
            return Ok(());
        };
        world.pass(deadline.mono.saturating_sub(world.mono()));
        let said = world.lines();
        feed(world, Input::Pulse)?;
        if world.lines() > said {
            world.say_at(said, format!("@ {}", time_text(world.now().as_ms())));
        }
    }
    world.breaks("something is due again and again".into())
}

/// One turn of the Shard that is spoken to, printed.
fn feed(world: &mut World, input: Input) -> Result<(), Fault> {
    let now = Now::new(world.mono(), world.wall());
    let mut gates = world.gates.take().expect("this is a story of Shards");
    let (mut out, mut ear) = (Output::default(), Ear::default());
    let server = gates.server();
    if let Input::Command(envelope) = &input {
        let as_fed = tenure_core::coordinator::command::Input::Command(envelope.clone());
        server.speakers.extend(speaker(&as_fed).map(|speaker| (envelope.request, speaker)));
    }
    server.shard.handle_with(now, input, &mut out, &mut ear);
    let checked = invariants::check(&server.shard).map_err(|violation| violation.to_string());
    ear.0.iter().for_each(|stamped| world.names.learn(&stamped.event));
    print::output(world, &Said { audit: ear.0, ..Said::default() });
    for order in out.orders {
        if matches!(order, Order::Lost { .. }) {
            let store = gates.store.store();
            world.names.forget_runs(|run| store.get(&RowKey::Run(run)).is_some());
        }
        let (name, line) = describe(&order);
        world.say(format!("! {line}"));
        if let Some(name) = name {
            gates.server().orders.push((name, order, None, false));
        }
    }
    let mut heard = Ok(());
    for release in out.effects {
        heard = heard.and_then(|()| let_go(world, &mut gates, release));
    }
    world.gates = Some(gates);
    heard.and_then(|()| checked.or_else(|fault| world.breaks(fault)))
}

fn let_go(world: &mut World, gates: &mut Gates, release: Release) -> Result<(), Fault> {
    use tenure_core::coordinator::effect::Effect;
    match release {
        Release::Effect(effect) => {
            let speaker = match &effect {
                Effect::Reply { request, .. } => gates.server().speakers.remove(request),
                _ => None,
            };
            world.hear(speaker.as_ref(), &effect)?;
            print::output(world, &Said { effects: vec![effect], ..Said::default() });
        }
        Release::View { view: None, .. } => world.say("= sees nothing".into()),
        Release::View { view: Some(view), .. } => {
            let run = world.names.of_run(view.head.id);
            world.say(format!("= sees {run} {}, series {}", view.status, view.head.series));
        }
        Release::NotTaken { why, .. } => world.say(format!("= not taken: {}", print::prose(why))),
    }
    Ok(())
}

/// An order's name, if it is answered, and how it is told.
fn describe(order: &Order) -> (Option<String>, String) {
    let named = |name: String, more: String| (Some(name.clone()), format!("{name}{more}"));
    match order {
        Order::Load { ownership } => named(format!("load{ownership}"), String::new()),
        Order::Commit { ticket, ownership, batch, changes, .. } => {
            let rows = if changes.len() == 1 { "row" } else { "rows" };
            let more = format!(": batch {batch}, {} {rows}, as owner {ownership}", changes.len());
            named(format!("commit{ticket}"), more)
        }
        Order::Check { ticket, ownership } => {
            named(format!("check{ticket}"), format!(": as owner {ownership}"))
        }
        Order::Resolve { ticket } => named(format!("resolve{ticket}"), String::new()),
        Order::Fetch { fetch, needs, .. } => {
            let need = |need: &Need| match need {
                Need::Run { number } => format!("run {number}"),
                other => print::prose(other).split(' ').next().unwrap_or_default().to_string(),
            };
            let needs: Vec<_> = needs.iter().map(need).collect();
            named(format!("fetch{fetch}"), format!(": {}", needs.join(", ")))
        }
        Order::Released { ownership } => (None, format!("released as owner {ownership}")),
        Order::Lost { ownership, why } => (None, format!("lost as owner {ownership}: {}", print::prose(why))),
        Order::Broken { ownership, why } => {
            let why = why.map_or("damaged".into(), |why| why.to_string());
            (None, format!("broken as owner {ownership}: {why}"))
        }
    }
}
