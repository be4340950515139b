//! The transition tables: every legal (state, step, state) of runs, work, messages and workers, declared once.
//!
//! Checks, diagrams in DESIGN.md and coverage all come from these tables; `apply` changes a state only through
//! [`Lifecycle::next`], so a transition that is not here can not happen (S1).

use core::fmt::Debug;

/// A state with a declared table of the steps out of it.
pub trait Lifecycle: Copy + Eq + Debug + Sized + 'static {
    /// What can happen to it.
    type Step: Copy + Eq + Debug + 'static;
    /// What the lifecycle is of.
    const NAME: &'static str;
    /// All states.
    const STATES: &'static [Self];
    /// Every legal transition.
    const TABLE: &'static [(Self, Self::Step, Self)];
    /// Where a lifecycle may begin.
    const INITIAL: &'static [Self];

    /// Where `step` leads from here, if it may happen at all.
    fn after(self, step: Self::Step) -> Option<Self>;

    /// True if nothing leads out of here but a step that opens a new life.
    fn is_terminal(self) -> bool;

    /// Where `step` leads from here. A step that is not in the table is our bug.
    fn next(self, step: Self::Step) -> Self {
        match self.after(step) {
            Some(state) => state,
            None => panic!("{}: no step {:?} out of {:?}", Self::NAME, step, self),
        }
    }
}

macro_rules! lifecycle {
    (
        $(#[$doc:meta])* $state:ident / $(#[$step_doc:meta])* $step:ident, $what:literal;
        states { $($(#[$state_doc:meta])* $s:ident $text:literal,)* }
        steps { $($(#[$one_doc:meta])* $e:ident,)* }
        initial { $($i:ident),* }
        terminal { $($t:ident),* }
        table { $($from:ident: $($by:ident => $to:ident),* ;)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub enum $state { $($(#[$state_doc])* $s,)* }

        $(#[$step_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub enum $step { $($(#[$one_doc])* $e,)* }

        impl $state {
            /// As people see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$s => $text,)* }
            }
        }

        impl core::fmt::Display for $state {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl $crate::lifecycle::Lifecycle for $state {
            type Step = $step;
            const NAME: &'static str = $what;
            const STATES: &'static [Self] = &[$(Self::$s,)*];
            const TABLE: &'static [(Self, $step, Self)] = &[$($((Self::$from, $step::$by, Self::$to),)*)*];
            const INITIAL: &'static [Self] = &[$(Self::$i),*];

            fn after(self, step: $step) -> Option<Self> {
                match (self, step) {
                    $($((Self::$from, $step::$by) => Some(Self::$to),)*)*
                    #[allow(unreachable_patterns)]
                    (_, _) => None,
                }
            }

            fn is_terminal(self) -> bool {
                let terminal: &[Self] = &[$(Self::$t),*];
                terminal.contains(&self)
            }
        }
    };
}
pub(crate) use lifecycle;

lifecycle! {
    /// Where a piece of work stands: a node, or a whole run under `scope: run`.
    Phase /
    /// What happens to a piece of work.
    WorkStep, "work";
    states {
        /// Its join is not satisfied, or nothing has come for it yet.
        Waiting "waiting",
        /// It may be given to a worker.
        Ready "ready",
        /// It failed and will be ready again later.
        Backoff "backoff",
        /// It was offered to a worker that has not answered.
        Assigned "assigned",
        /// A worker holds it and has not started.
        Claimed "claimed",
        /// A worker holds it and has started.
        Processing "processing",
        /// It saved its state and waits to be woken.
        Suspended "suspended",
        /// It is done.
        Completed "completed",
        /// It failed for good.
        Failed "failed",
        /// It was ended with its run.
        Cancelled "cancelled",
        /// Nothing needs it any more, or it can no longer run; no status looks at it.
        Skipped "skipped",
    }
    steps {
        /// It became ready.
        Schedule,
        /// It was offered.
        Assign,
        /// A worker took it.
        Claim,
        /// Its execution began.
        Start,
        /// It goes back to be given to a worker again: declined, released, preempted or lost.
        Return,
        /// It waits before it is ready again.
        Delay,
        /// It saved its state and lets go.
        Suspend,
        /// What it waited for came.
        Resume,
        /// The run it stands for has nothing to do for now.
        Park,
        /// It succeeded.
        Complete,
        /// It failed for good.
        Fail,
        /// Its run ends without it.
        Cancel,
        /// Nothing needs it any more.
        Skip,
        /// A retry by hand opens it again.
        Reopen,
    }
    initial { Waiting }
    terminal { Completed, Failed, Cancelled, Skipped }
    table {
        Waiting: Schedule => Ready, Suspend => Suspended, Cancel => Cancelled, Skip => Skipped;
        Ready: Assign => Assigned, Claim => Claimed, Start => Processing, Delay => Backoff, Park => Waiting,
            Fail => Failed, Cancel => Cancelled, Skip => Skipped;
        Backoff: Schedule => Ready, Park => Waiting, Cancel => Cancelled, Skip => Skipped;
        Assigned: Claim => Claimed, Return => Ready, Park => Waiting, Fail => Failed, Cancel => Cancelled, Skip => Skipped;
        Claimed: Start => Processing, Return => Ready, Park => Waiting, Fail => Failed, Complete => Completed,
            Cancel => Cancelled, Skip => Skipped;
        Processing: Complete => Completed, Fail => Failed, Delay => Backoff, Return => Ready,
            Suspend => Suspended, Park => Waiting, Cancel => Cancelled, Skip => Skipped;
        Suspended: Resume => Ready, Complete => Completed, Cancel => Cancelled, Skip => Skipped;
        Failed: Reopen => Waiting;
        Cancelled: Reopen => Waiting;
        Skipped: Reopen => Waiting;
    }
}

impl Phase {
    /// True while a worker holds it (S6).
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Assigned | Self::Claimed | Self::Processing)
    }

    /// True while it is moving, or would as soon as a worker came.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Ready | Self::Backoff | Self::Assigned | Self::Claimed | Self::Processing)
    }
}

lifecycle! {
    /// Where a run stands. `recovering` is a view of a running one whose holders have not been heard of since a restart.
    RunStatus /
    /// What happens to a run.
    RunStep, "run";
    states {
        /// Some node moves.
        Running "running",
        /// Nodes wait to be woken, and nothing else moves.
        Suspended "suspended",
        /// A person stopped it; what is held goes on, nothing new is given out.
        Paused "paused",
        /// Its outcome is decided; the last holders are being told to stop.
        Ending "ending",
        /// It succeeded.
        Completed "completed",
        /// It failed.
        Failed "failed",
        /// It was cancelled.
        Cancelled "cancelled",
    }
    steps {
        /// Nothing moves any more, and something waits to be woken.
        Suspend,
        /// Something moves again.
        Wake,
        /// A person stopped it.
        Pause,
        /// A person let it go on.
        Continue,
        /// Its outcome was decided: here cancel and complete linearise (S5).
        End,
        /// The last lease ended, and the outcome was success.
        Complete,
        /// The last lease ended, and the outcome was failure.
        Fail,
        /// The last lease ended, and the outcome was cancellation.
        Cancel,
        /// A retry by hand opened the next series (S2).
        Retry,
    }
    initial { Running }
    terminal { Completed, Failed, Cancelled }
    table {
        Running: Suspend => Suspended, Pause => Paused, End => Ending;
        Suspended: Wake => Running, Pause => Paused, End => Ending;
        Paused: Continue => Running, End => Ending;
        Ending: Complete => Completed, Fail => Failed, Cancel => Cancelled;
        Failed: Retry => Running;
        Cancelled: Retry => Running;
    }
}

lifecycle! {
    /// Where a message of an inbox stands.
    MessageState /
    /// What happens to a message.
    MessageStep, "message";
    states {
        /// It waits to be claimed.
        Pending "pending",
        /// The holder of the node has it, for a limited time.
        Claimed "claimed",
        /// It was consumed, together with what the consumer made of it.
        Consumed "consumed",
        /// It was put aside after too many attempts.
        Dead "dead",
    }
    steps {
        /// The holder took it.
        Claim,
        /// It goes back: its time passed, or its holder let go.
        Return,
        /// It was consumed (S25).
        Consume,
        /// It was put aside (L7).
        Bury,
    }
    initial { Pending }
    terminal { Consumed, Dead }
    table {
        Pending: Claim => Claimed, Bury => Dead;
        Claimed: Return => Pending, Consume => Consumed;
    }
}

lifecycle! {
    /// How a worker stands; it steers placement only.
    Health /
    /// What happens to a worker.
    WorkerStep, "worker";
    states {
        /// Heard of lately.
        Healthy "healthy",
        /// Silent for a while: gets nothing new.
        Stale "stale",
        /// Silent for long.
        Dead "dead",
        /// Finishes what it has and gets nothing new.
        Draining "draining",
        /// Left, or was forgotten.
        Gone "gone",
    }
    steps {
        /// It was heard of, or registered anew.
        Hear,
        /// It was silent for the stale time.
        FallSilent,
        /// It was silent for the dead time.
        Die,
        /// It was told to drain.
        Drain,
        /// It was told to take work again.
        Undrain,
        /// It left, or was forgotten.
        Leave,
    }
    initial { Healthy }
    terminal { Gone }
    table {
        Healthy: Hear => Healthy, FallSilent => Stale, Drain => Draining, Leave => Gone;
        Stale: Hear => Healthy, Die => Dead, Drain => Draining, Leave => Gone;
        Dead: Hear => Healthy, Drain => Draining, Leave => Gone;
        Draining: Hear => Draining, Undrain => Healthy, Leave => Gone;
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Every state can be reached, every live one has an exit, and no row is declared twice.
    pub(crate) fn check<L: Lifecycle>() {
        let mut reached: Vec<L> = L::INITIAL.to_vec();
        let mut next = 0;
        while let Some(state) = reached.get(next).copied() {
            next += 1;
            for (from, _, to) in L::TABLE {
                if *from == state && !reached.contains(to) {
                    reached.push(*to);
                }
            }
        }
        for state in L::STATES {
            assert!(reached.contains(state), "{}: {state:?} is not reachable", L::NAME);
            let exits = L::TABLE.iter().filter(|(from, _, to)| from == state && to != state).count();
            assert!(state.is_terminal() || exits > 0, "{}: {state:?} has no exit", L::NAME);
        }
        for (index, (from, step, to)) in L::TABLE.iter().enumerate() {
            assert_eq!(from.after(*step), Some(*to));
            assert!(!L::TABLE[..index].iter().any(|(f, s, _)| (f, s) == (from, step)), "declared twice");
        }
    }

    #[test]
    fn every_state_is_reachable_and_every_live_one_has_an_exit() {
        check::<Phase>();
        check::<RunStatus>();
        check::<MessageState>();
        check::<Health>();
        check::<crate::shard::lifecycle::Standing>();
        check::<crate::shard::lifecycle::BatchState>();
        check::<crate::steward::lifecycle::Hold>();
    }

    #[test]
    #[should_panic(expected = "no step Start out of Completed")]
    fn a_step_that_is_not_declared_panics() {
        Phase::Completed.next(WorkStep::Start);
    }
}
