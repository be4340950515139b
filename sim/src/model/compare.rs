//! What the machine holds in memory, or has stored, against the model.

use super::state::{Inbox, Node, Run};
use super::{Disagreement, Model, Step, wrong};
use tenure_core::Coordinator;
use tenure_core::coordinator::row::{InboxRow, MessageRow, Row, RunHead, Work, WorkRare, WorkerRow};
use tenure_core::id::*;
use tenure_core::lifecycle::{Phase, RunStatus};

macro_rules! agree {
    ($what:expr, $id:expr, $expected:expr, $found:expr) => {
        if $expected != $found {
            return Err(differs($what, format!("{:?}", $id), &$expected, &$found));
        }
    };
}

fn differs(
    what: &str,
    id: String,
    expected: &impl std::fmt::Debug,
    found: &impl std::fmt::Debug,
) -> Disagreement {
    wrong(&format!("{what} of {id}"), expected, found)
}

impl Model {
    /// The whole of what the machine holds in memory against the model.
    pub fn compare(&self, machine: &Coordinator) -> Step {
        for run in self.runs.values() {
            self.compare_run(run, machine)?;
        }
        for worker in self.workers.values() {
            let Some((row, last_seen)) = machine.worker_row(worker.key) else {
                return Err(wrong("S35: a worker is known", worker.key, "nobody"));
            };
            compare_worker(worker, row)?;
            agree!("last seen", worker.key, worker.last_seen, last_seen);
        }
        machine.rows().try_for_each(|row| self.compare_known(&row))
    }

    /// What the machine has, the model has too.
    fn compare_known(&self, row: &Row) -> Step {
        let is_known = match row {
            Row::Run(row) => self.runs.contains_key(&row.head.id.number()),
            Row::Worker(row) => self.workers.contains_key(&row.key),
            Row::Definition(row) => self.definitions.get(row.id.get() as usize).is_some_and(|def| {
                (def.tenant, def.version, def.hash) == (row.tenant, row.version, row.hash)
            }),
            Row::Alias(row) => {
                let key = (row.tenant, row.definition.clone(), row.alias.clone());
                self.aliases.get(&key) == Some(&row.id)
            }
            Row::Outbox(row) => self.debts.get(&row.id).is_some_and(|debt| {
                (debt.tenant, debt.outgoing, debt.refused_at) == (row.tenant, row.outgoing, row.refused_at)
            }),
            Row::Meta(row) => row.next_epoch.get() > self.counts.last_epoch,
            _ => true,
        };
        if is_known { Ok(()) } else { Err(wrong("S50: nothing is there that did not happen", "known", row)) }
    }

    /// A run that the machine has in memory. What ended or sleeps may be in the store alone.
    pub(super) fn compare_run(&self, run: &Run, machine: &Coordinator) -> Step {
        let Some(found) = machine.resident(run.id) else {
            let may_be_away = matches!(run.status, RunStatus::Suspended) || !run.is_open();
            return if may_be_away {
                Ok(())
            } else {
                Err(wrong("S51: a live run is in memory", run.id, "no run"))
            };
        };
        compare_head(run, found.head())?;
        if let Some(whole) = &run.whole {
            let work = found.work(NodeIx::WHOLE_RUN);
            let work = work.ok_or_else(|| wrong("a run held as one", run.id, "no whole"))?;
            compare_work(run, NodeIx::WHOLE_RUN, whole, work)?;
        }
        for (ix, node) in run.nodes.iter().enumerate() {
            let at = NodeIx::new(ix as u32);
            let work = found.work(at).ok_or_else(|| wrong("a node", (run.id, at), "no node"))?;
            compare_work(run, at, node, work)?;
        }
        for inbox in &run.inboxes {
            let (row, messages) =
                found.inbox(inbox.node, inbox.handle).ok_or_else(|| wrong("an inbox", run.id, "no inbox"))?;
            compare_inbox(run.id, inbox, row)?;
            compare_messages(run.id, inbox, messages)?;
        }
        Ok(())
    }

    /// Rows came back from the store. What the machine had in memory is newer than they may be, and stays; either way
    /// what it has now is what the model has.
    pub(super) fn compare_loaded(&self, rows: &[Row], machine: &Coordinator) -> Step {
        for row in rows {
            let Row::Run(row) = row else { continue };
            match self.runs.get(&row.head.id.number()) {
                Some(run) => self.compare_run(run, machine)?,
                None if machine.resident(row.head.id).is_none() => {}
                None => return Err(wrong("S52: nothing outlives its retention", "no run", row.head.id)),
            }
        }
        Ok(())
    }
}

fn compare_head(run: &Run, head: &RunHead) -> Step {
    agree!("id", run.id, run.id, head.id);
    agree!("tenant", run.id, run.tenant, head.tenant);
    agree!("S21: definition", run.id, run.def.id, head.definition);
    agree!("S2: status", run.id, run.status, head.status);
    agree!("S5: ending", run.id, run.ending, head.ending);
    agree!("S2: series", run.id, run.series, head.series.get());
    agree!("S3: version", run.id, run.version, head.version.get());
    agree!("created_at", run.id, run.created_at, head.created_at);
    agree!("ended_at", run.id, run.ended_at, head.ended_at);
    agree!("deadline", run.id, run.deadline, head.deadline);
    agree!("input", run.id, run.input, head.input);
    agree!("S33: key", run.id, run.key, head.key);
    let rare = head.rare.as_deref();
    agree!("doomed", run.id, run.doomed, rare.and_then(|rare| rare.doomed));
    agree!("created_held", run.id, run.created_held, rare.and_then(|rare| rare.created_held));
    agree!("concurrency", run.id, run.concurrency, rare.and_then(|rare| rare.concurrency));
    agree!("creator", run.id, run.creator, rare.and_then(|rare| rare.creator));
    Ok(())
}

fn compare_work(run: &Run, at: NodeIx, node: &Node, work: &Work) -> Step {
    let id = (run.id, at);
    agree!("S1: phase", id, node.phase, work.phase);
    agree!("stop", id, node.stop, work.stop);
    agree!("S13: attempt", id, node.attempt, work.attempt.get());
    agree!("S13: failures", id, node.failures, work.failures);
    agree!("S13: losses", id, node.losses, work.losses);
    agree!("offers", id, node.offers, work.offers);
    agree!("S7: epoch", id, node.epoch, work.epoch);
    agree!("output", id, node.output, work.output);
    if node.phase == Phase::Processing {
        agree!("started_at", id, node.started_at, work.started_at);
    }
    if matches!(node.phase, Phase::Ready | Phase::Assigned | Phase::Claimed) {
        agree!("ready_at", id, node.ready_at, work.ready_at);
    }
    if matches!(node.phase, Phase::Backoff | Phase::Suspended) {
        agree!("until", id, node.until, work.until);
    }
    let (Some(tenure), Some(found)) = (node.tenure, work.assignment) else {
        agree!("assignment", id, node.tenure.is_some(), work.assignment.is_some());
        return compare_rare(run, at, node, work.rare.as_deref());
    };
    agree!("S35: holder", id, (tenure.worker, tenure.incarnation), (found.worker, found.incarnation));
    agree!("S9: session", id, (tenure.session, tenure.lease_ms), (found.session, found.lease_ms));
    agree!("poll", id, (tenure.poll, tenure.by), (found.poll, found.by));
    agree!("assigned", id, (tenure.assigned_at, tenure.claimed_at), (found.assigned_at, found.claimed_at));
    compare_rare(run, at, node, work.rare.as_deref())
}

fn compare_rare(run: &Run, at: NodeIx, node: &Node, found: Option<&WorkRare>) -> Step {
    if node.rare.is_none() && found.is_none() {
        return Ok(());
    }
    let id = (run.id, at);
    let (mine, none) = (node.rare.as_deref(), WorkRare::default());
    let found = found.unwrap_or(&none);
    agree!("failure", id, mine.and_then(|rare| rare.failure), found.failure);
    agree!("state", id, mine.and_then(|rare| rare.state), found.state);
    agree!("progress", id, mine.and_then(|rare| rare.progress), found.progress);
    agree!("suspension", id, mine.and_then(|rare| rare.suspension.as_ref()), found.suspension.as_ref());
    agree!("woken", id, mine.and_then(|rare| rare.woken), found.woken);
    agree!("late results", id, mine.map_or(0, |rare| rare.late), found.late);
    agree!("S15: joined", id, mine.map_or(&[][..], |rare| &rare.joined), &found.joined[..]);
    agree!("excluded", id, mine.map_or(&[][..], |rare| &rare.excluded), &found.excluded[..]);
    let mark = mine.and_then(|rare| rare.mark.as_ref()).map(|mark| (mark.epoch, mark.attempt, mark.digest));
    agree!("S32: report", id, mark, found.report.map(|mark| (mark.epoch, mark.attempt, mark.digest)));
    Ok(())
}

fn compare_inbox(run: RunId, inbox: &Inbox, row: &InboxRow) -> Step {
    let id = (run, inbox.node, inbox.handle);
    agree!("S23: last seq", id, inbox.last, row.last.get());
    agree!("S26: settled", id, inbox.settled, row.settled.get());
    let (mine, found) = (inbox.has_claimed(), row.has_claimed());
    agree!(
        "S24: claimed",
        id,
        (mine, inbox.claimed * u64::from(mine)),
        (found, row.claimed_through.get() * u64::from(found))
    );
    if mine {
        agree!("S24: claimed under", id, inbox.claim_epoch, row.claim_epoch);
    }
    agree!("deliveries", id, inbox.deliveries, row.deliveries);
    agree!("S27: closed", id, inbox.closed, row.closed);
    agree!("registered", id, inbox.registered, row.registered);
    agree!("S29: cursor stored", id, inbox.cursor_stored, row.cursor_stored);
    agree!("S29: cursor settled", id, inbox.cursor_settled, row.cursor_settled);
    agree!("sources", id, inbox.sources.len(), row.sources.len());
    for (mine, found) in inbox.sources.iter().zip(&row.sources) {
        agree!("S27: source", id, *mine, (found.stored, found.ended));
    }
    Ok(())
}

fn compare_messages<'a>(run: RunId, inbox: &Inbox, found: impl Iterator<Item = &'a MessageRow>) -> Step {
    let mut mine = inbox.messages.iter();
    for row in found {
        let id = (run, inbox.node, inbox.handle);
        let Some(message) = mine.next() else { return Err(wrong("S26: no message more", "none", row)) };
        agree!(
            "S23: message",
            id,
            (message.seq, message.id, message.value, message.cursor),
            (row.at.seq.get(), row.id, row.value, row.cursor)
        );
    }
    match mine.next() {
        Some(missing) => Err(wrong("S31: no message less", missing, "none")),
        None => Ok(()),
    }
}

fn compare_worker(worker: &super::Worker, row: &WorkerRow) -> Step {
    let id = worker.key;
    agree!("S35: incarnation", id, worker.incarnation, row.incarnation);
    agree!("S9: session", id, (worker.session, worker.fenced), (row.session, row.fenced));
    agree!("draining", id, worker.draining, row.draining);
    agree!("spec", id, worker.spec, row.spec);
    Ok(())
}
