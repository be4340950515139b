//! From a line of a script to a command, or to something done around the machine.

use super::define;
use super::gate;
use super::look;
use super::print;
use super::report;
use super::words::{Fault, Words, millis, number};
use super::world::World;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::held_digest;
use tenure_core::id::*;
use tenure_core::time::Time;

/// Does what a line says. `more` are the lines that continue it.
pub(super) fn act(world: &mut World, line: &str, more: &[&str]) -> Result<(), Fault> {
    let (tenant, line) = match line.strip_prefix('@') {
        None => ("t1", line),
        Some(rest) => rest.split_once(' ').ok_or("a command follows the tenant")?,
    };
    let tenant = world.names.tenant(tenant);
    let mut words = Words::of(line);
    let verb = words.next("a command")?;
    if verb == "define" {
        return define_command(world, tenant, line, more);
    }
    if verb == "report" {
        return report::several(world, tenant, words, more);
    }
    if !more.is_empty() {
        return Err(format!("{verb} is not continued on a second line"));
    }
    if let Some(done) = gate::around(world, tenant, verb, &mut words) {
        return done.and_then(|()| words.finish());
    }
    if let Some(done) = around(world, verb, &mut words) {
        return done.and_then(|()| words.finish());
    }
    if let Some(done) = look::look(world, tenant, verb, &mut words) {
        return done.and_then(|()| words.finish());
    }
    if report::is_verb(verb) {
        return report::one(world, tenant, verb, words);
    }
    let of_worker = of_worker(world, tenant, verb, &mut words)?;
    let command = match of_worker.map_or_else(|| of_run(world, verb, &mut words), |found| Ok(Some(found)))? {
        Some(command) => command,
        None if verb == "submit" => submit(world, tenant, &mut words)?,
        None => return Err(format!("there is no command {verb:?}")),
    };
    words.finish()?;
    world.ask(tenant, command)
}

/// What is done around the machine, if the verb is of that kind.
fn around(world: &mut World, verb: &str, words: &mut Words<'_>) -> Option<Result<(), Fault>> {
    let time = |words: &mut Words<'_>| {
        let text = words.next("a time")?;
        millis(text.strip_prefix('+').ok_or_else(|| format!("{text:?} does not begin with +"))?)
    };
    Some(match verb {
        "at" => time(words).and_then(|ms| world.pass_and_pulse(ms)),
        "clock" => time(words).map(|ms| world.pass(ms)),
        "wall" => wall(world, words),
        "crash" => words.time("down").and_then(|down_ms| world.crash(down_ms.unwrap_or(0))),
        "recover" => world.recover(),
        "show" => {
            words.next("a run").and_then(|name| world.names.run(name)).map(|run| print::show(world, run))
        }
        "ghost" => ghost(world, words),
        _ => return None,
    })
}

fn wall(world: &mut World, words: &mut Words<'_>) -> Result<(), Fault> {
    let text = words.next("a time")?;
    let wall = match text.split_at_checked(1) {
        Some(("+", by)) => world.wall().saturating_add(millis(by)?),
        Some(("-", by)) => world.wall().saturating_sub(millis(by)?),
        _ => return Err(format!("{text:?} begins neither with + nor with -")),
    };
    world.set_wall(wall);
    Ok(())
}

/// Names a run that does not exist, here or in another partition.
fn ghost(world: &mut World, words: &mut Words<'_>) -> Result<(), Fault> {
    let name = words.next("a run")?;
    let partition = words.number("partition")?.unwrap_or(0);
    world.names.invent_run(name, RunId::compose(partition, 999_999, 1));
    Ok(())
}

fn define_command(world: &mut World, tenant: TenantId, line: &str, more: &[&str]) -> Result<(), Fault> {
    let rest = line.trim_start().strip_prefix("define").unwrap_or(line);
    let (name, graph) = rest.split_once(':').ok_or("a definition looks like `define name: a -> b`")?;
    let name = name.trim();
    let name = if name == "''" { "" } else { name };
    let definition = define::definition(&mut world.names, name, graph, more)?;
    let hash = ContentHash::new(world.names.text(&format!("{definition:?}")));
    world.ask(tenant, Command::Define { definition: Box::new(definition), hash })
}

fn submit(world: &mut World, tenant: TenantId, words: &mut Words<'_>) -> Result<Command, Fault> {
    let name = words.next("a name for the run")?;
    if world.names.run(name).is_ok() {
        return Err(format!("a run is named {name} already"));
    }
    let of = words.next("a definition")?;
    let (definition, which) = match of.split_once('@') {
        None => (of, Which::Latest),
        Some((of, version)) => match version.strip_prefix('v').and_then(|text| text.parse().ok()) {
            Some(version) => (of, Which::Version(DefinitionVersion::new(version))),
            None => (of, Which::Alias(version.into())),
        },
    };
    let minted_at = words.time("minted")?.map_or(world.now(), Time::from_ms);
    let key = words.option("key");
    let fingerprint = ContentHash::new(world.names.text(&format!("request {of} {words:?}")));
    let key = key.map(|key| KeyHash::new(world.names.text(key)));
    let mut submit = Submit::new(definition, world.names.value(words.option("in").unwrap_or_default()), 7);
    submit.which = which;
    submit.key = key.map(|key| SubmitKey { key, fingerprint, minted_at });
    submit.priority = words.number("priority")?.unwrap_or(submit.priority);
    submit.deadline_ms = words.time("deadline")?;
    submit.notify = words.flag("notify");
    for label in words.options("label") {
        let (name, text) = label.split_once(':').ok_or_else(|| format!("{label:?} is not name:text"))?;
        submit.labels.push((name.into(), text.into()));
    }
    if let Some(text) = words.option("concurrency") {
        let (key, limit) = text.split_once(':').ok_or_else(|| format!("{text:?} is not key:limit"))?;
        let key = KeyHash::new(world.names.text(key));
        submit.concurrency = Some(Concurrency { key, limit: number(limit)? });
    }
    if let Some(worker) = words.option("claim") {
        let worker = world.names.worker(worker);
        let incarnation = world.belief(WorkerKey { tenant, worker }).incarnation;
        submit.claim = Some((worker, incarnation));
    }
    world.names.next_run = Some(name.into());
    Ok(Command::Submit(Box::new(submit)))
}

/// Commands on runs and their inboxes.
fn of_run(world: &mut World, verb: &str, words: &mut Words<'_>) -> Result<Option<Command>, Fault> {
    let on_run = |words: &mut Words<'_>| {
        let run = world.names.run(words.next("a run")?)?;
        let if_version = words.number("if")?.map(Version::new);
        Ok::<_, Fault>(OnRun { run, if_version })
    };
    Ok(Some(match verb {
        "cancel" => Command::Cancel(on_run(words)?),
        "pause" => Command::Pause(on_run(words)?),
        "continue" => Command::Continue(on_run(words)?),
        "retry" => Command::Retry(on_run(words)?),
        "wake" => {
            let (run, node) = world.names.work(words.next("run.node")?)?;
            Command::Wake { run, node }
        }
        "send" => send(world, words)?,
        "end" => {
            let inbox = world.names.inbox(words.next("run.node.handle")?)?;
            let source = world.names.source(inbox, words.required("source")?)?;
            let count = number(words.required("count")?)?;
            Command::EndStream { run: inbox.0, node: inbox.1, handle: inbox.2, source, count }
        }
        "alias" => {
            let (definition, alias) = (words.next("a definition")?.into(), words.next("an alias")?.into());
            let version = words.next("a version")?;
            let version = number(version.strip_prefix('v').unwrap_or(version))?;
            Command::SetAlias { definition, alias, version: DefinitionVersion::new(version) }
        }
        "ack" => {
            let id = OutboxId::new(number(words.next("a number")?)?);
            Command::Acknowledge { id, taken: !words.flag("refused") }
        }
        _ => return Ok(None),
    }))
}

fn send(world: &mut World, words: &mut Words<'_>) -> Result<Command, Fault> {
    let (run, node, handle) = world.names.inbox(words.next("run.node.handle")?)?;
    let id = match (words.option("id"), words.option("source")) {
        (Some(id), None) => MessageKey::Own(MessageId::new(world.names.text(id))),
        (None, Some(source)) => MessageKey::Stream {
            source: world.names.source((run, node, handle), source)?,
            n: number(words.required("n")?)?,
        },
        _ => return Err("a message has either id= or source= and n=".into()),
    };
    let value = world.names.value(words.option("value").unwrap_or_default());
    let cursor = words.number("cursor")?;
    Ok(Command::Send(Box::new(SendCommand { run, node, handle, id, value, cursor })))
}

/// Commands of and on workers.
fn of_worker(
    world: &mut World,
    tenant: TenantId,
    verb: &str,
    words: &mut Words<'_>,
) -> Result<Option<Command>, Fault> {
    let verbs = ["register", "heartbeat", "reconcile", "poll", "claim", "drain", "undrain", "deregister"];
    if !verbs.contains(&verb) {
        return Ok(None);
    }
    let worker = world.names.worker(words.next("a worker")?);
    let key = WorkerKey { tenant, worker };
    let presented = words.option("inc").map(report::incarnation).transpose()?;
    let incarnation = presented.unwrap_or(world.belief(key).incarnation);
    Ok(Some(match verb {
        "register" => Command::Register { worker, spec: Box::new(worker_spec(words)?) },
        "heartbeat" => {
            let session = words.number("session")?.map(Session::new).unwrap_or(world.belief(key).session);
            let held = held_digest(held(world, key, words)?.into_iter().map(|held| held.epoch));
            let load = words.number("load")?.unwrap_or(0);
            Command::Heartbeat(Heartbeat { worker, incarnation, session, held, load })
        }
        "reconcile" => Command::Reconcile { worker, incarnation, held: held(world, key, words)? },
        "poll" => {
            let poll = poll_id(world, key, words)?;
            let max = words.number("max")?.unwrap_or(1);
            Command::Poll { worker, incarnation, poll, max, wait: words.flag("wait") }
        }
        "claim" => {
            let poll = poll_id(world, key, words)?;
            let (run, node) = world.names.work(words.next("run.node")?)?;
            Command::Claim { worker, incarnation, poll, run, node }
        }
        "drain" => Command::Drain { worker, on: true },
        "undrain" => Command::Drain { worker, on: false },
        _ => Command::Deregister { worker, incarnation: presented },
    }))
}

/// The worker's own number of a poll: the next, the last (`again`), or `id=`.
fn poll_id(world: &mut World, key: WorkerKey, words: &mut Words<'_>) -> Result<PollId, Fault> {
    let (given, again) = (words.number("id")?, words.flag("again"));
    let belief = world.belief(key);
    let poll = given.unwrap_or(belief.poll + u64::from(!again));
    belief.poll = belief.poll.max(poll);
    Ok(PollId::new(poll))
}

/// What a worker says it holds: `held=r1.a:e2,..`, `held=none`, or what it believes.
fn held(world: &mut World, key: WorkerKey, words: &mut Words<'_>) -> Result<Vec<Held>, Fault> {
    match words.option("held") {
        None => {
            let held = world.belief(key).held.iter();
            Ok(held.map(|((run, node), epoch)| Held { run: *run, node: *node, epoch: *epoch }).collect())
        }
        Some("none") => Ok(Vec::new()),
        Some(list) => list.split(',').map(|one| report::held(world, one)).collect(),
    }
}

fn worker_spec(words: &mut Words<'_>) -> Result<WorkerSpec, Fault> {
    Ok(WorkerSpec {
        executors: words.list("exec").into_iter().map(Into::into).collect(),
        capabilities: define::capabilities(words)?,
        labels: words.list("label").into_iter().map(Into::into).collect(),
        slots: words.number("slots")?.unwrap_or(1),
        quality: words.number("quality")?.unwrap_or(0),
        rank: words.number("rank")?.unwrap_or(0),
    })
}
