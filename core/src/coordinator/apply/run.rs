//! Runs: opened, suspended, paused, ended, opened again.

use super::Applier;
use crate::coordinator::event::{EndCause, Outcome, RunCreated};
use crate::coordinator::row::{InboxRow, RunHead, RunRare, Work};
use crate::coordinator::state::{DefinitionEntry, Inbox, Node, Nodes, Run, State, Timer};
use crate::id::{Attempt, HandleIx, NodeIx, RunId, Series, Version};
use crate::lifecycle::{Lifecycle, Phase, RunStatus, RunStep};
use crate::time::Time;
use alloc::boxed::Box;
use alloc::vec::Vec;

impl Applier<'_> {
    pub(super) fn run_created(&mut self, created: &RunCreated) {
        let now = self.state.now();
        let head = RunHead {
            id: created.run,
            tenant: created.tenant,
            definition: created.definition,
            series: Series::new(1),
            version: Version::new(1),
            status: RunStatus::Running,
            ending: None,
            priority: created.priority,
            notify: created.notify,
            created_at: now,
            created_wall: self.state.clock.wall,
            ended_at: Time::NEVER,
            deadline: created.deadline,
            input: created.input,
            key: created.key,
            rare: rare(created),
        };
        let definition = self.state.definition(created.definition);
        let count = definition.plan.len();
        let fresh = |node: usize| Node::new(Work::new(now), definition.plan.need(NodeIx::new(node as u32)));
        let nodes =
            if count == 1 { Nodes::One(fresh(0)) } else { Nodes::Many((0..count).map(fresh).collect()) };
        let run = Run {
            whole: definition.is_held_whole().then(|| Box::new(Node::new(Work::new(now), 0))),
            inboxes: inboxes(definition, created.run),
            open: count as u32,
            active: 0,
            suspended: 0,
            held: 0,
            stepped: self.state.meta.step,
            armed: Time::NEVER,
            touched: true,
            head,
            nodes,
        };
        let number = created.run.number();
        self.state.meta.next_run = number + 1;
        if let Some(key) = &created.key {
            self.state.keys.insert(created.tenant, key.key, number);
            self.state.meta.newest_key = self.state.meta.newest_key.max(Some(key.minted_at));
        }
        let slot = self.state.runs.insert(number, run);
        let State { runs, touched, .. } = &mut *self.state;
        let run = runs.at_mut(slot);
        touched.runs.push(slot);
        if let Nodes::Many(nodes) = &mut run.nodes {
            nodes.iter_mut().for_each(|node| node.touched = true);
            touched.nodes.extend((0..count as u32).map(|node| (slot, NodeIx::new(node))));
        }
        for inbox in &mut run.inboxes {
            inbox.touched = true;
            touched.inboxes.push((slot, inbox.row.node, inbox.row.handle));
        }
        self.live_run_count(created.tenant, 1);
        self.arm_run(created.run);
    }

    /// Arms a run's own timer.
    pub(crate) fn arm_run(&mut self, id: RunId) {
        let State { runs, timers, .. } = &mut *self.state;
        let run = runs.get_mut(id.number()).expect("an event names a resident run");
        let ends = run.is_ended() || run.head.status == RunStatus::Ending;
        let at = if ends { Time::NEVER } else { run.head.deadline };
        timers.arm(Timer::Run(id.number()), &mut run.armed, at);
    }

    fn run_step(&mut self, id: RunId, step: RunStep) {
        let run = self.change_run(id);
        run.head.status = run.head.status.next(step);
        self.set_wake_at(id);
    }

    /// Works out when a suspended run wakes at the latest by itself; it may leave memory until then.
    pub(super) fn set_wake_at(&mut self, id: RunId) {
        let run = self.state.the_run_mut(id);
        if run.head.status == RunStatus::Suspended {
            let wake_at = run.earliest_wake().min(run.head.deadline);
            run.head.rare_mut().wake_at = Some(wake_at).filter(|at| !at.is_never());
            self.state.touched.leaving.push(id.number());
        } else if let Some(rare) = &mut run.head.rare {
            rare.wake_at = None;
        }
    }

    pub(super) fn run_suspended(&mut self, id: RunId) {
        self.run_step(id, RunStep::Suspend);
    }

    pub(super) fn run_woken(&mut self, id: RunId) {
        self.run_step(id, RunStep::Wake);
    }

    pub(super) fn run_paused(&mut self, id: RunId) {
        let ready = self.ready_work(id);
        ready.iter().for_each(|node| self.leave_queue(id, *node));
        self.run_step(id, RunStep::Pause);
        ready.iter().for_each(|node| self.arm_node(id, *node));
    }

    pub(super) fn run_continued(&mut self, id: RunId) {
        self.run_step(id, RunStep::Continue);
        let now = self.state.now();
        for node in self.ready_work(id) {
            // The time a run was paused does not count against what is ready in it.
            self.change_work(id, node).node_mut(node).work.ready_at = now;
            self.enter_queue(id, node);
            self.arm_node(id, node);
        }
    }

    fn ready_work(&self, id: RunId) -> Vec<NodeIx> {
        let run = self.state.the_run(id);
        run.work_ixs().filter(|node| run.work(*node).phase == Phase::Ready).collect()
    }

    pub(super) fn run_ending(&mut self, id: RunId, outcome: Outcome, cause: EndCause) {
        self.run_step(id, RunStep::End);
        self.state.the_run_mut(id).head.ending = Some((outcome, cause));
        self.arm_run(id);
    }

    pub(super) fn run_ended(&mut self, id: RunId) {
        let now = self.state.now();
        let ending = self.state.the_run(id).head.ending;
        let step = match ending.expect("a run ends with an outcome").0 {
            Outcome::Completed => RunStep::Complete,
            Outcome::Failed => RunStep::Fail,
            Outcome::Cancelled => RunStep::Cancel,
        };
        self.run_step(id, step);
        let run = self.state.the_run_mut(id);
        assert_eq!((run.held, run.open), (0, 0), "a run ends when nothing of it is held or open (S4)");
        run.head.ended_at = now;
        let tenant = run.head.tenant;
        self.live_run_count(tenant, -1);
        self.state.touched.leaving.push(id.number());
    }

    pub(super) fn run_retried(&mut self, id: RunId, series: Series, deadline: Time) {
        self.run_step(id, RunStep::Retry);
        let now = self.state.now();
        let run = self.state.the_run_mut(id);
        (run.head.series, run.head.deadline) = (series, deadline);
        (run.head.ending, run.head.ended_at) = (None, Time::NEVER);
        if let Some(rare) = &mut run.head.rare {
            rare.doomed = None;
        }
        let tenant = run.head.tenant;
        for node in run.work_ixs() {
            let phase = self.state.the_run(id).work(node).phase;
            if !matches!(phase, Phase::Failed | Phase::Cancelled | Phase::Skipped) {
                continue;
            }
            let run = self.change_work(id, node);
            let work = &mut run.node_mut(node).work;
            work.phase = work.phase.next(crate::lifecycle::WorkStep::Reopen);
            work.since = now;
            (work.attempt, work.failures, work.losses, work.offers) = (Attempt::new(0), 0, 0, 0);
            if let Some(rare) = &mut work.rare {
                rare.excluded.clear();
                rare.joined.clear();
                rare.suspension = None;
            }
            run.open += u32::from(!node.is_whole_run());
        }
        let State { runs, definitions, .. } = &mut *self.state;
        let run = runs.get_mut(id.number()).expect("an event names a resident run");
        derive_joins(run, &definitions[run.head.definition.get() as usize]);
        self.live_run_count(tenant, 1);
        self.arm_run(id);
    }
}

/// What most runs do not have.
fn rare(created: &RunCreated) -> Option<Box<RunRare>> {
    let RunCreated { labels, concurrency, deadline_ms, creator, .. } = created;
    if labels.is_empty() && concurrency.is_none() && deadline_ms.is_none() && creator.is_none() {
        return None;
    }
    let (labels, concurrency) = (labels.clone(), *concurrency);
    let (deadline_ms, creator) = (*deadline_ms, *creator);
    Some(Box::new(RunRare { labels, concurrency, deadline_ms, creator, ..RunRare::default() }))
}

/// One inbox per declared handle.
fn inboxes(definition: &DefinitionEntry, run: RunId) -> Box<[Inbox]> {
    let mut inboxes = Vec::new();
    for (at, node) in definition.row.definition.nodes.iter().enumerate() {
        let ix = NodeIx::new(at as u32);
        for handle in 0..node.handles.len() as u16 {
            let handle = HandleIx::new(handle);
            inboxes.push(Inbox::new(InboxRow::new(run, ix, handle, definition.sources(ix, handle))));
        }
    }
    inboxes.into()
}

/// What each join still needs, from the set of completed predecessors alone (S19).
pub(crate) fn derive_joins(run: &mut Run, definition: &DefinitionEntry) {
    for node in run.node_ixs() {
        let predecessors = definition.plan.predecessors(node).iter();
        let done = predecessors.filter(|from| run.work(**from).phase == Phase::Completed).count();
        run.node_mut(node).missing = definition.plan.need(node).saturating_sub(done as u32);
    }
}
