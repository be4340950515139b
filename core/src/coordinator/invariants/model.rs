//! The watcher's own small model: what an event does to what is known. It shares nothing with `apply`.

use super::known::{
    HeadFacts, Holder, InboxFacts, Known, RunFacts, WorkFacts, WorkerFacts, changed_run, inbox_of, run_step,
    work_step,
};
use crate::coordinator::Coordinator;
use crate::coordinator::command::{Failure, FailureKind, MessageKey};
use crate::coordinator::event::{Event, RunCreated, Stamped};
use crate::coordinator::row::InboxRow;
use crate::coordinator::state::WorkerKey;
use crate::definition::EdgeKind;
use crate::id::*;
use crate::lifecycle::{Health, Lifecycle, Phase, RunStatus};
use crate::time::Time;
use alloc::vec::Vec;

impl Known {
    /// Leads what is known on by one event, after it was found to be allowed.
    pub(super) fn advance(&mut self, machine: &Coordinator, stamped: &Stamped) {
        let event = &stamped.event;
        if let Event::RunCreated(created) = event {
            self.created(machine, created, stamped);
        }
        if let Some(run) = changed_run(event).and_then(|id| self.run(id))
            && run.stepped != stamped.step
        {
            run.stepped = stamped.step;
            run.head.version = run.head.version.next();
        }
        if let Some((id, step)) = run_step(event)
            && let Some(run) = self.run(id)
        {
            run.head.status = run.head.status.after(step).unwrap_or(run.head.status);
        }
        self.advance_run(event);
        self.advance_grant(event);
        self.advance_work(event);
        self.advance_inbox(event);
        self.advance_worker(event);
        event.run().into_iter().for_each(|id| self.count(id));
    }

    fn created(&mut self, machine: &Coordinator, created: &RunCreated, stamped: &Stamped) {
        let id = created.run;
        let Some(mut head) = machine.state.run(id).map(|run| HeadFacts::of(&run.head)) else { return };
        (head.status, head.ending) = (RunStatus::Running, None);
        (head.version, head.series) = (Version::new(1), Series::new(1));
        let entry = machine.state.definition(created.definition);
        let definition = &entry.row.definition;
        let (mut works, mut inboxes) = (Vec::new(), Vec::new());
        for (at, node) in definition.nodes.iter().enumerate() {
            let at = NodeIx::new(at as u32);
            works.push((at, WorkFacts::NEW));
            for (handle, spec) in node.handles.iter().enumerate() {
                let feeds = definition.edges.iter().filter(|edge| {
                    edge.to == node.name && edge.kind == EdgeKind::Stream { handle: spec.name.clone() }
                });
                let handle = HandleIx::new(handle as u16);
                let sources = spec.sources.len() + feeds.count();
                inboxes.push(InboxFacts::new(InboxRow::new(id, at, handle, sources)));
            }
        }
        if entry.is_held_whole() {
            works.push((NodeIx::WHOLE_RUN, WorkFacts::NEW));
        }
        self.add(id, RunFacts::new(head, works, inboxes, stamped.step));
    }

    fn advance_run(&mut self, event: &Event) {
        match event {
            Event::RunEnding { run, outcome, cause } => {
                if let Some(run) = self.run(*run) {
                    run.head.ending = Some((*outcome, *cause));
                }
            }
            Event::RunRetried { run, series, .. } => {
                let Some(run) = self.run(*run) else { return };
                (run.head.series, run.head.ending) = (*series, None);
                for (_, work) in &mut run.works {
                    if matches!(work.phase, Phase::Failed | Phase::Cancelled | Phase::Skipped) {
                        work.phase = Phase::Waiting;
                        (work.attempt, work.failures, work.losses) = (Attempt::new(0), 0, 0);
                    }
                }
            }
            _ => {}
        }
    }

    fn advance_grant(&mut self, event: &Event) {
        let (id, node, epoch, key, is_claim) = match event {
            Event::NodeAssigned { run, node, epoch, worker, .. } => (*run, *node, *epoch, *worker, false),
            Event::NodeClaimed { run, node, epoch, worker, .. } => (*run, *node, *epoch, *worker, true),
            Event::NodeStarted { run, node, attempt } => {
                let Some(run) = self.run(*run) else { return };
                let epoch = run.grant(*node).map(|work| work.epoch);
                if let (Some(work), Some(epoch)) = (run.work_mut(*node), epoch) {
                    (work.attempt, work.epoch) = (*attempt, epoch);
                }
                return;
            }
            _ => return,
        };
        let Some((incarnation, session)) =
            self.workers.get(&key).map(|known| (known.incarnation, known.session))
        else {
            return;
        };
        self.next_epoch = self.next_epoch.max(epoch.get() + 1);
        let Some(work) = self.run(id).and_then(|run| run.work_mut(node)) else { return };
        work.epoch = epoch;
        let before = work.holder.filter(|_| work.phase == Phase::Assigned);
        let incarnation = before.map_or(incarnation, |before| before.incarnation);
        work.holder = Some(Holder { worker: key.worker, incarnation, session, claimed: is_claim });
    }

    fn advance_work(&mut self, event: &Event) {
        let Some((id, node, step)) = work_step(event) else { return };
        let Some(run) = self.run(id) else { return };
        let own = run.held_as(node) == node;
        let Some(work) = run.work_mut(node) else { return };
        match event {
            Event::NodeFailed { failure: Failure { kind: FailureKind::LostTooOften, .. }, .. } => {
                work.losses += 1
            }
            Event::NodeFailed { .. } => work.failures += u32::from(work.phase == Phase::Processing),
            Event::NodeReturned { how, .. } => {
                work.losses += u32::from(own && how.is_loss() && work.is_claimed());
            }
            _ => {}
        }
        work.phase = work.phase.after(step).unwrap_or(work.phase);
    }

    fn advance_inbox(&mut self, event: &Event) {
        let Some((id, node, handle)) = inbox_of(event) else { return };
        let Some(run) = self.run(id) else { return };
        let Some(InboxFacts { row, ids, .. }) = run.inbox_mut(node, handle) else { return };
        match event {
            Event::MessageAppended { seq, message, .. }
            | Event::TriggerInputReceived { seq, message, .. } => {
                row.last = *seq;
                row.cursor_stored = row.cursor_stored.max(message.cursor);
                match message.id {
                    MessageKey::Own(id) => {
                        ids.insert(id, (message.value.hash, *seq));
                    }
                    MessageKey::Stream { source, n } => row.sources[usize::from(source)].stored = n,
                }
            }
            Event::MessagesClaimed { through, epoch, .. } => {
                (row.claimed_through, row.claim_epoch) = (*through, *epoch);
            }
            Event::MessagesReturned { .. } => row.claimed_through = row.settled,
            Event::MessagesConsumed { through, .. } => row.settled = *through,
            Event::MessageBuried { seq, .. } => {
                row.settled = *seq;
                row.claimed_through = row.claimed_through.max(*seq);
            }
            Event::StreamEnded { source, count, .. } => {
                row.sources[usize::from(*source)].ended = Some(*count)
            }
            Event::HandleClosed { .. } => row.closed = true,
            Event::TriggerCursorAdvanced { cursor, .. } => row.cursor_settled = Some(*cursor),
            _ => {}
        }
    }

    fn advance_worker(&mut self, event: &Event) {
        match event {
            Event::WorkerRegistered(registered) => {
                self.next_epoch = self.next_epoch.max(registered.incarnation.get() + 1);
                let key = registered.worker;
                self.keep_worker(key);
                let before = self.workers.get(&key).map(|known| known.session.next());
                let facts = WorkerFacts {
                    incarnation: registered.incarnation,
                    session: before.unwrap_or(Session::new(1)),
                    fenced: before.unwrap_or(Session::new(0)),
                    lapsed: Vec::new(),
                    health: Health::Healthy,
                    last_seen: Time::ZERO,
                };
                self.workers.insert(key, facts);
            }
            Event::SessionLapsed { worker, lease_ms } => {
                self.keep_worker(*worker);
                if let Some(known) = self.workers.get_mut(worker) {
                    known.session = known.session.next();
                    known.lapsed.retain(|(ms, _)| ms != lease_ms);
                    known.lapsed.push((*lease_ms, known.session));
                }
            }
            Event::WorkerLeft { worker } => {
                self.keep_worker(*worker);
                self.workers.remove(worker);
            }
            _ => {}
        }
    }

    /// Keeps a worker as it was before this input.
    fn keep_worker(&mut self, key: WorkerKey) {
        self.workers_before.entry(key).or_insert_with(|| self.workers.get(&key).cloned());
    }
}
