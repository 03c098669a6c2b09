//! For tests of code that holds locks: faults that no server produces on demand.

use std::time::Duration;

use super::Client;
use crate::error::LossReason;

impl Client {
    /// Makes this client lose its leases on this lock for the given reason, and returns how many
    /// there were. The nodes are not involved: a waiter gets the lock when the lease is dropped.
    ///
    /// To let another client take the lock over, use [`steal`](Self::steal); to see it expire,
    /// pause and advance tokio's clock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// use fencepost::{Client, LossReason};
    ///
    /// let locks = Client::memory()?;
    /// let lease = locks.lock("job").await?;
    /// assert_eq!(locks.lose("job", LossReason::NoQuorum), 1);
    /// assert_eq!(lease.lost().await, LossReason::NoQuorum);
    /// # Ok(()) }
    /// ```
    pub fn lose(&self, name: impl AsRef<str>, why: LossReason) -> usize {
        let leases = self.shared.renewer.leases_on(name.as_ref());
        leases.iter().for_each(|held| held.lose(why.clone()));
        leases.len()
    }

    /// Holds this client up by that much each time it acquires or renews this lock, as a slow network
    /// or a paused process would. A lease is valid for that much less; one whose renewal comes after
    /// its end is lost. [`Duration::ZERO`] ends it.
    ///
    /// A client of a lock service is held up when it renews, and not when it acquires.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// use std::time::Duration;
    /// use fencepost::{Client, LossReason};
    ///
    /// let locks = Client::memory()?;
    /// let lease = locks.lock("job").await?;
    /// locks.delay("job", Duration::from_secs(60)); // longer than the TTL
    /// assert_eq!(lease.lost().await, LossReason::NoQuorum);
    /// # Ok(()) }
    /// ```
    pub fn delay(&self, name: impl AsRef<str>, by: Duration) {
        self.shared.coordinator.hold_ups.set(name.as_ref(), by);
    }
}

/// What `docs/testing.md` shows.
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::fence::Gate;
    use crate::{Client, LossReason};

    // shown
    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_not_renewed_expires() {
        let locks = Client::memory().unwrap();
        let lease = locks.lock("job").renew(false).await.unwrap();
        tokio::time::advance(Duration::from_secs(31)).await;
        assert!(!lease.is_valid());
    }

    #[tokio::test]
    async fn a_job_stops_when_its_lease_is_lost() {
        let locks = Client::memory().unwrap();
        let job = locks.lock("job").run(async |_| {
            locks.lose("job", LossReason::NoQuorum);
            std::future::pending::<()>().await // the work: it is dropped here
        });
        assert!(job.await.unwrap_err().is_lost());
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_stops_when_its_renewals_come_too_late() {
        let locks = Client::memory().unwrap();
        let job = locks.lock("job").run(async |_| {
            locks.delay("job", Duration::from_secs(60)); // longer than the TTL
            std::future::pending::<()>().await
        });
        assert!(job.await.unwrap_err().is_lost());
    }

    #[tokio::test]
    async fn a_job_whose_lock_is_held_does_not_begin() {
        let locks = Client::memory().unwrap();
        let _holder = locks.lock("job").await.unwrap();
        let job = locks.try_lock("job").run(async |_| unreachable!());
        assert!(job.await.unwrap_err().is_held());
    }

    #[tokio::test]
    async fn a_resource_refuses_the_token_of_an_older_holder() {
        let locks = Client::memory().unwrap();
        let old = locks.lock("job").await.unwrap();
        let new = locks.steal("job", Duration::from_secs(30)).await.unwrap();
        let gate = Gate::new(); // stands for the resource
        gate.admit(new.lease.token()).unwrap();
        assert!(gate.admit(old.token()).is_err());
    }
    // end

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_comes_late_is_valid_for_less() {
        let locks = Client::memory().unwrap();
        let at_once = locks.lock("at once").await.unwrap().remaining();
        locks.delay("late", Duration::from_secs(10));
        let late = locks.lock("late").await.unwrap().remaining();
        assert_eq!(at_once - late, Duration::from_secs(10));
        locks.delay("late", Duration::from_secs(31));
        assert!(locks.try_lock("late").await.is_err());
        locks.delay("later", Duration::from_secs(31));
        assert!(locks.try_lock("later").await.unwrap_err().is_retryable());
        locks.delay("later", Duration::ZERO);
        assert_eq!(locks.try_lock("later").await.unwrap().remaining(), at_once);
    }

    #[test]
    fn the_page_shows_the_tests_that_run_here() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/testing.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, shown) = include_str!("testing.rs").split_once("// shown\n").unwrap();
        let (shown, _) = shown.split_once("    // end\n").unwrap();
        let shown = shown
            .lines()
            .map(|line| line.strip_prefix("    ").unwrap_or(line));
        let shown = shown.collect::<Vec<_>>().join("\n");
        assert!(page.contains(shown.trim_end()), "{shown}");
    }
}
