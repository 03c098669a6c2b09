//! Waiting for one of many slots: one queue for all of them, so that the cost of waiting does not grow
//! with their number.
//!
//! The queue has a name of its own, which is never held, so a look at it says who is next and nothing of
//! the slots. Its head is woken with the slot that was released, and tries that one. Everything else is found by
//! a look at all slots, which only the head takes: when it has become the head, because a slot may have
//! been released before, and once a second, because a holder may have died and a message may be lost.
//! The second acts if it was told of a slot and is still there a moment later, as with any lock.
//!
//! A waiter that gets a slot leaves the queue by a command of its own, and that wakes the next head.
//! A grant takes no ticket out: it would have to wake the next waiter, and the node that grants a slot
//! does not know which others are free.

use std::time::Duration;

use super::{
    HEAD_START, LockQueue, NEAR, OTHER_NODES, POLL, POLL_FOREIGN, QueueAction, QueueView, WaiterId,
};
use crate::wait::queue::waiter::Phase;
use crate::words::moment::Moment;
use crate::words::ticket::TICKET_LEASE;

/// How often a waiter looks that is far from the head: as long as its ticket lives, nothing can happen
/// to it of which it is not told. A ticket that is dropped nevertheless comes back with its number. Not rarer: where
/// the waiters before it are gone without a trace, a free slot waits for one ticket lease and this; with 2.4 s the
/// simulation finds a slot left free for too long (semaphore, seed 1056).
const POLL_FAR: Duration = Duration::from_millis(2200);

/// It is well in time if the nodes take half a second to answer.
const _: () = assert!(POLL_FAR.as_millis() + 500 <= TICKET_LEASE.as_millis());

/// What is known of the slots.
#[derive(Clone, Debug, Default)]
pub(super) struct SlotsSeen {
    /// When our head looked at all of them, if that was since it is the head.
    looked: Option<Moment>,
}

impl LockQueue {
    /// The slots to try before any others are looked at.
    pub fn take_freed(&mut self, waiter: WaiterId) -> Vec<usize> {
        let waiter = self.waiters.get_mut(&waiter);
        waiter.map_or_else(Vec::new, super::Waiter::take_freed)
    }

    /// Something may have happened to the slots, or another of us is the head.
    pub(super) fn slots_unseen(&mut self) {
        if let Some(slots) = &mut self.slots {
            slots.looked = None;
        }
    }

    /// How often everybody looks.
    pub(super) fn poll(&self) -> Duration {
        match self.slots.is_some() && !self.is_near {
            true => POLL_FAR,
            false => POLL,
        }
    }

    /// A lock takes the ticket of whom it was granted to out of the queue; a slot does not.
    pub(super) fn served(&mut self, waiter: WaiterId, actions: &mut Vec<QueueAction>) {
        if let Some(served) = self.remove(waiter, actions)
            && self.slots.is_some()
        {
            actions.push(QueueAction::Withdraw(vec![served.id]));
        }
    }

    /// Wakes the first of those that were shown, or decides when to look again.
    pub(super) fn act_for_slots(
        &mut self,
        shown: &[WaiterId],
        view: &QueueView,
        now: Moment,
        actions: &mut Vec<QueueAction>,
    ) {
        let Some((n, first)) = self.first_shown(shown) else {
            return;
        };
        let place = view.place(n);
        let is_first = place == Some(1);
        self.is_near = place.is_none_or(|place| place <= NEAR);
        if !is_first {
            self.slots_unseen();
        }
        let waiter = &self.waiters[&first];
        let may_go = view.opens_in(n, waiter.id.mode()) == Some(Duration::ZERO);
        let looked = self.slots.as_ref().and_then(|slots| slots.looked);
        let (due, early) = if is_first {
            let told = waiter.knows_a_free_slot();
            let poll = if self.must_poll { POLL_FOREIGN } else { POLL };
            let due = looked.filter(|_| !told).map_or(now, |looked| looked + poll);
            // A little early rather than twice.
            (Some(due), poll / 4)
        } else {
            let since = self.passed_over_since.filter(|_| may_go);
            (since.map(|since| since + HEAD_START), Duration::ZERO)
        };
        match due {
            Some(due) if due <= now + early => {
                self.passed_over_since = None;
                self.wake(first, actions);
            }
            Some(due) => self.look_by(due),
            None => self.passed_over_since = None,
        }
    }

    /// The waiter has looked at all slots, and goes on waiting.
    pub(super) fn all_taken(&mut self, id: WaiterId, now: Moment, actions: &mut Vec<QueueAction>) {
        self.soon.reset();
        let Some(waiter) = self.waiters.get_mut(&id) else {
            return;
        };
        waiter.phase = Phase::Waiting;
        if waiter.woken_by.len() >= self.quorum.needed() {
            return waiter.wake(id, actions);
        }
        let told = waiter.knows_a_free_slot();
        if let Some(slots) = &mut self.slots {
            slots.looked = Some(now);
        }
        if told {
            // By fewer nodes than it takes, while it looked.
            self.look_by(now + OTHER_NODES);
        }
    }
}
