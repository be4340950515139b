//! The table of a Steward: how its server stands with one partition.

use crate::lifecycle::lifecycle;

lifecycle! {
    /// How a server stands with one partition.
    Hold /
    /// What happens between a server and a partition.
    HoldStep, "partition";
    states {
        /// Somebody else has it, or nobody.
        Foreign "foreign",
        /// It was asked for, and the store did not answer yet.
        Taking "taking",
        /// Its Shard serves here.
        Held "held",
        /// Its Shard makes durable what it did.
        Closing "closing",
        /// The store is told that nobody has it.
        Freeing "freeing",
    }
    steps {
        /// The store is asked for it.
        Take,
        /// It is this server's now.
        Win,
        /// Another was faster, or the store did not answer.
        Miss,
        /// It is to go to another server.
        Close,
        /// Its Shard is done.
        Release,
        /// The store knows that nobody has it.
        Free,
        /// Its Shard lost it, or somebody else has it by now.
        Lose,
    }
    initial { Foreign }
    terminal { }
    table {
        Foreign: Take => Taking;
        Taking: Win => Held, Miss => Foreign;
        Held: Close => Closing, Lose => Foreign;
        Closing: Release => Freeing, Lose => Foreign;
        Freeing: Free => Foreign, Lose => Foreign;
    }
}
