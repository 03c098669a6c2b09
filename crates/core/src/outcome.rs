//! A node's outcome and the reason of a loss: input of the decisions, and what people read of them.

use std::fmt;
use std::time::Duration;

use crate::words::{Owner, Readable};

/// How a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// Its time ran out without being renewed, or the nodes forgot it.
    Expired,
    /// Another has acquired it, and may have released it again.
    Stolen {
        /// Who has it, or took it from this lease.
        by: Owner,
    },
    /// It could not be renewed in time: too few nodes answered.
    NoQuorum,
    /// It was renewed as long and as often as it was allowed to be.
    MaxHold,
    /// The process or the machine slept past the end, or its runtime was blocked for that long.
    Suspended,
    /// The runtime that renewed it is gone.
    ClientGone,
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
        }
    }
}

impl fmt::Display for LossReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired => f.write_str("it expired"),
            Self::Stolen { by } => write!(f, "{by} acquired it"),
            Self::NoQuorum => f.write_str("too few nodes answered to renew it in time"),
            Self::MaxHold => f.write_str("it was held as long as it may be"),
            Self::Suspended => f.write_str("this process or machine slept past its end"),
            Self::ClientGone => f.write_str("the runtime that renewed it is gone"),
        }
    }
}

/// What one node said, where an error lists the nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    /// The node's address, without a password.
    pub node: String,
    /// What it said.
    pub outcome: NodeOutcome,
}

/// What a node had said when the outcome was decided.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeOutcome {
    /// It did what was asked.
    Agreed,
    /// Another holder has the lock there.
    Held {
        /// Who.
        by: Owner,
        /// How long still. `None` when it never expires.
        remaining: Option<Duration>,
    },
    /// It did not hold the lock for us.
    NotHeld,
    /// It had been released before it reached the node.
    Tombstoned,
    /// It had not answered yet, and its answer could no longer change anything.
    Pending,
    /// It could not be asked, or answered with an error.
    Failed(NodeError),
}

impl fmt::Display for NodeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agreed => f.write_str("agreed"),
            Self::Held { by, remaining } => write!(f, "held by {by}{}", still(*remaining)),
            Self::NotHeld => f.write_str("does not have it"),
            Self::Tombstoned => f.write_str("given up before it was reached"),
            Self::Pending => f.write_str("no answer yet"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Why a node could not be asked, or does not vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// No answer in time.
    #[error("no answer within {}", Readable(*.0))]
    Timeout(Duration),
    /// No connection.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// The connection broke; the command may or may not have been carried out.
    #[error("the connection broke: {0}")]
    Disconnected(String),
    /// Wrong user or password, or none where one is needed.
    #[error("not logged in: {0}; check user and password in the URL")]
    Auth(String),
    /// The user may not do what a lock needs.
    #[error(
        "not permitted: {0}; the user needs +@scripting +@read +@write +time on the lock's keys"
    )]
    Permission(String),
    /// A replica: it must not vote.
    #[error("it is a replica; give the address of its master")]
    Replica,
    /// A Sentinel, which stores nothing.
    #[error(
        "it is a Sentinel, not a server that stores locks; write \
         redis+sentinel://SENTINEL1,SENTINEL2,SENTINEL3/MASTER"
    )]
    Sentinel,
    /// One of many servers that share the keys.
    #[error(
        "it is a node of a Redis Cluster, which has only some of the keys; write \
         redis+cluster://NODE1,NODE2,NODE3"
    )]
    ClusterNode,
    /// A server that was listed as a node of a Redis Cluster, and is none.
    #[error("it is not a node of a Redis Cluster (cluster-enabled no); write redis://")]
    NoClusterNode,
    /// The Redis Cluster does not serve the lock's slot: it lacks a majority of its masters, or the slot's
    /// shard.
    #[error("the Redis Cluster is down for this lock: {0}")]
    ClusterDown(String),
    /// The lock's slot is on its way from one shard of a Redis Cluster to another.
    #[error("slot {0} is being migrated; its locks answer again when it has arrived")]
    Migrating(u16),
    /// No majority of those who know names it, so that another may have taken its place: a reply that came
    /// nevertheless does not count.
    #[error("not named by a majority of its {0}")]
    Unnamed(String),
    /// Fewer replicas than configured had it in time; the server has it nevertheless.
    #[error(
        "written to {have} of {needed} replicas in time; attach replicas, or lower replicas= in the URL"
    )]
    TooFewReplicas {
        /// How many had it.
        have: u32,
        /// How many were to have it.
        needed: u32,
    },
    /// It would go on granting locks where it is cut off, while another takes its place.
    #[error("takes writes when cut off from its replicas: {0}")]
    Unfenced(String),
    /// Its ACL hides what it is, and it would be one voter of several.
    #[error(
        "unknown whether it is a master, because INFO is hidden from this user; \
         run ACL SETUSER <user> +info"
    )]
    HidesInfo,
    /// The process was forked after the client was made.
    #[error("this client belongs to the process before the fork; make a client in the child")]
    Forked,
    /// Another configured address reaches the same server.
    #[error("it is the same server as {0}; give each server once")]
    SameServer(String),
    /// It may evict locks to make room.
    #[error("it evicts keys (maxmemory-policy {0}); set maxmemory-policy noeviction")]
    Evicts(String),
    /// It may have forgotten locks: it was restarted or flushed, or its data were replaced.
    #[error(
        "may have forgotten locks (restarted, flushed, failed over or new); votes again by itself in {}",
        Readable(*.0)
    )]
    Quarantined(Duration),
    /// It, or another node of this client, belongs to another cluster, or to this one on other terms.
    #[error("refused: {0}")]
    Differs(String),
    /// The cluster has not been made yet.
    #[error("no cluster yet: {0}; a new cluster needs all its nodes once")]
    NoCluster(String),
    /// It was to be promised that every write is synced, and it is not.
    #[error(
        "does not sync every write; set appendonly yes, appendfsync always and \
         no-appendfsync-on-rewrite no, and wait until the append-only file is complete"
    )]
    NotDurable,
    /// A lock service refuses it, and will again: who asks has no right, or it cannot be used.
    #[error("refused: {0}")]
    Refused(String),
    /// It refuses writes.
    #[error("read-only: {0}")]
    ReadOnly(String),
    /// It cannot write to its disk, and therefore refuses writes.
    #[error("cannot save to its disk: {0}")]
    CannotSave(String),
    /// It does not do what a lock needs, and never will.
    #[error("not suitable for locks: {0}")]
    Unsuitable(String),
    /// It has no memory left.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// It is still loading its data.
    #[error("still loading its data")]
    Loading,
    /// A script that runs for long keeps it busy.
    #[error("busy with a script that runs too long")]
    Busy,
    /// The lock's key has been used for something else, or for a lock of another kind.
    #[error("the lock's key is in use for something that is not a lock of this kind: {0}")]
    WrongType(String),
    /// The counter cannot grow any more.
    #[error(
        "the fence register has no number left for this lock; remove its entry once no holder is left (on Redis: ZREM fencepost:fences KEY)"
    )]
    Exhausted,
    /// The store on disk failed.
    #[error("the store failed: {0}")]
    Store(String),
    /// The store on disk cannot be used as it is, and nothing was carried out: a full disk, or a
    /// process that was forked. Only people can mend it.
    #[error("{0}")]
    Unusable(String),
    /// Anything else that it said.
    #[error("{0}")]
    Other(String),
}

impl NodeError {
    /// Whether the command may have been carried out all the same, or may still be.
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

    /// Whether only people can mend it: waiting does not.
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
                | Self::HidesInfo
                | Self::Differs(_)
                | Self::NotDurable
                | Self::Forked
                | Self::CannotSave(_)
                | Self::Unsuitable(_)
                | Self::Unusable(_)
                | Self::WrongType(_)
                | Self::Exhausted
        )
    }

    /// Whether asking again may help once the node is back.
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

/// What is left of a hold, behind who has it.
pub fn still(remaining: Option<Duration>) -> impl fmt::Display {
    struct Still(Option<Duration>);
    impl fmt::Display for Still {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                Some(time) => write!(f, " for another {}", Readable(time)),
                None => f.write_str(", without an end"),
            }
        }
    }
    Still(remaining)
}
