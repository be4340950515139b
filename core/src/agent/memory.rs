//! What is over, so that an answer or a notice that comes late or twice does not begin it again. Bounded: the oldest is
//! forgotten first.

use super::piece::Under;
use crate::coordinator::effect::Grant;
use crate::id::{Attempt, Epoch, NodeIx, RunId};
use alloc::collections::{BTreeSet, VecDeque};

/// One execution: under the lease of a whole run an epoch covers several attempts of a node.
type Execution = (RunId, NodeIx, Epoch, Attempt);

/// What is over.
#[derive(Debug, Clone, Default)]
pub(super) struct Memory {
    known: BTreeSet<Execution>,
    order: VecDeque<Execution>,
}

fn execution(grant: &Grant, under: Under) -> Execution {
    // A lease of its own covers one execution, whatever attempt a grant of it says comes next.
    let attempt = if under == Under::Run { grant.attempt } else { Attempt::new(0) };
    (grant.run, grant.node, grant.epoch, attempt)
}

impl Memory {
    pub(super) fn knows(&self, grant: &Grant, under: Under) -> bool {
        self.known.contains(&execution(grant, under))
    }

    pub(super) fn remember(&mut self, grant: &Grant, under: Under, most: u32) {
        if self.known.insert(execution(grant, under)) {
            self.order.push_back(execution(grant, under));
        }
        while self.order.len() > most as usize {
            let oldest = self.order.pop_front().expect("it is not empty");
            self.known.remove(&oldest);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}
