//! What the nodes are like: [`Builder::survey`](crate::Builder::survey) asks each of them, also those
//! that would not be let vote.
//!
//! Facts only. `fencepost doctor` judges which of them are unsafe.

use std::time::Duration;

use crate::error::NodeError;

/// What one node is like.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeSurvey {
    /// The node's address, without a password.
    pub node: String,
    /// What was found out, or why it could not be asked.
    pub facts: Result<Facts, NodeError>,
}

/// What was found out of one node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Facts {
    /// A Redis or Valkey server.
    Redis(Box<RedisFacts>),
    /// A file.
    File(FileFacts),
    /// A node of another kind, of which nothing more is known.
    Other,
}

/// What a Redis or Valkey server is like. `None` is what it does not tell this user.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RedisFacts {
    /// `Redis` or `Valkey`.
    pub product: &'static str,
    /// Its version.
    pub version: Option<String>,
    /// What tells this server process from every other.
    pub run_id: Option<String>,
    /// `master` or `slave`.
    pub role: Option<String>,
    /// How long it has been up, in whole seconds.
    pub uptime: Option<Duration>,
    /// Whether it is still loading its data.
    pub loading: bool,
    /// Whether it is part of a Redis Cluster.
    pub redis_cluster: bool,
    /// Whether it writes an append-only file.
    pub append_only: Option<bool>,
    /// When that is forced to disk: `always`, `everysec` or `no`.
    pub fsync: Option<String>,
    /// Whether it takes snapshots by itself.
    pub snapshots: Option<bool>,
    /// The limit of its memory in bytes; zero when there is none.
    pub memory_limit: Option<u64>,
    /// What it does at that limit.
    pub eviction_policy: Option<String>,
    /// How long it does not vote, because it may have forgotten locks: by its marker, or by its uptime
    /// where it has none.
    pub quarantine: Option<Duration>,
    /// Which cluster it belongs to.
    pub cluster: ClusterFacts,
    /// By how many microseconds its wall clock is ahead of ours, give or take half a round trip.
    pub clock_ahead_us: Option<i64>,
    /// How long a PING takes, there and back: the median of a few.
    pub round_trip: Duration,
    /// How it is reached.
    pub link: LinkKind,
    /// The user as which we are logged in.
    pub user: String,
    /// What this user may not do and should be able to.
    pub missing: Vec<MissingRight>,
    /// How many replicas are attached.
    pub replicas: Option<u64>,
    /// How many replicas must have a vote before it counts: `replicas=` of the URL.
    pub replicas_needed: u32,
    /// The Sentinel group whose master it is, where it was reached as such.
    pub group: Option<GroupFacts>,
    /// The Redis Cluster to which it belongs, where it was reached as such.
    pub sharded: Option<ShardedFacts>,
}

/// What a Redis Cluster is like.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardedFacts {
    /// How many nodes the URL lists.
    pub listed: usize,
    /// How many of them answer.
    pub answering: usize,
    /// Why the others do not.
    pub others: Vec<String>,
    /// `cluster-node-timeout`: after how long a master is found down.
    pub node_timeout: Option<Duration>,
    /// The failover time.
    pub failover: Duration,
    /// How long a shard does not vote after a failover.
    pub quarantine: Duration,
    /// How many slots no shard serves.
    pub unserved: usize,
    /// Its shards.
    pub shards: Vec<ShardFacts>,
}

/// What one shard of a Redis Cluster is like.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardFacts {
    /// Where its master is now.
    pub master: String,
    /// How many slots it has.
    pub slots: usize,
    /// Why it could not be asked.
    pub fault: Option<String>,
    /// How many replicas may be promoted.
    pub promotable: Option<usize>,
    /// `min-replicas-to-write`
    pub min_replicas: Option<u64>,
    /// `min-replicas-max-lag`
    pub max_lag: Option<Duration>,
}

/// What a Sentinel group is like.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupFacts {
    /// Where its master is now.
    pub master: String,
    /// How many Sentinels the URL lists.
    pub listed: usize,
    /// How many of them name this master.
    pub naming: usize,
    /// What the others say.
    pub others: Vec<String>,
    /// How many Sentinels they know of themselves.
    pub known: Option<usize>,
    /// How many of them have to find a master down before they elect who promotes a replica.
    pub quorum: Option<usize>,
    /// After how long they find it down.
    pub down_after: Option<Duration>,
    /// How many replicas may be promoted: attached, and with a `replica-priority` above zero.
    pub promotable: Option<usize>,
    /// `min-replicas-max-lag`
    pub max_lag: Option<Duration>,
    /// Why the master is not safe when it is cut off.
    pub unfenced: Option<String>,
    /// The failover time of the URL.
    pub failover: Duration,
    /// How long a promoted master does not vote.
    pub quarantine: Duration,
}

/// What a server's marker says: see [`Builder::init`](crate::Builder::init).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterFacts {
    /// It does not tell this user.
    Unknown,
    /// It belongs to none.
    None,
    /// One is being made.
    Pending,
    /// It was replaced by another.
    Replaced,
    /// It is one of these nodes, whose clients have agreed on this `max_ttl`.
    #[non_exhaustive]
    Member {
        /// The addresses of all its nodes, sorted.
        nodes: Vec<String>,
        /// The longest TTL of any lock.
        max_ttl: Duration,
    },
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkKind {
    /// Over TLS.
    Tls,
    /// Over a Unix socket.
    Unix,
    /// In the clear, within this machine.
    Loopback,
    /// In the clear, over a network.
    Plain,
}

/// Something that a user of a server may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingRight {
    /// The command.
    pub command: String,
    /// What `ACL SETUSER` has to be given to grant it.
    pub rule: String,
    /// What it is needed for.
    pub needed_for: NeededFor,
}

/// What a right is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NeededFor {
    /// Without it no lock can be acquired.
    Locks,
    /// Without it no reentrant lock can be acquired.
    Reentrant,
    /// Without it waiters are not woken, and look once a second.
    Waking,
    /// Without it the server cannot be checked.
    Checks,
    /// Without it locks cannot be listed.
    Listing,
}

/// What a file of locks is like.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FileFacts {
    /// The version of SQLite.
    pub sqlite: &'static str,
    /// Its size.
    pub bytes: Option<u64>,
    /// How many locks it knows.
    pub locks: usize,
    /// Whether others than its owner and group may write it.
    pub writable_by_all: bool,
    /// Whether a holder's process that is gone can be told from one that is not.
    pub tells_processes: bool,
    /// Whether a reboot can be noticed.
    pub tells_boots: bool,
    /// How long a look at a lock takes: the median of a few.
    pub round_trip: Duration,
}

/// The one in the middle.
#[cfg(any(feature = "redis", feature = "sqlite"))]
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
