//! [`ReadWriteLock`]: many who read, or one who writes.
//!
//! It is the lock of that name: whoever writes holds it as [`lock`](crate::Client::lock) does, and
//! whoever reads shares it. No reader may ever hold it together with a writer.

use std::fmt;

use crate::client::Client;
use crate::driver::coordinator::Access;
use crate::lock::LockRequest;

impl Client {
    /// A lock that many hold who read, or one who writes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let catalogue = locks.read_write("catalogue");
    /// let one = catalogue.read().await?;
    /// let other = catalogue.read().ttl(Duration::from_secs(10)).await?;
    /// let writer = catalogue.write().timeout(Duration::from_millis(20)).await;
    /// assert!(writer.unwrap_err().is_held(), "somebody reads");
    /// one.release().await?;
    /// other.release().await?;
    /// let writer = catalogue.write().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn read_write(&self, name: impl AsRef<str>) -> ReadWriteLock {
        ReadWriteLock {
            locks: self.clone(),
            name: name.as_ref().to_owned(),
        }
    }
}

/// Many who read, or one who writes.
///
/// - Both get a [`Lease`](crate::Lease), with its renewal, its loss and its release on drop. Each
///   reader has a TTL of its own: one that died keeps writers out for the rest of that and not
///   longer, on a `file:` store too.
/// - The writer holds the lock of that name, as by [`Client::lock`]: the two exclude each other,
///   and on Redis readers exclude clients of other libraries, too.
/// - Who waits is served in the order in which all came, as by
///   [`LockOptions::fair`](crate::LockOptions::fair), which therefore changes nothing here. A writer
///   that waits keeps readers out who come later, so that it gets in within the rest of the present
///   reads, one [ticket lease](fencepost_core::ticket::TICKET_LEASE) and one second. Readers that wait side by
///   side are let in together.
/// - A writer's token is larger than those of all who held the lock before. A reader's is at least
///   the last writer's, so that a resource can refuse who writes with it after a later writer; readers
///   of one time may have the same.
/// - A writer may become a reader: [`Lease::downgrade`](crate::Lease::downgrade). A reader cannot
///   become a writer: [`Lease::upgrade`](crate::Lease::upgrade) says why. One that asks to write
///   while it reads waits for itself: let it set a [`wait`](LockRequest::timeout).
#[derive(Clone)]
pub struct ReadWriteLock {
    locks: Client,
    name: String,
}

impl ReadWriteLock {
    /// Takes the lock together with others who read. Await what this returns, or set options on it
    /// first.
    #[must_use = "nothing is locked before it is awaited"]
    pub fn read(&self) -> LockRequest {
        LockRequest::new(self.locks.clone(), &self.name).to(Access::Shared)
    }

    /// Takes the lock for itself. Await what this returns, or set options on it first.
    #[must_use = "nothing is locked before it is awaited"]
    pub fn write(&self) -> LockRequest {
        LockRequest::new(self.locks.clone(), &self.name).to(Access::Exclusive)
    }
}

impl fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadWriteLock").field(&self.name).finish()
    }
}
