//! Used only by replicas of the lock service: leases whose id the *client* chose, and whose
//! attempts it numbers.
//!
//! A later attempt of the same lease takes the lock over from the values of earlier ones, by
//! compare-and-set on exactly those values. A release is one command to every node: it releases
//! whatever the lease holds there and leaves a tombstone of the lease id. A node with the tombstone
//! votes for no attempt of the lease. So at each node one of the two sees the other, in either
//! order; and an acquire and a release that both reached a majority share a node.

pub use crate::driver::ballots::NodeVotes;
pub use crate::driver::identity::OnBehalf;
use crate::driver::shared::Shared;
use crate::driver::waiters::place_of;
use crate::error::Error;
use crate::inspect::queue;
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
pub use fencepost_core::quorum::LeaseRelease;
use fencepost_core::quorum::LeaseReleaseTally;
use fencepost_core::ticket::TicketId;
use fencepost_core::{ClientId, LeaseId};

/// The client id that the nodes wake for all replicas of a lock service: each replica knows its own
/// tickets, and a ticket is the same at every replica.
pub(crate) fn replica_id() -> ClientId {
    ClientId::of(u128::from_be_bytes(*b"fencepostservice"))
}

/// Who waits for a lock: the first are known, at most 256.
#[derive(Debug)]
pub struct Places {
    name: LockName,
    client: ClientId,
    tickets: Vec<TicketId>,
}

impl Places {
    pub(crate) async fn ask(shared: &Shared, name: LockName) -> Result<Self, Error> {
        let tickets = queue::tickets(shared, name.clone()).await?;
        Ok(Self {
            name,
            client: shared.waiters.client().clone(),
            tickets: tickets.into_iter().map(|(_, ticket)| ticket).collect(),
        })
    }

    /// The place of a lease: 1 is next.
    #[must_use]
    pub fn of(&self, lease: LeaseId) -> Option<usize> {
        let sequence = Some(place_of(lease, &self.name));
        let is_its = |id: &TicketId| id.sequence() == sequence && id.is_of(&self.client);
        let before = self.tickets.iter().position(is_its);
        before.map(|before| before + 1)
    }
}

/// Releases what a lease holds, and makes the nodes refuse it for one `max_ttl`.
///
/// The tombstone is on a majority when this returns `Ok`; the remaining nodes are awaited in the
/// background.
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
    let rest = coordinator.ask_until(&name, &command, enough).await;
    coordinator.look_after(rest);
    match tally.outcome() {
        Some(outcome) => Ok(outcome),
        None => Err(coordinator.no_quorum(name, tally.outcomes())),
    }
}
