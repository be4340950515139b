//! Random lives of a partition with two servers, a store that answers late, wrongly or not at all, and owners that are
//! replaced while they still speak. The observer checks S12, S45 and S46 on everything; here it is checked besides that
//! no commit of an old owner applies (S11), that nothing is let go between a failure and a reload (S47), that time never
//! spins, and that once the store behaves everything is answered.

mod gate;

use gate::{Answer, Server, T, complete, define, heartbeat, poll, register, report, submit, treat};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, RngSeed};
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::Effect;
use tenure_core::id::*;
use tenure_core::limits::Limits;
use tenure_core::shard::Settings;
use tenure_core::shard::command::{Input, Opening, Outcome};
use tenure_core::shard::effect::{Order, Release};
use tenure_core::shard::lifecycle::Standing;
use tenure_core::shard::memory::MemoryPartition;
use tenure_core::time::{Now, Time};
use tenure_core::value::Value;

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

struct Life {
    servers: Vec<Server>,
    store: MemoryPartition,
    now: Now,
    /// Answers on their way, and to whom.
    answers: Vec<(usize, Input)>,
    /// Orders that were given up for lost and may still arrive.
    late: Vec<Order>,
    requests: u64,
    settings: Settings,
    /// Commits of old owners refused, late ones applied, crashes, losses, fetches, replies.
    seen: [u64; 6],
}

fn server(settings: &Settings) -> Server {
    let limits = Limits { page_horizon_ms: 4_000, sweep_interval_ms: 8_000, ..gate::limits() };
    Server::with(limits, settings.clone())
}

impl Life {
    fn new(in_flight: usize) -> Self {
        let settings = Settings { in_flight, resolve_ms: 300, held: 12, fetches: 2, ..Settings::default() };
        let mut life = Self {
            servers: vec![server(&settings), server(&settings)],
            store: MemoryPartition::default(),
            now: Now::new(1_000, 1_700_000_000_000),
            answers: Vec::new(),
            late: Vec::new(),
            requests: 0,
            settings,
            seen: [0; 6],
        };
        life.take_over(0);
        life.calm();
        life.ask(0, define());
        life.calm();
        life
    }

    fn feed(&mut self, at: usize, input: Input) {
        let standing = self.servers[at].shard.standing();
        let failed = matches!(input, Input::Answered { outcome: Outcome::Failed | Outcome::Fenced, .. });
        let (losses, left) = (self.servers[at].losses, self.servers[at].released.len());
        let closes = matches!(input, Input::Close | Input::Own { .. });
        self.servers[at].feed(self.now, input, &self.store);
        let server = &mut self.servers[at];
        let replied = |one: &&Release| matches!(one, Release::Effect(Effect::Reply { .. }));
        self.seen[3] += server.losses - losses;
        self.seen[5] += server.released[left..].iter().filter(replied).count() as u64;
        if failed && server.losses > losses {
            let effects = &server.released[left..];
            let turned_away = |one| matches!(one, &Release::NotTaken { .. });
            assert!(effects.iter().all(turned_away), "S47: {effects:?} left after a failure");
        }
        if standing == Standing::Empty && !closes {
            assert_eq!(server.shard.standing(), Standing::Empty, "S47: it came back without its rows");
        }
        let deadline = server.shard.next_deadline();
        if let Some(deadline) = deadline.filter(|one| one.mono <= self.now.mono) {
            // What is due now must be done by one pulse, or by some more where a machine does it in portions.
            for _ in 0..50 {
                self.servers[at].feed(self.now, Input::Pulse, &self.store);
                let again = self.servers[at].shard.next_deadline();
                if again.is_none_or(|again| again.mono > self.now.mono) {
                    return;
                }
            }
            panic!("{deadline:?} is due again and again");
        }
    }

    fn ask(&mut self, at: usize, command: Command) {
        self.requests += 1;
        let request = RequestId::new(self.requests);
        self.feed(at, Input::Command(Envelope { request, tenant: T, command }));
    }

    fn take_over(&mut self, at: usize) {
        let [one, two] = &mut self.servers[..] else { panic!("there are two") };
        if at == 0 {
            one.learn_of(two)
        } else {
            two.learn_of(one)
        }
        let ownership = self.store.give_out();
        self.feed(at, Input::Own { ownership });
    }

    fn act(&mut self, number: u64) {
        let mut draw = Draw(number);
        let ms = [0, 0, 0, 1, 5, 25, 120, 900][draw.below(8) as usize];
        self.now = Now::new(self.now.mono + ms, self.now.wall + ms);
        let owner = self.store.last().0;
        let owner = (0..2).find(|at| self.servers[*at].shard.ownership() == owner);
        let is_lost = owner.is_none_or(|at| self.servers[at].shard.standing() == Standing::Empty);
        let any = draw.below(2) as usize;
        // Mostly the owner is spoken to; the other one stalls, and speaks now and then.
        let at = owner.filter(|_| draw.below(8) > 0).unwrap_or(any);
        match draw.below(200) {
            _ if is_lost && draw.below(4) == 0 => self.take_over(any),
            0..=69 => self.command(at, &mut draw),
            70..=129 => self.carry_out(at, &mut draw),
            130..=184 => self.deliver(&mut draw),
            185..=187 => self.feed(at, Input::Pulse),
            188..=193 => self.arrive_late(&mut draw),
            194 => self.crash_or_close(at, &mut draw),
            195 => self.take_over(any),
            _ => self.look(at, &mut draw),
        }
    }

    fn look(&mut self, at: usize, draw: &mut Draw) {
        let runs = &self.servers[at].runs;
        let Some(run) = runs.get(draw.below(runs.len() as u64) as usize).copied() else { return };
        self.requests += 1;
        self.feed(at, Input::Look { request: RequestId::new(self.requests), tenant: T, run });
    }

    fn command(&mut self, at: usize, draw: &mut Draw) {
        let server = &self.servers[at];
        let worker = draw.below(2) + 1;
        let held = server.held.iter().filter(|(by, _)| *by == worker).map(|(_, held)| *held);
        let held: Vec<_> = held.collect();
        let some: Vec<Held> = (0..draw.below(3))
            .filter_map(|_| held.get(draw.below(held.len() as u64) as usize))
            .copied()
            .collect();
        let run = server.runs.get(draw.below(server.runs.len() as u64) as usize).copied();
        let on = |run| OnRun { run, if_version: None };
        let after_ms = Some([50, 1_000, 6_000, 20_000][draw.below(4) as usize]);
        let suspend = || {
            let (reason, state) = ("sleep".into(), Value::EMPTY);
            Then::Suspend(Box::new(Suspension { reason, state, on_message: false, after_ms, at_wall: None }))
        };
        let command = match (draw.below(10), run) {
            (0, _) => register(worker),
            (1, _) => heartbeat(server, worker),
            (2..=3, _) => poll(server, worker),
            (4, _) => complete(server, worker, &some),
            (5, _) => report(server, worker, &some, || Then::Start),
            (6, _) => report(server, worker, &some, suspend),
            (7, Some(run)) if draw.below(2) == 0 => Command::Cancel(on(run)),
            (7, Some(run)) => Command::Retry(on(run)),
            (8, _) => gate::submit_with_key(draw.below(6) + 1, Time::ZERO),
            _ => submit(number_of(draw)),
        };
        self.ask(at, command);
    }

    /// The store gets an order; what it does then is drawn.
    fn carry_out(&mut self, at: usize, draw: &mut Draw) {
        let orders = &mut self.servers[at].orders;
        if orders.is_empty() {
            return;
        }
        let order = orders.remove(draw.below(orders.len().min(3) as u64) as usize);
        let answer = match draw.below(24) {
            0..=19 => Answer::Ok,
            20 => Answer::NotApplied,
            21 => Answer::AppliedUnknown,
            22 => Answer::LostUnknown,
            _ if draw.below(8) == 0 => Answer::Failed,
            _ => Answer::Unreadable,
        };
        self.seen[4] += u64::from(matches!(order, Order::Fetch { .. }));
        if answer == Answer::LostUnknown && matches!(order, Order::Commit { .. }) {
            self.late.push(order.clone());
        }
        if let (Order::Commit { ownership, .. }, Answer::Ok | Answer::AppliedUnknown) = (&order, answer) {
            self.check_fence(*ownership, &order.clone());
        }
        if let (Order::Load { ownership }, 0) = (&order, draw.below(5)) {
            self.answers.push((at, Input::Loaded { ownership: *ownership, opening: Opening::Failed }));
            return;
        }
        let input = treat(&mut self.store, &order, answer);
        self.answers.extend(input.map(|input| (at, input)));
    }

    /// S11: a commit of anybody but the owner changes nothing.
    fn check_fence(&mut self, ownership: Ownership, order: &Order) {
        if ownership != self.store.last().0 {
            let before = self.store.clone();
            self.store.carry_out(order);
            assert_eq!(before, self.store, "S11: a commit of an old owner was applied");
            self.seen[0] += 1;
        }
    }

    fn arrive_late(&mut self, draw: &mut Draw) {
        if self.late.is_empty() {
            return;
        }
        let newest = self.late.len() - 1;
        let which = if draw.below(2) == 0 { newest } else { draw.below(newest as u64 + 1) as usize };
        let order = self.late.remove(which);
        if let Order::Commit { ownership, .. } = &order {
            self.check_fence(*ownership, &order);
        }
        let before = self.store.last();
        self.store.carry_out(&order);
        self.seen[1] += u64::from(self.store.last() != before);
    }

    fn deliver(&mut self, draw: &mut Draw) {
        if self.answers.is_empty() {
            return;
        }
        let most = if draw.below(4) == 0 { self.answers.len() } else { 1 };
        let (at, input) = self.answers.remove(draw.below(most as u64) as usize);
        self.feed(at, input);
    }

    fn crash_or_close(&mut self, at: usize, draw: &mut Draw) {
        if draw.below(2) == 0 {
            return self.feed(at, Input::Close);
        }
        // All that was in memory is gone; what was on its way may still arrive.
        let orders = std::mem::take(&mut self.servers[at].orders);
        self.late.extend(orders.into_iter().filter(|order| matches!(order, Order::Commit { .. })));
        self.answers.retain(|(to, _)| *to != at);
        let mut fresh = server(&self.settings);
        fresh.learn_of(&self.servers[at]);
        self.servers[at] = fresh;
        self.seen[2] += 1;
    }

    /// From now on the store behaves: everything is carried out and answered, in order.
    fn calm(&mut self) {
        for _ in 0..10_000 {
            if let Some((at, input)) = (!self.answers.is_empty()).then(|| self.answers.remove(0)) {
                self.feed(at, input);
                continue;
            }
            let busy = (0..2).find(|at| !self.servers[*at].orders.is_empty());
            if let Some(at) = busy {
                let order = self.servers[at].orders.remove(0);
                let input = treat(&mut self.store, &order, Answer::Ok);
                self.answers.extend(input.map(|input| (at, input)));
                continue;
            }
            let waits = (0..2).find(|at| !self.servers[*at].shard.is_idle());
            let Some(at) = waits else { return };
            let deadline = self.servers[at].shard.next_deadline();
            let deadline = deadline.unwrap_or_else(|| panic!("{:?} waits for ever", self.servers[at].shard));
            let ms = deadline.mono.saturating_sub(self.now.mono);
            self.now = Now::new(self.now.mono + ms, self.now.wall + ms);
            self.feed(at, Input::Pulse);
        }
        panic!("it never comes to rest");
    }

    /// All is answered, and whoever owns the partition has in memory what the store has.
    fn end(&mut self) {
        self.calm();
        assert!(self.servers.iter().all(|server| server.open.is_empty()), "a request has no answer");
        let owner = self.store.last().0;
        for server in &self.servers {
            if server.shard.ownership() == owner && server.shard.standing() == Standing::Serving {
                server.compare(self.now, self.store.store());
            }
        }
        // Whatever happened, the next owner finds a sound partition that serves.
        self.take_over(0);
        self.calm();
        self.ask(0, register(9));
        self.calm();
        assert!(self.servers[0].workers.contains_key(&9));
        self.servers[0].compare(self.now, self.store.store());
    }
}

fn number_of(draw: &mut Draw) -> u64 {
    draw.below(1 << 40)
}

fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn config(cases: u32, seed: u64) -> ProptestConfig {
    let seed = seed + u64::from(number("TENURE_SEED").unwrap_or(0));
    ProptestConfig {
        cases: cases * number("TENURE_TIMES").unwrap_or(1),
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config(16, 5))]

    #[test]
    fn whatever_the_store_does_nothing_leaves_early_and_nothing_is_lost(
        acts in prop::collection::vec(any::<u64>(), 1..400),
        in_flight in 1_usize..4,
    ) {
        let mut life = Life::new(in_flight);
        acts.iter().for_each(|act| life.act(*act));
        life.end();
    }
}

#[test]
fn lives_are_full_of_trouble() {
    let mut draw = Draw(7);
    let mut life = Life::new(2);
    for _ in 0..2_500 {
        let act = draw.below(u64::MAX);
        life.act(act);
    }
    life.end();
    assert!(life.seen.iter().all(|seen| *seen > 0), "this never happened: {:?}", life.seen);
    assert!(life.seen[5] > 200, "too little was done: {:?}", life.seen);
}
