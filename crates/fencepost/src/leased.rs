//! Used only by replicas of the lock service: leases whose id the *client* chose, and whose
//! attempts it numbers.
//!
//! A later attempt of the same lease takes the lock over from the values of earlier ones, by
//! compare-and-set on exactly those values. A release is one command to every node: it releases
//! whatever the lease holds there and leaves a tombstone of the lease id. A node with the tombstone
//! votes for no attempt of the lease. So at each node one of the two sees the other, in either
//! order; and an acquire and a release that both reached a majority share a node.
//!
//! What a replica acquired under an id of its own (attempt 0) it releases by the exact value, as the
//! library does: nobody else can have asked for that id. All else is released by the lease id.

pub use crate::driver::ballots::NodeVotes;
use crate::driver::claim::Claim;
pub use crate::driver::identity::OnBehalf;
use crate::driver::in_flight::InFlight;
use crate::driver::shared::Shared;
use crate::driver::waiters::place_of;
use crate::error::Error;
use crate::inspect::queue;
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
pub use fencepost_core::quorum::LeaseRelease;
use fencepost_core::quorum::LeaseReleaseTally;
use fencepost_core::ticket::TicketId;
use fencepost_core::token::FencingToken;
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

/// What the replica that acquired a lock keeps, so that it can release it as the library releases its own: by the exact
/// value, which costs the nodes half as much as to look for a lease id.
///
/// Only of a lease whose id the replica chose (attempt 0): no other attempt can hold the lock, and none that comes late
/// has to be refused by a tombstone. Dropped, it releases nothing.
#[derive(Debug)]
pub struct KeptLease {
    claim: Claim,
    lease: LeaseId,
    token: FencingToken,
    late: InFlight,
}

impl KeptLease {
    pub(crate) fn new(claim: Claim, lease: LeaseId, token: FencingToken, late: InFlight) -> Self {
        Self {
            claim,
            lease,
            token,
            late,
        }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.claim.name.as_str()
    }

    /// The lease id.
    #[must_use]
    pub fn lease(&self) -> LeaseId {
        self.lease
    }

    /// The fencing token.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Forgets the commands that were answered meanwhile. Whether there are others.
    pub fn tidy(&mut self) -> bool {
        self.late.settle();
        self.late.is_open()
    }

    pub(crate) async fn release(self, shared: &Shared) -> Result<(), Error> {
        let coordinator = &shared.coordinator;
        // The nodes wake who waits: here or at another replica.
        coordinator
            .release(self.claim, Some(self.token), None, self.late)
            .await
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
