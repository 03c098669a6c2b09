//! [`Lease`]: a held lock: its token, its deadline, its loss, and how to extend or end it.
//!
//! - `detach`: leases that outlive their process.
//! - `downgrade`: a writer that becomes a reader.
//! - `seal`: leases that stay for a long time, as a record that their holder was here.
//! - `run`: a body under a guard, dropped when the guard is lost.
//! - `watch`: what other tasks may know of a lease.
//!
//! A lease that might not be held must never report that it is: every question is answered by the
//! holder's own clock, and a lease that has ended never becomes valid again.

mod detach;
mod downgrade;
pub(crate) mod run;
mod seal;
#[cfg(test)]
mod tests;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::Instrument;

use crate::driver::claim::{Grant, NotExtended};
use crate::driver::held::{Asker, Held, Limits};
use crate::driver::shared::Shared;
use crate::error::{Error, LossReason};
use crate::events;
use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, TicketId};
use fencepost_core::token::FencingToken;

pub use watch::LeaseWatch;

/// A held lock. It is ours until the lease ends.
///
/// A lease from [`lock`](crate::Client::lock) renews itself every third of its TTL, until it is
/// released, dropped, or reaches its maximum hold time. When it can no longer be trusted it reports
/// its loss, [at or before](Self::lost) the end of its validity.
///
/// Dropping it ends its renewal at once and releases the lock in the background;
/// [`release`](Self::release) also reports the outcome. A lease that is leaked ([`std::mem::forget`])
/// is renewed for as long as the process lives, unless `max_hold` ends it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// # async fn charge(_: fencepost::FencingToken) {}
/// let lease = locks.lock("invoice-42").await?;
/// tokio::select! {
///     () = charge(lease.token()) => println!("charged"),
///     why = lease.lost() => println!("stop: {why}"),
/// }
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the lease is dropped"]
pub struct Lease {
    shared: Arc<Shared>,
    held: Arc<Held>,
}

impl Lease {
    pub(crate) fn new(shared: Arc<Shared>, grant: Grant, limits: Limits) -> Self {
        let held = Held::new(
            shared.coordinator.clone(),
            grant,
            limits,
            shared.renewer.new_id(),
        );
        let held = Arc::new(held);
        if let Some(when) = held.look_at() {
            shared.renewer.put(&held, when);
        }
        Self { shared, held }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.held.claim.name.as_str()
    }

    pub(crate) fn lock_name(&self) -> &LockName {
        &self.held.claim.name
    }

    /// The fencing token: larger than that of every earlier holder. Pass it to the resource.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.held.token
    }

    /// The value that the nodes store for this lease: random, then the owner's label. For a
    /// reentrant lock it is `uuid:number`.
    #[must_use]
    pub fn value(&self) -> &str {
        self.held.claim.value.as_str()
    }

    /// Remaining validity, unless renewed. Zero when the lock is no longer ours.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held.remaining()
    }

    /// When the validity ends, unless renewed: [`remaining`](Self::remaining), from now. Now or in
    /// the past when the lock is no longer ours.
    ///
    /// This clock stops while the machine is suspended; the clock of [`is_valid`](Self::is_valid)
    /// does not.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        from_now(self.remaining())
    }

    /// Whether the lock is ours right now, by our own clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Why the lease was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.held.loss()
    }

    /// Resolves when the lease is lost, with the reason.
    ///
    /// That is at or before the end of its validity, by a local timer, even when every node hangs;
    /// earlier when a majority of the nodes reports the loss. Any number of tasks may wait, and
    /// each may stop waiting at any time.
    pub async fn lost(&self) -> LossReason {
        self.held.lost().await
    }

    /// Extends the lock for another TTL from now. The token stays the same.
    ///
    /// A lease that renews itself does not need this. A failure takes nothing away: after
    /// [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) the lease stays valid until its old
    /// deadline, and may be extended again.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease is over,
    /// [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when too few nodes answered.
    pub async fn extend(&self) -> Result<(), Error> {
        if let Some(why) = self.loss() {
            return Err(self.lost_by(why));
        }
        match self.held.extend(Asker::Holder).await {
            Some(Ok(_)) => {
                if let Some(when) = self.held.look_at() {
                    self.shared.renewer.put(&self.held, when);
                }
                Ok(())
            }
            Some(Err(NotExtended::NoQuorum(nodes))) => {
                let coordinator = &self.shared.coordinator;
                Err(coordinator.no_quorum_of(self.lock_name().clone(), nodes))
            }
            Some(Err(NotExtended::Lost(_) | NotExtended::TooLate)) | None => {
                // It is over, and knows why.
                Err(self.lost_by(self.loss().unwrap_or(LossReason::Unknown)))
            }
        }
    }

    /// Releases the lock and reports the outcome as soon as a majority has answered.
    ///
    /// Renewal ends when this is called. Dropping the future does not stop the release.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when a majority no longer held it: another
    /// client may have held it in between. [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when
    /// too few nodes answered; the others get the release when they come back, and the lock ends by
    /// its TTL at the latest.
    pub async fn release(self) -> Result<(), Error> {
        self.release_by_ref().await
    }

    /// As `release`, for a guard that shares the lease.
    pub(crate) async fn release_by_ref(&self) -> Result<(), Error> {
        let coordinator = self.shared.coordinator.clone();
        let (claim, token) = (self.held.claim.clone(), self.held.token);
        let lost = self.loss();
        let Some(late) = self.end() else {
            return Ok(());
        };
        let start = coordinator.clock.now();
        let span = events::releasing(&claim.name, token);
        let follower = self.follower();
        let release = coordinator.release(
            claim.clone(),
            (!self.is_shared()).then_some(token),
            self.client_of(&follower),
            late,
        );
        self.call(follower);
        let outcome = release.instrument(span.clone()).await;
        let _in_span = span.enter();
        let took = coordinator.clock.now().since(start);
        events::released(&claim.name, token, &outcome, took);
        match (outcome, lost) {
            // The earlier reason says more than that the nodes hold nothing.
            (Err(error), Some(why)) if error.is_lost() => Err(self.lost_by(why)),
            (Err(error), None)
                if error.loss() == Some(&LossReason::Unknown)
                    && coordinator.clock.now() >= self.held.deadline() =>
            {
                Err(self.lost_by(LossReason::Expired))
            }
            (outcome, _) => outcome,
        }
    }

    /// How many times its holder has entered.
    pub(crate) fn entries(&self) -> u32 {
        self.held.entries.load(Ordering::Relaxed)
    }

    /// Records how many times its holder has entered; the next extension reports it to the nodes.
    pub(crate) fn set_entries(&self, entries: u32) {
        self.held.entries.store(entries, Ordering::Relaxed);
    }

    /// The waiter of this client that follows the release itself. After a reader, others may still
    /// read, so the nodes wake its waiters.
    fn follower(&self) -> Option<TicketId> {
        match self.is_shared() {
            true => None,
            false => self.shared.waiters.follower(&self.held.claim.name),
        }
    }

    fn client_of(&self, follower: &Option<TicketId>) -> Option<ClientId> {
        follower
            .as_ref()
            .map(|_| self.shared.waiters.client().clone())
    }

    /// Wakes the follower, now that the release was sent.
    fn call(&self, follower: Option<TicketId>) {
        if let Some(follower) = follower {
            self.shared.waiters.follow(&self.held.claim.name, &follower);
        }
    }

    /// Ends renewal at once, and returns the commands that are still in flight for the release.
    fn end(&self) -> Option<crate::driver::in_flight::InFlight> {
        let late = self.held.begin_release();
        self.shared.renewer.remove(&self.held);
        late
    }
}

/// This long from now, by a task's own clock, which a test may pause.
pub(crate) fn from_now(time: Duration) -> Instant {
    tokio::time::Instant::now().into_std() + time
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(late) = self.end() {
            events::dropped(&self.held.claim.name, self.held.token);
            let coordinator = &self.shared.coordinator;
            let follower = self.follower();
            coordinator.spawn_release(self.held.claim.clone(), coordinator.all(), late);
            self.call(follower);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.held.claim.name)
            .field("token", &self.held.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
