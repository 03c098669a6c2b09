//! Distributed locks with fencing tokens: on a quorum of Redis or Valkey servers, on one Redis, or
//! on nothing but the machine you are on.
//!
//! ```
//! use fencepost::{Client, LockOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fencepost::Error> {
//! // Or "file:/var/lib/app/locks.db", or "redis://a,redis://b,redis://c".
//! let locks = Client::connect("memory:").await?;
//!
//! // Waits for the lock, renews it while the body runs, stops the body if the lock is lost,
//! // and gives it back in the end.
//! locks
//!     .scope("invoice-42", LockOptions::new(), async |lease| {
//!         // The token grows with every holder: let the resource refuse older ones.
//!         println!("charging with token {}", lease.token());
//!     })
//!     .await?;
//!
//! // The same by hand.
//! let lease = locks.lock("invoice-42").await?;
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
//! - **The holder is told.** A lease that can no longer be trusted says so [at or before](Lease::lost)
//!   the end of its validity, even when every node hangs, and says why.
//! - **No deadlock.** The lock of a holder that died is free one TTL later at the latest; on one
//!   machine (`file:`) at once.
//! - **Fault tolerance.** Everything works while a majority of the nodes is up, at the speed of the
//!   fastest majority. Nothing that is dropped half-way leaves a lock behind.
//!
//! # What is not promised
//! - A holder that is paused past its deadline cannot be told before it runs again. Only a resource
//!   that checks tokens is safe from what it does first: see [`fence`].
//! - On Redis, two nodes of three that lose their data at the same time lose their locks, and a
//!   node whose clock runs ahead by more than the [`Drift`] frees its locks too early.
//! - Who waits longest is served first only where all ask for it: see [`LockOptions::fair`].
//!
//! # The API
//! A request is made by the client, takes options, and ends in one of three ways: `.await` gives a
//! guard, `.run(body)` runs a body under the lock, and `client.block(request)` blocks a thread.
//!
//! | call | guard |
//! | --- | --- |
//! | `client.lock(name)`, `try_lock` | `Lease` |
//! | `client.lock_all(names)`, `try_lock_all` | `MultiLease` |
//! | `client.read_write(name)`: `read`, `try_read`, `write`, `try_write` | `ReadLease`, `WriteLease` |
//! | `client.semaphore(name, k)`: `acquire`, `try_acquire` | `Permit` |
//! | `client.reentrant(name)`: `lock`, `try_lock` | `ReentrantGuard` |
//! | `client.election(name)`: `campaign`, `try_campaign` | `Leadership` |
//!
//! - `try_*` is one attempt, with renewal, everywhere. `timeout(d)` limits the wait, everywhere.
//! - Every request has the options of `LockOptions`: `ttl`, `timeout`, `fair`, `renew`, `max_hold`,
//!   `max_renewals`; and `on_progress`.
//! - Beside requests the client has `latch`, `barrier`, `steal`, `status`, `list`, `node_count`,
//!   `extend_detached`, `release_detached` and `shutdown`; and is made by `connect`, `builder`,
//!   `memory`, `file`.
//! - An `Error` has a `kind()`, and tells the `holder()`, the `nodes()`, the `loss()`.
//!
//! # The words
//! | word | meaning |
//! | --- | --- |
//! | node | one independent voter: a Redis master, a SQLite file, a table in memory |
//! | quorum | more than half of the *configured* nodes |
//! | acquire, release, extend, renew | the verbs; to renew is to extend by a timer |
//! | lease | what an acquisition gives: a token and a deadline |
//! | value | what a node stores for a holder; random, then the owner's label |
//! | owner | the readable label of a holder |
//! | attempt | one try at acquiring, with a value of its own |
//! | token | the number that grows with every acquisition of a name |
//! | TTL, expiry | how long a node keeps the lock of a silent holder; the end of that |
//! | timeout | the limit on waiting |
//! | lost | of a lease: no longer trustworthy |
//! | queue, waiter, ticket, wake | waiting |
//! | tombstone | refuses an acquire that arrives after its release |
//! | quarantine | a node that may have forgotten locks does not vote |
//! | detached lock | a lock that outlives the process that acquired it: name, value, token |
//!
//! # The map
//! Each module knows those below it and nothing above.
//!
//! | module | what it is |
//! | --- | --- |
//! | `blocking` | the same for threads without tokio |
//! | [`Client`], [`Builder`] | the client: [`scope`](Client::scope), [`lock`](Client::lock), [`try_lock`](Client::try_lock) |
//! | [`Session`] | a lock that its holder may enter again: [`ReentrantRequest`], [`ReentrantGuard`] |
//! | [`Semaphore`] | at most k at a time: [`Permit`], [`PermitRequest`] |
//! | [`Election`] | one leader, whom all can see: [`Campaign`], [`Leadership`], [`Observer`] |
//! | [`ReadWriteLock`] | many who read, or one who writes |
//! | [`Latch`], [`Barrier`] | waiting until k have come: [`Counted`], [`Passage`] |
//! | [`LockRequest`], [`LockOptions`], [`Progress`] | asking and waiting |
//! | [`MultiRequest`], [`MultiLease`] | several locks at once, all or none |
//! | [`Lease`] | what you hold: its token, its renewal, its loss |
//! | [`DetachedLock`] | what you hold beyond the end of your process |
//! | [`Status`], [`Listing`], [`survey`] | what you see: of one lock, of all, of the nodes |
//! | [`fence`] | how a resource checks a token |
//! | `look` | one look at several locks at once |
//! | [`events`] | what logs and metrics tell |
//! | `wait` | tickets, wake-ups, and looking for what was missed |
//! | [`quorum`] | acquire, certify, extend, release over n nodes; pure decisions |
//! | [`node`] | one place that stores locks: `redis`, `sqlite`, `memory` |
//! | [`state`] | the pure state machine of one lock on one node |
//! | [`LockName`], [`AttemptValue`], [`FencingToken`], [`Ttl`], [`ticket`], [`clock`] | the words |
//!
//! # Features
//! `redis`, `sqlite`, `tls` and `blocking` are on by default, and each is usable alone. The memory
//! store is always there. `metrics` counts what happens: see [`events`].

#[cfg(feature = "blocking")]
pub mod blocking;
mod builder;
mod client;
mod detached;
mod driver;
mod election;
mod error;
pub mod events;
pub mod fence;
mod lease;
mod listing;
mod lock;
mod look;
mod multi;
mod options;
mod reentrant;
mod rendezvous;
#[doc(hidden)]
pub mod runtime;
mod rw_lock;
mod scope;
mod semaphore;
mod status;
pub mod store;

pub use builder::{Builder, RestartPolicy};
pub use client::{Client, Stolen};
pub use detached::DetachedLock;
pub use driver::waiters::Progress;
pub use election::{Campaign, Election, Leader, Leadership, Observer};
pub use error::{Error, LossReason, NodeError, NodeOutcome, NodeReport};
pub use fencepost_core::{AttemptValue, Drift, FencingToken, LockName, Owner, Ttl};
pub use lease::Lease;
pub use listing::{Listing, NamePattern};
pub use lock::{LockOptions, LockRequest};
pub use multi::{LostOne, MultiLease, MultiRequest};
pub use reentrant::{ReentrantGuard, ReentrantRequest, Session};
pub use rendezvous::{Barrier, Counted, Latch, Passage};
pub use runtime::clock;
#[doc(hidden)]
pub use runtime::{randomness, tasks};
pub use rw_lock::ReadWriteLock;
pub use scope::Ended;
pub use semaphore::{Permit, PermitHolder, PermitRequest, Semaphore};
pub use status::{HolderStatus, NodeStatus, Status};
#[cfg(feature = "sqlite")]
pub use store::sqlite::HolderProcess;

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
