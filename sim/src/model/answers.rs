//! What a grant must say: all that an execution needs to know, predicted from the run (S34).

use super::state::Run;
use super::{Model, Step, same, wrong};
use tenure_core::coordinator::WorkerKey;
use tenure_core::coordinator::effect::Grant;
use tenure_core::id::*;
use tenure_core::value::Value;

impl Model {
    /// These grants, of these epochs, in this order.
    pub(super) fn check_grants(
        &self,
        about: &str,
        key: WorkerKey,
        epochs: &[Epoch],
        found: &[Grant],
    ) -> Step {
        if epochs.len() != found.len() || epochs.iter().zip(found).any(|(epoch, grant)| *epoch != grant.epoch)
        {
            return Err(wrong(about, epochs, found));
        }
        found.iter().try_for_each(|grant| self.check_grant(about, key, grant))
    }

    /// S34: the stable key never changes, the key of an attempt changes with it.
    pub(super) fn learn_keys(&mut self, found: &Grant) -> Step {
        let Some(run) = self.runs.get_mut(&found.run.number()) else { return Ok(()) };
        let now = (found.series.get(), found.attempt.get(), found.attempt_key);
        let Some(work) = run.node_mut(found.node) else { return Ok(()) };
        if work.stable_key.is_some_and(|known| known != found.stable_key) {
            return Err(wrong("S34: the stable key stays the same", work.stable_key, found.stable_key));
        }
        if let Some(last) = work.attempt_key
            && ((last.0, last.1) == (now.0, now.1)) != (last.2 == now.2)
        {
            return Err(wrong("S34: each attempt has a key of its own", last, now));
        }
        (work.stable_key, work.attempt_key) = (Some(found.stable_key), Some(now));
        Ok(())
    }

    pub(super) fn check_grant(&self, about: &str, key: WorkerKey, found: &Grant) -> Step {
        let Some(run) = self.runs.get(&found.run.number()) else { return Err(wrong(about, "a run", found)) };
        let Some(work) = run.node(found.node) else { return Err(wrong(about, "a node", found)) };
        let grant = run.node(run.grant_of(found.node)).unwrap_or(work);
        let spec = run.def.work(run.grant_of(found.node));
        let holder = grant.tenure.map(|tenure| tenure.worker);
        if run.tenant != key.tenant || holder != Some(key.worker) || !grant.phase.is_held() {
            return Err(wrong(about, holder, key));
        }
        let rare = work.rare.as_deref();
        let expected = Grant {
            run: run.id,
            node: found.node,
            epoch: grant.epoch,
            definition: run.def.id,
            series: Series::new(run.series),
            // As its field is documented: of the start that comes next, also while one is on.
            attempt: Attempt::new(work.attempt + 1),
            lease_ms: spec.lease_ms,
            heartbeat_ms: spec.heartbeat_ms,
            priority: run.priority,
            stable_key: found.stable_key,
            attempt_key: found.attempt_key,
            input: run.input,
            inputs: inputs(run, found.node),
            state: rare.and_then(|rare| rare.state),
            woken: rare.and_then(|rare| rare.woken),
            last_failure: rare.and_then(|rare| rare.failure),
        };
        same(about, &expected, found)
    }
}

/// What its predecessors made, in the order of the definition; under a join of fewer than all, those that satisfied it.
fn inputs(run: &Run, node: NodeIx) -> Vec<(NodeIx, Value)> {
    if node.is_whole_run() {
        return Vec::new();
    }
    let ix = node.get() as usize;
    let links = &run.def.links[ix];
    let joined = run.nodes[ix].rare.as_ref().map_or(&[][..], |rare| &rare.joined);
    let is_in = |pred: &usize| links.need == links.preds.len() || joined.contains(&NodeIx::new(*pred as u32));
    let preds = links.preds.iter().filter(|pred| is_in(pred));
    preds.map(|pred| (NodeIx::new(*pred as u32), run.nodes[*pred].output)).collect()
}
