//! Armed instants, in order. Each entity has at most one; renewals do not move it, it is looked at when due and
//! armed again.

use crate::id::{HandleIx, NodeIx, OutboxId};
use crate::time::Time;
use alloc::collections::BTreeSet;

/// Whose instant it is. Ordered by what it is, never by where it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Rescue,
    Sweep,
    PageIn,
    Worker(super::WorkerKey),
    Run(u64),
    Node(u64, NodeIx),
    Inbox(u64, NodeIx, HandleIx),
    Outbox(OutboxId),
}

/// All armed instants.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timers {
    set: BTreeSet<(Time, Timer)>,
}

impl Timers {
    /// Moves an instant from `armed` to `at`; either may be never.
    pub(crate) fn arm(&mut self, timer: Timer, armed: &mut Time, at: Time) {
        if *armed == at {
            return;
        }
        if !armed.is_never() {
            self.set.remove(&(*armed, timer));
        }
        if !at.is_never() {
            self.set.insert((at, timer));
        }
        *armed = at;
    }

    pub(crate) fn first(&self) -> Option<(Time, Timer)> {
        self.set.first().copied()
    }

    pub(crate) fn clear(&mut self) {
        self.set.clear();
    }

    pub(crate) fn contains(&self, at: Time, timer: Timer) -> bool {
        self.set.contains(&(at, timer))
    }

    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Time, Timer)> + '_ {
        self.set.iter().copied()
    }
}
