//! Every named place where a simulated world could go one way or another.

macro_rules! sites {
    ($($name:ident $text:literal $kind:ident $number:literal $says:literal;)*) => {
        /// A named place where something is chosen.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "`says` has the sentences")]
        pub enum Site { $($name,)* }

        impl Site {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// As reports name it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The faults of guarantees.md it stands for.
            pub const fn number(self) -> &'static str {
                match self { $(Self::$name => $number,)* }
            }

            /// What happens when it fires.
            pub const fn says(self) -> &'static str {
                match self { $(Self::$name => $says,)* }
            }

            /// True if it is a fault, and not what the world does anyway.
            pub const fn is_fault(self) -> bool {
                match self { $(Self::$name => sites!(@ $kind),)* }
            }
        }
    };
    (@ fault) => { true };
    (@ course) => { false };
}

sites! {
    ClientOp "client.op" course "" "what a client asks next";
    ClientArg "client.arg" course "" "about what";
    ClientWait "client.wait" course "" "how long a client thinks";
    ClientServer "client.server" course "" "which server is asked";
    ExecutorPlan "executor.plan" course "" "what an execution will do";
    ExecutorTime "executor.time" course "" "how long it takes";
    ExecutorArg "executor.arg" course "" "with what";
    RogueOp "rogue.op" course "" "what an undisciplined worker does next";
    RogueArg "rogue.arg" course "" "about what";
    NetLatency "net.latency" course "" "how long a message takes";
    StoreLatency "store.latency" course "" "how long the store takes";
    FaultTime "fault.time" course "" "how long a fault lasts";
    FaultTarget "fault.target" course "" "whom it hits";

    NetLose "net.lose" fault "F3 F4 F5" "a message is lost";
    NetDuplicate "net.duplicate" fault "F6" "a message comes twice";
    NetTail "net.tail" fault "F3 F42" "a message takes very long and is overtaken";
    NetReplay "net.replay" fault "F1" "a copy of a message comes long after any lease";
    NetCorrupt "net.corrupt" fault "network" "a message is damaged, and its frame check drops it";
    NetClog "net.clog" fault "network" "a link is clogged for a while";
    NetSplit "net.split" fault "F16" "two groups can not hear each other";
    NetOneWay "net.one_way" fault "network" "one group can not hear the other";
    NetBridge "net.bridge" fault "network" "two groups reach each other over one process only";

    StoreSlow "store.slow" fault "F29" "the store takes very long";
    StoreLoseBefore "store.lose_before" fault "F36" "the connection breaks before a commit is applied";
    StoreLoseAfter "store.lose_after" fault "F28 F34" "a commit is applied, and its answer is lost";
    StoreLate "store.late" fault "F17" "a commit of which nobody knows is applied much later";
    StoreRetry "store.retry" fault "F33" "a serialization failure: not applied";
    StoreFull "store.full" fault "F27" "the disk is full for a while";
    StoreSyncError "store.sync_error" fault "F26" "a sync fails: the store can not be trusted until opened anew";
    StoreCrash "store.crash" fault "F23" "the store crashes and loses what was not synced";
    StoreTorn "store.torn" fault "F24" "the store crashes in the middle of a batch";
    StoreFlip "store.flip" fault "F25" "a bit of what is read is flipped, and its check finds it";
    StoreSchema "store.schema" fault "F30" "a server of an older release meets a newer schema";
    StoreNoAnswer "store.no_answer" fault "F36" "a read is not answered";

    ServerCrash "server.crash" fault "F20" "a server is killed";
    ServerCrashInCommit "server.crash_in_commit" fault "F20 F21" "a server is killed while a batch is under way";
    ServerCrashInRecovery "server.crash_in_recovery" fault "F20" "a server is killed while it takes a partition";
    ServerStall "server.stall" fault "F16" "a server stands still, longer than others wait";
    ServerLeave "server.leave" fault "F20" "a server is shut down in order";
    WorkerCrash "worker.crash" fault "F15 F22" "a worker is killed, and comes back under its id";
    WorkerStop "worker.stop" fault "F11 F62" "a worker stands still for longer than its lease; its clock goes on";
    WorkerSleep "worker.sleep" fault "F14" "a worker sleeps, and its clock sleeps too";
    WorkHang "work.hang" fault "F12" "an execution hangs while its worker is alive";
    PayloadMissing "payload.missing" fault "F31" "a payload is missing";
    PayloadDamaged "payload.damaged" fault "F32" "a payload does not have its hash";
    Poison "message.poison" fault "F46" "a message kills every execution that takes it";
    ClientStorm "client.storm" fault "F59" "a client repeats everything at once";
    SinkDown "sink.down" fault "F60" "whoever is told of ended runs does not answer";
    SlowConsumer "consumer.slow" fault "F61" "a consumer is much slower than its producers";
    MassSilence "worker.mass_silence" fault "F22 F62" "all workers stand still at once";

    ClockDrift "clock.drift" fault "F13" "a clock runs at another rate, within the bound";
    ClockWild "clock.wild" fault "F13" "a clock runs at half or double speed";
    ClockFreeze "clock.freeze" fault "F13" "a monotonic clock stands still for a while";
    WallHour "wall.hour" fault "F18" "a wall clock is set an hour back or ahead";
    WallYears "wall.years" fault "F19" "a wall clock is set ten years back or ahead";
}
