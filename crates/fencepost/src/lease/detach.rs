//! Leases that outlive their process.
//!
//! From then on, only the owner of the detached lock may release it.

use super::Lease;
use crate::detached::{DetachedLock, linger};
use crate::error::Error;

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
}
