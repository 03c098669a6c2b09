//! What a node said, and how a lease was lost: what decisions are told, and what people read of them.

use std::fmt;
use std::time::Duration;

use crate::words::{Owner, Readable};

/// How a lease was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// Its time ran out without being renewed, or the nodes forgot it.
    Expired,
    /// Somebody else has it now.
    Stolen {
        /// Who.
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
            Self::Stolen { by } => write!(f, "{by} has it now"),
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
    /// Somebody else holds the lock there.
    Held {
        /// Who.
        by: Owner,
        /// How long still. `None` when it never expires.
        remaining: Option<Duration>,
    },
    /// It did not hold the lock for us.
    NotHeld,
    /// It had been given up before the node heard of it.
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
    /// Another configured address reaches the same server.
    #[error("it is the same server as {0}; give each server once")]
    SameServer(String),
    /// It may evict locks to make room.
    #[error("it evicts keys (maxmemory-policy {0}); set maxmemory-policy noeviction")]
    Evicts(String),
    /// It was restarted a short while ago and may have forgotten locks.
    #[error(
        "restarted a short while ago and may have forgotten locks, votes again in {}; \
         appendonly yes with appendfsync always avoids the wait, and so does \
         RestartPolicy::Trust where nothing was lost",
        Readable(*.0)
    )]
    Quarantined(Duration),
    /// It takes no writes.
    #[error("read-only: {0}")]
    ReadOnly(String),
    /// It has no memory left.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// It is still loading its data.
    #[error("still loading its data")]
    Loading,
    /// A script of somebody's keeps it busy.
    #[error("busy with a script that runs too long")]
    Busy,
    /// The lock's key has been used for something else, or for a lock of another kind.
    #[error("the lock's key is in use for something that is not a lock of this kind: {0}")]
    WrongType(String),
    /// The counter cannot grow any more.
    #[error("the token counter is used up; delete the lock's :fence key once no holder is left")]
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
            Self::Timeout(_) | Self::Disconnected(_) | Self::Store(_) | Self::Other(_)
        )
    }

    /// Whether asking again may help once the node is back.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.is_uncertain() || matches!(self, Self::Unreachable(_) | Self::Loading | Self::Busy)
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
