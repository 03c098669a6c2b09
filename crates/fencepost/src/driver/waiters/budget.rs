//! [`RetryBudget`]: how long a request goes on, on tokio's time. The core decides.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{Cause, Error};
use crate::runtime::clock::Moment;
use fencepost_core::ttl::Ttl;
use fencepost_core::wait::budget::{self, Failure};

/// How long a waiter goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryBudget {
    limit: Option<Duration>,
    began: Instant,
    budget: budget::RetryBudget,
}

impl RetryBudget {
    /// From now on for at most that long; without a limit as long as it takes.
    pub(crate) fn new(at_most: Option<Duration>, ttl: Ttl) -> Self {
        let start = Moment::from_start(Duration::ZERO);
        Self {
            limit: at_most,
            began: Instant::now(),
            budget: budget::RetryBudget::new(at_most, ttl, start),
        }
    }

    /// For how long at the most, counted from the beginning.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    fn now(&self) -> Moment {
        Moment::from_start(self.began.elapsed())
    }

    /// Resolves when the wait is over.
    pub(crate) async fn ends(&self) {
        match self.budget.end() {
            Some(end) => sleep(end.since(self.now())).await,
            None => std::future::pending().await,
        }
    }

    /// How much time is left, if there is a limit.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.budget.end().map(|end| end.since(self.now()))
    }

    /// Whether no time is left.
    pub(crate) fn is_over(&self) -> bool {
        self.budget.is_over(self.now())
    }

    /// Enough nodes are there.
    pub(crate) fn saw_quorum(&mut self) {
        self.budget.saw_quorum();
    }

    /// Whether waiting may help.
    pub(crate) fn goes_on_after(&mut self, error: &Error) -> bool {
        let failure = match error.cause() {
            Cause::Held { .. } => Failure::Held,
            Cause::NoQuorum { nodes, .. } => Failure::NoQuorum(nodes),
            Cause::TooLate { .. } => Failure::TooLate,
            _ => Failure::Final,
        };
        let now = self.now();
        self.budget.goes_on_after(failure, now)
    }
}
