//! The [read-write lock](crate::ReadWriteLock) for threads.

use super::{Client, Lease, LockRequest};
use crate::error::Error;

impl Client {
    /// A lock that many hold who read, or one who writes.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let catalogue = locks.read_write("catalogue");
    /// let writer = catalogue.write().acquire()?;
    /// let reader = writer.downgrade()?;
    /// let other = catalogue.read().timeout(Duration::from_secs(2)).acquire()?;
    /// assert!(reader.upgrade().is_err(), "it says what to do instead");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn read_write(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock {
            lock: self.locks.read_write(name),
            client: self.clone(),
        }
    }
}

/// Many who read, or one who writes: the [async lock](crate::ReadWriteLock), with the same promises,
/// for threads.
#[derive(Clone, Debug)]
pub struct ReadWriteLock {
    // Before the client, and with it the thread, so that it goes first.
    lock: crate::ReadWriteLock,
    client: Client,
}

impl ReadWriteLock {
    /// Takes the lock together with others who read. Set options on what this returns, and end with
    /// [`acquire`](LockRequest::acquire).
    #[must_use = "nothing is locked before `acquire`"]
    pub fn read(&self) -> LockRequest<'_> {
        self.request(self.lock.read())
    }

    /// Takes the lock for itself. Set options on what this returns, and end with
    /// [`acquire`](LockRequest::acquire).
    #[must_use = "nothing is locked before `acquire`"]
    pub fn write(&self) -> LockRequest<'_> {
        self.request(self.lock.write())
    }

    fn request(&self, request: crate::LockRequest) -> LockRequest<'_> {
        LockRequest {
            client: &self.client,
            request,
        }
    }
}

impl Lease {
    /// Whether others may hold the lock at the same time: see
    /// [`Lease::is_shared`](crate::Lease::is_shared).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.lease.is_shared()
    }

    /// Goes on as a reader, without a gap: see [`Lease::downgrade`](crate::Lease::downgrade).
    ///
    /// # Errors
    /// As there.
    pub fn downgrade(self) -> Result<Self, Error> {
        let Self { lease, background } = self;
        let lease = background.run(lease.downgrade())?;
        Ok(Self { lease, background })
    }

    /// Whether the holder may write: see [`Lease::upgrade`](crate::Lease::upgrade).
    ///
    /// # Errors
    /// [`Error::UpgradeRefused`] says what to do, unless the lease is a writer's already.
    pub fn upgrade(&self) -> Result<(), Error> {
        self.lease.upgrade()
    }
}
