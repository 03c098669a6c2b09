//! Those of one client who wait for one lock: where each stands, and who is next.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::queue::{News, POLL, SOON};
use crate::driver::coordinator::Coordinator;
use fencepost_core::quorum::NodeSet;
use fencepost_core::ticket::{Standing, Ticket, TicketId, TicketMode, TicketNumber};
use fencepost_core::wait::view::QueueView;

/// All of them, and what they know together.
pub(super) struct Waiters {
    pub(super) seats: BTreeMap<u64, Waiter>,
    pub(super) next_look: Instant,
    /// When all of them have to show themselves again. A look before shows those only of whom there
    /// is something to learn: with many waiters that is what makes it cheap to join them.
    pub(super) all_due: Instant,
    /// Since when the lock is known to have been free with others before us in line.
    pub(super) passed_over_since: Option<Instant>,
    /// When somebody of another client was last seen at the head of the line.
    pub(super) others_seen: Option<Instant>,
    /// How often in a row it was worth looking again soon.
    pub(super) soon: u32,
    /// Rounds in a row that only agreed on numbers.
    pub(super) rounds: u32,
    pub(super) last_missed: Option<Instant>,
    /// The nodes that are known to tell of those, too, who know no line.
    pub(super) overheard: NodeSet,
    /// Whether the foremost was near enough to be concerned when it last looked.
    pub(super) is_near: bool,
    /// Too few nodes could be heard: we wait outside.
    pub(super) withdrawn: bool,
}

/// One of them.
pub(super) struct Waiter {
    pub(super) id: TicketId,
    pub(super) number: Standing,
    /// Whether a majority has its number.
    pub(super) settled: bool,
    /// Whether any node has told its place yet.
    pub(super) seated: bool,
    /// It makes an attempt just now.
    pub(super) up: bool,
    /// It shall make one.
    pub(super) go: bool,
    /// The nodes that have said that it is its turn.
    pub(super) woken: NodeSet,
    pub(super) news: Option<News>,
    /// Whether somebody wants to know how it goes on.
    pub(super) is_watched: bool,
    /// Whether the last it heard was bad news.
    pub(super) is_worried: bool,
    pub(super) notify: Arc<Notify>,
}

impl Waiters {
    pub(super) fn look_by(&mut self, time: Instant) {
        self.next_look = self.next_look.min(time);
    }

    /// The one with the smallest ticket of those that were shown and still sit.
    pub(super) fn foremost(&mut self, shown: &[u64]) -> Option<(usize, &mut Waiter)> {
        let sitting = self.seats.iter_mut().filter(|(_, waiter)| waiter.sits());
        // They were shown in the order of their sequence.
        let shown = sitting.filter_map(|(sequence, waiter)| {
            let n = shown.binary_search(sequence).ok()?;
            Some((n, waiter))
        });
        shown.min_by(|(_, a), (_, b)| a.rank().cmp(&b.rank()))
    }

    /// Lets all readers go together for whom nobody is in the way.
    pub(super) fn call_readers(&mut self, shown: &[u64], outlook: &QueueView) {
        for (n, sequence) in shown.iter().enumerate() {
            let may_go = outlook.place(n) == Some(1)
                && outlook.opens_in(n, TicketMode::Reader) == Some(Duration::ZERO);
            if let Some(waiter) = self.seats.get_mut(sequence)
                && may_go
                && waiter.sits()
                && waiter.id.is_reader()
            {
                waiter.call();
            }
        }
    }

    /// The next of a row of ever longer pauses.
    pub(super) fn soon(&mut self, coordinator: &Coordinator) -> Duration {
        let pause = SOON
            .saturating_mul(2_u32.saturating_pow(self.soon))
            .min(POLL);
        self.soon += 1;
        coordinator.spread(pause)
    }
}

impl Waiter {
    pub(super) fn ticket(&self) -> Ticket {
        Ticket {
            id: self.id.clone(),
            number: self.number,
        }
    }

    pub(super) fn rank(&self) -> (TicketNumber, &TicketId) {
        (self.number.number(), &self.id)
    }

    pub(super) fn sits(&self) -> bool {
        !self.up && !self.go
    }

    pub(super) fn call(&mut self) {
        self.go = true;
        self.notify.notify_one();
    }

    pub(super) fn stand_up(&mut self) {
        self.go = false;
        self.up = true;
        self.woken = NodeSet::NONE;
    }

    pub(super) fn tell(&mut self, news: News) {
        self.news = Some(news);
        self.notify.notify_one();
    }
}
