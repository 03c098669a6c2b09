//! What only a replica of the lock service asks of the library: a lease whose id the
//! *client* chose, and whose attempts it numbers.
//!
//! A later attempt of the same lease takes the lock over from the values of earlier ones, by
//! compare-and-set on exactly those values. A release leaves a tombstone of the lease id on a majority
//! before it looks for what to release; an acquire under a chosen id looks for the tombstone
//! after it was granted. One of the two sees the other, whatever the order.

use crate::driver::coordinator::Coordinator;
pub use crate::driver::identity::OnBehalf;
use crate::driver::shared::Shared;
use crate::error::{Error, NodeError, NodeOutcome};
use fencepost_core::lock::{Command, Reply, TicketDisposition};
use fencepost_core::name::LockName;
use fencepost_core::{AttemptValue, ClientId, LeaseId, Owner};

/// Whom the nodes wake for all replicas of a lock service: each of them knows its own tickets, and a
/// ticket is the same at every replica.
pub(crate) fn replica_id() -> ClientId {
    ClientId::of(u128::from_be_bytes(*b"fencepostservice"))
}

/// Refuses this lease id from now on, for one `max_ttl`: known to a majority when this returns.
pub(crate) async fn bury(shared: &Shared, name: LockName, lease: LeaseId) -> Result<(), Error> {
    let bury = Command::Release {
        value: tombstone(lease),
        tombstone: Some(shared.max_ttl.get()),
        ticket: TicketDisposition::Stays,
        follower: None,
    };
    let answers = shared.coordinator.ask_all(&name, &bury).await;
    majority(&shared.coordinator, name, &answers)
}

/// Whether this lease id was released.
pub(crate) async fn is_buried(
    shared: &Shared,
    name: LockName,
    lease: LeaseId,
) -> Result<bool, Error> {
    let look = Command::LookForTombstone {
        value: tombstone(lease),
    };
    let answers = shared.coordinator.ask_all(&name, &look).await;
    if answers.contains(&Ok(Reply::Tombstoned)) {
        return Ok(true);
    }
    majority(&shared.coordinator, name, &answers).map(|()| false)
}

/// What stands for the lease id itself. No node ever stores it for a holder.
fn tombstone(lease: LeaseId) -> AttemptValue {
    AttemptValue::labelled(lease.get(), &Owner::readable(""))
}

fn majority(
    coordinator: &Coordinator,
    name: LockName,
    answers: &[Result<Reply, NodeError>],
) -> Result<(), Error> {
    let answered = answers.iter().filter(|answer| answer.is_ok()).count();
    if answered >= coordinator.quorum.needed() {
        return Ok(());
    }
    let outcome = |answer: &Result<Reply, NodeError>| match answer {
        Ok(_) => NodeOutcome::Agreed,
        Err(error) => NodeOutcome::Failed(error.clone()),
    };
    Err(coordinator.no_quorum(name, answers.iter().map(outcome)))
}
