//! Stories of Stewards: servers over one table, told as the stories of the Coordinator are.
//!
//! A script is read as [`crate::scenario`] reads its own. Orders are carried out and answered at once, unless a line says
//! otherwise; Shards open and let go at once. Output: `@` when it was, then who did what. Beats and looks around are not told.
//!
//! ```text
//!   partitions 4                first line: how many there are
//!   start s1                    a server comes up
//!   at +1s                      time passes; every server is called when it is due
//!   freeze s1, thaw s1          it does nothing for a while; its clock runs on
//!   kill s1, leave s1           it is gone at once; it gives everything up first
//!   lost s1 2                   the Shard of a partition lost its memory
//!   drop take|free|survey|beat s1
//!                               the next such order never reaches the store
//!   mute take|free s1           the next such order is done, and its answer is lost
//!   table                       what the store says
//! ```

use crate::scenario::{pieces, time_text, words};
use std::collections::BTreeMap;
use tenure_core::Steward;
use tenure_core::id::{Ownership, ServerId};
use tenure_core::steward::command::Input;
use tenure_core::steward::effect::Order;
use tenure_core::steward::memory::MemoryTable;
use tenure_core::steward::{Settings, invariants};
use tenure_core::time::Now;

struct Server {
    steward: Steward,
    frozen: bool,
    /// Orders that get lost, and orders whose answers do.
    drops: Vec<String>,
    mutes: Vec<String>,
}

struct World {
    settings: Settings,
    servers: BTreeMap<ServerId, Server>,
    table: MemoryTable,
    now: u64,
    lines: Vec<String>,
    told_at: Option<u64>,
}

/// Runs a script. Fails with the file, the line and what was wrong there.
pub fn tell(file: &str, script: &str) -> Result<String, String> {
    let mut world = World {
        settings: Settings::default(),
        servers: BTreeMap::new(),
        table: MemoryTable::default(),
        now: 0,
        lines: Vec::new(),
        told_at: None,
    };
    let mut text = String::new();
    for piece in pieces(script) {
        text += &piece.text;
        let Some((line, _)) = piece.command else { continue };
        world.told_at = None;
        world.act(line).map_err(|fault| format!("{file}:{}: {fault}\n    {line}", piece.number))?;
        for said in world.lines.drain(..) {
            text += &format!("  {said}\n");
        }
    }
    Ok(text)
}

fn server(name: &str) -> Result<ServerId, String> {
    let number = name.strip_prefix('s').and_then(|number| number.parse::<u32>().ok());
    number.map(|number| ServerId::new(number.into())).ok_or_else(|| format!("{name:?} is not like s1"))
}

fn kind(order: &Order) -> &'static str {
    match order {
        Order::Beat { .. } => "beat",
        Order::Survey => "survey",
        Order::Take { .. } => "take",
        Order::Free { .. } => "free",
        Order::Open { .. } | Order::Close { .. } | Order::Gone => "own",
    }
}

impl World {
    fn act(&mut self, line: &str) -> Result<(), String> {
        let said: Vec<&str> = line.split_whitespace().collect();
        match said[..] {
            ["partitions", count] if self.servers.is_empty() => {
                self.settings.partitions = words::number(count)?;
            }
            ["start", name] => {
                let (id, steward) = (server(name)?, Steward::new(server(name)?, self.settings));
                let fresh = Server { steward, frozen: false, drops: Vec::new(), mutes: Vec::new() };
                self.servers.insert(id, fresh);
                self.feed(id, Input::Pulse)?;
            }
            ["at", time] => {
                let time = time.strip_prefix('+').ok_or_else(|| format!("{time:?} does not begin with +"))?;
                self.pass(words::millis(time)?)?;
            }
            ["freeze", name] => self.server(name)?.frozen = true,
            ["thaw", name] => {
                self.server(name)?.frozen = false;
                self.feed(server(name)?, Input::Pulse)?;
            }
            ["kill", name] => drop(self.servers.remove(&server(name)?)),
            ["leave", name] => self.feed(server(name)?, Input::Leave)?,
            ["lost", name, partition] => {
                let partition = words::number(partition)?;
                let held = self.server(name)?.steward.holds().find(|(known, ..)| *known == partition);
                let ownership = held.map(|(.., ownership)| ownership).ok_or("there is no such partition")?;
                self.feed(server(name)?, Input::Lost { partition, ownership })?;
            }
            ["drop", what, name] => self.server(name)?.drops.push(what.into()),
            ["mute", what, name] => self.server(name)?.mutes.push(what.into()),
            ["table"] => self.show(),
            _ => return Err("that is not understood".into()),
        }
        Ok(())
    }

    fn server(&mut self, name: &str) -> Result<&mut Server, String> {
        self.servers.get_mut(&server(name)?).ok_or_else(|| format!("{name} does not run"))
    }

    fn pass(&mut self, ms: u64) -> Result<(), String> {
        let until = self.now + ms;
        loop {
            let running = self.servers.iter().filter(|(_, one)| !one.frozen);
            let due = running.filter_map(|(id, one)| Some((one.steward.next_deadline()?.mono, *id))).min();
            let Some((at, id)) = due.filter(|(at, _)| *at <= until) else {
                self.now = until;
                return Ok(());
            };
            self.now = self.now.max(at);
            self.feed(id, Input::Pulse)?;
        }
    }

    /// One turn of a Steward, and all that comes of it at once.
    fn feed(&mut self, id: ServerId, input: Input) -> Result<(), String> {
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let one = self.servers.get_mut(&id).ok_or("that server does not run")?;
            let mut orders = Vec::new();
            one.steward.handle(Now::new(self.now, 0), input, &mut orders);
            invariants::check(&one.steward).map_err(|violation| violation.to_string())?;
            for order in orders {
                inputs.extend(self.carry_out(id, order));
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, id: ServerId, order: Order) -> Option<Input> {
        let one = self.servers.get_mut(&id)?;
        let mut is_next = |list: fn(&mut Server) -> &mut Vec<String>| {
            let list = list(one);
            let at = list.iter().position(|what| what == kind(&order))?;
            Some(list.remove(at))
        };
        if is_next(|one| &mut one.drops).is_some() {
            self.say(format!("s{} {}, which never arrives", id.value(), told(&order, None)));
            return None;
        }
        let is_mute = is_next(|one| &mut one.mutes).is_some();
        let answer = self.table.carry_out(id, &order);
        if !matches!(order, Order::Beat { leaving: false, .. } | Order::Survey) {
            let got = match &answer {
                Some(Input::Took { ownership, .. }) => Some(*ownership),
                _ => None,
            };
            let mute = if is_mute { ", and the answer is lost" } else { "" };
            self.say(format!("s{} {}{mute}", id.value(), told(&order, got)));
        }
        match order {
            Order::Close { partition } => {
                let holds = self.servers.get(&id)?.steward.holds();
                let ownership =
                    holds.filter(|(known, ..)| *known == partition).map(|(.., own)| own).next()?;
                Some(Input::Released { partition, ownership })
            }
            _ => answer.filter(|_| !is_mute),
        }
    }

    fn say(&mut self, line: String) {
        if self.told_at != Some(self.now) {
            self.told_at = Some(self.now);
            self.lines.push(format!("@ {}", time_text(self.now)));
        }
        self.lines.push(line);
    }

    fn show(&mut self) {
        for owned in self.table.survey().partitions {
            let owner = owned.owner.map_or("nobody".into(), |owner| format!("s{}", owner.value()));
            self.lines.push(format!("{}: {owner}, number {}", owned.partition, owned.ownership));
        }
    }
}

fn told(order: &Order, got: Option<Option<Ownership>>) -> String {
    match order {
        Order::Beat { leaving, .. } => format!("beats{}", if *leaving { ", leaving" } else { "" }),
        Order::Survey => "looks around".into(),
        Order::Take { partition, seen } => match got {
            Some(Some(ownership)) => format!("takes {partition} under number {ownership}"),
            Some(None) => format!("is too late for {partition}, having seen number {seen}"),
            None => format!("asks for {partition}"),
        },
        Order::Free { partition, ownership } => format!("frees {partition} under number {ownership}"),
        Order::Open { partition, ownership } => format!("opens {partition} under number {ownership}"),
        Order::Close { partition } => format!("closes {partition}"),
        Order::Gone => "is gone".into(),
    }
}
