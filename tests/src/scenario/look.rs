//! Looking at the machine without touching it: what waits for what, who holds what, how much there is.

use super::words::{Fault, Words};
use super::world::World;
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::query::RunFilter;
use tenure_core::id::{DefinitionId, TenantId};
use tenure_core::lifecycle::{Lifecycle, RunStatus};

/// Says what is asked, if the verb asks something.
pub(super) fn look(
    world: &mut World,
    tenant: TenantId,
    verb: &str,
    words: &mut Words<'_>,
) -> Option<Result<(), Fault>> {
    Some(match verb {
        "why" => why(world, tenant, words),
        "why_not" => why_not(world, tenant, words),
        "run" => run(world, tenant, words),
        "runs" => runs(world, tenant, words),
        "workers" => workers(world, tenant),
        "offers" => offers(world, tenant, words),
        "depths" => depths(world),
        "plan" => plan(world, tenant, words),
        _ => return None,
    })
}

fn why(world: &mut World, tenant: TenantId, words: &mut Words<'_>) -> Result<(), Fault> {
    let run = world.names.run(words.next("a run")?)?;
    let Some(why) = world.machine().why(tenant, run) else {
        world.say(format!("{} is not in memory", world.names.of_run(run)));
        return Ok(());
    };
    let ending =
        why.ending.map_or(String::new(), |(outcome, _)| format!(", ending as {outcome:?}").to_lowercase());
    world.say(format!("{} is {}{ending}", world.names.of_run(run), why.status));
    for node in why.nodes {
        let variant = format!("{:?}", node.waits_for);
        let variant = variant.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
        world.seen.insert(format!("Waiting::{variant}"));
        let next = node.next.map_or(String::new(), |(at, reason)| format!("; looked at {at} for {reason:?}"));
        let sentence = format!("{} {}{next}", world.names.of_work(run, node.node), node.waits_for);
        world.say(format!("  {}", world.names.in_sentence(&sentence)));
    }
    Ok(())
}

fn why_not(world: &mut World, tenant: TenantId, words: &mut Words<'_>) -> Result<(), Fault> {
    let (run, node) = world.names.work(words.next("work")?)?;
    let worker = world.names.worker(words.next("a worker")?);
    world.say(match world.machine().why_not(tenant, run, node, worker) {
        None => "there is no such work or worker".into(),
        Some(Ok(())) => "it may".into(),
        Some(Err(why)) => why.to_string(),
    });
    Ok(())
}

fn run(world: &mut World, tenant: TenantId, words: &mut Words<'_>) -> Result<(), Fault> {
    let id = world.names.run(words.next("a run")?)?;
    let Some(view) = world.machine().run(tenant, id) else {
        world.say(format!("{} is not in memory", world.names.of_run(id)));
        return Ok(());
    };
    let recovering = if view.recovering { ", recovering" } else { "" };
    let output: Vec<_> = view
        .output
        .iter()
        .map(|(node, value)| format!("{}={}", world.names.of_work(id, *node), world.names.of_value(value)))
        .collect();
    let output = if output.is_empty() { String::new() } else { format!(", output {}", output.join(" ")) };
    world.say(format!("{} is {}{recovering}{output}", world.names.of_run(id), view.status));
    for node in view.nodes {
        let progress =
            node.progress.map_or(String::new(), |(step, total)| format!(", step {step} of {total}"));
        let inboxes = node.inboxes.iter().map(|inbox| {
            let states = inbox.messages.iter().map(|(seq, state, _)| format!(" {seq} {state}"));
            format!("; {}:{}", inbox.name, states.collect::<String>())
        });
        let inboxes: String = inboxes.collect();
        world.say(format!("  {} {}, attempt {}{progress}{inboxes}", node.name, node.phase, node.attempt));
    }
    Ok(())
}

fn runs(world: &mut World, tenant: TenantId, words: &mut Words<'_>) -> Result<(), Fault> {
    let status = words.option("status");
    let statuses: Vec<_> =
        RunStatus::STATES.iter().filter(|known| Some(known.as_str()) == status).copied().collect();
    if status.is_some() && statuses.is_empty() {
        return Err(format!("{status:?} is no status"));
    }
    let labels = words.list("label").into_iter().filter_map(|label| label.split_once(':'));
    let labels = labels.map(|(name, text)| (name.into(), text.into())).collect();
    let definition = words.option("of").map(Into::into);
    let filter = RunFilter { statuses, labels, definition, with_input: words.flag("with_input") };
    let (after, most) = (words.number("after")?, words.number("most")?.unwrap_or(10));
    let page = world.machine().runs(tenant, &filter, after, most);
    for run in &page.runs {
        let (open, all) = run.open_nodes;
        let messages = if run.waiting_messages > 0 {
            format!(", {} messages", run.waiting_messages)
        } else {
            String::new()
        };
        let name = world.names.of_run(run.run);
        world.say(format!(
            "{name} of {} is {}, {open} of {all} nodes open{messages}",
            run.definition, run.status
        ));
    }
    world.say(page.next.map_or("no more".into(), |next| format!("more after {next}")));
    Ok(())
}

fn workers(world: &mut World, tenant: TenantId) -> Result<(), Fault> {
    for worker in world.machine().workers(tenant) {
        let held: Vec<_> = worker.held.iter().map(|held| world.names.of_held(*held)).collect();
        let offered: Vec<_> = worker.offered.iter().map(|held| world.names.of_held(*held)).collect();
        let name = world.names.of_worker(worker.key.worker);
        let holds = if held.is_empty() { "nothing".into() } else { held.join(" ") };
        let offered =
            if offered.is_empty() { String::new() } else { format!(", was offered {}", offered.join(" ")) };
        let lapsed = if worker.lapsed > 0 { format!(", {} lapsed", worker.lapsed) } else { String::new() };
        world.say(format!(
            "{name} {} holds {holds} of {} slots{offered}{lapsed}",
            worker.health, worker.slots
        ));
    }
    Ok(())
}

fn offers(world: &mut World, tenant: TenantId, words: &mut Words<'_>) -> Result<(), Fault> {
    let worker = world.names.worker(words.next("a worker")?);
    let most = words.number("most")?.unwrap_or(10);
    for (run, node) in world.machine().offers(WorkerKey { tenant, worker }, most) {
        world.say(format!("could do {}", world.names.of_work(run, node)));
    }
    Ok(())
}

fn depths(world: &mut World) -> Result<(), Fault> {
    for depth in world.machine().queue_depths() {
        let how = if depth.push { "offered" } else { "polled" };
        world.say(format!("{} wait to be {how}, {} blocked by a key", depth.waiting, depth.blocked));
    }
    Ok(())
}

fn plan(world: &mut World, tenant: TenantId, words: &mut Words<'_>) -> Result<(), Fault> {
    let id = words.number("id")?.unwrap_or(0);
    let Some((definition, order)) = world.machine().plan(tenant, DefinitionId::new(id)) else {
        return Err(format!("there is no definition {id}"));
    };
    let names: Vec<_> = order.iter().map(|node| &*definition.nodes[node.get() as usize].name).collect();
    let line = format!("{}: {}", definition.name, names.join(", "));
    world.say(line);
    Ok(())
}
