//! Rows are enough, and so is the audit: checks that need a second machine.

use super::{Holds, broken, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::command::Input;
use crate::coordinator::effect::Output;
use crate::coordinator::event::Stamped;
use crate::coordinator::memory::MemoryStore;
use crate::coordinator::row::Row;
use crate::limits::Limits;
use crate::time::{Now, Time};
use alloc::format;
use alloc::vec::Vec;

/// A machine restored from the rows of `machine`, and a copy of it, told to recover at the same time, do and know the
/// same. To be asked when no rows wait to be taken.
pub fn s46_rows_are_enough(machine: &Coordinator, now: Now) -> Holds {
    let paged_until = machine.state.meta.paged_until;
    let resident: Vec<_> = machine.rows().filter(|row| is_resident(machine, row, paged_until)).collect();
    let restored = Coordinator::restore(machine.limits().clone(), resident);
    let mut restored = restored.map_err(|bad| broken("S46", format!("the rows are refused: {bad}")))?;
    let mut original = machine.clone();
    let (mut one, mut two) = (Output::default(), Output::default());
    original.handle(now, Input::Recover, &mut one);
    restored.handle(now, Input::Recover, &mut two);
    hold!("S46", one.effects == two.effects, "effects {:?}, restored {:?}", one.effects, two.effects);
    hold!("S46", one.audit == two.audit, "events {:?}, restored {:?}", one.audit, two.audit);
    let (is, should) = (restored.next_deadline(), original.next_deadline());
    hold!("S46", is == should, "the next deadline is {should:?}, restored {is:?}");
    let (mut one, mut two) = (Vec::new(), Vec::new());
    original.take_changes(&mut one);
    restored.take_changes(&mut two);
    hold!("S46", one == two, "changes {one:?}, restored {two:?}");
    let (one, two): (Vec<Row>, Vec<Row>) = (original.rows().collect(), restored.rows().collect());
    hold!("S46", one == two, "rows {one:?}, restored {two:?}");
    super::check_state(&restored)
}

fn is_resident(machine: &Coordinator, row: &Row, paged_until: Time) -> bool {
    row.run().and_then(|id| machine.state.run(id)).is_none_or(|run| run.head.is_resident(paged_until))
}

/// What a store holds that an audit leads to, from the beginning of a partition (S50).
pub fn replayed<'a>(
    partition: u16,
    limits: &Limits,
    audit: impl IntoIterator<Item = &'a Stamped>,
) -> MemoryStore {
    let mut machine = Coordinator::new(partition, limits.clone());
    audit.into_iter().for_each(|stamped| machine.replay(stamped));
    let (mut changes, mut store) = (Vec::new(), MemoryStore::default());
    machine.take_changes(&mut changes);
    store.commit(changes);
    store
}

/// Replaying the whole audit of a partition gives exactly what its store holds (S50).
pub fn s50_replay_gives_the_rows<'a>(
    partition: u16,
    limits: &Limits,
    audit: impl IntoIterator<Item = &'a Stamped>,
    store: &MemoryStore,
) -> Holds {
    let replayed = replayed(partition, limits, audit);
    for row in store.rows() {
        let is = replayed.get(&row.key());
        hold!("S50", is == Some(row), "the store has {row:?}, and the audit leads to {is:?}");
    }
    let extra = replayed.rows().find(|row| store.get(&row.key()).is_none());
    hold!("S50", extra.is_none(), "the audit leads to {extra:?}, which is not stored");
    Ok(())
}
