//! [`RetryBudget`]: whether it is worth to go on waiting, and until when.
//!
//! It must never end a wait before its time because of something that passes by itself.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::error::{Cause, Error, NodeError, NodeOutcome, NodeReport};
use fencepost_core::ttl::Ttl;

/// How long somebody goes on who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    give_up: Option<Instant>,
    limit: Option<Duration>,
    no_quorum_since: Option<Instant>,
    ttl: Ttl,
}

impl RetryBudget {
    /// From now on for at most that long; without a limit as long as it takes.
    pub(crate) fn new(at_most: Option<Duration>, ttl: Ttl) -> Self {
        Self {
            // A time-out beyond what the clock can count is none.
            give_up: at_most.and_then(|time| Instant::now().checked_add(time)),
            limit: at_most,
            no_quorum_since: None,
            ttl,
        }
    }

    /// For how long at the most, counted from the beginning.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Resolves when the wait is over.
    pub(crate) async fn ends(&self) {
        match self.give_up {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    }

    /// Whether no time is left.
    pub(crate) fn is_over(&self) -> bool {
        self.give_up.is_some_and(|end| Instant::now() >= end)
    }

    /// Enough nodes are there.
    pub(crate) fn take_heart(&mut self) {
        self.no_quorum_since = None;
    }

    /// Whether waiting may help.
    pub(crate) fn goes_on_after(&mut self, error: &Error) -> bool {
        if self.is_over() {
            return false;
        }
        match error.cause() {
            Cause::Held { .. } => {
                self.take_heart();
                true
            }
            // A node that restarts or a connection that breaks must not end a long wait; a store
            // that is away for a whole TTL must not leave the caller without a word.
            Cause::NoQuorum { nodes, .. } if nodes.iter().any(is_quarantined) => {
                // That ends by itself.
                self.take_heart();
                true
            }
            // A lock of another kind has this name, or a disk is full: only people can settle that.
            Cause::NoQuorum { nodes, .. } if only_for_people(nodes) => false,
            Cause::NoQuorum { .. } => {
                let since = *self.no_quorum_since.get_or_insert_with(Instant::now);
                self.limit.is_some() || since.elapsed() < self.ttl.get()
            }
            Cause::TooLate { .. } => true,
            _ => false,
        }
    }
}

/// Whether nodes have failed, and all of them for reasons that do not pass by themselves.
fn only_for_people(nodes: &[NodeReport]) -> bool {
    let failures = nodes.iter().filter_map(|report| match &report.outcome {
        NodeOutcome::Failed(error) => Some(error),
        _ => None,
    });
    let mut failures = failures.peekable();
    failures.peek().is_some()
        && failures.all(|error| matches!(error, NodeError::WrongType(_) | NodeError::Unusable(_)))
}

fn is_quarantined(report: &NodeReport) -> bool {
    matches!(
        report.outcome,
        NodeOutcome::Failed(NodeError::Quarantined(_))
    )
}
