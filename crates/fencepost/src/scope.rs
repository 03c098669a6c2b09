//! `scope`: run something under a lock, and stop it when the lock is lost.

use crate::client::Client;
use crate::error::{Error, LossReason};
use crate::lease::Lease;
use crate::lock::LockOptions;

/// What a body came to that was told of a loss instead of being stopped: see
/// [`Client::scope_to_end`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended<T> {
    /// What the body returned.
    pub value: T,
    /// How the lock was lost while the body ran, if it was.
    pub lost: Option<LossReason>,
}

impl Client {
    /// Runs a body under the lock: waits for the lock, renews it while the body runs, and releases
    /// it in the end, also when the body returns early, panics or is cancelled.
    ///
    /// When the lock is lost, the body is dropped at its next await, and the caller gets
    /// [`Error::Lost`] with the reason. A body that does not await cannot be stopped: then only the
    /// [fencing token](Lease::token) protects the resource.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use fencepost::LockOptions;
    ///
    /// let total = locks
    ///     .scope("invoice-42", LockOptions::new(), async |lease| {
    ///         println!("charging with token {}", lease.token());
    ///         42
    ///     })
    ///     .await?;
    /// assert_eq!(total, 42);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock), and [`Error::Lost`].
    pub async fn scope<T>(
        &self,
        name: impl AsRef<str>,
        options: LockOptions,
        body: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<T, Error> {
        let lease = self.lock(name).options(options).await?;
        let value = tokio::select! {
            // First, so that a body that is always ready cannot outlive the lock.
            biased;
            why = lease.lost() => return Err(lost(&lease, why)),
            value = body(&lease) => value,
        };
        if let Some(why) = lease.loss() {
            return Err(lost(&lease, why));
        }
        match lease.release().await {
            // The work was done in time. The nodes that are away are told later.
            Ok(()) | Err(Error::NoQuorum { .. }) => Ok(value),
            Err(error) => Err(error),
        }
    }

    /// As [`scope`](Self::scope), for a body that must not be dropped: it is told of a loss by
    /// [`Lease::lost`] or [`Lease::cancellation`], and runs to its end.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use fencepost::LockOptions;
    ///
    /// let ended = locks
    ///     .scope_to_end("job", LockOptions::new(), async |lease| {
    ///         let stop = lease.cancellation();
    ///         (1..=3).take_while(|_| !stop.is_cancelled()).count()
    ///     })
    ///     .await?;
    /// assert_eq!((ended.value, ended.lost), (3, None));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock). A loss is part of the result.
    pub async fn scope_to_end<T>(
        &self,
        name: impl AsRef<str>,
        options: LockOptions,
        body: impl AsyncFnOnce(&Lease) -> T,
    ) -> Result<Ended<T>, Error> {
        let lease = self.lock(name).options(options).await?;
        let value = body(&lease).await;
        let lost = match lease.loss() {
            Some(why) => Some(why),
            None => match lease.release().await {
                Err(Error::Lost { why, .. }) => Some(why),
                _ => None,
            },
        };
        Ok(Ended { value, lost })
    }
}

fn lost(lease: &Lease, why: LossReason) -> Error {
    Error::Lost {
        name: lease.lock_name().clone(),
        why,
    }
}
