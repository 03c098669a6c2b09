//! Clients for threads without tokio: a background thread, and [`Client::block`].
//!
//! ```
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), fencepost::Error> {
//! let client = fencepost::blocking::connect("memory:")?;
//!
//! let lease = client.block(client.lock("invoice-42").timeout(Duration::from_secs(2)))?;
//! println!("charging with token {}", lease.token());
//! client.block(lease.release())?;
//!
//! // Or a body under the lock.
//! let total = client.block(client.lock("invoice-42").run(async |lease| {
//!     println!("charging with token {}", lease.token());
//!     42
//! }))?;
//! assert_eq!(total, 42);
//! # Ok(()) }
//! ```
//!
//! The [`Client`], its requests and its guards are the same types as in async code: pass to
//! [`block`](Client::block) what you would await.
//!
//! # The background thread
//! Each client has one thread, named `fencepost`. It drives the client's connections, renewals and
//! releases while your threads work or sleep. It ends by itself when the last clone of the client
//! and its last guard are gone; releases in flight get up to two seconds before that. Dropping
//! blocks on nothing.
//!
//! # The end of the process
//! The thread does not keep the process alive: when `main` returns, it is gone, and so is a release
//! that was not sent yet. Such a lock ends by its TTL (on a `file:` store at once, with the
//! process). If that is too late, block on [`Lease::release`](crate::Lease::release) or
//! [`Client::shutdown`].
//!
//! # Inside of tokio
//! On a thread of an async runtime `block` is an error, not a hang: await the request there. On one of
//! `spawn_blocking`, hand the request to tokio's own `Handle::block_on`.
//!
//! # After a fork
//! Threads do not survive a fork. In the child, `block` of a client that was created before the
//! fork fails with [`ErrorKind::NoThread`](crate::ErrorKind::NoThread), and leases still belong to
//! the parent: do not drop them in the child. Create the client after the fork.

use crate::client::{Builder, Client};
use crate::error::Error;
use crate::runtime::thread::{Background, NOT_BLOCKING, no_thread};

/// Connects to the store at this URL, or to a quorum of several, separated by commas: see
/// [`Client::connect`] for the URLs.
///
/// # Errors
/// As [`Client::connect`], and [`ErrorKind::NoThread`](crate::ErrorKind::NoThread) when the background
/// thread cannot be started.
pub fn connect(urls: impl AsRef<str>) -> Result<Client, Error> {
    Client::builder().url(urls).blocking()
}

/// A private table in memory: for one process, and for tests. Clones share it.
///
/// # Errors
/// [`ErrorKind::NoThread`](crate::ErrorKind::NoThread) when the background thread cannot be started.
pub fn memory() -> Result<Client, Error> {
    start(async { Client::memory() })
}

impl Builder {
    /// As [`connect`](Self::connect), for threads without tokio: see [`blocking`](crate::blocking).
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// let client = fencepost::Client::builder()
    ///     .url("memory:")
    ///     .owner("billing@web-3")
    ///     .blocking()?;
    /// # drop(client);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and [`ErrorKind::NoThread`](crate::ErrorKind::NoThread).
    pub fn blocking(self) -> Result<Client, Error> {
        // The background thread's runtime has.
        start(self.enable_io().connect())
    }
}

fn start(
    opening: impl Future<Output = Result<Client, Error>> + Send + 'static,
) -> Result<Client, Error> {
    let (client, thread) = Background::start(opening, |client: &Client| {
        // Only the nodes: the client itself would keep its thread alive.
        let coordinator = client.shared.coordinator.clone();
        async move { coordinator.settled().await }
    })?;
    // It is new, so it is still empty.
    let _ = client.shared.thread.set(thread);
    Ok(client)
}

impl Client {
    /// Runs a request, or any other future, and blocks this thread until it is done. For clients of
    /// [`blocking::connect`](connect) and [`Builder::blocking`].
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let client = fencepost::blocking::memory()?;
    /// let workers = client.semaphore("workers", 3);
    /// let permit = client.block(workers.acquire())?;
    /// println!("slot {}, {:?}", permit.slot(), client.block(client.status("workers"))?.holder);
    /// // What is no `Result` becomes one.
    /// # if false {
    /// let why = client.block(async { Ok(permit.lost().await) })?;
    /// # println!("{why}"); }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The error of the request; and [`ErrorKind::NoThread`](crate::ErrorKind::NoThread) on a
    /// thread of an async runtime, in a forked child, and for a client that lives on an async
    /// runtime.
    pub fn block<T>(
        &self,
        request: impl IntoFuture<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self.shared.thread.get() {
            Some(thread) => thread.run(request.into_future()),
            None => Err(no_thread(NOT_BLOCKING)),
        }
    }
}
