//! The first code an embedder reads: a hand-written loop around a Coordinator, with a store in memory. A graph
//! a → (b, c) → d runs; in the middle the machine is dropped, as in a crash, and restored from its rows.

use tenure_core::Coordinator;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::{Answer, Effect, Output};
use tenure_core::coordinator::memory::MemoryStore;
use tenure_core::definition::{Definition, Edge, NodeSpec};
use tenure_core::id::{ContentHash, PollId, RequestId, TenantId, WorkerId};
use tenure_core::limits::Limits;
use tenure_core::time::Now;
use tenure_core::value::Value;

struct Host {
    machine: Coordinator,
    store: MemoryStore,
    clock: u64,
}

impl Host {
    /// One turn of the loop: feed the machine, commit the rows, and only then let the effects out.
    fn tell(&mut self, input: Input) -> Vec<Effect> {
        self.clock += 10;
        let (mut out, mut changes) = (Output::default(), Vec::new());
        self.machine.handle(Now::new(self.clock, self.clock), input, &mut out);
        self.machine.take_changes(&mut changes);
        self.store.commit(changes);
        for load in out.loads {
            let rows = self.store.find(&load.needs);
            out.effects.append(&mut self.tell(Input::Loaded(Loaded { load, rows })));
        }
        out.effects
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, command: Command) -> Answer {
        let (request, tenant) = (RequestId::new(self.clock), TenantId::new(1));
        let effects = self.tell(Input::Command(Envelope { request, tenant, command }));
        let reply = effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { result, .. } => Some(result),
            _ => None,
        });
        reply.expect("every command is answered").expect("this example asks for nothing wrong")
    }
}

fn main() {
    let machine = Coordinator::new(0, Limits::default());
    let mut host = Host { machine, store: MemoryStore::default(), clock: 0 };
    host.tell(Input::Recover);
    let nodes = ["a", "b", "c", "d"].map(NodeSpec::new).to_vec();
    let edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")].map(|(from, to)| Edge::data(from, to));
    let definition = Box::new(Definition::new("diamond", nodes, edges.to_vec()));
    host.ask(Command::Define { definition, hash: ContentHash::new(1) });
    host.ask(Command::Submit(Box::new(Submit::new("diamond", Value::EMPTY, 42))));
    let (worker, spec) = (WorkerId::new(7), Box::new(WorkerSpec { slots: 4, ..WorkerSpec::default() }));
    let Answer::Registered { incarnation, .. } = host.ask(Command::Register { worker, spec }) else {
        panic!()
    };

    for turn in 1.. {
        let poll = Command::Poll { worker, incarnation, poll: PollId::new(turn), max: 10, wait: false };
        let Answer::Polled { grants, .. } = host.ask(poll) else { panic!("a poll is answered with grants") };
        if grants.is_empty() {
            break;
        }
        if turn == 2 {
            println!("crash while {} nodes are held", grants.len());
            host.machine = Coordinator::restore(Limits::default(), host.store.resident().cloned()).unwrap();
            host.tell(Input::Recover);
        }
        for grant in grants {
            println!("node {} under epoch {}, attempt {}", grant.node, grant.epoch, grant.attempt);
            let reports = vec![Report::new(grant.held(), Then::Complete { output: Value::EMPTY })];
            host.ask(Command::Report { worker, incarnation, reports });
        }
    }
    println!("the run is {}", host.store.heads().next().unwrap().status);
}
