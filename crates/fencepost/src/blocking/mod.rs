//! The same locks for threads without tokio.
//!
//! ```
//! use std::time::Duration;
//! use fencepost::LockOptions;
//! use fencepost::blocking::Client;
//!
//! # fn main() -> Result<(), fencepost::Error> {
//! let locks = Client::connect("memory:")?;
//!
//! let total = locks.with_lock("invoice-42", LockOptions::new(), |lease| {
//!     println!("charging with token {}", lease.token());
//!     42
//! })?;
//! assert_eq!(total, 42);
//!
//! // Or by a guard:
//! let lease = locks
//!     .lock("invoice-42")
//!     .ttl(Duration::from_secs(10))
//!     .timeout(Duration::from_secs(2))
//!     .acquire()?;
//! lease.release()?;
//! # Ok(()) }
//! ```
//!
//! The words are those of the [async API](crate), and so are the promises.
//!
//! # The background thread
//! Each client has one thread, called `fencepost`, on which its connections, the renewal of its
//! leases and its releases go on while your threads work or sleep. It ends by itself when the last
//! clone of the client and its last lease are gone, and releases that are under way get up to two
//! seconds before that. Dropping waits for nothing.
//!
//! # The end of the process
//! The thread does not keep the process alive: when `main` returns, it is gone, and with it a
//! release that was not sent yet. Such a lock ends by its TTL (on a `file:` store at once, with the
//! process). Where that is too late, end with [`Lease::release`] or [`Client::shutdown`], which
//! wait.
//!
//! # Inside of tokio
//! These calls may be made on a thread of a tokio runtime, too, and block it like any other blocking
//! call. Two tasks of a single-threaded runtime that want the same lock would wait for each other
//! for ever: give such a wait a limit, or use the async API.
//!
//! # After a fork
//! Threads are not forked. In the child, every call of a client that was made before the fork fails
//! with [`Error::NoThread`], and a lease still belongs to the parent: do not let the child drop it.
//! Make the client after the fork.

mod background;
mod election;
mod gather;
mod handed_over;
mod multi;
mod read_write;
mod reentrant;
mod semaphore;

use std::fmt;
#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::builder::Builder;
use crate::driver::waiters::Progress;
use crate::error::{Error, LossReason};
use crate::lock::LockOptions;
use crate::options::option_methods;
use crate::status::Status;
use background::Background;
pub use election::{Election, Leadership, Observer};
use fencepost_core::token::FencingToken;
use fencepost_core::value::Owner;
pub use gather::{Barrier, Latch};
pub use multi::{MultiLease, MultiRequest};
pub use read_write::ReadWriteLock;
pub use reentrant::{ReentrantGuard, Session};
pub use semaphore::{Permit, Semaphore};

/// A client of one store, for threads without tokio: see the [module's page](self).
///
/// Clones are cheap, and share the connections and the background thread.
#[derive(Clone)]
pub struct Client {
    // Before the thread, so that it goes first.
    locks: crate::Client,
    background: Arc<Background>,
}

/// A lock that was taken from its holder: see [`Client::steal`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Stolen {
    /// The lock is ours now.
    pub lease: Lease,
    /// Who had it.
    pub from: Option<Owner>,
}

impl Client {
    /// Connects to the store at that URL, or to a quorum of several, separated by commas: see
    /// [`Client::connect`](crate::Client::connect) for the URLs.
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] for a URL that cannot be used, [`Error::Unreachable`] with each
    /// node's reason when fewer than a majority can be asked.
    pub fn connect(urls: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().url(urls).connect_blocking()
    }

    /// All options. The builder is the async client's; end with
    /// [`connect_blocking`](Builder::connect_blocking) or
    /// [`build_blocking`](Builder::build_blocking).
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A table in memory of its own: for one process, and for tests. Clones share it.
    ///
    /// # Errors
    /// [`Error::NoThread`] when the background thread cannot be started.
    pub fn memory() -> Result<Self, Error> {
        Self::builder()
            .node(crate::store::memory::MemoryNode::new())
            .build_blocking()
    }

    /// A file, shared by all processes of this machine. It is made if it is missing.
    ///
    /// # Errors
    /// [`Error::Store`] when the file cannot be opened.
    #[cfg(feature = "sqlite")]
    pub fn file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().file(path).build_blocking()
    }

    /// Takes the lock if it is free. One round trip; never waits.
    ///
    /// The lease does not renew itself: it ends after `ttl` at the latest, unless you
    /// [extend](Lease::extend) it.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let lease = locks.try_lock("invoice-42", Duration::from_secs(10))?;
    /// let busy = locks.try_lock("invoice-42", Duration::from_secs(10));
    /// assert!(busy.unwrap_err().is_held());
    /// lease.release()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Client::try_lock`](crate::Client::try_lock).
    pub fn try_lock(&self, name: impl AsRef<str>, ttl: Duration) -> Result<Lease, Error> {
        let lease = self.background.run(self.locks.try_lock(name, ttl))?;
        Ok(self.keep(lease))
    }

    /// Takes the lock, waiting for it if somebody else has it. Set options on what this returns, and
    /// end with [`acquire`](LockRequest::acquire).
    #[must_use = "nothing is locked before `acquire`"]
    pub fn lock(&self, name: impl AsRef<str>) -> LockRequest<'_> {
        LockRequest {
            client: self,
            request: self.locks.lock(name),
        }
    }

    /// Runs a body under the lock: waits for the lock, renews it while the body runs, and releases
    /// it in the end, also when the body returns early or panics.
    ///
    /// A thread cannot be stopped from outside. When the lock is lost, the body goes on, and is told
    /// if it asks: by [`Lease::is_valid`], [`Lease::loss`] or [`Lease::cancellation`]. What it
    /// returns in the end is dropped, and the caller gets [`Error::Lost`] with the reason. Only the
    /// [fencing token](Lease::token) protects the resource from a body that does not ask.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// use std::time::Duration;
    /// use fencepost::LockOptions;
    ///
    /// let options = LockOptions::new().timeout(Duration::from_secs(2));
    /// let done = locks.with_lock("job", options, |lease| {
    ///     (1..=3).take_while(|_| lease.is_valid()).count()
    /// })?;
    /// assert_eq!(done, 3);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`lock`](Self::lock), and [`Error::Lost`].
    pub fn with_lock<T>(
        &self,
        name: impl AsRef<str>,
        options: LockOptions,
        body: impl FnOnce(&Lease) -> T,
    ) -> Result<T, Error> {
        let lease = self.lock(name).options(options).acquire()?;
        let value = body(&lease);
        if let Some(why) = lease.loss() {
            let name = lease.lease.lock_name().clone();
            return Err(Error::Lost { name, why });
        }
        match lease.release() {
            // The work was done in time. The nodes that are away are told later.
            Ok(()) | Err(Error::NoQuorum { .. }) => Ok(value),
            Err(error) => Err(error),
        }
    }

    /// Takes the lock from whoever has it: see [`Client::steal`](crate::Client::steal).
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock), without [`Error::Held`].
    pub fn steal(&self, name: impl AsRef<str>, ttl: Duration) -> Result<Stolen, Error> {
        let crate::Stolen { lease, from } = self.background.run(self.locks.steal(name, ttl))?;
        let lease = self.keep(lease);
        Ok(Stolen { lease, from })
    }

    /// Who holds the lock, and what each node says of it.
    ///
    /// # Errors
    /// [`Error::InvalidName`]. A node that cannot be asked is part of the answer, not an error.
    pub fn status(&self, name: impl AsRef<str>) -> Result<Status, Error> {
        self.background.run(self.locks.status(name))
    }

    /// Waits until what goes on in the background has ended: releases of dropped leases, and of
    /// attempts that were given up. At most as long as a node that is away is waited for, which is
    /// one TTL.
    ///
    /// Use this before the process ends, when a lock that was just dropped must be free at once.
    pub fn shutdown(self) {
        let Self { locks, background } = self;
        // Without its thread, nothing goes on in the background.
        let _ = background.run(async {
            locks.shutdown().await;
            Ok(())
        });
    }

    fn keep(&self, lease: crate::Lease) -> Lease {
        Lease {
            lease,
            background: self.background.clone(),
        }
    }
}

impl Builder {
    /// As [`connect`](Self::connect), for threads without tokio.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// use fencepost::blocking::Client;
    ///
    /// let locks = Client::builder()
    ///     .url("memory:")
    ///     .owner("billing@web-3")
    ///     .connect_blocking()?;
    /// # drop(locks);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`Error::NoThread`].
    pub fn connect_blocking(self) -> Result<Client, Error> {
        let (locks, background) = Background::start(self.connect())?;
        Ok(Client { locks, background })
    }

    /// As [`build`](Self::build), for threads without tokio.
    ///
    /// # Errors
    /// As [`build`](Self::build), and [`Error::NoThread`].
    pub fn build_blocking(self) -> Result<Client, Error> {
        let (locks, background) = Background::start(async { self.build() })?;
        Ok(Client { locks, background })
    }
}

/// A lock that is being asked for. End with [`acquire`](Self::acquire).
///
/// ```
/// # fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::blocking::Client::memory()?;
/// use std::time::Duration;
///
/// let first = locks.lock("job").acquire()?;
/// let second = locks.lock("job").timeout(Duration::from_millis(20)).acquire();
/// assert!(second.unwrap_err().is_held(), "waited, and it was held all the time");
/// # Ok(()) }
/// ```
#[must_use = "nothing is locked before `acquire`"]
#[derive(Debug)]
pub struct LockRequest<'a> {
    client: &'a Client,
    request: crate::LockRequest,
}

impl LockRequest<'_> {
    fn set(mut self, option: impl FnOnce(crate::LockRequest) -> crate::LockRequest) -> Self {
        self.request = option(self.request);
        self
    }

    option_methods!(options, ttl, timeout, fair, renew, max_hold, max_renewals);

    /// Tells how the wait goes on, from the background thread: see
    /// [`LockRequest::on_progress`](crate::LockRequest::on_progress).
    pub fn on_progress(mut self, tell: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.request = self.request.on_progress(tell);
        self
    }

    /// Blocks until the lock is ours, or the wait is over.
    ///
    /// # Errors
    /// As [`Client::try_lock`]: the one of the last attempt, after having waited.
    pub fn acquire(self) -> Result<Lease, Error> {
        let Self { client, request } = self;
        let lease = client.background.run(request.into_future())?;
        Ok(client.keep(lease))
    }
}

/// A lock that is ours until the lease ends: the [async lease](crate::Lease) for threads.
///
/// A lease from [`lock`](Client::lock) renews itself in the background until it is released,
/// dropped, or has been held for as long as it may be. Dropping it, also while a panic unwinds, ends
/// its renewal at once and gives the lock back in the background; [`release`](Self::release) waits
/// for it and tells the outcome.
pub struct Lease {
    // Before the thread, so that it goes first, and its release is on its way.
    lease: crate::Lease,
    background: Arc<Background>,
}

impl Lease {
    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.lease.name()
    }

    /// The fencing token: larger than that of every earlier holder. Hand it to the resource.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.lease.token()
    }

    /// The value that the nodes store for this lease: random, then the owner's label.
    #[must_use]
    pub fn value(&self) -> &str {
        self.lease.value()
    }

    /// How long the lock is still ours, if it is not renewed. Zero when it is not ours.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Whether the lock is ours at this moment, by our own clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.lease.is_valid()
    }

    /// How the lease was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.lease.loss()
    }

    /// Blocks until the lease is lost and says how, or until the time is over: then `None`.
    ///
    /// A loss is told at or before the end of validity: see [`Lease::lost`](crate::Lease::lost). Any
    /// number of threads may wait.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let lease = locks.lock("job").ttl(Duration::from_millis(100)).renew(false).acquire()?;
    /// assert_eq!(lease.wait_lost(Duration::from_millis(1)), None);
    /// let why = lease.wait_lost(Duration::from_secs(1)).expect("not renewed, so it ends");
    /// println!("stop: {why}");
    /// # Ok(()) }
    /// ```
    pub fn wait_lost(&self, at_most: Duration) -> Option<LossReason> {
        wait_lost(&self.background, &self.lease, at_most)
    }

    /// A token that is cancelled when the lock is no longer ours: lost, released or dropped.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.lease.cancellation()
    }

    /// Keeps the lock for another TTL from now. The token stays the same.
    ///
    /// A lease that renews itself does not need this. A failure takes nothing away.
    ///
    /// # Errors
    /// As [`Lease::extend`](crate::Lease::extend).
    pub fn extend(&self) -> Result<(), Error> {
        self.background.run(self.lease.extend())
    }

    /// Gives the lock back and tells the outcome, as soon as a majority has answered.
    ///
    /// # Errors
    /// As [`Lease::release`](crate::Lease::release).
    pub fn release(self) -> Result<(), Error> {
        let Self { lease, background } = self;
        background.run(lease.release())
    }
}

fn wait_lost(
    background: &Background,
    lease: &crate::Lease,
    at_most: Duration,
) -> Option<LossReason> {
    let lost = async { Ok(tokio::time::timeout(at_most, lease.lost()).await.ok()) };
    // Without the thread nobody renews it.
    let gone = |_| Some(lease.loss().unwrap_or(LossReason::ClientGone));
    background.run(lost).unwrap_or_else(gone)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.locks.fmt(f)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}
