//! Definitions as scripts write them: a graph on the first line, settings on the lines after it.

use super::names::Names;
use super::words::{Fault, Words, number};
use tenure_core::definition::*;

/// Reads `a -> b -> c, a ~> d.in` and settings such as `b: lease=10s join=any`.
pub(super) fn definition(
    names: &mut Names,
    name: &str,
    graph: &str,
    settings: &[&str],
) -> Result<Definition, Fault> {
    let mut read = Definition::new(name, Vec::new(), Vec::new());
    for chain in graph.split(',') {
        add_chain(&mut read, chain)?;
    }
    // Handles first, so that what follows may name them in any order.
    for line in settings {
        let (whom, words) = line.split_once(':').ok_or("a setting looks like `node: option=value`")?;
        for whom in whom.trim().split(',').map(str::trim) {
            set(names, &mut read, whom, &mut Words::of(words))?;
        }
    }
    Ok(read)
}

/// Adds the nodes and edges of one chain. A node is added where it first appears; alone, always; after `!`, never.
fn add_chain(read: &mut Definition, chain: &str) -> Result<(), Fault> {
    let mut words = chain.split_whitespace();
    let first = words.next().ok_or("a graph looks like `a -> b, a -> c`")?;
    let (mut from, mut is_alone) = (first, true);
    while let Some(arrow) = words.next() {
        let to = words.next().ok_or_else(|| format!("nothing follows {arrow}"))?;
        if is_alone {
            from = mention(read, from);
        }
        is_alone = false;
        from = match (arrow, to.split_once('.')) {
            ("->", _) => {
                let to = mention(read, to);
                read.edges.push(Edge::data(from, to));
                to
            }
            ("~>", Some((to, handle))) => {
                let to = mention(read, to);
                read.edges.push(Edge::stream(from, to, handle));
                to
            }
            _ => return Err(format!("{arrow} {to} is neither `-> node` nor `~> node.handle`")),
        };
    }
    if is_alone {
        read.nodes.push(NodeSpec::new(from));
    }
    Ok(())
}

fn mention<'a>(read: &mut Definition, name: &'a str) -> &'a str {
    if let Some(name) = name.strip_prefix('!') {
        return name;
    }
    if !read.nodes.iter().any(|node| &*node.name == name) {
        read.nodes.push(NodeSpec::new(name));
    }
    name
}

fn set(names: &mut Names, read: &mut Definition, whom: &str, words: &mut Words<'_>) -> Result<(), Fault> {
    if whom == "run" {
        set_run(names, read, words)?;
    } else if let Some((node, handle)) = whom.split_once('.') {
        let spec = set_handle(handle, words)?;
        node_mut(read, node)?.handles.push(spec);
    } else {
        let node = node_mut(read, whom)?;
        if let Some(join) = words.option("join") {
            node.join = match join {
                "all" => Join::All,
                "any" => Join::Any,
                count => Join::AtLeast(number(count)?),
            };
        }
        if let Some(delay_ms) = words.time("timer")? {
            node.kind = NodeKind::Timer { delay_ms };
        }
        set_work(names, &mut node.work, words)?;
    }
    words.clone().finish()
}

fn node_mut<'a>(read: &'a mut Definition, name: &str) -> Result<&'a mut NodeSpec, Fault> {
    let node = read.nodes.iter_mut().find(|node| &*node.name == name);
    node.ok_or_else(|| format!("the graph has no node {name}"))
}

fn set_run(names: &mut Names, read: &mut Definition, words: &mut Words<'_>) -> Result<(), Fault> {
    let settings = &mut read.settings;
    settings.deadline_ms = words.time("deadline")?.or(settings.deadline_ms);
    if let Some(rule) = words.option("on_failure") {
        settings.on_failure = match rule {
            "continue" => OnFailure::Continue,
            "fail_fast" => OnFailure::FailFast,
            other => return Err(format!("on_failure={other} is neither continue nor fail_fast")),
        };
    }
    match words.option("scope") {
        None | Some("node") => {}
        Some("run") => {
            let mut work = WorkSpec::default();
            set_work(names, &mut work, words)?;
            settings.scope = Scope::Run(Box::new(work));
        }
        Some(other) => return Err(format!("scope={other} is neither run nor node")),
    }
    Ok(())
}

fn set_handle(name: &str, words: &mut Words<'_>) -> Result<HandleSpec, Fault> {
    let mut spec = HandleSpec::new(name);
    spec.trigger = words.flag("trigger");
    spec.capacity = words.number("capacity")?.unwrap_or(spec.capacity);
    spec.claim_ms = words.time("claim")?.unwrap_or(spec.claim_ms);
    spec.max_deliveries = words.number("deliveries")?.unwrap_or(spec.max_deliveries);
    spec.sources = words.list("sources").into_iter().map(Name::from).collect();
    Ok(spec)
}

fn set_work(names: &mut Names, work: &mut WorkSpec, words: &mut Words<'_>) -> Result<(), Fault> {
    if let Some(accept_ms) = words.time("push")? {
        work.assign = Assign::Push { accept_ms };
    }
    work.lease_ms = words.time("lease")?.unwrap_or(work.lease_ms);
    work.heartbeat_ms = words.time("heartbeat")?.unwrap_or(work.heartbeat_ms);
    work.sticky |= words.flag("sticky");
    work.preempts |= words.flag("preempts");
    work.preemptible |= words.flag("preemptible");
    let retry = &mut work.retry;
    retry.max_failures = words.number("failures")?.unwrap_or(retry.max_failures);
    retry.max_losses = words.number("losses")?.unwrap_or(retry.max_losses);
    retry.backoff_ms = words.time("backoff")?.unwrap_or(retry.backoff_ms);
    retry.max_backoff_ms = words.time("max_backoff")?.unwrap_or(retry.max_backoff_ms);
    let timeouts = &mut work.timeouts;
    timeouts.ready_to_start_ms = words.time("to_start")?.or(timeouts.ready_to_start_ms);
    timeouts.start_to_finish_ms = words.time("to_finish")?.or(timeouts.start_to_finish_ms);
    timeouts.progress_ms = words.time("progress")?.or(timeouts.progress_ms);
    let requirement = &mut work.requirement;
    requirement.executors.extend(words.list("exec").into_iter().map(Name::from));
    requirement.labels.extend(words.list("label").into_iter().map(Name::from));
    requirement.relevant.extend(words.list("relevant").into_iter().map(Name::from));
    requirement.capabilities.extend(capabilities(words)?);
    requirement.allowed.extend(words.list("allow").into_iter().map(|name| names.worker(name)));
    requirement.forbidden.extend(words.list("forbid").into_iter().map(|name| names.worker(name)));
    requirement.max_parallel_per_worker = words.number("parallel")?.or(requirement.max_parallel_per_worker);
    Ok(())
}

/// `cap=gpu:1,os:linux`: a number is a number, anything else a text.
pub(super) fn capabilities(words: &mut Words<'_>) -> Result<Vec<(Name, Capability)>, Fault> {
    let read = |part: &str| {
        let (name, is) = part.split_once(':').ok_or_else(|| format!("{part:?} is not name:value"))?;
        let capability = match is.parse() {
            Ok(number) => Capability::Number(number),
            Err(_) => Capability::Text(is.into()),
        };
        Ok((name.into(), capability))
    };
    words.list("cap").into_iter().map(read).collect()
}
