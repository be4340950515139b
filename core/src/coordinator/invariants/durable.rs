//! Rows are enough, and so is the audit: checks that need a second machine.

use super::{Holds, broken, hold};
use crate::coordinator::Coordinator;
use crate::coordinator::command::Input;
use crate::coordinator::effect::Output;
use crate::coordinator::event::Stamped;
use crate::coordinator::row::{Change, Row, RowKey};
use crate::limits::Limits;
use crate::time::{Now, Time};
use alloc::collections::BTreeMap;
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

/// The rows that an audit leads to, from the beginning of a partition (S50).
pub fn replayed_rows<'a>(
    partition: u16,
    limits: &Limits,
    audit: impl IntoIterator<Item = &'a Stamped>,
) -> BTreeMap<RowKey, Row> {
    let mut machine = Coordinator::new(partition, limits.clone());
    audit.into_iter().for_each(|stamped| machine.replay(stamped));
    let mut changes = Vec::new();
    machine.take_changes(&mut changes);
    let mut rows = BTreeMap::new();
    for change in changes {
        apply(&mut rows, change, limits.retention_ms);
    }
    rows
}

fn apply(rows: &mut BTreeMap<RowKey, Row>, change: Change, retention_ms: u64) {
    match change {
        Change::Put(row) => drop(rows.insert(row.key(), row)),
        Change::DropMessage(at) => drop(rows.remove(&RowKey::Message(at))),
        Change::DropOutbox(id) => drop(rows.remove(&RowKey::Outbox(id))),
        Change::DropWorker(key) => drop(rows.remove(&RowKey::Worker(key))),
        Change::Forget { until } => {
            use crate::lifecycle::Lifecycle;
            let is_over = |row: &Row| match row {
                Row::Run(run) => (run.head.status.is_terminal()
                    && run.head.kept_until(retention_ms) <= until)
                    .then_some(run.head.id),
                _ => None,
            };
            let over: Vec<_> = rows.values().filter_map(is_over).collect();
            rows.retain(|_, row| row.run().is_none_or(|run| !over.contains(&run)));
        }
    }
}

/// Replaying the whole audit of a partition gives exactly what its store holds (S50).
pub fn s50_replay_gives_the_rows<'a>(
    partition: u16,
    limits: &Limits,
    audit: impl IntoIterator<Item = &'a Stamped>,
    store: &BTreeMap<RowKey, Row>,
) -> Holds {
    let replayed = replayed_rows(partition, limits, audit);
    for (key, row) in store {
        let is = replayed.get(key);
        hold!("S50", is == Some(row), "the store has {row:?}, and the audit leads to {is:?}");
    }
    let extra = replayed.keys().find(|key| !store.contains_key(key));
    hold!("S50", extra.is_none(), "the audit leads to {extra:?}, which is not stored");
    Ok(())
}
