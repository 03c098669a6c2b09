//! [`Session`]: a lock that whoever holds it may enter again.
//!
//! | file | what it is |
//! | --- | --- |
//! | this one | what the user sees |
//! | `door` | who of a session is inside, and who opens the door |
//!
//! To the nodes a reentrant lock is a lock like any other, held by one value; how often its holder has
//! entered is counted here. A node that holds it must never be asked to let the same session in again:
//! that would make entering cost a round trip, and a count that goes up and down on n nodes cannot be
//! kept right on all of them.

mod door;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::client::Client;
use crate::driver::waiters::Progress;
use crate::error::Error;
use crate::lease::Lease;
use crate::lock::LockRequest;
use crate::options::option_methods;
use crate::status::Status;
use door::Door;
pub(crate) use door::Doors;
use fencepost_core::name::LockName;
use fencepost_core::value::Owner;

impl Client {
    /// A session: one who may enter a [reentrant lock](Session::reentrant) again while it is inside.
    ///
    /// Within one client, and its clones, sessions of the same label are the same. Those of
    /// different clients and processes never are, whatever their labels.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let outer = locks.session("worker-7").reentrant("invoice-42").await?;
    /// let inner = locks.session("worker-7").reentrant("invoice-42").await?;
    /// assert_eq!(inner.token(), outer.token());
    /// drop(outer);
    /// assert!(inner.is_valid(), "still inside");
    /// inner.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn session(&self, label: impl AsRef<str>) -> Session {
        Session {
            locks: self.clone(),
            label: label.as_ref().into(),
        }
    }
}

/// One who may enter a reentrant lock again while it is inside: see [`Client::session`].
///
/// By a session and not by a thread, because a task has none of its own: whoever shall be let in
/// again is given the session, or its label.
///
/// # What is promised
/// - **One session at a time.** What a [`Lease`] promises holds for the whole time from the first
///   entry to the last exit: exclusion, renewal, being told of a loss.
/// - **Entering again costs no round trip** and keeps the token, while the lease is valid. Once it is
///   lost, nobody enters by it any more: the next entry takes the lock anew, with a larger token,
///   while the guards of the lost lease go on saying that it is lost.
/// - **Leaving in any order.** The lock is given back when the last guard is gone.
/// - Tasks of one session that enter at the same time share one acquisition. If the one that makes it
///   is dropped, another goes on.
///
/// # On Redis
/// A reentrant lock is stored as Redisson stores an `RLock`, so that a Java program and this one keep
/// each other out and wake each other. The key is the lock's name itself (behind the
/// [prefix](crate::Builder::prefix), if there is one), a hash with one field: `uuid:number` of whoever
/// holds it, [`Lease::value`] of its guards. The field's value is how often it has entered. When it is
/// given back, `0` is published on `redisson_lock__channel:{name}`; whoever waits here listens to that
/// channel, too. A field has no room for a label, so the session's is shown to nobody. Redisson's
/// default lease of 30 s is also [ours](crate::Builder::ttl).
///
/// The count goes to the nodes as it is, together with the renewals: not when it changes, because any
/// number above zero keeps others out, and only this session ever lowers it. So a node that has missed
/// a renewal, or came back empty, is right again after the next one.
///
/// A plain lock and a reentrant one cannot share a name: whoever comes second gets
/// [`Error::NoQuorum`], in which each node says which kind it has
/// ([`WrongType`](crate::NodeError::WrongType)). So does [`steal`](Client::steal), which takes plain
/// locks only. In memory and in a file there are no kinds, and the two merely keep each other out.
///
/// A user whose channels are restricted needs `&redisson_lock__channel:*` beside `&fencepost:wake:*`.
/// Without it Redisson's waiters are not woken by us, and ours look four times a second while Redisson
/// has the lock.
#[derive(Clone)]
pub struct Session {
    locks: Client,
    label: Arc<str>,
}

impl Session {
    /// Enters the lock, waiting for it if another session or client has it. Await what this returns,
    /// or set options on it first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let (one, two) = (locks.session("one"), locks.session("two"));
    /// let guards = [one.reentrant("job").await?, one.reentrant("job").await?];
    /// let busy = two.reentrant("job").timeout(Duration::from_millis(20)).await;
    /// assert!(busy.unwrap_err().is_held(), "waited, and it was another's all the time");
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is locked before it is awaited"]
    pub fn reentrant(&self, name: impl AsRef<str>) -> ReentrantRequest {
        ReentrantRequest {
            session: self.clone(),
            request: self.locks.lock(name).reentrant(),
        }
    }

    /// The label.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    fn door(&self, name: &LockName) -> Arc<Door> {
        self.locks.core.doors.of(&self.label, name)
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Session").field(&self.label).finish()
    }
}

/// A reentrant lock that is being entered. Await it.
///
/// The options count where the lock has to be taken. Who enters again while its session is inside gets
/// in at once and leaves everything as it is.
///
/// # Errors
/// As a [`LockRequest`](crate::LockRequest).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// use std::time::Duration;
///
/// let session = locks.session("worker-7");
/// let guard = session
///     .reentrant("invoice-42")
///     .ttl(Duration::from_secs(10))
///     .timeout(Duration::from_secs(2))
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is locked before it is awaited"]
#[derive(Debug)]
pub struct ReentrantRequest {
    session: Session,
    request: LockRequest,
}

impl ReentrantRequest {
    fn set(mut self, option: impl FnOnce(LockRequest) -> LockRequest) -> Self {
        self.request = option(self.request);
        self
    }

    option_methods!(options, ttl, fair);

    /// See [`LockOptions::timeout`](crate::LockOptions::timeout). Where another task of the session is taking the lock, that is waited
    /// for as long as for a silent node, if this is shorter.
    pub fn timeout(mut self, at_most: Duration) -> Self {
        self.request = self.request.timeout(at_most);
        self
    }

    /// See [`LockRequest::on_progress`](crate::LockRequest::on_progress).
    pub fn on_progress(mut self, tell: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.request = self.request.on_progress(tell);
        self
    }

    /// Enters if the session is inside.
    #[cfg(feature = "blocking")]
    pub(crate) fn enter_again(&self) -> Option<ReentrantGuard> {
        let name = self.request.lock_name().ok()?;
        ReentrantGuard::of(self.session.door(name))
    }

    async fn enter(mut self) -> Result<ReentrantGuard, Error> {
        let door = self.session.door(self.request.lock_name()?);
        if let Some(guard) = ReentrantGuard::of(Arc::clone(&door)) {
            return Ok(guard);
        }
        let begin = Instant::now();
        let limit = self.request.longest_wait();
        // Whoever is dropped while it opens the door leaves the key to the next.
        let _key = match limit {
            None => door.key().await,
            Some(limit) => {
                let at_least = self.session.locks.core.node_timeout;
                match timeout(limit.max(at_least), door.key()).await {
                    Ok(key) => key,
                    Err(_) => return Err(self.still_held().await),
                }
            }
        };
        if let Some(guard) = ReentrantGuard::of(Arc::clone(&door)) {
            return Ok(guard);
        }
        if let Some(limit) = limit {
            let left = limit.saturating_sub(begin.elapsed());
            self.request = self.request.timeout(left);
        }
        let lease = self.request.await?;
        let lease = door.opened(lease);
        Ok(ReentrantGuard::new(Arc::clone(&door), lease))
    }

    /// Another task of the session has waited for the lock all the time.
    async fn still_held(self) -> Error {
        let name = match self.request.lock_name() {
            Ok(name) => name.clone(),
            Err(error) => return error,
        };
        let status = Status::ask(&self.session.locks.core.coordinator, name.clone()).await;
        let (by, remaining) = match status.holder {
            Some(holder) => (holder.owner, holder.remaining),
            None => {
                let by = format!("nobody, but session {} waits for it", self.session.label);
                (Owner::readable(&by), Some(Duration::ZERO))
            }
        };
        Error::Held {
            name,
            by,
            remaining,
        }
    }
}

impl IntoFuture for ReentrantRequest {
    type Output = Result<ReentrantGuard, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.enter())
    }
}

/// One entry into a reentrant lock. It is the session's [`Lease`] that tells the token, what is left,
/// and the loss.
///
/// Dropping it leaves; the last of its session to leave gives the lock back in the background. A guard
/// that is leaked ([`std::mem::forget`]) never leaves.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// # async fn work(_: fencepost::FencingToken) {}
/// let guard = locks.session("worker-7").reentrant("invoice-42").await?;
/// tokio::select! {
///     () = work(guard.token()) => println!("done"),
///     why = guard.lost() => println!("stop: {why}"),
/// }
/// # Ok(()) }
/// ```
pub struct ReentrantGuard {
    door: Arc<Door>,
    lease: Arc<Lease>,
    has_left: bool,
}

impl ReentrantGuard {
    fn new(door: Arc<Door>, lease: Arc<Lease>) -> Self {
        Self {
            door,
            lease,
            has_left: false,
        }
    }

    fn of(door: Arc<Door>) -> Option<Self> {
        let lease = door.enter_again()?;
        Some(Self::new(door, lease))
    }

    /// How many guards of its session share the lease, this one included.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let session = locks.session("worker-7");
    /// let guard = session.reentrant("job").await?;
    /// let again = session.reentrant("job").await?;
    /// assert_eq!(guard.entries(), 2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.lease.entries()
    }

    /// Leaves. The last of its session gives the lock back and tells the outcome, as
    /// [`Lease::release`]; the others only lower the count.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease was lost; for the last one, what [`Lease::release`] fails with.
    pub async fn release(mut self) -> Result<(), Error> {
        if self.leave() {
            return self.lease.give_back().await;
        }
        match self.loss() {
            Some(why) => Err(self.lost_by(why)),
            None => Ok(()),
        }
    }

    /// Whether it was the last.
    fn leave(&mut self) -> bool {
        !std::mem::replace(&mut self.has_left, true) && self.door.leave(&self.lease)
    }
}

impl Drop for ReentrantGuard {
    fn drop(&mut self) {
        // The lease goes with the last who has it, and gives the lock back.
        self.leave();
    }
}

impl Deref for ReentrantGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReentrantGuard")
            .field("entries", &self.entries())
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
