//! [`Latch`]: opens when it has been counted down k times.
//!
//! A call that counts must never take two slots that a majority of the nodes knows of: it tries
//! another one only when it was refused, not when the outcome of the first is unknown.

use std::sync::Arc;
use std::time::Duration;

use super::view;
use super::watch::{Waited, Watch, answers, pause, step_aside};
use super::{RETENTION, checked_retention};
use crate::acquire::slots::{Kind, Slots};
use crate::acquire::{self, AnyOf, Spec};
use crate::driver::held::Limits;
use crate::driver::shared::Shared;
use crate::driver::waiters::RetryBudget;
use crate::error::{Cause, Error};
use crate::inspect::look::Answers;
use crate::options::LockOptions;
use fencepost_core::ttl::Ttl;

/// Opens when it has been counted down k times: see [`Client::latch`](crate::Client::latch).
///
/// A latch of k is k locks, its *slots*. Each count takes one and leaves it taken, whatever happens
/// to the process that counted. The latch is open when a majority of the nodes holds each of them.
///
/// # What is promised
/// On one node and on n:
/// - **Never early.** No [`wait`](Self::wait) returns before k calls of
///   [`count_down`](Self::count_down) have begun. This holds whatever nodes forget.
/// - **In time.** Once k calls have *returned*, every `wait` returns within 250 ms and a few round
///   trips, while a majority of the nodes that has seen all counts answers: a node has the counts
///   made while it was up. One node has them all, and of three that were all up any two are enough.
/// - **For a limited time.** Each count lapses [`retention`](Self::retention) after it was made, an hour by
///   default. So the k counts have to come within that time, and the latch stays open until the
///   first of them lapses. Then a new round begins. To avoid that, give each round its own name.
///
/// On n nodes, one that forgets (restarted without its data, flushed) does no harm as long as a
/// majority of the nodes still has each count. Otherwise counts may be missing and have to be
/// repeated; on one node, all are gone with its data. `max_ttl` guards nothing here, because the
/// worst case is that the latch does not open. The counts in a file are gone after a reboot.
///
/// # A call that failed
/// A `count_down` that fails or is dropped may or may not have counted: calling it again may count
/// twice. If that matters, number the parties and use [`count_down_as`](Self::count_down_as), which
/// counts once however often it is called.
///
/// # What it costs
/// Counting takes three round trips. A waiter polls one slot that is still free, four times a
/// second with jitter: one small command on each node. It looks at all k slots when that one is
/// taken.
///
/// The slots of `name` are the locks `{name}:latch:0`, `{name}:latch:1`, …; see the names of a
/// [`Semaphore`](crate::Semaphore). Each client passes its own k: all must pass the same.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// use std::time::Duration;
/// use fencepost::Counted;
///
/// let latch = locks.latch("ready", 2).retention(Duration::from_secs(600));
/// assert_eq!(latch.count_down().await?, Counted::Now);
/// assert_eq!(latch.remaining().await?, 1);
/// let early = latch.clone().timeout(Duration::from_millis(20)).wait().await;
/// assert!(early.unwrap_err().is_timeout());
///
/// assert_eq!(latch.count_down().await?, Counted::Now);
/// assert_eq!(latch.count_down().await?, Counted::WasOpen);
/// latch.wait().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    shared: Arc<Shared>,
    slots: Result<Arc<Slots>, Error>,
    retention: Duration,
    timeout: Option<Duration>,
}

/// The outcome of a count: see [`Latch::count_down`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Counted {
    /// It has counted.
    Now,
    /// The latch was already open, with nothing left to count.
    WasOpen,
}

impl Latch {
    pub(crate) fn new(shared: Arc<Shared>, name: &str, counts: usize) -> Self {
        Self {
            shared,
            slots: Slots::new(Kind::Latch, name, counts).map(Arc::new),
            retention: RETENTION,
            timeout: None,
        }
    }

    /// How long a count lasts: at least twice the client's `max_ttl`, at most 24 h; an hour by
    /// default.
    #[must_use]
    pub fn retention(mut self, time: Duration) -> Self {
        self.retention = time;
        self
    }

    /// The limit on [`wait`](Self::wait). Without it, a wait has none; with zero, it looks once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let latch = locks.latch("ready", 3);
    /// let error = latch.timeout(Duration::from_millis(20)).wait().await.unwrap_err();
    /// assert_eq!(error.to_string(), "\"ready\" did not open in time: 3 of 3 are missing");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Counts down by one. It never waits for others to count. Only if every slot is taken, and one
    /// of them not for good yet, it waits until that one is sealed or free: at most one TTL, or the
    /// last `max_ttl` of a count's life.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let latch = locks.latch("ready", 3);
    /// latch.count_down().await?;
    /// assert_eq!(latch.remaining().await?, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum), [`ErrorKind::TooLate`](crate::ErrorKind::TooLate) and [`ErrorKind::Lost`](crate::ErrorKind::Lost) when too few nodes answered, or
    /// too late: it may have counted and may not, see [above](Self#a-call-that-failed).
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) and [`ErrorKind::InvalidTtl`](crate::ErrorKind::InvalidTtl) for what cannot be.
    pub async fn count_down(&self) -> Result<Counted, Error> {
        let (slots, retention) = self.parts()?;
        // Holds a slot for a moment, until it is sealed.
        let spec = Spec::new(&self.shared, LockOptions::new())?.limits(Limits::default());
        let any = AnyOf {
            shared: &self.shared,
            names: &slots.names,
            slots: Some(&slots),
            spec,
        };
        loop {
            match any.at_once().await {
                Ok((_, lease)) => {
                    lease.seal(retention).await?;
                    return Ok(Counted::Now);
                }
                // So many nodes refused that no majority can hold what was requested: it is safe to
                // try another.
                Err(error) if error.is_refusal() => {}
                Err(error) => return Err(error),
            }
            // Not before: a party that only holds a slot may die, and then this count is needed.
            let seen = answers(&self.shared, &slots.names).await?;
            if seen.iter().all(|seen| self.is_for_good(seen)) {
                return Ok(Counted::WasOpen);
            }
            let quorum = self.shared.coordinator.quorum;
            match seen.iter().all(|seen| view::holder(quorum, seen).is_some()) {
                true => pause(&self.shared, &any.spec.budget).await,
                false => step_aside(&self.shared, &any.spec.budget).await,
            };
        }
    }

    /// Counts down for the party with this number, from 0 to k - 1. However often it is called, by
    /// any client, the party counts once, from the last call on. The last call decides whether it
    /// counts; after an error, call it again.
    ///
    /// Number all parties of a latch, or none: this takes the slot with its number from its holder.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let latch = locks.latch("shards-loaded", 8);
    /// latch.count_down_as(5).await?;
    /// latch.count_down_as(5).await?;
    /// assert_eq!(latch.remaining().await?, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`count_down`](Self::count_down), and [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a number that is none of
    /// the latch's.
    pub async fn count_down_as(&self, party: usize) -> Result<(), Error> {
        let (slots, retention) = self.parts()?;
        let Some(slot) = slots.names.get(party) else {
            let most = slots.names.len() - 1;
            return Err(Error::from(Cause::InvalidOption {
                option: "party",
                why: format!("expected a party from 0 to {most}, got {party}"),
            }));
        };
        let ttl = self.shared.default_ttl.get();
        let (lease, _) = acquire::steal(&self.shared, slot.clone(), ttl, None).await?;
        lease.seal(retention).await
    }

    /// Waits until the latch is open, at most for the [`timeout`](Self::timeout).
    ///
    /// Any number of tasks may wait; dropping a wait leaves nothing behind. Without a quorum it
    /// retries for one TTL of the client in a row.
    ///
    /// # Errors
    /// [`ErrorKind::NotOpen`](crate::ErrorKind::NotOpen) when the timeout is over, [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when too few nodes
    /// answered; [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName), [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption).
    pub async fn wait(&self) -> Result<(), Error> {
        self.until_open().await
    }

    /// The number of missing counts. 0 when the latch is open.
    ///
    /// # Errors
    /// [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when too few nodes could be asked; [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName),
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption).
    pub async fn remaining(&self) -> Result<usize, Error> {
        let slots = self.slots.clone()?;
        Watch::new(&self.shared, &slots.names).missing().await
    }

    async fn until_open(&self) -> Result<(), Error> {
        let slots = self.slots.clone()?;
        let mut patience = RetryBudget::new(self.timeout, self.shared.default_ttl);
        let mut watch = Watch::new(&self.shared, &slots.names);
        loop {
            match watch.is_full().await {
                Ok(true) => return Ok(()),
                Ok(false) => patience.saw_quorum(),
                Err(error) if patience.goes_on_after(&error) => {}
                Err(error) => return Err(error),
            }
            if pause(&self.shared, &patience).await == Waited::ToTheEnd {
                return match watch.missing().await? {
                    0 => Ok(()),
                    missing => Err(Error::from(Cause::NotOpen {
                        name: slots.whole.clone(),
                        missing,
                        all: slots.names.len(),
                    })),
                };
            }
        }
    }

    fn is_for_good(&self, seen: &Answers) -> bool {
        let shared = &self.shared;
        view::is_for_good(shared.coordinator.quorum, seen, shared.max_ttl.get())
    }

    fn parts(&self) -> Result<(Arc<Slots>, Ttl), Error> {
        Ok((
            self.slots.clone()?,
            checked_retention(&self.shared, self.retention)?,
        ))
    }
}
