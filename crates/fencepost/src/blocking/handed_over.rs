//! Locks that outlive their process, and the list of all, for threads without tokio.

use std::time::Duration;

use super::{Client, Lease};
use crate::detached::DetachedLock;
use crate::error::Error;
use crate::listing::{Listing, NamePattern};

impl Client {
    /// Keeps the lock of a receipt for another `ttl` from now, and tells how long it is ours.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let ttl = Duration::from_secs(10);
    /// let receipt = locks.try_lock("invoice-42", ttl)?.detach()?;
    /// locks.extend_receipt(&receipt, ttl)?;
    /// locks.release_receipt(&receipt)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::extend_receipt`](crate::Client::extend_receipt).
    pub fn extend_receipt(&self, receipt: &DetachedLock, ttl: Duration) -> Result<Duration, Error> {
        let extending = self.locks.extend_receipt(receipt, ttl);
        self.background.run(extending)
    }

    /// Gives the lock of a receipt back on all nodes.
    ///
    /// # Errors
    /// As [`Client::release_receipt`](crate::Client::release_receipt).
    pub fn release_receipt(&self, receipt: &DetachedLock) -> Result<(), Error> {
        self.background.run(self.locks.release_receipt(receipt))
    }

    /// The locks that the nodes know, and who holds them.
    ///
    /// # Errors
    /// As [`Client::list`](crate::Client::list).
    pub fn list(&self, wanted: &NamePattern) -> Result<Listing, Error> {
        self.background.run(self.locks.list(wanted))
    }
}

impl Lease {
    /// Ends the lease without giving the lock back: see [`Lease::detach`](crate::Lease::detach).
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was over already.
    pub fn detach(self) -> Result<DetachedLock, Error> {
        let Self { lease, background } = self;
        background.run(lease.detach())
    }
}
