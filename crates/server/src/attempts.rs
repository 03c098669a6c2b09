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
    _runs: OwnedMutexGuard<()>,
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
        Ok(Running {
            attempts: self.clone(),
            lease: of.lease,
            superseded,
            _runs: runs.lock_owned().await,
        })
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
        let is_current = all
            .get(&self.lease)
            .is_some_and(|current| Arc::ptr_eq(&current.superseded, &self.superseded));
        if is_current {
            all.remove(&self.lease);
        }
    }
}

#[cfg(test)]
mod tests {
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
}
