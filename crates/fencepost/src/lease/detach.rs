//! A lease that is to outlive its process.
//!
//! What is detached must never be released by anybody but the owner of the detached lock.

use super::Lease;
use crate::detached::{DetachedLock, linger};
use crate::error::Error;

impl Lease {
    /// Ends the lease without giving the lock back: it stays held for what is left of its TTL, and
    /// whoever has the [`DetachedLock`] may [extend](crate::Client::extend_detached) it or
    /// [release](crate::Client::release_detached), from another process too.
    ///
    /// Ask [`remaining`](Self::remaining) before: a detached lock does not tell.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease was over already.
    pub async fn detach(self) -> Result<DetachedLock, Error> {
        if let Some(why) = self.loss() {
            return Err(self.lost_by(why));
        }
        let claim = self.held.claim.clone();
        let detached = DetachedLock::of(claim.name, claim.value, self.held.token);
        // From here on dropping it releases nothing.
        if let Some(late) = self.end() {
            linger(late).await;
        }
        Ok(detached)
    }
}
