//! Unanswered commands of a decided round, which may still make a node hold the lock.
//!
//! A release goes behind them on the same connection. What [`Unresolved`] knows of those that ended
//! without an answer says whether it has to leave a tombstone.

use super::calls::{Answer, Calls};
use fencepost_core::quorum::MOST_NODES;
use fencepost_core::quorum::unresolved::{Sent, Unresolved};

/// The most calls that are kept for one claim. A lease that is renewed for hours beside a node that
/// never answers leaves one more with every renewal.
const MOST_OPEN: usize = 3 * MOST_NODES;

/// What is still in flight for one claim.
#[derive(Default)]
pub(crate) struct InFlight {
    calls: Calls,
    unresolved: Unresolved,
}

impl InFlight {
    /// Takes over what a round has left open.
    pub(super) fn take_over(&mut self, round: Calls) {
        self.settle();
        self.calls.append(round, |node| node);
        // The outcome of a dropped call is unknown for good.
        while self.calls.len() > MOST_OPEN
            && let Some(node) = self.calls.give_up_oldest()
        {
            self.unresolved.forget(node);
        }
    }

    /// Takes over what another has collected.
    pub(crate) fn join(&mut self, other: Self) {
        self.take_over(other.calls);
        self.unresolved.join(other.unresolved);
    }

    /// Whether there are calls that were not answered when it was last looked.
    pub(crate) fn is_open(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Notes what has been answered meanwhile and drops it, without waiting.
    pub(crate) fn settle(&mut self) {
        while let Some((node, answer)) = self.calls.try_next() {
            self.answered(node, &answer);
        }
        if self.calls.is_empty() {
            // Also the memory that it had for them.
            self.calls = Calls::default();
        }
    }

    /// A command to that node has ended.
    pub(super) fn answered(&mut self, node: usize, answer: &Answer) {
        // Before the release there is nothing to follow up.
        let _ = self
            .unresolved
            .ended(node, Sent::Claim, answer.as_ref().err());
    }

    /// The calls that are still open.
    pub(crate) fn into_calls(self) -> Calls {
        self.into_parts().0
    }

    /// The calls that are still open, and what is known of those that are not.
    pub(super) fn into_parts(mut self) -> (Calls, Unresolved) {
        self.settle();
        (self.calls, self.unresolved)
    }
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InFlight")
            .field("unresolved", &self.unresolved)
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
        let (open, unresolved) = late.into_parts();
        assert_eq!(open.len(), MOST_OPEN);
        assert!(unresolved.needs_tombstone(2) && !unresolved.needs_tombstone(1));
    }
}
