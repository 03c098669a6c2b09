//! [`LeaseWatch`]: what other tasks may know of a lease.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Lease;
use crate::driver::held::Held;
use crate::error::LossReason;
use fencepost_core::token::FencingToken;

/// Tells a task or thread that does not own a [`Lease`] whether it is still valid. It does not keep
/// the lock, and clones are cheap.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// let lease = locks.lock("job").await?;
/// let watch = lease.watch();
/// let worker = std::thread::spawn(move || (1..=3).take_while(|_| watch.is_valid()).count());
/// assert_eq!(worker.join().expect("no panic"), 3);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct LeaseWatch(Arc<Held>);

impl Lease {
    /// A handle that tells other tasks whether the lease is still valid.
    #[must_use]
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch(Arc::clone(&self.held))
    }
}

impl LeaseWatch {
    /// The lease's fencing token.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.0.token
    }

    /// Remaining validity, unless renewed. Zero when the lock is not held.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Whether the lock is held right now, by our own clock: neither lost nor released.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Why the lease was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.0.loss()
    }

    /// Resolves when the lease has ended: with the reason if it was lost, with `None` if it was
    /// released or dropped.
    pub async fn ended(&self) -> Option<LossReason> {
        self.0.ended().await
    }
}

impl fmt::Debug for LeaseWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseWatch")
            .field("name", &self.0.claim.name)
            .field("token", &self.0.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
