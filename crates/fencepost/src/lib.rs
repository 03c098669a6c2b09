//! Distributed locks with fencing tokens: on a quorum of Redis or Valkey servers, on one Redis, or
//! on nothing but the machine you are on.
//!
//! ```
//! use std::time::Duration;
//! use fencepost::Client;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fencepost::Error> {
//! // Or "file:/var/lib/app/locks.db", "redis://a,redis://b,redis://c", or "https://locks.example".
//! let locks = Client::connect("memory:").await?;
//!
//! // Waits for the lock, renews it while the body runs, drops the body if the lock is lost,
//! // and releases it in the end.
//! locks
//!     .lock("invoice-42")
//!     .run(async |lease| {
//!         // The token grows with every holder: let the resource refuse older ones.
//!         println!("charging with token {}", lease.token());
//!     })
//!     .await?;
//!
//! // The same by hand, with a limit on waiting.
//! let lease = locks.lock("invoice-42").timeout(Duration::from_secs(2)).await?;
//! assert!(lease.is_valid());
//! lease.release().await?;
//! # Ok(()) }
//! ```
//!
//! # What is promised
//! - **Mutual exclusion for a bounded time.** A lease is valid for its TTL, less the time that it
//!   took to get it and the [`Drift`] of the clocks. [`Lease::is_valid`] and [`Lease::remaining`]
//!   tell by the holder's own clock, which keeps running while the machine is suspended.
//! - **Tokens that only grow.** The [`FencingToken`]s of one name are unique, and an acquisition
//!   that began after another had returned has the larger one. This holds under any delay, pause,
//!   partition and clock error, as long as the nodes keep their data.
//! - **Loss is reported.** A lease that can no longer be trusted says so [at or before](Lease::lost)
//!   the end of its validity, even when every node hangs, and says why.
//! - **No deadlock.** The lock of a holder that died is free one TTL later at the latest; on one
//!   machine (`file:`) at once.
//! - **Fault tolerance.** Everything works while a majority of the nodes is up, at the speed of the
//!   fastest majority. Nothing that is dropped half-way leaves a lock behind.
//!
//! # What is not promised
//! - A holder that is paused past its deadline cannot be told before it runs again. Only a resource
//!   that checks tokens is safe until then: see [`fence`].
//! - On Redis, two nodes of three that lose their data at the same time lose their locks, and a
//!   node whose clock runs ahead by more than the [`Drift`] frees its locks too early.
//! - Waiters are served first in, first out only if all clients ask for it: see [`LockOptions::fair`].
//!
//! # Forks
//! A client, its leases and its runtime belong to the process that made them. Make a client in the child. `fork`
//! followed by `exec`, as [`std::process::Command`] does it, is harmless: descriptors are closed on `exec`.
//!
//! | in the child of a fork | Redis | file | lock service |
//! | --- | --- | --- | --- |
//! | a request of the inherited client | fails: [`NodeError::Forked`] | fails: [`NodeError::Unusable`] | fails: [`NodeError::Forked`] |
//! | an inherited lease is dropped | releases nothing | releases nothing | releases nothing |
//! | the client and the runtime are dropped | the parent keeps its connections and its timer | nothing of the parent's is touched | *not checked* |
//! | a new client | works | fails if the parent had any file open: SQLite does not support that | works |
//!
//! Not checked:
//! - A child that *runs* the inherited runtime. It shares the parent's `epoll`, whose events then reach only one of them.
//! - [`Lease::is_valid`], [`Lease::remaining`] and [`Lease::lost`], which go on to tell of the parent's lease.
//! - What else is on that runtime: the application's own sockets, and the connection to a lock service, which the parent
//!   finds mute once the child has dropped them, and replaces.
//! - A child that has its parent's process id, because it is in another pid namespace.
//! - Threads: as in any program, the child of one with several may do little but `exec`.
//!
//! # The API
//! The [`Client`] makes requests. A request takes options and ends in one of three ways: `.await` returns a
//! guard, `.run(body)` runs a body under it, and `client.block(request)` blocks a thread (`blocking`).
//!
//! | call | request | guard |
//! | --- | --- | --- |
//! | [`lock`](Client::lock), [`try_lock`](Client::try_lock) | [`LockRequest`] | [`Lease`] |
//! | [`lock_all`](Client::lock_all), [`try_lock_all`](Client::try_lock_all) | [`MultiRequest`] | [`MultiLease`] |
//! | [`read_write`](Client::read_write): [`read`](RwLock::read), [`try_read`](RwLock::try_read) | [`ReadRequest`] | [`ReadLease`] |
//! | [`read_write`](Client::read_write): [`write`](RwLock::write), [`try_write`](RwLock::try_write) | [`WriteRequest`] | [`WriteLease`] |
//! | [`semaphore`](Client::semaphore): [`acquire`](Semaphore::acquire), [`try_acquire`](Semaphore::try_acquire) | [`PermitRequest`] | [`Permit`] |
//! | [`reentrant`](Client::reentrant): [`lock`](ReentrantLock::lock), [`try_lock`](ReentrantLock::try_lock) | [`ReentrantRequest`] | [`ReentrantGuard`] |
//! | [`election`](Client::election): [`campaign`](Election::campaign), [`try_campaign`](Election::try_campaign) | [`Campaign`] | [`Leadership`] |
//!
//! - `try_*` is one attempt, with renewal, everywhere. `timeout(d)` limits the wait, everywhere.
//! - Every request has the options of [`LockOptions`], and `on_progress`.
//! - [`Latch`] and [`Barrier`] wait for k parties. [`Client::status`], [`Client::list`] and
//!   [`diagnostics`] inspect locks and nodes. [`DetachedLock`] outlives its process. [`fence`] is the
//!   resource's side.
//! - An [`Error`] has a [`kind`](Error::kind), and tells the [holder](Error::holder), the
//!   [nodes](Error::nodes) and the [loss](Error::loss).
//!
//! # The words
//! One word per idea, in code, documentation and output alike.
//!
//! | word | meaning |
//! | --- | --- |
//! | node | one independent voter: a Redis master, a Sentinel group, a Cluster, a SQLite file, a table in memory |
//! | quorum | a majority of the *configured* nodes: `n / 2 + 1` |
//! | lock, mutex | what a name stands for; at most one holder at a time |
//! | acquire, release, extend, renew | the verbs; to renew is to extend by a timer |
//! | lease | what an acquisition gives: lease id, token, deadline |
//! | lease id | 128 random bits that name one lease |
//! | value | what a node stores for a holder: lease id, attempt, token, owner |
//! | owner | the readable label of a holder |
//! | attempt | one try at acquiring, with a value of its own; a failed one cleans up exactly that value |
//! | fencing token | the number that grows with every acquisition of a name |
//! | fence register | per node and lock, the largest token ever raised there; no holder's token |
//! | TTL, expiry | how long a node keeps the lock of a silent holder; the end of that time |
//! | deadline, validity | until when the holder may rely on its lease, by its own clock |
//! | lost | of a lease: no longer trustworthy |
//! | in flight, unknown outcome | of a call: sent and not answered; not known whether it had its effect |
//! | duplicate, idempotent | a call that arrives twice; one for which that changes nothing |
//! | timeout | the limit on waiting |
//! | queue, waiter, ticket, wake, hand-off | waiting; a ticket is a waiter's place; a release wakes the head of the queue |
//! | retry, backoff | another attempt; the random pause before it |
//! | tombstone | refuses an acquire that arrives after its release |
//! | quarantine | a node that may have forgotten locks does not vote |
//! | marker | per node: which cluster it belongs to, and which incarnation of its data this is |
//! | detached lock | a lock that outlives the process that acquired it: name, value, token |
//!
//! # The map
//! Each module knows those below it and nothing above.
//!
//! | module | what it is |
//! | --- | --- |
//! | `blocking` | a background thread and `block` |
//! | `client` | [`Client`], which makes requests, and [`Builder`] |
//! | `lock`, `rw_lock`, `semaphore`, `reentrant`, `multi`, `election`, `rendezvous` | one topic each |
//! | `acquire` | the one path to a lease: any or all of several names, waited for |
//! | `options` | the options and the endings of every request |
//! | `lease` | [`Lease`]: its token, its deadline, its loss, its release; `run` |
//! | `leased` | leases whose id was chosen by a client of a lock service |
//! | `detached`, `inspect` | locks that outlive their process; observing locks from outside |
//! | `driver` | what sends, sleeps and spawns: coordinator, releases, renewer, waiters |
//! | `store` | one place that stores locks: `redis`, `sqlite`, `memory`, `service` |
//! | `runtime` | clocks, random numbers, tasks, the background thread |
//! | [`events`], `error` | logs and metrics; errors |
//! | `fencepost_core` | the pure decisions and the words |
//!
//! # Features
//! `redis`, `sqlite`, `tls` and `blocking` are on by default, and each is usable alone. The memory
//! store is always there. `service` makes a lock service a store: `fencepost serve`, at `https://`. `metrics` counts what happens: see [`events`]. `serde` makes a
//! [`FencingToken`] a number in whatever serde writes. `testing` lets a test lose or delay a lease.

// Tests have tasks and threads of their own.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod acquire;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod detached;
mod driver;
mod election;
mod error;
pub mod events;
pub mod fence;
mod inspect;
mod lease;
#[doc(hidden)]
pub mod leased;
mod lock;
mod multi;
mod options;
mod reentrant;
mod rendezvous;
mod runtime;
mod rw_lock;
mod semaphore;
mod store;

#[cfg(feature = "redis")]
pub use client::InitOptions;
pub use client::{Builder, Client, RestartPolicy, Stolen};
pub use detached::DetachedLock;
pub use driver::waiters::Progress;
pub use election::{Campaign, Election, Leader, Leadership, Observer};
pub use error::{Error, ErrorKind, HolderStatus, LossReason, NodeError, NodeOutcome, NodeReport};
pub use fencepost_core::lock::{Holder, Snapshot};
pub use fencepost_core::{
    AttemptValue, Drift, FencingToken, InvalidDrift, InvalidName, InvalidOwner, InvalidSession,
    InvalidToken, LockName, Owner, SessionId,
};
pub use inspect::list::{Listing, NamePattern};
pub use inspect::queue::Waiter;
pub use inspect::status::{NodeStatus, Status};
pub use lease::{Lease, LeaseWatch};
pub use lock::LockRequest;
pub use multi::{LostLock, MultiLease, MultiRequest};
pub use options::LockOptions;
pub use reentrant::{ReentrantGuard, ReentrantLock, ReentrantRequest};
pub use rendezvous::{Barrier, Counted, Latch, Passage};
pub use rw_lock::{ReadLease, ReadRequest, RwLock, WriteLease, WriteRequest};
pub use semaphore::{Permit, PermitHolder, PermitRequest, Semaphore};
#[cfg(feature = "sqlite")]
pub use store::sqlite::HolderProcess;

/// Facts about the nodes: see [`Builder::survey`].
pub mod diagnostics {
    pub use crate::store::facts::*;
}

/// For this workspace's own tests, model and simulation. Nothing here is stable.
#[doc(hidden)]
pub mod internals {
    pub use crate::client::Replica;
    pub use crate::runtime::{clock, randomness, tasks};
    pub use crate::store::lock_service::{LockService, Served, Serving, Wanted};
    pub use crate::store::open::split_urls;
    #[cfg(feature = "redis")]
    pub use crate::store::redis;
    #[cfg(feature = "sqlite")]
    pub use crate::store::sqlite;
    pub use crate::store::{
        Call, Inbox, Listener, Names, Node, Notice, Queued, Request, WakeSink, memory,
    };
}

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
