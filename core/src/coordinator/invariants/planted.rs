//! Planted faults: each is one change to a sound machine, or to what it said, and is caught under the right number.

use super::{Holds, Watch, check_state};
use crate::coordinator::Coordinator;
use crate::coordinator::command::*;
use crate::coordinator::effect::{Answer, Effect, Output};
use crate::coordinator::event::{Event, Stamped};
use crate::coordinator::state::{Inbox, Run};
use crate::definition::{Definition, Edge, HandleSpec, NodeSpec};
use crate::id::*;
use crate::lifecycle::{Phase, RunStatus};
use crate::limits::Limits;
use crate::time::{Now, Time};
use crate::value::Value;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

const WORKER: WorkerId = WorkerId::new(1);

#[derive(Clone)]
struct Scene {
    machine: Coordinator,
    watch: Watch,
    at: u64,
    held: Vec<Held>,
    life: Incarnation,
}

/// A graph a → b of which a is held, a second run that waits, and a message in an inbox.
fn scene() -> Scene {
    let machine = Coordinator::new(0, Limits::default());
    let (watch, held) = (Watch::new(&machine), Vec::new());
    let mut scene = Scene { machine, watch, at: 0, held, life: Incarnation::new(0) };
    scene.tell(Input::Recover);
    let mut first = NodeSpec::new("a");
    first.handles = vec![HandleSpec::new("in")];
    let definition = Definition::new("pair", vec![first, NodeSpec::new("b")], vec![Edge::data("a", "b")]);
    scene.ask(Command::Define { definition: Box::new(definition), hash: ContentHash::new(1) });
    let spec = Box::new(WorkerSpec { slots: 1, ..WorkerSpec::default() });
    scene.ask(Command::Register { worker: WORKER, spec });
    for random in 0..2 {
        let mut submit = Submit::new("pair", Value::EMPTY, random);
        let (key, fingerprint) = (KeyHash::new(u128::from(random)), ContentHash::new(1));
        submit.key = Some(SubmitKey { key, fingerprint, minted_at: Time::from_ms(1) });
        scene.ask(Command::Submit(Box::new(submit)));
    }
    let (poll, incarnation) = (PollId::new(1), scene.life);
    scene.ask(Command::Poll { worker: WORKER, incarnation, poll, max: 2, wait: false });
    let (run, node, handle) = (scene.held[0].run, NodeIx::new(0), HandleIx::new(0));
    let (id, value, cursor) = (MessageKey::Own(MessageId::new(1)), Value::EMPTY, None);
    scene.ask(Command::Send(Box::new(SendCommand { run, node, handle, id, value, cursor })));
    scene
}

impl Scene {
    fn say(&mut self, input: &Input) -> Output {
        self.at += 10;
        let mut out = Output::default();
        self.machine.handle(Now::new(self.at, self.at), input.clone(), &mut out);
        out
    }

    fn tell(&mut self, input: Input) {
        let out = self.say(&input);
        self.watch.observe_all(&self.machine, &input, &out).expect("nothing is planted yet");
        for effect in &out.effects {
            match effect {
                Effect::Reply { result: Ok(Answer::Polled { grants, .. }), .. } => {
                    self.held.extend(grants.iter().map(|grant| grant.held()));
                }
                Effect::Reply { result: Ok(Answer::Registered { incarnation, .. }), .. } => {
                    self.life = *incarnation
                }
                _ => {}
            }
        }
    }

    fn ask(&mut self, command: Command) {
        self.tell(Input::Command(self.envelope(command)));
    }

    fn envelope(&self, command: Command) -> Envelope {
        Envelope { request: RequestId::new(self.at), tenant: TenantId::new(1), command }
    }

    fn report(&self, then: Then) -> Input {
        let reports = vec![Report::new(self.held[0], then)];
        Input::Command(self.envelope(Command::Report { worker: WORKER, incarnation: self.life, reports }))
    }

    fn run(&mut self) -> &mut Run {
        self.machine.state.runs.get_mut(1).expect("it is there")
    }

    fn inbox(&mut self) -> &mut Inbox {
        &mut self.run().inboxes[0]
    }
}

fn number(holds: Holds) -> &'static str {
    holds.expect_err("a planted fault is found").number
}

#[test]
fn a_fault_in_the_state_is_caught_under_its_number() {
    type Plant = fn(&mut Scene);
    let plants: &[(&str, Plant)] = &[
        ("S4", |scene| scene.run().head.status = RunStatus::Completed),
        ("S6", |scene| scene.run().node_mut(NodeIx::new(0)).work.epoch = Epoch::new(99)),
        ("S17", |scene| scene.run().inboxes = Default::default()),
        ("S19", |scene| scene.run().node_mut(NodeIx::new(1)).missing = 0),
        ("S22", |scene| scene.inbox().ids.clear()),
        ("S23", |scene| scene.inbox().messages.clear()),
        ("S26", |scene| scene.inbox().row.claimed_through = Seq::new(1)),
        ("S27", |scene| scene.inbox().row.closed = true),
        ("S29", |scene| scene.inbox().row.cursor_settled = Some(3)),
        ("S33", |scene| scene.machine.state.keys = Default::default()),
        ("S35", |scene| {
            scene.machine.state.workers.at_mut(0).row.incarnation = Incarnation::new(0);
        }),
        ("S37", |scene| {
            scene.machine.state.runs.get_mut(2).expect("it is there").node_mut(NodeIx::new(0)).queued = false;
        }),
        ("S38", |scene| scene.machine.state.workers.at_mut(0).row.spec.slots = 0),
        ("S51", |scene| {
            let armed = scene.machine.state.workers.at(0).armed;
            let key = scene.machine.state.workers.at(0).row.key;
            let mut at = armed;
            scene.machine.state.timers.arm(
                crate::coordinator::state::Timer::Worker(key),
                &mut at,
                Time::NEVER,
            );
            scene.machine.state.workers.at_mut(0).armed = Time::NEVER;
        }),
        ("S52", |scene| scene.run().open += 1),
        ("S52", |scene| scene.run().armed = Time::from_ms(5)),
        ("S52", |scene| scene.machine.state.workers.at_mut(0).lanes[0].digest ^= 1),
        ("S52", |scene| scene.machine.state.live_runs.clear()),
    ];
    for (should, plant) in plants {
        let mut scene = scene();
        check_state(&scene.machine).expect("nothing is planted yet");
        plant(&mut scene);
        assert_eq!(number(check_state(&scene.machine)), *should);
    }
}

/// What a machine said, with one thing changed.
fn caught(then: Then, plant: impl FnOnce(&mut Scene, &mut Output)) -> &'static str {
    let mut scene = scene();
    let input = scene.report(then);
    let mut out = scene.say(&input);
    plant(&mut scene, &mut out);
    let Scene { machine, mut watch, .. } = scene;
    number(watch.observe(&machine, &input, &out))
}

fn complete() -> Then {
    Then::Complete { output: Value::EMPTY }
}

fn again(out: &mut Output, test: impl Fn(&Event) -> bool) {
    let found = out.audit.iter().find(|stamped| test(&stamped.event)).expect("it happened").clone();
    out.audit.push(found);
}

#[test]
fn a_fault_in_what_happened_is_caught_under_its_number() {
    let completed = |event: &Event| matches!(event, Event::NodeCompleted { .. });
    assert_eq!(caught(complete(), |_, out| again(out, completed)), "S1");
    let drop_last = |_: &mut Scene, out: &mut Output| {
        out.audit.retain(|stamped| !matches!(stamped.event, Event::NodeScheduled { .. }));
    };
    assert_eq!(caught(complete(), drop_last), "S1");
    let version = |scene: &mut Scene, _: &mut Output| {
        let run = scene.run();
        run.head.version = Version::new(run.head.version.get() + 1);
    };
    assert_eq!(caught(complete(), version), "S3");
    let refuse = |_: &mut Scene, out: &mut Output| {
        for effect in &mut out.effects {
            if let Effect::Reply { result: Ok(Answer::Reported(results)), .. } = effect {
                results[0] = Err(crate::coordinator::rejection::Rejection::Paused);
            }
        }
    };
    assert_eq!(caught(Then::Start, refuse), "S8");
    let attempt = |_: &mut Scene, out: &mut Output| {
        for Stamped { event, .. } in &mut out.audit {
            if let Event::NodeStarted { attempt, .. } = event {
                *attempt = Attempt::new(7);
            }
        }
    };
    assert_eq!(caught(Then::Start, attempt), "S13");
    let too_early = |scene: &mut Scene, out: &mut Output| {
        let (run, node) = (scene.held[0].run, NodeIx::new(1));
        let first = Stamped { event: Event::NodeScheduled { run, node }, ..out.audit[0].clone() };
        out.audit.insert(0, first);
    };
    assert_eq!(caught(complete(), too_early), "S15");
    let expire = |scene: &mut Scene, out: &mut Output| {
        let Held { run, node, .. } = scene.held[0];
        let how = crate::coordinator::event::Return::Expired;
        out.audit
            .insert(0, Stamped { event: Event::NodeReturned { run, node, how }, ..out.audit[0].clone() });
    };
    assert_eq!(caught(Then::Start, expire), "S10");
    let old_epoch = |scene: &mut Scene, out: &mut Output| {
        let Held { run, node, epoch } = scene.held[0];
        let worker = crate::coordinator::WorkerKey { tenant: TenantId::new(1), worker: WORKER };
        let (poll, by) = (PollId::new(2), crate::coordinator::event::By::Poll);
        let run = RunId::compose(run.partition(), 2, 1);
        let event = Event::NodeClaimed { run, node, epoch, worker, poll, by };
        out.audit.insert(0, Stamped { event, ..out.audit[0].clone() });
    };
    assert_eq!(caught(Then::Start, old_epoch), "S7");
    let consume = |scene: &mut Scene, out: &mut Output| {
        let (run, node, handle, through) = (scene.held[0].run, NodeIx::new(0), HandleIx::new(0), Seq::new(1));
        let event = Event::MessagesConsumed { run, node, handle, through, room: false };
        out.audit.push(Stamped { event, ..out.audit[0].clone() });
    };
    assert_eq!(caught(Then::Start, consume), "S24");
}

/// Tells the watch of an input of which nothing came.
fn seen(scene: &mut Scene, input: &Input) -> Holds {
    scene.watch.observe(&scene.machine, input, &Output::default())
}

/// A lease whose time is over, and a worker that was just heard.
fn revived() -> Scene {
    let mut scene = scene();
    scene.machine.state.clock.read(Now::new(10_000_000, 10_000_000));
    let now = scene.machine.state.now();
    scene.machine.state.workers.at_mut(0).last_seen = now;
    scene
}

#[test]
fn a_lease_that_came_back_to_life_is_caught_whoever_was_named() {
    let (mut named, mut timed) = (revived(), revived());
    let beat =
        Heartbeat { worker: WORKER, incarnation: named.life, session: Session::new(1), held: 0, load: 0 };
    let beat = Input::Command(named.envelope(Command::Heartbeat(beat)));
    assert_eq!(number(seen(&mut named, &beat)), "S9");
    let found = (0..1_000).find_map(|_| seen(&mut timed, &Input::Pulse).err());
    assert_eq!(found.expect("it shows in time").number, "S9");

    // Nobody names the worker: it shows as soon as somebody does, and when everything is looked at.
    let mut unnamed = revived();
    let other = Input::Command(unnamed.envelope(Command::Acknowledge { id: OutboxId::new(1), taken: true }));
    seen(&mut unnamed, &other).expect("it does not show yet");
    assert_eq!(number(seen(&mut unnamed.clone(), &beat)), "S9");
    let found = (0..1_000).find_map(|_| seen(&mut unnamed, &other).err());
    assert_eq!(found.expect("it shows in time").number, "S9");
}

#[test]
fn a_definition_that_changed_is_caught() {
    let changed = || {
        let mut scene = scene();
        scene.machine.state.definitions[0].row.definition.nodes[0].work.lease_ms += 1;
        scene
    };
    let (out, mut scene) = (Output::default(), changed());
    assert_eq!(number(scene.watch.observe_all(&scene.machine, &Input::Pulse, &out)), "S21");
    let mut scene = changed();
    let found = (0..1_000).find_map(|_| seen(&mut scene, &Input::Pulse).err());
    assert_eq!(found.expect("it shows in time").number, "S21");
    // What a run that moves is pinned to is looked at each time.
    let pinned = |scene: &mut Scene, _: &mut Output| {
        scene.machine.state.definitions[0].row.hash = ContentHash::new(2);
    };
    assert_eq!(caught(Then::Start, pinned), "S21");
}

#[test]
fn cursors_that_fall_and_repeats_that_are_answered_anew_are_caught() {
    let mut scene = scene();
    let (run, node, handle) = (scene.held[0].run, NodeIx::new(0), HandleIx::new(0));
    let (id, value, cursor) = (MessageKey::Own(MessageId::new(1)), Value::EMPTY, None);
    let send = Command::Send(Box::new(SendCommand { run, node, handle, id, value, cursor }));
    let send = Input::Command(scene.envelope(send));
    let mut out = scene.say(&send);
    for effect in &mut out.effects {
        if let Effect::Reply { result: Ok(Answer::Appended { seq }), .. } = effect {
            *seq = Seq::new(2);
        }
    }
    assert_eq!(number(scene.watch.observe(&scene.machine, &send, &out)), "S28");

    let mut scene = self::scene();
    scene.inbox().row.cursor_stored = Some(5);
    let start = scene.report(Then::Start);
    scene.tell(start);
    let progress = scene.report(Then::Progress { step: 1, total: 2 });
    let out = scene.say(&progress);
    scene.inbox().row.cursor_stored = Some(4);
    assert_eq!(number(scene.watch.observe(&scene.machine, &progress, &out)), "S29");
}

#[test]
fn a_restored_machine_that_lacks_a_row_is_caught() {
    let mut scene = scene();
    let mut changes = Vec::new();
    scene.machine.take_changes(&mut changes);
    let now = Now::new(scene.at, scene.at);
    super::s46_rows_are_enough(&scene.machine, now).expect("nothing is planted yet");
    scene.machine.state.workers.at_mut(0).row.lapsed.push((30_000, Session::new(9)));
    assert_eq!(number(super::s46_rows_are_enough(&scene.machine, now)), "S46");
    assert_eq!(scene.machine.state.the_run(scene.held[0].run).work(NodeIx::new(0)).phase, Phase::Claimed);
}
