//! Leases that stay for a long time, as a record that their holder was here: see `rendezvous`.
//!
//! A half-finished seal must never be left behind: it is released unless it was reported as sealed.
//! Nothing may shorten a seal.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Lease;
use crate::detached::linger;
use crate::driver::claim::{Claim, NotExtended};
use crate::driver::coordinator::Coordinator;
use crate::driver::in_flight::InFlight;
use crate::error::{Error, LossReason};
use crate::runtime::clock::Moment;
use fencepost_core::token::FencingToken;
use fencepost_core::ttl::Ttl;

/// The pause before a majority that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(50);

impl Lease {
    /// Ends the lease and leaves the lock held for `keep` from now, even if this process ends
    /// earlier. Without a quorum it retries as long as the lease is valid.
    ///
    /// Dropping the future before it returns releases the lock. `keep` may exceed `max_ttl`: a
    /// restarted node may have forgotten it, and the caller must handle that.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease was over before a majority had
    /// agreed, [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when too few nodes answered: the
    /// lock is released, but a node that is down may keep it.
    pub(crate) async fn seal(self, keep: Ttl) -> Result<(), Error> {
        if let Some(why) = self.loss() {
            return Err(self.lost_by(why));
        }
        let coordinator = Arc::clone(&self.shared.coordinator);
        let until = coordinator.clock.now() + self.remaining();
        let (claim, token) = (self.held.claim.clone(), self.held.token);
        // From here on nothing renews it, which would shorten it, and dropping it releases nothing.
        let open = self.end().map(|before| Open {
            before,
            own: InFlight::default(),
        });
        let mut sealing = Sealing {
            coordinator,
            claim,
            open,
        };
        match sealing.ask(token, keep, until).await {
            Ok(()) => {
                // Earlier extensions are dropped: to a node that did not know the script, one would
                // be sent again after the seal, and shorten it.
                let own = sealing.open.take().map(|open| open.own);
                linger(&self.shared, own.unwrap_or_default()).await;
                Ok(())
            }
            Err(NotExtended::Lost(why)) => Err(self.lost_by(why)),
            Err(NotExtended::TooLate) => Err(self.lost_by(LossReason::Expired)),
            Err(NotExtended::NoQuorum(nodes)) => {
                let coordinator = &self.shared.coordinator;
                Err(coordinator.no_quorum_of(self.lock_name().clone(), nodes))
            }
        }
    }
}

/// A seal in progress. Dropping it before it is complete releases the lock.
struct Sealing {
    coordinator: Arc<Coordinator>,
    /// The lease's own, with its own TTL: that is how long a release is retried at a node that is
    /// down.
    claim: Claim,
    /// `None` once it is sealed.
    open: Option<Open>,
}

/// What is in flight for the lease.
#[derive(Default)]
struct Open {
    /// From before the seal.
    before: InFlight,
    /// The seal itself.
    own: InFlight,
}

impl Sealing {
    async fn ask(
        &mut self,
        token: FencingToken,
        keep: Ttl,
        until: Moment,
    ) -> Result<(), NotExtended> {
        let claim = Claim {
            ttl: keep,
            outlives: true,
            ..self.claim.clone()
        };
        loop {
            let left = until.since(self.coordinator.clock.now());
            let own = &mut self.open.get_or_insert_default().own;
            let open = |more| own.join(more);
            let asked = self
                .coordinator
                .extend(&claim, token, NonZeroU32::MIN, until, left, open);
            match asked.await {
                Ok(_) => return Ok(()),
                Err(NotExtended::NoQuorum(_))
                    if until.since(self.coordinator.clock.now()) > PAUSE =>
                {
                    sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Sealing {
    fn drop(&mut self) {
        if let Some(Open { mut before, own }) = self.open.take() {
            before.join(own);
            let all = self.coordinator.all();
            self.coordinator
                .spawn_release(self.claim.clone(), all, before);
        }
    }
}
