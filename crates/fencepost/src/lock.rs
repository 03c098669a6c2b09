//! [`LockRequest`]: asking for a lock with options, and waiting for it.
//!
//! Waiting is by polling with jitter: at the end of the holder's remaining time at the latest,
//! and before that ever more rarely, so that an early release is noticed.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::client::Fencepost;
use crate::error::{Error, NodeError, NodeOutcome, NodeReport};
use crate::lease::{Lease, Limits};
use crate::name::LockName;
use crate::randomness::Randomness;

/// The first pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How to acquire and keep a lock. Everything has a default: `LockOptions::new()` is what
/// [`Fencepost::lock`] does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LockOptions {
    ttl: Option<Duration>,
    wait: Option<Duration>,
    no_renewal: bool,
    max_hold: Option<Duration>,
    max_renewals: Option<u32>,
}

impl LockOptions {
    /// The defaults: the client's TTL, wait as long as it takes, renew.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a node keeps the lock when its holder is silent. The default is the client's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to wait at the most. Without it, for as long as it takes; with zero, not at all.
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.wait = Some(at_most);
        self
    }

    /// Whether the lease renews itself every third of its TTL, as it does by default.
    pub fn renew(mut self, renew: bool) -> Self {
        self.no_renewal = !renew;
        self
    }

    /// How long the lease may last, however often it is renewed or extended; then it is lost with
    /// [`MaxHold`](crate::LossReason::MaxHold). The default is the client's. The nodes may keep the
    /// lock of a holder that does not give it back for one more TTL.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.max_hold = Some(time);
        self
    }

    /// How often the lease may renew itself; after that many renewals it runs out, and is lost with
    /// [`MaxHold`](crate::LossReason::MaxHold). The default is the client's. A renewal that failed,
    /// and an [`extend`](Lease::extend) of your own, is not counted.
    pub fn max_renewals(mut self, times: u32) -> Self {
        self.max_renewals = Some(times);
        self
    }
}

/// A lock that is being asked for. Await it.
///
/// While too few nodes can be asked it goes on trying, until the wait is over; without a limit to
/// the wait, for one TTL in a row, not counting the time in which restarted nodes do not vote yet.
/// Then it ends with [`Error::NoQuorum`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Fencepost::memory()?;
/// use std::time::Duration;
///
/// let first = locks.lock("job").await?;
/// let second = locks.lock("job").wait(Duration::from_millis(20)).await;
/// assert!(second.unwrap_err().is_held(), "waited, and it was held all the time");
/// # Ok(()) }
/// ```
#[must_use = "nothing is locked before it is awaited"]
#[derive(Debug)]
pub struct LockRequest {
    locks: Fencepost,
    name: Result<LockName, Error>,
    options: LockOptions,
}

impl LockRequest {
    pub(crate) fn new(locks: Fencepost, name: &str) -> Self {
        Self {
            locks,
            name: LockName::new(name),
            options: LockOptions::new(),
        }
    }

    /// All options at once.
    pub fn options(mut self, options: LockOptions) -> Self {
        self.options = options;
        self
    }

    /// See [`LockOptions::ttl`].
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.options = self.options.ttl(ttl);
        self
    }

    /// See [`LockOptions::wait`].
    pub fn wait(mut self, at_most: Duration) -> Self {
        self.options = self.options.wait(at_most);
        self
    }

    /// See [`LockOptions::renew`].
    pub fn renew(mut self, renew: bool) -> Self {
        self.options = self.options.renew(renew);
        self
    }

    /// See [`LockOptions::max_hold`].
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.options = self.options.max_hold(time);
        self
    }

    /// See [`LockOptions::max_renewals`].
    pub fn max_renewals(mut self, times: u32) -> Self {
        self.options = self.options.max_renewals(times);
        self
    }

    async fn acquire(self) -> Result<Lease, Error> {
        let Self {
            locks,
            name,
            options,
        } = self;
        let name = name?;
        let ttl = match options.ttl {
            Some(ttl) => locks.checked_ttl(ttl)?,
            None => locks.core.default_ttl,
        };
        let limits = Limits {
            renew: !options.no_renewal,
            max_hold: options.max_hold.or(locks.core.max_hold),
            max_renewals: options.max_renewals.or(locks.core.max_renewals),
        };
        // A time-out beyond what the clock can count is none.
        let give_up = options
            .wait
            .and_then(|time| Instant::now().checked_add(time));
        let mut no_quorum_since = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match locks.attempt(name.clone(), ttl, limits).await {
                Ok(lease) => return Ok(lease),
                Err(error) => error,
            };
            let at_most = match &error {
                Error::Held { remaining, .. } => {
                    no_quorum_since = None;
                    remaining.unwrap_or(LONGEST_PAUSE)
                }
                // A node that restarts or a connection that breaks must not end a long wait; a
                // store that is away for a whole TTL must not leave the caller without a word.
                Error::NoQuorum { nodes, .. } if nodes.iter().any(is_quarantined) => {
                    // That ends by itself.
                    no_quorum_since = None;
                    LONGEST_PAUSE
                }
                Error::NoQuorum { .. } => {
                    let since = *no_quorum_since.get_or_insert_with(Instant::now);
                    if options.wait.is_none() && since.elapsed() >= ttl.get() {
                        return Err(error);
                    }
                    LONGEST_PAUSE
                }
                Error::TooLate { .. } => LONGEST_PAUSE,
                _ => return Err(error),
            };
            let mut next = jittered(pause.min(at_most), &*locks.core.randomness);
            pause = (pause * 2).min(LONGEST_PAUSE);
            if let Some(end) = give_up {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(error);
                }
                // The last attempt is made when the wait is over, not before.
                next = next.min(left);
            }
            sleep(next).await;
        }
    }
}

fn is_quarantined(report: &NodeReport) -> bool {
    matches!(
        report.outcome,
        NodeOutcome::Failed(NodeError::Quarantined(_))
    )
}

/// Between a half and the whole of `time`, so that waiters do not keep step with each other.
fn jittered(time: Duration, randomness: &dyn Randomness) -> Duration {
    time / 2 + time.mul_f64(randomness.share() / 2.0)
}

impl IntoFuture for LockRequest {
    type Output = Result<Lease, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// It gave up as soon as the next look would have come after the end, up to 250 ms too early.
    #[tokio::test(start_paused = true)]
    async fn a_wait_is_not_given_up_before_its_time() {
        let locks = Fencepost::memory().unwrap();
        let lease = locks.lock("job").await.unwrap();
        let start = Instant::now();
        let error = locks.lock("job").wait(ms(700)).await.unwrap_err();
        assert!(error.is_held(), "{error}");
        assert!(start.elapsed() >= ms(700), "{:?}", start.elapsed());
        assert!(start.elapsed() < ms(710), "{:?}", start.elapsed());

        let waiting = tokio::spawn(locks.lock("job").wait(ms(700)).into_future());
        sleep(ms(695)).await;
        lease.release().await.unwrap();
        assert!(waiting.await.unwrap().is_ok(), "free before the end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_nothing_is_one_attempt() {
        let locks = Fencepost::memory().unwrap();
        let _lease = locks.lock("job").await.unwrap();
        let start = Instant::now();
        assert!(locks.lock("job").wait(Duration::ZERO).await.is_err());
        assert_eq!(start.elapsed(), Duration::ZERO);
        let endless = locks.lock("job").wait(Duration::MAX).into_future();
        assert!(tokio::time::timeout(ms(1000), endless).await.is_err());
    }
}
