//! The outcome at a node and the reason of a loss: input of the decisions, and what users read.

use std::fmt;
use std::time::Duration;

use crate::words::{Owner, Readable};

/// How a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// Its time was up: it was not renewed.
    Expired,
    /// Another client acquired it, and may have released it again.
    Stolen {
        /// The client that holds it or stole it.
        by: Owner,
    },
    /// Too few nodes answered to renew it in time.
    NoQuorum,
    /// It reached its maximum hold time or number of renewals.
    MaxHold,
    /// The process or machine was suspended past the deadline, or its runtime was blocked for that
    /// long.
    Suspended,
    /// The async runtime that renewed it has shut down.
    ClientGone,
    /// A majority of the nodes no longer holds it, and nobody saw why: they were flushed, or its key was deleted. Of a
    /// detached lock also: it expired, or was released.
    Unknown,
}

impl LossReason {
    /// The reason in one word, for logs and metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Stolen { .. } => "stolen",
            Self::NoQuorum => "no_quorum",
            Self::MaxHold => "max_hold",
            Self::Suspended => "suspended",
            Self::ClientGone => "client_gone",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("it expired"),
            Self::Stolen { by } => write!(f, "{by} acquired it"),
            Self::NoQuorum => f.write_str("too few nodes answered to renew it in time"),
            Self::MaxHold => f.write_str("it reached its maximum hold time"),
            Self::Suspended => {
                f.write_str("this process or machine was suspended past its deadline")
            }
            Self::ClientGone => f.write_str("the async runtime that renewed it has shut down"),
            Self::Unknown => f.write_str(
                "a majority of the nodes no longer holds it; the cause was not observed",
            ),
        }
    }
}

/// One node's outcome, in an error that lists the nodes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node's address, without a password.
    pub node: String,
    /// The outcome.
    pub outcome: NodeOutcome,
}

impl NodeReport {
    /// A report of the node at this address.
    #[must_use]
    pub fn new(node: impl Into<String>, outcome: NodeOutcome) -> Self {
        Self {
            node: node.into(),
            outcome,
        }
    }
}

/// The outcome at one node when the request was decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeOutcome {
    /// It agreed.
    Agreed,
    /// Another client holds the lock there.
    Held {
        /// The holder.
        by: Owner,
        /// Remaining time. `None` without an expiry.
        remaining: Option<Duration>,
    },
    /// It did not hold the lock for this client.
    NotHeld,
    /// The attempt was released before its command arrived.
    Tombstoned,
    /// It had not answered when the outcome was already decided.
    Pending,
    /// The call failed.
    Failed(NodeError),
}

impl fmt::Display for NodeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agreed => f.write_str("agreed"),
            Self::Held { by, remaining } => write!(f, "held by {by}{}", expiry(*remaining)),
            Self::NotHeld => f.write_str("not held"),
            Self::Tombstoned => f.write_str("released before the request arrived"),
            Self::Pending => f.write_str("no answer yet"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Why a call to a node failed, or why the node does not vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// No reply in time.
    #[error("no answer within {}", Readable(*.0))]
    Timeout(Duration),
    /// No connection.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// The connection broke; the command may or may not have run.
    #[error("the connection broke: {0}")]
    Disconnected(String),
    /// Wrong or missing credentials.
    #[error("authentication failed: {0}; check the user and password in the URL")]
    Auth(String),
    /// The user lacks a permission that locks need.
    #[error(
        "not permitted: {0}; the user needs +@scripting +@read +@write +time on the lock's keys, \
         and +wait with replicas="
    )]
    Permission(String),
    /// A replica must not vote.
    #[error("it is a replica; use the address of its master")]
    Replica,
    /// A Sentinel stores no locks.
    #[error(
        "it is a Sentinel, not a server that stores locks; write \
         redis+sentinel://SENTINEL1,SENTINEL2,SENTINEL3/MASTER"
    )]
    Sentinel,
    /// A node of a Redis Cluster has only some of the keys.
    #[error(
        "it is a node of a Redis Cluster, which has only some of the keys; write \
         redis+cluster://NODE1,NODE2,NODE3"
    )]
    ClusterNode,
    /// A server listed as a node of a Redis Cluster that is not one.
    #[error("it is not a node of a Redis Cluster (cluster-enabled no); write redis://")]
    NoClusterNode,
    /// The Redis Cluster does not serve the lock's slot: a majority of its masters or the slot's
    /// shard is down.
    #[error("the Redis Cluster is down for this lock: {0}")]
    ClusterDown(String),
    /// The lock's slot is migrating between shards of a Redis Cluster.
    #[error("slot {0} is being migrated; its locks are available again when the migration ends")]
    Migrating(u16),
    /// No majority of the Sentinels or listed nodes names it, so another master may have replaced
    /// it. A reply from it does not count.
    #[error("not named by a majority of its {0}")]
    Unnamed(String),
    /// Fewer replicas than configured acknowledged the write in time; the server itself has it.
    #[error(
        "written to {have} of {needed} replicas in time; attach replicas, or lower replicas= in the URL"
    )]
    TooFewReplicas {
        /// Replicas that acknowledged.
        have: u32,
        /// Replicas required.
        needed: u32,
    },
    /// It would keep granting locks while partitioned, after another master has replaced it.
    #[error("accepts writes while partitioned from its replicas: {0}")]
    Unfenced(String),
    /// Its ACL hides whether it would.
    #[error("cannot tell whether it stops accepting writes when partitioned: {0}")]
    HidesFencing(String),
    /// Its ACL hides its role, and it would be one voter of several.
    #[error(
        "cannot tell whether it is a master: this user may not run INFO; \
         run ACL SETUSER <user> +info"
    )]
    HidesInfo,
    /// The process forked after the client was created.
    #[error("this client was created before a fork; create a client in the child process")]
    Forked,
    /// Another configured address is the same server.
    #[error("duplicate of {0}; list each server once")]
    SameServer(String),
    /// It may evict locks.
    #[error("it evicts keys (maxmemory-policy {0}); set maxmemory-policy noeviction")]
    Evicts(String),
    /// It may have forgotten locks: it was restarted or flushed, or its data was replaced.
    #[error(
        "may have forgotten locks (restarted, flushed, failed over or new); votes again by itself in {}",
        Readable(*.0)
    )]
    Quarantined(Duration),
    /// It, or another node of this client, belongs to another cluster, or to this one with other
    /// settings.
    #[error("refused: {0}")]
    Differs(String),
    /// The cluster does not exist yet.
    #[error("no cluster yet: {0}; a new cluster needs all its nodes once")]
    NoCluster(String),
    /// Configured as durable, but it does not sync every write.
    #[error(
        "does not sync every write; set appendonly yes, appendfsync always and \
         no-appendfsync-on-rewrite no, and wait until the append-only file is complete"
    )]
    NotDurable,
    /// Configured as durable, but its ACL hides whether it syncs every write.
    #[error(
        "cannot see whether every write is synced: this user may not run CONFIG GET; \
         run ACL SETUSER <user> +config|get"
    )]
    HidesSync,
    /// A lock service refuses the request permanently: no permission, or not supported.
    #[error("refused: {0}")]
    Refused(String),
    /// It refuses writes.
    #[error("read-only: {0}")]
    ReadOnly(String),
    /// It cannot write to disk, and refuses writes because of that.
    #[error("cannot write to disk: {0}")]
    CannotSave(String),
    /// It lacks something that locks need.
    #[error("not suitable for locks: {0}")]
    Unsuitable(String),
    /// It is out of memory.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// It is still loading its data.
    #[error("still loading its data")]
    Loading,
    /// It is busy with a slow script.
    #[error("busy running a slow script")]
    Busy,
    /// The key holds something else, or a lock of another kind.
    #[error("the key holds something other than a lock of this kind: {0}")]
    WrongType(String),
    /// The fence register is exhausted.
    #[error(
        "fencing tokens are exhausted for this lock; remove its fence register once no client holds it (on Redis: ZREM fencepost:fences KEY)"
    )]
    Exhausted,
    /// The store on disk failed.
    #[error("the store failed: {0}")]
    Store(String),
    /// The store on disk is unusable and the command did not run: a full disk, or a forked process.
    /// Needs an operator.
    #[error("{0}")]
    Unusable(String),
    /// Any other error.
    #[error("{0}")]
    Other(String),
}

impl NodeError {
    /// Whether the command may have run all the same, or may still run.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Timeout(_)
                | Self::Disconnected(_)
                | Self::Unnamed(_)
                | Self::TooFewReplicas { .. }
                | Self::Store(_)
                | Self::Other(_)
        )
    }

    /// Whether it needs an operator: waiting does not help.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Self::Permission(_)
                | Self::Refused(_)
                | Self::SameServer(_)
                | Self::Evicts(_)
                | Self::Sentinel
                | Self::ClusterNode
                | Self::NoClusterNode
                | Self::Unfenced(_)
                | Self::HidesFencing(_)
                | Self::HidesInfo
                | Self::Differs(_)
                | Self::NotDurable
                | Self::HidesSync
                | Self::Forked
                | Self::CannotSave(_)
                | Self::Unsuitable(_)
                | Self::Unusable(_)
                | Self::WrongType(_)
                | Self::Exhausted
        )
    }

    /// Whether a retry may succeed once the node is back.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.is_uncertain()
            || matches!(
                self,
                Self::Unreachable(_)
                    | Self::Loading
                    | Self::Busy
                    | Self::NoCluster(_)
                    | Self::ClusterDown(_)
                    | Self::Migrating(_)
            )
    }
}

/// The remaining time of a hold, to print after its holder.
pub fn expiry(remaining: Option<Duration>) -> impl fmt::Display {
    struct Expiry(Option<Duration>);
    impl fmt::Display for Expiry {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                Some(time) => write!(f, " (expires in {})", Readable(time)),
                None => f.write_str(" (no expiry)"),
            }
        }
    }
    Expiry(remaining)
}
