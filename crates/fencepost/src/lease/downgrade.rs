//! A writer that becomes a reader without a gap, and why not the other way round.
//!
//! From the moment at which the first node is asked, the lease must never again be taken for a
//! writer's: nobody can tell which nodes let readers in already.

use super::Lease;
use crate::driver::coordinator::{Access, NotExtended};
use crate::driver::held::Asker;
use crate::error::{Error, LossReason};

impl Lease {
    /// Whether others may hold the lock at the same time: it was taken to
    /// [read](crate::ReadWriteLock::read), or has been [downgraded](Self::downgrade).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.held.claim.access == Access::Shared
    }

    /// Goes on as a reader, without a gap: no writer can come in between, and readers who wait are
    /// let in. The token stays the same, and so do the limits of the lease, whose TTL begins anew.
    ///
    /// Every node turns the writer into a reader by itself, so that it makes no difference to this
    /// lease how many of them could be asked: those that could not do so when the lease is renewed
    /// or extended, and until then let nobody else in. [Cancellation tokens](Self::cancellation) of
    /// the writer's lease are cancelled. A lease that is a reader's already stays as it is. Dropping
    /// the future gives the lock back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let catalogue = locks.read_write("catalogue");
    /// let writer = catalogue.write().await?;
    /// let token = writer.token();
    /// let reader = writer.downgrade().await?;
    /// assert!(reader.is_valid() && reader.token() == token);
    /// let another = catalogue.read().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease is over.
    pub async fn downgrade(self) -> Result<Self, Error> {
        if let Some(why) = self.loss() {
            return Err(self.lost_by(why));
        }
        if self.is_shared() {
            return Ok(self);
        }
        let Some(held) = self.held.turn_into_reader(self.core.schedule.new_id()) else {
            return Err(self.lost_by(self.loss().unwrap_or(LossReason::Expired)));
        };
        let core = self.core.clone();
        // The writer's lease has ended, and has nothing to give back any more.
        drop(self);
        let reader = Self { core, held };
        let outcome = reader.held.extend(Asker::Holder).await;
        if let Some(when) = reader.held.look_at() {
            reader.core.schedule.put(&reader.held, when);
        }
        match (outcome, reader.loss()) {
            // Too few nodes could be asked: what the writer had is the reader's, until its old end.
            (Some(Ok(_) | Err(NotExtended::NoQuorum(_))), None) => Ok(reader),
            // It has waited for them until there was nothing left to hand out.
            (_, why) => Err(reader.lost_by(why.unwrap_or(LossReason::Expired))),
        }
    }

    /// Whether the holder may write. A reader may not, and is never let to: two readers that both
    /// waited for the other to go would wait for ever.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let catalogue = locks.read_write("catalogue");
    /// let reader = catalogue.read().await?;
    /// let refused = reader.upgrade().unwrap_err();
    /// assert!(refused.to_string().contains("release it and take the lock to write"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::UpgradeRefused`] says what to do, unless the lease is a writer's already.
    pub fn upgrade(&self) -> Result<(), Error> {
        match self.held.claim.access {
            Access::Exclusive => Ok(()),
            Access::Shared => Err(Error::UpgradeRefused {
                name: self.held.claim.name.clone(),
            }),
        }
    }
}
