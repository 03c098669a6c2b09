//! Creates a cluster of several Redis servers by writing a marker on each of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use super::builder::{Builder, RestartPolicy, Source, invalid};
use crate::error::{Cause, Error, NodeError, NodeOutcome, NodeReport};
use crate::store::Node;
use crate::store::open::{is_cluster, is_redis, split_urls};
use crate::store::redis::{Closed, Membership, Roster, close, preview};
use fencepost_core::quorum::Quorum;
use fencepost_core::quorum::membership::Terms;
use fencepost_core::ttl::Ttl;

/// The time limit for all nodes together.
const INIT_LIMIT: Duration = Duration::from_secs(10);
/// How often the replaced cluster is closed before giving up on nodes that keep rejoining it.
const MOST_CLOSES: usize = 4;
/// How long to wait while a failed `init` is rolled back.
const UNDO_LIMIT: Duration = Duration::from_secs(3);

/// An operator's promises about the servers of a new cluster: see [`Builder::init`].
#[derive(Clone, Default)]
#[must_use]
pub struct InitOptions {
    fresh: bool,
    durable: bool,
    replace: Vec<String>,
}

impl std::fmt::Debug for InitOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // URLs may contain passwords.
        f.debug_struct("InitOptions")
            .field("fresh", &self.fresh)
            .field("durable", &self.durable)
            .field("replace", &self.replace.len())
            .finish()
    }
}

impl InitOptions {
    /// No promises: the servers vote after `max_ttl`, when every earlier lock has expired.
    pub fn new() -> Self {
        Self::default()
    }

    /// Promises that no client holds a lock from before these servers started, so that they vote at
    /// once.
    pub fn fresh(mut self, is_fresh: bool) -> Self {
        self.fresh = is_fresh;
        self
    }

    /// Promises that every write is synced before its reply (`appendonly yes`, `appendfsync
    /// always`, `no-appendfsync-on-rewrite no`), so that a restarted server votes at once. It is
    /// checked at each connection, and revoked when it does not hold.
    pub fn durable(mut self, is_durable: bool) -> Self {
        self.durable = is_durable;
        self
    }

    /// Replaces the cluster of these servers, separated by commas: to add servers, or to replace a
    /// dead one. A majority of them has to be up. They stop voting, `max_ttl` passes, and the new
    /// cluster votes.
    pub fn replace(mut self, urls: impl AsRef<str>) -> Self {
        self.replace = split_urls(urls.as_ref());
        self
    }
}

impl Builder {
    /// Creates a cluster of these servers: writes a marker on each of them that names all of them
    /// and `max_ttl`, so that no client with another list or another `max_ttl` can use them. All of
    /// them must be reachable; if one is missing or belongs to another cluster, everything is
    /// rolled back.
    ///
    /// Calling it is optional: the first client does the same, and then waits `max_ttl` once (for a
    /// Sentinel group, two failover times longer). A single server, and the policy
    /// [`Trust`](RestartPolicy::Trust), need no marker. On an existing cluster it only changes the
    /// promise of [durability](InitOptions::durable).
    ///
    /// # Errors
    /// An [`Error`] with each node's reason; also for a single node that is not a Sentinel group.
    pub async fn init(mut self, options: InitOptions) -> Result<(), Error> {
        let has_group = self.has_group();
        let quorum = Quorum::of(self.nodes.len());
        let Some(quorum) = quorum.filter(|quorum| quorum.nodes() > 1 || has_group) else {
            let got = self.nodes.len();
            let why = format!(
                "expected 2 to 9 nodes, one Sentinel group or one Redis Cluster, got {got}"
            );
            return Err(invalid("nodes", why));
        };
        if options.durable && has_group {
            let why = "a failover loses unreplicated writes, even if every write is synced";
            return Err(invalid("durable", why));
        }
        Ttl::new(self.max_ttl)?;
        self.restart_policy = Some(RestartPolicy::Delay);
        let addresses = self.addresses()?;
        let old = match Quorum::of(options.replace.len()) {
            Some(old) => {
                self.check_new(quorum, &addresses, &options).await?;
                self.close_old(old, quorum, &options).await?
            }
            None => None,
        };
        let is_closed = old.is_some();
        let InitOptions { durable, fresh, .. } = options;
        let membership = Membership::new(
            addresses,
            self.max_ttl,
            self.checked_retention()?,
            durable,
            fresh,
            old,
        );
        let membership = Arc::new(membership);
        let opener = self.opener_with(quorum, Roster::of(Arc::clone(&membership)))?;
        let nodes = self.open_nodes(&opener)?;
        if let Ok(Ok(())) = timeout(INIT_LIMIT, membership.settled()).await {
            return Ok(());
        }
        let reasons = reasons(&nodes).await;
        membership.undo();
        let end = Instant::now() + UNDO_LIMIT;
        while membership.is_pending_anywhere() && Instant::now() < end {
            sleep(Duration::from_millis(10)).await;
        }
        let needed = quorum.nodes();
        Err(Error::from(match is_closed {
            true => Cause::HalfReplaced {
                needed,
                nodes: reasons,
            },
            false => Cause::Unreachable {
                needed,
                nodes: reasons,
            },
        }))
    }

    /// Fails before anything is closed if the new cluster could not be opened.
    async fn check_new(
        &self,
        new: Quorum,
        addresses: &[String],
        options: &InitOptions,
    ) -> Result<(), Error> {
        let is_server = |url: &&String| {
            url.split_once(':')
                .is_some_and(|(s, _)| is_redis(s) && !is_cluster(s))
        };
        let urls = self.nodes.iter().filter_map(|source| match source {
            Source::Url(url) => Some(url).filter(is_server).cloned(),
            _ => None,
        });
        let retention = self.checked_retention()?;
        let terms = Terms::new(addresses.to_vec(), self.max_ttl, retention);
        let redis = self.redis_options(new)?;
        let (urls, old) = (urls.collect::<Vec<_>>(), &options.replace);
        let outcomes = preview(&urls, old, &terms, options.durable, &redis).await?;
        if outcomes.iter().all(|(_, outcome)| outcome.is_ok()) {
            return Ok(());
        }
        let report = |(node, outcome): (String, Result<(), NodeError>)| {
            let outcome = match outcome {
                Ok(()) => NodeOutcome::Agreed,
                Err(error) => NodeOutcome::Failed(error),
            };
            NodeReport::new(node, outcome)
        };
        Err(Error::from(Cause::Unreachable {
            needed: new.nodes(),
            nodes: outcomes.into_iter().map(report).collect(),
        }))
    }

    /// Closes the cluster that is being replaced, and waits until all of its locks have expired.
    ///
    /// It looks again after the wait: a closed node that lost its data in between may have been
    /// taken back into the old cluster by a client that could not see the others.
    async fn close_old(
        &self,
        old: Quorum,
        new: Quorum,
        options: &InitOptions,
    ) -> Result<Option<Closed>, Error> {
        let redis = self.redis_options(new)?;
        let mut outcomes = Vec::new();
        for _ in 0..MOST_CLOSES {
            outcomes = close(&options.replace, &redis).await?;
            let closed = outcomes.iter().filter_map(|(_, o)| o.as_ref().ok());
            if closed.clone().count() < old.needed() {
                break;
            }
            let longest = closed.max_by_key(|closed| closed.wait).cloned();
            let wait = longest.as_ref().map_or(Duration::ZERO, |one| one.wait);
            if wait.is_zero() {
                return Ok(longest);
            }
            tracing::info!(?wait, "the old cluster is closed");
            sleep(wait).await;
        }
        let report = |(node, outcome): &(String, Result<Closed, NodeError>)| {
            let outcome = match outcome {
                Ok(closed) if closed.wait.is_zero() => NodeOutcome::Agreed,
                Ok(closed) => NodeOutcome::Failed(NodeError::Quarantined(closed.wait)),
                Err(error) => NodeOutcome::Failed(error.clone()),
            };
            NodeReport::new(node, outcome)
        };
        Err(Error::from(Cause::Unreachable {
            needed: old.needed(),
            nodes: outcomes.iter().map(report).collect(),
        }))
    }

    /// The nodes' addresses in canonical form.
    fn addresses(&self) -> Result<Vec<String>, Error> {
        let address = |source: &Source| match source {
            Source::Url(url) => match url.split_once(':') {
                Some((scheme, _)) if is_redis(scheme) => crate::store::redis::address(url),
                _ => Ok(url.clone()),
            },
            #[cfg(feature = "sqlite")]
            Source::File(path) => Ok(format!("file:{}", path.display())),
            Source::Made(node) => Ok(node.address().to_owned()),
            Source::Service(replicas) => Ok(replicas.join(",")),
        };
        self.nodes.iter().map(address).collect()
    }

    /// With the marker, where one is needed.
    pub(super) fn roster(&self, quorum: Quorum) -> Result<Roster, Error> {
        let is_server = |source: &Source| match source {
            Source::Url(url) => url.split_once(':').is_some_and(|(s, _)| is_redis(s)),
            _ => false,
        };
        // A marker is for servers, and every node must be able to store it.
        let all_servers = self.nodes.iter().all(is_server);
        let has_group = self.has_group();
        if has_group && !self.is_delayed(quorum) {
            let why = "a failover can lose locks, so a group that fails over cannot use this \
                       restart policy; remove it";
            return Err(invalid("restart_policy", why));
        }
        let is_alone = quorum.nodes() == 1 && !has_group;
        if is_alone || !all_servers || !self.is_delayed(quorum) {
            // Whoever says that nobody shall look at what a node forgets is not told of others either.
            if self.restart_policy == Some(RestartPolicy::Trust) {
                return Ok(Roster::default());
            }
            let (addresses, retention) = (self.addresses()?, self.checked_retention()?);
            return Ok(Roster::outside(Terms::new(
                addresses,
                self.max_ttl,
                retention,
            )));
        }
        let membership = Membership::new(
            self.addresses()?,
            self.max_ttl,
            self.checked_retention()?,
            false,
            false,
            None,
        );
        Ok(Roster::of(Arc::new(membership)))
    }
}

/// Each node's report.
async fn reasons(nodes: &[Arc<dyn Node>]) -> Vec<NodeReport> {
    let ask = async |node: &Arc<dyn Node>| {
        let outcome = match timeout(UNDO_LIMIT, node.hello()).await {
            Ok(Ok(())) => NodeOutcome::Agreed,
            Ok(Err(error)) => NodeOutcome::Failed(error),
            Err(_) => NodeOutcome::Pending,
        };
        NodeReport::new(node.address(), outcome)
    };
    join_all(nodes.iter().map(ask)).await
}
