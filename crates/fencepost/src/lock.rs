//! [`LockRequest`]: a request for a mutex, which waits while it is held.

use crate::acquire;
use crate::error::Error;
use crate::lease::Lease;
use crate::options::{Ask, request};
use fencepost_core::name::LockName;

request! {
    /// A request for a lock (a mutex). Await it.
    ///
    /// # How it waits
    /// If the lock is held, the request enqueues a ticket on all nodes. A release wakes the head of the
    /// queue, which then makes its attempt. Dropping the request, or reaching its timeout, removes the
    /// ticket.
    ///
    /// - The release wakes the head of the queue within a few round trips. A waiter of the same client
    ///   follows its release in one round trip; without `fair` it may pass other clients' waiters that
    ///   way for at most a second, until its client sees them.
    /// - A request enqueues without an attempt of its own while others of its client wait.
    /// - A holder that dies wakes no waiter: the head of the queue looks when the holder's TTL ends.
    /// - A lost wake-up costs at most a second: that is how often every waiter polls.
    /// - A waiter that dies costs the next one 50 ms, or one ticket lease of 3 s
    ///   in a [fair](crate::LockOptions::fair) queue. Many that die together cost no more.
    /// - A waiter that reaches no majority of the nodes leaves the queue until it does, so that it
    ///   blocks no other. It keeps its number.
    ///
    /// So the first waiter that can reach a majority has the lock within the rest of the present hold,
    /// one ticket lease and one second. Without `fair`, newcomers may pass it.
    ///
    /// While too few nodes answer, the request retries until its timeout; without a timeout, for one
    /// TTL in a row, not counting the time in which restarted nodes are in quarantine. Then it ends
    /// with [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum).
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

    use crate::{Client, LockOptions};

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
    async fn a_try_is_one_attempt_whatever_options_follow() {
        let locks = Client::memory().unwrap();
        let options = LockOptions::new().ttl(ms(10_000)).timeout(ms(60_000));
        let _writer = locks.read_write("job").write().await.unwrap();
        let _permit = locks.semaphore("pool", 1).acquire().await.unwrap();
        let _entered = locks.reentrant("entered").lock().await.unwrap();
        let _leader = locks.election("leader").campaign("first").await.unwrap();
        let begin = Instant::now();
        let refused = [
            locks.try_lock("job").options(options).await.err(),
            locks.try_lock_all(["job"]).options(options).await.err(),
            locks
                .read_write("job")
                .try_read()
                .options(options)
                .await
                .err(),
            locks
                .read_write("job")
                .try_write()
                .options(options)
                .await
                .err(),
            locks
                .semaphore("pool", 1)
                .try_acquire()
                .options(options)
                .await
                .err(),
            locks
                .reentrant("entered")
                .try_lock()
                .options(options)
                .await
                .err(),
            locks
                .election("leader")
                .try_campaign("second")
                .options(options)
                .await
                .err(),
        ];
        for error in refused {
            let error = error.expect("it is held");
            assert!(error.is_held(), "{error}");
        }
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_of_a_lease_in_memory_is_of_tokios_clock() {
        let locks = Client::memory().unwrap();
        tokio::time::advance(ms(100_000)).await;
        let lease = locks.lock("job").ttl(ms(10_000)).await.unwrap();
        let several = locks.lock_all(["a", "b"]).ttl(ms(10_000)).await.unwrap();
        let earliest = Instant::now() + ms(9_000);
        assert!(Instant::from_std(lease.deadline()) > earliest);
        assert!(Instant::from_std(several.deadline()) > earliest);
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
