//! Runs a body under a guard, and stops it when the guard is lost.

use super::Lease;
use crate::error::{Error, LossReason};

/// A guard that a body can run under.
pub(crate) trait Guard: Sized {
    /// Resolves when it is lost.
    fn until_lost(&self) -> impl Future<Output = Error> + Send;

    /// The loss as an error, if it is lost.
    fn loss_error(&self) -> Option<Error>;

    /// Releases it and reports the outcome.
    fn end(self) -> impl Future<Output = Result<(), Error>> + Send;
}

pub(crate) async fn run<G: Guard, T>(
    guard: G,
    body: impl AsyncFnOnce(&G) -> T,
) -> Result<T, Error> {
    let value = tokio::select! {
        // Polled first, so that a body that is always ready cannot outlive the lock.
        biased;
        error = guard.until_lost() => return Err(error),
        value = body(&guard) => value,
    };
    if let Some(error) = guard.loss_error() {
        return Err(error);
    }
    match guard.end().await {
        Ok(()) => Ok(value),
        // The work was done in time. Nodes that are down get the release later.
        Err(error) if error.is_no_quorum() => Ok(value),
        Err(error) => Err(error),
    }
}

impl Guard for Lease {
    async fn until_lost(&self) -> Error {
        self.lost_by(self.lost().await)
    }

    fn loss_error(&self) -> Option<Error> {
        self.loss().map(|why| self.lost_by(why))
    }

    async fn end(self) -> Result<(), Error> {
        self.release().await
    }
}

impl Lease {
    pub(crate) fn lost_by(&self, why: LossReason) -> Error {
        Error::lost(self.lock_name().clone(), why)
    }
}

/// A guard that wraps a lease: it exposes the lease's methods and its release.
macro_rules! lease_guard {
    ($guard:ident, $end:ident) => {
        impl std::ops::Deref for $guard {
            type Target = $crate::Lease;

            fn deref(&self) -> &$crate::Lease {
                &self.lease
            }
        }

        impl $crate::lease::run::Guard for $guard {
            async fn until_lost(&self) -> $crate::Error {
                self.lease.lost_by(self.lease.lost().await)
            }

            fn loss_error(&self) -> Option<$crate::Error> {
                self.lease.loss().map(|why| self.lease.lost_by(why))
            }

            async fn end(self) -> Result<(), $crate::Error> {
                self.$end().await
            }
        }
    };
}

pub(crate) use lease_guard;
