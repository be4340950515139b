//! Time as the machines know it: integer milliseconds, given with every input, never read.
//!
//! A machine's own time is the base kept in its rows plus the monotonic time since it was told to recover.
//! Wall time is for display and calendar timers; no step of it expires or freezes anything.

use core::fmt;
use serde::{Deserialize, Serialize};

/// An instant of a machine's own time, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time(u64);

impl Time {
    /// The beginning of a partition's time.
    pub const ZERO: Self = Self(0);
    /// Later than every instant: nothing is armed.
    pub const NEVER: Self = Self(u64::MAX);

    /// The instant this many milliseconds after the beginning.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the beginning.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// This instant and `ms` more; stays at [`Time::NEVER`].
    pub const fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant, zero if it is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// True for [`Time::NEVER`].
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() { f.write_str("never") } else { write!(f, "{}ms", self.0) }
    }
}

/// The two readings an adapter takes for every input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Now {
    /// Milliseconds of a clock that never steps; its zero is arbitrary.
    pub mono: u64,
    /// Milliseconds since 1970 as the wall clock has it, right or wrong.
    pub wall: u64,
}

impl Now {
    /// Both readings.
    pub const fn new(mono: u64, wall: u64) -> Self {
        Self { mono, wall }
    }
}

/// When to call a machine again, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// In the machine's own time.
    pub at: Time,
    /// The same instant on the monotonic clock of the adapter that told the machine to recover.
    pub mono: u64,
    /// What will be looked at then.
    pub reason: Reason,
}

/// Why a deadline is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// When to look whether a worker has been silent for a lease time or for a health limit.
    Worker,
    /// When to take back leases that lapsed together, one portion at a time.
    Rescue,
    /// When to ask the next worker because this one neither accepted nor declined.
    Acceptance,
    /// When to give up on work that was ready and that nobody started.
    ReadyToStart,
    /// When to end an attempt that took too long.
    StartToFinish,
    /// When to end an attempt whose worker is alive but whose work shows no progress.
    Progress,
    /// When to make failed work ready again.
    Backoff,
    /// When to wake suspended work.
    Wake,
    /// When to end a run that took too long.
    RunDeadline,
    /// When to give claimed messages back to their inbox.
    MessageClaim,
    /// When to hand out again what is owed to the outside.
    Outbox,
    /// When to page in runs whose timers come due.
    PageIn,
    /// When to forget what retention allows.
    Sweep,
    /// When to try a commit again that is known not to have been applied.
    CommitAgain,
    /// When to ask again whether a commit was applied.
    ResolveAgain,
    /// When to show other servers that this one lives.
    Beat,
    /// When to look at the other servers and at who owns what.
    Survey,
    /// When to ask for something again whose answer did not come.
    AskAgain,
    /// When to stop what was not confirmed in time (an Agent's).
    Guard,
    /// When to register with a partition (an Agent's).
    Register,
    /// When to show oneself to a partition (an Agent's).
    Heartbeat,
    /// When to ask a partition for work although it said nothing (an Agent's).
    Poll,
    /// When to ask again because no answer came (an Agent's).
    Answer,
    /// When to report again what was refused for now (an Agent's).
    Report,
    /// When to give back a run held as a whole of which nothing was handed (an Agent's).
    IdleRun,
    /// When to stop what still runs, because the time for draining is over (an Agent's).
    Drain,
}
