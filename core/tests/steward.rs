//! Several Stewards over one table of servers and partitions, with delays, lost answers, and servers that stop, freeze and
//! come back. In the end each partition has one living owner, the shares are fair, and few were moved.

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, RngSeed};
use std::collections::BTreeMap;
use tenure_core::Steward;
use tenure_core::id::{Ownership, ServerId};
use tenure_core::steward::Settings;
use tenure_core::steward::command::{Input, Owned, ServerBeat, Survey};
use tenure_core::steward::effect::Order;
use tenure_core::steward::invariants;
use tenure_core::steward::lifecycle::Hold;
use tenure_core::steward::memory::MemoryTable;
use tenure_core::time::Now;

/// A stream of small numbers from one number.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) % n.max(1)
    }
}

#[derive(Debug, Clone)]
enum Event {
    Arrives(Order),
    Answered(Input),
    Due,
}

#[derive(Debug)]
struct Server {
    steward: Steward,
    /// It does nothing while it is frozen: what comes waits.
    frozen: bool,
    dead: bool,
    gone: bool,
    /// When it is to be called again.
    due: u64,
}

struct World {
    settings: Settings,
    servers: BTreeMap<ServerId, Server>,
    table: MemoryTable,
    events: BTreeMap<(u64, u64), (ServerId, Event)>,
    now: u64,
    count: u64,
    draw: Draw,
    /// The longest time to the store or back.
    delay: u64,
    /// One answer or order in so many is lost.
    lossy: Option<u64>,
    takes: u64,
}

fn id(n: u64) -> ServerId {
    ServerId::new(u128::from(n))
}

impl World {
    fn new(partitions: u16, seed: u64) -> Self {
        Self {
            settings: Settings { partitions, ..Settings::default() },
            servers: BTreeMap::new(),
            table: MemoryTable::default(),
            events: BTreeMap::new(),
            now: 10_000,
            count: 0,
            draw: Draw(seed),
            delay: 20,
            lossy: None,
            takes: 0,
        }
    }

    fn join(&mut self, n: u64) {
        let steward = Steward::new(id(n), self.settings);
        self.servers
            .insert(id(n), Server { steward, frozen: false, dead: false, gone: false, due: self.now });
        self.later(0, id(n), Event::Due);
    }

    fn later(&mut self, ms: u64, server: ServerId, event: Event) {
        self.count += 1;
        self.events.insert((self.now + ms, self.count), (server, event));
    }

    fn travel(&mut self, server: ServerId, event: Event) {
        if self.lossy.is_some_and(|most| self.draw.below(most) == 0) {
            return;
        }
        let ms = self.draw.below(self.delay) + 1;
        self.later(ms, server, event);
    }

    fn feed(&mut self, server: ServerId, input: Input) {
        let Some(one) = self.servers.get_mut(&server).filter(|one| !one.dead) else { return };
        let mut orders = Vec::new();
        one.steward.handle(Now::new(self.now, 0), input, &mut orders);
        invariants::check(&one.steward).unwrap_or_else(|violation| panic!("{violation}"));
        if let Some(deadline) = one.steward.next_deadline() {
            assert!(deadline.mono > self.now, "{deadline:?} is behind");
            if one.due != deadline.mono {
                one.due = deadline.mono;
                let ms = deadline.mono - self.now;
                self.later(ms, server, Event::Due);
            }
        }
        for order in orders {
            match order {
                Order::Gone => {
                    if let Some(one) = self.servers.get_mut(&server) {
                        one.gone = true;
                    }
                }
                Order::Open { .. } => {}
                Order::Close { partition } => {
                    // A Shard that finishes what it did, some time later.
                    let holds = self.servers[&server].steward.holds();
                    let ownership = holds.filter(|(n, ..)| *n == partition).map(|(_, _, own)| own).next();
                    let ownership = ownership.expect("there is such a partition");
                    let ms = self.draw.below(self.delay);
                    self.later(ms, server, Event::Answered(Input::Released { partition, ownership }));
                }
                order => self.travel(server, Event::Arrives(order)),
            }
        }
        self.check();
    }

    /// Of all that serve a partition, one at the most does so under the number the store believes (S11).
    fn check(&self) {
        let mut serving = vec![0; usize::from(self.settings.partitions)];
        for (partition, hold, ownership) in self.servers.values().flat_map(|one| one.steward.holds()) {
            if hold == Hold::Held && self.table.owner(partition).1 == ownership {
                serving[usize::from(partition)] += 1;
            }
        }
        assert!(
            serving.iter().all(|count| *count <= 1),
            "S11: servers under the number that is believed: {serving:?}"
        );
    }

    fn run(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(((at, _), _)) = self.events.first_key_value()
            && *at <= until
        {
            let ((at, _), (server, event)) = self.events.pop_first().expect("there is one");
            self.now = self.now.max(at);
            if matches!(event, Event::Answered(_) | Event::Due) && self.servers[&server].frozen {
                self.later(100, server, event);
                continue;
            }
            match event {
                // It was called meanwhile, and is due at another time.
                Event::Due if self.servers[&server].due > self.now => {}
                Event::Due => self.feed(server, Input::Pulse),
                Event::Answered(input) => self.feed(server, input),
                Event::Arrives(order) => {
                    let answer = self.table.carry_out(server, &order);
                    self.takes += u64::from(matches!(answer, Some(Input::Took { ownership: Some(_), .. })));
                    if let Some(answer) = answer {
                        self.travel(server, Event::Answered(answer));
                    }
                }
            }
        }
        self.now = until;
    }

    /// How many partitions each living server has.
    fn shares(&self) -> Vec<u16> {
        let lives = |one: &&Server| !one.dead && !one.gone;
        let holds =
            |one: &Server| one.steward.holds().filter(|(_, hold, _)| *hold == Hold::Held).count() as u16;
        self.servers.values().filter(lives).map(holds).collect()
    }

    fn assert_settled(&self) {
        for partition in 0..self.settings.partitions {
            let (owner, ownership) = self.table.owner(partition);
            let owner = owner.unwrap_or_else(|| panic!("partition {partition} is nobody's"));
            let server = &self.servers[&owner];
            assert!(!server.dead && !server.gone, "partition {partition} belongs to one who is gone");
            let holds = server.steward.holds().any(|held| held == (partition, Hold::Held, ownership));
            assert!(holds, "partition {partition} is not served by its owner");
        }
        let shares = self.shares();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{shares:?} is not fair");
    }

    /// Runs until nothing changes, and gives the number of moves.
    fn moves(&mut self, ms: u64) -> u64 {
        let before = self.takes;
        self.run(ms);
        self.assert_settled();
        let after = self.takes;
        self.run(20_000);
        assert_eq!(self.takes, after, "it never comes to rest");
        after - before
    }
}

#[test]
fn one_server_takes_all_and_its_successor_takes_them_over() {
    for partitions in [1, 2, 16] {
        let mut world = World::new(partitions, 1);
        world.join(1);
        assert_eq!(world.moves(3_000), u64::from(partitions));
        if let Some(one) = world.servers.get_mut(&id(1)) {
            one.dead = true;
        }
        world.join(2);
        world.run(4_000);
        assert_eq!(world.shares(), [0], "it is not silent for long enough");
        assert_eq!(world.moves(6_000), u64::from(partitions));
    }
}

#[test]
fn more_servers_than_partitions_is_no_reason_to_fight() {
    let mut world = World::new(2, 3);
    (1..6).for_each(|n| world.join(n));
    world.run(20_000);
    let mut shares = world.shares();
    shares.sort_unstable();
    assert_eq!(shares, [0, 0, 0, 1, 1]);
    assert_eq!(world.moves(0), 0);
}

#[test]
fn few_move_when_a_server_joins_or_leaves() {
    for seed in 0..12 {
        for (partitions, servers) in [(16, 1), (16, 2), (16, 3), (17, 3), (5, 4), (1, 1), (32, 5)] {
            let mut world = World::new(partitions, seed);
            (1..=servers).for_each(|n| world.join(n));
            world.run(60_000);
            world.assert_settled();
            let most = u64::from(partitions).div_ceil(servers + 1) + 1;
            world.join(servers + 1);
            let moves = world.moves(60_000);
            assert!(moves <= most, "{partitions} partitions, {servers} servers: {moves} moves at a join");
            world.feed(id(1), Input::Leave);
            let moves = world.moves(60_000);
            assert!(moves <= most, "{partitions} partitions, {servers} servers: {moves} moves at a leave");
            assert!(world.servers[&id(1)].gone);
        }
    }
}

#[test]
fn a_frozen_server_comes_back_and_gets_its_share_again() {
    let mut world = World::new(8, 5);
    (1..=2).for_each(|n| world.join(n));
    world.run(30_000);
    let freeze = |world: &mut World, frozen| {
        if let Some(one) = world.servers.get_mut(&id(1)) {
            one.frozen = frozen;
        }
    };
    freeze(&mut world, true);
    world.run(20_000);
    assert_eq!(world.shares(), [4, 8], "it still believes, and the other one has all");
    freeze(&mut world, false);
    world.run(2_000);
    world.moves(30_000);
    assert_eq!(world.shares(), [4, 4]);
}

fn survey(beats: &[(u64, u64)], owned: &[(u16, Option<u64>, u64)]) -> Input {
    let servers = beats.iter().map(|(n, beat)| ServerBeat { server: id(*n), beat: *beat, leaving: false });
    let partitions = owned.iter().map(|(partition, owner, ownership)| Owned {
        partition: *partition,
        owner: owner.map(id),
        ownership: Ownership::new(*ownership),
    });
    Input::Surveyed(Some(Survey { servers: servers.collect(), partitions: partitions.collect() }))
}

fn told(steward: &mut Steward, now: u64, input: Input) -> Vec<Order> {
    let mut out = Vec::new();
    steward.handle(Now::new(now, 0), input, &mut out);
    invariants::check(steward).unwrap_or_else(|violation| panic!("{violation}"));
    out.retain(|order| !matches!(order, Order::Beat { .. } | Order::Survey));
    out
}

fn hold(steward: &Steward, partition: u16) -> Hold {
    steward.holds().find(|(n, ..)| *n == partition).map(|(_, hold, _)| hold).expect("it is there")
}

fn one_of(partitions: u16) -> Steward {
    Steward::new(id(1), Settings { partitions, ..Settings::default() })
}

#[test]
fn a_survey_that_comes_before_the_answer_does_not_spoil_it() {
    let mut steward = one_of(1);
    let taken = told(&mut steward, 1_000, survey(&[], &[]));
    assert_eq!(taken, [Order::Take { partition: 0, seen: Ownership::new(0) }]);
    told(&mut steward, 1_010, survey(&[], &[(0, Some(1), 1)]));
    let got = Some(Ownership::new(1));
    let opened = told(&mut steward, 1_020, Input::Took { partition: 0, ownership: got });
    assert_eq!(opened, [Order::Open { partition: 0, ownership: Ownership::new(1) }]);
    assert_eq!(steward.owner(0), Some(id(1)));
}

#[test]
fn an_answer_that_was_overtaken_by_another_owner_opens_nothing() {
    let mut steward = one_of(1);
    told(&mut steward, 1_000, survey(&[], &[]));
    told(&mut steward, 1_010, survey(&[(2, 1)], &[(0, Some(2), 2)]));
    let got = Some(Ownership::new(1));
    assert!(told(&mut steward, 1_020, Input::Took { partition: 0, ownership: got }).is_empty());
    assert_eq!(hold(&steward, 0), Hold::Foreign);
}

#[test]
fn what_is_given_up_is_said_until_the_store_knows() {
    let mut steward = one_of(2);
    told(&mut steward, 1_000, survey(&[], &[]));
    let ownership = Ownership::new(1);
    for partition in 0..2 {
        told(&mut steward, 1_000, Input::Took { partition, ownership: Some(ownership) });
    }
    let closed = told(&mut steward, 2_000, survey(&[(2, 1)], &[(0, Some(1), 1), (1, Some(1), 1)]));
    let [Order::Close { partition }] = closed[..] else { panic!("one is given up: {closed:?}") };
    let free = Order::Free { partition, ownership };
    assert_eq!(told(&mut steward, 2_100, Input::Released { partition, ownership }), [free]);
    assert_eq!(told(&mut steward, 5_099, Input::Pulse), []);
    assert_eq!(told(&mut steward, 5_100, Input::Pulse), [free]);
    told(&mut steward, 5_200, Input::Freed { partition, ownership });
    assert_eq!(hold(&steward, partition), Hold::Foreign);
    // A survey that was read before the store knew does not make it want the partition back.
    let old = told(&mut steward, 5_300, survey(&[(2, 2)], &[(0, Some(1), 1), (1, Some(1), 1)]));
    assert_eq!(old, []);
}

#[test]
fn nothing_is_given_up_while_something_is_free_for_whoever_lacks() {
    let mut steward = Steward::new(id(9), Settings { partitions: 7, ..Settings::default() });
    let seen = |free: Option<u64>| {
        let mine = [0, 1, 2].map(|n| (n, Some(9), 1));
        let others = [(3, Some(2), 1), (4, Some(2), 1), (5, Some(3), 1), (6, free, 1)];
        survey(&[(2, 1), (3, 1)], &[mine.to_vec(), others.to_vec()].concat())
    };
    // All seven, of which four go to the others.
    told(&mut steward, 1_000, survey(&[], &[]));
    for partition in 0..3 {
        told(&mut steward, 1_000, Input::Took { partition, ownership: Some(Ownership::new(1)) });
    }
    for partition in 3..7 {
        told(&mut steward, 1_000, Input::Took { partition, ownership: None });
    }
    assert_eq!(told(&mut steward, 2_000, seen(None)), [], "server 3 lacks one, and one is free");
    assert_eq!(told(&mut steward, 3_000, seen(Some(2))).len(), 1, "none is free, and this one has the most");
}

#[test]
fn whoever_lost_a_partition_closes_its_shard() {
    let mut steward = one_of(1);
    told(&mut steward, 1_000, survey(&[], &[]));
    told(&mut steward, 1_000, Input::Took { partition: 0, ownership: Some(Ownership::new(1)) });
    let closed = told(&mut steward, 9_000, survey(&[(2, 7)], &[(0, Some(2), 2)]));
    assert_eq!(closed, [Order::Close { partition: 0 }]);
    assert_eq!(hold(&steward, 0), Hold::Foreign);
}

#[test]
fn whoever_leaves_while_it_takes_gives_back_what_it_gets() {
    let mut steward = one_of(1);
    told(&mut steward, 1_000, survey(&[], &[]));
    assert_eq!(told(&mut steward, 1_010, Input::Leave), [], "it may be given one yet");
    let ownership = Ownership::new(1);
    let got = told(&mut steward, 1_020, Input::Took { partition: 0, ownership: Some(ownership) });
    assert_eq!(got, [Order::Open { partition: 0, ownership }, Order::Close { partition: 0 }]);
    told(&mut steward, 1_030, Input::Released { partition: 0, ownership });
    assert_eq!(told(&mut steward, 1_040, Input::Freed { partition: 0, ownership }), [Order::Gone]);
    assert_eq!(steward.next_deadline(), None);
}

#[test]
fn a_shard_that_lost_its_memory_gets_a_new_number() {
    let mut steward = one_of(1);
    told(&mut steward, 1_000, survey(&[], &[]));
    let ownership = Ownership::new(1);
    told(&mut steward, 1_000, Input::Took { partition: 0, ownership: Some(ownership) });
    told(&mut steward, 1_100, Input::Lost { partition: 0, ownership });
    let again = told(&mut steward, 2_000, survey(&[], &[(0, Some(1), 1)]));
    assert_eq!(again, [Order::Take { partition: 0, seen: ownership }]);
}

#[test]
fn there_may_be_as_many_partitions_as_numbers() {
    let steward = one_of(u16::MAX);
    assert_eq!(steward.holds().count(), usize::from(u16::MAX));
    invariants::check(&steward).unwrap_or_else(|violation| panic!("{violation}"));
}

fn config(cases: u32) -> ProptestConfig {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    ProptestConfig {
        cases: cases * number("TENURE_TIMES").unwrap_or(1),
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(3 + u64::from(number("TENURE_SEED").unwrap_or(0))),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(24))]

    #[test]
    fn after_any_trouble_each_partition_has_one_living_owner_and_shares_are_fair(
        seed in any::<u64>(),
        partitions in 1_u16..24,
        acts in prop::collection::vec((0_u64..8, 0_u64..6, 0_u64..8_000), 1..20),
        lossy in prop::option::of(3_u64..12),
        delay in 1_u64..2_500,
    ) {
        let mut world = World::new(partitions, seed);
        (world.lossy, world.delay) = (lossy, delay);
        world.join(1);
        for (what, who, ms) in acts {
            let who = id(who + 1);
            match (what, world.servers.get_mut(&who)) {
                (_, None) => world.join(who.value() as u64),
                (0, Some(one)) => one.dead = true,
                (1..=2, Some(one)) => one.frozen = !one.frozen,
                (3, Some(_)) => world.feed(who, Input::Leave),
                _ => {}
            }
            world.run(ms);
        }
        world.servers.values_mut().for_each(|one| one.frozen = false);
        (world.lossy, world.delay) = (None, 30);
        world.join(100);
        world.run(90_000);
        world.assert_settled();
        prop_assert_eq!(world.moves(0), 0);
    }
}
