//! Why.
use super::state::State;
use crate::id::NodeIx;
use crate::time::Reason;
pub(super) fn node_reason(_: &State, _: u64, _: NodeIx) -> Reason {
    Reason::Wake
}
