//! A node that is a Redis or Valkey server: one connection, one Lua script for each command.
//!
//! - `address`: from a URL to a stream of bytes.
//! - `protocol`: what is written and read, and the task that runs all connections of a client.
//! - `encoding`: how a command for a lock becomes commands for a server, by scripts or without. The scripts are the
//!   second implementation of [the core](fencepost_core::lock).
//! - `connection`: where calls wait for one, what carries them out, and what replaces it.
//! - `voting`: who may vote: handshake, marker, quarantine, replicas.
//! - `waking`: what wakes those who wait.
//! - `observe`: which locks a server knows, and facts about it.
//! - `sentinel`: a group of servers that is one voter with a moving address.
//! - `cluster`: a Redis Cluster, which is one voter of many servers.
//! - `fault`, `options`: errors as a node reports them, and what is set for all connections.
//!
//! # When something happens to the server
//!
//! | what | what follows |
//! | --- | --- |
//! | `SCRIPT FLUSH` | nothing that a caller sees: the next command brings its script along |
//! | the connection is closed (`CLIENT KILL`, a network fault) | commands under way end with [`NodeError::Disconnected`] and are not sent again; the node connects at once, and new commands wait for that |
//! | the server is down | commands fail at once with the reason, [`NodeError::Unreachable`]; the node tries to connect with growing pauses, at most a second |
//! | the server was restarted | it is asked again, and does not vote for `max_ttl` where that is the policy: [`NodeError::Quarantined`] |
//! | the password is wrong, or was changed | a connection that stands goes on; a new one is refused with [`NodeError::Auth`], and tried again |
//! | the server hangs | commands take until their time-out, others decide meanwhile; a connection that leaves a `PING` unanswered is replaced |
//! | the Sentinels of a group name another master | replies of the old one do not count any more; the node connects to the new one, which does not vote for `max_ttl` and two failover times |
//! | a majority of a group's Sentinels cannot be asked | replies of its master do not count any more: [`NodeError::Unnamed`] |
//! | it is a replica, evicts keys, or is another node's server | it does not vote: [`NodeError::Replica`], [`NodeError::Evicts`], [`NodeError::SameServer`] |
//!
//! Any Redlock client excludes us and is excluded by us: a lock is the plain key that they all set
//! with `NX PX`. The same holds for Redisson's `RLock` and a reentrant lock: that is the hash that
//! it keeps. The caller's value tells which of the two is meant. A command must never be sent
//! twice, unless the server has replied that it did not have the script.

mod address;
mod cluster;
mod connection;
mod encoding;
mod fault;
mod observe;
mod options;
mod protocol;
mod sentinel;
mod voting;
mod waking;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

#[cfg(all(feature = "tls", feature = "service"))]
pub(crate) use address::tls::Tls;
pub use cluster::ClusterNode;
use cluster::ClusterSpec;
pub(crate) use observe::survey::survey;
pub use options::{Eviction, Hidden, RedisOptions, TlsOptions};
pub(crate) use voting::closing::{Closed, close, preview};
pub(crate) use voting::membership::Membership;
pub use voting::roster::Roster;

/// The encoded command for a node without a prefix, for the benchmark's hand-written client.
///
/// # Panics
/// When the name cannot have its keys in one hash slot.
#[must_use]
pub fn encoded(command: &Command, name: &LockName) -> Vec<u8> {
    let prefix = Prefix::new("").expect("no prefix");
    let keys = prefix.keys(name).expect("a name without a tag");
    encoding::scripts::by_digest(command, &keys).encoded()
}

/// The text of every script.
pub fn script_sources() -> impl Iterator<Item = &'static str> {
    encoding::scripts::sources(encoding::scripts::Site::Server)
}

/// Whether the server at this URL, or each of a group's Sentinels, is one of this machine's alone;
/// `None` if that is not the URL of one.
pub(crate) fn is_local(url: &str) -> Option<bool> {
    match url.split_once(':') {
        Some((scheme, _)) if !is_redis(scheme) || is_cluster(scheme) => None,
        // A group's own name is the same for all, wherever its Sentinels are asked.
        Some((scheme, rest)) if is_group(scheme) => {
            let hosts = rest.trim_start_matches('/').split('/').next()?;
            let hosts = hosts.rsplit('@').next()?;
            let mut hosts = hosts.split(',');
            let is_remote = hosts.any(|host| {
                let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
                !address::url::is_loopback(name)
            });
            is_remote.then_some(false)
        }
        _ => Some(Target::parse(url).ok()?.place.is_local()),
    }
}

/// The address of the server at this URL, without user and password.
pub(crate) fn address(url: &str) -> Result<String, Error> {
    match url.split_once(':') {
        Some((scheme, _)) if is_group(scheme) => GroupSpec::parse(url).map(|group| group.label),
        Some((scheme, _)) if is_cluster(scheme) => ClusterSpec::parse(url).map(|spec| spec.label),
        _ => Target::parse(url).map(|target| target.label),
    }
}

use crate::error::{Cause, Error, NodeError};
use crate::runtime::clock::{Clock, Moment};
use crate::runtime::tasks;
use crate::store::open::{is_cluster, is_group, is_redis};
use crate::store::{Call, Inbox, Listener, Names, Node, Queued, Request, WakeSink};
use address::url::Target;
use connection::gate::LinkGate;
use connection::keeper::{Keeper, Opened, Source};
use encoding::keys::{Prefix, REGISTER};
use encoding::plain::ServerClock;
use encoding::prepared::Prepared;
use fencepost_core::lock::Command;
use fencepost_core::name::LockName;
use fencepost_core::pattern::NamePattern;
use fencepost_core::ticket::ClientId;
use sentinel::GroupSpec;
use voting::membership::Member;
use voting::roster::RosterEntry;
use waking::listener::{Followed, Scope, Subscription};
use waking::tracker::Tracker;

/// A Redis or Valkey server. Dropping it ends its task and its connection.
pub struct RedisNode {
    label: String,
    prefix: Result<Prefix, NodeError>,
    clock: Arc<dyn Clock>,
    server_clock: Arc<ServerClock>,
    gate: Arc<LinkGate>,
    entry: Arc<RosterEntry>,
    keeper: AbortHandle,
    source: Arc<Source>,
    connect_timeout: Duration,
    followed: Followed,
    /// Created by the first waiter behind a foreign client.
    tracker: OnceLock<Tracker>,
    runtime: Handle,
}

impl RedisNode {
    /// A server by its URL: `redis://[user][:password]@host[:port][/db]`, `rediss://` for TLS,
    /// `redis+unix:///path?db=N&user=U&pass=P`, each with an optional `protocol=resp3`; or a
    /// Sentinel group, `redis+sentinel://s1,s2,s3/master`. With `replicas=K` a vote counts only
    /// once K replicas have it. Connects in a task on `runtime` and does not wait for it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`](crate::ErrorKind::InvalidUrl) and
    /// [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) say what would be valid.
    pub fn open(
        url: &str,
        options: RedisOptions,
        roster: &Roster,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let prefix = Ok(Prefix::new(&options.prefix)?);
        let opened = Source::open(url, &options, &clock, runtime)?;
        if matches!(opened.source, Source::Group(_)) && roster.membership().is_none() {
            return Err(Error::from(Cause::InvalidOption {
                option: "nodes",
                why: "a Sentinel group needs a marker, which needs a quorum of servers only".into(),
            }));
        }
        Ok(Self::start(opened, prefix, options, roster, clock, runtime))
    }

    /// The same for a Sentinel group that no other client uses: it votes at once.
    ///
    /// # Errors
    /// As for any URL.
    pub fn open_fresh(
        url: &str,
        options: RedisOptions,
        max_ttl: Duration,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Result<Self, Error> {
        let nodes = vec![address(url)?];
        let (retention, fresh) = (options.retention, true);
        let membership = Membership::new(nodes, max_ttl, retention, false, fresh, None);
        let roster = Roster::of(Arc::new(membership));
        Self::open(url, options, &roster, clock, runtime)
    }

    fn start(
        opened: Opened,
        prefix: Result<Prefix, NodeError>,
        options: RedisOptions,
        roster: &Roster,
        clock: Arc<dyn Clock>,
        runtime: &Handle,
    ) -> Self {
        let Opened {
            source,
            label,
            replicas,
        } = opened;
        let gate = Arc::new(LinkGate::new(Arc::clone(&clock)));
        let source = Arc::new(source);
        let connect_timeout = options.connect_timeout;
        let entry = Arc::new(roster.enter(&label));
        let member = roster.membership();
        let member =
            member.and_then(|membership| Member::of(membership, &label, Arc::clone(&clock)));
        let server_clock = Arc::<ServerClock>::default();
        let keeper = Keeper {
            server_clock: Arc::clone(&server_clock),
            member,
            source: Arc::clone(&source),
            label: label.clone(),
            options,
            replicas,
            entry: Arc::clone(&entry),
            clock: Arc::clone(&clock),
            gate: Arc::clone(&gate),
        };
        Self {
            label,
            prefix,
            clock,
            server_clock,
            gate,
            entry,
            keeper: tasks::spawn_on(runtime, keeper.run()).abort_handle(),
            source,
            connect_timeout,
            followed: Followed::default(),
            tracker: OnceLock::new(),
            runtime: runtime.clone(),
        }
    }
}

impl RedisNode {
    fn prepared(&self, request: &Request) -> Result<Arc<Prepared>, NodeError> {
        let prefix = self.prefix.as_ref().map_err(Clone::clone)?;
        Prepared::once(prefix, request, || self.gate.check_process())
    }
}

impl Drop for RedisNode {
    fn drop(&mut self) {
        self.keeper.abort();
        self.entry.leave();
    }
}

impl Node for RedisNode {
    fn call(&self, name: &LockName, command: Command) -> Call {
        self.send(&Request::new(name, command))
    }

    fn post(&self, request: &Request, now: Moment, inbox: &Arc<Inbox>, number: usize) -> bool {
        match self.prepared(request) {
            Ok(prepared) => self.gate.post(&prepared, now, || inbox.slot(number)),
            // A call tells why.
            Err(_) => false,
        }
    }

    fn send(&self, request: &Request) -> Call {
        let prepared = self.prepared(request);
        let gate = Arc::clone(&self.gate);
        Box::pin(async move { gate.call(prepared?).await })
    }

    fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        let listening = Subscription {
            source: Arc::clone(&self.source),
            label: self.label.clone(),
            scope: Scope::Everywhere {
                channel: waking::listener::channel(client),
            },
            followed: self.followed.clone(),
            connect_timeout: self.connect_timeout,
            reader: self.entry.reader().clone(),
            sink: Arc::downgrade(&sink),
        };
        let task = tasks::spawn_on(&self.runtime, listening.run()).abort_handle();
        Listener::until(move || {
            // At once: the task and its connection take a while to end.
            drop(sink);
            task.abort();
        })
    }

    fn follow(&self, name: &LockName) -> Listener {
        let prefix = self.prefix.as_ref().ok();
        match prefix.and_then(|prefix| prefix.keys(name).ok()) {
            Some(keys) => self.followed.add(keys.foreign_channel(), name),
            None => Listener::deaf(),
        }
    }

    fn track(&self, name: &LockName, sink: Arc<dyn WakeSink>) {
        let prefix = self.prefix.as_ref().ok();
        if let Some(keys) = prefix.and_then(|prefix| prefix.keys(name).ok()) {
            let tracker = self.tracker.get_or_init(|| {
                let (source, label) = (Arc::clone(&self.source), self.label.clone());
                Tracker::start(source, label, self.connect_timeout, &self.runtime)
            });
            tracker.track(keys.lock, name, sink);
        }
    }

    fn address(&self) -> &str {
        &self.label
    }

    fn wall_micros(&self, now: Moment) -> Option<u64> {
        self.server_clock.at(now)
    }

    fn hello(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + '_>> {
        Box::pin(async {
            match self.gate.settled().await?.quarantine_left(&*self.clock) {
                Some(left) => Err(NodeError::Quarantined(left)),
                None => Ok(()),
            }
        })
    }

    fn names<'a>(
        &'a self,
        wanted: &'a NamePattern,
    ) -> Pin<Box<dyn Future<Output = Result<Names, NodeError>> + Send + 'a>> {
        Box::pin(async {
            let link = self.gate.settled().await?;
            let prefix = self.prefix.as_ref().map_err(Clone::clone)?;
            let mut names = Names::default();
            let clock = &*self.clock;
            observe::list::add_names(&mut names, &link, REGISTER, prefix, wanted, clock).await?;
            Ok(names)
        })
    }

    fn queue<'a>(
        &'a self,
        name: &'a LockName,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Queued>, NodeError>> + Send + 'a>> {
        Box::pin(async {
            let link = self.gate.settled().await?;
            let prefix = self.prefix.as_ref().map_err(Clone::clone)?;
            observe::queue::queue(&link, &prefix.keys(name)?, &*self.clock).await
        })
    }

    fn held<'a>(
        &'a self,
        names: &'a [LockName],
    ) -> Pin<Box<dyn Future<Output = Result<Vec<bool>, NodeError>> + Send + 'a>> {
        Box::pin(async {
            let link = self.gate.settled().await?;
            let prefix = self.prefix.as_ref().map_err(Clone::clone)?;
            observe::queue::held(&link, prefix, names, &*self.clock).await
        })
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.gate.ready())
    }
}
