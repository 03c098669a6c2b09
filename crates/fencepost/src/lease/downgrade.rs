//! A writer that becomes a reader without a gap.
//!
//! Once the first node was asked, the lease must never again be treated as a writer's: some nodes
//! may have admitted readers already.

use super::Lease;
use crate::driver::claim::{Access, NotExtended};
use crate::driver::held::Asker;
use crate::error::{Error, LossReason, not_offered};

impl Lease {
    /// Whether other readers may hold the lock at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        self.held.claim.access == Access::Shared
    }

    /// Continues as a reader, without a gap: no writer can acquire the lock in between, and waiting
    /// readers are admitted. The token and the limits of the lease stay the same; its TTL starts
    /// anew.
    ///
    /// Each node turns the writer into a reader by itself, so the lease does not depend on how many
    /// of them answered: the others do so when the lease is next renewed or extended, and admit no
    /// other client until then. Dropping the future releases the lock.
    pub(crate) async fn downgrade(self) -> Result<Self, Error> {
        if let Some(why) = self.loss() {
            return Err(self.lost_by(why));
        }
        if self.is_shared() {
            return Ok(self);
        }
        if self.shared.service().is_some() {
            return Err(not_offered("downgrading a write lease"));
        }
        let Some(held) = self.held.turn_into_reader(self.shared.renewer.new_id()) else {
            return Err(self.lost_by(self.loss().unwrap_or(LossReason::Unknown)));
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
            // No quorum: the reader keeps what the writer had, until its old deadline.
            (Some(Ok(_) | Err(NotExtended::NoQuorum(_))), None) => Ok(reader),
            // It waited for the nodes until nothing of the lease was left.
            (_, why) => Err(reader.lost_by(why.unwrap_or(LossReason::Unknown))),
        }
    }
}
