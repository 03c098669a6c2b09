//! [`Builder`]: all options of a client, checked in one place.

#[cfg(feature = "sqlite")]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Client;
use super::majority::wait_for_majority;
use crate::driver::coordinator::Coordinator;
use crate::driver::identity;
use crate::driver::renewer::Renewer;
use crate::driver::shared::Shared;
use crate::driver::waiters::WaitRegistry;
use crate::error::{Cause, Error};
use crate::runtime::clock::{Clock, SystemClock};
use crate::runtime::randomness::{Randomness, SystemRandomness};
use crate::runtime::tasks::{Around, Tasks};
use crate::store::Node;
use crate::store::open::{Opener, split_urls};
#[cfg(feature = "redis")]
use crate::store::open::{is_cluster, is_group};
#[cfg(feature = "redis")]
use crate::store::redis::{Eviction, Hidden, RedisOptions, Roster, TlsOptions};
#[cfg(feature = "service")]
use crate::store::service::{ServiceOptions, TOKEN_VARIABLE};
#[cfg(feature = "sqlite")]
use crate::store::sqlite::{FileSpec, HolderProcess};
use fencepost_core::SessionId;
use fencepost_core::lock::COUNTER_RETENTION;
use fencepost_core::quorum::membership::least_retention;
use fencepost_core::quorum::{MOST_NODES, Quorum};
use fencepost_core::ttl::{Drift, Ttl};
use fencepost_core::value::Owner;

/// The longest time-out of a node or a connection: a node that takes longer is away.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// How long a node may take to answer where nothing else is said.
const NODE_TIMEOUT: Duration = Duration::from_millis(500);
/// The same for a lock service, which has nodes of its own and may have to be asked at another replica.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether a Redis server that restarted recently, and may have forgotten locks, may vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Let it vote at once. The default for one or two nodes.
    Trust,
    /// Do not let it vote for `max_ttl`, whatever its settings are now; and let several servers vote
    /// only under a marker that says to which cluster they belong (see [`Builder::init`]). The default
    /// for three and more nodes, and the only one where a node is a Sentinel group: a failover loses
    /// locks.
    Delay,
}

/// Options of a client. Made by [`Client::builder`].
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
}

pub(super) enum Source {
    Url(String),
    /// The replicas of one lock service.
    Service(Vec<String>),
    #[cfg(feature = "sqlite")]
    File(PathBuf),
    Made(Arc<dyn Node>),
    #[cfg(feature = "redis")]
    Connection(String, redis::aio::MultiplexedConnection),
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            clock: Arc::new(SystemClock),
            randomness: Arc::new(SystemRandomness),
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

    /// Adds a node that is a file of this machine.
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

    /// Adds a custom node that is shared with others.
    pub fn shared_node(mut self, node: Arc<dyn Node>) -> Self {
        self.nodes.push(Source::Made(node));
        self
    }

    /// Adds a Redis server by a connection that you made. It is used as it is and never replaced:
    /// when it breaks, the node is away.
    #[cfg(feature = "redis")]
    pub fn redis_connection(
        mut self,
        label: impl Into<String>,
        connection: redis::aio::MultiplexedConnection,
    ) -> Self {
        let source = Source::Connection(label.into(), connection);
        self.nodes.push(source);
        self
    }

    /// The TTL of [`Client::lock`] where none is given: 30 s by default, or `max_ttl` if that
    /// is shorter.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The longest TTL that any client of these nodes uses: 60 s by default. A longer TTL is
    /// refused, and a restarted node is not asked for that long, so all clients must agree on it.
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

    /// Default limit on how long a lease of [`Client::lock`] may last: none unless set; see [`LockOptions::max_hold`](crate::LockOptions::max_hold). Unlimited renewal means that a holder that hangs holds for ever.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.max_hold = Some(time);
        self
    }

    /// Default limit on how often a lease of [`Client::lock`] may renew itself: none unless set; see [`LockOptions::max_renewals`](crate::LockOptions::max_renewals).
    pub fn max_renewals(mut self, times: u32) -> Self {
        self.max_renewals = Some(times);
        self
    }

    /// How long one node may take to answer: 500 ms by default, 5 s for a lock service. It bounds how long an operation
    /// takes; it does not slow one down whose outcome the other nodes decide.
    pub fn node_timeout(mut self, time: Duration) -> Self {
        self.node_timeout = Some(time);
        self
    }

    /// How long it may take to connect to a node: 1 s by default.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.connect_timeout = time;
        self
    }

    /// How far the clocks of nodes and holder may run apart: 1 % of the TTL and 2 ms by default.
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = drift;
        self
    }

    /// Prefix of every key on Redis. Empty by default, so that clients in other
    /// languages find the lock under its own name.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Owner label that others see: `host:pid:program` by default.
    pub fn owner(mut self, label: impl Into<String>) -> Self {
        self.owner = Some(label.into());
        self
    }

    /// The session that this client belongs to: a new one, unless set. Who waits for whom is derived
    /// from sessions and from nothing else: hand the [`session`](Client::session) of a process down to
    /// those that it waits for.
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

    /// The token that a lock service asks for: that of the environment variable `FENCEPOST_SERVICE_TOKEN`,
    /// unless set.
    #[cfg(feature = "service")]
    pub fn service_token(mut self, token: impl Into<String>) -> Self {
        self.service_token = Some(token.into());
        self
    }

    /// Whether a lock service may be asked over a network without TLS, where everybody on the way can
    /// read and use the token and the leases. Without it `http://` is for this machine only.
    #[cfg(feature = "service")]
    pub fn allow_plaintext(mut self, allow: bool) -> Self {
        self.allow_plaintext = allow;
        self
    }

    /// The certificate authority for `rediss://` and `https://`, as PEM, instead of the system's.
    #[cfg(feature = "tls")]
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.ca_pem = Some(pem.into());
        self
    }

    /// The client's own certificate and key for `rediss://` and `https://`, as PEM.
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

    /// Where random numbers come from: the operating system, unless a simulation has to draw the
    /// same ones again.
    #[doc(hidden)]
    pub fn randomness(mut self, randomness: Arc<dyn Randomness>) -> Self {
        self.randomness = randomness;
        self
    }

    /// What to put around every task of the client: for a simulation that stops them all.
    #[doc(hidden)]
    pub fn around_tasks(mut self, around: Around) -> Self {
        self.around_tasks = Some(around);
        self
    }

    /// A client that asks on behalf of others only, as a replica of the lock service: see
    /// [`leased`](crate::leased).
    #[doc(hidden)]
    pub fn replica(mut self) -> Self {
        self.is_replica = true;
        self
    }

    /// How long fence registers are kept.
    pub(super) fn checked_retention(&self) -> Result<Duration, Error> {
        let least = least_retention(self.max_ttl);
        match self.retention {
            None => Ok(COUNTER_RETENTION.max(least)),
            Some(time) if time < least => {
                let why = format!("expected at least {} s", least.as_secs_f64().ceil());
                Err(invalid("retention", why))
            }
            Some(time) => Ok(time),
        }
    }

    /// How long a node may take.
    fn checked_node_timeout(&self) -> Result<Duration, Error> {
        let is_service = matches!(&self.nodes[..], [Source::Service(_)]);
        let default = if is_service {
            SERVICE_TIMEOUT
        } else {
            NODE_TIMEOUT
        };
        let time = self.node_timeout.unwrap_or(default);
        if time.is_zero() || self.connect_timeout.is_zero() {
            return Err(invalid("node_timeout", "a time-out must not be zero"));
        }
        if time > LONGEST_TIMEOUT || self.connect_timeout > LONGEST_TIMEOUT {
            let why = "a time-out must not exceed one hour";
            return Err(invalid("node_timeout", why));
        }
        Ok(time)
    }

    /// Checks the options and begins to connect, without waiting for it.
    ///
    /// # Errors
    /// An [`Error`] that says which option cannot be used, and why.
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
                #[cfg(feature = "blocking")]
                thread: std::sync::OnceLock::new(),
            }),
        })
    }

    /// Checks the options, connects, and returns as soon as a majority of the nodes can be asked.
    ///
    /// # Errors
    /// As [`build`](Self::build), and [`ErrorKind::Unreachable`](crate::ErrorKind::Unreachable) with each node's reason.
    pub async fn connect(self) -> Result<Client, Error> {
        let locks = self.build()?;
        wait_for_majority(&locks.shared.coordinator).await?;
        Ok(locks)
    }

    pub(super) fn opener(&self, #[allow(unused)] quorum: Quorum) -> Result<Opener, Error> {
        self.opener_with(
            quorum,
            #[cfg(feature = "redis")]
            self.roster(quorum)?,
        )
    }

    pub(super) fn opener_with(
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
            connect_timeout: self.connect_timeout,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        }
    }

    #[cfg(feature = "redis")]
    pub(super) fn redis_options(&self, quorum: Quorum) -> Result<RedisOptions, Error> {
        let delayed = self.is_delayed(quorum);
        Ok(RedisOptions {
            prefix: self.prefix.clone(),
            retention: self.checked_retention()?,
            connect_timeout: self.connect_timeout,
            mute_timeout: self.node_timeout.unwrap_or(NODE_TIMEOUT) * 2,
            quarantine: delayed.then_some(self.max_ttl),
            // One node without its lock is a lock lost, and the holder is told; with several, a
            // lock lost on one of them is a majority that is none.
            eviction: match quorum.nodes() {
                1 => Eviction::Warn,
                _ => Eviction::Refuse,
            },
            hidden: match quorum.nodes() {
                1 => Hidden::Warn,
                _ => Hidden::Refuse,
            },
            tls: self.tls.clone(),
        })
    }

    #[cfg(feature = "redis")]
    pub(super) fn is_delayed(&self, quorum: Quorum) -> bool {
        match self.restart_policy {
            Some(policy) => policy == RestartPolicy::Delay,
            None => quorum.nodes() >= 3 || self.has_group(),
        }
    }

    /// Whether a node is a Sentinel group or a Redis Cluster, which fail over.
    #[cfg(feature = "redis")]
    pub(super) fn has_group(&self) -> bool {
        let fails_over = |scheme: &str| is_group(scheme) || is_cluster(scheme);
        self.nodes.iter().any(|source| match source {
            Source::Url(url) => url.split_once(':').is_some_and(|(s, _)| fails_over(s)),
            _ => false,
        })
    }

    /// Refuses a quorum with nodes that not every client reaches.
    pub(super) fn check_reach(&self) -> Result<(), Error> {
        let urls = self.nodes.iter().map(|source| match source {
            Source::Url(url) => url.as_str(),
            Source::Service(_) => "http:SERVICE",
            #[cfg(feature = "sqlite")]
            Source::File(_) => "file:PATH",
            _ => "",
        });
        crate::store::open::check_reach(&urls.collect::<Vec<_>>())
    }

    /// Whether there are nodes that are reached over sockets: then the runtime must have I/O enabled.
    /// For a file it need not, and to ask it for I/O would panic.
    fn has_io(&self) -> bool {
        self.nodes.iter().any(|source| match source {
            Source::Url(url) => !url.starts_with("file:") && !url.starts_with("memory:"),
            #[cfg(feature = "sqlite")]
            Source::File(_) => false,
            Source::Made(_) => false,
            Source::Service(_) => true,
            #[cfg(feature = "redis")]
            Source::Connection(..) => true,
        })
    }

    pub(super) fn open_nodes(self, opener: &Opener) -> Result<Vec<Arc<dyn Node>>, Error> {
        let mut nodes: Vec<Arc<dyn Node>> = Vec::new();
        for source in self.nodes {
            let node = match source {
                Source::Made(node) => {
                    nodes.push(node);
                    continue;
                }
                Source::Url(url) => opener.url(&url)?,
                Source::Service(replicas) => opener.service(&replicas)?,
                #[cfg(feature = "sqlite")]
                Source::File(path) => opener.file(FileSpec::new(path))?,
                #[cfg(feature = "redis")]
                Source::Connection(label, connection) => opener.connection(&label, connection),
            };
            if nodes.iter().any(|other| other.address() == node.address()) {
                return Err(duplicate(node.address()));
            }
            nodes.push(node);
        }
        Ok(nodes)
    }
}

/// Whether it is the URL of a lock service.
fn is_service(url: &str) -> bool {
    matches!(url.split_once("://"), Some(("http" | "https", _)))
}

/// No node may vote twice.
pub(super) fn duplicate(address: &str) -> Error {
    Error::from(Cause::InvalidUrl {
        url: address.to_owned(),
        why: "duplicate node; list each server once".into(),
    })
}

pub(super) fn invalid(option: &'static str, why: impl Into<String>) -> Error {
    Error::from(Cause::InvalidOption {
        option,
        why: why.into(),
    })
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // URLs may hold passwords.
        f.debug_struct("Builder")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}
