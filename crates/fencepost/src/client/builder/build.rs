//! Builds a client from its options: checks them, and passes each part what it needs.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

#[cfg(feature = "redis")]
use super::RestartPolicy;
use super::nodes::Source;
use super::{Builder, invalid};
use crate::client::Client;
use crate::client::majority::wait_for_majority;
use crate::driver::coordinator::Coordinator;
use crate::driver::identity;
use crate::driver::renewer::Renewer;
use crate::driver::shared::Shared;
use crate::driver::waiters::WaitRegistry;
use crate::error::{Cause, Error};
use crate::runtime::tasks::Tasks;
use crate::store::open::Opener;
#[cfg(feature = "redis")]
use crate::store::redis::{Eviction, Hidden, RedisOptions, Roster};
#[cfg(feature = "service")]
use crate::store::service::{ServiceOptions, TOKEN_VARIABLE};
use fencepost_core::lock::REGISTER_RETENTION;
use fencepost_core::owner::Owner;
use fencepost_core::quorum::membership::least_retention;
use fencepost_core::quorum::{MOST_NODES, Quorum};
use fencepost_core::ttl::Ttl;

/// The maximum timeout of a node or connection: a node that takes longer counts as down.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// The default node timeout.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// The default for a lock service, which has nodes of its own and may have to be retried at another
/// replica.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(5);

/// From how many nodes on a restarted one does not vote at once, unless the user says otherwise. One that is alone is down
/// anyway while it restarts; from two on their clients must agree on the list, for which each node has a marker.
#[cfg(feature = "redis")]
const DELAY_FROM: usize = 2;

impl Builder {
    /// How long fence registers are kept.
    pub(in crate::client) fn checked_retention(&self) -> Result<Duration, Error> {
        let least = least_retention(self.max_ttl);
        match self.retention {
            None => Ok(REGISTER_RETENTION.max(least)),
            Some(time) if time < least => {
                let why = format!("expected at least {} s", least.as_secs_f64().ceil());
                Err(invalid("retention", why))
            }
            Some(time) => Ok(time),
        }
    }

    /// The node timeout.
    fn checked_node_timeout(&self) -> Result<Duration, Error> {
        let is_service = matches!(&self.nodes[..], [Source::Service(_)]);
        let default = if is_service {
            SERVICE_TIMEOUT
        } else {
            NODE_TIMEOUT
        };
        checked_timeout("node_timeout", self.node_timeout.unwrap_or(default))
    }

    /// Checks the options and starts connecting, without waiting for it.
    ///
    /// # Errors
    /// An [`Error`] that names the invalid option and the reason.
    pub fn build(self) -> Result<Client, Error> {
        let runtime = Handle::try_current().map_err(|_| Error::from(Cause::NoRuntime))?;
        let max_ttl = Ttl::new(self.max_ttl)?;
        let default_ttl = match self.ttl {
            Some(ttl) if ttl > self.max_ttl => {
                return Err(invalid("ttl", "it is above max_ttl"));
            }
            Some(ttl) => Ttl::new(ttl)?,
            None => Ttl::new(self.max_ttl.min(Duration::from_secs(30)))?,
        };
        let node_timeout = self.checked_node_timeout()?;
        checked_timeout("connect_timeout", self.connect_timeout)?;
        self.checked_retention()?;
        if self.max_hold.is_some_and(|time| time.is_zero()) {
            return Err(invalid("max_hold", "it must not be zero"));
        }
        let owner = match &self.owner {
            Some(label) => Owner::new(label)?,
            None => identity::this_process(),
        };
        let Some(quorum) = Quorum::of(self.nodes.len()) else {
            let why = format!("expected 1 to {MOST_NODES} nodes, got {}", self.nodes.len());
            return Err(invalid("nodes", why));
        };
        if quorum.nodes() % 2 == 0 {
            tracing::warn!(
                nodes = quorum.nodes(),
                "an even number of nodes is safe, but tolerates no more failures than one less"
            );
        }
        crate::events::describe();
        self.check_reach()?;
        let opener = self.opener(quorum)?;
        let (clock, drift) = (self.clock.clone(), self.drift);
        let (max_hold, max_renewals) = (self.max_hold, self.max_renewals);
        let tasks = Tasks::new(runtime, self.around_tasks.clone());
        let randomness = self.randomness.clone();
        let (has_io, session, is_replica) = (self.has_io(), self.session, self.is_replica);
        let nodes = self.open_nodes(&opener)?;
        let renewer = Renewer::new();
        tasks.spawn(renewer.clone().run(clock.clone(), has_io));
        let (mut id, session) = identity::client_id(&*randomness, session)?;
        if is_replica {
            id = crate::leased::replica_id();
        }
        let coordinator =
            Coordinator::new(quorum, nodes, clock, randomness, drift, node_timeout, tasks);
        let waiters = WaitRegistry::new(coordinator.clone(), id, owner.clone());
        Ok(Client {
            shared: Arc::new(Shared {
                coordinator,
                owner,
                session,
                waiters,
                renewer,
                max_ttl,
                default_ttl,
                max_hold,
                max_renewals,
                node_timeout,
                is_replica,
                #[cfg(feature = "blocking")]
                thread: std::sync::OnceLock::new(),
            }),
        })
    }

    /// Checks the options, connects, and returns as soon as a majority of the nodes answers.
    ///
    /// # Errors
    /// As [`build`](Self::build), and [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) with each node's reason.
    pub async fn connect(self) -> Result<Client, Error> {
        let locks = self.build()?;
        wait_for_majority(&locks.shared.coordinator).await?;
        Ok(locks)
    }

    pub(in crate::client) fn opener(
        &self,
        #[allow(unused)] quorum: Quorum,
    ) -> Result<Opener, Error> {
        self.opener_with(
            quorum,
            #[cfg(feature = "redis")]
            self.roster(quorum)?,
        )
    }

    pub(in crate::client) fn opener_with(
        &self,
        #[allow(unused)] quorum: Quorum,
        #[cfg(feature = "redis")] roster: Roster,
    ) -> Result<Opener, Error> {
        #[cfg(feature = "redis")]
        let runtime = Handle::try_current().map_err(|_| Error::from(Cause::NoRuntime))?;
        Ok(Opener {
            clock: self.clock.clone(),
            #[cfg(feature = "sqlite")]
            holder: self.holder,
            #[cfg(feature = "redis")]
            redis: self.redis_options(quorum)?,
            #[cfg(feature = "redis")]
            roster,
            #[cfg(feature = "redis")]
            runtime,
            #[cfg(feature = "service")]
            service: self.service_options(),
        })
    }

    #[cfg(feature = "service")]
    fn service_options(&self) -> ServiceOptions {
        let token = self.service_token.clone();
        ServiceOptions {
            token: token.or_else(|| std::env::var(TOKEN_VARIABLE).ok()),
            allow_plaintext: self.allow_plaintext,
            steal: self.service_steal.clone(),
            connect_timeout: self.connect_timeout,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        }
    }

    #[cfg(feature = "redis")]
    pub(in crate::client) fn redis_options(&self, quorum: Quorum) -> Result<RedisOptions, Error> {
        let delayed = self.is_delayed(quorum);
        Ok(RedisOptions {
            prefix: self.prefix.clone(),
            retention: self.checked_retention()?,
            connect_timeout: self.connect_timeout,
            mute_timeout: self.node_timeout.unwrap_or(NODE_TIMEOUT) * 2,
            quarantine: delayed.then_some(self.max_ttl),
            // On one node an evicted lock is a lost lease, and its holder learns of it. With
            // several nodes, eviction can produce a false majority.
            eviction: match quorum.nodes() {
                1 => Eviction::Warn,
                _ => Eviction::Refuse,
            },
            hidden: match quorum.nodes() {
                1 => Hidden::Warn,
                _ => Hidden::Refuse,
            },
            tls: self.tls.clone(),
            scripts_only: false,
        })
    }

    #[cfg(feature = "redis")]
    pub(in crate::client) fn is_delayed(&self, quorum: Quorum) -> bool {
        match self.restart_policy {
            Some(policy) => policy == RestartPolicy::Delay,
            None => quorum.nodes() >= DELAY_FROM || self.has_group(),
        }
    }
}

/// A timeout of a node or connection.
fn checked_timeout(option: &'static str, time: Duration) -> Result<Duration, Error> {
    if time.is_zero() {
        return Err(invalid(option, "a timeout must not be zero"));
    }
    if time > LONGEST_TIMEOUT {
        return Err(invalid(option, "a timeout must not exceed one hour"));
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timeout_that_is_zero_or_too_long_is_reported_under_its_own_name() {
        let too_long = LONGEST_TIMEOUT + Duration::from_secs(1);
        for time in [Duration::ZERO, too_long] {
            let builder = || Client::builder().url("memory:");
            let error = builder().connect_timeout(time).build().unwrap_err();
            assert_eq!(error.option(), Some("connect_timeout"));
            let error = builder().node_timeout(time).build().unwrap_err();
            assert_eq!(error.option(), Some("node_timeout"));
        }
    }
}
