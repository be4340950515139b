//! Every bound there is, by name (S52). A command that would pass one is refused with that name and the bound.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! limits {
    ($($(#[$doc:meta])* $field:ident: $name:ident = $default:expr;)*) => {
        /// The bounds a Coordinator works within.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Limits {
            $($(#[$doc])* pub $field: u64,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        /// The name of a bound, for refusals.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum LimitName {
            $($(#[$doc])* $name,)*
        }

        impl LimitName {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As it is written in [`Limits`].
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($field),)* }
            }
        }

        impl Limits {
            /// The bound of this name.
            pub const fn of(&self, name: LimitName) -> u64 {
                match name { $(LimitName::$name => self.$field,)* }
            }

            /// The bound of this name, to be set.
            pub const fn of_mut(&mut self, name: LimitName) -> &mut u64 {
                match name { $(LimitName::$name => &mut self.$field,)* }
            }
        }
    };
}

limits! {
    /// Nodes in one definition.
    nodes: Nodes = 100_000;
    /// Edges in one definition.
    edges: Edges = 1_000_000;
    /// Bytes in a name of a node, handle, executor, label or capability.
    name_bytes: NameBytes = 256;
    /// Inbox handles of one node.
    handles: Handles = 64;
    /// Definitions and their versions, all tenants together.
    definitions: Definitions = 100_000;
    /// Names on one definition's versions.
    aliases: Aliases = 100;
    /// Runs in memory that have not ended, per tenant: no other is opened then. Those that wake come on top.
    live_runs: LiveRuns = 10_000_000;
    /// Labels of one run.
    labels: Labels = 64;
    /// Workers of one tenant.
    workers: Workers = 100_000;
    /// Executors, capabilities and labels of one worker, each.
    worker_traits: WorkerTraits = 256;
    /// Pieces of work one worker may hold.
    worker_slots: WorkerSlots = 1_000_000;
    /// Pieces of work one poll may ask for.
    poll: Poll = 10_000;
    /// Reports in one command.
    reports: Reports = 10_000;
    /// Messages one report may send, and messages one receive may claim.
    messages_per_report: MessagesPerReport = 10_000;
    /// Messages with an id of their own that one handle remembers.
    message_ids: MessageIds = 100_000;
    /// Sources of one handle.
    sources: Sources = 1_000;
    /// Bytes of a payload kept inline; larger ones are references.
    inline_bytes: InlineBytes = 1_000_000;
    /// Late results kept per node.
    late_results: LateResults = 16;
    /// Offers of one piece of work before it fails for want of a taker.
    offers: Offers = 32;
    /// Idempotency keys of ended runs kept in memory; older ones are looked up in the store.
    resident_keys: ResidentKeys = 1_000_000;
    /// Ended runs kept in memory, so that a repeated report needs no look-up.
    resident_ended: ResidentEnded = 1_000;
    /// Things owed to the outside and not acknowledged, all tenants together.
    outbox: Outbox = 1_000_000;
    /// Lapsed leases taken back in one portion.
    rescue_portion: RescuePortion = 1_000;
    /// Milliseconds between two such portions.
    rescue_interval_ms: RescueIntervalMs = 100;
    /// Deadlines fired in one pulse.
    pulse_portion: PulsePortion = 10_000;
    /// The longest lease, acceptance, claim or back-off time in milliseconds.
    longest_ms: LongestMs = 30 * 24 * 3_600_000;
    /// How far machine time may move on at a restart, whatever the wall clock says.
    restart_jump_ms: RestartJumpMs = 30 * 24 * 3_600_000;
    /// How long a worker may be silent before it gets nothing new.
    stale_ms: StaleMs = 30_000;
    /// How long a worker may be silent before it counts as dead.
    dead_ms: DeadMs = 120_000;
    /// How long a dead worker without leases is remembered.
    worker_retention_ms: WorkerRetentionMs = 24 * 3_600_000;
    /// How long an ended run and its key are kept.
    retention_ms: RetentionMs = 30 * 24 * 3_600_000;
    /// How far ahead of machine time an idempotency key may be minted.
    key_ahead_ms: KeyAheadMs = 60_000;
    /// How often retention is looked at.
    sweep_interval_ms: SweepIntervalMs = 3_600_000;
    /// A suspended run whose timer is further away than this leaves memory.
    page_horizon_ms: PageHorizonMs = 60_000;
    /// How long what is owed to the outside waits for its acknowledgement before it is handed out again.
    outbox_retry_ms: OutboxRetryMs = 10_000;
    /// Age that makes up for one step of priority.
    age_per_priority_ms: AgePerPriorityMs = 10_000;
}

impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
