//! Named rare situations that every campaign must have seen. A simulator that never meets them proves nothing about them.

macro_rules! situations {
    ($($name:ident $number:literal $says:literal;)*) => {
        /// A named rare situation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "`says` has the sentences")]
        #[repr(u8)]
        pub enum Situation { $($name,)* }

        impl Situation {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The fault of guarantees.md it belongs to.
            pub const fn number(self) -> &'static str {
                match self { $(Self::$name => $number,)* }
            }

            /// What happened.
            pub const fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)* }
            }
        }
    };
}

situations! {
    ZombieAfterTakeover "F1" "a holder that lost its lease completes while another holds the work";
    ZombieBeforeTakeover "F2" "a holder that lost its lease completes before anybody took the work";
    RenewalTooLate "F3" "a sign of life comes after the lease lapsed";
    HeartbeatRepeated "F4" "a worker shows itself twice in a row";
    PollRepeated "F5" "a poll is repeated and gets the same grants";
    ReportRepeated "F6" "an outcome is reported twice, with the same content";
    ReportConflict "F7" "an outcome is reported twice, with other content";
    LapseRacesReport "F8" "a lease lapses in the input of a report on it";
    SweepAfterRenewal "F9" "a look at a worker finds that it was heard of meanwhile";
    LapseAtTheInstant "F10" "a lease lapses at the very instant it ends";
    ProgressDeadline "F12" "an attempt ends because it showed no progress";
    NewIncarnation "F15" "a worker registers again while its former life holds work";
    CommitFenced "F16" "the store refuses the commit of a former owner";
    CommitFromThePast "F17" "a commit that was on its way for long arrives after all";
    WallWentBack "F18" "a machine recovers with its wall clock back";
    WallWentAhead "F19" "a machine recovers with its wall clock years ahead";
    ResentAfterCrash "F21" "what is owed, or a stop, is said again after a restart";
    PacedRescue "F22" "lapsed leases are taken back by a pulse, a portion at a time";
    UnknownApplied "F28" "a commit of which nobody knew was found to be applied";
    UnknownNotApplied "F34" "a commit of which nobody knew was found not to be applied";
    PageIn "" "a run that had left memory is read back";
    StalePage "" "rows that were read had become too old, and are read again";
    SuspendRefused "F39" "a suspension is refused because something came";
    WokenByMessage "F39" "a message wakes what was suspended";
    WokenByTimer "" "a timer wakes what was suspended";
    EndBeforeLast "F40" "a stream ends while its last message is not settled";
    SendAfterEnd "F41" "a message comes after the end of its stream";
    GapInStream "F42" "a message of a stream comes out of order";
    ClaimReturned "F43" "claimed messages go back because their holder is gone";
    SecondAttempt "F44" "a predecessor completes on its second attempt";
    JoinAtOnce "F45" "a join is satisfied in the step of its last predecessor";
    PoisonBuried "F46" "a message is put aside after too many deliveries";
    CycleRefused "F47" "a definition with a cycle is refused";
    InputAfterEnd "F48" "an input comes for a run that ended";
    CancelWhileHeld "" "a run is cancelled while a worker holds work of it";
    Preempted "" "a holder is asked to release for something more urgent";
    Delegated "" "an offer is passed on to another worker";
    NobodyLeft "" "nobody is left to offer work to";
    RetriedByHand "" "a failed run is opened again";
    KeyRepeated "" "a submission is repeated and gets the first answer";
    KeyConflict "" "another request comes under a known key";
    LimitReached "" "a limit refuses a request";
    BackPressure "F61" "a full inbox refuses a message";
    Forgotten "" "an ended run is forgotten";
    DeadLetter "" "work fails for good because its budget is spent";
    Busy "" "a Shard refuses because too much waits for the store";
    Takeover "" "a partition goes to another server";
}

/// How often each was seen.
#[derive(Debug, Clone)]
pub struct Situations(Vec<u32>);

impl Default for Situations {
    fn default() -> Self {
        Self(vec![0; Situation::ALL.len()])
    }
}

impl Situations {
    /// It was seen.
    pub fn saw(&mut self, situation: Situation) {
        self.0[situation as usize] += 1;
    }

    /// How often each was seen, in the order of [`Situation::ALL`].
    pub fn counts(&self) -> &[u32] {
        &self.0
    }
}
