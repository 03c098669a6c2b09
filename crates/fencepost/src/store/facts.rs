//! Facts about the nodes: [`Builder::survey`](crate::Builder::survey) asks each of them, including
//! those that may not vote.
//!
//! Facts only. `fencepost doctor` judges which of them are unsafe.

use std::time::Duration;

use crate::error::NodeError;

/// Facts about one node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeSurvey {
    /// The node's address, without a password.
    pub node: String,
    /// The facts, or why it could not be reached.
    pub facts: Result<Facts, NodeError>,
}

/// Facts about one node, by kind.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Facts {
    /// A Redis or Valkey server.
    Redis(Box<RedisFacts>),
    /// A file.
    File(FileFacts),
    /// A node of another kind, without further facts.
    Other,
}

/// Facts about a Redis or Valkey server. `None` where it hides them from this user.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RedisFacts {
    /// `Redis` or `Valkey`.
    pub product: &'static str,
    /// Its version.
    pub version: Option<String>,
    /// Identifies this server process.
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
    /// When it syncs that file: `always`, `everysec` or `no`.
    pub fsync: Option<String>,
    /// Whether it syncs that file also while a child process saves: `no-appendfsync-on-rewrite no`.
    pub syncs_while_saving: Option<bool>,
    /// Whether its marker has the promise that every write is synced (`init --durable`); `None` without a marker.
    pub is_durable: Option<bool>,
    /// Whether it takes snapshots automatically.
    pub snapshots: Option<bool>,
    /// Its memory limit in bytes; zero without a limit.
    pub memory_limit: Option<u64>,
    /// Its eviction policy.
    pub eviction_policy: Option<String>,
    /// How long it does not vote because it may have forgotten locks: by its marker, or by its
    /// uptime if it has none. `None` if it hides that.
    pub quarantine: Option<Duration>,
    /// The cluster that it belongs to.
    pub cluster: ClusterFacts,
    /// How many microseconds its wall clock is ahead of ours, give or take half a round trip.
    pub clock_ahead_us: Option<i64>,
    /// The round trip of a PING: the median of a few.
    pub round_trip: Duration,
    /// The kind of connection.
    pub link: LinkKind,
    /// The user that we are logged in as.
    pub user: String,
    /// The permissions that this user lacks.
    pub missing: Vec<MissingRight>,
    /// The number of attached replicas.
    pub replicas: Option<u64>,
    /// How many replicas must acknowledge a vote: `replicas=` of the URL.
    pub replicas_needed: u32,
    /// Its Sentinel group, if it was reached as a master of one.
    pub group: Option<GroupFacts>,
    /// Its Redis Cluster, if it was reached as a node of one.
    pub sharded: Option<ShardedFacts>,
}

/// Facts about a Redis Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardedFacts {
    /// The number of nodes listed in the URL.
    pub listed: usize,
    /// How many of them answer.
    pub answering: usize,
    /// Why the others do not.
    pub others: Vec<String>,
    /// `cluster-node-timeout`: after how long a master counts as down. The longest, where listed nodes differ.
    pub node_timeout: Option<Duration>,
    /// The shortest of the listed nodes', where the URL does not say `failover=`.
    pub shortest_node_timeout: Option<Duration>,
    /// The failover time.
    pub failover: Duration,
    /// How long a shard does not vote after a failover.
    pub quarantine: Duration,
    /// The number of slots that no shard serves.
    pub unserved: usize,
    /// Its shards.
    pub shards: Vec<ShardFacts>,
}

/// Facts about one shard of a Redis Cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardFacts {
    /// The address of its master.
    pub master: String,
    /// The number of its slots.
    pub slots: usize,
    /// Why it could not be reached.
    pub fault: Option<String>,
    /// For how long it does not vote.
    pub quarantine: Option<Duration>,
    /// The number of replicas that may be promoted.
    pub promotable: Option<usize>,
    /// `min-replicas-to-write`
    pub min_replicas: Option<u64>,
    /// `min-replicas-max-lag`
    pub max_lag: Option<Duration>,
}

/// Facts about a Sentinel group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupFacts {
    /// The address of its master.
    pub master: String,
    /// The number of Sentinels listed in the URL.
    pub listed: usize,
    /// How many of them name this master.
    pub naming: usize,
    /// What the others report.
    pub others: Vec<String>,
    /// The number of Sentinels that they know themselves.
    pub known: Option<usize>,
    /// The quorum of the group: how many of them must find a master down before a failover.
    pub quorum: Option<usize>,
    /// After how long they find it down.
    pub down_after: Option<Duration>,
    /// The number of replicas that may be promoted: attached, and with a `replica-priority` above
    /// zero.
    pub promotable: Option<usize>,
    /// `min-replicas-max-lag`
    pub max_lag: Option<Duration>,
    /// Why the master is unsafe when partitioned.
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
    /// Hidden from this user.
    Unknown,
    /// It belongs to no cluster.
    None,
    /// A cluster is being created.
    Pending,
    /// Its cluster was replaced by another.
    Replaced,
    /// It is one of these nodes, whose clients agree on this `max_ttl`.
    #[non_exhaustive]
    Member {
        /// The addresses of all its nodes, sorted.
        nodes: Vec<String>,
        /// The maximum TTL of any lock.
        max_ttl: Duration,
    },
}

/// The kind of connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkKind {
    /// Over TLS.
    Tls,
    /// Over a Unix socket.
    Unix,
    /// Plaintext, within this machine.
    Loopback,
    /// Plaintext, over a network.
    Plain,
}

/// A permission that a user of a server lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingRight {
    /// The command.
    pub command: String,
    /// The `ACL SETUSER` rule that grants it.
    pub rule: String,
    /// What it is needed for.
    pub needed_for: NeededFor,
}

/// What a permission is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NeededFor {
    /// To acquire any lock.
    Locks,
    /// To acquire reentrant locks.
    Reentrant,
    /// To wake waiters; without it they poll once a second.
    Waking,
    /// To wake waiters within one shard of a Redis Cluster; without it every wake-up goes to all its nodes.
    WakingInShard,
    /// To check the server.
    Checks,
    /// To list locks.
    Listing,
}

/// Facts about a lock file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FileFacts {
    /// The version of SQLite.
    pub sqlite: &'static str,
    /// Its size.
    pub bytes: Option<u64>,
    /// The number of locks in it.
    pub locks: usize,
    /// Whether users other than its owner and group may write it.
    pub writable_by_all: bool,
    /// Whether dead holder processes can be detected.
    pub tells_processes: bool,
    /// Whether a reboot can be detected.
    pub tells_boots: bool,
    /// How long inspecting a lock takes: the median of a few.
    pub round_trip: Duration,
}

/// The median.
#[cfg(any(feature = "redis", feature = "sqlite"))]
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
