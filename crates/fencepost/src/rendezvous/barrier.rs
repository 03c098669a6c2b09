//! [`Barrier`]: lets k parties pass once all of them have arrived.
//!
//! Only a party that leaves its place taken may pass: that is why no more than k pass. A party must
//! never be seen in two places: it takes another one only when a majority has confirmed that the
//! first is free, or refused it.

use std::sync::Arc;
use std::time::Duration;

use super::view;
use super::watch::{Waited, Watch, answers, pause, step_aside};
use super::{RETENTION, checked_retention};
use crate::acquire::slots::{Kind, Slots, part_name};
use crate::acquire::{AnyOf, Found, Spec, attempt};
use crate::driver::held::Limits;
use crate::driver::shared::Shared;
use crate::driver::waiters::RetryBudget;
use crate::error::{Cause, Error};
use crate::lease::Lease;
use crate::options::LockOptions;
use fencepost_core::lock::Precedence;
use fencepost_core::name::LockName;
use fencepost_core::ttl::Ttl;

/// Lets k parties pass once all of them have arrived: see
/// [`Client::barrier`](crate::Client::barrier).
///
/// A barrier of k is k locks, its *places*, and one that records that it has opened. Each party
/// takes a place and renews it. When all are taken at the same time, the barrier opens, and every
/// party with a place passes and leaves it taken.
///
/// # One name is one round
/// Put the number of the round into the name: `locks.barrier(format!("import:{round}"), 5)`. A name
/// can be reused once its round is no longer [kept](Self::retention).
///
/// # What is promised
/// On one node and on n:
/// - **Never early.** No party passes before k calls of [`wait`](Self::wait) had a place at the same
///   time. A call keeps its place until it fails, is dropped or its process dies, and then for at
///   most one more [TTL](Self::ttl): the release is sent as soon as the nodes are reachable.
/// - **In time.** Once k parties have their places, each passes within 250 ms and a few round trips,
///   while a majority of the nodes answers. This holds even if others have died since: the first
///   party that sees the barrier full records it on a majority of the nodes before it passes.
/// - **No more than k** pass in one round. A party that arrives when all places are taken waits,
///   because another may leave. If the barrier opens without it, or its timeout is over, it fails
///   with [`ErrorKind::NoPlace`](crate::ErrorKind::NoPlace). The place of a party that died before
///   it passed may go to a later party, which then passes.
/// - **A party that dies** before the barrier is full frees its place one TTL later at the latest (in
///   a file at once). A dropped wait frees its place at once.
///
/// This assumes of the nodes what [locks](crate#what-is-promised) assume, for as long as parties
/// wait. Who has passed is remembered for [`retention`](Self::retention). A node that forgets that, or that
/// the barrier has opened, does no harm as long as a majority of the nodes remembers it. Otherwise
/// a late party may wait in vain, and one more than k may pass later.
///
/// # What it costs
/// Taking a place takes two round trips, passing three more. A waiting party polls one place that
/// is still free, four times a second with jitter: two small commands on each node. It looks at all
/// k places when that one is taken, or when it has none itself.
///
/// The places of `name` are the locks `{name}:barrier:0`, `{name}:barrier:1`, …, and
/// `{name}:barrier:open`; see the names of a [`Semaphore`](crate::Semaphore). Each client passes
/// its own k: all must pass the same.
#[derive(Clone, Debug)]
pub struct Barrier {
    shared: Arc<Shared>,
    places: Result<Arc<Places>, Error>,
    retention: Duration,
    timeout: Option<Duration>,
    ttl: Option<Duration>,
}

#[derive(Debug)]
struct Places {
    slots: Slots,
    /// The lock that records that it has opened.
    marker: LockName,
}

impl Places {
    fn new(name: &str, parties: usize) -> Result<Self, Error> {
        let slots = Slots::new(Kind::Barrier, name, parties)?;
        let marker = part_name(Kind::Barrier, &slots.whole, "open")?;
        Ok(Self { slots, marker })
    }
}

/// A passed [`Barrier`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Passage {
    place: usize,
}

impl Passage {
    /// The number of our place, from 0, unique within the round.
    #[must_use]
    pub fn place(&self) -> usize {
        self.place
    }
}

impl Barrier {
    pub(crate) fn new(shared: Arc<Shared>, name: &str, parties: usize) -> Self {
        Self {
            shared,
            places: Places::new(name, parties).map(Arc::new),
            retention: RETENTION,
            timeout: None,
            ttl: None,
        }
    }

    /// How long the opening and the parties that passed are remembered: at least twice the client's
    /// `max_ttl`, at most 24 h; an hour by default. For that long the name serves one round.
    #[must_use]
    pub fn retention(mut self, time: Duration) -> Self {
        self.retention = time;
        self
    }

    /// How long a place is kept for a silent party. The default is the client's TTL.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The limit on [`wait`](Self::wait). Without it, a wait has none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let barrier = locks.barrier("phase-1", 3);
    /// let error = barrier.timeout(Duration::from_millis(20)).wait().await.unwrap_err();
    /// assert_eq!(error.to_string(), "\"phase-1\" did not open in time: 2 of 3 are missing");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Waits until all parties have arrived, at most for the [`timeout`](Self::timeout), and passes.
    ///
    /// Dropping it releases the place. Without a quorum it retries as long as the place is ours,
    /// and for one TTL in a row.
    ///
    /// # Errors
    /// [`ErrorKind::NotOpen`](crate::ErrorKind::NotOpen) when the timeout is over; the place is released.
    /// [`ErrorKind::NoPlace`](crate::ErrorKind::NoPlace) when the barrier has opened for others. [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum),
    /// [`ErrorKind::TooLate`](crate::ErrorKind::TooLate) and [`ErrorKind::Lost`](crate::ErrorKind::Lost) when too few nodes answered, or too late: our place is
    /// released, and if the barrier was full, others pass without us. [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName),
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) and [`ErrorKind::InvalidTtl`](crate::ErrorKind::InvalidTtl) for what cannot be.
    pub async fn wait(&self) -> Result<Passage, Error> {
        self.pass().await
    }

    /// How many parties are missing. 0 when the barrier has opened.
    ///
    /// # Errors
    /// [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when too few nodes could be asked; [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName),
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption).
    pub async fn missing(&self) -> Result<usize, Error> {
        let places = self.places.clone()?;
        if is_open(&self.shared, &places).await? {
            return Ok(0);
        }
        let names = &places.slots.names;
        Watch::new(&self.shared, names).missing().await
    }

    async fn pass(&self) -> Result<Passage, Error> {
        let places = self.places.clone()?;
        let options = LockOptions {
            ttl: self.ttl,
            timeout: self.timeout,
            ..LockOptions::new()
        };
        // A place may be waited in without a limit.
        let limits = Limits {
            renew: true,
            ..Limits::default()
        };
        let mut party = Party {
            spec: Spec::new(&self.shared, options)?.limits(limits),
            retention: checked_retention(&self.shared, self.retention)?,
            watch: Watch::new(&self.shared, &places.slots.names),
            shared: &self.shared,
            places: &places,
        };
        loop {
            let (place, lease) = party.take_place().await?;
            match party.until_open(&lease).await? {
                Until::Open => {
                    lease.seal(party.retention).await?;
                    return Ok(Passage { place });
                }
                // Before it takes another one: it must not be seen in both.
                Until::Lost => match lease.release().await {
                    Ok(()) => {}
                    Err(error) if error.is_lost() => {}
                    Err(error) => return Err(error),
                },
            }
        }
    }
}

/// Whether the barrier is marked as open.
async fn is_open(shared: &Shared, places: &Places) -> Result<bool, Error> {
    let marker = std::slice::from_ref(&places.marker);
    let seen = answers(shared, marker).await?;
    Ok(view::is_sealed(&seen[0], shared.max_ttl.get()))
}

/// A party that wants to pass.
struct Party<'a> {
    shared: &'a Arc<Shared>,
    places: &'a Places,
    spec: Spec,
    retention: Ttl,
    watch: Watch<'a>,
}

/// Until when a party has waited in its place.
enum Until {
    Open,
    Lost,
}

/// What a party sees from its place.
enum Sight {
    Open,
    /// All have arrived, and another party is about to record it.
    Opening,
    NotFull,
}

impl Party<'_> {
    /// Takes a place, waiting for one while all are taken and the barrier has not opened.
    async fn take_place(&mut self) -> Result<Found, Error> {
        let mut waited = Waited::ForANextLook;
        loop {
            let slots = &self.places.slots;
            let any = AnyOf {
                shared: self.shared,
                names: &slots.names,
                slots: Some(slots),
                spec: self.spec.clone(),
            };
            match any.at_once().await {
                // So many nodes refused that no majority can hold what was requested.
                Err(error) if error.is_refusal() => {}
                outcome => return outcome,
            }
            let (is_open, missing) = (self.is_open().await?, self.watch.missing().await?);
            let is_last = waited == Waited::ToTheEnd;
            waited = match missing {
                0 if is_open || is_last => return Err(self.no_place()),
                0 => pause(self.shared, &self.spec.budget).await,
                _ if is_last => return Err(self.not_open(missing)),
                // Others were about to take the same ones.
                _ => step_aside(self.shared, &self.spec.budget).await,
            };
        }
    }

    /// Waits in its place until the barrier is open and recorded as open.
    async fn until_open(&mut self, lease: &Lease) -> Result<Until, Error> {
        let mut waited = Waited::ForANextLook;
        while lease.loss().is_none() {
            let mut is_opening = false;
            match self.look().await {
                Ok(Sight::Open) => return Ok(Until::Open),
                Ok(Sight::Opening) => is_opening = true,
                Ok(Sight::NotFull) if waited == Waited::ToTheEnd => {
                    let missing = self.watch.missing().await?;
                    if missing > 0 {
                        return Err(self.not_open(missing));
                    }
                }
                Ok(Sight::NotFull) => self.spec.budget.saw_quorum(),
                Err(error) if self.spec.budget.goes_on_after(&error) => {}
                Err(error) => return Err(error),
            }
            let (shared, patience) = (self.shared, &self.spec.budget);
            let pause = async {
                match is_opening {
                    // To the end: it opens, whatever the timeout.
                    true => step_aside(shared, &RetryBudget::new(None, self.spec.ttl)).await,
                    false => pause(shared, patience).await,
                }
            };
            waited = tokio::select! {
                biased;
                _ = lease.lost() => return Ok(Until::Lost),
                waited = pause => waited,
            };
        }
        Ok(Until::Lost)
    }

    /// Whether the barrier is open: if it is full, after recording it.
    async fn look(&mut self) -> Result<Sight, Error> {
        if self.is_open().await? {
            return Ok(Sight::Open);
        }
        if !self.watch.is_full().await? {
            return Ok(Sight::NotFull);
        }
        match self.mark().await {
            Ok(()) => Ok(Sight::Open),
            Err(error) if error.is_refusal() || error.is_lost() => Ok(Sight::Opening),
            Err(error) => Err(error),
        }
    }

    async fn is_open(&self) -> Result<bool, Error> {
        is_open(self.shared, self.places).await
    }

    /// Records for good that the barrier has opened.
    async fn mark(&self) -> Result<(), Error> {
        let marker = self.places.marker.clone();
        let spec = self.spec.clone().limits(Limits::default());
        let attempt = attempt(self.shared, &spec, marker, Precedence::MayPass, None);
        attempt.await?.seal(self.retention).await
    }

    fn no_place(&self) -> Error {
        let slots = &self.places.slots;
        Error::from(Cause::NoPlace {
            name: slots.whole.clone(),
            all: slots.names.len(),
        })
    }

    fn not_open(&self, missing: usize) -> Error {
        let slots = &self.places.slots;
        Error::from(Cause::NotOpen {
            name: slots.whole.clone(),
            missing,
            all: slots.names.len(),
        })
    }
}
