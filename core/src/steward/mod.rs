//! The Steward: which partitions a server takes, keeps and gives up. It never compares two clocks: another server is
//! silent while its count of beats does not change, and that time is measured on this server's monotonic clock.
//!
//! Fair with few moves: whoever has less than a fair share takes what is free; whoever has more gives one up at a time, and
//! whoever has the most gives one up while somebody has less and nothing is free; nobody else moves anything. Being wrong about who lives costs a move, never safety: the store
//! gives each owner a fencing number and refuses the commits of all earlier ones (S11).

pub mod command;
pub mod effect;
pub mod invariants;
pub mod lifecycle;
pub mod memory;

use crate::id::{Ownership, ServerId};
use crate::lifecycle::Lifecycle;
use crate::mix::fold;
use crate::time::{Deadline, Now, Reason, Time};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use command::{Input, Owned, Survey};
use effect::Order;
use lifecycle::{Hold, HoldStep};

/// How a Steward works. Every bound has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How many partitions there are, from number 0 on.
    pub partitions: u16,
    /// How often this server shows itself.
    pub beat_ms: u64,
    /// How often it looks around.
    pub survey_ms: u64,
    /// How long another server may be silent before its partitions are taken.
    pub dead_ms: u64,
    /// How long the store may take to answer before it is asked again.
    pub ask_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { partitions: 16, beat_ms: 1_000, survey_ms: 1_000, dead_ms: 5_000, ask_ms: 3_000 }
    }
}

/// Decides what a server owns.
#[derive(Debug, Clone)]
pub struct Steward {
    server: ServerId,
    settings: Settings,
    partitions: Vec<Partition>,
    servers: BTreeMap<ServerId, Neighbour>,
    beat: u64,
    next_beat: u64,
    next_survey: u64,
    last_survey: Option<u64>,
    leaving: bool,
    gone: bool,
}

/// What is known of one partition.
#[derive(Debug, Clone, Copy)]
struct Partition {
    hold: Hold,
    /// The fencing number it is held under here.
    ownership: Ownership,
    owner: Option<ServerId>,
    /// The last fencing number given out, as the last survey showed it.
    seen: Ownership,
    /// How long it has had no living owner, as far as was watched.
    free_ms: u64,
    /// The number that was seen when it was last asked for: an answer that is not above it is to an earlier try.
    asked: Ownership,
    /// Until when the store may answer.
    ask_until: u64,
}

/// What is known of another server.
#[derive(Debug, Clone, Copy)]
struct Neighbour {
    beat: u64,
    leaving: bool,
    /// How long its count has not changed, as far as was watched.
    silent_ms: u64,
}

impl Steward {
    /// The Steward of a server that owns nothing yet.
    pub fn new(server: ServerId, settings: Settings) -> Self {
        let fresh = Partition {
            hold: Hold::Foreign,
            ownership: Ownership::default(),
            owner: None,
            seen: Ownership::default(),
            free_ms: 0,
            asked: Ownership::default(),
            ask_until: u64::MAX,
        };
        Self {
            server,
            settings,
            partitions: alloc::vec![fresh; usize::from(settings.partitions)],
            servers: BTreeMap::new(),
            beat: 0,
            next_beat: 0,
            next_survey: 0,
            last_survey: None,
            leaving: false,
            gone: false,
        }
    }

    /// What happened, and what must follow.
    pub fn handle(&mut self, now: Now, input: Input, out: &mut Vec<Order>) {
        if self.gone {
            return;
        }
        match input {
            Input::Surveyed(survey) => self.surveyed(now.mono, survey, out),
            Input::Took { partition, ownership } => self.took(partition, ownership, out),
            Input::Freed { partition, ownership } => self.freed(partition, ownership),
            Input::Released { partition, ownership } => self.released(now.mono, partition, ownership, out),
            Input::Lost { partition, ownership } => self.lost(partition, ownership),
            Input::Leave => self.leave(now.mono, out),
            Input::Pulse => {}
        }
        self.ask_again(now.mono, out);
        self.show_and_look(now.mono, out);
        if self.leaving && self.partitions.iter().all(|partition| partition.hold == Hold::Foreign) {
            self.gone = true;
            out.push(Order::Gone);
        }
    }

    /// When to call again, and why.
    pub fn next_deadline(&self) -> Option<Deadline> {
        if self.gone {
            return None;
        }
        let asked = self.partitions.iter().map(|partition| (partition.ask_until, Reason::AskAgain));
        let own = [(self.next_beat, Reason::Beat), (self.next_survey, Reason::Survey)];
        let (mono, reason) = asked.chain(own).min()?;
        Some(Deadline { at: Time::from_ms(mono), mono, reason })
    }

    /// How this server stands with each partition.
    pub fn holds(&self) -> impl Iterator<Item = (u16, Hold, Ownership)> + '_ {
        self.partitions.iter().zip(0..).map(|(one, number)| (number, one.hold, one.ownership))
    }

    /// Who has a partition, as far as is known here.
    pub fn owner(&self, partition: u16) -> Option<ServerId> {
        self.partitions.get(usize::from(partition)).and_then(|partition| partition.owner)
    }

    fn partition(&mut self, number: u16) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::from(number))
    }

    fn took(&mut self, number: u16, got: Option<Ownership>, out: &mut Vec<Order>) {
        let me = self.server;
        let Some(partition) = self.partition(number) else { return };
        if partition.hold != Hold::Taking {
            return;
        }
        match got {
            // An answer to an earlier try, which was overtaken.
            Some(ownership) if ownership <= partition.asked => {}
            Some(ownership) if ownership >= partition.seen => {
                partition.step(HoldStep::Win);
                (partition.ownership, partition.seen) = (ownership, ownership);
                partition.owner = Some(me);
                out.push(Order::Open { partition: number, ownership });
                if self.leaving {
                    self.close(number, out);
                }
            }
            None | Some(_) => partition.step(HoldStep::Miss),
        }
    }

    fn close(&mut self, number: u16, out: &mut Vec<Order>) {
        if let Some(partition) = self.partition(number)
            && partition.hold == Hold::Held
        {
            partition.step(HoldStep::Close);
            out.push(Order::Close { partition: number });
        }
    }

    fn freed(&mut self, number: u16, ownership: Ownership) {
        let Some(partition) = self.partition(number) else { return };
        if partition.hold == Hold::Freeing && partition.ownership == ownership {
            partition.step(HoldStep::Free);
            partition.owner = None;
        }
    }

    fn released(&mut self, mono: u64, number: u16, ownership: Ownership, out: &mut Vec<Order>) {
        let ask_until = mono + self.settings.ask_ms;
        let Some(partition) = self.partition(number) else { return };
        if partition.hold == Hold::Closing && partition.ownership == ownership {
            partition.step(HoldStep::Release);
            partition.ask_until = ask_until;
            out.push(Order::Free { partition: number, ownership });
        }
    }

    fn lost(&mut self, number: u16, ownership: Ownership) {
        let Some(partition) = self.partition(number) else { return };
        if matches!(partition.hold, Hold::Held | Hold::Closing) && partition.ownership == ownership {
            partition.step(HoldStep::Lose);
        }
    }

    fn leave(&mut self, mono: u64, out: &mut Vec<Order>) {
        if !core::mem::replace(&mut self.leaving, true) {
            self.next_beat = mono;
            let held: Vec<u16> =
                self.holds().filter(|(_, hold, _)| *hold == Hold::Held).map(|(n, ..)| n).collect();
            held.into_iter().for_each(|number| self.close(number, out));
        }
    }

    /// The store did not answer. Whether it gave a partition to this server, the next survey shows; what this server gives
    /// up nobody else can take while it lives, so that is said again until the store knows.
    fn ask_again(&mut self, mono: u64, out: &mut Vec<Order>) {
        let ask_until = mono + self.settings.ask_ms;
        let late = self.partitions.iter_mut().zip(0..).filter(|(partition, _)| partition.ask_until <= mono);
        for (partition, number) in late {
            match partition.hold {
                Hold::Taking => partition.step(HoldStep::Miss),
                Hold::Freeing => {
                    partition.ask_until = ask_until;
                    out.push(Order::Free { partition: number, ownership: partition.ownership });
                }
                Hold::Foreign | Hold::Held | Hold::Closing => partition.ask_until = u64::MAX,
            }
        }
    }

    fn show_and_look(&mut self, mono: u64, out: &mut Vec<Order>) {
        if self.next_beat <= mono {
            self.beat += 1;
            self.next_beat = mono + self.settings.beat_ms;
            out.push(Order::Beat { beat: self.beat, leaving: self.leaving });
        }
        if self.next_survey <= mono {
            self.next_survey = mono + self.settings.survey_ms;
            out.push(Order::Survey);
        }
    }

    fn surveyed(&mut self, mono: u64, survey: Option<Survey>, out: &mut Vec<Order>) {
        let Some(survey) = survey else { return };
        // Time in which nobody looked is no silence of others: at most two looks' worth counts.
        let watched = self.last_survey.map_or(0, |last| mono.saturating_sub(last));
        let watched = watched.min(2 * self.settings.survey_ms);
        self.last_survey = Some(mono);
        self.hear(&survey, watched);
        for owned in &survey.partitions {
            self.look_at(owned, out);
        }
        let free: Vec<bool> = self.partitions.iter().map(|partition| self.is_free(partition)).collect();
        for (partition, is_free) in self.partitions.iter_mut().zip(&free) {
            partition.free_ms = if *is_free { partition.free_ms + watched } else { 0 };
        }
        self.balance(mono, &free, out);
    }

    /// Counts how long each server has been silent. Owners that no longer show themselves count as well.
    fn hear(&mut self, survey: &Survey, watched: u64) {
        let mut heard = BTreeMap::new();
        let beats = survey.servers.iter().map(|one| (one.server, one.beat, one.leaving));
        let owners = survey.partitions.iter().filter_map(|owned| owned.owner).map(|owner| (owner, 0, false));
        for (server, beat, leaving) in beats.chain(owners).filter(|(server, ..)| *server != self.server) {
            let before = self.servers.get(&server).filter(|before| before.beat == beat);
            let silent_ms = before.map_or(0, |before| before.silent_ms + watched);
            heard.entry(server).or_insert(Neighbour { beat, leaving, silent_ms });
        }
        self.servers = heard;
    }

    fn look_at(&mut self, owned: &Owned, out: &mut Vec<Order>) {
        let me = self.server;
        let Some(partition) = self.partition(owned.partition) else { return };
        if owned.ownership < partition.seen {
            return;
        }
        (partition.owner, partition.seen) = (owned.owner, owned.ownership);
        let is_mine = owned.owner == Some(me) && owned.ownership == partition.ownership;
        let was_held = partition.hold == Hold::Held;
        if !is_mine && matches!(partition.hold, Hold::Held | Hold::Closing | Hold::Freeing) {
            partition.step(HoldStep::Lose);
        }
        if !is_mine && was_held {
            // Its Shard would find out with its next commit; if it has none to make, it would sit there for ever.
            out.push(Order::Close { partition: owned.partition });
        }
    }

    fn is_alive(&self, server: ServerId) -> bool {
        self.servers.get(&server).is_some_and(|one| one.silent_ms < self.settings.dead_ms)
    }

    /// True if nobody who lives has it, and this server does not try to.
    fn is_free(&self, partition: &Partition) -> bool {
        let has_owner = |owner: ServerId| owner != self.server && self.is_alive(owner);
        partition.hold == Hold::Foreign && !partition.owner.is_some_and(has_owner)
    }

    /// Takes what is free while this server has less than its share; gives one up while it has more than that, or while
    /// it has the most, another has less than a fair share and there is nothing free for that one to take.
    fn balance(&mut self, mono: u64, free: &[bool], out: &mut Vec<Order>) {
        if self.leaving {
            return;
        }
        let counts = self.counts();
        let mine = self.mine();
        let sharers = counts.len() + 1;
        let (low, high) = (self.partitions.len() / sharers, self.partitions.len().div_ceil(sharers));
        let somebody_lacks = counts.values().any(|count| *count < low);
        let share = if somebody_lacks { low } else { high };
        let patience = self.settings.dead_ms;
        let mut wanted: Vec<u16> = (0..self.settings.partitions).filter(|n| free[usize::from(*n)]).collect();
        wanted.sort_unstable_by_key(|number| self.preference(*number));
        // What nobody took for long is taken beyond the share, one at a time: else all would rush for all of it.
        let (mut room, mut beyond) = (share.saturating_sub(mine), 1);
        for number in wanted {
            let is_left_over = self.partitions[usize::from(number)].free_ms >= patience;
            if room > 0 {
                room -= 1;
            } else if is_left_over && beyond > 0 {
                beyond -= 1;
            } else {
                continue;
            }
            self.take(mono, number, out);
        }
        let most = counts.iter().map(|(server, count)| (*count, *server)).max();
        let has_most = most.is_none_or(|most| (mine, self.server) > most);
        if mine > high || (mine > low && somebody_lacks && has_most && !free.contains(&true)) {
            let held = self.holds().filter(|(_, hold, _)| *hold == Hold::Held).map(|(number, ..)| number);
            if let Some(number) = held.max_by_key(|number| self.preference(*number)) {
                self.close(number, out);
            }
        }
    }

    /// How many partitions every other living server has that does not leave.
    fn counts(&self) -> BTreeMap<ServerId, usize> {
        let alive = self.servers.iter().filter(|(server, one)| self.is_alive(**server) && !one.leaving);
        let mut counts: BTreeMap<ServerId, usize> = alive.map(|(server, _)| (*server, 0)).collect();
        for owner in self.partitions.iter().filter_map(|partition| partition.owner) {
            if let Some(count) = counts.get_mut(&owner) {
                *count += 1;
            }
        }
        counts
    }

    fn mine(&self) -> usize {
        self.partitions.iter().filter(|one| matches!(one.hold, Hold::Held | Hold::Taking)).count()
    }

    /// Servers look for partitions in different orders, so that they seldom want the same one.
    fn preference(&self, partition: u16) -> u64 {
        let (hi, lo) = self.server.halves();
        fold(&[hi, lo, u64::from(partition)])
    }

    fn take(&mut self, mono: u64, number: u16, out: &mut Vec<Order>) {
        let ask_until = mono + self.settings.ask_ms;
        let Some(partition) = self.partition(number) else { return };
        partition.step(HoldStep::Take);
        (partition.ask_until, partition.asked) = (ask_until, partition.seen);
        out.push(Order::Take { partition: number, seen: partition.seen });
    }
}

impl Partition {
    fn step(&mut self, step: HoldStep) {
        self.hold = self.hold.next(step);
        self.ask_until = u64::MAX;
    }
}
