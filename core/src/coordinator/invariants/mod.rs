//! What must hold, as named functions that tests, simulators and fuzzers run after every step.
//!
//! Nothing here decides, and nothing that decides is asked: each fact is worked out again, the obvious and slow way,
//! from rows, events, effects and answers. State checks look at a machine; event and turn checks look at what a
//! [`Watch`] saw happen. [`ALL`] lists every one of them under the number that failure reports cite.

mod durable;
mod inbox;
mod indexes;
mod known;
mod model;
mod ownership;
mod placement;
#[cfg(test)]
mod planted;
mod requests;
mod runs;
mod stuck;
mod sync;
mod trace_grants;
mod trace_inbox;
mod trace_work;
mod watch;

pub use durable::{replayed, s46_rows_are_enough, s50_replay_gives_the_rows};
pub use inbox::*;
pub use indexes::*;
pub use known::{
    DefinitionFacts, HeadFacts, Holder, InboxFacts, KeyFacts, Known, RunFacts, WorkFacts, WorkerFacts,
};
pub use ownership::*;
pub use placement::*;
pub use requests::*;
pub use runs::*;
pub use stuck::*;
pub use trace_grants::*;
pub use trace_inbox::*;
pub use trace_work::*;
pub use watch::{Moment, Taken, Turn, Watch};

pub use crate::invariants::{Holds, Violation};

use super::Coordinator;
use alloc::string::String;

/// A named check.
#[derive(Debug, Clone, Copy)]
pub struct Invariant {
    /// Which guarantee it belongs to.
    pub number: &'static str,
    /// The function's name.
    pub name: &'static str,
    /// The function.
    pub check: Check,
}

/// What a check looks at.
#[derive(Debug, Clone, Copy)]
pub enum Check {
    /// A machine between two inputs.
    State(fn(&Coordinator) -> Holds),
    /// One event, and what was known just before it.
    Event(fn(&Moment<'_>) -> Holds),
    /// An input with everything that came of it.
    Turn(fn(&Turn<'_>) -> Holds),
}

/// What each guarantee promises, by its number.
pub const SENTENCES: &[(&str, &str)] = &[
    ("S1", "only transitions of the declared tables occur"),
    ("S2", "terminal is absorbing; a retry by hand opens the next series"),
    ("S3", "a run's version rises by one per accepted change; a stale if_version changes nothing"),
    ("S4", "a completed run has only terminal nodes, no lease and no claimed message"),
    ("S5", "cancel and complete linearise on entering ending; one wins"),
    ("S6", "at most one live lease per piece of work"),
    ("S7", "epochs strictly grow, and no two grants carry the same one"),
    ("S8", "a change by a worker is accepted only under the current epoch"),
    ("S9", "a lease that expired or was superseded is never renewed back to life"),
    ("S10", "expiry is conditional on the epoch it observed"),
    ("S11", "every commit carries the ownership epoch; the store refuses a lower one"),
    ("S12", "every effect was released by a commit or ownership check begun after its input arrived"),
    ("S13", "attempts rise by one per start; failures and losses stay within their budgets"),
    ("S14", "at most one accepted outcome per run, node and series"),
    ("S15", "work is dispatched only when its join is satisfied by accepted outcomes"),
    ("S16", "after recovery nothing that was leased is dispatched again within its lease time"),
    ("S17", "a retry keeps the node's identity and its dependents"),
    ("S18", "a failed attempt that will be retried triggers nothing downstream"),
    ("S19", "a join's pending count is derived from its set of arrived edges"),
    ("S20", "a join fires exactly once per series, in the step that satisfies it"),
    ("S21", "a run's graph is acyclic and equals the pinned hash"),
    ("S22", "message ids are unique per inbox; the same id with other content is a conflict"),
    ("S23", "seqs are gapless per inbox"),
    ("S24", "messages go pending, claimed, consumed; only expiry or release goes back"),
    ("S25", "consuming is atomic with what the consumer produced"),
    ("S26", "a message is consumed at most once; settled seqs are a prefix"),
    ("S27", "a handle closes only when all sources ended and all is settled; later sends are refused"),
    ("S28", "an input id is accepted once; a repeat gets the first answer"),
    ("S29", "cursors never fall and never pass committed inputs"),
    ("S30", "a suspension commits only if nothing it waits for has arrived"),
    ("S31", "an acknowledged input is delivered, carried over or refused in words"),
    ("S32", "a repeated accepted request gets the first answer; another under its key conflicts"),
    ("S33", "no key is forgotten while its run lives or inside the stated time"),
    ("S34", "the key per run and node is the same on every attempt"),
    ("S35", "identity is worker and incarnation; the newer fences the older"),
    ("S36", "a stale, dead or draining worker gets no new work"),
    ("S37", "placement is a pure, totally ordered function of state"),
    ("S38", "parallel, per-key and capacity limits hold at every instant"),
    ("S39", "a higher priority is never passed over for a lower one beyond the ageing rule"),
    ("S45", "an answer leaves only after the rows behind it are durable"),
    ("S46", "a machine restored from rows and told to recover behaves as the original told the same"),
    ("S47", "after a write or sync error nothing is acknowledged before a reload"),
    ("S48", "a newer schema or snapshot is refused and left untouched"),
    ("S49", "same inputs, same outputs and digest"),
    ("S50", "replaying the audit gives the rows"),
    ("S51", "every entity that is not terminal has a deadline or a named outside event it waits for"),
    ("S52", "memory is bounded: nothing of what left it remains, and every index equals the rows"),
];

/// The violation of a numbered guarantee.
pub(crate) fn broken(number: &'static str, facts: String) -> Violation {
    crate::invariants::broken(SENTENCES, number, facts)
}

/// Fails with a guarantee's number and the facts unless the condition holds.
macro_rules! hold {
    ($number:literal, $condition:expr, $($facts:tt)+) => {
        if !$condition {
            return Err($crate::coordinator::invariants::broken($number, alloc::format!($($facts)+)));
        }
    };
}
pub(crate) use hold;

macro_rules! all {
    ($($kind:ident $number:literal $function:ident;)*) => {
        /// Every check there is. S46 and S50 need more than one machine and are functions of their own.
        pub const ALL: &[Invariant] = &[$(
            Invariant { number: $number, name: stringify!($function), check: Check::$kind($function) },
        )*];
    };
}

all! {
    Event "S1" s1_only_declared_transitions;
    Turn "S1" s1_the_machine_is_where_the_events_lead;
    Event "S2" s2_terminal_is_absorbing;
    Turn "S3" s3_a_version_rises_once_per_step;
    Event "S3" s3_a_stale_version_changes_nothing;
    State "S4" s4_an_ended_run_holds_nothing;
    Event "S5" s5_one_outcome_wins;
    State "S6" s6_at_most_one_live_lease;
    Event "S7" s7_epochs_strictly_grow;
    Event "S8" s8_only_the_current_epoch_changes_work;
    Turn "S9" s9_nothing_dead_is_renewed;
    Event "S10" s10_expiry_is_of_the_epoch_it_observed;
    Event "S13" s13_attempts_rise_by_one_per_start;
    Event "S13" s13_budgets_are_kept;
    Turn "S13" s13_counts_are_what_happened;
    Event "S14" s14_one_outcome_per_series;
    Event "S15" s15_dispatched_only_when_joined;
    Event "S16" s16_no_takeover_within_the_lease_after_recovery;
    State "S17" s17_a_run_has_the_nodes_of_its_definition;
    Event "S18" s18_a_retried_failure_triggers_nothing;
    State "S19" s19_joins_are_derived_from_their_sets;
    Event "S20" s20_a_join_fires_once_per_series;
    State "S20" s20_no_satisfied_join_waits;
    State "S21" s21_graphs_are_acyclic;
    Turn "S21" s21_definitions_never_change;
    State "S22" s22_message_ids_are_unique;
    Event "S22" s22_an_id_has_one_content;
    State "S23" s23_seqs_are_gapless;
    Event "S24" s24_messages_follow_their_table;
    Event "S25" s25_consuming_is_atomic;
    Event "S26" s26_settled_is_a_prefix;
    State "S26" s26_marks_are_in_order;
    Event "S27" s27_a_handle_closes_at_its_end;
    State "S27" s27_closed_is_ended_and_settled;
    Turn "S28" s28_a_repeated_input_gets_the_first_answer;
    State "S29" s29_cursors_do_not_pass_inputs;
    Turn "S29" s29_cursors_never_fall;
    Event "S30" s30_no_wake_up_is_lost;
    Turn "S31" s31_an_acknowledged_input_is_there;
    Turn "S32" s32_a_repeat_gets_the_first_answer;
    State "S33" s33_live_keys_are_known;
    Turn "S33" s33_a_key_opens_one_run;
    Turn "S34" s34_stable_keys_stay;
    State "S35" s35_older_lives_are_fenced;
    Turn "S35" s35_an_older_life_is_refused;
    Event "S36" s36_only_healthy_workers_get_work;
    State "S37" s37_queues_are_the_ready_work;
    State "S38" s38_limits_hold;
    Event "S38" s38_keys_are_within_their_limits;
    State "S39" s39_the_first_eligible_is_picked;
    State "S51" s51_work_waits_for_something;
    State "S51" s51_runs_wait_for_something;
    State "S51" s51_workers_and_debts_are_armed;
    State "S52" s52_timers_are_the_armed_instants;
    State "S52" s52_leases_are_the_held_work;
    State "S52" s52_preemptible_leases_live;
    State "S52" s52_counts_are_what_rows_say;
    State "S52" s52_memory_is_bounded;
}

/// Runs every state check on a machine.
pub fn check_state(machine: &Coordinator) -> Holds {
    for invariant in ALL {
        if let Check::State(check) = invariant.check {
            check(machine)?;
        }
    }
    Ok(())
}
