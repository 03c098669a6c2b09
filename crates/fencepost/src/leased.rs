//! What a replica of the lock service asks of the library, and nobody else: a lease whose id the
//! *client* chose, and whose attempts it numbers.
//!
//! A later attempt of the same lease takes the lock over from the values of earlier ones, by
//! compare-and-set on exactly those values. A release is one command to every node: it releases whatever
//! the lease has there and leaves a tombstone of the lease id. A node that has the tombstone votes for no
//! attempt of the lease. So at each node one of the two sees the other, whatever the order; and an
//! acquire and a release that both reached a majority share a node.

pub use crate::driver::ballots::NodeVotes;
pub use crate::driver::identity::OnBehalf;
use crate::driver::shared::Shared;
use crate::error::Error;
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
pub use fencepost_core::quorum::LeaseRelease;
use fencepost_core::quorum::LeaseReleaseTally;
use fencepost_core::{ClientId, LeaseId};

/// Whom the nodes wake for all replicas of a lock service: each of them knows its own tickets, and a
/// ticket is the same at every replica.
pub(crate) fn replica_id() -> ClientId {
    ClientId::of(u128::from_be_bytes(*b"fencepostservice"))
}

/// Releases what a lease holds, and has the nodes refuse it for one `max_ttl`.
///
/// The tombstone is on a majority when this returns `Ok`; the nodes that have not answered by then are
/// waited for in the background.
pub(crate) async fn release(
    shared: &Shared,
    name: LockName,
    lease: LeaseId,
) -> Result<LeaseRelease, Error> {
    let command = Command::ReleaseLease {
        lease,
        tombstone: shared.max_ttl.get(),
    };
    let coordinator = &shared.coordinator;
    let mut tally = LeaseReleaseTally::new(coordinator.quorum);
    let enough = |node, answer| tally.answered(node, answer).is_some();
    coordinator.ask_until(&name, &command, enough).await;
    match tally.outcome() {
        Some(outcome) => Ok(outcome),
        None => Err(coordinator.no_quorum(name, tally.outcomes())),
    }
}
