//! What the answers of the nodes mean for those who wait: pure.
//!
//! It must never let anybody go for whom fewer than a majority of the nodes would be free.

use std::time::Duration;

use crate::lock::{Holder, NodeQueue};
use crate::outcome::NodeError;
use crate::quorum::Quorum;
use crate::quorum::tally::{Possession, median, plurality};
use crate::words::ticket::{ClientId, Place, TicketMode, TicketNumber};

/// A lock that is held is not free at once, however little is left.
const NEARLY_FREE: Duration = Duration::from_millis(1);

/// One look at the queue on all nodes.
#[derive(Clone, Debug)]
pub struct QueueView {
    quorum: Quorum,
    answers: Vec<Result<NodeQueue, NodeError>>,
}

impl QueueView {
    /// What the nodes answered, in the order in which they were configured.
    #[must_use]
    pub fn new(quorum: Quorum, answers: Vec<Result<NodeQueue, NodeError>>) -> Self {
        Self { quorum, answers }
    }

    /// Whether so many nodes were heard that one of those who wait could be served at all.
    pub fn is_enough(&self) -> bool {
        self.heard().count() >= self.quorum.needed()
    }

    /// What each node answered.
    pub fn answers(&self) -> &[Result<NodeQueue, NodeError>] {
        &self.answers
    }

    fn heard(&self) -> impl Iterator<Item = &NodeQueue> + Clone {
        self.answers.iter().flatten()
    }

    /// Where the n-th of the tickets that were shown stands, on the nodes that said so.
    fn places(&self, ticket: usize) -> impl Iterator<Item = Place> {
        let place = move |queue: &NodeQueue| queue.places.get(ticket).copied();
        self.heard().filter_map(place)
    }

    /// The ticket's number: the largest that any node has given it.
    pub fn number(&self, ticket: usize) -> Option<TicketNumber> {
        self.places(ticket).map(|place| place.number).max()
    }

    /// Whether a majority has the ticket under its number. A waiter that comes from now on gets a
    /// larger one from one of them.
    pub fn is_settled(&self, ticket: usize) -> bool {
        let number = self.number(ticket);
        let same = self
            .places(ticket)
            .filter(|place| Some(place.number) == number);
        same.count() >= self.quorum.needed()
    }

    /// The ticket's place in the queue, 1 for the next: what most nodes say.
    pub fn place(&self, ticket: usize) -> Option<usize> {
        Some(median(self.places(ticket).map(|place| place.ahead))? + 1)
    }

    /// When a majority will grant the lock to this ticket, if nothing happens before: at once, after
    /// that time, or never.
    pub fn opens_in(&self, ticket: usize, mode: TicketMode) -> Option<Duration> {
        let opens = |queue: &NodeQueue| {
            let holder = queue.holder.as_ref();
            let place = queue.places.get(ticket);
            let is_behind = place.is_some_and(|place| place.ahead > 0);
            match (holder, &queue.head) {
                // A writer waits before us, until the last of those is gone who read now.
                (Some(holder), _) if is_behind || is_in_the_way(holder, mode) => {
                    holder.remaining.map(|left| left.max(NEARLY_FREE))
                }
                (None, Some((head, left))) if is_behind && (mode.is_fair() || head.is_fair()) => {
                    Some((*left).max(NEARLY_FREE))
                }
                _ => Some(Duration::ZERO),
            }
        };
        let mut opens: Vec<_> = self.heard().filter_map(opens).collect();
        opens.sort_unstable();
        opens.get(self.quorum.needed() - 1).copied()
    }

    /// Whether no majority holds the lock for anybody who is in the way of one who waits like that.
    pub fn is_free(&self, mode: TicketMode) -> bool {
        let free = self.heard().filter(|queue| is_free(queue, mode));
        free.count() >= self.quorum.needed()
    }

    /// Whether some nodes are free, but no majority: a lock on its way from one to another, or one
    /// that its holder has on a bare majority.
    pub fn is_split(&self, mode: TicketMode) -> bool {
        !self.is_free(mode) && self.heard().any(|queue| is_free(queue, mode))
    }

    /// Whether a waiter of another client is first in the queue, as far as any node knows.
    pub fn is_headed_by_others(&self, client: &ClientId) -> bool {
        let head = |queue: &NodeQueue| queue.head.as_ref().is_some_and(|(id, _)| !id.is_of(client));
        self.heard().any(head)
    }

    /// Who has the lock, for people.
    #[must_use]
    pub fn possession(&self) -> Possession {
        let answers = self.answers.iter().map(|answer| {
            let queue = answer.as_ref().ok()?;
            Some(queue.holder.as_ref())
        });
        Possession::of(self.quorum, answers)
    }

    /// Who holds the lock on most nodes: a hint for when to look again, and nothing to tell anybody.
    pub fn holder(&self) -> Option<&Holder> {
        plurality(self.heard().filter_map(|queue| queue.holder.as_ref()))
    }
}

/// Readers are not in the way of another reader.
fn is_in_the_way(holder: &Holder, mode: TicketMode) -> bool {
    !(mode == TicketMode::Reader && holder.value.is_shared())
}

fn is_free(queue: &NodeQueue, mode: TicketMode) -> bool {
    let holder = queue.holder.as_ref();
    !holder.is_some_and(|holder| is_in_the_way(holder, mode))
}

#[cfg(test)]
mod tests;
