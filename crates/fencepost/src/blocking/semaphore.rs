//! The [semaphore](crate::Semaphore) for threads.

use std::fmt;
use std::ops::Deref;

use super::{Client, Lease};
use crate::error::Error;
use crate::lock::LockOptions;
use crate::semaphore::{PermitHolder, Place};
use crate::status::Status;

impl Client {
    /// A semaphore: at most `permits` hold one of its permits at the same time.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// use std::time::Duration;
    /// use fencepost::LockOptions;
    ///
    /// let workers = locks.semaphore("workers", 3);
    /// let permit = workers.acquire(LockOptions::new().timeout(Duration::from_secs(2)))?;
    /// println!("slot {} with token {}", permit.slot(), permit.token());
    /// permit.release()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn semaphore(&self, name: impl AsRef<str>, permits: usize) -> Semaphore {
        Semaphore {
            client: self.clone(),
            semaphore: self.locks.semaphore(name, permits),
        }
    }
}

/// At most k holders at a time: the [async semaphore](crate::Semaphore), with the same promises, for
/// threads.
#[derive(Clone, Debug)]
pub struct Semaphore {
    // Before the client, and with it the thread, so that it goes first.
    semaphore: crate::Semaphore,
    client: Client,
}

impl Semaphore {
    /// Takes a permit, and blocks until there is one or the wait is over.
    ///
    /// # Errors
    /// As [`PermitRequest`](crate::PermitRequest).
    pub fn acquire(&self, options: LockOptions) -> Result<Permit, Error> {
        let request = self.semaphore.acquire().options(options);
        let permit = self.client.background.run(request.into_future())?;
        Ok(self.keep(permit))
    }

    /// Takes a permit if there is one; never waits.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// let workers = locks.semaphore("workers", 1);
    /// let permit = workers.try_acquire()?;
    /// assert!(workers.try_acquire().unwrap_err().is_held());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`PermitRequest`](crate::PermitRequest).
    pub fn try_acquire(&self) -> Result<Permit, Error> {
        let permit = self.client.background.run(self.semaphore.try_acquire())?;
        Ok(self.keep(permit))
    }

    /// Who holds permits: see [`Semaphore::holders`](crate::Semaphore::holders).
    ///
    /// # Errors
    /// As there.
    pub fn holders(&self) -> Result<Vec<PermitHolder>, Error> {
        self.client.background.run(self.semaphore.holders())
    }

    /// What is known of each slot: see [`Semaphore::status`](crate::Semaphore::status).
    ///
    /// # Errors
    /// As there.
    pub fn status(&self) -> Result<Vec<Status>, Error> {
        self.client.background.run(self.semaphore.status())
    }

    fn keep(&self, permit: crate::Permit) -> Permit {
        let (lease, place) = permit.into_parts();
        let lease = self.client.keep(lease);
        Permit { lease, place }
    }
}

/// A permit of a [`Semaphore`]: the [`Lease`] on one of its slots. Dropping it gives it back in the
/// background.
///
/// ```
/// # fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::blocking::Client::memory()?;
/// let permit = locks.semaphore("workers", 3).try_acquire()?;
/// assert!(permit.is_valid());
/// drop(permit);
/// # Ok(()) }
/// ```
pub struct Permit {
    // Before its place, so that it is on its way back when that is told.
    lease: Lease,
    place: Place,
}

impl Permit {
    /// The number of the slot, from 0: no other valid permit has it at the same time.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.place.slot
    }

    /// Gives the permit back and tells the outcome, as soon as a majority has answered.
    ///
    /// # Errors
    /// As [`Lease::release`].
    pub fn release(self) -> Result<(), Error> {
        let Self {
            lease,
            place: _place,
        } = self;
        lease.release()
    }
}

impl Deref for Permit {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("slot", &self.slot())
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
