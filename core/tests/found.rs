//! What the random lives of a partition found, each as a short story of its own. Every invariant is checked after every
//! input here too.

mod common;

use common::{World, tenant};
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::{Answer, Reported};
use tenure_core::coordinator::event::Event;
use tenure_core::coordinator::rejection::{Ineligible, Rejection};
use tenure_core::definition::Capability;
use tenure_core::id::*;
use tenure_core::lifecycle::{Phase, RunStatus, WorkStep};
use tenure_core::time::Time;
use tenure_core::value::Value;

struct Worker(WorkerId, Incarnation, u64);

fn register(world: &mut World, id: u128, slots: u32, gpu: bool) -> Worker {
    let mut spec = WorkerSpec { slots, executors: vec!["cpu".into()], ..WorkerSpec::default() };
    if gpu {
        spec.capabilities.push(("gpu".into(), Capability::Number(2)));
    }
    let worker = WorkerId::new(id);
    match world.ask(tenant(0), Command::Register { worker, spec: Box::new(spec) }) {
        Ok(Answer::Registered { incarnation, .. }) => Worker(worker, incarnation, 0),
        other => panic!("{other:?}"),
    }
}

fn submit(world: &mut World, name: &str, change: impl FnOnce(&mut Submit)) -> RunId {
    let mut submit = Submit::new(name, Value::EMPTY, 7);
    change(&mut submit);
    match world.ask(tenant(0), Command::Submit(Box::new(submit))) {
        Ok(Answer::Submitted { run, .. }) => run,
        other => panic!("{other:?}"),
    }
}

fn poll(world: &mut World, worker: &mut Worker, max: u32) -> Vec<Held> {
    worker.2 += 1;
    let poll = PollId::new(worker.2);
    let command = Command::Poll { worker: worker.0, incarnation: worker.1, poll, max, wait: false };
    match world.ask(tenant(0), command) {
        Ok(Answer::Polled { grants, .. }) => grants.iter().map(|grant| grant.held()).collect(),
        other => panic!("{other:?}"),
    }
}

fn report(world: &mut World, worker: &Worker, report: Report) -> Result<Reported, Rejection> {
    let command = Command::Report { worker: worker.0, incarnation: worker.1, reports: vec![report] };
    match world.ask(tenant(0), command) {
        Ok(Answer::Reported(mut results)) => results.remove(0),
        other => panic!("{other:?}"),
    }
}

fn status(world: &World, run: RunId) -> RunStatus {
    world.heads().find(|head| head.id == run).map(|head| head.status).expect("it is stored")
}

fn pass(world: &mut World, ms: u64) {
    world.pass(ms);
    world.feed(Input::Pulse);
}

fn offers(world: &World) -> Vec<(Held, WorkerId)> {
    world.memories.iter().map(|memory| (memory.held, memory.key.worker)).collect()
}

#[test]
fn a_leaving_worker_is_not_offered_its_own_work_again() {
    let mut world = World::new();
    let worker = register(&mut world, 1, 2, false);
    let run = submit(&mut world, "offered", |_| ());
    assert_eq!(offers(&world).len(), 1);
    world
        .ask(tenant(0), Command::Deregister { worker: worker.0, incarnation: Some(worker.1) })
        .expect("it leaves");
    assert_eq!(offers(&world).len(), 1, "nobody is left to offer it to");
    assert_eq!(status(&world, run), RunStatus::Running);
}

#[test]
fn a_stale_worker_that_claims_by_name_must_have_room() {
    let mut world = World::new();
    let worker = register(&mut world, 1, 0, false);
    let run = submit(&mut world, "one", |_| ());
    pass(&mut world, 2_500);
    let (poll, node) = (PollId::new(1), NodeIx::new(0));
    let claim = Command::Claim { worker: worker.0, incarnation: worker.1, poll, run, node };
    let answer = world.ask(tenant(0), claim);
    assert_eq!(answer, Err(Rejection::NotEligible { why: Ineligible::Full { slots: 0 } }));
}

#[test]
fn an_offer_may_be_accepted_after_a_later_grant() {
    let mut world = World::new();
    let mut worker = register(&mut world, 1, 3, false);
    submit(&mut world, "offered", |_| ());
    let (offer, _) = offers(&world)[0];
    submit(&mut world, "one", |_| ());
    assert_eq!(poll(&mut world, &mut worker, 1).len(), 1);
    assert_eq!(report(&mut world, &worker, Report::new(offer, Then::Accept)), Ok(Reported::Accepted));
    world.fork();
    pass(&mut world, 1_500);
}

#[test]
fn a_whole_run_that_is_lost_too_often_ends() {
    let mut world = World::new();
    let run = submit(&mut world, "held", |_| ());
    for _ in 0..3 {
        let mut worker = register(&mut world, 1, 1, false);
        let held = poll(&mut world, &mut worker, 1)[0];
        let node = Held { node: NodeIx::new(0), ..held };
        assert_eq!(report(&mut world, &worker, Report::new(node, Then::Start)), Ok(Reported::Accepted));
        pass(&mut world, 1_100);
        pass(&mut world, 100);
    }
    assert_eq!(status(&world, run), RunStatus::Failed);
}

#[test]
fn a_node_of_a_whole_run_that_fails_while_the_run_ends_ends_with_it() {
    let mut world = World::new();
    let run = submit(&mut world, "held", |_| ());
    let mut worker = register(&mut world, 1, 1, false);
    let held = poll(&mut world, &mut worker, 1)[0];
    let node = Held { node: NodeIx::new(0), ..held };
    report(&mut world, &worker, Report::new(node, Then::Start)).expect("it starts");
    world.ask(tenant(0), Command::Cancel(OnRun { run, if_version: None })).expect("it is open");
    let failure = Failure { kind: FailureKind::Retryable, detail: Value::EMPTY };
    report(&mut world, &worker, Report::new(node, Then::Fail { failure, poison: None }))
        .expect("it is taken");
    report(&mut world, &worker, Report::new(held, Then::Release)).expect("it lets go");
    assert_eq!(status(&world, run), RunStatus::Cancelled);
}

#[test]
fn a_whole_run_that_was_not_begun_completes_with_its_timers() {
    let world = World::of_a_paused_dash();
    assert_eq!(world.heads().next().map(|head| head.status), Some(RunStatus::Completed));
    assert!(world.watch.taken().work.contains(&(Phase::Claimed, WorkStep::Complete)));
}

fn key(n: u128, minted_at: Time) -> SubmitKey {
    SubmitKey { key: KeyHash::new(n), fingerprint: ContentHash::new(1), minted_at }
}

#[test]
fn a_key_stays_with_a_run_that_came_back() {
    let mut world = World::new();
    let mut runs = Vec::new();
    for n in 0..6 {
        let run = submit(&mut world, "one", |submit| submit.key = Some(key(n, Time::ZERO)));
        world.ask(tenant(0), Command::Cancel(OnRun { run, if_version: None })).expect("it is open");
        runs.push(run);
        // The first comes back each time, and its key must not make room for the others'.
        assert_eq!(submit(&mut world, "one", |submit| submit.key = Some(key(0, Time::ZERO))), runs[0]);
    }
    assert_eq!(submit(&mut world, "one", |submit| submit.key = Some(key(1, Time::ZERO))), runs[1]);
}

#[test]
fn a_key_from_the_future_is_refused() {
    let mut world = World::new();
    let mut submit = Submit::new("one", Value::EMPTY, 1);
    submit.key = Some(key(1, Time::from_ms(500_000)));
    let answer = world.ask(tenant(0), Command::Submit(Box::new(submit)));
    assert!(matches!(answer, Err(Rejection::KeyFromFuture { .. })), "{answer:?}");
}

#[test]
fn a_consumer_does_not_wait_for_streams_that_ended() {
    let mut world = World::new();
    let run = submit(&mut world, "stream", |_| ());
    let mut worker = register(&mut world, 1, 2, false);
    let producer = poll(&mut world, &mut worker, 1)[0];
    let (node, handle) = (NodeIx::new(1), HandleIx::new(0));
    let end = Command::EndStream { run, node, handle, source: 0, count: 0 };
    world.ask(tenant(0), end).expect("it has not ended");
    report(&mut world, &worker, Report::new(producer, Then::Complete { output: Value::EMPTY }))
        .expect("it is done");
    let consumer = poll(&mut world, &mut worker, 1)[0];
    report(&mut world, &worker, Report::new(consumer, Then::Start)).expect("it starts");
    let answer = report(&mut world, &worker, Report::new(consumer, Then::Suspend(Box::new(nap()))));
    assert_eq!(answer, Err(Rejection::HandleClosed));
}

#[test]
fn a_swept_run_is_nowhere() {
    let mut world = World::new();
    let run = submit(&mut world, "diamond", |_| ());
    world.ask(tenant(0), Command::Cancel(OnRun { run, if_version: None })).expect("it is open");
    (0..5).for_each(|_| pass(&mut world, 9_000));
    let answer = world.ask(tenant(0), Command::Retry(OnRun { run, if_version: None }));
    assert_eq!(answer, Err(Rejection::UnknownRun { run }));
    world.fork();
}

#[test]
fn a_run_rests_after_a_failure_that_it_survives() {
    let mut world = World::new();
    let mut worker = register(&mut world, 1, 3, false);
    let run = submit(&mut world, "joins", |_| ());
    let (offer, _) = offers(&world)[0];
    for then in [Then::Accept, Then::Start, Then::Suspend(Box::new(nap()))] {
        report(&mut world, &worker, Report::new(offer, then)).expect("it is the holder's");
    }
    let held = poll(&mut world, &mut worker, 1)[0];
    let failure = Failure { kind: FailureKind::Final, detail: Value::EMPTY };
    report(&mut world, &worker, Report::new(held, Then::Fail { failure, poison: None }))
        .expect("it is taken");
    assert_eq!(status(&world, run), RunStatus::Suspended, "the joins do without it, and the others sleep");
}

fn nap() -> Suspension {
    let (state, reason) = (Value::EMPTY, "input".into());
    Suspension { reason, state, on_message: true, after_ms: None, at_wall: None }
}

#[test]
fn a_worker_that_comes_back_as_another_kind_is_not_asked_for_its_old_work() {
    let mut world = World::new();
    let mut old = register(&mut world, 1, 1, false);
    register(&mut world, 2, 1, false);
    submit(&mut world, "one", |submit| submit.priority = 1);
    assert_eq!(poll(&mut world, &mut old, 1).len(), 1);
    register(&mut world, 1, 1, true);
    pass(&mut world, 10);
    submit(&mut world, "urgent", |submit| submit.priority = 200);
    let asked = world.audit.iter().filter(|stamped| matches!(stamped.event, Event::StopAsked { .. }));
    assert_eq!(asked.count(), 0, "there is room, and nobody holds anything");
}

#[test]
fn what_lapses_is_taken_back_at_a_pace() {
    let mut world = World::new();
    for id in 1..=4 {
        let mut worker = register(&mut world, id, 1, false);
        submit(&mut world, "one", |_| ());
        assert_eq!(poll(&mut world, &mut worker, 1).len(), 1);
        pass(&mut world, 10);
    }
    let returned = |world: &World| {
        let events = world.audit.iter().map(|stamped| &stamped.event);
        events.filter(|event| matches!(event, Event::NodeReturned { .. })).count()
    };
    pass(&mut world, 960);
    for _ in 0..3 {
        assert_eq!(returned(&world), 1, "one lapsed alone; the others wait for the next portion");
        pass(&mut world, 10);
    }
    pass(&mut world, 20);
    assert_eq!(returned(&world), 3, "a portion is two");
    pass(&mut world, 50);
    assert_eq!(returned(&world), 4);
}

#[test]
fn a_place_under_a_key_calls_the_same_worker_after_a_restart() {
    let mut world = World::new();
    let limit = Concurrency { key: KeyHash::new(1), limit: 1 };
    let (mut one, mut two) = (register(&mut world, 1, 1, false), register(&mut world, 2, 1, false));
    for _ in 0..2 {
        submit(&mut world, "one", |submit| submit.concurrency = Some(limit));
    }
    let first = poll(&mut world, &mut one, 1)[0];
    assert!(poll(&mut world, &mut two, 1).is_empty(), "the key is held");
    world.fork();
    submit(&mut world, "one", |submit| submit.priority = 200);
    let (worker, incarnation, poll) = (two.0, two.1, PollId::new(9));
    world
        .ask(tenant(0), Command::Poll { worker, incarnation, poll, max: 2, wait: true })
        .expect("it is known");
    let held = offers(&world).last().expect("it got one").0;
    let complete = || Then::Complete { output: Value::EMPTY };
    report(&mut world, &two, Report::new(held, complete())).expect("it is done");
    // The twin checks that both machines call the worker that waits.
    report(&mut world, &one, Report::new(first, complete())).expect("it is done");
    two.2 = 9;
    assert_eq!(self::poll(&mut world, &mut two, 1).len(), 1);
}
