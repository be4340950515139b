//! One fault per test, told as a story.

use crate::world::*;
use tenure_core::agent::lifecycle::{LeaseState, PieceState, SessionState};
use tenure_core::agent::{Input, Notice, Order, Refusal, Settings, Why};
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::Grant;
use tenure_core::coordinator::event::StopReason;
use tenure_core::definition::*;
use tenure_core::id::*;
use tenure_core::lifecycle::RunStatus;
use tenure_core::value::Value;

fn work() -> WorkSpec {
    WorkSpec { lease_ms: 1_000, heartbeat_ms: 300, ..WorkSpec::default() }
}

fn node(name: &str) -> NodeSpec {
    NodeSpec { work: work(), ..NodeSpec::new(name) }
}

fn pushed(name: &str) -> NodeSpec {
    NodeSpec { work: WorkSpec { assign: Assign::Push { accept_ms: 500 }, ..work() }, ..NodeSpec::new(name) }
}

pub fn definitions() -> Vec<Definition> {
    let one = Definition::new("one", vec![node("a")], vec![]);
    let edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")].map(|(from, to)| Edge::data(from, to));
    let diamond = Definition::new("diamond", ["a", "b", "c", "d"].map(node).to_vec(), edges.to_vec());
    let offered = Definition::new("offered", vec![pushed("a"), pushed("b")], vec![Edge::data("a", "b")]);
    let mut whole = Definition::new("whole", ["a", "b", "c"].map(node).to_vec(), edges[..2].to_vec());
    whole.settings.scope = Scope::Run(Box::new(work()));
    let mut long = Definition::new("long", vec![node("a")], vec![]);
    long.nodes[0].work.lease_ms = 60_000;
    vec![one, diamond, offered, whole, long]
}

fn world() -> World {
    World::new(1, definitions())
}

fn submit(name: &str) -> Submit {
    Submit::new(name, Value::EMPTY, 0)
}

/// Never ends by itself.
fn endless(_: &Grant) -> (u64, Then) {
    (1_000_000, Then::Complete { output: Value::EMPTY })
}

fn slow(_: &Grant) -> (u64, Then) {
    (5_000, Then::Complete { output: Value::EMPTY })
}

fn is_answer(packet: &Packet) -> bool {
    matches!(packet, Packet::ToAgent { .. })
}

fn only_piece(world: &World, at: usize) -> tenure_core::agent::PieceView {
    let mut pieces = world.hosts[at].agent.pieces();
    let first = pieces.next().expect("it holds something");
    assert!(pieces.next().is_none());
    first
}

#[test]
fn work_is_done_by_poll_by_offer_and_as_a_whole_run() {
    let mut world = world();
    world.host(settings(1, 2), Clock::TRUE, complete);
    world.host(settings(2, 2), Clock::TRUE, complete);
    for name in ["one", "diamond", "offered", "whole", "long"] {
        world.submit(0, submit(name));
    }
    world.run(5_000);
    assert!(world.all_completed());
    let started: usize = world.hosts.iter().map(|host| host.started.len()).sum();
    assert_eq!(started, 1 + 4 + 2 + 3 + 1, "everything is executed once");
    assert!(world.hosts.iter().all(|host| host.stopped.is_empty() && host.executing.is_empty()));
    assert!(world.hosts.iter().all(|host| host.agent.pieces().count() == 0));
}

#[test]
fn long_work_is_renewed_and_ends_where_it_began() {
    let mut world = world();
    world.host(settings(1, 1), Clock::TRUE, slow);
    world.submit(0, submit("one"));
    world.run(7_000);
    assert!(world.all_completed());
    assert_eq!(world.hosts[0].started.len(), 1);
    assert!(world.hosts[0].stopped.is_empty());
}

#[test]
fn f1_a_zombie_completes_after_takeover_and_is_fenced() {
    let mut world = world();
    let zombie = world.host(settings(1, 1), Clock::TRUE, endless);
    world.submit(0, submit("one"));
    world.run(500);
    assert_eq!(world.hosts[zombie].executing.len(), 1);
    // It can not be heard, and its executor does not stop when told.
    world.filter = |packet| !matches!(packet, Packet::ToPartition { from: 0, .. });
    world.hosts[zombie].stop_ms = 1_000_000;
    world.overlaps = Some(0);
    world.host(settings(2, 1), Clock::TRUE, complete);
    world.run(3_000);
    assert!(world.all_completed(), "another took it over");
    world.filter = |_| true;
    let held = *world.hosts[zombie].executing.keys().next().expect("it still executes");
    world.hosts[zombie].executing.clear();
    world.tell(zombie, Input::Reported(Report::new(held, Then::Complete { output: Value::EMPTY })));
    world.run(3_000);
    assert_eq!(world.hosts[zombie].answers.last(), Some(&(held, Err(Refusal::Lost))));
    assert_eq!(world.hosts[zombie].agent.pieces().count(), 0, "its slot is free again");
}

#[test]
fn f2_a_result_after_expiry_and_before_any_takeover_is_fenced_and_the_work_is_done_again() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, endless);
    world.submit(0, submit("one"));
    world.run(500);
    world.hosts[at].frozen_until = world.time + 3_000;
    world.run(2_999);
    let held = *world.hosts[at].executing.keys().next().expect("it still executes");
    world.hosts[at].frozen_until = 0;
    world.hosts[at].executing.clear();
    world.hosts[at].script = complete;
    world.run(1);
    // Its outcome is the first thing that it is told after the sleep.
    world.tell(at, Input::Reported(Report::new(held, Then::Complete { output: Value::EMPTY })));
    world.run(3_000);
    assert!(
        world.hosts[at].answers.contains(&(held, Err(Refusal::Lost))) || world.hosts[at].stopped.len() == 1
    );
    assert_eq!(world.hosts[at].started.len(), 2);
    assert!(world.all_completed());
}

#[test]
fn f3_f11_stopped_for_two_lease_times_it_stops_its_work_before_anything_else() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, endless);
    world.submit(0, submit("one"));
    world.run(500);
    world.hosts[at].frozen_until = world.time + 2_000;
    world.run(1_999);
    let held = only_piece(&world, at).held;
    world.hosts[at].orders.clear();
    world.run(1);
    assert_eq!(world.hosts[at].stopped, [(held, Why::Unconfirmed)]);
    assert!(matches!(world.hosts[at].orders[0], Order::Stop { .. }), "and only then does it speak");
    world.hosts[at].script = complete;
    world.run(3_000);
    assert!(world.all_completed());
    assert_eq!(world.hosts[at].started.len(), 2, "under a new epoch");
}

#[test]
fn f4_a_lost_answer_to_a_heartbeat_is_harmless() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, slow);
    world.submit(0, submit("one"));
    world.run(300);
    for _ in 0..5 {
        // Every second stretch of time no answer comes.
        world.filter = |packet| !is_answer(packet);
        world.run(350);
        world.filter = |_| true;
        world.run(450);
    }
    world.run(3_000);
    assert!(world.all_completed());
    assert_eq!((world.hosts[at].started.len(), world.hosts[at].stopped.len()), (1, 0));
}

#[test]
fn f5_a_lost_answer_to_a_poll_costs_nothing() {
    let mut world = world();
    let at = world.host(settings(1, 2), Clock::TRUE, complete);
    world.run(100);
    world.filter = |packet| !is_answer(packet);
    world.submit(0, submit("one"));
    world.submit(0, submit("one"));
    world.run(500);
    let polls = world.hosts[at].sent.iter().filter_map(|(_, _, command)| match command {
        Command::Poll { poll, .. } => Some(*poll),
        _ => None,
    });
    let mut polls: Vec<_> = polls.collect();
    let asked = polls.len();
    polls.dedup();
    assert!(asked > polls.len(), "the same poll is repeated: {polls:?}");
    world.filter = |_| true;
    world.run(1_000);
    assert!(world.all_completed());
    assert_eq!(world.hosts[at].started.len(), 2, "each is started once");
}

#[test]
fn f6_a_completion_whose_answer_is_lost_is_repeated_unchanged() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, complete);
    let run = world.submit(0, submit("one"));
    world.run(90);
    assert_eq!(world.hosts[at].executing.len(), 1);
    world.filter = |packet| !is_answer(packet);
    world.run(600);
    assert_eq!(world.status(run), RunStatus::Completed);
    assert_eq!(only_piece(&world, at).state, PieceState::Reporting);
    world.filter = |_| true;
    world.run(600);
    assert_eq!(world.hosts[at].agent.pieces().count(), 0);
    assert!(matches!(world.hosts[at].answers[..], [(_, Ok(_))]));
    let completions = world.hosts[at].sent.iter().filter_map(|(_, _, command)| match command {
        Command::Report { reports, .. } if matches!(reports[0].then, Then::Complete { .. }) => Some(reports),
        _ => None,
    });
    let completions: Vec<_> = completions.collect();
    assert!(completions.len() > 1 && completions.iter().all(|one| *one == completions[0]));
}

/// Cut off from its partition while another waits for the work.
fn cut_off(clock: Clock, drift_per_mille: u64) -> World {
    let mut world = world();
    world.host(Settings { drift_per_mille, ..settings(1, 1) }, clock, endless);
    world.submit(0, submit("one"));
    world.run(500);
    world.filter = |packet| !matches!(packet, Packet::ToPartition { from: 0, .. });
    world.host(settings(2, 1), Clock::TRUE, complete);
    world
}

#[test]
fn f13_with_a_clock_of_half_or_double_speed_the_guard_band_holds() {
    for (num, den, drift) in [(1, 2, 500), (2, 1, 100), (9, 10, 100), (11, 10, 100)] {
        let mut world = cut_off(Clock { num, den, offset: 77 }, drift);
        world.run(4_000);
        assert!(world.all_completed(), "at {num}/{den}");
        assert_eq!(world.hosts[0].stopped.len(), 1, "it stopped by itself, before the other started");
        assert_eq!(world.hosts[0].stopped[0].1, Why::Unconfirmed);
    }
}

#[test]
fn f13_a_clock_slower_than_the_settings_say_is_not_covered_and_that_is_why_epochs_fence() {
    let mut world = cut_off(Clock { num: 1, den: 2, offset: 0 }, 100);
    world.filter =
        |packet| !matches!(packet, Packet::ToPartition { from: 0, .. } | Packet::ToAgent { to: 0, .. });
    world.overlaps = Some(0);
    world.run(4_000);
    assert_eq!(world.overlaps, Some(1));
    assert!(world.all_completed(), "only one result counts");
}

#[test]
fn f14_suspended_to_ram_it_stops_what_it_had_first() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, endless);
    world.submit(0, submit("one"));
    world.run(400);
    let held = only_piece(&world, at).held;
    // Its clock jumps by an hour, and the first thing it sees is a notice.
    world.hosts[at].clock.offset += 3_600_000;
    world.hosts[at].orders.clear();
    world.tell(at, Input::Noticed { partition: 0, notice: Notice::Wake });
    assert_eq!(world.hosts[at].stopped, [(held, Why::Unconfirmed)]);
    assert!(matches!(world.hosts[at].orders[0], Order::Stop { .. }));
    world.hosts[at].script = complete;
    world.run(3_000);
    assert!(world.all_completed());
}

#[test]
fn a_clock_that_stands_still_or_goes_back_changes_nothing() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock { offset: 10_000, ..Clock::TRUE }, complete);
    world.submit(0, submit("one"));
    world.run(50);
    world.hosts[at].clock.offset = 0;
    for _ in 0..50 {
        world.tell(at, Input::Pulse);
    }
    world.hosts[at].clock.offset = 10_000;
    world.run(2_000);
    assert!(world.all_completed());
}

#[test]
fn f15_a_restart_under_the_same_id_fences_the_former_life_which_does_not_spin() {
    let mut world = world();
    let old = world.host(settings(1, 1), Clock::TRUE, endless);
    world.submit(0, submit("one"));
    world.run(500);
    assert_eq!(world.hosts[old].executing.len(), 1);
    world.overlaps = Some(0);
    world.host(settings(1, 1), Clock::TRUE, complete);
    world.run(1_000);
    let session = world.hosts[old].agent.session(0).expect("it has one");
    assert_eq!(session.state, SessionState::Fenced);
    assert!(world.hosts[old].orders.iter().any(|order| matches!(order, Order::Fenced { .. })));
    assert_eq!(world.hosts[old].stopped.len(), 1);
    assert_eq!(world.hosts[old].agent.next_deadline(), None, "L10: nothing wakes it");
    let said = world.hosts[old].sent.len();
    world.run(60_000);
    assert_eq!(world.hosts[old].sent.len(), said, "L10: it is silent");
    assert!(world.all_completed());
    // Only by hand does it come back, and then it is the other that is fenced.
    world.hosts[old].script = complete;
    world.tell(old, Input::Restart { partition: 0 });
    world.run(2_000);
    assert_eq!(world.hosts[old].agent.session(0).expect("it has one").state, SessionState::Active);
    assert_eq!(world.hosts[1].agent.session(0).expect("it has one").state, SessionState::Fenced);
}

#[test]
fn a_lost_answer_to_a_registration_does_not_fence_itself_for_good() {
    let mut world = world();
    world.filter = |packet| !is_answer(packet);
    let at = world.host(settings(1, 1), Clock::TRUE, complete);
    world.run(700);
    let registered = world.hosts[at].sent.iter().filter(|(.., one)| matches!(one, Command::Register { .. }));
    assert!(registered.count() > 1);
    // The answer to the first copy comes, late; those to the others, which took its place, never do.
    let (_, request, _) = world.hosts[at].sent[0];
    let answer = tenure_core::coordinator::effect::Answer::Registered {
        incarnation: Incarnation::new(1),
        session: Session::new(1),
    };
    world.tell(at, Input::Replied { partition: 0, request, result: Ok(answer) });
    world.filter = |_| true;
    world.submit(0, submit("one"));
    world.run(3_000);
    assert!(world.all_completed());
    let registered = world.hosts[at].sent.iter().filter(|(.., one)| matches!(one, Command::Register { .. }));
    assert!(registered.count() < 7);
}

#[test]
fn a_worker_that_was_forgotten_registers_anew() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, endless);
    world.submit(0, submit("one"));
    world.run(500);
    world.hosts[at].script = complete;
    world.command(0, Command::Deregister { worker: WorkerId::new(1), incarnation: None });
    world.run(3_000);
    assert_eq!(world.hosts[at].stopped.len(), 1);
    assert!(world.all_completed());
}

#[test]
fn duplicated_answers_and_notices_start_nothing_twice() {
    let mut world = world();
    world.faults.double_percent = 100;
    world.host(settings(1, 3), Clock::TRUE, complete);
    for name in ["one", "diamond", "offered", "whole"] {
        world.submit(0, submit(name));
    }
    world.run(6_000);
    assert!(world.all_completed());
    assert_eq!(world.hosts[0].started.len(), 1 + 4 + 2 + 3);
    // Even much later, and nobody is asked.
    let said = world.hosts[0].sent.len();
    let started = world.hosts[0].started.clone();
    for grant in started.clone() {
        // Nodes of a run held as a whole share its epoch.
        let is_handed = started.iter().filter(|other| other.epoch == grant.epoch).count() > 1;
        let grant = Box::new(grant);
        let notice = if is_handed { Notice::Hand(grant) } else { Notice::Offer(grant) };
        world.tell(0, Input::Noticed { partition: 0, notice });
    }
    world.run(2_000);
    assert_eq!(world.hosts[0].started.len(), 1 + 4 + 2 + 3);
    let reports =
        world.hosts[0].sent[said..].iter().filter(|(.., one)| matches!(one, Command::Report { .. }));
    assert_eq!(reports.count(), 0);
}

#[test]
fn l4_lost_notices_cost_a_poll_interval_or_so() {
    let mut world = world();
    world.filter = |packet| !matches!(packet, Packet::ToAgent { input: Input::Noticed { .. }, .. });
    world.host(settings(1, 2), Clock::TRUE, complete);
    world.run(100);
    world.submit(0, submit("one"));
    world.run(700);
    assert!(world.all_completed());
    // A run held as a whole is given back and given out again, and handed with the first notice that comes through.
    world.submit(0, submit("whole"));
    world.run(2_000);
    world.filter = |_| true;
    world.run(3_000);
    assert!(world.all_completed());
}

#[test]
fn higher_priority_starts_first_then_what_came_first() {
    let mut world = world();
    let order = [10, 200, 10, 200, 128];
    let runs: Vec<RunId> =
        order.map(|priority| world.submit(0, Submit { priority, ..submit("one") })).into_iter().collect();
    world.host(Settings { spec: spec(5), ..settings(1, 1) }, Clock::TRUE, complete);
    world.run(3_000);
    assert!(world.all_completed());
    let started: Vec<RunId> = world.hosts[0].started.iter().map(|grant| grant.run).collect();
    assert_eq!(started, [1, 3, 4, 0, 2].map(|at| runs[at]));
}

#[test]
fn a_short_silence_ends_short_leases_and_keeps_long_ones() {
    let mut world = world();
    let at = world.host(settings(1, 2), Clock::TRUE, endless);
    let short = world.submit(0, submit("one"));
    let long = world.submit(0, submit("long"));
    world.run(500);
    assert_eq!(world.hosts[at].executing.len(), 2);
    let before = world.hosts[at].agent.session(0).expect("it has one").session;
    world.filter = |packet| !matches!(packet, Packet::ToPartition { .. });
    world.run(1_500);
    world.filter = |_| true;
    world.run(1_000);
    let after = world.hosts[at].agent.session(0).expect("it has one").session;
    assert!(after > before, "the session changed");
    assert_eq!(world.hosts[at].stopped.len(), 1);
    assert_eq!(world.hosts[at].stopped[0].0.run, short);
    let held = world.hosts[at].agent.pieces().find(|piece| piece.held.run == long).expect("it is held");
    assert_eq!((held.state, held.lease), (PieceState::Running, LeaseState::Confirmed));
}

#[test]
fn what_was_taken_away_is_found_by_the_next_heartbeat() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, endless);
    let run = world.submit(0, submit("long"));
    world.run(500);
    // The order to stop is lost, and an administrator's hand takes the work away.
    world.filter = |packet| !matches!(packet, Packet::ToAgent { input: Input::Noticed { .. }, .. });
    let held = only_piece(&world, at).held;
    let incarnation = world.hosts[at].agent.session(0).expect("it has one").incarnation;
    let reports = vec![Report::new(held, Then::Release)];
    world.command(0, Command::Cancel(OnRun { run, if_version: None }));
    world.command(0, Command::Report { worker: WorkerId::new(1), incarnation, reports });
    world.run(1_000);
    assert_eq!(world.hosts[at].stopped, [(held, Why::Lost)]);
    assert_eq!(world.hosts[at].agent.pieces().count(), 0);
}

#[test]
fn a_cancelled_run_stops_its_work_and_ends_when_the_executor_did() {
    let mut world = world();
    for name in ["one", "whole", "offered"] {
        let at = world.host(settings(1, 2), Clock::TRUE, endless);
        world.hosts[at].stop_ms = 100;
        let run = world.submit(0, submit(name));
        world.run(700);
        assert_eq!(world.hosts[at].executing.len(), 1, "{name}");
        world.command(0, Command::Cancel(OnRun { run, if_version: None }));
        world.run(90);
        assert_eq!(world.status(run), RunStatus::Ending, "{name}");
        world.run(400);
        assert_eq!(world.status(run), RunStatus::Cancelled, "{name}");
        assert!(matches!(world.hosts[at].stopped[..], [(_, Why::Asked(StopReason::RunEnding))]));
        assert_eq!(world.hosts[at].agent.pieces().count(), 0);
        world.hosts[at].is_dead = true;
        world.runs.clear();
    }
}

#[test]
fn draining_finishes_what_runs_gives_back_what_waits_and_leaves() {
    let mut world = world();
    let at = world.host(Settings { spec: spec(3), ..settings(1, 1) }, Clock::TRUE, complete);
    (0..3).for_each(|_| _ = world.submit(0, submit("one")));
    world.run(60);
    assert_eq!(world.hosts[at].executing.len(), 1);
    world.tell(at, Input::Drain { within_ms: None });
    world.run(1_000);
    assert_eq!(world.hosts[at].started.len(), 1);
    assert!(world.hosts[at].agent.is_drained());
    assert_eq!(world.hosts[at].agent.next_deadline(), None);
    let completed =
        |world: &World| world.runs.iter().filter(|run| world.status(**run) == RunStatus::Completed).count();
    assert_eq!(completed(&world), 1);
    let effects = world.command(0, Command::Drain { worker: WorkerId::new(1), on: true });
    assert!(format!("{effects:?}").contains("UnknownWorker"), "it left: {effects:?}");
    world.host(settings(2, 1), Clock::TRUE, complete);
    world.run(1_500);
    assert!(world.all_completed());
}

#[test]
fn draining_has_an_end_even_if_the_work_has_none_and_nobody_answers() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, endless);
    world.submit(0, submit("one"));
    world.run(300);
    world.tell(at, Input::Drain { within_ms: Some(500) });
    world.run(400);
    assert_eq!(world.hosts[at].executing.len(), 1);
    world.run(400);
    assert!(matches!(world.hosts[at].stopped[..], [(_, Why::Draining)]));
    assert!(world.hosts[at].agent.is_drained());
    let lonely = world.host(settings(2, 1), Clock::TRUE, complete);
    world.run(1_500);
    assert!(world.all_completed());
    world.filter = |_| false;
    world.tell(lonely, Input::Drain { within_ms: None });
    world.run(10_000);
    assert!(world.hosts[lonely].agent.is_drained());
}

#[test]
fn offers_beyond_the_room_are_declined_so_that_others_get_them() {
    let mut world = world();
    world.host(Settings { takes_offers: false, ..settings(1, 4) }, Clock::TRUE, complete);
    world.host(settings(2, 1), Clock::TRUE, complete);
    world.run(50);
    (0..3).for_each(|_| _ = world.submit(0, submit("offered")));
    world.run(8_000);
    assert!(world.all_completed());
    assert!(world.hosts[0].started.is_empty());
}

#[test]
fn an_offer_to_a_worker_that_was_silent_for_longer_than_its_lease_is_accepted_after_a_sign_of_life() {
    let mut world = world();
    let lazy = Settings { heartbeat_ms: 1_900, poll_ms: 60_000, ..settings(1, 1) };
    let at = world.host(lazy, Clock::TRUE, complete);
    world.run(1_500);
    world.submit(0, submit("offered"));
    world.run(1_000);
    assert!(world.all_completed());
    assert_eq!(world.hosts[at].started.len(), 2);
}

#[test]
fn two_partitions_share_the_slots_and_take_turns() {
    let mut world = World::new(2, definitions());
    let at = world.host(settings(1, 1), Clock::TRUE, complete);
    for _ in 0..4 {
        world.submit(0, submit("one"));
        world.submit(1, submit("one"));
    }
    world.run(450);
    let of =
        |partition| world.hosts[at].started.iter().filter(|one| one.run.partition() == partition).count();
    assert!(of(0).abs_diff(of(1)) <= 1 && of(0) > 0, "{} and {}", of(0), of(1));
    // One of them does not answer polls any more: the other is served all the same.
    world.filter =
        |packet| !matches!(packet, Packet::ToPartition { partition: 0, command: Command::Poll { .. }, .. });
    world.run(4_000);
    let left = world.runs.iter().filter(|run| run.partition() == 1);
    assert!(left.clone().all(|run| world.status(*run) == RunStatus::Completed));
    world.filter = |_| true;
    world.run(4_000);
    assert!(world.all_completed());
}

#[test]
fn a_report_that_is_refused_leaves_the_work_with_its_executor() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, |grant| {
        let state = Value::EMPTY;
        let suspension =
            Suspension { reason: "".into(), state, on_message: false, after_ms: Some(10), at_wall: None };
        let first = grant.attempt.get() == 1;
        (50, if first { Then::Suspend(Box::new(suspension)) } else { Then::Complete { output: state } })
    });
    world.submit(0, submit("one"));
    world.run(3_000);
    // The empty reason is no name; the executor was told, and gave the work back.
    assert!(matches!(world.hosts[at].answers[0], (_, Err(Refusal::Rejected(_)))));
    assert!(world.all_completed());
}

#[test]
fn an_executor_that_says_what_it_may_not_is_told_so() {
    let mut world = world();
    let at = world.host(settings(1, 1), Clock::TRUE, endless);
    world.submit(0, submit("one"));
    world.run(500);
    let held = only_piece(&world, at).held;
    let other = Held { epoch: Epoch::new(99), ..held };
    let far = Held { run: RunId::compose(9, 1, 1), ..held };
    for (held, then, refusal) in [
        (held, Then::Start, Refusal::NotYours),
        (other, Then::Release, Refusal::NotRunning),
        (far, Then::Release, Refusal::NotRunning),
    ] {
        world.tell(at, Input::Reported(Report::new(held, then)));
        assert_eq!(world.hosts[at].answers.pop(), Some((held, Err(refusal))));
    }
    world.tell(at, Input::Stopped { held: other });
    world.tell(at, Input::Stopped { held: far });
    world.tell(at, Input::Restart { partition: 7 });
    assert_eq!(world.hosts[at].executing.len(), 1);
}
