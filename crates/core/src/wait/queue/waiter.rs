//! One waiter, as its client knows it.

use super::{QueueAction, WaiterId};
use crate::quorum::NodeSet;
use crate::words::ticket::{Standing, Ticket, TicketId, TicketNumber};

/// The most slots that are remembered. A waiter that is woken for more looks at all of them.
const MOST_FREED: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) id: TicketId,
    pub(super) number: Standing,
    /// Whether a majority has its number.
    pub(super) is_settled: bool,
    /// Whether any node has told its place yet.
    pub(super) has_place: bool,
    /// Whether it has seen the lock held, or others before it.
    pub(super) is_held_up: bool,
    pub(super) phase: Phase,
    /// The nodes that have said that it is its turn.
    pub(super) woken_by: NodeSet,
    /// Whether it goes although no majority has: what the others say counts for the next time.
    pub(super) is_early: bool,
    /// The slots that were said to be free, the latest last.
    freed: Vec<usize>,
    pub(super) is_watched: bool,
    /// Whether the last it was told is that too few nodes could be asked.
    pub(super) is_worried: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting,
    /// It shall make an attempt.
    Woken,
    /// It makes one.
    Attempting,
}

impl Waiter {
    pub(super) fn new(id: TicketId, proposed: TicketNumber, is_watched: bool) -> Self {
        Self {
            id,
            number: Standing::Proposed(proposed),
            is_settled: false,
            has_place: false,
            is_held_up: false,
            phase: Phase::Waiting,
            woken_by: NodeSet::NONE,
            is_early: false,
            freed: Vec::new(),
            is_watched,
            is_worried: false,
        }
    }

    pub(super) fn ticket(&self) -> Ticket {
        Ticket {
            id: self.id.clone(),
            number: self.number,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.phase == Phase::Waiting
    }

    pub(super) fn wake(&mut self, id: WaiterId, actions: &mut Vec<QueueAction>) {
        self.phase = Phase::Woken;
        actions.push(QueueAction::Wake(id));
    }
    /// This slot was said to be free.
    pub(super) fn freed(&mut self, slot: Option<usize>) {
        if let Some(slot) = slot
            && !self.freed.contains(&slot)
        {
            self.freed.push(slot);
            if self.freed.len() > MOST_FREED {
                self.freed.remove(0);
            }
        }
    }

    /// Whether a slot was said to be free that it has not tried yet.
    pub(super) fn knows_a_free_slot(&self) -> bool {
        !self.freed.is_empty()
    }

    /// The slots to try, of which nothing is remembered from now on.
    pub(super) fn take_freed(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.freed)
    }
}
