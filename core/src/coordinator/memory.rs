//! The obvious store: a map from keys to rows. It is what a change and a need mean, said once; tests and examples run on
//! it, and other stores are compared with it. It is slow where a real one has an index, and it is not durable.

use super::command::Need;
use super::row::{Change, MetaRow, Row, RowKey, RunHead};
use crate::id::RunId;
use crate::lifecycle::{Lifecycle, RunStatus};
use crate::time::Time;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// A map from keys to rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryStore {
    rows: BTreeMap<RowKey, Row>,
}

impl MemoryStore {
    /// Makes the rows what they are after a batch.
    pub fn commit(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            match change {
                Change::Put(row) => drop(self.rows.insert(row.key(), row)),
                Change::DropMessage(at) => drop(self.rows.remove(&RowKey::Message(at))),
                Change::DropOutbox(id) => drop(self.rows.remove(&RowKey::Outbox(id))),
                Change::DropWorker(key) => drop(self.rows.remove(&RowKey::Worker(key))),
                Change::Forget { before } => self.forget(before),
            }
        }
    }

    fn forget(&mut self, before: Time) {
        let is_over = |head: &&RunHead| head.status.is_terminal() && head.kept_from() <= before;
        let over: BTreeSet<RunId> = self.heads().filter(is_over).map(|head| head.id).collect();
        self.rows.retain(|_, row| {
            let is_refused = matches!(row, Row::Outbox(row) if row.refused_at.is_some_and(|at| at <= before));
            !is_refused && row.run().is_none_or(|run| !over.contains(&run))
        });
    }

    /// What [`Coordinator::restore`](super::Coordinator::restore) is given: all but runs that are not resident.
    pub fn resident(&self) -> impl Iterator<Item = &Row> {
        let paged_until = self.meta().map_or(Time::ZERO, |meta| meta.paged_until);
        let away = self.heads().filter(move |head| !head.is_resident(paged_until)).map(|head| head.id);
        let away: BTreeSet<RunId> = away.collect();
        self.rows.values().filter(move |row| row.run().is_none_or(|run| !away.contains(&run)))
    }

    /// All rows of what is needed.
    pub fn find(&self, needs: &[Need]) -> Vec<Row> {
        let heads = self.heads().filter(|head| needs.iter().any(|need| self.is_needed(head, *need)));
        let needed: BTreeSet<RunId> = heads.map(|head| head.id).collect();
        let belongs = |row: &&Row| row.run().is_some_and(|run| needed.contains(&run));
        self.rows.values().filter(belongs).cloned().collect()
    }

    fn is_needed(&self, head: &RunHead, need: Need) -> bool {
        let sleeps = head.status == RunStatus::Suspended;
        match need {
            Need::Run { number } => head.id.number() == number,
            Need::Key { tenant, key } => {
                head.tenant == tenant && head.key.is_some_and(|known| known.key == key)
            }
            Need::Waking { until } => sleeps && head.wake_at() <= until,
            Need::Registered => sleeps && self.has_registered(head.id),
        }
    }

    fn has_registered(&self, run: RunId) -> bool {
        let is_open =
            |row: &Row| matches!(row, Row::Inbox(row) if row.run == run && row.registered && !row.closed);
        self.rows.values().any(is_open)
    }

    /// The row of this key.
    pub fn get(&self, key: &RowKey) -> Option<&Row> {
        self.rows.get(key)
    }

    /// All rows, by key.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    /// The runs' own rows, by id.
    pub fn heads(&self) -> impl Iterator<Item = &RunHead> {
        self.rows.values().filter_map(|row| match row {
            Row::Run(row) => Some(&row.head),
            _ => None,
        })
    }

    /// The partition's own row, if anything happened yet.
    pub fn meta(&self) -> Option<&MetaRow> {
        match self.rows.get(&RowKey::Meta) {
            Some(Row::Meta(meta)) => Some(meta),
            _ => None,
        }
    }
}
