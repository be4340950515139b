//! The Agent's transition tables: a session with a partition, a piece of work, and how sure its lease is.

use crate::lifecycle::lifecycle;

lifecycle! {
    /// How an Agent stands with one partition.
    SessionState /
    /// What happens between an Agent and a partition.
    SessionStep, "session of an agent";
    states {
        /// Not known there, and not asking to be.
        Unregistered "unregistered",
        /// It asked to be known.
        Registering "registering",
        /// It is known, polls and works.
        Active "active",
        /// It finishes what runs and takes nothing new.
        Draining "draining",
        /// It said that it leaves.
        Leaving "leaving",
        /// Another life of the worker took its place: it is silent until somebody restarts it (L10).
        Fenced "fenced",
        /// It left.
        Left "left",
    }
    steps {
        /// It asks to be known.
        Register,
        /// It was answered, under a life number that is higher than what it had.
        Admit,
        /// It was refused; it asks again later.
        Refuse,
        /// The partition does not know it any more, or a lost registration of its own took its place.
        Forget,
        /// It is told to drain.
        Drain,
        /// It holds nothing any more, and says that it leaves.
        Leave,
        /// Its leaving was answered, or nobody answers.
        Depart,
        /// Another life took its place.
        Fence,
        /// Somebody restarts it.
        Restart,
    }
    initial { Unregistered }
    terminal { Left }
    table {
        Unregistered: Register => Registering, Depart => Left;
        Registering: Admit => Active, Refuse => Unregistered;
        Active: Admit => Active, Forget => Unregistered, Drain => Draining, Fence => Fenced;
        Draining: Admit => Active, Forget => Unregistered, Leave => Leaving, Fence => Fenced;
        Leaving: Admit => Active, Depart => Left, Fence => Fenced;
        Fenced: Restart => Unregistered;
    }
}

impl SessionState {
    /// True while it has a life number that the partition may take for the current one.
    pub const fn is_known(self) -> bool {
        matches!(self, Self::Active | Self::Draining | Self::Leaving)
    }
}

lifecycle! {
    /// Where a piece of work stands in the Agent.
    PieceState /
    /// What happens to a piece of work in the Agent.
    PieceStep, "piece of an agent";
    states {
        /// It was offered, and its acceptance is being reported: it is not held yet.
        Offered "offered",
        /// It is held, and waits for a free place; a run held as a whole stays here while its nodes execute.
        Claimed "claimed",
        /// Its start is being reported.
        Starting "starting",
        /// It executes.
        Running "running",
        /// Its executor was told to stop; of a run held as a whole, those of its nodes.
        Stopping "stopping",
        /// It does not execute, and how it ended is being reported.
        Reporting "reporting",
        /// It is over.
        Done "done",
    }
    steps {
        /// Its acceptance was taken.
        Accept,
        /// There is a free place for it.
        Begin,
        /// Its start was taken: the executor may begin.
        Run,
        /// It must stop.
        Stop,
        /// It has ended here, and the partition is told how.
        Report,
        /// What was reported was refused, and it goes on.
        Resume,
        /// The partition knows all there is to know, or will not hear it.
        Finish,
    }
    initial { Offered, Claimed, Reporting }
    terminal { Done }
    table {
        Offered: Accept => Claimed, Finish => Done;
        Claimed: Begin => Starting, Stop => Stopping, Report => Reporting, Finish => Done;
        Starting: Run => Running, Report => Reporting, Finish => Done;
        Running: Stop => Stopping, Report => Reporting;
        Stopping: Report => Reporting, Finish => Done;
        Reporting: Resume => Running, Finish => Done;
    }
}

impl PieceState {
    /// True while an executor may be at it.
    pub const fn is_executing(self) -> bool {
        matches!(self, Self::Running | Self::Stopping)
    }
}

lifecycle! {
    /// How sure an Agent is that a lease is its own.
    LeaseState /
    /// What happens to an Agent's knowledge of a lease.
    LeaseStep, "lease of an agent";
    states {
        /// It lives for certain, by the Agent's own clock.
        Confirmed "confirmed",
        /// It was not confirmed in time: it may live, or another may have the work.
        Unknown "unknown",
        /// The work is no longer this worker's.
        Lost "lost",
    }
    steps {
        /// A partition answered that it is held.
        Confirm,
        /// Too much time passed since it was confirmed.
        Doubt,
        /// A partition answered that it is not held, or not by this life.
        Lose,
    }
    initial { Confirmed, Unknown }
    terminal { Lost }
    table {
        Confirmed: Confirm => Confirmed, Doubt => Unknown, Lose => Lost;
        Unknown: Confirm => Confirmed, Doubt => Unknown, Lose => Lost;
        Lost: Lose => Lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::tests::check;

    #[test]
    fn every_state_is_reachable_and_every_live_one_has_an_exit() {
        check::<SessionState>();
        check::<PieceState>();
        check::<LeaseState>();
    }
}
