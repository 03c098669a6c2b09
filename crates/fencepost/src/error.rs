//! [`Error`]: everything that can go wrong, with what the user needs to act: who holds the lock,
//! for how long, and each node's own reason.
//!
//! No message may show a password.

use std::fmt;
use std::time::Duration;

use crate::name::LockName;
use crate::ttl::Readable;
use crate::value::Owner;

/// What went wrong.
///
/// Printed with `{}` it is one line; with `{:#}`, an error that lists nodes gives each of them a line
/// of its own.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else holds the lock.
    #[error("lock \"{name}\" is held by {by}{}", still(*remaining))]
    Held {
        /// The lock.
        name: LockName,
        /// Who holds it.
        by: Owner,
        /// How long still, if it is not extended or released before. `None` when it never expires.
        remaining: Option<Duration>,
    },

    /// Too few nodes answered. Nobody is known to hold the lock.
    #[error(fmt = no_quorum)]
    NoQuorum {
        /// The lock.
        name: LockName,
        /// How many nodes have to agree.
        needed: usize,
        /// What each node said, in the order in which they were configured.
        nodes: Vec<NodeReport>,
    },

    /// Fewer than a majority of the nodes could be reached when the client connected.
    #[error(fmt = unreachable_store)]
    Unreachable {
        /// How many nodes have to agree.
        needed: usize,
        /// What each node said, in the order in which they were configured.
        nodes: Vec<NodeReport>,
    },

    /// A majority agreed, but so late that nothing of the TTL is left to rely on.
    #[error(
        "lock \"{name}\" was granted too late: it took {} of a TTL of {}; \
         use a longer TTL or faster nodes",
        Readable(*took), Readable(*ttl)
    )]
    TooLate {
        /// The lock.
        name: LockName,
        /// How long the attempt took.
        took: Duration,
        /// The TTL that was asked for.
        ttl: Duration,
    },

    /// The lease has ended: its time ran out, or a majority of nodes no longer has it.
    #[error("the lease on lock \"{name}\" is lost: {why}")]
    Lost {
        /// The lock.
        name: LockName,
        /// How it was lost.
        why: LossReason,
    },

    /// A reader cannot become a writer.
    #[error(
        "a reader of lock \"{name}\" cannot become its writer: two readers that wait for that would \
         wait for each other for ever; release it and take the lock to write, then look again at \
         what was read, because another may have written in between"
    )]
    UpgradeRefused {
        /// The lock.
        name: LockName,
    },

    /// A latch or a barrier did not open while it was waited for.
    #[error(
        "\"{name}\" did not open in time: {missing} of {all} {} missing",
        if *missing == 1 { "is" } else { "are" }
    )]
    NotOpen {
        /// The latch or the barrier.
        name: LockName,
        /// How many were still to come.
        missing: usize,
        /// Of how many.
        all: usize,
    },

    /// All places of a barrier are taken by others.
    #[error(
        "the barrier \"{name}\" has no place left: all {all} are taken by others; a name is good \
         for one round, so give the next round another one"
    )]
    NoPlace {
        /// The barrier.
        name: LockName,
        /// How many places it has.
        all: usize,
    },

    /// The name cannot be a lock's name.
    #[error("the lock name {name:?} cannot be used: {why}")]
    InvalidName {
        /// The beginning of the name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },

    /// The TTL cannot be used.
    #[error("a TTL of {} cannot be used: {why}", Readable(*ttl))]
    InvalidTtl {
        /// The TTL.
        ttl: Duration,
        /// What is wrong with it, and what would be right.
        why: String,
    },

    /// A URL cannot be used. Its password, if it has one, is not shown.
    #[error("the URL {url} cannot be used: {why}")]
    InvalidUrl {
        /// The URL, without its password.
        url: String,
        /// What is wrong with it, and what would be right.
        why: String,
    },

    /// An option has a value that cannot be used.
    #[error("the option {option} cannot be used: {why}")]
    InvalidOption {
        /// Its name on the builder.
        option: &'static str,
        /// What is wrong with it, and what would be right.
        why: String,
    },

    /// The store could not be opened.
    #[error("the store {store} cannot be opened: {why}")]
    Store {
        /// Which one.
        store: String,
        /// Why.
        why: String,
    },

    /// There is no tokio runtime to work on.
    #[error(
        "fencepost needs a running tokio runtime: call it from async code on tokio, or use \
         fencepost::blocking"
    )]
    NoRuntime,

    /// The background thread of a blocking client is not there, or cannot be waited for.
    #[error("no background thread works for this client: {why}")]
    NoThread {
        /// Why, and what would be right.
        why: String,
    },

    /// The operating system gave no random numbers.
    #[error("the operating system gave no random numbers")]
    NoRandomness,
}

impl Error {
    /// Whether somebody else holds the lock: waiting may help.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// Whether too few nodes could be asked.
    #[must_use]
    pub fn is_no_quorum(&self) -> bool {
        matches!(self, Self::NoQuorum { .. } | Self::Unreachable { .. })
    }

    /// Whether a latch or a barrier did not open in time: waiting again may help.
    #[must_use]
    pub fn is_not_open(&self) -> bool {
        matches!(self, Self::NotOpen { .. })
    }

    /// Whether the lease has ended.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

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

/// What one node said, for [`Error::NoQuorum`].
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
    Withdrawn,
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
            Self::Withdrawn => f.write_str("given up before it was reached"),
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

fn still(remaining: Option<Duration>) -> impl fmt::Display {
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

fn no_quorum(
    name: &LockName,
    needed: &usize,
    nodes: &[NodeReport],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let all = nodes.len();
    write!(
        f,
        "no quorum for lock \"{name}\": {needed} of {all} nodes have to agree"
    )?;
    list(nodes, f)
}

fn unreachable_store(
    needed: &usize,
    nodes: &[NodeReport],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let all = nodes.len();
    write!(f, "cannot connect: {needed} of {all} nodes are needed")?;
    list(nodes, f)
}

fn list(nodes: &[NodeReport], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let width = nodes.iter().map(|report| report.node.chars().count());
    let width = width.max().unwrap_or(0);
    for (i, NodeReport { node, outcome }) in nodes.iter().enumerate() {
        match (f.alternate(), i) {
            (true, _) => write!(f, "\n  {node:width$}  {outcome}")?,
            (false, 0) => write!(f, "; {node}: {outcome}")?,
            (false, _) => write!(f, ", {node}: {outcome}")?,
        }
    }
    Ok(())
}
