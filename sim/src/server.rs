//! A server: the Steward and the Shards that ship, and the thin adapter around them. The adapter passes requests to the
//! owner, orders to the store, and effects to whom they are for; it decides nothing.

use crate::client::TENANT;
use crate::packet::{Ask, Packet, Proc, Reply, Told, What};
use crate::site::Site;
use crate::store::{Op, Store};
use crate::swarm::Config;
use crate::world::{Event, STEWARD, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use tenure_core::agent::Notice;
use tenure_core::coordinator::Coordinator;
use tenure_core::coordinator::command::{Command, Envelope, MessageKey, SendCommand};
use tenure_core::coordinator::effect::{Effect, Outgoing};
use tenure_core::coordinator::row::{Change, Row};
use tenure_core::id::*;
use tenure_core::shard::command::{Input as ShardInput, Opening, Outcome};
use tenure_core::shard::effect::{NotTaken, Order as ShardOrder, Output as ShardOutput, Release};
use tenure_core::shard::lifecycle::Standing;
use tenure_core::shard::{Settings as ShardSettings, Shard};
use tenure_core::steward::command::{Input as StewardInput, ServerBeat, Survey};
use tenure_core::steward::effect::Order as StewardOrder;
use tenure_core::steward::{Settings as StewardSettings, Steward};

/// What the store says to a server.
#[derive(Debug, Clone)]
pub(crate) enum StoreSays {
    Opened(u16, Ownership, Opening),
    Answered(u16, u64, Outcome),
    Resolved(u16, u64, Option<(Ownership, Batch)>),
    Fetched(u16, u64, Option<Vec<Row>>),
    Surveyed(Option<Survey>),
    Took(u16, Option<Ownership>),
    Freed(u16, Ownership),
}

/// A request that somebody waits for.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    Asker(Proc, RequestId),
    /// The server itself: it delivers what its partition owes, and must acknowledge it.
    Delivery(u16, OutboxId),
}

/// A server process.
#[derive(Debug, Clone)]
pub struct Server {
    id: ServerId,
    /// The release of its program.
    pub(crate) release: u32,
    pub(crate) steward: Steward,
    shards: Vec<Shard>,
    waiting: BTreeMap<u64, Waiting>,
    requests: u64,
    out: ShardOutput,
}

impl Server {
    /// A server process that was just started.
    pub fn new(proc: Proc, life: u32, config: &Config) -> Self {
        let id = ServerId::new((proc as u128 + 1) << 32 | u128::from(life));
        let steward = StewardSettings {
            partitions: config.partitions,
            beat_ms: 4_000,
            survey_ms: 4_000,
            dead_ms: 15_000,
            ask_ms: 3_000,
        };
        let shard = ShardSettings {
            in_flight: config.in_flight,
            resolve_ms: config.resolve_ms,
            held: config.held,
            ..ShardSettings::default()
        };
        let new_shard = |partition: u16| Shard::new(partition, config.limits.clone(), shard.clone());
        Self {
            id,
            release: 1,
            steward: Steward::new(id, steward),
            shards: (0..config.partitions).map(new_shard).collect(),
            waiting: BTreeMap::new(),
            requests: 0,
            out: ShardOutput::default(),
        }
    }

    /// The Coordinator of a partition, if this server has one.
    pub fn machine(&self, partition: u16) -> Option<&Coordinator> {
        self.shards[usize::from(partition)].machine()
    }

    /// How its Shard stands with a partition.
    pub fn standing(&self, partition: u16) -> Standing {
        self.shards[usize::from(partition)].standing()
    }

    fn wait(&mut self, waiting: Waiting) -> RequestId {
        self.requests += 1;
        self.waiting.insert(self.requests, waiting);
        RequestId::new(self.requests)
    }
}

impl World {
    /// Feeds a Steward, and does what it says.
    pub(crate) fn steward(&mut self, proc: Proc, input: StewardInput) {
        let now = self.clock(proc);
        let mut orders = Vec::new();
        let server = &mut self.servers[proc];
        let before: Vec<_> = server.steward.holds().map(|(_, hold, _)| hold).collect();
        server.steward.handle(now, input, &mut orders);
        let checked = tenure_core::steward::invariants::check(&server.steward);
        self.oracles.steward_moved(&before, &server.steward);
        let (id, deadline) = (server.id, server.steward.next_deadline().map(|deadline| deadline.mono));
        self.hold(checked);
        for order in orders {
            match order {
                StewardOrder::Beat { beat, leaving } => {
                    self.store_op(proc, Op::Beat { beat: ServerBeat { server: id, beat, leaving } });
                }
                StewardOrder::Survey => self.store_op(proc, Op::Survey),
                StewardOrder::Take { partition, seen } => {
                    self.store_op(proc, Op::Take { partition, server: id, seen });
                    let rate = self.config.rate(Site::ServerCrashInRecovery);
                    if self.choice.happens(Site::ServerCrashInRecovery, proc, rate) {
                        let wait = u64::from(self.choice.pick(Site::FaultTime, proc, 30));
                        return self.crash_after(proc, wait);
                    }
                }
                StewardOrder::Free { partition, ownership } => {
                    self.store_op(proc, Op::Free { partition, ownership });
                }
                StewardOrder::Open { partition, ownership } => {
                    self.shard(proc, partition, ShardInput::Own { ownership });
                }
                StewardOrder::Close { partition } => self.shard(proc, partition, ShardInput::Close),
                StewardOrder::Gone => return self.crash(proc),
            }
        }
        self.arm(proc, STEWARD, deadline);
    }

    /// Feeds a Shard under the eyes of the oracles, and does what it says.
    pub(crate) fn shard(&mut self, proc: Proc, partition: u16, input: ShardInput) {
        let now = self.clock(proc);
        let server = &mut self.servers[proc];
        let mut out = std::mem::take(&mut server.out);
        let shard = &mut server.shards[usize::from(partition)];
        let before = shard.standing();
        let loads = matches!(&input, ShardInput::Loaded { ownership, opening: Opening::Rows { .. } }
            if before == Standing::Loading && *ownership == shard.ownership());
        self.oracles.arrives(proc, partition, &input, loads);
        let mut eye = self.oracles.eye(proc, partition);
        shard.handle_with(now, input, &mut out, &mut eye);
        let deadline = shard.next_deadline().map(|deadline| deadline.mono);
        for release in &out.effects {
            let result = self.oracles.released(proc, partition, release);
            self.hold(result);
        }
        let shard = &self.servers[proc].shards[usize::from(partition)];
        let seen = self.oracles.eye(proc, partition).end(shard, before, &out);
        self.hold(seen);
        let life = self.procs[proc].life;
        for release in out.effects.drain(..) {
            self.release(proc, partition, release);
        }
        for order in out.orders.drain(..) {
            // Whoever was killed meanwhile gives no more orders.
            if self.procs[proc].life == life {
                self.shard_order(proc, partition, order);
            }
        }
        self.servers[proc].out = out;
        if self.procs[proc].life == life {
            self.arm(proc, partition, deadline);
        }
    }

    fn shard_order(&mut self, proc: Proc, partition: u16, order: ShardOrder) {
        match order {
            ShardOrder::Load { ownership } => self.store_op(proc, Op::Load { partition, ownership }),
            ShardOrder::Commit { ticket, ownership, batch, changes, .. } => {
                self.store_op(proc, Op::Commit { partition, ticket, ownership, batch, changes });
                let rate = self.config.rate(Site::ServerCrashInCommit);
                if self.choice.happens(Site::ServerCrashInCommit, proc, rate) {
                    let wait = u64::from(self.choice.pick(Site::FaultTime, proc, self.config.store_ms * 3));
                    self.crash_after(proc, wait);
                }
            }
            ShardOrder::Check { ticket, ownership } => {
                self.store_op(proc, Op::Check { partition, ticket, ownership });
            }
            ShardOrder::Resolve { ticket } => self.store_op(proc, Op::Resolve { partition, ticket }),
            ShardOrder::Fetch { fetch, ownership, needs } => {
                self.store_op(proc, Op::Fetch { partition, fetch, ownership, needs });
            }
            ShardOrder::Released { ownership } => {
                self.steward(proc, StewardInput::Released { partition, ownership });
            }
            ShardOrder::Lost { ownership, .. } => {
                self.steward(proc, StewardInput::Lost { partition, ownership })
            }
            // Somebody looks: after a while the server is started anew.
            ShardOrder::Broken { .. } => self.after(20_000, Event::Restart { proc }),
        }
    }

    /// Sends an operation to the store.
    pub(crate) fn store_op(&mut self, server: Proc, op: Op) {
        let mut ms = 1 + u64::from(self.choice.pick(Site::StoreLatency, server, self.config.store_ms));
        if self.choice.happens(Site::StoreSlow, server, self.config.rate(Site::StoreSlow)) {
            ms += 1_500 + u64::from(self.choice.pick(Site::FaultTime, server, 3_000));
        }
        let life = self.procs[server].life;
        self.after(ms, Event::Execute { server, life, op: Box::new(op) });
    }

    pub(crate) fn store_says(&mut self, server: Proc, life: u32, says: StoreSays) {
        if self.procs[server].life != life {
            return;
        }
        match says {
            StoreSays::Opened(partition, ownership, opening) => {
                self.shard(server, partition, ShardInput::Loaded { ownership, opening });
            }
            StoreSays::Answered(partition, ticket, outcome) => {
                self.shard(server, partition, ShardInput::Answered { ticket, outcome });
            }
            StoreSays::Resolved(partition, ticket, found) => {
                self.shard(server, partition, ShardInput::Resolved { ticket, found });
            }
            StoreSays::Fetched(partition, fetch, rows) => {
                self.shard(server, partition, ShardInput::Fetched { fetch, rows });
            }
            StoreSays::Surveyed(survey) => self.steward(server, StewardInput::Surveyed(survey)),
            StoreSays::Took(partition, ownership) => {
                self.steward(server, StewardInput::Took { partition, ownership })
            }
            StoreSays::Freed(partition, ownership) => {
                self.steward(server, StewardInput::Freed { partition, ownership })
            }
        }
    }

    /// Something arrived at a server.
    pub(crate) fn server_packet(&mut self, proc: Proc, packet: Packet) {
        match packet {
            Packet::Ask(ask) => self.asked(proc, ask),
            Packet::Told(told) => self.delivered(proc, told),
            Packet::EndedTaken(partition, id) => self.acknowledge(proc, partition, id, true),
            Packet::Notice(..) | Packet::Ended { .. } | Packet::Register { .. } => {}
        }
    }

    fn asked(&mut self, proc: Proc, ask: Ask) {
        let server = &mut self.servers[proc];
        let serves = matches!(server.standing(ask.partition), Standing::Serving);
        if !serves && ask.hops < 2 {
            let owner = server.steward.owner(ask.partition);
            let owner = owner.and_then(|owner| self.servers.iter().position(|server| server.id == owner));
            if let Some(owner) = owner.filter(|owner| *owner != proc) {
                return self.send(proc, owner, Packet::Ask(Ask { hops: ask.hops + 1, ..ask }));
            }
        }
        let request = self.servers[proc].wait(Waiting::Asker(ask.asker, ask.request));
        let input = match ask.what {
            What::Look(run) => ShardInput::Look { request, tenant: TENANT, run },
            What::Command(command) => ShardInput::Command(Envelope { request, tenant: TENANT, command }),
        };
        self.shard(proc, ask.partition, input);
    }

    /// Does what may be done now.
    fn release(&mut self, proc: Proc, partition: u16, release: Release) {
        match release {
            Release::View { request, view } => self.answer(proc, partition, request, Reply::Seen(view)),
            Release::NotTaken { request, why } => {
                self.answer(proc, partition, request, Reply::NotTaken(why));
            }
            Release::Effect(effect) => self.effect(proc, partition, effect),
        }
    }

    fn answer(&mut self, proc: Proc, partition: u16, request: RequestId, reply: Reply) {
        match self.servers[proc].waiting.remove(&request.get()) {
            Some(Waiting::Asker(asker, request)) => {
                self.send(proc, asker, Packet::Told(Told { request, partition, reply }));
            }
            Some(Waiting::Delivery(of, id)) => self.delivery_answered(proc, of, id, &reply),
            None => {}
        }
    }

    fn effect(&mut self, proc: Proc, partition: u16, effect: Effect) {
        match effect {
            Effect::Reply { request, result } => {
                self.answer(proc, partition, request, Reply::Decided(result))
            }
            Effect::Deliver { id, outgoing } => self.deliver(proc, partition, id, outgoing),
            Effect::RegisterTrigger { run, node, handle, after } => {
                let outside = self.outside_proc();
                self.send(proc, outside, Packet::Register { run, node, handle, after });
            }
            Effect::Offer { worker, .. }
            | Effect::Hand { worker, .. }
            | Effect::Stop { worker, .. }
            | Effect::Wake { worker } => {
                let index = worker.worker.value().saturating_sub(1_000) as usize;
                if let Some(notice) = Notice::of(&effect)
                    && index < self.config.agents + self.config.rogues
                {
                    self.send(proc, self.config.servers + index, Packet::Notice(partition, notice));
                }
            }
            Effect::NobodyLeft { .. } | Effect::Room { .. } | Effect::RunEnded { .. } => {}
        }
    }

    /// Delivers what is owed: to another run by way of its owner, or to the outside.
    fn deliver(&mut self, proc: Proc, partition: u16, id: OutboxId, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Ended { run, outcome } => {
                let outside = self.outside_proc();
                self.send(proc, outside, Packet::Ended { server: proc, partition, id, run, outcome });
            }
            Outgoing::Message { run, node, handle, id: message, value, .. } => {
                let request = self.servers[proc].wait(Waiting::Delivery(partition, id));
                let send =
                    SendCommand { run, node, handle, id: MessageKey::Own(message), value, cursor: None };
                let what = What::Command(Command::Send(Box::new(send)));
                let to = run.partition();
                if usize::from(to) < self.store.parts.len() {
                    let ask = Ask { asker: proc, request, partition: to, hops: 0, what };
                    self.send(proc, proc, Packet::Ask(ask));
                }
            }
        }
    }

    /// The owner of another partition answered a delivery of this server.
    fn delivered(&mut self, proc: Proc, told: Told) {
        if let Some(Waiting::Delivery(partition, id)) = self.servers[proc].waiting.remove(&told.request.get())
        {
            self.delivery_answered(proc, partition, id, &told.reply);
        }
    }

    fn delivery_answered(&mut self, proc: Proc, partition: u16, id: OutboxId, reply: &Reply) {
        use tenure_core::coordinator::rejection::Rejection;
        match reply {
            Reply::Decided(Ok(_)) => self.acknowledge(proc, partition, id, true),
            Reply::Decided(Err(Rejection::InboxFull { .. } | Rejection::LimitReached { .. })) => {}
            Reply::Decided(Err(_)) => self.acknowledge(proc, partition, id, false),
            Reply::Seen(_) | Reply::NotTaken(NotTaken::Busy | NotTaken::NotOwner) => {}
        }
    }

    fn acknowledge(&mut self, proc: Proc, partition: u16, id: OutboxId, taken: bool) {
        if usize::from(partition) < self.store.parts.len() {
            self.servers[proc].requests += 1;
            let request = RequestId::new(self.servers[proc].requests);
            let command = Command::Acknowledge { id, taken };
            self.shard(proc, partition, ShardInput::Command(Envelope { request, tenant: TENANT, command }));
        }
    }

    /// The store executes an operation, or fails to.
    pub(crate) fn execute(&mut self, server: Proc, life: u32, op: Op) {
        let mut happens = |site: Site| self.choice.happens(site, server, self.config.rates[site as usize]);
        let is_down = self.store.down_until > self.now;
        let says = match op {
            Op::Commit { .. } => return self.execute_commit(server, life, op),
            Op::Beat { beat } => {
                if !is_down {
                    self.store.beat(beat);
                }
                return;
            }
            Op::Survey if is_down || happens(Site::StoreNoAnswer) => StoreSays::Surveyed(None),
            Op::Survey => StoreSays::Surveyed(Some(self.store.survey())),
            Op::Load { partition, ownership } if is_down => {
                StoreSays::Opened(partition, ownership, Opening::Failed)
            }
            Op::Load { partition, ownership } => {
                let is_too_old = self.servers[server].release < self.store.oldest_reader;
                let opening = match is_too_old || happens(Site::StoreFlip) {
                    true => Opening::Damaged,
                    false => self.store.load(partition, ownership),
                };
                StoreSays::Opened(partition, ownership, opening)
            }
            Op::Check { partition, ticket, .. } if is_down || happens(Site::StoreNoAnswer) => {
                StoreSays::Answered(partition, ticket, Outcome::Unknown)
            }
            Op::Check { partition, ticket, ownership } => {
                StoreSays::Answered(partition, ticket, self.store.check(partition, ownership))
            }
            Op::Resolve { partition, ticket } if is_down || happens(Site::StoreNoAnswer) => {
                StoreSays::Resolved(partition, ticket, None)
            }
            Op::Resolve { partition, ticket } => {
                StoreSays::Resolved(partition, ticket, Some(self.store.resolve(partition)))
            }
            Op::Fetch { partition, fetch, .. } if is_down || happens(Site::StoreNoAnswer) => {
                StoreSays::Fetched(partition, fetch, None)
            }
            Op::Fetch { partition, fetch, ownership, needs } => {
                StoreSays::Fetched(partition, fetch, self.store.fetch(partition, ownership, &needs))
            }
            // Whether it was done, the next survey shows.
            Op::Take { .. } | Op::Free { .. } if is_down || happens(Site::StoreNoAnswer) => return,
            Op::Take { partition, server: id, seen } => {
                StoreSays::Took(partition, self.store.take(partition, id, seen))
            }
            Op::Free { partition, ownership } => {
                self.store.free(partition, ownership);
                StoreSays::Freed(partition, ownership)
            }
        };
        self.reply_of_store(server, life, says);
    }

    fn reply_of_store(&mut self, server: Proc, life: u32, says: StoreSays) {
        let ms = 1 + u64::from(self.choice.pick(Site::StoreLatency, server, self.config.store_ms));
        self.after(ms, Event::StoreSays { server, life, says: Box::new(says) });
    }

    fn execute_commit(&mut self, server: Proc, life: u32, op: Op) {
        let Op::Commit { partition, ticket, ownership, batch, changes } = op else { return };
        let mut happens = |site: Site| self.choice.happens(site, server, self.config.rates[site as usize]);
        let unknown = StoreSays::Answered(partition, ticket, Outcome::Unknown);
        if self.store.down_until > self.now || happens(Site::StoreLoseBefore) {
            return self.reply_of_store(server, life, unknown);
        }
        if happens(Site::StoreLate) {
            let later = 500 + u64::from(self.choice.pick(Site::FaultTime, server, 40_000));
            self.after(
                later,
                Event::ExecuteLate {
                    op: Box::new(Op::Commit { partition, ticket, ownership, batch, changes }),
                },
            );
            return self.reply_of_store(server, life, unknown);
        }
        if self.store.full_until > self.now || happens(Site::StoreRetry) {
            let says = StoreSays::Answered(partition, ticket, Outcome::NotApplied);
            return self.reply_of_store(server, life, says);
        }
        if happens(Site::StoreTorn) {
            self.tear(server, &changes);
            return self.reply_of_store(server, life, unknown);
        }
        if happens(Site::StoreCrash) {
            // What was written and not synced is gone; what was synced is there.
            let synced = self.choice.pick(Site::FaultTarget, server, 2) == 1;
            if synced {
                self.apply(partition, ownership, batch, &changes);
            }
            self.store.down_until =
                self.now + 500 + u64::from(self.choice.pick(Site::FaultTime, server, 8_000));
            return self.reply_of_store(server, life, unknown);
        }
        if happens(Site::StoreSyncError) {
            if self.choice.pick(Site::FaultTarget, server, 2) == 1 {
                self.apply(partition, ownership, batch, &changes);
            }
            let says = StoreSays::Answered(partition, ticket, Outcome::Failed);
            return self.reply_of_store(server, life, says);
        }
        let loses_answer = happens(Site::StoreLoseAfter);
        let outcome = self.apply(partition, ownership, batch, &changes);
        let outcome = if loses_answer { Outcome::Unknown } else { outcome };
        self.reply_of_store(server, life, StoreSays::Answered(partition, ticket, outcome));
    }

    /// The store crashes in the middle of writing a batch; recovery must find that it is torn (F24).
    fn tear(&mut self, server: Proc, changes: &Arc<Vec<Change>>) {
        let frame = Store::frame(changes);
        let cut = self.choice.pick(Site::FaultTarget, server, frame.len() as u32) as usize;
        assert!(Store::unframe(&frame[..cut]).is_none(), "a torn batch was taken for a whole one");
        self.store.down_until = self.now + 500 + u64::from(self.choice.pick(Site::FaultTime, server, 8_000));
    }

    /// A commit of which nobody knows reaches the store after all.
    pub(crate) fn execute_late(&mut self, op: Op) {
        if let Op::Commit { partition, ownership, batch, changes, .. } = op
            && self.store.down_until <= self.now
            && self.apply(partition, ownership, batch, &changes) == Outcome::Durable
        {
            self.oracles.situations.saw(crate::situation::Situation::CommitFromThePast);
        }
    }

    fn apply(&mut self, partition: u16, ownership: Ownership, batch: Batch, changes: &[Change]) -> Outcome {
        let before = self.store.parts[usize::from(partition)].batch;
        let outcome = self.store.commit(self.now, partition, ownership, batch, changes);
        let is_new = outcome == Outcome::Durable && batch > before;
        self.note([u64::from(partition), batch.get(), u64::from(is_new)]);
        if is_new {
            self.oracles.applied(partition, ownership, batch);
        }
        if outcome == Outcome::Fenced {
            self.oracles.situations.saw(crate::situation::Situation::CommitFenced);
        }
        outcome
    }
}
