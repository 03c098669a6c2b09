//! [`Error`]: everything that can go wrong, with what the user needs to act: who holds the lock,
//! for how long, and each node's own reason.
//!
//! No message may show a password.

use std::fmt;
use std::time::Duration;

use fencepost_core::outcome::still;
use fencepost_core::{
    InvalidLabel, InvalidName, InvalidShare, InvalidTtl, LockName, Owner, Readable,
};
pub use fencepost_core::{LossReason, NodeError, NodeOutcome, NodeReport};

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

impl From<InvalidName> for Error {
    fn from(InvalidName { name, why }: InvalidName) -> Self {
        Self::InvalidName { name, why }
    }
}

impl From<InvalidTtl> for Error {
    fn from(InvalidTtl { ttl, why }: InvalidTtl) -> Self {
        Self::InvalidTtl {
            ttl,
            why: why.into(),
        }
    }
}

impl From<InvalidLabel> for Error {
    fn from(error: InvalidLabel) -> Self {
        Self::InvalidOption {
            option: "owner",
            why: error.to_string(),
        }
    }
}

impl From<InvalidShare> for Error {
    fn from(error: InvalidShare) -> Self {
        Self::InvalidOption {
            option: "drift",
            why: error.to_string(),
        }
    }
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
