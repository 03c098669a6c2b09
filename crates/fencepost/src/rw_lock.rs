//! [`RwLock`]: many readers or one writer.
//!
//! A writer holds the lock of this name as [`lock`](crate::Client::lock) does; readers share it. A
//! reader and a writer must never hold it at the same time.

use std::fmt;
use std::sync::Arc;

use crate::acquire;
use crate::detached::DetachedLock;
use crate::driver::claim::Access;
use crate::driver::shared::Shared;
use crate::error::Error;
use crate::lease::Lease;
use crate::lease::run::lease_guard;
use crate::options::{Ask, request};
use fencepost_core::name::LockName;

/// Many readers or one writer.
///
/// - Both get a [`Lease`] in a [`ReadLease`] or a [`WriteLease`], with its renewal, its loss and its
///   release on drop. Each reader has its own TTL: a dead reader blocks writers for the rest of its
///   TTL at most, also on a `file:` store.
/// - The writer holds the lock of this name, as with [`Client::lock`](crate::Client::lock): the two
///   exclude each other, and on Redis readers also exclude clients of other libraries.
/// - Waiters are served first in, first out, as with
///   [`LockOptions::fair`](crate::LockOptions::fair), which therefore changes nothing here. A waiting
///   writer blocks later readers, so that it acquires the lock within the rest of the current reads,
///   one ticket lease of 3 s and one second. Adjacent readers in the
///   queue are admitted together.
/// - A writer's token is larger than those of all earlier holders. A reader's token is at least the
///   last writer's, so that a resource can reject a stale writer; concurrent readers may share a
///   token.
/// - A writer may become a reader: [`WriteLease::downgrade`]. A reader cannot become a writer, because
///   two that waited for each other would deadlock. Acquiring the write lock while holding the read
///   lock deadlocks: set a [`timeout`](WriteRequest::timeout).
#[derive(Clone)]
pub struct RwLock {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: Result<LockName, Error>,
}

impl RwLock {
    /// Acquires the lock for reading, together with other readers.
    pub fn read(&self) -> ReadRequest {
        ReadRequest(self.ask())
    }

    /// Acquires the lock for reading, in a single attempt.
    pub fn try_read(&self) -> ReadRequest {
        ReadRequest(self.ask().once())
    }

    /// Acquires the lock for writing.
    pub fn write(&self) -> WriteRequest {
        WriteRequest(self.ask())
    }

    /// Acquires the lock for writing, in a single attempt.
    pub fn try_write(&self) -> WriteRequest {
        WriteRequest(self.ask().once())
    }

    fn ask(&self) -> Ask<LockName> {
        Ask::new(self.shared.clone(), self.name.clone())
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RwLock").field(&self.name).finish()
    }
}

request! {
    /// A request for a read lock. Await it. It waits as a
    /// [`LockRequest`](crate::LockRequest) does, always fair.
    ReadRequest(LockName) -> ReadLease by read
}

request! {
    /// A request for a write lock. Await it. It waits as a
    /// [`LockRequest`](crate::LockRequest) does, always fair.
    WriteRequest(LockName) -> WriteLease by write
}

async fn read(ask: Ask<LockName>) -> Result<ReadLease, Error> {
    let lease = acquire_to(Access::Shared, ask).await?;
    Ok(ReadLease { lease })
}

async fn write(ask: Ask<LockName>) -> Result<WriteLease, Error> {
    let lease = acquire_to(Access::Exclusive, ask).await?;
    Ok(WriteLease { lease })
}

async fn acquire_to(access: Access, ask: Ask<LockName>) -> Result<Lease, Error> {
    let spec = acquire::check(&ask)?.to(access);
    acquire::one(&ask.shared, &ask.what?, spec).await
}

/// A reader's [`Lease`] on a [`RwLock`]: others may read at the same time.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the lease is dropped"]
pub struct ReadLease {
    lease: Lease,
}

/// A writer's [`Lease`] on a [`RwLock`]: no other client holds it at the same time.
#[derive(Debug)]
#[must_use = "the lock is released as soon as the lease is dropped"]
pub struct WriteLease {
    lease: Lease,
}

lease_guard!(ReadLease, release);
lease_guard!(WriteLease, release);

impl ReadLease {
    /// Releases the lock and reports the outcome: see [`Lease::release`].
    ///
    /// # Errors
    /// As there.
    pub async fn release(self) -> Result<(), Error> {
        self.lease.release().await
    }

    /// Ends the lease without releasing the lock: see [`Lease::detach`].
    ///
    /// # Errors
    /// As there.
    pub async fn detach(self) -> Result<DetachedLock, Error> {
        self.lease.detach().await
    }

    /// The lease alone, for a replica of the lock service.
    #[doc(hidden)]
    pub fn into_lease(self) -> Lease {
        self.lease
    }
}

impl WriteLease {
    /// Continues as a reader, without a gap: no writer can acquire the lock in between, and waiting
    /// readers are admitted. The token and the limits of the lease stay the same; its TTL starts
    /// anew.
    ///
    /// Each node turns the writer into a reader by itself, so the lease does not depend on how many
    /// of them answered: the others do so when the lease is next renewed or extended, and admit no
    /// other client until then. Dropping the future releases the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let catalogue = locks.read_write("catalogue");
    /// let writer = catalogue.write().await?;
    /// let token = writer.token();
    /// let reader = writer.downgrade().await?;
    /// assert!(reader.is_valid() && reader.token() == token);
    /// let another = catalogue.read().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease is over.
    pub async fn downgrade(self) -> Result<ReadLease, Error> {
        let lease = self.lease.downgrade().await?;
        Ok(ReadLease { lease })
    }

    /// Releases the lock and reports the outcome: see [`Lease::release`].
    ///
    /// # Errors
    /// As there.
    pub async fn release(self) -> Result<(), Error> {
        self.lease.release().await
    }

    /// Ends the lease without releasing the lock: see [`Lease::detach`].
    ///
    /// # Errors
    /// As there.
    pub async fn detach(self) -> Result<DetachedLock, Error> {
        self.lease.detach().await
    }
}
