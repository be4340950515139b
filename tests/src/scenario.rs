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
//!   why r1, why_not r1.a w1, run r1       what is asked of the machine, which is not touched by it
//!   runs [status=] [label=a:b] [of=] [with_input] [after=] [most=], workers, offers w1 [most=], depths, plan [id=]
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
//! Reports; each takes epoch=e2 attempt=1 inc=i1 consume=in:3 stream=b.in:1:text post=r2.b.in:m1:text
//!   accept|decline|start|release w1 r1.a, delegate w1 r1.a to=w2
//!   receive w1 r1.a handle=in [max=], progress w1 r1.a 1/3, checkpoint w1 r1.a state=
//!   complete w1 r1.a [out=], fail w1 r1.a [final|payload_missing|payload_damaged] [why=] [poison=in:1]
//!   suspend w1 r1.a [state=] [on_message] [after=] [at_wall=] [reason=]
//!   report w1                             several in one command, each on a line: `| complete r1.a out=x`
//! Through a Shard; output is `!` what its store is to do, each order with a name
//!   shard [in_flight=] [held=] [fetches=] [exclusive]
//!                                         from here on commands go through a Shard, and time pulses it
//!   server s2                             the server that is spoken to from here on; the first is s1
//!   own, close                            the partition is its own under the next fencing number; it gives it up
//!   ok [commit1 ..]                       the store does these orders and answers; or all, and those that follow
//!   apply commit1                         the store does it, and its answer is on the way
//!   answer commit1 [durable|not_applied|unknown|failed|fenced|none]
//!                                         the Shard hears the answer that is on the way, or this one
//!   look r1, crash                        somebody wants to see a run; the server begins anew
//! ```
//!
//! A node, handle, source or edge that is not there is written `#7`. Between lines the rows must restore; from a
//! crash on, the lost machine is told the same as the restored one and must say the same; keys of grants must be as promised.

mod act;
mod define;
mod gate;
mod look;
mod names;
mod print;
mod report;
pub(crate) mod words;
mod world;

use std::collections::BTreeSet;
use tenure_core::limits::{LimitName, Limits};
pub(crate) use words::time_text;
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
    let mut world = World::new(Limits::default()).map_err(|fault| format!("{file}:1: {fault}"))?;
    let (mut text, mut is_first) = (String::new(), true);
    for piece in pieces(script) {
        text += &piece.text;
        let Some((line, more)) = piece.command else { continue };
        let done = act_on(&mut world, line, &more, is_first);
        is_first = false;
        done.map_err(|fault| format!("{file}:{}: {fault}\n    {line}", piece.number))?;
        for said in world.take_lines().iter().flat_map(|line| line.lines()) {
            text += &format!("  {said}\n");
        }
    }
    world.crash(0).map_err(|fault| format!("{file}: at its end: {fault}"))?;
    Ok(Told { text, seen: world.seen })
}

/// Runs a script with a crash before every command. What is said then is another story, and some of it may make no sense
/// any more; but no machine may panic, restored ones must be like lost ones, and the rows must restore.
pub fn tell_crashing(file: &str, script: &str) -> Result<(), String> {
    let pieces: Vec<_> = pieces(script).into_iter().filter(|piece| piece.command.is_some()).collect();
    for crash in 1..pieces.len() {
        let mut world = World::new(Limits::default()).map_err(|fault| format!("{file}:1: {fault}"))?;
        for (at, piece) in pieces.iter().enumerate() {
            let Some((line, more)) = &piece.command else { continue };
            let crashed = if at == crash { world.crash(0) } else { Ok(()) };
            let done = crashed.and_then(|()| act_on(&mut world, line, more, at == 0));
            if let (Err(_), Some(fault)) = (done, world.broken.take()) {
                let (number, crash) = (piece.number, pieces[crash].number);
                return Err(format!(
                    "{file}:{number}: after a crash before line {crash}: {fault}\n    {line}"
                ));
            }
        }
    }
    Ok(())
}

/// A line of a script with what continues it, or a comment.
pub(crate) struct Piece<'a> {
    pub(crate) number: usize,
    pub(crate) text: String,
    pub(crate) command: Option<(&'a str, Vec<&'a str>)>,
}

/// Takes a script apart and drops the output in it.
pub(crate) fn pieces(script: &str) -> Vec<Piece<'_>> {
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    for (at, line) in script.lines().enumerate() {
        let (line, number) = (line.trim_end(), at + 1);
        if line.starts_with("  ") {
            continue;
        }
        let text = format!("{line}\n");
        if let (Some(more), Some(Piece { text: all, command: Some((_, list)), .. })) =
            (line.strip_prefix('|'), pieces.last_mut())
        {
            all.push_str(&text);
            list.push(more.trim());
            continue;
        }
        let is_command = !line.is_empty() && !line.starts_with('#');
        pieces.push(Piece { number, text, command: is_command.then(|| (line, Vec::new())) });
    }
    pieces
}

fn act_on(world: &mut World, line: &str, more: &[&str], is_first: bool) -> Result<(), Fault> {
    match line.strip_prefix("limits ") {
        Some(bounds) if is_first => *world = limits(bounds).and_then(World::new)?,
        Some(_) => return Err("limits are set on the first line only".into()),
        None if line == "shard" || line.starts_with("shard ") => {
            let mut words = words::Words::of(line);
            words.next("shard")?;
            world.gates = Some(gate::Gates::new(&mut words, world.limits().clone())?);
            words.finish()?;
        }
        None => {
            // A panic is core's bug; the line that led to it is worth as much as the place of it.
            let acted = std::panic::AssertUnwindSafe(|| act::act(world, line, more));
            let acted = std::panic::catch_unwind(acted);
            acted.unwrap_or_else(|_| world.breaks("the machine panicked".into()))?;
        }
    }
    world.restored().map(drop).or_else(|fault| world.breaks(fault))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_line_is_named_with_what_is_wrong() {
        let faults = [
            ("polll w1", "x:1: there is no command \"polll\"\n    polll w1"),
            ("# fine\nregister w1 slots=many", "x:2: \"many\" is not a number that fits here"),
            ("start w1 r1.a", "x:1: no run is named r1 yet"),
            ("at 30s", "x:1: \"30s\" does not begin with +"),
            ("define d: a\nlimits poll=1", "x:2: limits are set on the first line only"),
            ("define d: a\n| b: lease=1s", "x:1: the graph has no node b"),
            ("register w1 slot=2", "x:1: \"slot=2\" is not understood here"),
        ];
        for (script, wrong) in faults {
            let fault = tell("x", script).expect_err("it is a mistake");
            assert!(fault.starts_with(wrong), "{fault:?} is not {wrong:?}");
        }
    }

    #[test]
    fn output_is_written_anew_and_everything_else_is_kept() {
        let script = "# A story.\n\ndefine d: a\n| a: lease=5s\n  = something else\n# The end.\n";
        let told = tell("x", script).expect("it is no mistake");
        let expected = "# A story.\n\ndefine d: a\n| a: lease=5s\n  - DefinitionAdded d v1\n  = defined v1\n# The end.\n";
        assert_eq!(told.text, expected);
    }
}
