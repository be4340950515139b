//! Scenario scripts: stories that a machine must tell as they are written.
//!
//! A script is read line by line. A line that begins with `#` is a comment; a line that begins with two spaces is
//! expected output of the command before it; `|` continues a command; anything else is a command. Words are apart by
//! spaces, options look like `name=value`, lists like `a,b`, times like `500ms 30s 5m 1h 2d 10y`, `''` is the empty word.
//! `@t2 ` before a command makes it tenant t2's.
//!
//! Output: `-` what happened (the audit), `>` what must be done (effects), `=` the answer, `@` when a pulse came.
//! Epochs are e1, e2 and so on, incarnations i1, i2; both come from one counter.
//!
//! ```text
//! Around the machine
//!   limits poll=3 ..                      first line only: bounds other than the defaults
//!   at +30s                               time passes; a pulse at every deadline on the way
//!   clock +30s                            time passes, and nobody pulses
//!   wall -1h | wall +10y                  the wall clock alone is set
//!   crash [down=1h]                       the machine is lost and restored from its rows, then told to recover
//!   recover                               it is told to recover, without being lost
//!   show r1                               what the rows say of a run, history and late results included
//!   ghost r9 [partition=3]                names a run that does not exist
//! Definitions
//!   define d: a -> b, a -> c, b ~> d.in   data edges, and stream edges into a handle; `a, a` adds a node twice,
//!                                         `-> !x` names a node without adding it
//!   | b,c: ..                             of nodes: join=any|2 timer=5s push=10s lease= heartbeat= failures= losses= backoff=
//!                                         max_backoff= to_start= to_finish= progress= sticky preempts preemptible
//!                                         exec= cap=gpu:1,os:linux label= allow=w1 forbid=w2 parallel= relevant=
//!   | d.in: ..                            adds a handle: trigger capacity= claim= deliveries= sources=feed,tail
//!   | run: ..                             deadline= on_failure=continue scope=run, which takes options of nodes too
//!   alias d stable v1
//! Runs
//!   submit r1 d[@v1|@stable] [in=] [key= minted=] [priority=] [label=a:b] [concurrency=key:2] [deadline=] [claim=w1] [notify]
//!   cancel|pause|continue|retry r1 [if=version]
//!   wake r1.a
//!   send r1.a.in id=m1|source=feed n=1 [value=] [cursor=]
//!   end r1.a.in source=feed count=2
//!   ack 1 [refused]
//! Workers; what is left out is what the worker believes
//!   register w1 [slots=] [exec=] [cap=] [label=] [quality=] [rank=]
//!   heartbeat w1 [load=] [session=] [held=r1.a:e2|none] [inc=i1]
//!   reconcile w1 [held=]
//!   poll w1 [max=] [wait] [again|id=]     `again` repeats the last poll
//!   claim w1 r1.a [again|id=]
//!   drain|undrain w1, deregister w1 [inc=]
//! Reports; each takes epoch=e2 inc=i1 consume=in:3 stream=b.in:1:text post=r2.b.in:m1:text
//!   accept|decline|start|release w1 r1.a, delegate w1 r1.a to=w2
//!   receive w1 r1.a handle=in [max=], progress w1 r1.a 1/3, checkpoint w1 r1.a state=
//!   complete w1 r1.a [out=], fail w1 r1.a [final|payload_missing|payload_damaged] [why=] [poison=in:1]
//!   suspend w1 r1.a [state=] [on_message] [after=] [at_wall=] [reason=]
//!   report w1                             several in one command, each on a line: `| complete r1.a out=x`
//! ```
//!
//! A node, handle, source or edge that is not there is written `#7`. Between lines the rows must restore; from a
//! crash on, the lost machine is told the same as the restored one and must say the same; keys of grants must be as promised.

mod act;
mod define;
mod names;
mod print;
mod report;
mod store;
mod words;
mod world;

use std::collections::BTreeSet;
use tenure_core::limits::{LimitName, Limits};
use words::{Fault, number};
use world::World;

/// What came of a script.
#[derive(Debug)]
pub struct Told {
    /// The script with the output that its commands had.
    pub text: String,
    /// Refusals that were seen, as `Rejection::X` and `Ineligible::Y`.
    pub seen: BTreeSet<String>,
}

/// Runs a script. Fails with the file, the line and what was wrong there.
pub fn tell(file: &str, script: &str) -> Result<Told, String> {
    let lines: Vec<&str> = script.lines().collect();
    let mut world = World::new(Limits::default()).map_err(|fault| format!("{file}:1: {fault}"))?;
    let (mut text, mut at, mut is_first) = (String::new(), 0, true);
    while at < lines.len() {
        let (line, number) = (lines[at].trim_end(), at + 1);
        at += 1;
        if line.starts_with("  ") {
            continue;
        }
        text += line;
        text += "\n";
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut more = Vec::new();
        while at < lines.len() && lines[at].starts_with('|') {
            more.push(lines[at][1..].trim());
            text += lines[at].trim_end();
            text += "\n";
            at += 1;
        }
        let done = match line.strip_prefix("limits ") {
            Some(bounds) if is_first => limits(bounds).and_then(World::new).map(|new| world = new),
            Some(_) => Err("limits are set on the first line only".into()),
            None => act_or_panic(&mut world, line, &more),
        };
        is_first = false;
        let done = done.and_then(|()| world.restored().map(drop));
        done.map_err(|fault| format!("{file}:{number}: {fault}\n    {line}"))?;
        for said in world.take_lines().iter().flat_map(|line| line.lines()) {
            text += &format!("  {said}\n");
        }
    }
    world.crash(0).map_err(|fault| format!("{file}: at its end: {fault}"))?;
    Ok(Told { text, seen: world.seen })
}

/// A panic is core's bug; the line that led to it is worth as much as the place of it.
fn act_or_panic(world: &mut World, line: &str, more: &[&str]) -> Result<(), Fault> {
    let acted = std::panic::AssertUnwindSafe(|| act::act(world, line, more));
    std::panic::catch_unwind(acted).unwrap_or_else(|_| Err("the machine panicked".into()))
}

fn limits(bounds: &str) -> Result<Limits, Fault> {
    let mut limits = Limits::default();
    for bound in bounds.split_whitespace() {
        let (name, value) = bound.split_once('=').ok_or_else(|| format!("{bound:?} is not name=value"))?;
        let value = number(value).or_else(|_| words::millis(value))?;
        let known = LimitName::ALL.iter().find(|known| known.as_str() == name);
        *limits.of_mut(*known.ok_or_else(|| format!("no limit is named {name}"))?) = value;
    }
    Ok(limits)
}
