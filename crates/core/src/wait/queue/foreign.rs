//! Behind a holder that knows of no queue and wakes no waiter: the nodes say when it releases.

use std::time::Duration;

use super::{LockQueue, OTHER_NODES, QueueAction};
use crate::wait::backoff::Backoff;
use crate::words::moment::Moment;

/// How soon it looks again after an attempt that failed, all of it random: the lock is free for a moment
/// only, and a client that tries at a moment of its own gets it now and then.
const SOON_FOREIGN: Duration = Duration::from_millis(1);
pub(super) const LATEST_FOREIGN: Duration = Duration::from_millis(4);

/// The pauses after attempts that failed.
pub(super) fn pauses() -> Backoff {
    Backoff::new(SOON_FOREIGN, LATEST_FOREIGN)
}

impl LockQueue {
    /// How long to leave it alone after an attempt that failed, or at a lock that is neither held nor free.
    pub(super) fn pause(&mut self, share: f64) -> Duration {
        match self.is_foreign {
            true => self.near_misses.next_fully_spread(share),
            false => self.soon.next(share),
        }
    }

    /// The head makes its attempt at once: by the time that it had looked, another would have come.
    pub(super) fn changed(&mut self, node: usize, now: Moment, actions: &mut Vec<QueueAction>) {
        let Some(id) = self.tracked else {
            return;
        };
        let waiter = self.waiters.get_mut(&id);
        let Some(waiter) = waiter.filter(|waiter| waiter.is_waiting()) else {
            return;
        };
        waiter.woken_by.insert(node);
        if waiter.woken_by.len() >= self.quorum.needed() {
            waiter.wake(id, actions);
            self.tracked = None;
        } else {
            self.look_by(now + OTHER_NODES);
        }
    }
}
