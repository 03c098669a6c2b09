//! [`Attempts`]: the acquires under way here whose client chose the lease id.
//!
//! They share a ticket, so only one of a lease may wait at a time. The last attempt counts: it ends the
//! earlier ones, whose answers its client has voided.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use fencepost_core::{LeaseAttempt, LeaseId};
use tokio::sync::{Notify, OwnedMutexGuard};

use crate::problem::Problem;

/// The acquires under way, by lease id. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Attempts(Arc<Mutex<HashMap<LeaseId, Current>>>);

struct Current {
    attempt: u32,
    superseded: Arc<Notify>,
    /// Locked for as long as the attempt goes on.
    runs: Arc<tokio::sync::Mutex<()>>,
}

/// An attempt under way.
pub(crate) struct Running {
    attempts: Attempts,
    lease: LeaseId,
    superseded: Arc<Notify>,
    /// `None` while the earlier ones have not ended.
    runs: Option<OwnedMutexGuard<()>>,
}

impl Attempts {
    /// Begins an attempt when the earlier ones of its lease have ended.
    pub(crate) async fn begin(&self, of: LeaseAttempt) -> Result<Running, Problem> {
        let superseded = Arc::new(Notify::new());
        let runs = {
            let mut all = self.all();
            let current = all.entry(of.lease).or_insert_with(|| Current {
                attempt: 0,
                superseded: Arc::default(),
                runs: Arc::default(),
            });
            if current.attempt >= of.attempt {
                let why = "this attempt of the lease, or a later one, is under way; send a larger \
                           attempt to end it";
                return Err(Problem::new(StatusCode::CONFLICT, "in_progress", why));
            }
            current.superseded.notify_one();
            current.attempt = of.attempt;
            current.superseded = Arc::clone(&superseded);
            Arc::clone(&current.runs)
        };
        // Before the wait: whoever asked may go away in the middle of it.
        let mut running = Running {
            attempts: self.clone(),
            lease: of.lease,
            superseded,
            runs: None,
        };
        running.runs = Some(runs.lock_owned().await);
        Ok(running)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<LeaseId, Current>> {
        // A panic while it was locked cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Resolves when a later attempt of the same lease has begun.
    pub(crate) async fn superseded(&self) -> Problem {
        self.superseded.notified().await;
        let why = "a later attempt of the lease has begun, and voids this one";
        Problem::new(StatusCode::CONFLICT, "superseded", why)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut all = self.attempts.all();
        drop(self.runs.take());
        // The last one that runs or waits its turn removes the entry: until then a smaller attempt is
        // too late, and a larger one waits.
        let is_last = |current: &Current| Arc::strong_count(&current.runs) == 1;
        if all.get(&self.lease).is_some_and(is_last) {
            all.remove(&self.lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn attempt(attempt: u32) -> LeaseAttempt {
        LeaseAttempt {
            lease: LeaseId::new(7),
            attempt,
            max_hold: None,
        }
    }

    #[tokio::test]
    async fn a_later_attempt_ends_the_earlier_one_and_the_same_one_is_refused() {
        let attempts = Attempts::default();
        let first = attempts.begin(attempt(1)).await.ok().unwrap();
        let again = attempts.begin(attempt(1)).await.err().unwrap();
        assert_eq!(again.code, "in_progress");
        let second = tokio::spawn({
            let attempts = attempts.clone();
            async move { attempts.begin(attempt(2)).await.ok().unwrap() }
        });
        assert_eq!(first.superseded().await.code, "superseded");
        assert!(!second.is_finished(), "two of them would share a ticket");
        drop(first);
        let second = second.await.unwrap();
        assert!(attempts.begin(attempt(1)).await.is_err(), "too late");
        drop(second);
        assert!(attempts.all().is_empty());
    }

    /// Its entry stayed for ever, and with it "in progress" for the same attempt sent again.
    #[tokio::test]
    async fn an_attempt_whose_client_goes_away_while_it_waits_its_turn_leaves_nothing() {
        let attempts = Attempts::default();
        let first = attempts.begin(attempt(1)).await.ok().unwrap();
        let mut second = Box::pin(attempts.begin(attempt(2)));
        assert!((&mut second).now_or_never().is_none());
        drop(second);
        let late = attempts.begin(attempt(2)).await.err().unwrap();
        assert_eq!(
            late.code, "in_progress",
            "while the first one has not ended"
        );
        drop(first);
        assert!(attempts.all().is_empty());
        assert!(attempts.begin(attempt(2)).await.is_ok());
    }
}
