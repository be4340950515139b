//! What a step of the model costs: runs of five nodes, many in flight, each submitted, pulled, started and completed.
//! `cargo run --release -p tenure-sim --example model_cost`

use std::time::{Duration, Instant};
use tenure_core::Coordinator;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::*;
use tenure_core::definition::{Definition, Edge, NodeSpec};
use tenure_core::id::*;
use tenure_core::limits::Limits;
use tenure_core::time::Now;
use tenure_core::value::Value;
use tenure_sim::model::Model;

struct Host {
    machine: Coordinator,
    model: Model,
    out: Output,
    now: Now,
    requests: u64,
    steps: u64,
    events: u64,
    ours: Duration,
    theirs: Duration,
}

impl Host {
    fn tell(&mut self, input: Input) {
        self.out.clear();
        let copy = input.clone();
        let start = Instant::now();
        self.machine.handle(self.now, input, &mut self.out);
        let middle = Instant::now();
        let judged = self.model.step(self.now, &copy, &self.out, &self.machine);
        let end = Instant::now();
        judged.unwrap_or_else(|wrong| panic!("{wrong}"));
        self.theirs += middle - start;
        self.ours += end - middle;
        self.steps += 1;
        self.events += self.out.audit.len() as u64;
        if self.requests.is_multiple_of(64) {
            self.machine.take_changes(&mut Vec::new());
            let start = Instant::now();
            self.model.seal(self.requests);
            self.model.durable(self.requests);
            self.ours += start.elapsed();
        }
    }

    fn ask(&mut self, command: Command) -> Answer {
        self.requests += 1;
        let request = RequestId::new(self.requests);
        self.tell(Input::Command(Envelope { request, tenant: TenantId::new(1), command }));
        let reply = self.out.effects.iter().find_map(|effect| match effect {
            Effect::Reply { result, .. } => Some(result.clone()),
            _ => None,
        });
        reply.expect("an answer").expect("it is accepted")
    }
}

fn main() {
    let mut host = Host {
        machine: Coordinator::new(0, Limits::default()),
        model: Model::new(0, Limits::default()),
        out: Output::default(),
        now: Now::new(0, 0),
        requests: 0,
        steps: 0,
        events: 0,
        ours: Duration::ZERO,
        theirs: Duration::ZERO,
    };
    host.tell(Input::Recover);
    let nodes = ["a", "b", "c", "d", "e"].map(NodeSpec::new).to_vec();
    let pairs = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")];
    let edges = pairs.map(|(from, to)| Edge::data(from, to)).to_vec();
    let definition = Box::new(Definition::new("five", nodes, edges));
    host.ask(Command::Define { definition, hash: ContentHash::new(1) });
    let worker = WorkerId::new(7);
    let spec = Box::new(WorkerSpec { slots: 64, ..WorkerSpec::default() });
    let Answer::Registered { incarnation, .. } = host.ask(Command::Register { worker, spec }) else { return };
    let submit = |n: u64| Command::Submit(Box::new(Submit::new("five", Value::EMPTY, n)));
    for n in 0..10_000 {
        host.ask(submit(n));
    }
    let mut best = (f64::MAX, f64::MAX, f64::MAX);
    let per = |time: Duration, of: u64| time.as_nanos() as f64 / of as f64;
    for turn in 1..12_000u64 {
        host.now = Now::new(turn, turn);
        // The best of many rounds: whatever else the computer does only ever makes a round slower.
        if turn % 50 == 1 {
            if turn > 50 {
                let round =
                    (per(host.ours, host.steps), per(host.ours, host.events), per(host.theirs, host.steps));
                best = (best.0.min(round.0), best.1.min(round.1), best.2.min(round.2));
            }
            (host.steps, host.events, host.ours, host.theirs) = (0, 0, Duration::ZERO, Duration::ZERO);
        }
        let poll = Command::Poll { worker, incarnation, poll: PollId::new(turn), max: 10, wait: false };
        let Answer::Polled { grants, .. } = host.ask(poll) else { return };
        for grant in grants {
            for then in [Then::Start, Then::Complete { output: Value::EMPTY }] {
                let reports = vec![Report::new(grant.held(), then)];
                host.ask(Command::Report { worker, incarnation, reports });
            }
        }
        host.ask(submit(turn));
        host.ask(submit(turn));
    }
    println!("model {:.0} ns a step, {:.0} ns an event; machine {:.0} ns a step", best.0, best.1, best.2);
}
