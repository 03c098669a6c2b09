//! All of several names, or none.
//!
//! All of them are asked for together: on free locks that takes one round trip, however many they
//! are. If one of them is taken, what was granted is released, and they are acquired one after the
//! other in the order of their names. All clients do that in the same order, so there is no
//! deadlock. A caller must never get only some of the locks.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::Instant;

use super::{Spec, one};
use crate::driver::identity::OnBehalf;
use crate::driver::shared::Shared;
use crate::driver::waiters::RetryBudget;
use crate::error::{Error, LossReason};
use crate::lease::Lease;
use crate::options::LockOptions;
use crate::options::Watcher;
use fencepost_core::name::LockName;

/// Which of several locks was lost, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostLock {
    /// The lock.
    pub name: LockName,
    /// How it was lost.
    pub why: LossReason,
}

impl From<LostLock> for Error {
    fn from(LostLock { name, why }: LostLock) -> Self {
        Self::lost(name, why)
    }
}

/// All of these names are wanted. They are sorted, and each is there once.
pub(crate) struct AllOf<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) names: &'a [LockName],
    pub(crate) options: LockOptions,
    pub(crate) watcher: Option<&'a Watcher>,
    pub(crate) on_behalf: Option<&'a OnBehalf>,
}

impl AllOf<'_> {
    /// Waits for all of them together as long as the options say.
    pub(crate) async fn acquire(self) -> Result<Vec<Lease>, Error> {
        let limit = self.options.timeout;
        let end = limit.and_then(|time| Instant::now().checked_add(time));
        let outcome = self.until(end).await;
        outcome.map_err(|error| error.after_wait(limit))
    }

    async fn until(&self, end: Option<Instant>) -> Result<Vec<Lease>, Error> {
        let is_over = || end.is_some_and(|end| Instant::now() >= end);
        let ttl = Spec::new(self.shared, self.options)?.ttl;
        let mut budget = RetryBudget::new(self.options.timeout, ttl);
        match self.together().await {
            Err(error) if budget.goes_on_after(&error) => {}
            Err(error) if is_worth_another(&error) && !is_over() => {}
            outcome => return outcome,
        }
        loop {
            match self.one_by_one(end).await {
                // One was lost while another was waited for: from the beginning.
                Err(error) if is_worth_another(&error) && !is_over() => {}
                outcome => return outcome,
            }
        }
    }

    /// All at once, if all are free.
    async fn together(&self) -> Result<Vec<Lease>, Error> {
        let spec = Spec::new(self.shared, self.options.timeout(Duration::ZERO))?
            .on_behalf(self.on_behalf.cloned());
        let ask = |name| one(self.shared, name, spec.clone());
        let outcomes = join_all(self.names.iter().map(ask)).await;
        // What was granted is released by being dropped.
        if_whole(outcomes.into_iter().collect::<Result<_, _>>()?)
    }

    /// One after the other, in the order that everybody keeps to.
    async fn one_by_one(&self, end: Option<Instant>) -> Result<Vec<Lease>, Error> {
        let mut taken = Vec::with_capacity(self.names.len());
        for name in self.names {
            let options = match end {
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    self.options.timeout(left)
                }
                None => self.options,
            };
            let mut spec = Spec::new(self.shared, options)?.on_behalf(self.on_behalf.cloned());
            spec.watcher = self.watcher.cloned();
            let lease = tokio::select! {
                biased;
                lost = first_lost(&taken) => return Err(lost.into()),
                lease = one(self.shared, name, spec) => lease?,
            };
            taken.push(lease);
        }
        if_whole(taken)
    }
}

/// Whether one that was lost may be had for longer the next time. One that was held for as long as it
/// may be while another was waited for would end so again and again.
fn is_worth_another(error: &Error) -> bool {
    error.loss().is_some_and(|why| *why != LossReason::MaxHold)
}

/// All of them, unless one was lost while the last was waited for: that is released with the others,
/// because a caller must never get only some of them.
fn if_whole(leases: Vec<Lease>) -> Result<Vec<Lease>, Error> {
    match one_lost(&leases) {
        Some(lost) => Err(lost.into()),
        None => Ok(leases),
    }
}

/// Which of them is lost, and how, if one is.
pub(crate) fn one_lost(leases: &[Lease]) -> Option<LostLock> {
    leases.iter().find_map(|lease| {
        let (name, why) = (lease.lock_name().clone(), lease.loss()?);
        Some(LostLock { name, why })
    })
}

/// Resolves when the first of them is lost.
pub(crate) async fn first_lost(leases: &[Lease]) -> LostLock {
    let loss = |lease| async move {
        let why = Lease::lost(lease).await;
        let name = lease.lock_name().clone();
        LostLock { name, why }
    };
    let mut losses: FuturesUnordered<_> = leases.iter().map(loss).collect();
    match losses.next().await {
        Some(lost) => lost,
        // There are none yet.
        None => std::future::pending().await,
    }
}
