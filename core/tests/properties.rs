//! Random lives of a small partition. After every input all invariants hold; a machine restored from rows does as the
//! original does (S46); the audit leads to the rows (S50); the same inputs give the same outputs (S49).

mod common;

use common::{Draw, World, draw_kinds, limits};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngAlgorithm, RngSeed};
use std::collections::BTreeSet;
use std::hash::Hasher;
use tenure_core::coordinator::invariants::{ALL, SENTENCES, s50_replay_gives_the_rows};
use tenure_core::lifecycle::{Health, Lifecycle, MessageState, Phase, RunStatus};

fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// `TENURE_TIMES=100 TENURE_SEED=7` makes a campaign of it, with other lives.
fn config(cases: u32, seed: u64) -> ProptestConfig {
    let seed = seed + u64::from(number("TENURE_SEED").unwrap_or(0));
    ProptestConfig {
        cases: cases * number("TENURE_TIMES").unwrap_or(1),
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_iters: 4_000,
        ..ProptestConfig::default()
    }
}

fn live(acts: &[u64]) -> World {
    let mut world = World::new();
    acts.iter().for_each(|act| world.act(*act));
    world
}

fn acts(most: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(any::<u64>(), 1..most)
}

proptest! {
    #![proptest_config(config(24, 11))]

    #[test]
    fn every_invariant_holds_after_every_input(acts in acts(250)) {
        live(&acts);
    }

    #[test]
    fn rows_are_enough_at_every_step(acts in acts(60)) {
        let mut world = World::new();
        for act in acts {
            world.act(act);
            world.compare_rows();
        }
    }

    #[test]
    fn a_restored_machine_does_as_the_original_does(before in acts(120), after in acts(120)) {
        let mut world = live(&before);
        world.fork();
        after.iter().for_each(|act| world.act(*act));
    }

    #[test]
    fn the_audit_leads_to_the_rows(acts in acts(200)) {
        let world = live(&acts);
        let held = s50_replay_gives_the_rows(3, &limits(), &world.audit, &world.store);
        prop_assert!(held.is_ok(), "{}", held.unwrap_err());
    }

    #[test]
    fn the_same_inputs_give_the_same_outputs(acts in acts(120)) {
        let (one, two) = (live(&acts), live(&acts));
        prop_assert_eq!(one.seen.finish(), two.seen.finish());
        prop_assert_eq!(one.digest(), two.digest());
        prop_assert_eq!(one.store, two.store);
    }
}

fn untaken<L: Lifecycle + Ord>(taken: &BTreeSet<(L, L::Step)>) -> Vec<String>
where
    L::Step: Ord,
{
    let rows = L::TABLE.iter().filter(|(from, step, _)| !taken.contains(&(*from, *step)));
    rows.map(|(from, step, to)| format!("{}: {from:?} {step:?} {to:?}", L::NAME)).collect()
}

/// A campaign that reaches everything: no kind of command that never succeeds, no row of a table that is never taken.
#[test]
fn a_campaign_takes_every_row_of_every_table() {
    let mut accepted = BTreeSet::new();
    let (mut work, mut runs, mut messages, mut workers) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let random = (0..CAMPAIGN).map(|seed| {
        let mut draw = Draw(seed);
        let mut world = World::new();
        (0..300).for_each(|_| world.act(draw.next()));
        world
    });
    for world in random.chain([World::of_a_paused_dash()]) {
        accepted.append(&mut world.accepted.clone());
        let taken = world.watch.taken().clone();
        work.extend(taken.work);
        runs.extend(taken.runs);
        messages.extend(taken.messages);
        workers.extend(taken.workers);
    }
    let missing: Vec<_> = draw_kinds().iter().filter(|kind| !accepted.contains(**kind)).collect();
    assert!(missing.is_empty(), "never accepted: {missing:?}");
    let mut left = untaken::<Phase>(&work);
    left.extend(untaken::<RunStatus>(&runs));
    left.extend(untaken::<MessageState>(&messages));
    left.extend(untaken::<Health>(&workers));
    assert!(left.is_empty(), "never taken: {left:#?}");
}

const CAMPAIGN: u64 = 60;

#[test]
fn every_check_has_a_sentence_and_every_sentence_a_check() {
    for invariant in ALL {
        assert!(SENTENCES.iter().any(|(number, _)| *number == invariant.number), "{}", invariant.name);
        assert!(invariant.name.starts_with(&invariant.number.to_lowercase()), "{}", invariant.name);
    }
    // S46, S49 and S50 need more than one machine; S48 is the store's; the others are the Shard's, and checked around one.
    let elsewhere = ["S11", "S12", "S45", "S46", "S47", "S48", "S49", "S50"];
    for (number, sentence) in SENTENCES.iter().filter(|(number, _)| !elsewhere.contains(number)) {
        assert!(ALL.iter().any(|invariant| invariant.number == *number), "{number}: {sentence}");
    }
}
