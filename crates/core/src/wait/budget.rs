//! [`RetryBudget`]: whether it is worth to go on waiting, and until when. Pure.
//!
//! It must never end a wait before its time because of something that passes by itself.

use std::time::Duration;

use crate::outcome::{NodeError, NodeOutcome, NodeReport};
use crate::words::moment::Moment;
use crate::words::ttl::Ttl;

/// Why an attempt failed, as far as it matters to one who waits.
#[derive(Clone, Copy, Debug)]
pub enum Failure<'a> {
    /// Another client holds the lock.
    Held,
    /// Too few nodes could be asked.
    NoQuorum(&'a [NodeReport]),
    /// The TTL was over before a majority had answered.
    TooLate,
    /// Something that no waiting changes.
    Final,
}

/// How long a waiter goes on.
#[derive(Clone, Copy, Debug)]
pub struct RetryBudget {
    limit: Option<Duration>,
    end: Option<Moment>,
    no_quorum_since: Option<Moment>,
    ttl: Ttl,
}

impl RetryBudget {
    /// From now on for at most that long; without a limit as long as it takes.
    #[must_use]
    pub fn new(at_most: Option<Duration>, ttl: Ttl, now: Moment) -> Self {
        Self {
            limit: at_most,
            end: at_most.map(|time| now + time),
            no_quorum_since: None,
            ttl,
        }
    }

    /// For how long at the most, counted from the beginning.
    #[must_use]
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// When the wait is over, if it has a limit.
    #[must_use]
    pub fn end(&self) -> Option<Moment> {
        self.end
    }

    /// Whether no time is left.
    #[must_use]
    pub fn is_over(&self, now: Moment) -> bool {
        self.end.is_some_and(|end| now >= end)
    }

    /// Enough nodes could be asked.
    pub fn saw_quorum(&mut self) {
        self.no_quorum_since = None;
    }

    /// Whether waiting may help.
    pub fn goes_on_after(&mut self, failure: Failure<'_>, now: Moment) -> bool {
        if self.is_over(now) {
            return false;
        }
        match failure {
            Failure::Held => {
                self.saw_quorum();
                true
            }
            // The lease was released, and the lock is not wanted any more.
            Failure::NoQuorum(nodes) if nodes.iter().any(is_tombstoned) => false,
            Failure::NoQuorum(nodes) if nodes.iter().any(is_quarantined) => {
                // That ends by itself.
                self.saw_quorum();
                true
            }
            // A lock of another kind has this name, or a disk is full: only people can settle that.
            Failure::NoQuorum(nodes) if only_for_people(nodes) => false,
            // A node that restarts or a connection that breaks must not end a long wait; a store
            // that is away for a whole TTL must not leave the caller without a word.
            Failure::NoQuorum(_) => {
                let since = *self.no_quorum_since.get_or_insert(now);
                self.end.is_some() || now.since(since) < self.ttl.get()
            }
            Failure::TooLate => true,
            Failure::Final => false,
        }
    }
}

fn is_tombstoned(node: &NodeReport) -> bool {
    node.outcome == NodeOutcome::Tombstoned
}

/// Whether so many nodes have failed for good that the others are no quorum; or all that failed did so
/// because of this lock, and not of the node.
fn only_for_people(nodes: &[NodeReport]) -> bool {
    let failures = nodes.iter().filter_map(|report| match &report.outcome {
        NodeOutcome::Failed(error) => Some(error),
        _ => None,
    });
    let (for_good, may_pass): (Vec<_>, Vec<_>) = failures.partition(|error| error.is_permanent());
    let of_this_lock =
        |error: &&NodeError| matches!(error, NodeError::WrongType(_) | NodeError::Unusable(_));
    let others_are_no_quorum = nodes.len() - for_good.len() <= nodes.len() / 2;
    let is_the_lock =
        !for_good.is_empty() && may_pass.is_empty() && for_good.iter().all(of_this_lock);
    others_are_no_quorum || is_the_lock
}

fn is_quarantined(report: &NodeReport) -> bool {
    matches!(
        report.outcome,
        NodeOutcome::Failed(NodeError::Quarantined(_))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn budget(seconds: Option<u64>) -> RetryBudget {
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        RetryBudget::new(seconds.map(Duration::from_secs), ttl, at(0))
    }

    fn nodes(errors: &[NodeError]) -> Vec<NodeReport> {
        let report =
            |error: &NodeError| NodeReport::new("node", NodeOutcome::Failed(error.clone()));
        errors.iter().map(report).collect()
    }

    #[test]
    fn a_limited_wait_goes_on_until_its_end_whatever_passes() {
        let mut wait = budget(Some(60));
        let away = nodes(&[NodeError::Loading]);
        for second in [0, 30, 59] {
            assert!(wait.goes_on_after(Failure::NoQuorum(&away), at(second)));
            assert!(wait.goes_on_after(Failure::TooLate, at(second)));
        }
        assert!(!wait.goes_on_after(Failure::Held, at(60)) && wait.is_over(at(60)));
    }

    #[test]
    fn without_a_limit_a_store_that_is_away_for_a_whole_ttl_ends_the_wait() {
        let mut wait = budget(None);
        let away = nodes(&[NodeError::Loading]);
        assert!(wait.goes_on_after(Failure::NoQuorum(&away), at(0)));
        assert!(wait.goes_on_after(Failure::NoQuorum(&away), at(9)));
        wait.saw_quorum();
        assert!(wait.goes_on_after(Failure::NoQuorum(&away), at(11)));
        assert!(wait.goes_on_after(Failure::NoQuorum(&away), at(20)));
        assert!(!wait.goes_on_after(Failure::NoQuorum(&away), at(21)));
    }

    #[test]
    fn a_quarantine_ends_by_itself_and_is_waited_for() {
        let mut wait = budget(None);
        let quarantined = [NodeError::Quarantined(Duration::ZERO), NodeError::Loading];
        for second in [0, 100, 10_000] {
            let nodes = nodes(&quarantined);
            assert!(wait.goes_on_after(Failure::NoQuorum(&nodes), at(second)));
        }
    }

    #[test]
    fn what_no_waiting_changes_ends_it_at_once() {
        let mut wait = budget(Some(60));
        let wrong = nodes(&[
            NodeError::WrongType("list".to_owned()),
            NodeError::Unusable("the disk is full".to_owned()),
        ]);
        assert!(!wait.goes_on_after(Failure::NoQuorum(&wrong), at(0)));
        assert!(!wait.goes_on_after(Failure::Final, at(0)));
    }

    #[test]
    fn a_limit_beyond_what_can_be_counted_is_never_over() {
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let wait = RetryBudget::new(Some(Duration::MAX), ttl, at(1));
        assert!(!wait.is_over(at(1 << 40)));
    }
}
