//! A Shard over the real Coordinator and the obvious store, whose answers are scripted: what is let go is durable, what
//! is not known is found out, and what can not be known is forgotten.

mod gate;

use gate::{Answer, Gate, T, define, heartbeat, poll, register, submit};
use std::collections::BTreeSet;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::{Answer as Said, Effect};
use tenure_core::id::*;
use tenure_core::shard::command::{Input, Opening, Outcome};
use tenure_core::shard::effect::{Loss, NotTaken, Order, Release};
use tenure_core::shard::lifecycle::Standing;
use tenure_core::shard::{Settings, Shard};
use tenure_core::time::Reason;

fn pipelined() -> Settings {
    Settings { in_flight: 3, ..Settings::default() }
}

/// A gate that serves, and in which the definition `one` is durable.
fn gate(settings: Settings) -> Gate {
    let mut gate = Gate::serving(settings);
    gate.ask(define());
    gate.settle();
    gate
}

#[test]
fn a_reply_leaves_when_its_rows_are_durable_and_not_before() {
    let mut gate = gate(Settings::default());
    let request = gate.ask(submit(1));
    assert!(!gate.is_answered(request));
    gate.answer(Answer::Ok);
    assert!(gate.is_answered(request));
}

#[test]
fn what_comes_while_a_batch_commits_is_one_batch_together() {
    let mut gate = gate(Settings::default());
    let first = gate.ask(submit(1));
    let more: Vec<_> = (2..6).map(|n| gate.ask(submit(n))).collect();
    assert_eq!(gate.commits(), 1, "one batch is under way, the next one forms");
    gate.answer(Answer::Ok);
    assert!(gate.is_answered(first) && !more.iter().any(|one| gate.is_answered(*one)));
    assert_eq!(gate.commits(), 1);
    gate.answer(Answer::Ok);
    assert!(more.iter().all(|one| gate.is_answered(*one)));
    assert_eq!(gate.pending(), 0, "an idle Shard waits for nothing");
}

#[test]
fn a_heartbeat_leaves_by_a_check_and_alone_needs_none() {
    for exclusive in [false, true] {
        let mut gate = gate(Settings { exclusive, ..Settings::default() });
        gate.ask(register(1));
        gate.settle();
        let beat = heartbeat(&gate, 1);
        let request = gate.ask(beat);
        assert_eq!(gate.is_answered(request), exclusive);
        assert_eq!(gate.pending(), usize::from(!exclusive));
        gate.settle();
        assert!(gate.is_answered(request));
    }
}

#[test]
fn effects_leave_in_the_order_of_batches_whatever_the_order_of_answers() {
    let mut gate = gate(pipelined());
    let requests: Vec<_> = (1..4).map(|n| gate.ask(submit(n))).collect();
    assert_eq!(gate.commits(), 3);
    let answers: Vec<_> = gate.take_orders().iter().map(|order| gate.store.carry_out(order)).collect();
    for answer in answers.into_iter().rev().flatten() {
        assert!(!requests.iter().any(|one| gate.is_answered(*one)));
        gate.feed(answer);
    }
    assert!(requests.iter().all(|one| gate.is_answered(*one)));
}

#[test]
fn an_unknown_commit_is_found_out_whether_it_was_applied_or_not() {
    for applied in [true, false] {
        let mut gate = gate(Settings::default());
        let request = gate.ask(submit(1));
        gate.answer(if applied { Answer::AppliedUnknown } else { Answer::LostUnknown });
        assert!(!gate.is_answered(request));
        assert!(matches!(gate.orders(), [Order::Resolve { .. }]));
        gate.answer(Answer::Ok);
        assert_eq!(gate.is_answered(request), applied);
        assert_eq!(gate.commits(), usize::from(!applied), "the same rows are sent again");
        gate.settle();
        assert!(gate.is_answered(request));
        gate.compare();
    }
}

#[test]
fn the_first_sending_may_arrive_after_the_second() {
    let mut gate = gate(Settings::default());
    let request = gate.ask(submit(1));
    let late = gate.orders()[0].clone();
    gate.answer(Answer::LostUnknown);
    gate.answer(Answer::Ok);
    let before = gate.released.len();
    let answer = gate.store.carry_out(&late).expect("a commit is answered");
    gate.feed(answer);
    assert_eq!(gate.released.len(), before, "an answer to the first sending is none to the second");
    gate.settle();
    assert!(gate.is_answered(request));
    gate.ask(submit(2));
    gate.settle();
    gate.compare();
}

#[test]
fn what_was_not_applied_is_sent_again_later_and_later() {
    let mut gate = gate(Settings::default());
    let request = gate.ask(submit(1));
    let mut waits = Vec::new();
    for _ in 0..12 {
        gate.answer(Answer::NotApplied);
        let deadline = gate.shard.next_deadline().expect("it is sent again");
        assert_eq!(deadline.reason, Reason::CommitAgain);
        waits.push(deadline.mono - gate.now.mono);
        gate.pass(deadline.mono - gate.now.mono);
        gate.feed(Input::Pulse);
    }
    assert_eq!(waits[..4], [20, 40, 80, 160]);
    assert_eq!(waits[11], 5_000);
    gate.settle();
    assert!(gate.is_answered(request));
}

#[test]
fn nothing_is_formed_while_an_earlier_batch_waits_and_no_deadline_stays_behind() {
    let mut gate = gate(pipelined());
    gate.ask(submit(1));
    for _ in 0..9 {
        gate.answer(Answer::NotApplied);
        gate.pass_to_deadline();
    }
    gate.answer(Answer::NotApplied);
    gate.ask(submit(2));
    assert_eq!(gate.pending(), 0, "it would be refused: the batch before it is missing");
    gate.pass(100);
    gate.feed(Input::Pulse);
    let deadline = gate.shard.next_deadline().expect("it is sent again");
    assert!(deadline.mono > gate.now.mono, "{deadline:?} is behind, and no pulse clears it");
    gate.pass_to_deadline();
    gate.settle();
    gate.compare();
}

#[test]
fn a_doubt_behind_a_delayed_batch_is_resolved_all_the_same() {
    let mut gate = gate(pipelined());
    (1..3).for_each(|n| _ = gate.ask(submit(n)));
    let tickets: Vec<u64> = gate.take_orders().iter().map(gate::ticket).collect();
    gate.feed(Input::Answered { ticket: tickets[0], outcome: Outcome::NotApplied });
    gate.feed(Input::Answered { ticket: tickets[1], outcome: Outcome::Unknown });
    assert!(matches!(gate.orders(), [Order::Resolve { .. }]), "{:?}", gate.orders());
    gate.settle_in_time();
    gate.compare();
}

#[test]
fn a_doubt_that_nobody_clears_ends_by_its_deadline() {
    let mut gate = gate(Settings::default());
    let request = gate.ask(submit(1));
    gate.answer(Answer::AppliedUnknown);
    gate.take_orders();
    // The answer to the question never comes.
    let deadline = gate.shard.next_deadline().expect("doubt has an end");
    assert_eq!(deadline.mono, gate.now.mono + 10_000);
    gate.pass(10_000);
    gate.feed(Input::Pulse);
    assert!(matches!(gate.orders(), [Order::Lost { why: Loss::Unresolved, .. }]));
    assert!(!gate.is_answered(request));
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_before_a_reload() {
    let mut gate = gate(pipelined());
    let requests: Vec<_> = (1..4).map(|n| gate.ask(submit(n))).collect();
    let orders = gate.take_orders();
    gate.feed(Input::Answered { ticket: gate::ticket(&orders[0]), outcome: Outcome::Failed });
    assert!(matches!(gate.orders(), [Order::Lost { why: Loss::StoreFailed, .. }]));
    for order in &orders {
        gate.feed(Input::Answered { ticket: gate::ticket(order), outcome: Outcome::Durable });
    }
    assert!(!requests.iter().any(|one| gate.is_answered(*one)));
    assert_eq!(gate.shard.standing(), Standing::Empty);
    gate.reload();
    let request = gate.ask(submit(1));
    gate.settle();
    assert!(gate.is_answered(request));
    gate.compare();
}

#[test]
fn a_delayed_commit_of_an_old_owner_is_refused() {
    let mut gate = gate(Settings::default());
    gate.ask(submit(1));
    let late = gate.take_orders().remove(0);
    gate.feed(Input::Answered { ticket: gate::ticket(&late), outcome: Outcome::Failed });
    gate.take_orders();
    gate.reload();
    gate.ask(submit(2));
    gate.settle();
    let before = gate.store.clone();
    let answer = gate.store.carry_out(&late).expect("a commit is answered");
    assert!(matches!(answer, Input::Answered { outcome: Outcome::Fenced, .. }));
    assert_eq!(gate.store, before);
    gate.feed(answer);
    assert_eq!(gate.shard.standing(), Standing::Serving, "it speaks of what is gone");
}

#[test]
fn rows_of_another_partition_and_rows_that_are_gone_are_not_believed() {
    let mut gate = gate(Settings::default());
    gate.ask(submit(1));
    gate.settle();
    let Opening::Rows { batch, rows } = gate.store.open(gate.store.last().0) else { panic!("it owns") };
    for (partition, rows) in [(8, rows), (gate::PARTITION, Vec::new())] {
        let mut shard = Shard::new(partition, gate::limits(), Settings::default());
        let mut out = Default::default();
        let ownership = Ownership::new(1);
        shard.handle(gate.now, Input::Own { ownership }, &mut out);
        shard.handle(gate.now, Input::Loaded { ownership, opening: Opening::Rows { batch, rows } }, &mut out);
        assert_eq!(shard.standing(), Standing::Broken);
        assert!(matches!(out.orders.last(), Some(Order::Broken { why: Some(_), .. })));
    }
}

#[test]
fn back_pressure_spares_signs_of_life_and_reports_but_not_without_end() {
    let mut gate = gate(Settings { held: 4, ..Settings::default() });
    gate.ask(register(1));
    gate.settle();
    // The store says nothing any more.
    (1..5).for_each(|n| _ = gate.ask(submit(n)));
    let refused = gate.ask(submit(9));
    assert_eq!(gate.refusal(refused), Some(NotTaken::Busy));
    let look = gate.look(RunId::compose(gate::PARTITION, 1, 7));
    assert_eq!(gate.refusal(look), Some(NotTaken::Busy));
    let beats: Vec<_> = (0..9)
        .map(|_| {
            let beat = heartbeat(&gate, 1);
            gate.ask(beat)
        })
        .collect();
    assert_eq!(gate.refusal(beats[0]), None, "renewals still pass (F37)");
    assert_eq!(gate.refusal(beats[8]), Some(NotTaken::Busy), "memory is bounded");
    gate.settle();
    assert!(gate.is_answered(beats[0]));
}

#[test]
fn time_stands_still_while_the_store_is_stuck_and_full() {
    let mut gate = gate(Settings { held: 1, ..Settings::default() });
    gate.ask(register(1));
    gate.settle();
    for _ in 0..3 {
        let beat = heartbeat(&gate, 1);
        gate.ask(beat);
    }
    gate.pass(3_600_000);
    gate.feed(Input::Pulse);
    assert_eq!(gate.shard.next_deadline(), None);
    gate.settle();
    assert!(gate.shard.next_deadline().is_some(), "and goes on when there is room");
}

/// Ends `n` runs, so that the first of them leave memory.
fn end_runs(gate: &mut Gate, from: u64, n: u64) -> Vec<Held> {
    let mut held = Vec::new();
    for one in from..from + n {
        gate.ask(submit(one));
        let poll = poll(gate, 1);
        let request = gate.ask(poll);
        gate.settle();
        let Some(Ok(Said::Polled { grants, .. })) = gate.reply(request) else { panic!("it was polled") };
        held.push(grants[0].held());
        let report = gate::complete(gate, 1, &[*held.last().expect("it holds one")]);
        gate.ask(report);
        gate.settle();
    }
    held
}

#[test]
fn what_is_not_in_memory_is_read_back_and_a_look_needs_no_change() {
    let mut gate = gate(Settings::default());
    gate.ask(register(1));
    gate.settle();
    let held = end_runs(&mut gate, 1, 4);
    let look = gate.look(held[0].run);
    assert!(matches!(gate.orders(), [Order::Fetch { .. }]));
    gate.answer(Answer::Ok);
    assert!(gate.view(look).is_none() && matches!(gate.orders(), [Order::Check { .. }]));
    gate.answer(Answer::Ok);
    assert!(gate.view(look).is_some_and(|view| view.is_some()));
    let nowhere = gate.look(RunId::compose(gate::PARTITION + 1, 1, 7));
    gate.settle();
    assert_eq!(gate.view(nowhere), Some(None));
}

#[test]
fn a_report_on_two_runs_finds_the_one_that_left_memory_meanwhile() {
    let mut gate = gate(Settings::default());
    gate.ask(register(1));
    gate.settle();
    let held = end_runs(&mut gate, 1, 4);
    // The first is not in memory, the last one is; both were reported before and are reported again.
    let report = gate::complete(&gate, 1, &[held[0], held[3]]);
    let request = gate.ask(report);
    let fetch = gate.take_orders().remove(0);
    assert!(matches!(fetch, Order::Fetch { .. }));
    end_runs(&mut gate, 5, 3);
    let answer = gate.store.carry_out(&fetch).expect("it is answered");
    gate.feed(answer);
    gate.settle();
    let Some(Ok(Said::Reported(results))) = gate.reply(request) else { panic!("it was answered") };
    assert!(results.iter().all(Result::is_ok), "a repeat gets the first answer (S32): {results:?}");
}

#[test]
fn a_page_that_was_written_meanwhile_is_read_again() {
    let mut gate = gate(Settings { in_flight: 4, ..Settings::default() });
    let requests: Vec<_> = (1..7).map(|n| gate.ask(submit(n))).collect();
    gate.settle();
    let runs: Vec<_> = requests.iter().map(|one| gate.run(*one)).collect();
    let on = |run: RunId| OnRun { run, if_version: None };
    for run in &runs[..4] {
        gate.ask(Command::Cancel(on(*run)));
    }
    gate.settle();
    // The first one is not in memory. It is looked at, and the store does not answer.
    let look = gate.look(runs[0]);
    gate.answer(Answer::Unreadable);
    // Meanwhile it is opened again, cancelled, and leaves memory with batches that are not durable.
    gate.ask(Command::Retry(on(runs[0])));
    gate.answer(Answer::Ok);
    gate.ask(Command::Cancel(on(runs[0])));
    gate.ask(Command::Cancel(on(runs[4])));
    gate.ask(Command::Cancel(on(runs[5])));
    assert_eq!(gate.commits(), 4);
    // It is read again before these are durable, and sees none of them.
    gate.pass(100);
    gate.feed(Input::Pulse);
    if let Some(fetch) = gate.maybe_order(|order| matches!(order, Order::Fetch { .. })) {
        let stale = gate.store.carry_out(&fetch).expect("it is answered");
        gate.feed(stale);
    }
    gate.settle();
    let Some(Some(view)) = gate.view(look) else { panic!("it is there") };
    assert_eq!(view.head.series, Series::new(2), "what was read is older than what was answered");
    gate.compare();
}

#[test]
fn steady_writing_can_not_starve_a_read() {
    let mut gate = gate(Settings::default());
    let requests: Vec<_> = (1..5).map(|n| gate.ask(submit(n))).collect();
    gate.settle();
    let runs: Vec<_> = requests.iter().map(|one| gate.run(*one)).collect();
    let on = |run: RunId| OnRun { run, if_version: None };
    for run in &runs {
        gate.ask(Command::Cancel(on(*run)));
    }
    gate.settle();
    let look = gate.look(runs[0]);
    let mut fetch = gate.take_orders().remove(0);
    gate.ask(Command::Retry(on(runs[0])));
    gate.settle();
    // Whenever it is read, a batch that writes the run is formed before the rows come.
    for reads in 1.. {
        assert!(reads < 10, "it is read again and again");
        let answer = gate.store.carry_out(&fetch).expect("it is answered");
        let write = if reads % 2 == 0 { Command::Continue } else { Command::Pause };
        gate.ask(write(on(runs[0])));
        gate.feed(answer);
        let Some(again) = gate.maybe_order(|order| matches!(order, Order::Fetch { .. })) else {
            let is_sent = gate.commits() > 0;
            gate.settle_but_fetches();
            match gate.maybe_order(|order| matches!(order, Order::Fetch { .. })) {
                Some(again) => fetch = again,
                None => {
                    assert!(is_sent && reads > 2);
                    break;
                }
            }
            continue;
        };
        fetch = again;
    }
    assert!(gate.view(look).is_some_and(|view| view.is_some()));
    gate.compare();
}

#[test]
fn a_store_that_does_not_answer_reads_is_asked_again_without_spinning() {
    let mut gate = gate(Settings { fetches: 1, ..Settings::default() });
    gate.ask(register(1));
    gate.settle();
    let held = end_runs(&mut gate, 1, 4);
    let first = gate.look(held[0].run);
    let fetch = gate.take_orders().remove(0);
    // A batch is under way when its time comes: that must be durable first.
    gate.ask(submit(9));
    let answer = gate::treat(&mut gate.store, &fetch, Answer::Unreadable).expect("it is answered");
    gate.feed(answer);
    gate.pass(100);
    gate.feed(Input::Pulse);
    let deadline = gate.shard.next_deadline();
    assert!(deadline.is_none_or(|one| one.mono > gate.now.mono), "{deadline:?} is behind");
    gate.settle_in_time();
    assert!(gate.view(first).is_some());
}

#[test]
fn closing_waits_for_doubt_and_turns_away_what_waits_to_be_read() {
    let mut gate = gate(Settings::default());
    gate.ask(register(1));
    gate.settle();
    let held = end_runs(&mut gate, 1, 4);
    let request = gate.ask(submit(9));
    let look = gate.look(held[0].run);
    gate.answer(Answer::AppliedUnknown);
    gate.feed(Input::Close);
    assert_eq!(gate.shard.standing(), Standing::Closing);
    assert_eq!(gate.refusal(look), Some(NotTaken::NotOwner));
    let late = gate.ask(submit(10));
    assert_eq!(gate.refusal(late), Some(NotTaken::NotOwner));
    gate.answer(Answer::Ok);
    assert!(gate.is_answered(request));
    assert!(matches!(gate.orders(), [Order::Released { .. }]));
    assert_eq!(gate.shard.standing(), Standing::Empty);
}

#[test]
fn commands_while_rows_are_read_are_not_taken_and_closing_then_is_quick() {
    let mut gate = Gate::new(Settings::default());
    gate.own();
    let request = gate.ask(define());
    assert_eq!(gate.refusal(request), Some(NotTaken::NotOwner));
    let load = gate.take_orders().remove(0);
    gate.feed(Input::Close);
    assert!(matches!(gate.take_orders()[..], [Order::Released { .. }]));
    let answer = gate.store.carry_out(&load).expect("it is answered");
    gate.feed(answer);
    assert_eq!(gate.shard.standing(), Standing::Empty);
}

#[test]
fn every_request_of_a_story_is_answered_once() {
    let mut gate = gate(pipelined());
    gate.ask(register(1));
    gate.settle();
    end_runs(&mut gate, 1, 6);
    let replies: Vec<_> = gate.released.iter().filter_map(replied).collect();
    let distinct: BTreeSet<_> = replies.iter().collect();
    assert_eq!(replies.len(), distinct.len());
    assert!(gate.open_requests().is_empty());
    assert_eq!(T.value(), 1);
}

fn replied(release: &Release) -> Option<RequestId> {
    match release {
        Release::Effect(Effect::Reply { request, .. }) => Some(*request),
        _ => None,
    }
}
