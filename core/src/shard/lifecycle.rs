//! The tables of a Shard: how it stands with its partition, and how one batch of work becomes durable.

use crate::lifecycle::lifecycle;

lifecycle! {
    /// How a Shard stands with its partition.
    Standing /
    /// What happens between a Shard and its partition.
    StandingStep, "shard";
    states {
        /// It owns nothing and knows nothing.
        Empty "empty",
        /// It owns the partition and waits for its rows.
        Loading "loading",
        /// It decides.
        Serving "serving",
        /// It takes nothing new and waits until all it did is durable.
        Closing "closing",
        /// The rows do not belong together: somebody has to look (F25).
        Broken "broken",
    }
    steps {
        /// The partition became its own.
        Own,
        /// The rows came.
        Load,
        /// The rows came and are damaged.
        Spoil,
        /// It is to give the partition up.
        Close,
        /// All it did is durable, and the partition is free.
        Release,
        /// Another owns the partition, or it can not know what is durable: it forgets everything (S47).
        Lose,
    }
    initial { Empty }
    terminal { }
    table {
        Empty: Own => Loading;
        Loading: Load => Serving, Spoil => Broken, Close => Empty, Lose => Empty;
        Serving: Close => Closing, Lose => Empty;
        Closing: Release => Empty, Lose => Empty;
        Broken: Close => Empty;
    }
}

lifecycle! {
    /// Where one batch stands.
    BatchState /
    /// What happens to a batch.
    BatchStep, "batch";
    states {
        /// The store has it, and did not answer yet.
        Sent "sent",
        /// The store did not apply it; it is sent again after a while, unchanged.
        Delayed "delayed",
        /// Nobody knows whether it was applied: the store is asked for its number.
        Doubtful "doubtful",
        /// Its rows are durable; what it holds may leave (S45).
        Durable "durable",
        /// It is gone with the memory of the Shard.
        Dropped "dropped",
    }
    steps {
        /// It was applied.
        Confirm,
        /// It was not applied.
        Fail,
        /// Whether it was applied is not known.
        Doubt,
        /// It is sent again.
        Resend,
        /// The Shard lost its partition.
        Drop,
    }
    initial { Sent }
    terminal { Durable, Dropped }
    table {
        Sent: Confirm => Durable, Fail => Delayed, Doubt => Doubtful, Drop => Dropped;
        Delayed: Confirm => Durable, Doubt => Doubtful, Resend => Sent, Drop => Dropped;
        Doubtful: Confirm => Durable, Resend => Sent, Drop => Dropped;
    }
}

impl BatchState {
    /// True if it is not on its way, and will have to be sent or asked about again.
    pub const fn waits(self) -> bool {
        matches!(self, Self::Delayed | Self::Doubtful)
    }
}
