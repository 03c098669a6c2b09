//! [`Error`]: everything that can fail, with what the user needs to act: who holds the lock, for
//! how long, and each node's own reason.
//!
//! No message may show a password or name a Rust item: the program prints them.

use std::fmt;
use std::time::{Duration, SystemTime};

use fencepost_core::lock::Holder;
use fencepost_core::outcome::expiry;
use fencepost_core::{
    FencingToken, InvalidDrift, InvalidName, InvalidOwner, InvalidTtl, LockName, Owner, Readable,
};
pub use fencepost_core::{LossReason, NodeError, NodeOutcome, NodeReport};

/// The error of this crate.
///
/// [`kind`](Self::kind) classifies it; the other methods give details. With `{}` it prints as one
/// line; with `{:#}`, an error that lists nodes prints one line per node.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// use std::time::Duration;
/// use fencepost::ErrorKind;
///
/// let lease = locks.lock("job").await?;
/// let held = locks.try_lock("job").await.unwrap_err();
/// assert_eq!(held.kind(), ErrorKind::Held);
/// println!("held by {}", held.holder().expect("known").owner);
///
/// let timeout = locks.lock("job").timeout(Duration::from_millis(20)).await.unwrap_err();
/// assert!(timeout.is_timeout() && timeout.holder().is_some());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Error(Cause);

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock is held, and this was a single attempt.
    Held,
    /// The wait timed out: the lock was held the whole time.
    Timeout,
    /// Too few nodes answered. No holder of the lock is known.
    NoQuorum,
    /// Fewer than a majority of the nodes were reachable when the client connected.
    Unreachable,
    /// A majority agreed, but too late: nothing of the TTL is left.
    TooLate,
    /// The lease has ended: it expired, or a majority of the nodes no longer holds it.
    Lost,
    /// A latch or a barrier did not open in time.
    NotOpen,
    /// All places of a barrier are taken.
    NoPlace,
    /// The lock name is invalid.
    InvalidName,
    /// The TTL is invalid.
    InvalidTtl,
    /// A URL is invalid.
    InvalidUrl,
    /// An option has an invalid value.
    InvalidOption,
    /// The store could not be opened.
    Store,
    /// No tokio runtime is running.
    NoRuntime,
    /// The client cannot block this thread, or its background thread is gone.
    NoThread,
    /// The operating system returned no random numbers.
    NoRandomness,
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderStatus {
    /// The owner label.
    pub owner: Owner,
    /// Time until it expires, unless extended. `None` without an expiry.
    pub remaining: Option<Duration>,
    /// The holder's own token. `None` for a client of another library, and for readers.
    pub token: Option<FencingToken>,
}

impl HolderStatus {
    /// The holder as one node reports it.
    pub(crate) fn of(holder: &Holder) -> Self {
        Self {
            owner: holder.value.owner(),
            remaining: holder.remaining,
            token: holder.token,
        }
    }

    /// Approximately since when it is held: the holder's own clock when it sent the request, which
    /// its token carries. `None` if the token carries no time.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        self.token?.proposed_at(SystemTime::now())
    }
}

/// What blocks an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeldBy {
    /// This client holds the lock.
    One(HolderStatus),
    /// The same, of an attempt whose caller goes on waiting: for how long was not asked.
    Unasked(Owner),
    /// These clients hold it on some nodes each, none on a majority.
    Split(Vec<Owner>),
    /// The lock is free, but no token could be certified: concurrent attempts were faster each
    /// time.
    Overtaken,
}

impl HeldBy {
    fn write(&self, name: &LockName, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(HolderStatus {
                owner, remaining, ..
            }) => write!(
                f,
                "lock \"{name}\" is held by {owner}{}",
                expiry(*remaining)
            ),
            Self::Unasked(owner) => write!(f, "lock \"{name}\" is held by {owner}"),
            Self::Split(owners) => {
                write!(f, "lock \"{name}\" is split between ")?;
                for (place, owner) in owners.iter().enumerate() {
                    let link = if place == 0 { "" } else { " and " };
                    write!(f, "{link}{owner}")?;
                }
                f.write_str("; no holder has a majority of the nodes")
            }
            Self::Overtaken => write!(
                f,
                "no token could be certified for lock \"{name}\": concurrent attempts raised the \
                 fence registers; retry"
            ),
        }
    }
}

/// The cause of an error, for the code that creates it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum Cause {
    #[error(fmt = held)]
    Held {
        name: LockName,
        by: HeldBy,
        /// The limit of the wait, unless it was a single attempt.
        waited: Option<Duration>,
    },
    #[error(fmt = no_quorum)]
    NoQuorum {
        name: LockName,
        needed: usize,
        nodes: Vec<NodeReport>,
    },
    #[error(fmt = unreachable_store)]
    Unreachable {
        needed: usize,
        nodes: Vec<NodeReport>,
    },
    // Only clusters of servers are replaced.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    #[error(fmt = half_replaced)]
    HalfReplaced {
        needed: usize,
        nodes: Vec<NodeReport>,
    },
    #[error(
        "lock \"{name}\" was granted too late: it took {} of a TTL of {}; \
         use a longer TTL or faster nodes",
        Readable(*took), Readable(*ttl)
    )]
    TooLate {
        name: LockName,
        took: Duration,
        ttl: Duration,
    },
    #[error("the lease on lock \"{name}\" is lost: {why}")]
    Lost { name: LockName, why: LossReason },
    #[error(
        "\"{name}\" did not open in time: {missing} of {all} {} missing",
        if *missing == 1 { "is" } else { "are" }
    )]
    NotOpen {
        name: LockName,
        missing: usize,
        all: usize,
    },
    #[error(
        "barrier \"{name}\" is full: all {all} places are taken; use a new name for each round"
    )]
    NoPlace { name: LockName, all: usize },
    #[error("invalid lock name {name:?}: {why}")]
    InvalidName { name: String, why: &'static str },
    #[error("invalid TTL {}: {why}", Readable(*ttl))]
    InvalidTtl { ttl: Duration, why: String },
    #[error("invalid URL {url}: {why}")]
    InvalidUrl { url: String, why: String },
    #[error("invalid option {option}: {why}")]
    InvalidOption { option: &'static str, why: String },
    #[cfg_attr(
        not(feature = "sqlite"),
        allow(dead_code, reason = "only a file is opened")
    )]
    #[error("cannot open the store {store}: {why}")]
    Store { store: String, why: String },
    #[error("no tokio runtime is running: call this from async code, or make a blocking client")]
    NoRuntime,
    #[cfg_attr(not(feature = "blocking"), allow(dead_code))]
    #[error("cannot block this thread: {why}")]
    NoThread { why: String },
    #[error("the operating system returned no random numbers")]
    NoRandomness,
}

impl Error {
    /// The kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            Cause::Held { waited: None, .. } => ErrorKind::Held,
            Cause::Held { .. } => ErrorKind::Timeout,
            Cause::NoQuorum { .. } => ErrorKind::NoQuorum,
            Cause::Unreachable { .. } | Cause::HalfReplaced { .. } => ErrorKind::Unreachable,
            Cause::TooLate { .. } => ErrorKind::TooLate,
            Cause::Lost { .. } => ErrorKind::Lost,
            Cause::NotOpen { .. } => ErrorKind::NotOpen,
            Cause::NoPlace { .. } => ErrorKind::NoPlace,
            Cause::InvalidName { .. } => ErrorKind::InvalidName,
            Cause::InvalidTtl { .. } => ErrorKind::InvalidTtl,
            Cause::InvalidUrl { .. } => ErrorKind::InvalidUrl,
            Cause::InvalidOption { .. } => ErrorKind::InvalidOption,
            Cause::Store { .. } => ErrorKind::Store,
            Cause::NoRuntime => ErrorKind::NoRuntime,
            Cause::NoThread { .. } => ErrorKind::NoThread,
            Cause::NoRandomness => ErrorKind::NoRandomness,
        }
    }

    /// The lock, latch or barrier concerned, if any.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.0 {
            Cause::Held { name, .. }
            | Cause::NoQuorum { name, .. }
            | Cause::TooLate { name, .. }
            | Cause::Lost { name, .. }
            | Cause::NotOpen { name, .. }
            | Cause::NoPlace { name, .. } => Some(name.as_str()),
            _ => None,
        }
    }

    /// The holder, if the lock is held or the wait for it timed out. `None` if several attempts
    /// hold it on some nodes each, none on a majority.
    #[must_use]
    pub fn holder(&self) -> Option<&HolderStatus> {
        match &self.0 {
            Cause::Held {
                by: HeldBy::One(holder),
                ..
            } => Some(holder),
            _ => None,
        }
    }

    /// Each node's report, in configured order, if too few agreed.
    #[must_use]
    pub fn nodes(&self) -> &[NodeReport] {
        match &self.0 {
            Cause::NoQuorum { nodes, .. }
            | Cause::Unreachable { nodes, .. }
            | Cause::HalfReplaced { nodes, .. } => nodes,
            _ => &[],
        }
    }

    /// Why the lease was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<&LossReason> {
        match &self.0 {
            Cause::Lost { why, .. } => Some(why),
            _ => None,
        }
    }

    /// The name of the invalid option of a request or builder.
    #[must_use]
    pub fn option(&self) -> Option<&str> {
        match &self.0 {
            Cause::InvalidOption { option, .. } => Some(option),
            _ => None,
        }
    }

    /// The invalid name, TTL or URL as text. A URL is without its password.
    #[must_use]
    pub fn invalid_value(&self) -> Option<String> {
        match &self.0 {
            Cause::InvalidName { name, .. } => Some(name.clone()),
            Cause::InvalidTtl { ttl, .. } => Some(Readable(*ttl).to_string()),
            Cause::InvalidUrl { url, .. } => Some(url.clone()),
            _ => None,
        }
    }

    /// What is wrong with the invalid name, TTL, URL, option or store, and what would be valid.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match &self.0 {
            Cause::InvalidName { why, .. } => Some(why),
            Cause::InvalidTtl { why, .. }
            | Cause::InvalidUrl { why, .. }
            | Cause::InvalidOption { why, .. }
            | Cause::Store { why, .. }
            | Cause::NoThread { why } => Some(why),
            _ => None,
        }
    }

    /// Whether a single attempt found the lock held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.kind() == ErrorKind::Held
    }

    /// Whether a wait timed out: for a lock that was held, or a latch or barrier that did not open.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind(), ErrorKind::Timeout | ErrorKind::NotOpen)
    }

    /// Whether too few nodes answered.
    #[must_use]
    pub fn is_no_quorum(&self) -> bool {
        matches!(self.kind(), ErrorKind::NoQuorum | ErrorKind::Unreachable)
    }

    /// Whether the lease has ended.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::Lost
    }

    /// Whether the same request may succeed later, unchanged.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Held, NoQuorum, NotOpen, Timeout, TooLate, Unreachable};
        matches!(
            self.kind(),
            Held | Timeout | NoQuorum | Unreachable | TooLate | NotOpen
        )
    }

    /// The same error with every client in it named in another way: for a service, which shows nobody
    /// the value of a client of another library.
    #[doc(hidden)]
    #[must_use]
    pub fn naming(mut self, name: impl Fn(&Owner) -> Owner) -> Self {
        match &mut self.0 {
            Cause::Held { by, .. } => match by {
                HeldBy::One(holder) => holder.owner = name(&holder.owner),
                HeldBy::Unasked(owner) => *owner = name(owner),
                HeldBy::Split(owners) => owners.iter_mut().for_each(|it| *it = name(it)),
                HeldBy::Overtaken => {}
            },
            Cause::NoQuorum { nodes, .. } | Cause::Unreachable { nodes, .. } => {
                for node in nodes {
                    if let NodeOutcome::Held { by, .. } = &mut node.outcome {
                        *by = name(by);
                    }
                }
            }
            Cause::Lost {
                why: LossReason::Stolen { by },
                ..
            } => *by = name(by),
            _ => {}
        }
        self
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.0
    }

    /// Held, as seen by one attempt.
    pub(crate) fn held(name: LockName, holder: HolderStatus) -> Self {
        Self::not_free(name, HeldBy::One(holder))
    }

    /// Blocked by others.
    pub(crate) fn not_free(name: LockName, by: HeldBy) -> Self {
        Self(Cause::Held {
            name,
            by,
            waited: None,
        })
    }

    pub(crate) fn lost(name: LockName, why: LossReason) -> Self {
        Self(Cause::Lost { name, why })
    }

    /// The same error at the end of a wait with this limit. A limit of zero is a single attempt.
    pub(crate) fn after_wait(mut self, limit: Option<Duration>) -> Self {
        if let Cause::Held { waited, .. } = &mut self.0 {
            *waited = limit.filter(|limit| !limit.is_zero());
        }
        self
    }

    /// Whether the lock was held, with or without a wait.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.0, Cause::Held { .. })
    }
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self(cause)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

impl From<InvalidName> for Error {
    fn from(InvalidName { name, why }: InvalidName) -> Self {
        Self(Cause::InvalidName { name, why })
    }
}

impl From<InvalidTtl> for Error {
    fn from(InvalidTtl { ttl, why }: InvalidTtl) -> Self {
        Self(Cause::InvalidTtl {
            ttl,
            why: why.into(),
        })
    }
}

impl From<InvalidOwner> for Error {
    fn from(error: InvalidOwner) -> Self {
        Self(Cause::InvalidOption {
            option: "owner",
            why: error.to_string(),
        })
    }
}

impl From<InvalidDrift> for Error {
    fn from(error: InvalidDrift) -> Self {
        Self(Cause::InvalidOption {
            option: "drift",
            why: error.to_string(),
        })
    }
}

/// The error for what a lock service does not support.
pub(crate) fn not_offered(what: &str) -> Error {
    Error::from(Cause::InvalidOption {
        option: "store",
        why: format!("a lock service does not support {what}; connect to its nodes instead"),
    })
}

fn held(
    name: &LockName,
    by: &HeldBy,
    waited: &Option<Duration>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    if let Some(waited) = waited {
        write!(f, "timed out after {}: ", Readable(*waited))?;
    }
    by.write(name, f)
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

fn half_replaced(needed: &usize, nodes: &[NodeReport], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(
        f,
        "the old cluster is closed and the new one is not open, so no lock can be acquired: all \
         {needed} new nodes are needed; when they are up, run the same command again, or with \
         another server in the place of a dead one"
    )?;
    list(nodes, f)
}

fn list(nodes: &[NodeReport], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let width = nodes.iter().map(|report| report.node.chars().count());
    let width = width.max().unwrap_or(0);
    for (i, NodeReport { node, outcome, .. }) in nodes.iter().enumerate() {
        match (f.alternate(), i) {
            (true, _) => write!(f, "\n  {node:width$}  {outcome}")?,
            (false, 0) => write!(f, "; {node}: {outcome}")?,
            (false, _) => write!(f, ", {node}: {outcome}")?,
        }
    }
    Ok(())
}
