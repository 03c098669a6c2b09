//! What the answers of the nodes mean for those who wait: pure.
//!
//! It must never let anybody go for whom fewer than a majority of the nodes would be free.

use std::time::Duration;

use crate::error::NodeError;
use crate::quorum::Quorum;
use crate::state::{Holder, Line};
use crate::ticket::{Place, TicketNumber};

/// A lock that is held is not free at once, however little is left.
const NEARLY_FREE: Duration = Duration::from_millis(1);

/// One look at the line on all nodes.
#[derive(Clone, Debug)]
pub(super) struct Outlook {
    quorum: Quorum,
    lines: Vec<Result<Line, NodeError>>,
}

impl Outlook {
    pub(super) fn new(quorum: Quorum, lines: Vec<Result<Line, NodeError>>) -> Self {
        Self { quorum, lines }
    }

    /// Whether so many nodes were heard that one of those who wait could be served at all.
    pub(super) fn is_enough(&self) -> bool {
        self.heard().count() >= self.quorum.needed()
    }

    pub(super) fn lines(&self) -> &[Result<Line, NodeError>] {
        &self.lines
    }

    fn heard(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().flatten()
    }

    /// Where the n-th of the tickets that were shown stands, on the nodes that said so.
    fn places(&self, ticket: usize) -> impl Iterator<Item = Place> {
        let place = move |line: &Line| line.places.get(ticket).copied();
        self.heard().filter_map(place)
    }

    /// The ticket's number: the largest that any node has given it.
    pub(super) fn number(&self, ticket: usize) -> Option<TicketNumber> {
        self.places(ticket).map(|place| place.number).max()
    }

    /// Whether a majority has the ticket under its number. Whoever comes from now on gets a larger
    /// one from one of them.
    pub(super) fn is_settled(&self, ticket: usize) -> bool {
        let number = self.number(ticket);
        let same = self
            .places(ticket)
            .filter(|place| Some(place.number) == number);
        same.count() >= self.quorum.needed()
    }

    /// The ticket's place in line, 1 for the next: what most nodes say.
    pub(super) fn place(&self, ticket: usize) -> Option<usize> {
        let mut ahead: Vec<_> = self.places(ticket).map(|place| place.ahead).collect();
        ahead.sort_unstable();
        Some(ahead.get(ahead.len() / 2)? + 1)
    }

    /// When a majority will grant the lock to this ticket, if nothing happens before: at once, after
    /// that time, or never.
    pub(super) fn opens_in(&self, ticket: usize, fair: bool) -> Option<Duration> {
        let opens = |line: &Line| match (&line.holder, &line.head, line.places.get(ticket)) {
            (Some(holder), ..) => holder.remaining.map(|left| left.max(NEARLY_FREE)),
            (None, Some((head, left)), Some(place))
                if place.ahead > 0 && (fair || head.is_fair()) =>
            {
                Some((*left).max(NEARLY_FREE))
            }
            _ => Some(Duration::ZERO),
        };
        let mut opens: Vec<_> = self.heard().filter_map(opens).collect();
        opens.sort_unstable();
        opens.get(self.quorum.needed() - 1).copied()
    }

    /// Whether no majority holds the lock for anybody.
    pub(super) fn is_free(&self) -> bool {
        let free = self.heard().filter(|line| line.holder.is_none());
        free.count() >= self.quorum.needed()
    }

    /// Whether some nodes are free, but no majority: a lock on its way from one to another, or one
    /// that its holder has on a bare majority.
    pub(super) fn is_split(&self) -> bool {
        !self.is_free() && self.heard().any(|line| line.holder.is_none())
    }

    /// Who holds the lock on most nodes.
    pub(super) fn holder(&self) -> Option<&Holder> {
        let holders: Vec<_> = self
            .heard()
            .filter_map(|line| line.holder.as_ref())
            .collect();
        let votes = |one: &&&Holder| holders.iter().filter(|h| h.value == one.value).count();
        holders.iter().max_by_key(votes).copied()
    }
}

#[cfg(test)]
mod tests;
