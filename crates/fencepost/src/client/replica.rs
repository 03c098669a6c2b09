//! [`Replica`]: what only a replica of the lock service asks of its client. See [`leased`].

use std::time::Duration;

use super::Client;
use crate::acquire;
use crate::detached::{self, DetachedLock};
use crate::error::Error;
use crate::inspect::list::{self, NamePattern};
use crate::inspect::status::Status;
use crate::lease::Lease;
use crate::leased::{self, KeptLease, LeaseRelease, NodeVotes, OnBehalf, Places};
use crate::options::LockOptions;
use fencepost_core::lock::Snapshot;
use fencepost_core::name::LockName;
use fencepost_core::{AttemptValue, LeaseId};

type Answer<T> = Result<T, Error>;

/// For the lock service, whose replicas act for clients of other processes. Nothing here is stable.
///
/// A trait, so that none of it stands among the methods of a [`Client`] whose user has not asked for it.
pub trait Replica {
    /// Steals the lock for somebody else. The value that was thrown out tells whose it was.
    fn steal_for(
        &self,
        name: &str,
        ttl: Duration,
        on_behalf: OnBehalf,
    ) -> impl Future<Output = Answer<(Lease, Option<AttemptValue>)>> + Send;

    /// Takes the lock over from these values, each by compare-and-set.
    fn take_over(
        &self,
        name: &str,
        options: LockOptions,
        on_behalf: OnBehalf,
        from: Vec<AttemptValue>,
    ) -> impl Future<Output = Answer<Lease>> + Send;

    /// Extends a lock that was just seen, without another look.
    fn extend_seen(
        &self,
        lock: &DetachedLock,
        ttl: Duration,
        seen: &Status,
    ) -> impl Future<Output = Answer<Duration>> + Send;

    /// Releases what a lease holds, and makes the nodes refuse its later attempts.
    fn release_lease(
        &self,
        name: &str,
        lease: LeaseId,
    ) -> impl Future<Output = Answer<LeaseRelease>> + Send;

    /// Releases what was kept of a lease, by its exact value.
    fn release_kept(&self, kept: KeptLease) -> impl Future<Output = Answer<()>> + Send;

    /// The status as soon as what the nodes have said so far is enough, of which so many are a majority. The others
    /// are not waited for.
    fn status_until(
        &self,
        name: &str,
        is_enough: impl Fn(&[&Snapshot], usize) -> bool + Send + Sync,
    ) -> impl Future<Output = Answer<Status>> + Send;

    /// The names of the locks known to the nodes, in order, and whether there are more.
    fn names(
        &self,
        wanted: &NamePattern,
    ) -> impl Future<Output = Answer<(Vec<LockName>, bool)>> + Send;

    /// The status of each of them, in the same order.
    fn statuses(&self, names: &[LockName]) -> impl Future<Output = Vec<Status>> + Send;

    /// Who waits, by lease.
    fn places(&self, name: &str) -> impl Future<Output = Answer<Places>> + Send;

    /// How each node has voted so far.
    fn votes(&self) -> Vec<NodeVotes>;
}

impl Replica for Client {
    async fn steal_for(
        &self,
        name: &str,
        ttl: Duration,
        on_behalf: OnBehalf,
    ) -> Answer<(Lease, Option<AttemptValue>)> {
        acquire::steal(&self.shared, LockName::new(name)?, ttl, Some(on_behalf)).await
    }

    async fn take_over(
        &self,
        name: &str,
        options: LockOptions,
        on_behalf: OnBehalf,
        from: Vec<AttemptValue>,
    ) -> Answer<Lease> {
        let name = LockName::new(name)?;
        acquire::take_over(&self.shared, name, options, on_behalf, from).await
    }

    async fn extend_seen(
        &self,
        lock: &DetachedLock,
        ttl: Duration,
        seen: &Status,
    ) -> Answer<Duration> {
        detached::extend_seen(&self.shared, lock, ttl, seen).await
    }

    async fn release_lease(&self, name: &str, lease: LeaseId) -> Answer<LeaseRelease> {
        leased::release(&self.shared, LockName::new(name)?, lease).await
    }

    async fn release_kept(&self, kept: KeptLease) -> Answer<()> {
        kept.release(&self.shared).await
    }

    async fn status_until(
        &self,
        name: &str,
        is_enough: impl Fn(&[&Snapshot], usize) -> bool + Send + Sync,
    ) -> Answer<Status> {
        let coordinator = &self.shared.coordinator;
        let is_enough = |seen: &[&Snapshot]| is_enough(seen, coordinator.quorum.needed());
        Ok(Status::ask_until(coordinator, LockName::new(name)?, is_enough).await)
    }

    async fn names(&self, wanted: &NamePattern) -> Answer<(Vec<LockName>, bool)> {
        let known = list::known(&self.shared.coordinator, wanted).await?;
        Ok((known.names, known.truncated))
    }

    async fn statuses(&self, names: &[LockName]) -> Vec<Status> {
        Status::ask_for_all(&self.shared.coordinator, names).await
    }

    async fn places(&self, name: &str) -> Answer<Places> {
        Places::ask(&self.shared, LockName::new(name)?).await
    }

    fn votes(&self) -> Vec<NodeVotes> {
        self.shared.coordinator.votes()
    }
}
