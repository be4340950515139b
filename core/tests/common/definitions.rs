//! A handful of definitions that together use everything a definition can say, with short times and small budgets.

use tenure_core::definition::*;

fn node(name: &str, change: impl FnOnce(&mut NodeSpec)) -> NodeSpec {
    let mut node = NodeSpec::new(name);
    node.work = work();
    change(&mut node);
    node
}

fn work() -> WorkSpec {
    WorkSpec {
        lease_ms: 1_000,
        heartbeat_ms: 300,
        retry: Retry { max_failures: 2, max_losses: 3, backoff_ms: 200, max_backoff_ms: 300 },
        ..WorkSpec::default()
    }
}

fn timer(name: &str, delay_ms: u64) -> NodeSpec {
    node(name, |node| node.kind = NodeKind::Timer { delay_ms })
}

fn handle(name: &str, change: impl FnOnce(&mut HandleSpec)) -> HandleSpec {
    let mut handle = HandleSpec { capacity: 3, claim_ms: 500, max_deliveries: 2, ..HandleSpec::new(name) };
    change(&mut handle);
    handle
}

fn with(mut definition: Definition, change: impl FnOnce(&mut RunSettings)) -> Definition {
    change(&mut definition.settings);
    definition
}

/// All of them.
pub fn all() -> Vec<Definition> {
    let push = |accept_ms| Assign::Push { accept_ms };
    let one = Definition::new("one", vec![node("a", |a| a.work.preemptible = true)], vec![]);
    let gpu = Requirement {
        capabilities: vec![("gpu".into(), Capability::Number(2))],
        max_parallel_per_worker: Some(1),
        relevant: vec!["fast".into()],
        ..Requirement::default()
    };
    let diamond = Definition::new(
        "diamond",
        vec![
            node("a", |a| a.work.sticky = true),
            node("b", |b| b.work.requirement = gpu.clone()),
            node("c", |c| c.work.requirement.executors = vec!["cpu".into(), "any".into()]),
            node("d", |d| d.work.lease_ms = 2_000),
        ],
        vec![Edge::data("a", "b"), Edge::data("a", "c"), Edge::data("b", "d"), Edge::data("c", "d")],
    );
    let diamond = with(diamond, |settings| settings.on_failure = OnFailure::Continue);
    let joins = Definition::new(
        "joins",
        vec![
            node("a", |a| a.work.retry.max_failures = 1),
            node("b", |b| b.work.assign = push(400)),
            timer("t", 700),
            node("j", |j| j.join = Join::Any),
            node("n", |n| n.join = Join::AtLeast(2)),
        ],
        vec![
            Edge::data("a", "j"),
            Edge::data("b", "j"),
            Edge::data("t", "j"),
            Edge::data("a", "n"),
            Edge::data("b", "n"),
            Edge::data("t", "n"),
        ],
    );
    let race = Definition::new(
        "race",
        vec![
            node("a", |_| ()),
            node("b", |b| b.work.assign = push(300)),
            timer("t", 400),
            node("j", |j| j.join = Join::Any),
        ],
        vec![Edge::data("a", "j"), Edge::data("b", "j"), Edge::data("t", "j")],
    );
    let stream = Definition::new(
        "stream",
        vec![
            node("p", |_| ()),
            node("c", |c| c.handles = vec![handle("in", |one| one.sources = vec!["out".into()])]),
        ],
        vec![Edge::stream("p", "c", "in")],
    );
    let stream = with(stream, |settings| settings.on_failure = OnFailure::Continue);
    let trigger = Definition::new(
        "trigger",
        vec![
            node("w", |w| {
                w.handles = vec![handle("events", |one| one.trigger = true), handle("plain", |_| ())]
            }),
            node("x", |_| ()),
        ],
        vec![Edge::data("w", "x")],
    );
    let offered = Definition::new(
        "offered",
        vec![
            node("a", |a| {
                a.work.assign = push(400);
                a.work.timeouts.ready_to_start_ms = Some(1_500);
                a.work.preemptible = true;
                a.work.sticky = true;
            }),
            node("b", |b| b.work.assign = push(600)),
        ],
        vec![Edge::data("a", "b")],
    );
    let whole =
        WorkSpec { timeouts: Timeouts { start_to_finish_ms: Some(2_500), ..Timeouts::default() }, ..work() };
    let held = Definition::new(
        "held",
        vec![
            node("a", |_| ()),
            timer("t", 500),
            node("b", |_| ()),
            node("c", |c| c.handles = vec![handle("in", |one| one.sources = vec!["out".into()])]),
        ],
        vec![Edge::data("a", "t"), Edge::data("t", "b"), Edge::data("a", "c")],
    );
    let held = with(held, |settings| settings.scope = Scope::Run(Box::new(whole.clone())));
    let sprint = |name: &str, assign: Assign| {
        let definition = Definition::new(
            name,
            vec![
                timer("t", 300),
                node("b", |_| ()),
                node("j", |j| {
                    (j.join, j.kind) = (Join::Any, NodeKind::Timer { delay_ms: 300 });
                }),
            ],
            vec![Edge::data("t", "j"), Edge::data("b", "j")],
        );
        let retry = Retry { backoff_ms: 3_000, max_backoff_ms: 3_000, ..whole.retry.clone() };
        let timeouts = Timeouts { start_to_finish_ms: Some(100), ..Timeouts::default() };
        let scope = Scope::Run(Box::new(WorkSpec { assign, retry, timeouts, ..work() }));
        with(definition, |settings| settings.scope = scope)
    };
    let urgent = Definition::new(
        "urgent",
        vec![node("a", |a| {
            a.work.preempts = true;
            a.work.timeouts.ready_to_start_ms = Some(2_000);
        })],
        vec![],
    );
    let slow = Definition::new(
        "slow",
        vec![node("a", |a| {
            a.work.lease_ms = 3_000;
            a.work.timeouts = Timeouts {
                progress_ms: Some(800),
                start_to_finish_ms: Some(2_500),
                ready_to_start_ms: Some(2_000),
            };
        })],
        vec![],
    );
    let slow = with(slow, |settings| settings.deadline_ms = Some(9_000));
    let nap = Definition::new(
        "nap",
        vec![node("a", |_| ()), timer("t", 20_000), node("b", |_| ())],
        vec![Edge::data("a", "t"), Edge::data("t", "b")],
    );
    vec![
        one,
        diamond,
        joins,
        race,
        stream,
        trigger,
        offered,
        held,
        sprint("sprint", push(350)),
        sprint("dash", Assign::Pull),
        urgent,
        slow,
        nap,
    ]
}
