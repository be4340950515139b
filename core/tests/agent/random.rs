//! Random worlds. While every clock stays within the drift bound, no two Agents execute the same work at once, whatever the
//! network does (the world asserts it at every start); and when the faults stop, every run ends.

use crate::story::definitions;
use crate::world::*;
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, RngSeed};
use tenure_core::agent::lifecycle::SessionState;
use tenure_core::agent::{Input, Notice, Settings};
use tenure_core::coordinator::command::{Failure, FailureKind, Submit, Then};
use tenure_core::coordinator::effect::{Answer, Grant};
use tenure_core::coordinator::rejection::Rejection;
use tenure_core::id::*;
use tenure_core::value::Value;

fn config(cases: u32) -> ProptestConfig {
    let times = std::env::var("TENURE_TIMES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seed: u64 = std::env::var("TENURE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    ProptestConfig {
        cases: cases * times,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(5 + seed),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 60,
        ..ProptestConfig::default()
    }
}

/// Takes a time that depends on what it is; fails the first attempt now and then.
fn mixed(grant: &Grant) -> (u64, Then) {
    let takes_ms = (grant.stable_key % 4_000) as u64;
    let fails = grant.attempt.get() == 1 && grant.stable_key.is_multiple_of(7);
    let failure = Failure { kind: FailureKind::Retryable, detail: Value::EMPTY };
    let then =
        if fails { Then::Fail { failure, poison: None } } else { Then::Complete { output: Value::EMPTY } };
    (takes_ms, then)
}

/// A life with faults, and then a calm one in which everything must end.
fn live(seed: u64, partitions: u16, faults: Faults, rates: &[u64], acts: &[u8]) -> World {
    let mut world = World::new(partitions, definitions());
    world.random = seed;
    for (at, rate) in rates.iter().enumerate() {
        let clock = Clock { num: *rate, den: 100, offset: world.draw() % 100_000 };
        let slots = 2 + at as u32;
        let settings = Settings { spec: spec(slots), ..settings(at as u128 + 1, 2) };
        let at = world.host(settings, clock, mixed);
        world.hosts[at].stop_ms = world.draw() % 40;
    }
    world.run(200);
    world.faults = faults;
    for act in acts {
        let partition = u16::from(*act) % partitions;
        let at = usize::from(*act / 8) % rates.len();
        let names = ["one", "diamond", "offered", "whole", "long"];
        match act % 8 {
            0..=3 => {
                let name = names[usize::from(act / 8) % names.len()];
                let priority = *act;
                world.submit(partition, Submit { priority, ..Submit::new(name, Value::EMPTY, 0) });
            }
            4 => {
                // The guard band pays for the time that stopping takes only while the process runs: one that slept past
                // the end of its lease is promised to stop first, and no more.
                world.hosts[at].stop_ms = 0;
                world.hosts[at].frozen_until = world.time + u64::from(*act) * 10;
            }
            5 => world.hosts[at].clock.offset += u64::from(*act) * 10,
            6 => world.hosts[at].cut_until = world.time + 800 + u64::from(*act) * 8,
            _ => restart_fenced(&mut world),
        }
        let ms = world.draw() % 800;
        world.run(ms);
    }
    world.faults = CALM;
    for _ in 0..90 {
        restart_fenced(&mut world);
        world.run(1_000);
        if world.all_completed() {
            break;
        }
    }
    world
}

fn restart_fenced(world: &mut World) {
    for at in 0..world.hosts.len() {
        for partition in world.partitions.keys().copied().collect::<Vec<_>>() {
            let session = world.hosts[at].agent.session(partition).expect("it has one");
            if session.state == SessionState::Fenced {
                world.tell(at, Input::Restart { partition });
            }
        }
    }
}

fn faults() -> impl Strategy<Value = Faults> {
    // Mostly a good network, in which work gets far enough for something to happen to it.
    let drops = prop_oneof![2 => 0..3u64, 1 => 0..40u64];
    let delays = prop_oneof![2 => 0..30u64, 1 => 0..1_500u64];
    (drops, 0..30u64, delays).prop_map(|(drop_percent, double_percent, delay_ms)| Faults {
        drop_percent,
        double_percent,
        delay_ms,
    })
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn no_two_agents_execute_the_same_work_and_in_the_end_all_of_it_is_done(
        seed in any::<u64>(),
        partitions in 1..3u16,
        faults in faults(),
        rates in prop::collection::vec(91..110u64, 2..4),
        acts in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let world = live(seed, partitions, faults, &rates, &acts);
        for run in &world.runs {
            let status = world.status(*run);
            prop_assert!(world.all_completed(), "run {} is {} at {}", run, status, world.time);
        }
    }

    #[test]
    fn the_same_inputs_give_the_same_orders(seed in any::<u64>(), acts in prop::collection::vec(any::<u8>(), 1..12)) {
        let faults = Faults { drop_percent: 20, double_percent: 20, delay_ms: 400 };
        let [one, two] = [0, 1].map(|_| live(seed, 1, faults, &[95, 105], &acts));
        for (one, two) in one.hosts.iter().zip(&two.hosts) {
            prop_assert_eq!(&one.orders, &two.orders);
        }
    }

    #[test]
    fn answers_that_make_no_sense_never_panic(seed in any::<u64>(), draws in prop::collection::vec(any::<u32>(), 1..80)) {
        let mut world = World::new(1, definitions());
        world.random = seed;
        world.host(settings(1, 2), Clock::TRUE, mixed);
        (0..3).for_each(|_| _ = world.submit(0, Submit::new("whole", Value::EMPTY, 0)));
        (0..3).for_each(|_| _ = world.submit(0, Submit::new("diamond", Value::EMPTY, 0)));
        (0..2).for_each(|_| _ = world.submit(0, Submit::new("offered", Value::EMPTY, 0)));
        world.faults.drop_percent = 30;
        world.overlaps = Some(0);
        for draw in draws {
            nonsense(&mut world, draw);
            world.run(u64::from(draw % 300));
        }
    }
}

/// Something that a partition would not say, or not now.
fn nonsense(world: &mut World, draw: u32) {
    let request = RequestId::new(u64::from(draw >> 8) % (world.hosts[0].sent.len() as u64 + 2));
    let grants: Vec<Grant> = world.hosts[0]
        .started
        .iter()
        .rev()
        .take(3)
        .cloned()
        .map(|mut grant| {
            grant.epoch = Epoch::new(grant.epoch.get() + u64::from(draw >> 4) % 3);
            grant.attempt = Attempt::new(grant.attempt.get() + (draw >> 6) % 2);
            if (draw >> 7).is_multiple_of(3) {
                grant.node = NodeIx::WHOLE_RUN
            }
            if (draw >> 7).is_multiple_of(11) {
                grant.lease_ms = u64::from(draw) % 100
            }
            grant
        })
        .collect();
    let (worker, session) = (WorkerId::new(1), Session::new(draw % 4));
    let presented = world.hosts[0].agent.session(0).expect("it has one").incarnation;
    let held: Vec<_> = grants.iter().map(Grant::held).collect();
    let result = match draw % 12 {
        0 => Ok(Answer::Registered { incarnation: Incarnation::new(u64::from(draw % 9)), session }),
        1 => Ok(Answer::Done),
        2 => Ok(Answer::Beat { session, reconcile: draw & 64 == 0, now: tenure_core::time::Time::ZERO }),
        3 => Ok(Answer::Polled { session, grants: grants.clone() }),
        4 => Ok(Answer::Reconciled { session, lost: held, missed: grants.clone() }),
        5 => Ok(Answer::Reported(vec![Err(Rejection::InboxFull { capacity: 1 })])),
        6 => Ok(Answer::Reported(vec![Err(Rejection::Paused); 3])),
        7 => Err(Rejection::UnknownWorker { worker }),
        8 => Err(Rejection::StaleIncarnation { current: Incarnation::new(u64::from(draw)), presented }),
        9 => Err(Rejection::StalePoll { last: PollId::new(3), presented: PollId::new(1) }),
        10 => Ok(Answer::Reported(vec![Err(Rejection::StaleIncarnation {
            current: Incarnation::new(u64::from(draw)),
            presented,
        })])),
        _ => Ok(Answer::Reported(vec![Err(Rejection::IdMissing); 2])),
    };
    world.tell(0, Input::Replied { partition: 0, request, result });
    if let Some(grant) = grants.into_iter().next() {
        let held = grant.held();
        let notice = match draw % 5 {
            0 => Notice::Offer(Box::new(grant)),
            1 | 2 => Notice::Hand(Box::new(grant)),
            3 => Notice::Stop { held, reason: tenure_core::coordinator::event::StopReason::Fenced },
            _ => Notice::Wake,
        };
        world.tell(0, Input::Noticed { partition: 0, notice });
    }
}
