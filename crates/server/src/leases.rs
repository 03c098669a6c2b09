//! [`Leases`]: the leases that this replica granted or extended, and until when. For a gauge: no lease
//! depends on it, and another replica may have released any of them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fencepost_core::LeaseId;

/// Below so many it is not worth dropping those that have expired.
const FEW: usize = 1024;

#[derive(Default)]
pub(crate) struct Leases(Mutex<Known>);

#[derive(Default)]
struct Known {
    until: HashMap<LeaseId, Instant>,
    /// How many may be known before the expired ones are dropped.
    room: usize,
}

impl Leases {
    /// It was granted or extended, for so long.
    pub(crate) fn goes_on(&self, lease: LeaseId, time: Duration) {
        let now = Instant::now();
        let mut known = self.known();
        if known.until.len() >= known.room {
            known.drop_expired(now);
        }
        known.until.insert(lease, now + time);
    }

    /// It is over.
    pub(crate) fn ended(&self, lease: LeaseId) {
        self.known().until.remove(&lease);
    }

    pub(crate) fn count(&self) -> usize {
        let mut known = self.known();
        known.drop_expired(Instant::now());
        known.until.len()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // A panic while it was locked cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn drop_expired(&mut self, now: Instant) {
        self.until.retain(|_, until| *until > now);
        // So that all the dropping takes no longer than all the inserting.
        self.room = (self.until.len() * 2).max(FEW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_expired_is_not_counted_and_makes_room() {
        let leases = Leases::default();
        for lease in 0..10 * FEW as u128 {
            leases.goes_on(LeaseId::new(lease), Duration::ZERO);
        }
        assert!(leases.known().until.len() <= FEW);
        leases.goes_on(LeaseId::new(1), Duration::from_secs(60));
        leases.goes_on(LeaseId::new(1), Duration::from_secs(90));
        leases.goes_on(LeaseId::new(2), Duration::from_secs(60));
        assert_eq!(leases.count(), 2);
        leases.ended(LeaseId::new(1));
        assert_eq!(leases.count(), 1);
    }
}
