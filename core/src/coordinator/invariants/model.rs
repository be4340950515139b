//! The watcher's own small model: what an event does to what is known. It shares nothing with `apply`.

use super::known::{Known, RunFacts, WorkerFacts, changed_run, inbox_of, run_step, work_step};
use crate::coordinator::Coordinator;
use crate::coordinator::command::{Failure, FailureKind, MessageKey};
use crate::coordinator::event::{Event, RunCreated, Stamped};
use crate::coordinator::row::{Assignment, InboxRow, Work, WorkerRow};
use crate::definition::EdgeKind;
use crate::id::*;
use crate::lifecycle::{Health, Lifecycle, Phase, RunStatus};
use crate::time::Time;
use alloc::collections::BTreeMap;

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
        self.advance_grant(event, stamped.at);
        self.advance_work(event);
        self.advance_inbox(event);
        self.advance_worker(event);
    }

    fn created(&mut self, machine: &Coordinator, created: &RunCreated, stamped: &Stamped) {
        let id = created.run;
        let Some(mut head) = machine.state.run(id).map(|run| run.head.clone()) else { return };
        (head.status, head.ending) = (RunStatus::Running, None);
        (head.version, head.series) = (Version::new(1), Series::new(1));
        let entry = machine.state.definition(created.definition);
        let definition = &entry.row.definition;
        let mut works = BTreeMap::new();
        let mut inboxes = BTreeMap::new();
        for (at, node) in definition.nodes.iter().enumerate() {
            let at = NodeIx::new(at as u32);
            works.insert(at, Work::new(stamped.at));
            for (handle, spec) in node.handles.iter().enumerate() {
                let feeds = definition.edges.iter().filter(|edge| {
                    edge.to == node.name && edge.kind == EdgeKind::Stream { handle: spec.name.clone() }
                });
                let handle = HandleIx::new(handle as u16);
                inboxes
                    .insert((at, handle), InboxRow::new(id, at, handle, spec.sources.len() + feeds.count()));
            }
        }
        if entry.is_held_whole() {
            works.insert(NodeIx::WHOLE_RUN, Work::new(stamped.at));
        }
        let (ids, stepped) = (BTreeMap::new(), stamped.step);
        let facts = RunFacts { head, works, inboxes, ids, stepped, stable_keys: BTreeMap::new() };
        self.before.insert(id, facts.clone());
        self.runs.insert(id, facts);
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
                for work in run.works.values_mut() {
                    if matches!(work.phase, Phase::Failed | Phase::Cancelled | Phase::Skipped) {
                        work.phase = Phase::Waiting;
                        (work.attempt, work.failures, work.losses) = (Attempt::new(0), 0, 0);
                    }
                }
            }
            _ => {}
        }
    }

    fn advance_grant(&mut self, event: &Event, now: Time) {
        let (id, node, epoch, key, is_claim) = match event {
            Event::NodeAssigned { run, node, epoch, worker, .. } => (*run, *node, *epoch, *worker, false),
            Event::NodeClaimed { run, node, epoch, worker, .. } => (*run, *node, *epoch, *worker, true),
            Event::NodeStarted { run, node, attempt } => {
                let Some(run) = self.run(*run) else { return };
                let epoch = run.grant(*node).map(|work| work.epoch);
                if let (Some(work), Some(epoch)) = (run.works.get_mut(node), epoch) {
                    (work.attempt, work.epoch) = (*attempt, epoch);
                }
                return;
            }
            _ => return,
        };
        let Some((incarnation, session)) =
            self.workers.get(&key).map(|known| (known.row.incarnation, known.row.session))
        else {
            return;
        };
        self.next_epoch = self.next_epoch.max(epoch.get() + 1);
        let Some(work) = self.run(id).and_then(|run| run.works.get_mut(&node)) else { return };
        work.epoch = epoch;
        let claimed_at = if is_claim { now } else { Time::NEVER };
        let before = work.assignment.filter(|_| work.phase == Phase::Assigned);
        work.assignment = Some(Assignment {
            worker: key.worker,
            incarnation: before.map_or(incarnation, |before| before.incarnation),
            session,
            lease_ms: 0,
            poll: PollId::new(0),
            assigned_at: now,
            claimed_at,
            by: crate::coordinator::event::By::Poll,
        });
    }

    fn advance_work(&mut self, event: &Event) {
        let Some((id, node, step)) = work_step(event) else {
            if let Event::StopAsked { run, node, reason } = event
                && let Some(work) = self.run(*run).and_then(|run| run.works.get_mut(node))
            {
                work.stop = Some(*reason);
            }
            return;
        };
        let Some(run) = self.run(id) else { return };
        let own = run.held_as(node) == node;
        let Some(work) = run.works.get_mut(&node) else { return };
        match event {
            Event::NodeFailed { failure: Failure { kind: FailureKind::LostTooOften, .. }, .. } => {
                work.losses += 1
            }
            Event::NodeFailed { .. } => work.failures += u32::from(work.phase == Phase::Processing),
            Event::NodeReturned { how, .. } => {
                work.losses += u32::from(own && how.is_loss() && work.is_claimed());
            }
            Event::NodeSuspended { suspension, .. } => {
                work.rare.get_or_insert_default().suspension = Some((**suspension).clone());
            }
            Event::NodeCompleted { output, .. } => work.output = *output,
            _ => {}
        }
        work.phase = work.phase.after(step).unwrap_or(work.phase);
    }

    fn advance_inbox(&mut self, event: &Event) {
        let Some((id, node, handle)) = inbox_of(event) else { return };
        let Some(run) = self.run(id) else { return };
        let Some(row) = run.inboxes.get_mut(&(node, handle)) else { return };
        match event {
            Event::MessageAppended { seq, message, .. }
            | Event::TriggerInputReceived { seq, message, .. } => {
                row.last = *seq;
                row.cursor_stored = row.cursor_stored.max(message.cursor);
                match message.id {
                    MessageKey::Own(id) => {
                        run.ids.insert((node, handle, id), (message.value.hash, *seq));
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
                let session =
                    self.workers.get(&key).map_or(Session::new(1), |known| known.row.session.next());
                let fenced = if self.workers.contains_key(&key) { session } else { Session::new(0) };
                let row = WorkerRow {
                    key,
                    incarnation: registered.incarnation,
                    session,
                    fenced,
                    lapsed: alloc::vec::Vec::new(),
                    spec: registered.spec.clone(),
                    draining: false,
                    registered_at: Time::ZERO,
                };
                self.workers.insert(key, WorkerFacts { row, health: Health::Healthy, last_seen: Time::ZERO });
            }
            Event::SessionLapsed { worker, lease_ms } => {
                if let Some(known) = self.workers.get_mut(worker) {
                    known.row.session = known.row.session.next();
                    let session = known.row.session;
                    known.row.lapsed.retain(|(ms, _)| ms != lease_ms);
                    known.row.lapsed.push((*lease_ms, session));
                }
            }
            Event::WorkerLeft { worker } => drop(self.workers.remove(worker)),
            _ => {}
        }
    }
}
