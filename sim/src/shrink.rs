//! Makes a failing tape smaller: choices are taken away as long as a real replay fails with the same oracle.

use crate::choice::Step;
use crate::tape::Tape;
use crate::trial::Watching;
use std::collections::BTreeSet;

/// Makes a tape as small as it gets, calling `progress` with the number of steps left after each success.
pub fn shrink(tape: &Tape, progress: &mut dyn FnMut(usize)) -> Tape {
    let mut best = tape.clone();
    // Whole sites first: most latencies and arguments do not matter.
    let sites: BTreeSet<u16> = best.steps.iter().map(|step| step.site).collect();
    for site in sites {
        let steps = best.steps.iter().filter(|step| step.site != site).copied().collect();
        try_steps(&mut best, steps, progress);
    }
    loop {
        let before = best.steps.len();
        let mut size = before.div_ceil(2).max(1);
        loop {
            remove_chunks(&mut best, size, progress);
            if size == 1 {
                break;
            }
            size = size.div_ceil(2);
        }
        if best.steps.len() == before {
            break;
        }
    }
    for at in 0..best.steps.len() {
        let mut steps = best.steps.clone();
        steps[at].value = 1;
        if steps[at] != best.steps[at] {
            try_steps(&mut best, steps, progress);
        }
    }
    best
}

fn remove_chunks(best: &mut Tape, size: usize, progress: &mut dyn FnMut(usize)) {
    let mut at = 0;
    while at < best.steps.len() {
        let mut steps = best.steps.clone();
        steps.drain(at..(at + size).min(best.steps.len()));
        if !try_steps(best, steps, progress) {
            at += size;
        }
    }
}

/// Keeps these steps if the world they make fails with the same oracle.
fn try_steps(best: &mut Tape, steps: Vec<Step>, progress: &mut dyn FnMut(usize)) -> bool {
    let candidate = Tape { steps, ..best.clone() };
    let trial = candidate.replay(Watching::default());
    let is_same = trial.violation.is_some_and(|violation| violation.number == best.oracle);
    if is_same {
        *best = Tape { digest: trial.digest, ..candidate };
        progress(best.steps.len());
    }
    is_same
}
