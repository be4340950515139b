//! Who an Agent is, and every bound it works within.

use crate::coordinator::command::WorkerSpec;
use crate::id::{TenantId, WorkerId};
use serde::{Deserialize, Serialize};

/// Who an Agent is, and the bounds it works within. All times are in milliseconds of its own monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Under which id it registers.
    pub worker: WorkerId,
    /// Whose it is; the adapter puts it into every envelope.
    pub tenant: TenantId,
    /// What it says it can do. Its `slots` are what it holds at the most, over all partitions together.
    pub spec: WorkerSpec,
    /// Pieces of work that execute at once; the others wait here.
    pub parallel: u32,
    /// Whether it takes what is offered to it, room given; if not, it declines.
    pub takes_offers: bool,
    /// Pieces of work it asks for in one poll.
    pub poll: u32,
    /// How long after a poll that was not satisfied it asks again, unless it is told to earlier (L4).
    pub poll_ms: u64,
    /// How often it shows itself while it holds nothing that wants it more often.
    pub heartbeat_ms: u64,
    /// How long it waits for an answer before it asks again for the first time; it doubles from time to time.
    pub request_ms: u64,
    /// How long it waits at the most, between two tries of anything.
    pub backoff_ms: u64,
    /// Copies of one request that may still be answered; older ones are not known any more.
    pub copies: u32,
    /// By how many thousandths its clock may run slower than a partition's (F13).
    pub drift_per_mille: u64,
    /// How long before the end of a lease it stops, on top of the drift.
    pub guard_ms: u64,
    /// Reports in one request.
    pub reports: u32,
    /// Reports of one piece of work that wait to be sent; more are refused to the executor.
    pub reports_per_piece: u32,
    /// Pieces of work that are over and are remembered, per partition, so that they are not begun again.
    pub remembered: u32,
    /// Nodes that were handed to it under the lease of a whole run, per partition; more are not looked at.
    pub hands: u32,
    /// Offers that it declines at once, per partition; more are not answered, and time out.
    pub declines: u32,
    /// How long it keeps a run held as a whole of which it was handed nothing.
    pub idle_run_ms: u64,
    /// How often it says that it leaves before it goes unheard.
    pub farewells: u32,
}

impl Settings {
    /// A worker with as many slots as it executes at once, and all defaults.
    pub fn new(worker: WorkerId, tenant: TenantId, parallel: u32) -> Self {
        Self {
            worker,
            tenant,
            spec: WorkerSpec { slots: parallel, ..WorkerSpec::default() },
            parallel,
            takes_offers: true,
            poll: 1_000,
            poll_ms: 5_000,
            heartbeat_ms: 10_000,
            request_ms: 2_000,
            backoff_ms: 30_000,
            copies: 4,
            drift_per_mille: 100,
            guard_ms: 500,
            reports: 1_000,
            reports_per_piece: 64,
            remembered: 10_000,
            hands: 100_000,
            declines: 1_000,
            idle_run_ms: 10_000,
            farewells: 5,
        }
    }

    /// How long a lease of this length may be trusted after the request that confirmed it was sent. The partition
    /// counts from when that request arrived, which was later, on a clock that may be faster.
    pub fn trusted_ms(&self, lease_ms: u64) -> u64 {
        let drift = u128::from(lease_ms) * u128::from(self.drift_per_mille.min(1_000));
        let drift = drift.div_ceil(1_000) as u64;
        lease_ms.saturating_sub(drift).saturating_sub(self.guard_ms)
    }
}
