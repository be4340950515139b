//! The shared store: what a real database does, and how it fails. It applies a batch whole or not at all, in order, and
//! only for the owner of its partition (S11); it forgets nothing it said was durable. Which of its faults happens is the
//! world's choice, made when an operation is executed.

use crate::codec;
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::coordinator::command::Need;
use tenure_core::coordinator::memory::MemoryStore;
use tenure_core::coordinator::row::{Change, Row};
use tenure_core::id::{Batch, Ownership, RunId, ServerId};
use tenure_core::lifecycle::RunStatus;
use tenure_core::shard::command::{Opening, Outcome};
use tenure_core::steward::command::{Owned, ServerBeat, Survey};

/// One operation on the store.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "the fields are those of the orders of Shard and Steward")]
pub enum Op {
    Load { partition: u16, ownership: Ownership },
    Commit { partition: u16, ticket: u64, ownership: Ownership, batch: Batch, changes: Arc<Vec<Change>> },
    Check { partition: u16, ticket: u64, ownership: Ownership },
    Resolve { partition: u16, ticket: u64 },
    Fetch { partition: u16, fetch: u64, ownership: Ownership, needs: Vec<Need> },
    Beat { beat: ServerBeat },
    Survey,
    Take { partition: u16, server: ServerId, seen: Ownership },
    Free { partition: u16, ownership: Ownership },
}

/// One partition as the store has it.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// Who may write.
    pub owner: Option<ServerId>,
    /// The last fencing number given out.
    pub ownership: Ownership,
    /// The last batch applied.
    pub batch: Batch,
    /// The rows.
    pub rows: MemoryStore,
}

/// What a run was at some time, as far as it was durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Past {
    /// From when on, in true time.
    pub since: u64,
    /// How often it had changed.
    pub version: u64,
    /// Its status.
    pub status: RunStatus,
    /// How often it was opened.
    pub series: u32,
}

/// The shared store.
#[derive(Debug, Clone)]
pub struct Store {
    /// Its partitions.
    pub parts: Vec<Part>,
    servers: BTreeMap<ServerId, ServerBeat>,
    /// It is down until then.
    pub down_until: u64,
    /// Its disk is full until then.
    pub full_until: u64,
    /// The oldest release that may open it.
    pub oldest_reader: u32,
    /// What every run was, and when: what reads are held against.
    pub past: BTreeMap<RunId, Vec<Past>>,
}

impl Store {
    /// An empty store.
    pub fn new(partitions: u16) -> Self {
        Self {
            parts: vec![Part::default(); usize::from(partitions)],
            servers: BTreeMap::new(),
            down_until: 0,
            full_until: 0,
            oldest_reader: 0,
            past: BTreeMap::new(),
        }
    }

    fn part(&mut self, partition: u16) -> &mut Part {
        &mut self.parts[usize::from(partition)]
    }

    /// Applies a batch if its owner still owns the partition and nothing is missing before it.
    pub fn commit(
        &mut self,
        now: u64,
        partition: u16,
        ownership: Ownership,
        batch: Batch,
        changes: &[Change],
    ) -> Outcome {
        let part = self.part(partition);
        if part.ownership != ownership || part.owner.is_none() {
            return Outcome::Fenced;
        }
        if batch <= part.batch {
            return Outcome::Durable;
        }
        if batch.get() != part.batch.get() + 1 {
            return Outcome::NotApplied;
        }
        part.batch = batch;
        part.rows.commit(changes.iter().cloned());
        for change in changes {
            if let Change::Put(Row::Run(row)) = change {
                let past = Past {
                    since: now,
                    version: row.head.version.get(),
                    status: row.head.status,
                    series: row.head.series.get(),
                };
                self.past.entry(row.head.id).or_default().push(past);
            }
        }
        Outcome::Durable
    }

    /// Whether this is still the owner.
    pub fn check(&mut self, partition: u16, ownership: Ownership) -> Outcome {
        let part = self.part(partition);
        if part.ownership == ownership && part.owner.is_some() { Outcome::Durable } else { Outcome::Fenced }
    }

    /// Everything that is resident.
    pub fn load(&mut self, partition: u16, ownership: Ownership) -> Opening {
        if self.check(partition, ownership) != Outcome::Durable {
            return Opening::Failed;
        }
        let part = self.part(partition);
        Opening::Rows { batch: part.batch, rows: part.rows.resident().cloned().collect() }
    }

    /// Rows of what is needed, if this is still the owner.
    pub fn fetch(&mut self, partition: u16, ownership: Ownership, needs: &[Need]) -> Option<Vec<Row>> {
        let is_owner = self.check(partition, ownership) == Outcome::Durable;
        is_owner.then(|| self.part(partition).rows.find(needs))
    }

    /// Who owns a partition, and its last batch.
    pub fn resolve(&mut self, partition: u16) -> (Ownership, Batch) {
        let part = self.part(partition);
        (part.ownership, part.batch)
    }

    /// A server shows itself.
    pub fn beat(&mut self, beat: ServerBeat) {
        // A late one must not undo a leave.
        if self.servers.get(&beat.server).is_none_or(|known| known.beat < beat.beat) {
            self.servers.insert(beat.server, beat);
        }
    }

    /// Who lives, and who has what.
    pub fn survey(&self) -> Survey {
        let partitions = (0..).zip(&self.parts).map(|(partition, part)| Owned {
            partition,
            owner: part.owner,
            ownership: part.ownership,
        });
        Survey { servers: self.servers.values().copied().collect(), partitions: partitions.collect() }
    }

    /// Makes a server the owner, if nothing changed since it looked.
    pub fn take(&mut self, partition: u16, server: ServerId, seen: Ownership) -> Option<Ownership> {
        let part = self.part(partition);
        if part.ownership != seen {
            return None;
        }
        part.ownership = Ownership::new(seen.get() + 1);
        part.owner = Some(server);
        Some(part.ownership)
    }

    /// Nobody owns it any more.
    pub fn free(&mut self, partition: u16, ownership: Ownership) {
        let part = self.part(partition);
        if part.ownership == ownership {
            part.owner = None;
        }
    }

    /// A batch as it would lie on disk: its length, its bytes and a check over them.
    pub fn frame(changes: &[Change]) -> Vec<u8> {
        let body = codec::encode(&changes);
        let mut frame = (body.len() as u64).to_le_bytes().to_vec();
        frame.extend_from_slice(&codec::sum(&body).to_le_bytes());
        frame.extend_from_slice(&body);
        frame
    }

    /// What recovery makes of the last frame: the batch, or nothing if it is torn or damaged (F24, F25).
    pub fn unframe(frame: &[u8]) -> Option<Vec<Change>> {
        let (head, body) = frame.split_at_checked(16)?;
        let (len, check) = head.split_at(8);
        let is_whole = len == (body.len() as u64).to_le_bytes() && check == codec::sum(body).to_le_bytes();
        if !is_whole {
            return None;
        }
        codec::decode(body).ok()
    }
}
