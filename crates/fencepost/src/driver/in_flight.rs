//! Commands whose outcome was decided without them, and which may still make a node hold the lock.
//!
//! A release goes behind them on the same connection, so nearly always nothing is left to do. Only
//! when one of them ended without an answer may it still arrive after the release: then, and only
//! then, the node is asked to refuse it.

use super::calls::Calls;
use fencepost_core::quorum::{MOST_NODES, NodeSet};

/// The most calls that are kept for one claim. A lease that is renewed for hours beside a node that
/// never answers leaves one more with every renewal.
const MOST_OPEN: usize = 3 * MOST_NODES;

/// What is still on its way for one claim.
#[derive(Default)]
pub(crate) struct InFlight {
    calls: Calls,
    lost: NodeSet,
}

impl InFlight {
    /// Takes over what a round has left open.
    pub(super) fn take_over(&mut self, round: Calls) {
        self.settle();
        self.calls.append(round, |node| node);
        // Nobody can vouch any more for a call that is not kept.
        while self.calls.len() > MOST_OPEN
            && let Some(node) = self.calls.give_up_oldest()
        {
            self.lost.insert(node);
        }
    }

    /// Takes over what another has collected.
    pub(crate) fn join(&mut self, other: Self) {
        self.take_over(other.calls);
        for node in other.lost.iter() {
            self.lost.insert(node);
        }
    }

    /// Whether there are calls that were not answered when it was last looked.
    pub(crate) fn is_open(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Notes what has been answered meanwhile and lets it go, without waiting.
    pub(crate) fn settle(&mut self) {
        while let Some((node, answer)) = self.calls.try_next() {
            if matches!(answer, Err(error) if error.is_uncertain()) {
                self.lost.insert(node);
            }
        }
        if self.calls.is_empty() {
            // Also the room that it had for them.
            self.calls = Calls::default();
        }
    }

    /// A command to that node ended without an answer.
    pub(super) fn lose(&mut self, node: usize) {
        self.lost.insert(node);
    }

    /// The calls that are still open, and the nodes at which a command may arrive that nobody can
    /// vouch for any more.
    pub(super) fn into_parts(mut self) -> (Calls, NodeSet) {
        self.settle();
        (self.calls, self.lost)
    }
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InFlight")
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_never_answers_does_not_pile_up_calls() {
        let mut late = InFlight::default();
        for _ in 0..10_000 {
            let mut round = Calls::default();
            round.add(2, Box::pin(std::future::pending()));
            late.take_over(round);
        }
        let (open, lost) = late.into_parts();
        assert_eq!(open.len(), MOST_OPEN);
        assert_eq!(
            lost.iter().collect::<Vec<_>>(),
            [2],
            "its release has to refuse them"
        );
    }
}
