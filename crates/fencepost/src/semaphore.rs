//! [`Semaphore`]: at most k holders at a time.
//!
//! A permit is a lock of one of k slots. It must never become "k on each node, and a majority
//! of them is a permit": that admits up to `n * k / q` holders, five where three were asked for.

use std::fmt;
use std::sync::Arc;

use crate::acquire::slots::Slots;
use crate::acquire::{self, AnyOf};
use crate::driver::shared::Shared;
use crate::error::{Error, HolderStatus};
use crate::inspect::look::{answered, held, look, too_few};
use crate::inspect::status::{Status, majority_holder};
use crate::lease::Lease;
use crate::lease::run::lease_guard;
use crate::options::{Ask, request};
use fencepost_core::name::LockName;

/// At most k holders at a time: see [`Client::semaphore`](crate::Client::semaphore).
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
/// Keep it, and clone it: clones share which slots were recently free. While there are free ones, a
/// permit takes one round trip if one is known, two if none is, and a third if another client was
/// faster.
///
/// # What is promised
/// - **Never more than k.** A permit is the lock of one of k *slots*, numbered from 0, acquired,
///   renewed and lost like any other lock. So each slot has at most one valid permit at any time.
/// - **A token for each permit.** The [tokens](Lease::token) of one *slot* are unique and grow.
///   Tokens of different slots are unrelated: let the resource remember the newest token of each
///   slot.
/// - **No polling.** A request that finds all permits taken waits in the single queue of all slots,
///   and is [woken](crate::LockRequest#how-it-waits) by the first release. It makes one attempt at a
///   time, so it never holds two. A client with waiters runs one script on each node about every two
///   seconds, near the head every second, for any number of waiters and slots; the head of the queue also looks at all
///   slots once a second.
/// - With [`fair`](crate::LockOptions::fair), permits are granted in the order of the queue.
///
/// # Changing k
/// k is not stored: each client passes its own, and clients may differ. A client with k uses the
/// slots below k. So at any time there are at most as many valid permits as the *largest* k of all
/// holders and waiters.
///
/// - **Growing** needs nothing: clients with the larger k use the new slots.
/// - **Shrinking**: the holder of a slot above the new k keeps it until it releases or loses it, and
///   requests with the smaller k do not count it. There are at most k permits again as soon as no
///   client uses a larger k, and each slot from k on was released or lost.
///   [`holders`](Self::holders), called with the *old* k, shows who still has one;
///   [`max_hold`](crate::LockOptions::max_hold) bounds that time.
/// - **While they differ**, all wait in one queue: a request with a larger k may wait behind one with
///   a smaller k, even while a slot is free that only the larger k has.
///
/// # Names
/// The slots of `pool` are the locks `{pool}:semaphore:0`, `{pool}:semaphore:1`, …, and their queue
/// is that of the name `{pool}:semaphore`, which is never held. A name with its own `{tag}` keeps it:
/// `{tenant}:pool:semaphore:0`. So all slots of one semaphore share a hash slot, and no two
/// semaphores share a lock, nor does a semaphore share one with the lock of the same name. Do not
/// use names of this form for your own locks. A semaphore's name has at most 480 bytes.
#[derive(Clone, Debug)]
pub struct Semaphore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) slots: Result<Arc<Slots>, Error>,
}

impl Semaphore {
    /// Acquires a permit, waiting for one if all are taken. Await the returned request, or set
    /// options on it first.
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
    /// assert!(three.unwrap_err().is_timeout(), "waited, and all were taken all the time");
    /// # Ok(()) }
    /// ```
    pub fn acquire(&self) -> PermitRequest {
        PermitRequest(Ask::new(self.shared.clone(), self.slots.clone()))
    }

    /// The names of its slots, for a replica of the lock service.
    #[doc(hidden)]
    pub fn slot_names(&self) -> Result<Vec<LockName>, Error> {
        self.slots.clone().map(|slots| slots.names.clone())
    }

    /// The names of the slots that some node of a majority has as held, for a replica of the lock service: one cheap
    /// command per node, however many slots there are.
    #[doc(hidden)]
    pub async fn held_slots(&self) -> Result<Vec<LockName>, Error> {
        let (shared, slots) = (&self.shared, self.slots.clone()?);
        let seen = held(shared, &slots.names).await;
        let heard = || seen.iter().flatten().flatten();
        if heard().count() < shared.coordinator.quorum.needed() {
            return Err(too_few(shared, &slots.names[0], &seen));
        }
        let names = slots.names.iter().enumerate();
        let is_held = |slot| heard().any(|held| held.get(slot) == Some(&true));
        let held = names.filter(|(slot, _)| is_held(*slot));
        Ok(held.map(|(_, name)| name.clone()).collect())
    }

    /// Acquires a permit if there is one, in a single attempt.
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
    pub fn try_acquire(&self) -> PermitRequest {
        PermitRequest(Ask::new(self.shared.clone(), self.slots.clone()).once())
    }

    /// The holders of permits, by slot, according to a majority of the nodes.
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
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption). A node that cannot be asked is left out.
    pub async fn holders(&self) -> Result<Vec<PermitHolder>, Error> {
        let (shared, slots) = (&self.shared, self.slots.clone()?);
        let quorum = shared.coordinator.quorum;
        let seen = look(shared, &slots.names, |_| false).await;
        let holders = seen.iter().enumerate().filter_map(|(slot, answers)| {
            let holders = answered(answers).filter_map(|lock| lock.holder.as_ref());
            let holder = majority_holder(&holders.collect::<Vec<_>>(), quorum)?;
            Some(PermitHolder { slot, holder })
        });
        Ok(holders.collect())
    }

    /// The status of each slot, held or not, by number: as
    /// [`Client::status`](crate::Client::status) reports a lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let workers = locks.semaphore("workers", 3);
    /// let permit = workers.acquire().await?;
    /// let slots = workers.status().await?;
    /// assert_eq!(slots[permit.slot()].token, Some(permit.token()));
    /// assert_eq!(slots.iter().filter(|slot| slot.holder.is_none()).count(), 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`holders`](Self::holders). A node that cannot be reached is part of the result.
    pub async fn status(&self) -> Result<Vec<Status>, Error> {
        let slots = self.slots.clone()?;
        Ok(Status::ask_for_all(&self.shared.coordinator, &slots.names).await)
    }
}

/// The holder of a permit: see [`Semaphore::holders`].
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
    /// The slot number.
    pub slot: usize,
    /// The holder.
    pub holder: HolderStatus,
}

request! {
    /// A request for a permit. Await it.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when all permits were taken until the wait was over: it names the slot whose
    /// holder's time ends first. [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when too few nodes could be asked, for as long as a
    /// [`LockRequest`](crate::LockRequest) goes on trying; [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a number of
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
    PermitRequest(Arc<Slots>) -> Permit by permit
}

async fn permit(ask: Ask<Arc<Slots>>) -> Result<Permit, Error> {
    let spec = acquire::check(&ask)?;
    let slots = ask.what?;
    let any = AnyOf {
        shared: &ask.shared,
        names: &slots.names,
        slots: Some(&slots),
        spec,
    };
    let (slot, lease) = any.acquire().await?;
    let place = Place { slots, slot };
    Ok(Permit { lease, place })
}

/// A permit of a [`Semaphore`]: the [`Lease`] on one of its slots.
///
/// It renews itself until it is released, dropped, or reaches its maximum hold time, and reports
/// its loss. Dropping it releases it in the background.
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
#[must_use = "the permit is released as soon as it is dropped"]
pub struct Permit {
    // Before its place, so that its release is in flight when the place is reported free.
    lease: Lease,
    place: Place,
}

/// The slot of a permit. Dropping it tells the semaphore that the slot is free.
struct Place {
    slots: Arc<Slots>,
    slot: usize,
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

    /// Releases the permit and reports the outcome as soon as a majority has answered: see
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

    /// The lease on the slot, for a replica of the lock service: it outlives this process.
    #[doc(hidden)]
    pub fn into_lease(self) -> Lease {
        self.lease
    }
}

lease_guard!(Permit, release);

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("slot", &self.slot())
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}
