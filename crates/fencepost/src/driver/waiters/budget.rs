//! [`RetryBudget`]: whether it is worth to go on waiting, and until when.
//!
//! It must never end a wait before its time because of something that passes by itself.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::error::{Error, NodeError, NodeOutcome, NodeReport};
use fencepost_core::ttl::Ttl;

/// How long somebody goes on who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    give_up: Option<Instant>,
    is_limited: bool,
    no_quorum_since: Option<Instant>,
    ttl: Ttl,
}

impl RetryBudget {
    /// From now on for at most that long; without a limit as long as it takes.
    pub(crate) fn new(at_most: Option<Duration>, ttl: Ttl) -> Self {
        Self {
            // A time-out beyond what the clock can count is none.
            give_up: at_most.and_then(|time| Instant::now().checked_add(time)),
            is_limited: at_most.is_some(),
            no_quorum_since: None,
            ttl,
        }
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
        match error {
            Error::Held { .. } => {
                self.take_heart();
                true
            }
            // A node that restarts or a connection that breaks must not end a long wait; a store
            // that is away for a whole TTL must not leave the caller without a word.
            Error::NoQuorum { nodes, .. } if nodes.iter().any(is_quarantined) => {
                // That ends by itself.
                self.take_heart();
                true
            }
            // Only people can mend it.
            Error::NoQuorum { nodes, needed, .. } if cannot_pass(nodes, *needed) => false,
            Error::NoQuorum { .. } => {
                let since = *self.no_quorum_since.get_or_insert_with(Instant::now);
                self.is_limited || since.elapsed() < self.ttl.get()
            }
            Error::TooLate { .. } => true,
            _ => false,
        }
    }
}

/// Whether so many nodes have failed for good that the others are no quorum; or all that failed did so
/// because of this lock, and not of the node.
fn cannot_pass(nodes: &[NodeReport], needed: usize) -> bool {
    let failures = nodes.iter().filter_map(|report| match &report.outcome {
        NodeOutcome::Failed(error) => Some(error),
        _ => None,
    });
    let (for_good, may_pass): (Vec<_>, Vec<_>) = failures.partition(|error| error.is_permanent());
    let too_many = nodes.len() - for_good.len() < needed;
    too_many || (may_pass.is_empty() && is_wrong_type(&for_good))
}

fn is_wrong_type(errors: &[&NodeError]) -> bool {
    let mut errors = errors.iter().peekable();
    errors.peek().is_some()
        && errors.all(|error| matches!(error, NodeError::WrongType(_) | NodeError::Unusable(_)))
}

fn is_quarantined(report: &NodeReport) -> bool {
    matches!(
        report.outcome,
        NodeOutcome::Failed(NodeError::Quarantined(_))
    )
}
