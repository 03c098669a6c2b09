//! The entries of one owner into one lock, and which of its tasks acquires it.
//!
//! A lease that is over must never admit an entry, and a lease must never stay once its last entry
//! is gone.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lease::Lease;

/// The door to one lock for one owner.
#[derive(Default)]
pub(crate) struct Door {
    /// Only the task that holds it acquires the lock from the nodes, once for all that wait.
    key: tokio::sync::Mutex<()>,
    /// The lease that they share. The number of entries changes only while this is locked.
    room: Mutex<Option<Arc<Lease>>>,
}

impl Door {
    /// Waits until no other task of the owner is acquiring.
    pub(super) async fn key(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.key.lock().await
    }

    /// Enters if the owner holds a lease that is not over.
    pub(super) fn enter_again(&self) -> Option<Arc<Lease>> {
        let room = self.room();
        let lease = room.as_ref().filter(|lease| lease.is_valid())?;
        lease.set_entries(lease.entries().checked_add(1)?);
        Some(Arc::clone(lease))
    }

    /// Enters by a lease that was just acquired. Entries of an expired lease stay with that one.
    pub(super) fn opened(&self, lease: Lease) -> Arc<Lease> {
        let lease = Arc::new(lease);
        *self.room() = Some(Arc::clone(&lease));
        lease
    }

    /// Leaves. True for the last entry: after it, this lease admits no more.
    pub(super) fn leave(&self, lease: &Arc<Lease>) -> bool {
        let mut room = self.room();
        let left = lease.entries().saturating_sub(1);
        lease.set_entries(left);
        if left == 0 {
            room.take_if(|present| Arc::ptr_eq(present, lease));
        }
        left == 0
    }

    fn room(&self) -> MutexGuard<'_, Option<Arc<Lease>>> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Door").finish_non_exhaustive()
    }
}
