//! [`ReentrantLock`]: a lock that its holder may acquire again.
//!
//! | file | what it is |
//! | --- | --- |
//! | this one | the public API |
//! | `door` | counts the entries of one owner, and lets one of its tasks acquire for all |
//!
//! To the nodes a reentrant lock is a lock like any other, held by one value; entries are counted
//! here. A node must never be asked to admit the same owner again: entering would cost a round
//! trip, and a counter on n nodes cannot be kept consistent.

mod door;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::acquire;
use crate::driver::identity::ValueForm;
use crate::driver::shared::Shared;
use crate::error::{Error, HolderStatus};
use crate::inspect::status::Status;
use crate::lease::Lease;
use crate::lease::run::lease_guard;
use crate::options::{Ask, request};
use door::Door;
use fencepost_core::name::LockName;
use fencepost_core::owner::Owner;

/// A lock that its owner may enter again while holding it: see
/// [`Client::reentrant`](crate::Client::reentrant).
///
/// The handle is the owner: its clones share what it holds and may enter again, and two handles are
/// two owners that exclude each other, also within one process. The owner is a handle and not a
/// thread, because a task has no thread of its own, and not a label, because two might choose the
/// same.
///
/// # What is promised
/// - **One owner at a time.** What a [`Lease`] promises holds for the whole time from the first
///   entry to the last exit: exclusion, renewal, notice of a loss.
/// - **Entering again costs no round trip** and keeps the token, while the lease is valid. Once it is
///   lost, it admits no further entry: the next one acquires the lock anew, with a larger token,
///   while the guards of the lost lease keep reporting the loss.
/// - **Leaving in any order.** The lock is released when the last guard is gone.
/// - Tasks of one owner that enter at the same time share one acquisition. If the one that makes it
///   is dropped, another goes on.
///
/// # On Redis
/// A reentrant lock is stored as Redisson stores an `RLock`, so that a Java program and this one
/// exclude and wake each other. The key is the lock's name itself (after the
/// [prefix](crate::Builder::prefix), if any), a hash with one field: `uuid:number` of its holder,
/// [`Lease::value`] of its guards. The field's value is the number of entries. A release publishes
/// `0` on `redisson_lock__channel:{name}`; our waiters also subscribe to that channel. On a Redis
/// Cluster Redisson publishes and subscribes in the lock's shard (`SPUBLISH`), so there neither is
/// woken by the other: our waiters poll once a second, and Redisson's sleep until our key would
/// expire. A field has no room for a label. Redisson's default lease of 30 s is also [ours](crate::Builder::ttl).
///
/// The count is sent with the renewals, not when it changes: any number above zero excludes others,
/// and only its owner ever lowers it. So a node that missed a renewal, or came back empty, is
/// correct again after the next one.
///
/// A plain lock and a reentrant one cannot share a name: the second gets
/// [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum), in which each node reports
/// [`WrongType`](crate::NodeError::WrongType). So does [`steal`](crate::Client::steal), which works
/// on plain locks only. In memory and in a file there are no kinds, and the two merely exclude each
/// other.
///
/// A user with restricted channels needs `&redisson_lock__channel:*` in addition to
/// `&fencepost:wake:*`. Without it Redisson's waiters are not woken by us, and ours poll four times
/// a second while Redisson holds the lock.
#[derive(Clone)]
pub struct ReentrantLock {
    shared: Arc<Shared>,
    name: Result<LockName, Error>,
    door: Arc<Door>,
}

impl ReentrantLock {
    pub(crate) fn new(shared: Arc<Shared>, name: &str) -> Self {
        Self {
            shared,
            name: LockName::new(name).map_err(Error::from),
            door: Arc::default(),
        }
    }

    /// Enters the lock, waiting for it if another owner holds it. The options apply when the lock
    /// has to be acquired: entering again succeeds at once and changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let (one, two) = (locks.reentrant("job"), locks.reentrant("job"));
    /// let guards = [one.lock().await?, one.clone().lock().await?];
    /// let busy = two.lock().timeout(Duration::from_millis(20)).await;
    /// assert!(busy.unwrap_err().is_timeout(), "waited, and it was another's all the time");
    /// # Ok(()) }
    /// ```
    pub fn lock(&self) -> ReentrantRequest {
        ReentrantRequest(self.ask())
    }

    /// Enters the lock in a single attempt.
    pub fn try_lock(&self) -> ReentrantRequest {
        ReentrantRequest(self.ask().once())
    }

    fn ask(&self) -> Ask<Entry> {
        let name = self.name.clone();
        let entry = name.map(|name| Entry {
            name,
            door: self.door.clone(),
        });
        Ask::new(self.shared.clone(), entry)
    }
}

impl fmt::Debug for ReentrantLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReentrantLock").field(&self.name).finish()
    }
}

/// The lock, and the owner's door to it.
#[derive(Debug)]
pub(crate) struct Entry {
    name: LockName,
    door: Arc<Door>,
}

request! {
    /// A request to enter a reentrant lock. Await it.
    ///
    /// If another task of the same owner is acquiring the lock, this waits for that task at least
    /// one node timeout, even if the timeout is shorter.
    ///
    /// # Errors
    /// As a [`LockRequest`](crate::LockRequest).
    ReentrantRequest(Entry) -> ReentrantGuard by enter
}

async fn enter(ask: Ask<Entry>) -> Result<ReentrantGuard, Error> {
    let begin = Instant::now();
    let mut options = ask.options;
    let Entry { name, door } = ask.what?;
    if let Some(guard) = ReentrantGuard::of(&door) {
        return Ok(guard);
    }
    // A task that is dropped while it opens the door passes the key to the next.
    let _key = match options.timeout {
        None => door.key().await,
        Some(limit) => match timeout(limit.max(ask.shared.node_timeout), door.key()).await {
            Ok(key) => key,
            Err(_) => {
                let error = still_held(&ask.shared, name).await;
                return Err(error.after_wait(Some(limit)));
            }
        },
    };
    if let Some(guard) = ReentrantGuard::of(&door) {
        return Ok(guard);
    }
    let limit = options.timeout;
    if let Some(limit) = limit {
        options.timeout = Some(limit.saturating_sub(begin.elapsed()));
    }
    let mut spec = acquire::Spec::new(&ask.shared, options)?.form(ValueForm::Reentrant);
    spec.watcher = ask.watcher;
    let lease = acquire::one(&ask.shared, &name, spec).await;
    let lease = door.opened(lease.map_err(|error| error.after_wait(limit))?);
    Ok(ReentrantGuard::new(Arc::clone(&door), lease))
}

/// Another task of the same owner was waiting for the lock the whole time.
async fn still_held(shared: &Arc<Shared>, name: LockName) -> Error {
    let status = Status::ask(&shared.coordinator, name.clone()).await;
    match status.holder {
        Some(holder) => Error::held(name, holder),
        None => {
            let by = Owner::readable("another task of this owner, which is waiting for it");
            let holder = HolderStatus {
                owner: by,
                token: None,
                remaining: Some(Duration::ZERO),
            };
            Error::held(name, holder)
        }
    }
}

/// One entry into a reentrant lock. The owner's [`Lease`] has the token, the deadline and the loss.
///
/// Dropping it leaves; the last of its owner's guards releases the lock in the background. A leaked
/// guard ([`std::mem::forget`]) never leaves.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// # async fn work(_: fencepost::FencingToken) {}
/// let guard = locks.reentrant("invoice-42").lock().await?;
/// tokio::select! {
///     () = work(guard.token()) => println!("done"),
///     why = guard.lost() => println!("stop: {why}"),
/// }
/// # Ok(()) }
/// ```
#[must_use = "the lock is released as soon as the guard is dropped"]
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

    fn of(door: &Arc<Door>) -> Option<Self> {
        let lease = door.enter_again()?;
        Some(Self::new(Arc::clone(door), lease))
    }

    /// How many guards of its owner share the lease, this one included.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let job = locks.reentrant("job");
    /// let guard = job.lock().await?;
    /// let again = job.clone().lock().await?;
    /// assert_eq!(guard.entries(), 2);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.lease.entries()
    }

    /// Leaves. The last of its owner's guards releases the lock and reports the outcome, as
    /// [`Lease::release`]; the others only lower the count.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) when the lease was lost; for the last one, what [`Lease::release`] fails with.
    pub async fn release(mut self) -> Result<(), Error> {
        if self.leave() {
            return self.lease.release_by_ref().await;
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
        // The lease is dropped with its last guard, which releases the lock.
        self.leave();
    }
}

lease_guard!(ReentrantGuard, release);

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
