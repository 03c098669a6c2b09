//! [`LockRequest`]: a mutex that is asked for, and waited for.

use crate::acquire;
use crate::error::Error;
use crate::lease::Lease;
use crate::options::{Ask, request};
use fencepost_core::name::LockName;

request! {
    /// A lock that is being asked for. Await it.
    ///
    /// # How it waits
    /// If the lock is taken, the request gets in line on all nodes. A release wakes the next in line and
    /// nobody else, and it makes its attempt. Nothing is left in line when the request is dropped, or
    /// its wait is over.
    ///
    /// - The next in line is woken by the release, within a few round trips. A waiter of the same client
    ///   follows the release at once, in one; without `fair` it may pass others so, for a second at the
    ///   most: then its client knows that they are there.
    /// - Whoever asks while others of its client wait gets in line without an attempt of its own.
    /// - A holder that dies wakes nobody: the next in line looks when the holder's time is up.
    /// - A wake-up that gets lost costs a second at the most: that is how often everybody in line looks
    ///   by itself. So does a release by a client of another library; if the next in line knows that it
    ///   is one, it looks four times a second.
    /// - A waiter that dies costs the next one 50 ms, or one [ticket lease](fencepost_core::ticket::TICKET_LEASE)
    ///   of 3 s where the line is [fair](crate::LockOptions::fair). Many that die together cost no more.
    /// - A waiter that hears no majority of the nodes leaves the line until it does, so that it stands
    ///   in nobody's way. It keeps its number.
    ///
    /// So the first in line that can reach a majority has the lock within the rest of the present hold,
    /// one ticket lease and one second. Except by `fair` it may be passed by newcomers.
    ///
    /// While too few nodes can be asked it goes on trying, until the wait is over; without a limit to
    /// the wait, for one TTL in a row, not counting the time in which restarted nodes do not vote yet.
    /// Then it ends with [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let first = locks.lock("job").await?;
    /// let second = locks.lock("job").timeout(Duration::from_millis(20)).await;
    /// assert!(second.unwrap_err().is_timeout(), "waited, and it was held all the time");
    /// # Ok(()) }
    /// ```
    LockRequest(LockName) -> Lease by lock
}

async fn lock(ask: Ask<LockName>) -> Result<Lease, Error> {
    let spec = acquire::check(&ask)?;
    acquire::one(&ask.shared, &ask.what?, spec).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use crate::Client;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// It gave up as soon as the next look would have come after the end, up to 250 ms too early.
    #[tokio::test(start_paused = true)]
    async fn a_wait_is_not_given_up_before_its_time() {
        let locks = Client::memory().unwrap();
        let lease = locks.lock("job").await.unwrap();
        let start = Instant::now();
        let error = locks.lock("job").timeout(ms(700)).await.unwrap_err();
        assert!(error.is_timeout() && error.holder().is_some(), "{error}");
        assert!(start.elapsed() >= ms(700), "{:?}", start.elapsed());
        assert!(start.elapsed() < ms(710), "{:?}", start.elapsed());

        let waiting = tokio::spawn(locks.lock("job").timeout(ms(700)).into_future());
        tokio::time::sleep(ms(695)).await;
        lease.release().await.unwrap();
        assert!(waiting.await.unwrap().is_ok(), "free before the end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_nothing_is_one_attempt() {
        let locks = Client::memory().unwrap();
        let _lease = locks.lock("job").await.unwrap();
        let start = Instant::now();
        assert!(locks.lock("job").timeout(Duration::ZERO).await.is_err());
        assert_eq!(start.elapsed(), Duration::ZERO);
        let endless = locks.lock("job").timeout(Duration::MAX).into_future();
        assert!(tokio::time::timeout(ms(1000), endless).await.is_err());
    }
}
