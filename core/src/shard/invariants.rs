//! What must hold of a Shard between two inputs, as named functions.

use super::Shard;
use super::lifecycle::{BatchState, Standing};
use crate::coordinator::invariants::{Holds, hold};

/// S45: nothing durable is kept back, and nothing that is not durable was let go.
pub fn s45_what_is_held_is_not_durable(shard: &Shard) -> Holds {
    let first = shard.flights.iter().next();
    hold!(
        "S45",
        first.is_none_or(|flight| flight.state != BatchState::Durable),
        "partition {}: a durable batch is kept back",
        shard.partition
    );
    Ok(())
}

/// S11: batches under way are numbered without a gap, up to the last that was formed.
pub fn s11_batches_are_gapless(shard: &Shard) -> Holds {
    let batches =
        shard.flights.iter().filter_map(|flight| flight.cargo.as_ref()).map(|cargo| cargo.batch.get());
    let mut expected = shard.batch.get().saturating_sub(batches.clone().count() as u64);
    for batch in batches {
        expected += 1;
        hold!(
            "S11",
            batch == expected,
            "partition {}: batch {batch} where {expected} comes",
            shard.partition
        );
    }
    Ok(())
}

/// S47: whoever does not own the partition remembers nothing of it.
pub fn s47_nothing_is_remembered_without_ownership(shard: &Shard) -> Holds {
    let serves = matches!(shard.standing, Standing::Serving | Standing::Closing);
    hold!(
        "S47",
        serves == shard.machine.is_some() && (serves || shard.held() == 0 && shard.flights.is_empty()),
        "partition {}: {} with {} held",
        shard.partition,
        shard.standing,
        shard.held()
    );
    Ok(())
}

/// S51: whatever waits for the store is under way to it, or has a deadline.
pub fn s51_nothing_waits_for_nothing(shard: &Shard) -> Holds {
    let waits = !shard.forming.effects.is_empty() || shard.pages.waiting() > 0;
    let moves = !shard.flights.is_empty() || shard.pages.is_moving() || shard.next_deadline().is_some();
    hold!("S51", !waits || moves, "partition {}: {} held, nothing under way", shard.partition, shard.held());
    Ok(())
}

/// Runs every check on a Shard.
pub fn check(shard: &Shard) -> Holds {
    s45_what_is_held_is_not_durable(shard)?;
    s11_batches_are_gapless(shard)?;
    s47_nothing_is_remembered_without_ownership(shard)?;
    s51_nothing_waits_for_nothing(shard)
}
