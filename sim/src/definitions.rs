//! The definitions that simulated clients submit: together they use everything a definition can say.

use tenure_core::definition::*;

/// Builds definitions with the times of one world.
struct Maker {
    lease_ms: u64,
}

impl Maker {
    fn work(&self) -> WorkSpec {
        WorkSpec {
            lease_ms: self.lease_ms,
            heartbeat_ms: self.lease_ms / 3,
            retry: Retry { max_failures: 2, max_losses: 4, backoff_ms: 500, max_backoff_ms: 4_000 },
            ..WorkSpec::default()
        }
    }

    fn node(&self, name: &str, change: impl FnOnce(&mut NodeSpec)) -> NodeSpec {
        let mut node = NodeSpec::new(name);
        node.work = self.work();
        change(&mut node);
        node
    }

    fn plain(&self, name: &str) -> NodeSpec {
        self.node(name, |_| ())
    }

    fn timer(&self, name: &str, delay_ms: u64) -> NodeSpec {
        self.node(name, |node| node.kind = NodeKind::Timer { delay_ms })
    }

    fn chain(&self, name: &str, length: usize) -> Definition {
        let names: Vec<String> = (0..length).map(|n| format!("n{n}")).collect();
        let edges = names.windows(2).map(|pair| Edge::data(&pair[0], &pair[1])).collect();
        Definition::new(name, names.iter().map(|name| self.plain(name)).collect(), edges)
    }

    /// One node, many side by side, and a join of them all.
    fn fan(&self, name: &str, width: usize) -> Definition {
        let names: Vec<String> = (0..width).map(|n| format!("n{n}")).collect();
        let mut nodes: Vec<NodeSpec> = names.iter().map(|name| self.plain(name)).collect();
        nodes.push(self.plain("first"));
        nodes.push(self.plain("last"));
        let into = names.iter().map(|name| Edge::data("first", name));
        let out_of = names.iter().map(|name| Edge::data(name, "last"));
        Definition::new(name, nodes, into.chain(out_of).collect())
    }

    fn diamond(&self) -> Definition {
        let gpu = Requirement {
            capabilities: vec![("gpu".into(), Capability::Number(1))],
            max_parallel_per_worker: Some(1),
            ..Requirement::default()
        };
        let nodes = vec![
            self.node("a", |a| a.work.sticky = true),
            self.node("b", |b| b.work.requirement = gpu),
            self.node("c", |c| c.work.requirement.executors = vec!["cpu".into()]),
            self.plain("d"),
        ];
        let edges =
            vec![Edge::data("a", "b"), Edge::data("a", "c"), Edge::data("b", "d"), Edge::data("c", "d")];
        let mut definition = Definition::new("diamond", nodes, edges);
        definition.settings.on_failure = OnFailure::Continue;
        definition
    }

    fn joins(&self) -> Definition {
        let nodes = vec![
            self.node("a", |a| a.work.retry.max_failures = 1),
            self.node("b", |b| b.work.assign = Assign::Push { accept_ms: 2_000 }),
            self.timer("t", 3_000),
            self.node("j", |j| j.join = Join::Any),
            self.node("n", |n| n.join = Join::AtLeast(2)),
        ];
        let pairs = [("a", "j"), ("b", "j"), ("t", "j"), ("a", "n"), ("b", "n"), ("t", "n")];
        Definition::new("joins", nodes, pairs.iter().map(|(from, to)| Edge::data(from, to)).collect())
    }

    fn stream(&self) -> Definition {
        let handle = HandleSpec {
            capacity: 4,
            claim_ms: self.lease_ms / 2,
            max_deliveries: 3,
            sources: vec!["outside".into()],
            ..HandleSpec::new("in")
        };
        let nodes = vec![self.plain("p"), self.node("c", |c| c.handles = vec![handle])];
        let mut definition = Definition::new("stream", nodes, vec![Edge::stream("p", "c", "in")]);
        definition.settings.deadline_ms = Some(600_000);
        definition
    }

    fn trigger(&self) -> Definition {
        let events = HandleSpec { trigger: true, capacity: 8, ..HandleSpec::new("events") };
        let plain = HandleSpec { capacity: 4, max_deliveries: 2, ..HandleSpec::new("plain") };
        let nodes = vec![self.node("w", |w| w.handles = vec![events, plain]), self.plain("x")];
        let mut definition = Definition::new("trigger", nodes, vec![Edge::data("w", "x")]);
        definition.settings.deadline_ms = Some(900_000);
        definition
    }

    fn whole(&self) -> Definition {
        let nodes = vec![self.plain("a"), self.timer("t", 2_000), self.plain("b"), self.plain("c")];
        let edges = vec![Edge::data("a", "t"), Edge::data("t", "b"), Edge::data("a", "c")];
        let mut definition = Definition::new("whole", nodes, edges);
        definition.settings.scope = Scope::Run(Box::new(self.work()));
        definition
    }

    fn offered(&self) -> Definition {
        let nodes = vec![
            self.node("a", |a| {
                a.work.assign = Assign::Push { accept_ms: 3_000 };
                a.work.timeouts.ready_to_start_ms = Some(120_000);
                a.work.preemptible = true;
            }),
            self.node("b", |b| b.work.assign = Assign::Push { accept_ms: 1_000 }),
        ];
        Definition::new("offered", nodes, vec![Edge::data("a", "b")])
    }

    fn urgent(&self) -> Definition {
        Definition::new("urgent", vec![self.node("a", |a| a.work.preempts = true)], vec![])
    }

    fn slow(&self) -> Definition {
        let timeouts = Timeouts {
            progress_ms: Some(self.lease_ms * 2),
            start_to_finish_ms: Some(60_000),
            ready_to_start_ms: Some(300_000),
        };
        let node = self.node("a", |a| {
            a.work.timeouts = timeouts;
            a.work.preemptible = true;
        });
        let mut definition = Definition::new("slow", vec![node], vec![]);
        definition.settings.deadline_ms = Some(900_000);
        definition
    }

    /// A run held as a whole that a timer may finish while it waits for a holder, is offered, or is claimed.
    fn sprint(&self, name: &str, assign: Assign) -> Definition {
        let nodes = vec![
            self.timer("t", 300),
            self.plain("b"),
            self.node("j", |j| (j.join, j.kind) = (Join::Any, NodeKind::Timer { delay_ms: 300 })),
        ];
        let mut definition = Definition::new(name, nodes, vec![Edge::data("t", "j"), Edge::data("b", "j")]);
        let retry = Retry { backoff_ms: 3_000, max_backoff_ms: 3_000, ..self.work().retry };
        let timeouts = Timeouts { start_to_finish_ms: Some(150), ..Timeouts::default() };
        definition.settings.scope = Scope::Run(Box::new(WorkSpec { assign, retry, timeouts, ..self.work() }));
        definition
    }

    fn nap(&self) -> Definition {
        let nodes = vec![self.plain("a"), self.timer("t", 90_000), self.plain("b")];
        Definition::new("nap", nodes, vec![Edge::data("a", "t"), Edge::data("t", "b")])
    }
}

/// Places in [`all`] that others need to know.
pub const STREAM: usize = 6;
/// See [`STREAM`].
pub const TRIGGER: usize = 7;

/// All of them, with leases of this length.
pub fn all(lease_ms: u64) -> Vec<Definition> {
    let make = Maker { lease_ms };
    let one = Definition::new("one", vec![make.node("a", |a| a.work.preemptible = true)], vec![]);
    vec![
        one,
        make.chain("chain", 3),
        make.diamond(),
        make.fan("fan", 8),
        make.joins(),
        make.chain("deep", 9),
        make.stream(),
        make.trigger(),
        make.whole(),
        make.offered(),
        make.urgent(),
        make.slow(),
        make.nap(),
        make.sprint("sprint", Assign::Push { accept_ms: 500 }),
        make.sprint("dash", Assign::Pull),
    ]
}
