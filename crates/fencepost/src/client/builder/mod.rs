//! [`Builder`]: all options of a client, checked in one place.
//!
//! - `nodes`: which nodes are configured, and how each is opened.
//! - `build`: checks the options and builds the client.

mod build;
mod nodes;

#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use self::nodes::is_service;
pub(super) use self::nodes::{Source, duplicate};
#[cfg(doc)]
use super::Client;
use crate::error::{Cause, Error};
use crate::runtime::clock::{Clock, SystemClock};
use crate::runtime::randomness::{Randomness, SystemRandomness};
use crate::runtime::tasks::Around;
use crate::store::Node;
use crate::store::open::split_urls;
#[cfg(feature = "redis")]
use crate::store::redis::TlsOptions;
#[cfg(feature = "service")]
use crate::store::service::StealTerms;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::HolderProcess;
use fencepost_core::SessionId;
use fencepost_core::ttl::Drift;

/// Whether a Redis server that restarted recently, and may have forgotten locks, may vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RestartPolicy {
    /// Votes at once. The default for one node, which is refused all the same if it belongs to a
    /// cluster of other servers; if it is set, nobody looks at that either.
    Trust,
    /// Does not vote for `max_ttl`, whatever its settings are now; and several servers vote only
    /// under a marker that names their cluster (see [`Builder::init`]). The default for two and
    /// more nodes, and the only policy if a node is a Sentinel group: a failover loses locks.
    Delay,
}

/// Options of a client. Created by [`Client::builder`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// use std::time::Duration;
/// use fencepost::Client;
///
/// let locks = Client::builder()
///     .url("memory:")
///     .owner("billing@web-3")
///     .max_ttl(Duration::from_secs(30))
///     .connect()
///     .await?;
/// # drop(locks);
/// # Ok(()) }
/// ```
#[must_use]
pub struct Builder {
    pub(super) nodes: Vec<Source>,
    pub(super) clock: Arc<dyn Clock>,
    randomness: Arc<dyn Randomness>,
    around_tasks: Option<Around>,
    drift: Drift,
    node_timeout: Option<Duration>,
    connect_timeout: Duration,
    pub(super) max_ttl: Duration,
    retention: Option<Duration>,
    ttl: Option<Duration>,
    max_hold: Option<Duration>,
    max_renewals: Option<u32>,
    prefix: String,
    owner: Option<String>,
    is_replica: bool,
    runtime_has_io: bool,
    session: Option<SessionId>,
    pub(super) restart_policy: Option<RestartPolicy>,
    #[cfg(feature = "sqlite")]
    holder: HolderProcess,
    #[cfg(feature = "redis")]
    tls: TlsOptions,
    #[cfg(feature = "service")]
    service_token: Option<String>,
    #[cfg(feature = "service")]
    allow_plaintext: bool,
    #[cfg(feature = "service")]
    service_steal: StealTerms,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            clock: Arc::new(SystemClock),
            randomness: Arc::<SystemRandomness>::default(),
            around_tasks: None,
            drift: Drift::default(),
            node_timeout: None,
            connect_timeout: Duration::from_secs(1),
            max_ttl: Duration::from_secs(60),
            retention: None,
            ttl: None,
            max_hold: None,
            max_renewals: None,
            prefix: String::new(),
            owner: None,
            is_replica: false,
            runtime_has_io: false,
            session: None,
            restart_policy: None,
            #[cfg(feature = "sqlite")]
            holder: HolderProcess::This,
            #[cfg(feature = "redis")]
            tls: TlsOptions::default(),
            #[cfg(feature = "service")]
            service_token: None,
            #[cfg(feature = "service")]
            allow_plaintext: false,
            #[cfg(feature = "service")]
            service_steal: StealTerms::default(),
        }
    }

    /// Adds a node by its URL, or several, separated by commas: see [`Client::connect`].
    pub fn url(mut self, urls: impl AsRef<str>) -> Self {
        for url in split_urls(urls.as_ref()) {
            match (is_service(&url), self.nodes.last_mut()) {
                (true, Some(Source::Service(replicas))) => replicas.push(url),
                (true, _) => self.nodes.push(Source::Service(vec![url])),
                (false, _) => self.nodes.push(Source::Url(url)),
            }
        }
        self
    }

    /// Adds a node that is a file on this machine.
    #[cfg(feature = "sqlite")]
    pub fn file(mut self, path: impl AsRef<Path>) -> Self {
        self.nodes.push(Source::File(path.as_ref().to_owned()));
        self
    }

    /// Adds a custom node.
    #[doc(hidden)]
    pub fn node(self, node: impl Node) -> Self {
        self.shared_node(Arc::new(node))
    }

    /// Adds a custom node that is shared with other clients.
    #[doc(hidden)]
    pub fn shared_node(mut self, node: Arc<dyn Node>) -> Self {
        self.nodes.push(Source::Made(node));
        self
    }

    /// The default TTL of [`Client::lock`]: 30 s, or `max_ttl` if that is shorter.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The maximum TTL that any client of these nodes uses: 60 s by default. A longer TTL is
    /// refused, and a restarted node does not vote for that long, so all clients must agree on it.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.max_ttl = max_ttl;
        self
    }

    /// How long a Redis server keeps the fence register of a name after its last acquisition: a day by
    /// default, at least one hour and two `max_ttl`. Tokens of a name grow as long as it is acquired
    /// again within that time, whatever the clocks of the clients say. An entry takes about 130 bytes
    /// of each server. All clients must agree on it.
    pub fn retention(mut self, time: Duration) -> Self {
        self.retention = Some(time);
        self
    }

    /// Default limit on how long a lease of [`Client::lock`] may last: none unless set; see [`LockOptions::max_hold`](crate::LockOptions::max_hold). Without a limit, a holder that hangs keeps the lock for as long as it renews.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.max_hold = Some(time);
        self
    }

    /// Default limit on how often a lease of [`Client::lock`] may renew itself: none unless set; see [`LockOptions::max_renewals`](crate::LockOptions::max_renewals).
    pub fn max_renewals(mut self, times: u32) -> Self {
        self.max_renewals = Some(times);
        self
    }

    /// How long one node may take to answer: 500 ms by default, 5 s for a lock service. It bounds
    /// how long an operation takes; it does not delay one that the other nodes decide.
    pub fn node_timeout(mut self, time: Duration) -> Self {
        self.node_timeout = Some(time);
        self
    }

    /// How long connecting to a node may take: 1 s by default.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = time;
        self
    }

    /// How far the clocks of the nodes and the holder may drift apart: 1 % of the TTL and 2 ms by
    /// default.
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// Prefix of every key on Redis. Empty by default, so that clients in other languages find the
    /// lock under its own name.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Owner label that others see: `host:pid:program` by default.
    pub fn owner(mut self, label: impl Into<String>) -> Self {
        self.owner = Some(label.into());
        self
    }

    /// The session of this client: a new one, unless set. Who waits for whom is derived from
    /// sessions only: pass the [`session`](Client::session) of a process to the processes that it
    /// waits for.
    pub fn session(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// The process whose death releases locks in a file: this one, unless set.
    #[cfg(feature = "sqlite")]
    pub fn holder_process(mut self, holder: HolderProcess) -> Self {
        self.holder = holder;
        self
    }

    /// Whether a restarted Redis server may vote.
    pub fn restart_policy(mut self, policy: RestartPolicy) -> Self {
        self.restart_policy = Some(policy);
        self
    }

    /// The token for a lock service: the environment variable `FENCEPOST_SERVICE_TOKEN`, unless
    /// set.
    #[cfg(feature = "service")]
    pub fn service_token(mut self, token: impl Into<String>) -> Self {
        self.service_token = Some(token.into());
        self
    }

    /// Allows a lock service over a network without TLS, where anyone on the path can read and use
    /// the token and the leases. Without it, `http://` is limited to this machine.
    #[cfg(feature = "service")]
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.allow_plaintext = allow;
        self
    }

    /// For the program: what a lock service is told when this client steals a lock from it. It logs the
    /// reason, and overwrites what fencepost did not write only if it is told so.
    #[cfg(feature = "service")]
    #[doc(hidden)]
    pub fn service_steal(mut self, reason: impl Into<String>, overwrite_foreign: bool) -> Self {
        self.service_steal = StealTerms {
            reason: reason.into(),
            overwrite_foreign,
        };
        self
    }

    /// The certificate authority for `rediss://` and `https://`, as PEM, instead of the system's.
    #[cfg(feature = "tls")]
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.ca_pem = Some(pem.into());
        self
    }

    /// The client certificate and private key for `rediss://` and `https://`, as PEM (mutual TLS).
    #[cfg(feature = "tls")]
    pub fn tls_client(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.client_pem = Some((certificate.into(), key.into()));
        self
    }

    /// The clock: the machine's, unless a test or a simulation controls the time.
    #[doc(hidden)]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The source of random numbers: the operating system, unless a simulation has to repeat them.
    #[doc(hidden)]
    pub fn randomness(mut self, randomness: Arc<dyn Randomness>) -> Self {
        self.randomness = randomness;
        self
    }

    /// Wraps every task of the client: for a simulation that stops them all.
    #[doc(hidden)]
    pub fn around_tasks(mut self, around: Around) -> Self {
        self.around_tasks = Some(around);
        self
    }

    /// The client's runtime has I/O enabled (`enable_io`, `enable_all`), as servers need it. With a file it lets the
    /// loss of a lease be told as soon as the machine resumes from a suspend; without, up to a second later.
    pub fn enable_io(mut self) -> Self {
        self.runtime_has_io = true;
        self
    }

    /// A client that acts on behalf of others only, as a replica of the lock service: see
    /// [`leased`](crate::leased).
    #[doc(hidden)]
    pub fn replica(mut self) -> Self {
        self.is_replica = true;
        self
    }
}

pub(super) fn invalid(option: &'static str, why: impl Into<String>) -> Error {
    Error::from(Cause::InvalidOption {
        option,
        why: why.into(),
    })
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // URLs may contain passwords.
        f.debug_struct("Builder")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}
