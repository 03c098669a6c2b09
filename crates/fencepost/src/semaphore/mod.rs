//! [`Semaphore`]: at most k holders at a time, each with a slot of its own.
//!
//! | file | what it is |
//! | --- | --- |
//! | this one | what the user sees |
//! | `slots` | what the slots' locks are called, and which were free when last seen |
//! | `free` | what a look at all slots means; pure |
//! | `outlook` | what is told to one who waits; pure |
//! | `seek` | finding a slot, and waiting for one |
//!
//! A permit is a lock of one of k slots. It must never become "k on each node, and whoever has a
//! majority is in": that lets up to `n * k / q` in, five where three were asked for.

mod free;
mod outlook;
pub(crate) mod seek;
pub(crate) mod slots;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::client::Client;
use crate::driver::waiters::Progress;
use crate::error::Error;
use crate::lease::Lease;
use crate::lock::{LockOptions, Watcher};
use crate::look::look;
use crate::options::option_methods;
use crate::status::{HolderStatus, Status, majority_holder};
use seek::Seeker;
use slots::{Kind, Slots};

impl Client {
    /// A semaphore: at most `permits` hold one of its permits at the same time.
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
            locks: self.clone(),
            slots: Slots::new(Kind::Semaphore, name.as_ref(), permits).map(Arc::new),
        }
    }
}

/// At most k holders at a time: see [`Client::semaphore`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// let workers = locks.semaphore("workers", 2);
/// let held = [workers.acquire().await?, workers.acquire().await?];
/// assert!(workers.try_acquire().await.is_err(), "two, and no more");
///
/// // Grown: those who ask with the larger number have another one.
/// let third = locks.semaphore("workers", 3).try_acquire().await?;
/// assert_eq!(third.slot(), 2);
/// # Ok(()) }
/// ```
///
/// Keep it, and clone it: clones share the knowledge which slots were free a moment ago. While there
/// are free ones, a permit takes one round trip if one is known, two if none is, and a third if
/// somebody else was faster.
///
/// # What is promised
/// - **Never more than k.** A permit is the lock of one of k *slots*, numbered from 0, taken, kept
///   and lost like any other lock, so at any time at most one valid permit of each slot exists.
/// - **A token for each permit.** The [tokens](Lease::token) of one *slot* are unique and grow.
///   Those of different slots have nothing to do with each other: let the resource remember the
///   newest token of each slot.
/// - **No polling.** Whoever finds all permits taken gets in the lines of all slots, and is
///   [woken](crate::LockRequest#how-it-waits) by whichever is given back first. It makes one attempt
///   at a time, so it never holds two. A client with waiters costs each node k commands a second,
///   however many of them there are.
/// - With [`fair`](LockOptions::fair), whoever stands in all lines before another comes is served
///   before it.
///
/// # Changing k
/// k is not stored anywhere: it is what each client says, and clients may differ. A client that says
/// k uses the slots below k. So at any time there are at most as many valid permits as the *largest*
/// k of all who hold one or are asking for one.
///
/// - **Growing** needs nothing: the new slots are there for whoever asks with the larger k.
/// - **Shrinking**: those who hold a slot that is no longer one keep it until they give it back or
///   lose it, and those who ask with the smaller k do not count them. There are at most k again as
///   soon as nobody asks with a larger k any more, nor waits so, and each slot from k on has been
///   given back or lost. [`holders`](Self::holders), asked with the *old* k, tells who has one still;
///   with [`max_hold`](LockOptions::max_hold) that time has a bound.
///
/// # Names
/// The slots of `pool` are the locks `{pool}:semaphore:0`, `{pool}:semaphore:1`, …; a name with a
/// `{tag}` of its own keeps it: `{tenant}:pool:semaphore:0`. So all slots of one semaphore share a
/// hash slot, and no two semaphores share a lock; nor does a semaphore share one with the lock of the
/// same name. Do not use names of this form for locks of your own. A semaphore's name has at most
/// 480 bytes.
#[derive(Clone, Debug)]
pub struct Semaphore {
    locks: Client,
    slots: Result<Arc<Slots>, Error>,
}

impl Semaphore {
    /// Takes a permit, waiting for one if all are taken. Await what this returns, or set options on
    /// it first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let workers = locks.semaphore("workers", 2);
    /// let one = workers.acquire().await?;
    /// let two = workers.acquire().ttl(Duration::from_secs(10)).await?;
    /// assert_ne!(one.slot(), two.slot());
    /// let three = workers.acquire().timeout(Duration::from_millis(20)).await;
    /// assert!(three.unwrap_err().is_held(), "waited, and all were taken all the time");
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is acquired before it is awaited"]
    pub fn acquire(&self) -> PermitRequest {
        PermitRequest {
            semaphore: self.clone(),
            options: LockOptions::new(),
            watcher: None,
        }
    }

    /// Takes a permit if there is one; never waits. It renews itself, as one from
    /// [`acquire`](Self::acquire).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let workers = locks.semaphore("workers", 1);
    /// let permit = workers.try_acquire().await?;
    /// assert!(workers.try_acquire().await.unwrap_err().is_held());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`PermitRequest`].
    pub async fn try_acquire(&self) -> Result<Permit, Error> {
        self.acquire().timeout(Duration::ZERO).await
    }

    /// Who holds permits, by slot: what a majority of the nodes says.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let workers = locks.semaphore("workers", 3);
    /// let permit = workers.acquire().await?;
    /// let holders = workers.holders().await?;
    /// assert_eq!(holders.len(), 1);
    /// assert_eq!(holders[0].slot, permit.slot());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidName`], [`Error::InvalidOption`]. A node that cannot be asked is left out.
    pub async fn holders(&self) -> Result<Vec<PermitHolder>, Error> {
        let (core, slots) = (&self.locks.core, self.slots.clone()?);
        let needed = core.coordinator.quorum.needed();
        let seen = look(core, &slots.names, |_| false).await;
        let holders = seen.iter().enumerate().filter_map(|(slot, answers)| {
            let holders = crate::look::heard(answers).filter_map(|lock| lock.holder.as_ref());
            let holder = majority_holder(&holders.collect::<Vec<_>>(), needed)?;
            Some(PermitHolder { slot, holder })
        });
        Ok(holders.collect())
    }

    /// What is known of each slot, held or not, in the order of their numbers: as
    /// [`Client::status`] tells it of a lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let workers = locks.semaphore("workers", 3);
    /// let permit = workers.acquire().await?;
    /// let slots = workers.status().await?;
    /// assert_eq!(slots[permit.slot()].token, permit.token());
    /// assert_eq!(slots.iter().filter(|slot| slot.holder.is_none()).count(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`holders`](Self::holders). A node that cannot be asked is part of the answer.
    pub async fn status(&self) -> Result<Vec<Status>, Error> {
        let slots = self.slots.clone()?;
        Ok(Status::ask_for_all(&self.locks.core.coordinator, &slots.names).await)
    }
}

/// Who holds a permit: see [`Semaphore::holders`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// # let workers = locks.semaphore("workers", 3);
/// # let permit = workers.acquire().await?;
/// for fencepost::PermitHolder { slot, holder, .. } in workers.holders().await? {
///     println!("slot {slot} is {}'s", holder.owner);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitHolder {
    /// Which one.
    pub slot: usize,
    /// Who, and how long still.
    pub holder: HolderStatus,
}

/// A permit that is being asked for. Await it.
///
/// # Errors
/// [`Error::Held`] when all permits were taken until the wait was over: it names the slot whose
/// holder's time ends first. [`Error::NoQuorum`] when too few nodes could be asked, for as long as a
/// [`LockRequest`](crate::LockRequest) goes on trying; [`Error::InvalidOption`] for a number of
/// permits that cannot be, and what else a lock may be refused for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// use std::time::Duration;
///
/// let permit = locks
///     .semaphore("workers", 3)
///     .acquire()
///     .timeout(Duration::from_secs(2))
///     .max_hold(Duration::from_secs(60))
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is acquired before it is awaited"]
#[derive(Clone, Debug)]
pub struct PermitRequest {
    semaphore: Semaphore,
    options: LockOptions,
    watcher: Option<Watcher>,
}

impl PermitRequest {
    fn set(mut self, option: impl FnOnce(LockOptions) -> LockOptions) -> Self {
        self.options = option(self.options);
        self
    }

    option_methods!(options, ttl, timeout, fair, renew, max_hold, max_renewals);

    /// See [`LockRequest::on_progress`](crate::LockRequest::on_progress): it tells of the slot whose
    /// holder's time ends first, and of the best place in the line of any slot, each time that there
    /// is something to tell of one of them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// # let workers = locks.semaphore("workers", 1);
    /// # let permit = workers.acquire().await?;
    /// let waiting = workers
    ///     .acquire()
    ///     .timeout(Duration::from_millis(20))
    ///     .on_progress(|progress| println!("place {:?} in line", progress.place));
    /// # waiting.await.unwrap_err();
    /// # Ok(()) }
    /// ```
    pub fn on_progress(mut self, tell: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Watcher::new(tell));
        self
    }

    async fn find(self) -> Result<Permit, Error> {
        let Semaphore { locks, slots } = self.semaphore;
        let slots = slots?;
        let seeker = Seeker {
            plan: self.options.plan(&locks)?,
            locks: &locks,
            slots: &slots,
        };
        let (slot, lease) = seeker.find(self.watcher.as_ref()).await?;
        let place = Place { slots, slot };
        Ok(Permit { lease, place })
    }
}

impl IntoFuture for PermitRequest {
    type Output = Result<Permit, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.find())
    }
}

/// A permit of a [`Semaphore`]: the [`Lease`] on one of its slots.
///
/// It renews itself until it is released, dropped, or has been held for as long as it may be, and it
/// says when it is lost. Dropping it gives it back in the background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// # async fn work(_: usize) {}
/// let permit = locks.semaphore("workers", 3).acquire().await?;
/// tokio::select! {
///     () = work(permit.slot()) => println!("done"),
///     why = permit.lost() => println!("stop: {why}"),
/// }
/// # Ok(()) }
/// ```
pub struct Permit {
    // Before its place, so that it is on its way back when that is told.
    lease: Lease,
    place: Place,
}

/// Which slot a permit has. Dropped, it tells the semaphore that the slot is free.
pub(crate) struct Place {
    slots: Arc<Slots>,
    pub(crate) slot: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.slots.seen_free(self.slot);
    }
}

impl Permit {
    /// The number of the slot, from 0: no other valid permit has it at the same time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let permit = locks.semaphore("ports", 10).acquire().await?;
    /// let port = 8000 + permit.slot();
    /// # assert!(port < 8010);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn slot(&self) -> usize {
        self.place.slot
    }

    /// Gives the permit back and tells the outcome, as soon as a majority has answered: see
    /// [`Lease::release`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let workers = locks.semaphore("workers", 1);
    /// workers.acquire().await?.release().await?;
    /// assert!(workers.try_acquire().await.is_ok());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Lease::release`].
    pub async fn release(self) -> Result<(), Error> {
        let Self {
            lease,
            place: _place,
        } = self;
        lease.release().await
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn into_parts(self) -> (Lease, Place) {
        (self.lease, self.place)
    }
}

impl Deref for Permit {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("slot", &self.slot())
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
