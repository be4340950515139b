//! What must hold of a Steward between two inputs, as named functions.

use super::Steward;
use super::lifecycle::Hold;
use crate::coordinator::invariants::{Holds, hold};

/// S51: whatever was asked of the store is asked again if no answer comes.
pub fn s51_what_was_asked_has_an_end(steward: &Steward) -> Holds {
    for (partition, number) in steward.partitions.iter().zip(0_u16..) {
        let asks = matches!(partition.hold, Hold::Taking | Hold::Freeing);
        let has_end = partition.ask_until != u64::MAX;
        hold!(
            "S51",
            asks == has_end,
            "partition {number} is {} and its answer is awaited: {has_end}",
            partition.hold
        );
    }
    Ok(())
}

/// S11: what is held is held under a fencing number that the store gave out.
pub fn s11_what_is_held_has_a_number(steward: &Steward) -> Holds {
    for (number, hold, ownership) in steward.holds() {
        let is_held = matches!(hold, Hold::Held | Hold::Closing | Hold::Freeing);
        hold!("S11", !is_held || ownership.get() > 0, "partition {number} is {hold} under no number");
    }
    Ok(())
}

/// Runs every check on a Steward.
pub fn check(steward: &Steward) -> Holds {
    s51_what_was_asked_has_an_end(steward)?;
    s11_what_is_held_has_a_number(steward)
}
