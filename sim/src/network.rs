//! The network: who can hear whom, how long a message takes, and what becomes of it on the way.

use crate::packet::{Ask, Packet, Proc, What};
use crate::site::Site;
use crate::world::{Event, World};
use tenure_core::coordinator::command::Command;
use tenure_core::id::RequestId;

/// Who can hear whom.
#[derive(Debug, Clone)]
pub struct Network {
    cuts: Vec<Cut>,
    cut_count: u32,
}

/// Messages from one group to another are lost, or slow.
#[derive(Debug, Clone)]
struct Cut {
    number: u32,
    from: u64,
    to: u64,
    both_ways: bool,
    delay_ms: Option<u64>,
}

impl Network {
    /// Everybody hears everybody.
    pub fn new(procs: usize) -> Self {
        assert!(procs < 64, "groups are sets of 64 bits");
        Self { cuts: Vec::new(), cut_count: 0 }
    }

    /// From now on `from` does not reach `to`, or takes this much longer. The number heals it.
    pub(crate) fn cut(&mut self, from: u64, to: u64, both_ways: bool, delay_ms: Option<u64>) -> u32 {
        self.cut_count += 1;
        self.cuts.push(Cut { number: self.cut_count, from, to, both_ways, delay_ms });
        self.cut_count
    }

    pub(crate) fn heal(&mut self, number: u32) {
        self.cuts.retain(|cut| cut.number != number);
    }

    pub(crate) fn heal_all(&mut self) {
        self.cuts.clear();
    }

    /// How much longer a message takes; none if it does not arrive.
    fn delay(&self, from: Proc, to: Proc) -> Option<u64> {
        let (from, to) = (1_u64 << from, 1_u64 << to);
        let mut delay = 0;
        for cut in &self.cuts {
            let forth = cut.from & from != 0 && cut.to & to != 0;
            let back = cut.both_ways && cut.from & to != 0 && cut.to & from != 0;
            if forth || back {
                delay += cut.delay_ms?;
            }
        }
        Some(delay)
    }
}

/// Longer than any lease.
const MUCH_LATER_MS: u64 = 70_000;

impl World {
    /// Sends a message, whatever becomes of it.
    pub(crate) fn send(&mut self, from: Proc, to: Proc, packet: Packet) {
        let latency = 1 + u64::from(self.choice.pick(Site::NetLatency, from, self.config.latency_ms));
        if from == to {
            return self.after(1, Event::Arrive { to, packet: Box::new(packet) });
        }
        let Some(delay) = self.network.delay(from, to) else { return };
        let mut happens = |site: Site| self.choice.happens(site, from, self.config.rates[site as usize]);
        // A damaged message is found by its frame check and is as good as lost.
        if happens(Site::NetLose) || happens(Site::NetCorrupt) {
            return;
        }
        let tail = if happens(Site::NetTail) { 25 * latency } else { 0 };
        let twice = happens(Site::NetDuplicate);
        let replay = happens(Site::NetReplay);
        if twice {
            let packet = Box::new(packet.clone());
            self.after(latency * 2 + delay, Event::Arrive { to, packet });
        }
        if replay {
            let packet = Box::new(packet.clone());
            self.after(MUCH_LATER_MS, Event::Arrive { to, packet });
        }
        self.after(latency + delay + tail, Event::Arrive { to, packet: Box::new(packet) });
    }

    /// Asks the owner of a partition, over any server.
    pub(crate) fn ask(&mut self, asker: Proc, partition: u16, request: RequestId, command: Command) {
        let server = self.choice.pick(Site::ClientServer, asker, self.config.servers as u32) as usize;
        let ask = Ask { asker, request, partition, hops: 0, what: What::Command(command) };
        self.send(asker, server, Packet::Ask(ask));
    }
}
