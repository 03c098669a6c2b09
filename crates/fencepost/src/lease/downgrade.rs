//! A writer that becomes a reader without a gap.
//!
//! From the moment at which the first node is asked, the lease must never again be taken for a
//! writer's: some nodes may have let readers in already.

use super::Lease;
use crate::driver::coordinator::{Access, NotExtended};
use crate::driver::held::Asker;
use crate::error::{Error, LossReason, not_offered};

impl Lease {
    /// Whether other readers may hold the lock at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        self.held.claim.access == Access::Shared
    }

    /// Goes on as a reader, without a gap: no writer can come in between, and readers who wait are
    /// let in. The token stays the same, and so do the limits of the lease, whose TTL begins anew.
    ///
    /// Every node turns the writer into a reader by itself, so that it makes no difference to this
    /// lease how many of them could be asked: those that could not do so when the lease is renewed
    /// or extended, and admit no one else until then. Dropping the future releases the lock.
    pub(crate) async fn downgrade(self) -> Result<Self, Error> {
        if let Some(why) = self.loss() {
            return Err(self.lost_by(why));
        }
        if self.is_shared() {
            return Ok(self);
        }
        if self.shared.service().is_some() {
            return Err(not_offered("a writer to become a reader"));
        }
        let Some(held) = self.held.turn_into_reader(self.shared.renewer.new_id()) else {
            return Err(self.lost_by(self.loss().unwrap_or(LossReason::Expired)));
        };
        let shared = self.shared.clone();
        // The writer's lease has ended and has nothing left to release.
        drop(self);
        let reader = Self { shared, held };
        let outcome = reader.held.extend(Asker::Holder).await;
        if let Some(when) = reader.held.look_at() {
            reader.shared.renewer.put(&reader.held, when);
        }
        match (outcome, reader.loss()) {
            // Too few nodes could be asked: what the writer had is the reader's, until its old end.
            (Some(Ok(_) | Err(NotExtended::NoQuorum(_))), None) => Ok(reader),
            // It has waited for them until there was nothing left to hand out.
            (_, why) => Err(reader.lost_by(why.unwrap_or(LossReason::Expired))),
        }
    }
}
