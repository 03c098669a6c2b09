//! [`MultiLease`]: several locks at once, all or none.
//!
//! All of them are asked for together: on free locks that takes one round trip, however many they
//! are. If one of them is taken, what was granted is given back, and they are taken one after the
//! other in the order of their names. Everybody does that in the same order, so nobody can wait in
//! a circle. Nobody may ever be handed some of the locks only.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use crate::client::Client;
use crate::driver::waiters::{Progress, RetryBudget};
use crate::error::{Error, LossReason};
use crate::lease::Lease;
use crate::lock::{LockOptions, Watcher};
use crate::options::option_methods;
use fencepost_core::name::LockName;
use fencepost_core::token::FencingToken;

/// The most locks that are taken at once.
const MOST_NAMES: usize = 1000;

impl Client {
    /// Takes several locks, all or none, whatever order they are given in. A name that is given
    /// twice counts once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let both = locks.lock_all(["account-7", "account-3"]).await?;
    /// println!("from {:?} to {:?}", both.token("account-7"), both.token("account-3"));
    /// both.release().await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is locked before it is awaited"]
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiRequest {
        MultiRequest {
            locks: self.clone(),
            names: checked(names),
            options: LockOptions::new(),
            watcher: None,
        }
    }
}

/// Sorted, each once.
fn checked(names: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Vec<LockName>, Error> {
    let names = names.into_iter().map(LockName::new);
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort();
    names.dedup();
    if names.is_empty() || names.len() > MOST_NAMES {
        return Err(Error::InvalidOption {
            option: "names",
            why: format!(
                "1 to {MOST_NAMES} locks can be taken at once, and these are {}",
                names.len()
            ),
        });
    }
    Ok(names)
}

/// Several locks that are being asked for. Await it.
#[must_use = "nothing is locked before it is awaited"]
#[derive(Debug)]
pub struct MultiRequest {
    locks: Client,
    names: Result<Vec<LockName>, Error>,
    options: LockOptions,
    watcher: Option<Watcher>,
}

impl MultiRequest {
    fn set(mut self, option: impl FnOnce(LockOptions) -> LockOptions) -> Self {
        self.options = option(self.options);
        self
    }

    option_methods!(options, ttl);

    /// How long to wait for all of them at the most. Without it, for as long as it takes; with zero,
    /// not at all.
    pub fn timeout(mut self, at_most: Duration) -> Self {
        self.options = self.options.timeout(at_most);
        self
    }

    /// See [`LockOptions::fair`]: it holds in the line of each lock.
    pub fn fair(mut self, fair: bool) -> Self {
        self.options = self.options.fair(fair);
        self
    }

    /// See [`LockOptions::max_hold`]: it counts from when the first of them was taken. If it is over
    /// before the last of them was free, the request ends with [`Error::Lost`].
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.options = self.options.max_hold(time);
        self
    }

    /// See [`LockRequest::on_progress`](crate::LockRequest::on_progress): it tells of the one lock
    /// that is being waited for, and then of the next.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// # let lease = locks.lock("account-3").await?;
    /// let waiting = locks
    ///     .lock_all(["account-7", "account-3"])
    ///     .timeout(Duration::from_millis(20))
    ///     .on_progress(|progress| println!("held by {:?}", progress.holder));
    /// # waiting.await.unwrap_err();
    /// # Ok(()) }
    /// ```
    pub fn on_progress(mut self, tell: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.watcher = Some(Watcher::new(tell));
        self
    }

    async fn acquire(self) -> Result<MultiLease, Error> {
        let Self {
            locks,
            names,
            options,
            watcher,
        } = self;
        let names = names?;
        let end = options
            .longest_wait()
            .and_then(|time| Instant::now().checked_add(time));
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        let mut patience = RetryBudget::new(options.longest_wait(), options.plan(&locks)?.ttl);
        match together(&locks, &names, options).await {
            Err(error) if patience.goes_on_after(&error) => {}
            Err(error) if is_worth_another(&error) && !is_over() => {}
            outcome => return outcome,
        }
        loop {
            match one_by_one(&locks, &names, options, end, watcher.as_ref()).await {
                // One was lost while another was waited for: from the beginning.
                Err(error) if is_worth_another(&error) && !is_over() => {}
                outcome => return outcome,
            }
        }
    }
}

/// Whether one that was lost may be had for longer the next time. One that was held for as long as it
/// may be while another was waited for would end so again and again.
fn is_worth_another(error: &Error) -> bool {
    matches!(error, Error::Lost { why, .. } if *why != LossReason::MaxHold)
}

/// All at once, if all are free.
async fn together(
    locks: &Client,
    names: &[LockName],
    options: LockOptions,
) -> Result<MultiLease, Error> {
    let now = options.timeout(Duration::ZERO);
    let request = |name: &LockName| locks.lock(name.as_str()).options(now).into_future();
    let outcomes = join_all(names.iter().map(request)).await;
    // What was granted is given back by being dropped.
    let leases = outcomes.into_iter().collect::<Result<_, _>>()?;
    MultiLease(leases).if_whole()
}

/// One after the other, in the order that everybody keeps to.
async fn one_by_one(
    locks: &Client,
    names: &[LockName],
    options: LockOptions,
    end: Option<Instant>,
    watcher: Option<&Watcher>,
) -> Result<MultiLease, Error> {
    let mut taken = MultiLease(Vec::with_capacity(names.len()));
    for name in names {
        let options = match end {
            Some(end) => options.timeout(end.saturating_duration_since(Instant::now())),
            None => options,
        };
        let request = locks.lock(name.as_str()).options(options);
        let lease = tokio::select! {
            biased;
            lost = taken.lost() => return Err(lost.into()),
            lease = request.watched(watcher.cloned()) => lease?,
        };
        taken.0.push(lease);
    }
    taken.if_whole()
}

impl IntoFuture for MultiRequest {
    type Output = Result<MultiLease, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// Several locks that are ours until the first of them is lost. Dropping it gives all of them back.
#[must_use = "the locks are given back when it is dropped"]
pub struct MultiLease(Vec<Lease>);

/// Which of several locks was lost, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostOne {
    /// The lock.
    pub name: LockName,
    /// How it was lost.
    pub why: LossReason,
}

impl From<LostOne> for Error {
    fn from(LostOne { name, why }: LostOne) -> Self {
        Self::Lost { name, why }
    }
}

impl MultiLease {
    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Lease::name)
    }

    /// The fencing token of one of the locks. `None` when it is none of them.
    #[must_use]
    pub fn token(&self, name: impl AsRef<str>) -> Option<FencingToken> {
        let name = name.as_ref();
        let found = self.0.binary_search_by(|lease| lease.name().cmp(name));
        found.ok().map(|place| self.0[place].token())
    }

    /// The fencing tokens, each with its lock's name.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, FencingToken)> {
        self.0.iter().map(|lease| (lease.name(), lease.token()))
    }

    /// How long all of them are still ours, if they are not renewed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.0.iter().map(Lease::remaining);
        remaining.min().unwrap_or_default()
    }

    /// Whether all of them are ours at this moment, by our own clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Which of them was lost, and how, if one was.
    #[must_use]
    pub fn loss(&self) -> Option<LostOne> {
        self.0.iter().find_map(|lease| {
            let (name, why) = (lease.lock_name().clone(), lease.loss()?);
            Some(LostOne { name, why })
        })
    }

    /// Itself, unless one of them was lost while the last was waited for: that is given back with the
    /// others, because nobody may be handed some of them only.
    fn if_whole(self) -> Result<Self, Error> {
        match self.loss() {
            Some(LostOne { name, why }) => Err(Error::Lost { name, why }),
            None => Ok(self),
        }
    }

    /// Resolves when the first of them is lost, and says which and how: see [`Lease::lost`].
    pub async fn lost(&self) -> LostOne {
        let mut losses: FuturesUnordered<_> = self.0.iter().map(loss_of).collect();
        match losses.next().await {
            Some(lost) => lost,
            // There are none yet.
            None => std::future::pending().await,
        }
    }

    /// Keeps all of them for another TTL from now.
    ///
    /// # Errors
    /// That of the first that could not be kept: see [`Lease::extend`].
    pub async fn extend(&self) -> Result<(), Error> {
        join_all(self.0.iter().map(Lease::extend))
            .await
            .into_iter()
            .collect()
    }

    /// Gives all of them back and tells the outcome.
    ///
    /// # Errors
    /// That of the first that was not given back: see [`Lease::release`]. The others are given back
    /// all the same.
    pub async fn release(self) -> Result<(), Error> {
        join_all(self.0.into_iter().map(Lease::release))
            .await
            .into_iter()
            .collect()
    }
}

async fn loss_of(lease: &Lease) -> LostOne {
    let why = lease.lost().await;
    let name = lease.lock_name().clone();
    LostOne { name, why }
}

impl fmt::Debug for MultiLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[tokio::test(start_paused = true)]
    async fn all_are_taken_or_none() {
        let locks = Client::memory().unwrap();
        let taken = locks.lock("b").await.unwrap();
        let error = locks.lock_all(["c", "b", "a"]).timeout(ms(0)).await;
        assert!(error.unwrap_err().is_held());
        let error = locks.lock_all(["c", "b", "a"]).timeout(ms(100)).await;
        assert!(error.unwrap_err().is_held());
        for free in ["a", "c"] {
            locks.lock(free).timeout(ms(0)).await.unwrap();
        }
        taken.release().await.unwrap();
        let all = locks.lock_all(["c", "b", "a", "b"]).timeout(ms(0)).await;
        let all = all.unwrap();
        assert_eq!(all.names().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(all.is_valid() && all.token("b") > all.token("nothing"));
        for held in ["a", "b", "c"] {
            assert!(locks.lock(held).timeout(ms(0)).await.is_err());
        }
        all.release().await.unwrap();
        locks.lock("a").timeout(ms(0)).await.unwrap();
    }

    /// It began again and again, for ever: each time the first was held for as long as it may be before
    /// the second was free.
    #[tokio::test]
    async fn one_that_may_not_be_held_until_another_is_free_is_told() {
        let locks = Client::memory().unwrap();
        let _taken = locks.lock("b").await.unwrap();
        let both = locks.lock_all(["a", "b"]).max_hold(ms(50)).into_future();
        let error = tokio::time::timeout(ms(5_000), both).await.unwrap();
        let Error::Lost { name, why } = error.unwrap_err() else {
            panic!("it was not lost");
        };
        assert_eq!((name.as_str(), why), ("a", LossReason::MaxHold));
        locks.lock("a").timeout(ms(10)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_asks_is_told_for_whom_it_waits() {
        let locks = Client::memory().unwrap();
        let taken = locks.lock("b").await.unwrap();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let request = locks.lock_all(["a", "b"]);
        let request = request.on_progress(move |progress| {
            let _ = tell.send(progress.place);
        });
        let waiting = tokio::spawn(request.into_future());
        assert_eq!(told.recv().await, Some(Some(1)));
        taken.release().await.unwrap();
        assert!(waiting.await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_want_the_same_in_another_order_do_not_wait_in_a_circle() {
        let locks = Client::memory().unwrap();
        let mut tasks = Vec::new();
        for n in 0..20 {
            let locks = locks.clone();
            tasks.push(tokio::spawn(async move {
                for turn in 0..20 {
                    let (a, b, c) = (n % 5, (n + turn) % 5, (n * turn) % 5);
                    let names = [a, b, c].map(|n| n.to_string());
                    let all = locks.lock_all(names).await.unwrap();
                    tokio::time::sleep(ms(1)).await;
                    all.release().await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_thousand_at_once_and_one_that_is_lost() {
        let locks = Client::memory().unwrap();
        let names = (0..MOST_NAMES).map(|n| format!("n-{n}"));
        let all = locks.lock_all(names.clone()).ttl(ms(900)).await.unwrap();
        assert_eq!(all.loss(), None);
        assert_eq!(all.tokens().count(), MOST_NAMES);
        let stolen = locks.steal("n-77", ms(10_000)).await.unwrap();
        let lost = all.lost().await;
        assert_eq!(lost.name.as_str(), "n-77");
        assert!(matches!(lost.why, LossReason::Stolen { .. }));
        assert!(!all.is_valid());
        assert_eq!(all.loss(), Some(lost));
        drop((all, stolen));
        let too_many = names.chain(["one-more".to_owned()]);
        let error = locks.lock_all(too_many).await.unwrap_err();
        assert!(error.to_string().contains("1001"), "{error}");
        let error = locks.lock_all(Vec::<String>::new()).await.unwrap_err();
        assert!(error.to_string().contains("names"), "{error}");
    }
}
