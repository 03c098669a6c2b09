//! The door to one lock for one session: who is inside, and who opens it.
//!
//! A lease that is over must never let anybody in, and a lease must never stay once the last who shares
//! it has left.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::lease::Lease;
use fencepost_core::name::LockName;

/// The doors of all sessions of one client, for as long as somebody is at them.
#[derive(Default)]
pub(crate) struct Doors(Mutex<BTreeMap<Address, Weak<Door>>>);

/// The session's label, and the lock.
type Address = (Arc<str>, LockName);

impl Doors {
    /// The one that all of a session share.
    pub(super) fn of(self: &Arc<Self>, label: &Arc<str>, name: &LockName) -> Arc<Door> {
        let mut doors = self.doors();
        let address = (Arc::clone(label), name.clone());
        if let Some(door) = doors.get(&address).and_then(Weak::upgrade) {
            return door;
        }
        let door = Arc::new(Door {
            doors: Arc::clone(self),
            address: address.clone(),
            key: tokio::sync::Mutex::new(()),
            room: Mutex::default(),
        });
        doors.insert(address, Arc::downgrade(&door));
        door
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.doors().len()
    }

    fn doors(&self) -> MutexGuard<'_, BTreeMap<Address, Weak<Door>>> {
        // A panic while it was locked cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The door to one lock for one session.
pub(super) struct Door {
    doors: Arc<Doors>,
    address: Address,
    /// Only who has it takes the lock from the nodes, and it is taken once for all who wait.
    key: tokio::sync::Mutex<()>,
    /// The lease by which they are inside. How many share it is changed only while this is locked.
    room: Mutex<Option<Arc<Lease>>>,
}

impl Door {
    /// Waits until nobody else of the session opens the door.
    pub(super) async fn key(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.key.lock().await
    }

    /// Enters if somebody of the session is inside, and its lease is not over.
    pub(super) fn enter_again(&self) -> Option<Arc<Lease>> {
        let room = self.room();
        let lease = room.as_ref().filter(|lease| lease.is_valid())?;
        lease.set_entries(lease.entries().checked_add(1)?);
        Some(Arc::clone(lease))
    }

    /// Enters by a lease that was just taken. Those who are inside by one that is over stay with that.
    pub(super) fn opened(&self, lease: Lease) -> Arc<Lease> {
        let lease = Arc::new(lease);
        *self.room() = Some(Arc::clone(&lease));
        lease
    }

    /// Leaves. True for the last, after whom nobody enters by this lease any more.
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

impl Drop for Door {
    fn drop(&mut self) {
        let mut doors = self.doors.doors();
        // Somebody may have made another one meanwhile.
        if doors
            .get(&self.address)
            .is_some_and(|door| door.strong_count() == 0)
        {
            doors.remove(&self.address);
        }
    }
}
