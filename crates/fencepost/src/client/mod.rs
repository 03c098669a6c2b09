//! [`Client`]: makes requests and inspects locks. [`Builder`]: all its options.

mod builder;
#[cfg(feature = "redis")]
mod init;
mod majority;
mod survey;
#[cfg(any(test, feature = "testing"))]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use crate::acquire;
use crate::acquire::slots::{Kind, Slots};
use crate::detached::{self, DetachedLock};
use crate::driver::shared::Shared;
use crate::election::Election;
use crate::error::Error;
use crate::inspect::list::{self, Listing, NamePattern};
use crate::inspect::queue::{self, Waiter};
use crate::inspect::status::Status;
use crate::lease::Lease;
use crate::leased;
use crate::lock::LockRequest;
use crate::multi::{self, MultiRequest};
use crate::options::{Ask, LockOptions};
use crate::reentrant::ReentrantLock;
use crate::rendezvous::{Barrier, Latch};
use crate::runtime::clock::TokioClock;
use crate::rw_lock::RwLock;
use crate::semaphore::Semaphore;
use crate::store::memory::MemoryNode;
pub use builder::{Builder, RestartPolicy};
use fencepost_core::lock::Snapshot;
use fencepost_core::name::LockName;
use fencepost_core::{AttemptValue, LeaseId, Owner, SessionId};
#[cfg(feature = "redis")]
pub use init::InitOptions;

/// A client of one store: one node, or several that form a quorum.
///
/// Clones are cheap and share the connections. See the [crate's front page](crate) for an
/// introduction.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
}

/// A lock that was stolen from its holder: see [`Client::steal`].
#[derive(Debug)]
#[must_use = "the lock is released as soon as the lease is dropped"]
#[non_exhaustive]
pub struct Stolen {
    /// The new lease.
    pub lease: Lease,
    /// The previous holder.
    pub from: Option<Owner>,
    /// The lease of the lock service that it was held under, for its replicas.
    #[doc(hidden)]
    pub from_lease: Option<LeaseId>,
}

impl Client {
    /// Connects to the store at this URL, or to a quorum of several, separated by commas.
    ///
    /// | URL | store |
    /// | --- | --- |
    /// | `memory:` | a table in this process, shared by all that ask for it |
    /// | `file:PATH` | a file, shared by all processes of this machine |
    /// | `redis://[user][:password]@host[:port][/db]` | a Redis or Valkey server |
    /// | `rediss://…` | the same over TLS |
    /// | `redis+unix:///path/to/socket` | the same over a Unix socket |
    /// | `valkey://`, `valkeys://`, `valkey+unix://` | the same three |
    /// | `redis+sentinel://s1,s2,s3/mymaster` | a Sentinel group: one node whose address moves |
    /// | `redis+cluster://n1,n2,n3` | a Redis Cluster: one node |
    /// | `https://host[:port]`, or `http://` on this machine | a lock service, `fencepost serve`: several URLs are its replicas (feature `service`) |
    ///
    /// Returns as soon as a majority of the nodes answers. Write a comma inside a password as
    /// `%2C`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// let locks = fencepost::Client::connect("memory:").await?;
    /// let lease = locks.lock("nightly-report").await?;
    /// println!("token {}", lease.token());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) for an invalid URL,
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) with each node's reason when fewer
    /// than a majority answers.
    pub async fn connect(urls: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().url(urls).connect().await
    }

    /// All options: nodes, timeouts, owner label, restart policy, …
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A private table in memory: for one process, and for tests. Clones share it.
    ///
    /// It uses tokio's clock, so a test that pauses and advances that clock sees leases expire.
    ///
    /// # Errors
    /// [`ErrorKind::NoRuntime`](crate::ErrorKind::NoRuntime) outside of a tokio runtime.
    pub fn memory() -> Result<Self, Error> {
        let clock = Arc::new(TokioClock::new());
        let node = MemoryNode::with_clock(clock.clone());
        Self::builder().clock(clock).node(node).build()
    }

    /// Acquires the lock if it is free, in a single attempt. The lease renews itself, as with
    /// [`lock`](Self::lock); `renew(false)` turns that off.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let lease = locks.try_lock("invoice-42").await?;
    /// let busy = locks.try_lock("invoice-42").await.unwrap_err();
    /// assert!(busy.is_held());
    /// println!("{} has it", busy.holder().expect("known").owner);
    /// lease.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn try_lock(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest(self.ask(name).once())
    }

    /// Acquires the lock, waiting while another client holds it.
    ///
    /// Await the returned request, or set options on it first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let lease = locks
    ///     .lock("invoice-42")
    ///     .ttl(Duration::from_secs(10))
    ///     .timeout(Duration::from_secs(2))
    ///     .await?;
    /// assert!(lease.is_valid());
    /// # Ok(()) }
    /// ```
    pub fn lock(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest(self.ask(name))
    }

    /// Acquires several locks, all or none, in any order. A name given twice counts once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let both = locks.lock_all(["account-7", "account-3"]).await?;
    /// println!("from {:?} to {:?}", both.token("account-7"), both.token("account-3"));
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiRequest {
        MultiRequest(Ask::new(self.shared.clone(), multi::checked(names)))
    }

    /// Acquires several locks if all of them are free, in a single attempt.
    pub fn try_lock_all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiRequest {
        MultiRequest(Ask::new(self.shared.clone(), multi::checked(names)).once())
    }

    /// A read-write lock: many readers or one writer.
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
    /// assert!(writer.unwrap_err().is_timeout(), "there is a reader");
    /// one.release().await?;
    /// other.release().await?;
    /// let writer = catalogue.write().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn read_write(&self, name: impl AsRef<str>) -> RwLock {
        RwLock {
            shared: self.shared.clone(),
            name: LockName::new(name).map_err(Error::from),
        }
    }

    /// A semaphore: at most `permits` holders at a time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let workers = locks.semaphore("workers", 3);
    /// let permit = workers.acquire().await?;
    /// println!("slot {} with token {}", permit.slot(), permit.token());
    /// permit.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn semaphore(&self, name: impl AsRef<str>, permits: usize) -> Semaphore {
        Semaphore {
            shared: self.shared.clone(),
            slots: Slots::new(Kind::Semaphore, name.as_ref(), permits).map(Arc::new),
        }
    }

    /// A reentrant lock: its owner may acquire it again while holding it. The returned handle is
    /// the owner: its clones may enter again, and another call creates another owner.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let ledger = locks.reentrant("ledger");
    /// let outer = ledger.lock().await?;
    /// let inner = ledger.clone().lock().await?;
    /// assert_eq!(inner.token(), outer.token());
    /// drop(outer);
    /// assert!(inner.is_valid(), "still inside");
    /// assert!(locks.reentrant("ledger").try_lock().await.is_err(), "another owner");
    /// inner.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn reentrant(&self, name: impl AsRef<str>) -> ReentrantLock {
        ReentrantLock::new(self.shared.clone(), name.as_ref())
    }

    /// A leader election: at most one candidate leads at a time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let election = locks.election("scheduler");
    /// let leadership = election.campaign("10.0.0.7:8080").await?;
    /// let leader = election.leader().await?.expect("we lead");
    /// assert_eq!(leader.value, "10.0.0.7:8080");
    /// assert_eq!(leader.token, leadership.token());
    /// leadership.resign().await?;
    /// assert_eq!(election.leader().await?, None);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election {
            shared: self.shared.clone(),
            name: LockName::new(name).map_err(Error::from),
        }
    }

    /// A latch: opens once it has been counted down `counts` times, by any clients.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let latch = locks.latch("import-2024-05-17", 2);
    /// // In two workers, on whatever machines:
    /// latch.count_down().await?;
    /// latch.count_down().await?;
    /// // In everything that waits for them:
    /// latch.wait().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn latch(&self, name: impl AsRef<str>, counts: usize) -> Latch {
        Latch::new(self.shared.clone(), name.as_ref(), counts)
    }

    /// A barrier: lets `parties` pass once all of them have arrived.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// // One name, one round.
    /// let barrier = locks.barrier("phase-1", 2);
    /// let (one, two) = tokio::join!(barrier.wait(), barrier.wait());
    /// assert_ne!(one?.place(), two?.place());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn barrier(&self, name: impl AsRef<str>, parties: usize) -> Barrier {
        Barrier::new(self.shared.clone(), name.as_ref(), parties)
    }

    /// Steals the lock from its holder: an operator's tool against a holder that hangs.
    ///
    /// The old holder learns of it when it next extends its lease, and may keep working until then:
    /// only the fencing token protects the resource from it.
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock), but never [`ErrorKind::Held`](crate::ErrorKind::Held).
    pub async fn steal(&self, name: impl AsRef<str>, ttl: Duration) -> Result<Stolen, Error> {
        self.steal_by(name, ttl, None).await
    }

    async fn steal_by(
        &self,
        name: impl AsRef<str>,
        ttl: Duration,
        on_behalf: Option<leased::OnBehalf>,
    ) -> Result<Stolen, Error> {
        let name = LockName::new(name)?;
        let (lease, from) = acquire::steal(&self.shared, name, ttl, on_behalf).await?;
        Ok(Stolen {
            lease,
            from: from.as_ref().map(AttemptValue::owner),
            from_lease: from.and_then(|value| Some(value.lease_attempt()?.lease)),
        })
    }

    /// For a replica of the lock service: see [`leased`].
    #[doc(hidden)]
    pub async fn steal_for(
        &self,
        name: impl AsRef<str>,
        ttl: Duration,
        on_behalf: leased::OnBehalf,
    ) -> Result<Stolen, Error> {
        self.steal_by(name, ttl, Some(on_behalf)).await
    }

    /// Who holds the lock, and each node's view of it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName). A node that cannot be reached is
    /// part of the result, not an error.
    pub async fn status(&self, name: impl AsRef<str>) -> Result<Status, Error> {
        Ok(Status::ask(&self.shared.coordinator, LockName::new(name)?).await)
    }

    /// For a replica of the lock service: the same as soon as what the nodes have said so far is enough, of which so
    /// many are a majority. The others are not waited for.
    ///
    /// # Errors
    /// As [`status`](Self::status).
    #[doc(hidden)]
    pub async fn status_until(
        &self,
        name: impl AsRef<str>,
        is_enough: impl Fn(&[&Snapshot], usize) -> bool,
    ) -> Result<Status, Error> {
        let coordinator = &self.shared.coordinator;
        let is_enough = |seen: &[&Snapshot]| is_enough(seen, coordinator.quorum.needed());
        Ok(Status::ask_until(coordinator, LockName::new(name)?, is_enough).await)
    }

    /// Waits for background work to finish: releases of dropped leases and of abandoned attempts.
    /// Takes at most one TTL, which is how long a release is retried at a node that is down.
    ///
    /// Dropping the client blocks on nothing; what is in flight finishes while the runtime lives.
    /// Call this before the runtime shuts down.
    pub async fn shutdown(self) {
        self.shared.coordinator.settled().await;
    }

    /// The waiters for the lock, head of the queue first: those known to a majority of the nodes
    /// that answered, at most 256.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), and [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when fewer than a majority of the nodes
    /// answered.
    pub async fn queue(&self, name: impl AsRef<str>) -> Result<Vec<Waiter>, Error> {
        queue::ask(&self.shared, LockName::new(name)?).await
    }

    /// The session of this client: see [`Builder::session`].
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.shared.session
    }

    /// The number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.shared.coordinator.quorum.nodes()
    }

    /// The locks known to the nodes, and their holders.
    ///
    /// On Redis the names come from the fence registers, with `ZSCAN` and never with `KEYS`. So it
    /// lists what fencepost has locked within the retention (24 hours unless set), and no other key of the server. A
    /// lock used only by clients in other languages has no register and is not listed; ask for its
    /// [`status`](Self::status) by name.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) when no node could be reached. A
    /// single unreachable node is part of the result.
    pub async fn list(&self, wanted: &NamePattern) -> Result<Listing, Error> {
        list::list(&self.shared.coordinator, wanted).await
    }

    /// For a replica of the lock service: the names of the locks known to the nodes, in order, and whether there are more.
    #[doc(hidden)]
    pub async fn names(&self, wanted: &NamePattern) -> Result<(Vec<LockName>, bool), Error> {
        let known = list::known(&self.shared.coordinator, wanted).await?;
        Ok((known.names, known.truncated))
    }

    /// For a replica of the lock service: the status of each of them, in the same order.
    #[doc(hidden)]
    pub async fn statuses(&self, names: &[LockName]) -> Vec<Status> {
        Status::ask_for_all(&self.shared.coordinator, names).await
    }

    /// Extends a detached lock to `ttl` from now, and returns its remaining validity.
    ///
    /// The nodes are first asked whether they hold it, so that a mistyped token cannot raise their
    /// registers.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when a majority no longer holds it; the rest is
    /// released. [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when too few nodes answered:
    /// it may or may not be held. [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption)
    /// when the token does not match the value.
    pub async fn extend_detached(
        &self,
        lock: &DetachedLock,
        ttl: Duration,
    ) -> Result<Duration, Error> {
        detached::extend(&self.shared, lock, ttl).await
    }

    /// Releases a detached lock on all nodes.
    ///
    /// Unlike [`Lease::release`](crate::Lease::release) it waits for all of them, each at most for
    /// one node timeout, and leaves a tombstone: commands of the process that acquired the lock may
    /// still be in flight.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when a majority no longer held it: another
    /// client may have held it in between. [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when
    /// too few nodes answered; there it ends by its TTL.
    pub async fn release_detached(&self, lock: &DetachedLock) -> Result<(), Error> {
        detached::release(&self.shared, lock).await
    }

    /// For a replica of the lock service: how each node has voted so far.
    #[doc(hidden)]
    #[must_use]
    pub fn votes(&self) -> Vec<leased::NodeVotes> {
        self.shared.coordinator.votes()
    }

    /// For a replica of the lock service: see [`leased`].
    #[doc(hidden)]
    pub async fn take_over(
        &self,
        name: impl AsRef<str>,
        options: LockOptions,
        on_behalf: leased::OnBehalf,
        from: Vec<AttemptValue>,
    ) -> Result<Lease, Error> {
        let name = LockName::new(name)?;
        acquire::take_over(&self.shared, name, options, on_behalf, from).await
    }

    /// For a replica of the lock service: who waits, by lease.
    #[doc(hidden)]
    pub async fn places(&self, name: impl AsRef<str>) -> Result<leased::Places, Error> {
        leased::Places::ask(&self.shared, LockName::new(name)?).await
    }

    /// For a replica of the lock service: see [`leased`].
    #[doc(hidden)]
    pub async fn release_lease(
        &self,
        name: impl AsRef<str>,
        lease: LeaseId,
    ) -> Result<leased::LeaseRelease, Error> {
        leased::release(&self.shared, LockName::new(name)?, lease).await
    }

    /// For a replica of the lock service: releases what it has kept.
    ///
    /// # Errors
    /// As [`Lease::release`].
    #[doc(hidden)]
    pub async fn release_kept(&self, kept: leased::KeptLease) -> Result<(), Error> {
        kept.release(&self.shared).await
    }

    /// For a replica of the lock service: see [`leased`].
    #[doc(hidden)]
    pub async fn extend_seen(
        &self,
        lock: &DetachedLock,
        ttl: Duration,
        seen: &Status,
    ) -> Result<Duration, Error> {
        detached::extend_seen(&self.shared, lock, ttl, seen).await
    }

    fn ask(&self, name: impl AsRef<str>) -> Ask<LockName> {
        let name = LockName::new(name).map_err(Error::from);
        Ask::new(self.shared.clone(), name)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes = self.shared.coordinator.nodes().iter();
        f.debug_struct("Client")
            .field(
                "nodes",
                &nodes.map(|node| node.address()).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}
