//! A client: it submits, cancels, sends, looks and repeats itself, and remembers what it was told and when.

use crate::choice::Choice;
use crate::definitions::{STREAM, TRIGGER};
use crate::packet::{Ask, Packet, Proc, Reply, Told, What};
use crate::site::Site;
use std::collections::BTreeMap;
use tenure_core::coordinator::command::*;
use tenure_core::coordinator::effect::Answer;
use tenure_core::definition::{Definition, Edge};
use tenure_core::id::*;
use tenure_core::time::Time;
use tenure_core::value::Value;

macro_rules! ops {
    ($($name:ident,)*) => {
        /// What a client can ask for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[allow(missing_docs, reason = "each is the command of its name")]
        pub enum Op { $($name,)* }

        impl Op {
            /// All of them, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

ops! {
    Submit, SubmitAgain, SubmitOther, Cancel, Pause, Continue, Retry, Wake, Send, SendAgain, EndStream, Look, Define,
    SetAlias, Drain, Deregister,
}

/// How long a client waits for an answer before it asks again.
const PATIENCE_MS: u64 = 4_000;
/// How often it asks in all.
const TRIES: u32 = 6;

/// Something that was asked and not answered.
#[derive(Debug, Clone)]
struct Open {
    partition: u16,
    what: What,
    /// When it was first asked.
    began: u64,
    tries: u32,
    again_at: u64,
}

/// A run that a client knows of.
#[derive(Debug, Clone, Copy)]
pub struct KnownRun {
    /// Which.
    pub run: RunId,
    /// Of which definition.
    pub definition: usize,
}

/// Something that was asked and answered: what linearizability is checked on.
#[derive(Debug, Clone)]
pub struct Answered {
    /// When it was first asked, in true time.
    pub began: u64,
    /// When the answer came.
    pub ended: u64,
    /// What was asked.
    pub what: What,
    /// What was answered.
    pub reply: Reply,
}

/// A client.
#[derive(Debug, Clone)]
pub struct Client {
    proc: Proc,
    requests: u64,
    open: BTreeMap<RequestId, Open>,
    /// The runs it knows of, newest last.
    pub runs: Vec<KnownRun>,
    submits: Vec<(u16, Box<Submit>, usize)>,
    sends: Vec<(RunId, SendCommand)>,
    stream_sent: BTreeMap<RunId, u64>,
    asked: u32,
    keys: u64,
}

/// What a client may look at and write to while it acts.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// The source of choice.
    pub choice: &'a mut Choice,
    /// True time.
    pub now: u64,
    /// How many servers there are.
    pub servers: usize,
    /// Machine time of each partition, as an edge would stamp it.
    pub times: &'a [Time],
    /// How many workers are known by id.
    pub workers: usize,
    /// What it sends, and to whom.
    pub out: &'a mut Vec<(Proc, Packet)>,
}

/// The tenant of everybody.
pub const TENANT: TenantId = TenantId::new(7);

/// Marks the payload of a message that kills whoever takes it.
pub const POISON: u64 = 1 << 40;

/// A payload that says this.
pub fn value(says: u64) -> Value {
    Value::inline(ContentHash::new(u128::from(says) + 1), 8)
}

/// Which definition a run is of, as its input tells whoever executes it.
pub fn definition_of(input: &Value) -> usize {
    ((input.hash.value().saturating_sub(1)) >> 48) as usize
}

/// The id of a worker.
pub fn worker_id(index: usize) -> WorkerId {
    WorkerId::new(1_000 + index as u128)
}

fn nothing(reply: &Reply) -> bool {
    matches!(reply, Reply::NotTaken(_))
}

impl Client {
    /// A client that knows nothing.
    pub fn new(proc: Proc) -> Self {
        Self {
            proc,
            requests: 0,
            open: BTreeMap::new(),
            runs: Vec::new(),
            submits: Vec::new(),
            sends: Vec::new(),
            stream_sent: BTreeMap::new(),
            asked: 0,
            keys: 0,
        }
    }

    /// How often it has asked for something new.
    pub fn asked(&self) -> u32 {
        self.asked
    }

    /// True if it waits for no answer.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// When it will lose patience.
    pub fn next_deadline(&self) -> Option<u64> {
        self.open.values().map(|open| open.again_at).min()
    }

    /// Adds the definitions to every partition.
    pub fn begin(&mut self, definitions: &[Definition], partitions: u16, around: &mut Surroundings<'_>) {
        for partition in 0..partitions {
            for (n, definition) in definitions.iter().enumerate() {
                let hash = ContentHash::new(n as u128 + 1);
                let command = Command::Define { definition: Box::new(definition.clone()), hash };
                self.ask(partition, What::Command(command), around);
            }
        }
    }

    fn ask(&mut self, partition: u16, what: What, around: &mut Surroundings<'_>) {
        let open = Open { partition, what, began: around.now, tries: 0, again_at: 0 };
        self.send(open, around);
    }

    fn send(&mut self, mut open: Open, around: &mut Surroundings<'_>) {
        self.requests += 1;
        let request = RequestId::new((self.proc as u64) << 40 | self.requests);
        let server = around.choice.pick(Site::ClientServer, self.proc, around.servers as u32) as usize;
        let server = (server + open.tries as usize) % around.servers;
        let ask =
            Ask { asker: self.proc, request, partition: open.partition, hops: 0, what: open.what.clone() };
        around.out.push((server, Packet::Ask(ask)));
        open.tries += 1;
        open.again_at = around.now + PATIENCE_MS;
        self.open.insert(request, open);
    }

    /// Asks again what was not answered, or gives up: then nobody knows.
    pub fn lose_patience(&mut self, around: &mut Surroundings<'_>) {
        let due = self.open.iter().filter(|(_, open)| open.again_at <= around.now);
        let due: Vec<RequestId> = due.map(|(request, _)| *request).collect();
        for request in due {
            let Some(open) = self.open.remove(&request) else { continue };
            let is_setup = matches!(open.what, What::Command(Command::Define { .. }));
            if may_repeat(&open.what) && (open.tries < TRIES || is_setup) {
                self.send(open, around);
            }
        }
    }

    /// An answer came.
    pub fn told(&mut self, told: Told, around: &mut Surroundings<'_>) -> Option<Answered> {
        let open = self.open.get_mut(&told.request)?;
        if nothing(&told.reply) && open.tries < TRIES {
            open.again_at = around.now + 200 * u64::from(open.tries);
            return None;
        }
        let open = self.open.remove(&told.request)?;
        if let (What::Command(Command::Submit(submit)), Reply::Decided(Ok(Answer::Submitted { run, .. }))) =
            (&open.what, &told.reply)
        {
            self.remember(*run, open.partition, submit);
        }
        Some(Answered { began: open.began, ended: around.now, what: open.what, reply: told.reply })
    }

    fn remember(&mut self, run: RunId, partition: u16, submit: &Submit) {
        let of_submit = |(at, known, _): &&(u16, Box<Submit>, usize)| *at == partition && **known == *submit;
        let definition = self.submits.iter().find(of_submit).map_or(0, |(.., definition)| *definition);
        if !self.runs.iter().any(|known| known.run == run) {
            self.runs.push(KnownRun { run, definition });
        }
    }

    /// Asks for whatever comes to mind, by the weights of its world.
    pub fn act(&mut self, weights: &[u32], definitions: &[Definition], around: &mut Surroundings<'_>) {
        let total: u32 = weights.iter().sum();
        let mut pick = around.choice.pick(Site::ClientOp, self.proc, total + 1);
        if pick == 0 {
            return;
        }
        pick -= 1;
        let at = weights.iter().position(|weight| {
            let is_here = pick < *weight;
            pick = pick.saturating_sub(*weight);
            is_here
        });
        let Some(op) = at.and_then(|at| Op::ALL.get(at)) else { return };
        self.asked += 1;
        if let Some((partition, what)) = self.think(*op, definitions, around) {
            self.ask(partition, what, around);
        }
    }

    /// Asks everything again that is open: a storm of retries (F59).
    pub fn storm(&mut self, around: &mut Surroundings<'_>) {
        let open: Vec<Open> = self.open.values().filter(|open| may_repeat(&open.what)).cloned().collect();
        for open in open.into_iter().take(20) {
            self.send(open.clone(), around);
            self.send(open, around);
        }
    }

    fn arg(&self, bound: usize, around: &mut Surroundings<'_>) -> usize {
        around.choice.pick(Site::ClientArg, self.proc, bound as u32) as usize
    }

    /// One of the runs it knows, the newest most of the time.
    fn some_run(&self, around: &mut Surroundings<'_>) -> Option<KnownRun> {
        let back = self.arg(self.runs.len().min(12), around);
        self.runs.len().checked_sub(back + 1).map(|at| self.runs[at])
    }

    fn think(
        &mut self,
        op: Op,
        definitions: &[Definition],
        around: &mut Surroundings<'_>,
    ) -> Option<(u16, What)> {
        let command = match op {
            Op::Submit => return Some(self.submit(definitions, around)),
            Op::SubmitAgain | Op::SubmitOther => return self.submit_again(op, around),
            Op::Look => {
                let run = self.some_run(around)?.run;
                return Some((run.partition(), What::Look(run)));
            }
            Op::Cancel => Command::Cancel(self.on_run(around)?),
            Op::Pause => Command::Pause(self.on_run(around)?),
            Op::Continue => Command::Continue(self.on_run(around)?),
            Op::Retry => Command::Retry(self.on_run(around)?),
            Op::Wake => {
                let run = self.some_run(around)?.run;
                Command::Wake { run, node: NodeIx::new(self.arg(3, around) as u32) }
            }
            Op::Send => return self.send_message(around),
            Op::SendAgain => {
                let (run, mut again) = *self.sends.last()?;
                if self.arg(4, around) == 3 {
                    again.value = value(99);
                }
                return Some((run.partition(), What::Command(Command::Send(Box::new(again)))));
            }
            Op::EndStream => return self.end_stream(around),
            Op::Define => return Some(self.define(definitions, around)),
            Op::SetAlias => {
                let definition = definitions[self.arg(definitions.len(), around)].name.clone();
                let version = DefinitionVersion::new(1 + self.arg(2, around) as u32);
                let command = Command::SetAlias { definition, alias: "stable".into(), version };
                return Some((self.arg(around.times.len(), around) as u16, What::Command(command)));
            }
            Op::Drain => {
                let worker = worker_id(self.arg(around.workers, around));
                let command = Command::Drain { worker, on: self.arg(3, around) == 2 };
                return Some((self.arg(around.times.len(), around) as u16, What::Command(command)));
            }
            Op::Deregister => {
                let worker = worker_id(self.arg(around.workers, around));
                let command = Command::Deregister { worker, incarnation: None };
                return Some((self.arg(around.times.len(), around) as u16, What::Command(command)));
            }
        };
        let partition = match &command {
            Command::Cancel(on) | Command::Pause(on) | Command::Continue(on) | Command::Retry(on) => {
                on.run.partition()
            }
            Command::Wake { run, .. } => run.partition(),
            _ => 0,
        };
        Some((partition, What::Command(command)))
    }

    fn on_run(&self, around: &mut Surroundings<'_>) -> Option<OnRun> {
        let run = self.some_run(around)?.run;
        let if_version = (self.arg(8, around) == 7).then(|| Version::new(self.arg(12, around) as u64));
        Some(OnRun { run, if_version })
    }

    fn submit(&mut self, definitions: &[Definition], around: &mut Surroundings<'_>) -> (u16, What) {
        let partition = self.arg(around.times.len(), around);
        let definition = self.arg(definitions.len(), around);
        self.keys += 1;
        let unique = (self.proc as u64) << 32 | self.keys;
        let input = value((definition as u64) << 48 | unique);
        let mut submit = Box::new(Submit::new(&definitions[definition].name, input, unique));
        let key = KeyHash::new(u128::from(unique) << 64 | u128::from(unique));
        let fingerprint = ContentHash::new(u128::from(unique));
        submit.key = Some(SubmitKey { key, fingerprint, minted_at: around.times[partition] });
        submit.priority = [128, 0, 200, 255][self.arg(4, around)];
        submit.notify = self.arg(4, around) == 3;
        if self.arg(4, around) == 3 {
            let key = KeyHash::new(self.arg(2, around) as u128 + 1);
            submit.concurrency = Some(Concurrency { key, limit: 1 + self.arg(2, around) as u32 });
        }
        submit.deadline_ms = (self.arg(16, around) == 15).then_some(30_000);
        self.submits.push((partition as u16, submit.clone(), definition));
        (partition as u16, What::Command(Command::Submit(submit)))
    }

    /// The same request under the same key, or another one, which must conflict.
    fn submit_again(&mut self, op: Op, around: &mut Surroundings<'_>) -> Option<(u16, What)> {
        let back = self.arg(self.submits.len().min(8), around);
        let at = self.submits.len().checked_sub(back + 1)?;
        let (partition, mut submit, _) = self.submits[at].clone();
        if op == Op::SubmitOther
            && let Some(key) = &mut submit.key
        {
            key.fingerprint = ContentHash::new(0xbad);
            submit.input = value(0xbad);
        }
        Some((partition, What::Command(Command::Submit(submit))))
    }

    fn send_message(&mut self, around: &mut Surroundings<'_>) -> Option<(u16, What)> {
        let wanted = |known: &&KnownRun| known.definition == STREAM || known.definition == TRIGGER;
        let targets: Vec<KnownRun> = self.runs.iter().rev().filter(wanted).take(4).copied().collect();
        let target = *targets.get(self.arg(targets.len(), around))?;
        let run = target.run;
        self.keys += 1;
        let poison = if around.choice.happens(Site::Poison, self.proc, 1_000) { POISON } else { 0 };
        let own = MessageKey::Own(MessageId::new(u128::from((self.proc as u64) << 32 | self.keys)));
        let (node, handle, id) = if target.definition == STREAM {
            let sent = self.stream_sent.entry(run).or_default();
            *sent += 1;
            (NodeIx::new(1), HandleIx::new(0), MessageKey::Stream { source: OUTSIDE_SOURCE, n: *sent })
        } else {
            (NodeIx::new(0), HandleIx::new(1), own)
        };
        let send = SendCommand { run, node, handle, id, value: value(self.keys | poison), cursor: None };
        self.sends.push((run, send));
        Some((run.partition(), What::Command(Command::Send(Box::new(send)))))
    }

    fn end_stream(&mut self, around: &mut Surroundings<'_>) -> Option<(u16, What)> {
        let streams: Vec<KnownRun> =
            self.runs.iter().rev().filter(|known| known.definition == STREAM).take(4).copied().collect();
        let run = streams.get(self.arg(streams.len(), around))?.run;
        let count = self.stream_sent.get(&run).copied().unwrap_or(0);
        let (node, handle) = (NodeIx::new(1), HandleIx::new(0));
        let command = Command::EndStream { run, node, handle, source: OUTSIDE_SOURCE, count };
        Some((run.partition(), What::Command(command)))
    }

    /// The next version of a definition, or one that is known.
    fn define(&mut self, definitions: &[Definition], around: &mut Surroundings<'_>) -> (u16, What) {
        let partition = self.arg(around.times.len(), around) as u16;
        let at = self.arg(definitions.len(), around);
        let change = self.arg(3, around) as u64;
        let mut definition = definitions[at].clone();
        let hash = ContentHash::new(at as u128 + 1 + (u128::from(change) << 32));
        if change == 1 {
            definition.nodes[0].work.retry.backoff_ms += 1;
        }
        if change == 2 {
            // A cycle, which must be refused (F47).
            let (first, last) =
                (definition.nodes[0].name.clone(), definition.nodes[definition.nodes.len() - 1].name.clone());
            definition.edges.extend([Edge::data(&first, &last), Edge::data(&last, &first)]);
        }
        (partition, What::Command(Command::Define { definition: Box::new(definition), hash }))
    }
}

/// The outside source of the stream definition; stream edges are numbered after the declared ones.
pub const OUTSIDE_SOURCE: u16 = 0;

/// True if asking twice is as good as asking once.
fn may_repeat(what: &What) -> bool {
    match what {
        What::Look(_) => true,
        What::Command(Command::Submit(submit)) => submit.key.is_some(),
        // A repeat of these could undo what somebody else asked for in between.
        What::Command(
            Command::Pause(_) | Command::Continue(_) | Command::Retry(_) | Command::Drain { .. },
        ) => false,
        What::Command(_) => true,
    }
}
