//! Reports of holders: one on a line of its own, or several in one command.

use super::words::{Fault, Words, number};
use super::world::World;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::*;
use tenure_core::id::*;

const VERBS: [&str; 11] = [
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
];

/// True if a line that begins so is a report.
pub(super) fn is_verb(verb: &str) -> bool {
    VERBS.contains(&verb)
}

/// `complete w1 r1.a out=x`.
pub(super) fn one(
    world: &mut World,
    tenant: TenantId,
    verb: &str,
    mut words: Words<'_>,
) -> Result<(), Fault> {
    let worker = world.names.worker(words.next("a worker")?);
    let key = WorkerKey { tenant, worker };
    let incarnation = presented(world, key, &mut words)?;
    let report = read(world, key, verb, &mut words)?;
    words.finish()?;
    world.ask(tenant, Command::Report { worker, incarnation, reports: vec![report] })
}

/// `report w1`, and on each line after it `complete r1.a out=x`.
pub(super) fn several(
    world: &mut World,
    tenant: TenantId,
    mut words: Words<'_>,
    more: &[&str],
) -> Result<(), Fault> {
    let worker = world.names.worker(words.next("a worker")?);
    let key = WorkerKey { tenant, worker };
    let incarnation = presented(world, key, &mut words)?;
    words.finish()?;
    let mut reports = Vec::new();
    for line in more {
        let mut words = Words::of(line);
        let verb = words.next("a report")?;
        reports.push(read(world, key, verb, &mut words)?);
        words.finish()?;
    }
    world.ask(tenant, Command::Report { worker, incarnation, reports })
}

fn presented(world: &mut World, key: WorkerKey, words: &mut Words<'_>) -> Result<Incarnation, Fault> {
    let given = words.option("inc").map(incarnation).transpose()?;
    Ok(given.unwrap_or(world.belief(key).incarnation))
}

/// Reads `i3`.
pub(super) fn incarnation(text: &str) -> Result<Incarnation, Fault> {
    number(text.strip_prefix('i').ok_or_else(|| format!("{text:?} is not i and a number"))?)
        .map(Incarnation::new)
}

fn epoch(text: &str) -> Result<Epoch, Fault> {
    number(text.strip_prefix('e').ok_or_else(|| format!("{text:?} is not e and a number"))?).map(Epoch::new)
}

/// Reads `r1.a:e2`.
pub(super) fn held(world: &World, text: &str) -> Result<Held, Fault> {
    let (work, text) = text.split_once(':').ok_or_else(|| format!("{text:?} is not run.node:epoch"))?;
    let (run, node) = world.names.work(work)?;
    Ok(Held { run, node, epoch: epoch(text)? })
}

fn read(world: &mut World, key: WorkerKey, verb: &str, words: &mut Words<'_>) -> Result<Report, Fault> {
    let (run, node) = world.names.work(words.next("run.node")?)?;
    let known = &world.belief(key).epochs;
    // A node of a run that is held as a whole is reported under the epoch of the run.
    let known = known.get(&(run, node)).or_else(|| known.get(&(run, NodeIx::WHOLE_RUN))).copied();
    let epoch = match words.option("epoch") {
        Some(text) => epoch(text)?,
        None => known.ok_or("the worker never had this; say epoch=")?,
    };
    let attempt = words.number("attempt")?.map(Attempt::new);
    let mut consume = Vec::new();
    for text in words.options("consume") {
        consume.push(place(world, (run, node), text)?);
    }
    let mut sends = Vec::new();
    for text in words.options("stream") {
        sends.push(stream(world, (run, node), text)?);
    }
    for text in words.options("post") {
        sends.push(post(world, text)?);
    }
    let then = then(world, (run, node), verb, words)?;
    Ok(Report { run, node, epoch, attempt, consume, sends, then })
}

/// Reads `in:3`, a handle and a seq.
fn place(world: &World, (run, node): (RunId, NodeIx), text: &str) -> Result<(HandleIx, Seq), Fault> {
    let (handle, seq) = text.split_once(':').ok_or_else(|| format!("{text:?} is not handle:seq"))?;
    Ok((world.names.handle(run, node, handle)?, Seq::new(number(seq)?)))
}

/// Reads `b.in:1:hello`: along the edge to b.in, its first message.
fn stream(world: &mut World, (run, node): (RunId, NodeIx), text: &str) -> Result<Sending, Fault> {
    let parts: Vec<_> = text.splitn(3, ':').collect();
    let [edge, n, value] = parts[..] else { return Err(format!("{text:?} is not node.handle:n:value")) };
    let edge = world.names.edge(run, node, edge)?;
    Ok(Sending::Stream { edge, n: number(n)?, value: world.names.value(value) })
}

/// Reads `r2.b.in:m1:hello`: to another run, under an id of its own.
fn post(world: &mut World, text: &str) -> Result<Sending, Fault> {
    let parts: Vec<_> = text.splitn(3, ':').collect();
    let [inbox, id, value] = parts[..] else {
        return Err(format!("{text:?} is not run.node.handle:id:value"));
    };
    let (run, node, handle) = world.names.inbox(inbox)?;
    let id = MessageId::new(world.names.text(id));
    Ok(Sending::Run { run, node, handle, id, value: world.names.value(value) })
}

fn then(world: &mut World, work: (RunId, NodeIx), verb: &str, words: &mut Words<'_>) -> Result<Then, Fault> {
    Ok(match verb {
        "accept" => Then::Accept,
        "decline" => Then::Decline,
        "delegate" => Then::Delegate { to: world.names.worker(words.required("to")?) },
        "start" => Then::Start,
        "receive" => Then::Receive {
            handle: world.names.handle(work.0, work.1, words.required("handle")?)?,
            max: words.number("max")?.unwrap_or(1),
        },
        "progress" => {
            let text = words.next("step/total")?;
            let (step, total) = text.split_once('/').ok_or_else(|| format!("{text:?} is not step/total"))?;
            Then::Progress { step: number(step)?, total: number(total)? }
        }
        "checkpoint" => Then::Checkpoint { state: world.names.value(words.required("state")?) },
        "complete" => Then::Complete { output: world.names.value(words.option("out").unwrap_or_default()) },
        "fail" => fail(world, work, words)?,
        "suspend" => Then::Suspend(Box::new(Suspension {
            reason: words.option("reason").unwrap_or("waits").into(),
            state: world.names.value(words.option("state").unwrap_or_default()),
            on_message: words.flag("on_message"),
            after_ms: words.time("after")?,
            at_wall: words.time("at_wall")?.map(|ms| world.wall() + ms),
        })),
        "release" => Then::Release,
        other => return Err(format!("there is no report {other:?}")),
    })
}

fn fail(world: &mut World, (run, node): (RunId, NodeIx), words: &mut Words<'_>) -> Result<Then, Fault> {
    let kind = match words.maybe_next() {
        None => FailureKind::Retryable,
        Some("final") => FailureKind::Final,
        Some("payload_missing") => FailureKind::PayloadMissing,
        Some("payload_damaged") => FailureKind::PayloadDamaged,
        Some(other) => return Err(format!("{other:?} is not a kind of failure a worker reports")),
    };
    let detail = world.names.value(words.option("why").unwrap_or_default());
    let poison = words.option("poison").map(|text| place(world, (run, node), text)).transpose()?;
    Ok(Then::Fail { failure: Failure { kind, detail }, poison })
}
