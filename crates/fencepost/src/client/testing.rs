//! For tests of code that holds locks: what no server does on demand.

use super::Client;
use crate::error::LossReason;

impl Client {
    /// Makes this client lose its leases on that lock for the given reason, and returns how many there
    /// were. The nodes are not asked: a waiter gets the lock when the lease is dropped.
    ///
    /// To have another client take the lock, use [`steal`](Self::steal); to see it expire, pause
    /// tokio's clock and advance it.
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
}
