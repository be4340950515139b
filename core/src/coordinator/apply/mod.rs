//! The only mutator. It takes an event, never a clock, and can not fail: an impossible event is our bug and panics.

mod grant;
mod inbox;
mod run;
mod work;
mod worker;

use super::event::Event;
pub(crate) use run::derive_joins;

use super::placement::{Mode, Placement};
use super::row::{AliasRow, Change, DefinitionRow, OutboxRow, Row};
use super::state::{DefinitionEntry, OutboxEntry, Run, State, Timer};
use crate::definition::{Scope, WorkSpec};
use crate::graph;
use crate::id::{NodeIx, RunId, TenantId};
use crate::time::Time;
use alloc::boxed::Box;

/// State and index together, while an event is applied.
pub(crate) struct Applier<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) placement: &'a mut Placement,
}

impl Applier<'_> {
    /// Makes the state what it is after `event`.
    pub(crate) fn apply(&mut self, event: &Event) {
        if !event.is_volatile() {
            let clock = self.state.clock;
            let meta = &mut self.state.meta;
            (meta.time, meta.wall) = (clock.now, clock.wall);
            self.state.touched.meta = true;
        }
        if let Some(run) = event.run() {
            self.state.runs.focus(run.number());
        }
        match event {
            Event::DefinitionAdded(added) => self.definition_added(&DefinitionRow {
                id: added.id,
                tenant: added.tenant,
                version: added.version,
                hash: added.hash,
                definition: added.definition.clone(),
            }),
            Event::AliasSet { tenant, definition, alias, id } => {
                let (definition, alias) = (definition.clone(), alias.clone());
                self.alias_set(AliasRow { tenant: *tenant, definition, alias, id: *id });
            }

            Event::RunCreated(created) => self.run_created(created),
            Event::RunSuspended { run } => self.run_suspended(*run),
            Event::RunWoken { run } => self.run_woken(*run),
            Event::RunPaused { run } => self.run_paused(*run),
            Event::RunContinued { run } => self.run_continued(*run),
            Event::RunEnding { run, outcome, cause } => self.run_ending(*run, *outcome, *cause),
            Event::RunCompleted { run } | Event::RunFailed { run } | Event::RunCancelled { run } => {
                self.run_ended(*run)
            }
            Event::RunRetried { run, series, deadline } => self.run_retried(*run, *series, *deadline),

            Event::NodeScheduled { run, node } => self.node_scheduled(*run, *node),
            Event::NodeAssigned { run, node, epoch, worker, by } => {
                self.node_assigned(*run, *node, *epoch, *worker, *by);
            }
            Event::NodeClaimed { run, node, epoch, worker, poll, by } => {
                self.node_claimed(*run, *node, *epoch, *worker, *poll, *by);
            }
            Event::NodeStarted { run, node, attempt } => self.node_started(*run, *node, *attempt),
            Event::NodeProgressed { run, node, step, total } => {
                self.node_progressed(*run, *node, *step, *total)
            }
            Event::NodeCheckpointed { run, node, state } => self.node_checkpointed(*run, *node, *state),
            Event::NodeCompleted { run, node, output } => self.node_completed(*run, *node, *output),
            Event::NodeFailed { run, node, failure, retry_at } => {
                self.node_failed(*run, *node, *failure, *retry_at);
            }
            Event::NodeUntaken { run, node, again_at } => self.node_untaken(*run, *node, *again_at),
            Event::NodeReturned { run, node, how } => self.node_returned(*run, *node, *how),
            Event::NodeSuspended { run, node, suspension, wake_at } => {
                self.node_suspended(*run, *node, suspension, *wake_at);
            }
            Event::NodePostponed { run, node, wake_at } => self.node_postponed(*run, *node, *wake_at),
            Event::NodeResumed { run, node, cause } => self.node_resumed(*run, *node, *cause),
            Event::RunParked { run } => self.run_parked(*run),
            Event::NodeCancelled { run, node } => {
                self.node_stopped(*run, *node, crate::lifecycle::WorkStep::Cancel)
            }
            Event::NodeSkipped { run, node } => {
                self.node_stopped(*run, *node, crate::lifecycle::WorkStep::Skip)
            }
            Event::StopAsked { run, node, reason } => self.stop_asked(*run, *node, *reason),
            Event::ReportTaken { run, node, epoch, digest } => {
                self.report_taken(*run, *node, *epoch, *digest)
            }
            Event::RunDoomed { run, node } => self.change_run(*run).head.rare_mut().doomed = Some(*node),
            Event::LateResult(late) => self.late_result(late),

            Event::MessageAppended { run, node, handle, seq, message }
            | Event::TriggerInputReceived { run, node, handle, seq, message } => {
                self.message_appended(*run, *node, *handle, *seq, message);
            }
            Event::MessagesClaimed { run, node, handle, through, epoch } => {
                self.messages_claimed(*run, *node, *handle, *through, *epoch);
            }
            Event::MessagesReturned { run, node, handle, blame } => {
                self.messages_returned(*run, *node, *handle, *blame);
            }
            Event::MessagesConsumed { run, node, handle, through, room: _ } => {
                self.messages_consumed(*run, *node, *handle, *through);
            }
            Event::MessageBuried { run, node, handle, seq } => {
                self.message_buried(*run, *node, *handle, *seq)
            }
            Event::StreamEnded { run, node, handle, source, count } => {
                self.stream_ended(*run, *node, *handle, *source, *count);
            }
            Event::HandleClosed { run, node, handle } => self.handle_closed(*run, *node, *handle),
            Event::TriggerRegistered { run, node, handle } => self.trigger_registered(*run, *node, *handle),
            Event::TriggerCursorAdvanced { run, node, handle, cursor } => {
                self.cursor_advanced(*run, *node, *handle, *cursor);
            }

            Event::OutboxEnqueued { id, tenant, outgoing } => {
                self.state.meta.next_outbox = id.next();
                self.state.touched.outbox.insert(*id);
                self.outbox_added(OutboxRow {
                    id: *id,
                    tenant: *tenant,
                    outgoing: **outgoing,
                    refused_at: None,
                });
            }
            Event::OutboxSent { id } => {
                self.state.touched.outbox.insert(*id);
                self.outbox_removed(*id);
            }
            Event::OutboxRefused { id } => {
                let row = OutboxRow { refused_at: Some(self.state.now()), ..self.state.outbox[id].row };
                self.state.touched.changes.push(Change::Put(Row::Outbox(row)));
                self.outbox_removed(*id);
                self.state.touched.outbox.remove(id);
            }
            Event::OutboxTried { id } => {
                let now = self.state.now();
                let retry_at = now.after_ms(self.state.limits.outbox_retry_ms);
                let entry = self.state.outbox.get_mut(id).expect("an event names what is owed");
                let mut armed = entry.tried_at.after_ms(self.state.limits.outbox_retry_ms);
                entry.tried_at = now;
                self.state.timers.arm(Timer::Outbox(*id), &mut armed, retry_at);
            }

            Event::WorkerRegistered(registered) => self.worker_registered(registered),
            Event::WorkerDrained { worker, on } => self.worker_drained(*worker, *on),
            Event::WorkerLeft { worker } => self.worker_left(*worker),
            Event::SessionLapsed { worker, lease_ms } => self.session_lapsed(*worker, *lease_ms),
            Event::WorkerSeen { worker, load } => self.worker_seen(*worker, *load),
            Event::WorkerWaits { worker, waits } => self.worker_waits(*worker, *waits),
            Event::WorkerCalled { worker } => self.worker_waits(*worker, false),
            Event::NodeUnplaced { .. } => {}
            Event::WorkerSilent { worker } => self.worker_silent(*worker),
            Event::WorkerPolled { worker, poll } => self.worker_polled(*worker, *poll),

            Event::PagedIn { until } => {
                self.state.meta.paged_until = self.state.meta.paged_until.max(*until);
                self.arm_page();
            }
            Event::Swept { until } => {
                let now = self.state.now();
                self.state.meta.swept = now;
                let before = until.as_ms().checked_sub(self.state.limits.retention_ms);
                self.state.touched.forget = before.map(Time::from_ms).or(self.state.touched.forget);
                self.arm_sweep();
            }
        }
    }

    /// A definition came, from an event or from its row.
    pub(crate) fn definition_added(&mut self, row: &DefinitionRow) {
        let plan = graph::check(
            &row.definition,
            &crate::limits::Limits { nodes: u64::MAX, ..self.state.limits.clone() },
        );
        let plan = plan.expect("a definition is checked before it is added");
        let tenant = row.tenant;
        let placement = &mut *self.placement;
        let mut class = |work: &WorkSpec| placement.intern_class(tenant, &work.requirement, Mode::of(work));
        let classes = row.definition.nodes.iter().map(|node| class(&node.work)).collect();
        let whole_class = match &row.definition.settings.scope {
            Scope::Run(work) => Some(class(work)),
            Scope::Node => None,
        };
        let state = &mut *self.state;
        assert_eq!(row.id.get() as usize, state.definitions.len(), "definitions come in order");
        state.meta.next_definition = row.id.next();
        state.name_mut(tenant, &row.definition.name).versions.push(row.id);
        state.touched.changes.push(Change::Put(Row::Definition(Box::new(row.clone()))));
        state.definitions.push(DefinitionEntry { row: row.clone(), plan, classes, whole_class });
    }

    /// An alias was set, by an event or by its row.
    pub(crate) fn alias_set(&mut self, row: AliasRow) {
        let entry = self.state.name_mut(row.tenant, &row.definition);
        entry.aliases.insert(row.alias.clone(), row.id);
        self.state.touched.changes.push(Change::Put(Row::Alias(row)));
    }

    /// Something is owed, by an event or by its row.
    pub(crate) fn outbox_added(&mut self, row: OutboxRow) {
        let now = self.state.now();
        let mut armed = Time::NEVER;
        let retry_at = now.after_ms(self.state.limits.outbox_retry_ms);
        self.state.timers.arm(Timer::Outbox(row.id), &mut armed, retry_at);
        self.state.outbox.insert(row.id, OutboxEntry { row, tried_at: now });
    }

    fn outbox_removed(&mut self, id: crate::id::OutboxId) {
        let entry = self.state.outbox.remove(&id).expect("an event names what is owed");
        let mut armed = entry.tried_at.after_ms(self.state.limits.outbox_retry_ms);
        self.state.timers.arm(Timer::Outbox(id), &mut armed, Time::NEVER);
    }

    /// A run is about to change: its version rises once per step (S3), and its row is to be written.
    fn change_run(&mut self, id: RunId) -> &mut Run {
        let State { runs, touched, meta, .. } = &mut *self.state;
        let slot = runs.slot(id.number()).expect("an event names a resident run");
        let run = runs.at_mut(slot);
        touched.change_run(slot, run, meta.step);
        run
    }

    /// A piece of work is about to change: so does its run, and so does its row if it has one of its own.
    fn change_work(&mut self, id: RunId, node: NodeIx) -> &mut Run {
        let State { runs, touched, meta, .. } = &mut *self.state;
        let slot = runs.slot(id.number()).expect("an event names a resident run");
        let run = runs.at_mut(slot);
        touched.change_run(slot, run, meta.step);
        touched.work(slot, run, node);
        run
    }

    /// A piece of work's row is to be written: its own if it has one, or else its run's.
    fn touch_work(&mut self, id: RunId, node: NodeIx) -> &mut Run {
        let State { runs, touched, .. } = &mut *self.state;
        let slot = runs.slot(id.number()).expect("an event names a resident run");
        let run = runs.at_mut(slot);
        touched.work(slot, run, node);
        run
    }

    pub(crate) fn live_run_count(&mut self, tenant: TenantId, change: i64) {
        let count = self.state.live_runs.entry(tenant).or_default();
        *count = count.checked_add_signed(change).expect("live runs are counted");
        if *count == 0 {
            self.state.live_runs.remove(&tenant);
        }
    }

    /// Arms the sweep timer.
    pub(crate) fn arm_sweep(&mut self) {
        let at = self.state.meta.swept.after_ms(self.state.limits.sweep_interval_ms);
        self.state.timers.arm(Timer::Sweep, &mut self.state.armed.sweep, at);
    }

    /// Arms the timer that pages suspended runs in, well before the first could be due.
    pub(crate) fn arm_page(&mut self) {
        let at = self.state.meta.paged_until.as_ms().saturating_sub(self.state.limits.page_horizon_ms / 2);
        self.state.timers.arm(Timer::PageIn, &mut self.state.armed.page, Time::from_ms(at));
    }

    /// Arms the rescue timer if there is anything to take back, and not before the next portion's turn.
    pub(crate) fn arm_rescue(&mut self, at: Time) {
        let from = self.state.armed.rescue_from;
        let at = if self.state.leases.lapsed.count == 0 { Time::NEVER } else { at.max(from) };
        self.state.timers.arm(Timer::Rescue, &mut self.state.armed.rescue, at);
    }
}
