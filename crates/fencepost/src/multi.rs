//! [`MultiLease`]: several locks at once, all or none.

use std::fmt;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

pub use crate::acquire::all::LostLock;
use crate::acquire::all::{AllOf, first_lost, one_lost};
use crate::error::{Cause, Error};
use crate::lease::run::Guard;
use crate::lease::{Lease, from_now};
use crate::options::{Ask, request};
use fencepost_core::name::LockName;
use fencepost_core::token::FencingToken;

/// The maximum number of locks in one request.
const MOST_NAMES: usize = 1000;

/// Sorted, each once.
pub(crate) fn checked(
    names: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<Vec<LockName>, Error> {
    let names = names.into_iter().map(LockName::new);
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    names.sort();
    names.dedup();
    if names.is_empty() || names.len() > MOST_NAMES {
        return Err(Error::from(Cause::InvalidOption {
            option: "names",
            why: format!("expected 1 to {MOST_NAMES} locks, got {}", names.len()),
        }));
    }
    Ok(names)
}

request! {
    /// A request for several locks. Await it.
    ///
    /// The timeout covers all of them together, and `fair` applies to the queue of each. `max_hold`
    /// counts from the acquisition of the first: if it ends before the last of them was acquired,
    /// the request fails with [`ErrorKind::Lost`](crate::ErrorKind::Lost).
    MultiRequest(Vec<LockName>) -> MultiLease by lock_all
}

async fn lock_all(ask: Ask<Vec<LockName>>) -> Result<MultiLease, Error> {
    let names = ask.what?;
    let all = AllOf {
        shared: &ask.shared,
        names: &names,
        options: ask.options,
        watcher: ask.watcher.as_ref(),
        on_behalf: ask.on_behalf.as_ref(),
    };
    all.acquire().await.map(MultiLease)
}

/// Several held locks. They are ours until the first of them is lost. Dropping it releases all of
/// them.
#[must_use = "the locks are released as soon as this is dropped"]
pub struct MultiLease(Vec<Lease>);

impl MultiLease {
    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Lease::name)
    }

    /// The fencing token of one of the locks. `None` for any other name.
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

    /// Remaining validity of all of them, unless renewed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let remaining = self.0.iter().map(Lease::remaining);
        remaining.min().unwrap_or_default()
    }

    /// When the first of them ends, unless renewed: see [`Lease::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Instant {
        from_now(self.remaining())
    }

    /// Whether all of them are ours right now, by our own clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Which of them was lost, and why, if one was.
    #[must_use]
    pub fn loss(&self) -> Option<LostLock> {
        one_lost(&self.0)
    }

    /// Resolves when the first of them is lost, and says which and why: see [`Lease::lost`].
    pub async fn lost(&self) -> LostLock {
        first_lost(&self.0).await
    }

    /// Extends all of them for another TTL from now.
    ///
    /// # Errors
    /// The error of the first that could not be extended: see [`Lease::extend`].
    pub async fn extend(&self) -> Result<(), Error> {
        join_all(self.0.iter().map(Lease::extend))
            .await
            .into_iter()
            .collect()
    }

    /// Releases all of them and reports the outcome.
    ///
    /// # Errors
    /// The error of the first that was not released: see [`Lease::release`]. The others are
    /// released all the same.
    pub async fn release(self) -> Result<(), Error> {
        join_all(self.0.into_iter().map(Lease::release))
            .await
            .into_iter()
            .collect()
    }

    /// The leases, in the order of their names, for a replica of the lock service.
    #[doc(hidden)]
    #[must_use]
    pub fn into_leases(self) -> Vec<Lease> {
        self.0
    }
}

impl Guard for MultiLease {
    async fn until_lost(&self) -> Error {
        self.lost().await.into()
    }

    fn loss_error(&self) -> Option<Error> {
        self.loss().map(Error::from)
    }

    async fn end(self) -> Result<(), Error> {
        self.release().await
    }
}

impl fmt::Debug for MultiLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, LossReason};

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
        assert!(error.unwrap_err().is_timeout());
        for free in ["a", "c"] {
            drop(locks.lock(free).timeout(ms(0)).await.unwrap());
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
        drop(locks.lock("a").timeout(ms(0)).await.unwrap());
    }

    /// It began again and again, for ever: each time the first was held for as long as it may be before
    /// the second was free.
    #[tokio::test]
    async fn one_that_may_not_be_held_until_another_is_free_is_told() {
        let locks = Client::memory().unwrap();
        let _taken = locks.lock("b").await.unwrap();
        let both = locks.lock_all(["a", "b"]).max_hold(ms(50)).into_future();
        let error = tokio::time::timeout(ms(5_000), both).await.unwrap();
        let error = error.unwrap_err();
        assert_eq!(error.name(), Some("a"));
        assert_eq!(error.loss(), Some(&LossReason::MaxHold));
        drop(locks.lock("a").timeout(ms(10)).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_learns_who_holds_the_lock_it_waits_for() {
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
