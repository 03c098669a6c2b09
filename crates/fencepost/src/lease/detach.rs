//! Leases that outlive their process.
//!
//! From then on, only the owner of the detached lock may release it.

use super::Lease;
use crate::detached::{DetachedLock, linger};
use crate::driver::claim::Access;
use crate::error::Error;
use crate::leased::KeptLease;

impl Lease {
    /// Ends the lease without releasing the lock. It stays held for the rest of its TTL, and any
    /// process with the [`DetachedLock`] can [extend](crate::Client::extend_detached) or
    /// [release](crate::Client::release_detached) it.
    ///
    /// Read [`remaining`](Self::remaining) first: a detached lock has no deadline of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease was already over.
    pub async fn detach(self) -> Result<DetachedLock, Error> {
        if let Some(why) = self.loss() {
            return Err(self.lost_by(why));
        }
        let claim = self.held.claim.clone();
        let detached = DetachedLock::of(claim.name, claim.value, self.held.token);
        // From here on, dropping it releases nothing.
        if let Some(late) = self.end() {
            linger(&self.shared, late).await;
        }
        Ok(detached)
    }

    /// For a replica of the lock service: as [`detach`](Self::detach), and the replica can release it as if the lease
    /// went on. The lease itself, if it may not: see [`KeptLease`].
    #[doc(hidden)]
    pub fn keep(self) -> Result<KeptLease, Self> {
        let claim = &self.held.claim;
        let of = claim.value.lease_attempt();
        let (Some(of), Access::Exclusive) = (of.filter(|of| of.attempt == 0), claim.access) else {
            return Err(self);
        };
        if self.loss().is_some() {
            return Err(self);
        }
        // From here on, dropping it releases nothing.
        let Some(late) = self.end() else {
            return Err(self);
        };
        let claim = self.held.claim.clone();
        Ok(KeptLease::new(claim, of.lease, self.held.token, late))
    }
}
