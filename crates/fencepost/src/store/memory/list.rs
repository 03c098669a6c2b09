//! The names in a table in memory.

use std::sync::PoisonError;

use super::MemoryNode;
use crate::store::{MOST_LISTED, Queued};
use fencepost_core::name::LockName;
use fencepost_core::pattern::{NamePattern, Names};

impl MemoryNode {
    pub(super) fn known_names(&self, wanted: &NamePattern) -> Names {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now().since_start();
        let mut names = Names::default();
        for (name, lock) in &table.locks {
            let is_lock = !name.is_queue_for_slots();
            let known = is_lock && wanted.matches(name.as_str()) && !lock.is_forgettable(now);
            if known && !names.push(name.clone()) {
                break;
            }
        }
        names
    }

    pub(super) fn known_waiters(&self, name: &LockName) -> Vec<Queued> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now().since_start();
        let Some(lock) = table.locks.get(&name.queue()) else {
            return Vec::new();
        };
        let waiting = lock.waiting_at(now).take(MOST_LISTED);
        waiting.map(|(id, number)| (id.clone(), number)).collect()
    }
}
