//! A store in memory: what was put last under each key. It knows no rule but the ones rows state about themselves.

use std::collections::BTreeMap;
use tenure_core::coordinator::command::Need;
use tenure_core::coordinator::row::{Change, MetaRow, Row, RowKey, RunHead};
use tenure_core::id::RunId;
use tenure_core::lifecycle::{Lifecycle, RunStatus};
use tenure_core::time::Time;

/// Rows by their keys.
#[derive(Debug, Default)]
pub(super) struct Store {
    rows: BTreeMap<RowKey, Row>,
}

impl Store {
    /// Applies what a batch changed.
    pub(super) fn commit(&mut self, changes: Vec<Change>, retention_ms: u64) {
        for change in changes {
            match change {
                Change::Put(row) => drop(self.rows.insert(row.key(), row)),
                Change::DropMessage(at) => drop(self.rows.remove(&RowKey::Message(at))),
                Change::DropOutbox(id) => drop(self.rows.remove(&RowKey::Outbox(id))),
                Change::DropWorker(key) => drop(self.rows.remove(&RowKey::Worker(key))),
                Change::Forget { until } => {
                    let is_over =
                        |head: &RunHead| head.status.is_terminal() && head.kept_until(retention_ms) <= until;
                    let over: Vec<RunId> =
                        self.heads().filter(|head| is_over(head)).map(|head| head.id).collect();
                    self.rows.retain(|_, row| row.run().is_none_or(|run| !over.contains(&run)));
                }
            }
        }
    }

    /// All rows.
    pub(super) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// The runs' own rows.
    pub(super) fn heads(&self) -> impl Iterator<Item = &RunHead> {
        self.rows.values().filter_map(|row| match row {
            Row::Run(row) => Some(&row.head),
            _ => None,
        })
    }

    /// The partition's own row, if anything happened yet.
    pub(super) fn meta(&self) -> Option<&MetaRow> {
        match self.rows.get(&RowKey::Meta) {
            Some(Row::Meta(meta)) => Some(meta),
            _ => None,
        }
    }

    /// What a restored machine is given: everything but runs that are not resident.
    pub(super) fn resident(&self) -> Vec<Row> {
        let paged_until = self.meta().map_or(Time::ZERO, |meta| meta.paged_until);
        let away: Vec<RunId> =
            self.heads().filter(|head| !head.is_resident(paged_until)).map(|head| head.id).collect();
        let is_resident = |row: &&Row| row.run().is_none_or(|run| !away.contains(&run));
        self.rows.values().filter(is_resident).cloned().collect()
    }

    fn is_registered(&self, run: RunId) -> bool {
        self.rows
            .values()
            .any(|row| matches!(row, Row::Inbox(row) if row.run == run && row.registered && !row.closed))
    }

    /// The rows of what is needed.
    pub(super) fn find(&self, needs: &[Need]) -> Vec<Row> {
        let sleeps = |head: &RunHead| head.status == RunStatus::Suspended;
        let is_needed = |head: &RunHead, need: &Need| match *need {
            Need::Run { number } => head.id.number() == number,
            Need::Key { tenant, key } => {
                head.tenant == tenant && head.key.is_some_and(|known| known.key == key)
            }
            Need::Waking { until } => sleeps(head) && head.wake_at() <= until,
            Need::Registered => sleeps(head) && self.is_registered(head.id),
        };
        let heads = self.heads().filter(|head| needs.iter().any(|need| is_needed(head, need)));
        let needed: Vec<RunId> = heads.map(|head| head.id).collect();
        let belongs = |row: &&Row| row.run().is_some_and(|run| needed.contains(&run));
        self.rows.values().filter(belongs).cloned().collect()
    }
}
