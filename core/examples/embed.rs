//! The first code an embedder reads: a hand-written loop around a Coordinator, with a store that is a list of rows.
//! A graph a → (b, c) → d runs; in the middle the machine is dropped, as in a crash, and restored from its rows.

use tenure_core::Coordinator;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::{Answer, Effect, Grant, Output};
use tenure_core::coordinator::row::{Change, Row};
use tenure_core::definition::{Definition, Edge, NodeSpec};
use tenure_core::id::*;
use tenure_core::limits::Limits;
use tenure_core::time::Now;
use tenure_core::value::Value;

/// A machine, its clock, and its store: what was put last under each key.
struct Host {
    machine: Coordinator,
    clock: u64,
    store: Vec<Row>,
}

impl Host {
    /// One turn of the loop: feed the machine, commit the rows, and only then let the effects out.
    fn tell(&mut self, input: Input) -> Vec<Effect> {
        self.clock += 10;
        let (mut out, mut changes) = (Output::default(), Vec::new());
        self.machine.handle(Now::new(self.clock, self.clock), input, &mut out);
        self.machine.take_changes(&mut changes);
        for change in changes {
            if let Change::Put(row) = change {
                self.store.retain(|old| old.key() != row.key());
                self.store.push(row);
            }
        }
        out.effects
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, command: Command) -> Answer {
        let (request, tenant) = (RequestId::new(self.clock), TenantId::new(1));
        for effect in self.tell(Input::Command(Envelope { request, tenant, command })) {
            if let Effect::Reply { result, .. } = effect {
                return result.expect("this example asks for nothing wrong");
            }
        }
        unreachable!("every command is answered")
    }

    fn poll(&mut self, worker: WorkerId, incarnation: Incarnation) -> Vec<Grant> {
        let poll = PollId::new(self.clock);
        match self.ask(Command::Poll { worker, incarnation, poll, max: 10, wait: false }) {
            Answer::Polled { grants, .. } => grants,
            other => unreachable!("a poll is answered with grants, not {other:?}"),
        }
    }
}

fn main() {
    let mut host = Host { machine: Coordinator::new(0, Limits::default()), clock: 0, store: Vec::new() };
    host.tell(Input::Recover);
    let nodes = ["a", "b", "c", "d"].map(NodeSpec::new).to_vec();
    let edges =
        [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")].map(|(from, to)| Edge::data(from, to)).to_vec();
    let definition = Box::new(Definition::new("diamond", nodes, edges));
    host.ask(Command::Define { definition, hash: ContentHash::new(1) });
    host.ask(Command::Submit(Box::new(Submit::new("diamond", Value::EMPTY, 42))));
    let worker = WorkerId::new(7);
    let spec = Box::new(WorkerSpec { slots: 4, ..WorkerSpec::default() });
    let Answer::Registered { incarnation, .. } = host.ask(Command::Register { worker, spec }) else {
        unreachable!()
    };

    for turn in 0.. {
        let grants = host.poll(worker, incarnation);
        if grants.is_empty() {
            println!("nothing left to do after {turn} turns");
            break;
        }
        if turn == 1 {
            println!("crash while {} nodes are held; restoring from {} rows", grants.len(), host.store.len());
            host.machine = Coordinator::restore(Limits::default(), host.store.clone()).expect("our own rows");
            host.tell(Input::Recover);
        }
        for grant in grants {
            println!("node {} under epoch {}, attempt {}", grant.node, grant.epoch, grant.attempt);
            let reports = vec![Report::new(grant.held(), Then::Complete { output: Value::EMPTY })];
            host.ask(Command::Report { worker, incarnation, reports });
        }
    }
    let ended =
        host.store.iter().any(|row| matches!(row, Row::Run(run) if run.head.status.as_str() == "completed"));
    assert!(ended, "the run completed, although the machine was lost in the middle");
}
