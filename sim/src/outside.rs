//! The outside: whoever is told of ended runs, and the source of the events that triggers register for.

use crate::client::value;
use crate::packet::{Packet, Proc};
use crate::site::Site;
use crate::world::World;
use std::collections::BTreeMap;
use tenure_core::coordinator::command::{Command, MessageKey, SendCommand};
use tenure_core::coordinator::event::Outcome;
use tenure_core::coordinator::invariants::Violation;
use tenure_core::id::*;

/// Events that a source sends to one handle at the most.
const EVENTS: u64 = 5;

/// A subscription: events go to a handle.
#[derive(Debug, Clone, Copy)]
struct Subscription {
    node: NodeIx,
    handle: HandleIx,
    /// The next event.
    next: u64,
    sent: u64,
}

/// The outside.
#[derive(Debug, Clone)]
pub struct Outside {
    proc: Proc,
    subscriptions: BTreeMap<RunId, Subscription>,
    requests: u64,
    /// What it was told of each run.
    told: BTreeMap<RunId, Vec<Outcome>>,
    /// It does not answer until then.
    pub down_until: u64,
}

impl Outside {
    /// An outside that knows nothing.
    pub fn new(proc: Proc) -> Self {
        Self { proc, subscriptions: BTreeMap::new(), requests: 0, told: BTreeMap::new(), down_until: 0 }
    }
}

impl World {
    pub(crate) fn outside_packet(&mut self, packet: Packet) {
        match packet {
            Packet::Register { run, node, handle, after } => {
                let next = after.map_or(1, |after| after + 1);
                let fresh = Subscription { node, handle, next, sent: 0 };
                let known = self.outside.subscriptions.entry(run).or_insert(fresh);
                known.next = known.next.min(next.max(1));
            }
            Packet::Ended { server, partition, id, run, outcome } if self.outside.down_until <= self.now => {
                let told = self.outside.told.entry(run).or_default();
                if told.last() != Some(&outcome) {
                    told.push(outcome);
                }
                let known = self.store.past.contains_key(&run);
                if !known {
                    self.hold(Err(Violation {
                        number: "S45",
                        sentence: "an answer leaves only after the rows behind it are durable",
                        facts: format!("the outside was told that run {run} ended, which was never stored"),
                    }));
                }
                let from = self.outside.proc;
                self.send(from, server, Packet::EndedTaken(partition, id));
            }
            _ => {}
        }
    }

    /// Sends the next event of every subscription; events are numbered by their cursor and may be sent twice.
    pub(crate) fn outside_acts(&mut self) {
        let proc = self.outside.proc;
        if self.choice.happens(Site::SinkDown, proc, self.config.rate(Site::SinkDown)) {
            self.outside.down_until = self.now + 60_000;
        }
        let mut sends = Vec::new();
        for (run, subscription) in &mut self.outside.subscriptions {
            let goes = self.choice.pick(Site::ClientOp, proc, 3) != 0;
            if goes && subscription.sent < 2 * EVENTS && subscription.next <= EVENTS {
                let cursor = subscription.next;
                let again = self.choice.pick(Site::ClientArg, proc, 4) == 3;
                subscription.next += u64::from(!again);
                subscription.sent += 1;
                let id = MessageKey::Own(MessageId::new(u128::from(cursor) << 64 | u128::from(run.number())));
                let (node, handle) = (subscription.node, subscription.handle);
                let value = value(cursor);
                sends.push(SendCommand { run: *run, node, handle, id, value, cursor: Some(cursor) });
            }
        }
        for send in sends {
            self.outside.requests += 1;
            let request = RequestId::new((proc as u64) << 40 | self.outside.requests);
            self.ask(proc, send.run.partition(), request, Command::Send(Box::new(send)));
        }
    }
}
