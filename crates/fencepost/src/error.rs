//! [`Error`]: everything that can go wrong, with what the user needs to act: who holds the lock,
//! for how long, and each node's own reason.
//!
//! No message may show a password, nor name a Rust item: the program prints them.

use std::fmt;
use std::time::{Duration, SystemTime};

use fencepost_core::lock::Holder;
use fencepost_core::outcome::still;
use fencepost_core::{
    FencingToken, InvalidLabel, InvalidName, InvalidShare, InvalidTtl, LockName, Owner, Readable,
};
pub use fencepost_core::{LossReason, NodeError, NodeOutcome, NodeReport};

/// What went wrong.
///
/// [`kind`](Self::kind) says what it is, the other methods what is known about it. Printed with `{}`
/// it is one line; with `{:#}`, an error that lists nodes gives each of them a line of its own.
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

/// What an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock is held, and this was a single attempt.
    Held,
    /// The timeout of a wait was over: the lock was held all the time.
    Timeout,
    /// Too few nodes answered. No holder of the lock is known.
    NoQuorum,
    /// Fewer than a majority of the nodes could be reached when the client connected.
    Unreachable,
    /// A majority agreed, but so late that nothing of the TTL is left to rely on.
    TooLate,
    /// The lease has ended: it expired, or a majority of the nodes no longer has it.
    Lost,
    /// A latch or a barrier did not open in time.
    NotOpen,
    /// All places of a barrier are taken by others.
    NoPlace,
    /// The name cannot be a lock's name.
    InvalidName,
    /// The TTL cannot be used.
    InvalidTtl,
    /// A URL cannot be used.
    InvalidUrl,
    /// An option has a value that cannot be used.
    InvalidOption,
    /// The store could not be opened.
    Store,
    /// There is no tokio runtime to work on.
    NoRuntime,
    /// The client cannot block this thread, or its background thread is gone.
    NoThread,
    /// The operating system gave no random numbers.
    NoRandomness,
}

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderStatus {
    /// The label.
    pub owner: Owner,
    /// Time until it expires, unless it is extended. `None` when it never expires.
    pub remaining: Option<Duration>,
    /// The holder's own token. `None` for a client of another library, and for all who read together.
    pub token: Option<FencingToken>,
}

impl HolderStatus {
    /// What one node says.
    pub(crate) fn of(holder: &Holder) -> Self {
        Self {
            owner: holder.value.owner(),
            remaining: holder.remaining,
            token: holder.token,
        }
    }

    /// Since about when it is held: the time by the holder's own clock when it asked, which its token
    /// tells. `None` where the token tells no time.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        self.token?.proposed_at(SystemTime::now())
    }
}

/// Who is in the way of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeldBy {
    /// This one holds the lock.
    One(HolderStatus),
    /// These hold it on some nodes each, and none on a majority.
    Split(Vec<Owner>),
    /// It is free, and no token could be certified: other attempts were faster each time.
    Overtaken,
}

impl HeldBy {
    fn write(&self, name: &LockName, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(HolderStatus {
                owner, remaining, ..
            }) => write!(f, "lock \"{name}\" is held by {owner}{}", still(*remaining)),
            Self::Split(owners) => {
                write!(f, "lock \"{name}\" is split between ")?;
                for (place, owner) in owners.iter().enumerate() {
                    let link = if place == 0 { "" } else { " and " };
                    write!(f, "{link}{owner}")?;
                }
                f.write_str("; none of them has a majority of the nodes")
            }
            Self::Overtaken => write!(
                f,
                "no token could be certified for lock \"{name}\": other attempts raised the fence \
                 registers at the same moment; try again"
            ),
        }
    }
}

/// What went wrong, for those who make errors.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum Cause {
    #[error(fmt = held)]
    Held {
        name: LockName,
        by: HeldBy,
        /// The limit of the wait that ended so, unless it was a single attempt.
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
        "the barrier \"{name}\" has no place left: all {all} are taken by others; a name is good \
         for one round, so give the next round another one"
    )]
    NoPlace { name: LockName, all: usize },
    #[error("the lock name {name:?} cannot be used: {why}")]
    InvalidName { name: String, why: &'static str },
    #[error("a TTL of {} cannot be used: {why}", Readable(*ttl))]
    InvalidTtl { ttl: Duration, why: String },
    #[error("the URL {url} cannot be used: {why}")]
    InvalidUrl { url: String, why: String },
    #[error("the option {option} cannot be used: {why}")]
    InvalidOption { option: &'static str, why: String },
    #[cfg_attr(
        not(feature = "sqlite"),
        allow(dead_code, reason = "only a file is opened")
    )]
    #[error("the store {store} cannot be opened: {why}")]
    Store { store: String, why: String },
    #[error("no tokio runtime is running: call this from async code, or make a blocking client")]
    NoRuntime,
    #[cfg_attr(not(feature = "blocking"), allow(dead_code))]
    #[error("this thread cannot wait for the client: {why}")]
    NoThread { why: String },
    #[error("the operating system gave no random numbers")]
    NoRandomness,
}

impl Error {
    /// What it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            Cause::Held { waited: None, .. } => ErrorKind::Held,
            Cause::Held { .. } => ErrorKind::Timeout,
            Cause::NoQuorum { .. } => ErrorKind::NoQuorum,
            Cause::Unreachable { .. } => ErrorKind::Unreachable,
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

    /// The lock, latch or barrier that it is about, if it is about one.
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

    /// Who holds the lock, if it is held or the wait for it has timed out. `None` where several attempts
    /// have it on some nodes each, and none on a majority.
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

    /// What each node said, in the order in which they were configured, if too few agreed.
    #[must_use]
    pub fn nodes(&self) -> &[NodeReport] {
        match &self.0 {
            Cause::NoQuorum { nodes, .. } | Cause::Unreachable { nodes, .. } => nodes,
            _ => &[],
        }
    }

    /// How the lease was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<&LossReason> {
        match &self.0 {
            Cause::Lost { why, .. } => Some(why),
            _ => None,
        }
    }

    /// The option of a request or builder that cannot be used, by its name there.
    #[must_use]
    pub fn option(&self) -> Option<&str> {
        match &self.0 {
            Cause::InvalidOption { option, .. } => Some(option),
            _ => None,
        }
    }

    /// What is wrong with the name, TTL, URL, option or store that cannot be used, and what would be
    /// right.
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

    /// Whether the lock that a single attempt wanted is held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.kind() == ErrorKind::Held
    }

    /// Whether a wait ended by its limit, for a lock that was held or for a latch or barrier that did
    /// not open.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self.kind(), ErrorKind::Timeout | ErrorKind::NotOpen)
    }

    /// Whether too few nodes could be asked.
    #[must_use]
    pub fn is_no_quorum(&self) -> bool {
        matches!(self.kind(), ErrorKind::NoQuorum | ErrorKind::Unreachable)
    }

    /// Whether the lease has ended.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::Lost
    }

    /// Whether the same request may succeed later, with nothing changed but the time.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Held, NoQuorum, NotOpen, Timeout, TooLate, Unreachable};
        matches!(
            self.kind(),
            Held | Timeout | NoQuorum | Unreachable | TooLate | NotOpen
        )
    }

    pub(crate) fn cause(&self) -> &Cause {
        &self.0
    }

    /// It is held: what one attempt learnt.
    pub(crate) fn held(name: LockName, holder: HolderStatus) -> Self {
        Self::not_free(name, HeldBy::One(holder))
    }

    /// Others are in the way.
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

    /// The same, at the end of a wait of that limit. A limit of zero is a single attempt.
    pub(crate) fn after_wait(mut self, limit: Option<Duration>) -> Self {
        if let Cause::Held { waited, .. } = &mut self.0 {
            *waited = limit.filter(|limit| !limit.is_zero());
        }
        self
    }

    /// Whether an attempt was refused because the lock is held, waited for or not.
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

impl From<InvalidLabel> for Error {
    fn from(error: InvalidLabel) -> Self {
        Self(Cause::InvalidOption {
            option: "owner",
            why: error.to_string(),
        })
    }
}

impl From<InvalidShare> for Error {
    fn from(error: InvalidShare) -> Self {
        Self(Cause::InvalidOption {
            option: "drift",
            why: error.to_string(),
        })
    }
}

/// That a lock service does not have it.
pub(crate) fn not_offered(what: &str) -> Error {
    Error::from(Cause::InvalidOption {
        option: "store",
        why: format!("a lock service does not offer {what}; connect to its nodes for that"),
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
