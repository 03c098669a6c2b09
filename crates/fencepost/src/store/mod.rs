//! [`Node`]: one independent place that stores locks.
//!
//! A node runs the [`Command`]s of [the core](fencepost_core::lock), one lock at a time, each
//! atomically. It knows nothing of other nodes or of a quorum.

#[cfg(feature = "redis")]
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "redis")]
use std::sync::OnceLock;

use futures_util::future::try_join_all;

use crate::error::NodeError;
use crate::runtime::clock::Moment;
use fencepost_core::NamePattern;
pub use fencepost_core::Names;
use fencepost_core::lock::{Command, Reply};
use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, TicketId, TicketNumber};
use fencepost_core::token::FencingToken;

pub(crate) mod facts;
pub(crate) mod inbox;
pub(crate) mod lock_service;
pub mod memory;
mod notice;
pub(crate) mod open;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "service")]
pub(crate) mod service;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use inbox::Inbox;
#[cfg(feature = "redis")]
pub(crate) use inbox::ReplySlot;
pub(crate) use lock_service::LockService;
pub use notice::{Listener, Notice, WakeSink};

/// The maximum number of waiters that a node lists.
pub(crate) const MOST_LISTED: usize = 256;

/// A waiter on a node, and its number.
pub type Queued = (TicketId, TicketNumber);

/// The pending reply of a [`Node`].
///
/// It borrows nothing, so that another task can finish a call whose caller is gone.
pub type Call = Pin<Box<dyn Future<Output = Result<Reply, NodeError>> + Send>>;

/// One command for all nodes. What a kind of node prepares for it is prepared once.
pub struct Request {
    /// The lock.
    pub name: LockName,
    /// The command.
    pub command: Command,
    /// Of a release whose answer is awaited: the token of the lease. So a node knows what it has stored, and may ask again
    /// where that is not so.
    pub held_with: Option<FencingToken>,
    /// Of an acquire: whether a refusal tells when the holder's time ends. A node that would have to ask once more may leave
    /// it out otherwise.
    pub needs_expiry: bool,
    #[cfg(feature = "redis")]
    made: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Request {
    /// A command for this lock.
    #[must_use]
    pub fn new(name: &LockName, command: Command) -> Self {
        Self {
            name: name.clone(),
            command,
            held_with: None,
            needs_expiry: true,
            #[cfg(feature = "redis")]
            made: OnceLock::new(),
        }
    }

    /// The same for an acquire whose refusal tells when the holder's time ends, or need not.
    #[must_use]
    pub fn needs_expiry(self, needs_expiry: bool) -> Self {
        Self {
            needs_expiry,
            ..self
        }
    }

    /// The same for the release of a lease with that token, whose answer is awaited.
    #[must_use]
    pub fn held_with(self, token: Option<FencingToken>) -> Self {
        Self {
            held_with: token,
            ..self
        }
    }

    /// What another node of this kind has prepared.
    #[cfg(feature = "redis")]
    fn made<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let made = self.made.get()?;
        Arc::clone(made).downcast().ok()
    }

    /// Stores what was prepared, for the other nodes. The first one wins.
    #[cfg(feature = "redis")]
    fn keep<T: Send + Sync + 'static>(&self, made: Arc<T>) {
        let _ = self.made.set(made);
    }
}

/// One independent place that stores locks.
///
/// What a caller may rely on:
/// - **Order.** Commands whose futures were polled for the first time one after the other reach the
///   node in that order, as long as the connection between them stays the same.
/// - **Cancellation.** A future that was never polled has sent nothing. One that was dropped later
///   may or may not have taken effect; it leaves no other trace.
/// - **No retry.** A command is carried out at most once. The one exception is a refusal that
///   proves that it was not carried out.
/// - **No vote without right.** A node that may have forgotten locks carries out an
///   [`Extend`](Command::Extend), so that it learns who holds what, and a release; but it answers
///   [`NodeError::Quarantined`] to whatever would be a vote.
///
/// A call may take forever: the caller bounds it.
pub trait Node: Send + Sync + 'static {
    /// Runs one command on the lock with this name.
    fn call(&self, name: &LockName, command: Command) -> Call;

    /// As [`call`](Self::call), for a command that goes to several nodes.
    fn send(&self, request: &Request) -> Call {
        self.call(&request.name, request.command.clone())
    }

    /// As [`send`](Self::send), at once, with the reply to an inbox under that number. False if nothing was sent: it
    /// takes a call then.
    fn post(&self, request: &Request, now: Moment, inbox: &Arc<Inbox>, number: usize) -> bool {
        let _ = (request, now, inbox, number);
        false
    }

    /// As [`call`](Self::call), for a lock that outlives the calling process. Nodes that know no
    /// processes need not distinguish the two.
    fn call_unbound(&self, name: &LockName, command: Command) -> Call {
        self.call(name, command)
    }

    /// Wakes this client's waiters when it is their turn, until the listener is dropped.
    ///
    /// Notifications may be lost: waiters also poll now and then.
    fn listen(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        let _ = (client, sink);
        Listener::deaf()
    }

    /// This client waits for that lock until the returned listener is dropped: a node may use it to
    /// [wake](Self::listen) its waiters at less cost.
    fn attend(&self, name: &LockName, client: &ClientId) -> Listener {
        let _ = (name, client);
        Listener::deaf()
    }

    /// Also notifies [listeners](Self::listen) when a client of another library, which knows no
    /// queue, releases this lock: until the returned listener is dropped.
    fn follow(&self, name: &LockName) -> Listener {
        let _ = name;
        Listener::deaf()
    }

    /// Notifies once, by [`Notice::Changed`], when the holder of this lock changes, or at once if
    /// it is free: for waiters behind a client of another library, which knows no queue. Optional
    /// for a node.
    fn track(&self, name: &LockName, sink: Arc<dyn WakeSink>) {
        let _ = (name, sink);
    }

    /// The node's address for display, without a password.
    fn address(&self) -> &str;

    /// The node's own wall clock at that moment, in microseconds since 1970, approximately, if known: it
    /// bounds the proposed token.
    fn wall_micros(&self, now: Moment) -> Option<u64> {
        let _ = now;
        None
    }

    /// Waits until the node is known to be up or down, and reports it. Unlike [`call`](Self::call),
    /// it does not wait for a frozen node longer than the node's own connect timeout.
    fn hello(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The names of the locks that it knows, held or not. Optional for a node.
    fn names<'a>(
        &'a self,
        wanted: &'a NamePattern,
    ) -> Pin<Box<dyn Future<Output = Result<Names, NodeError>> + Send + 'a>> {
        let _ = wanted;
        let why = "this node cannot list locks".to_owned();
        Box::pin(std::future::ready(Err(NodeError::Other(why))))
    }

    /// The waiters for this lock, head of the queue first, at most 256. Optional for a node.
    fn queue<'a>(
        &'a self,
        name: &'a LockName,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Queued>, NodeError>> + Send + 'a>> {
        let _ = name;
        let why = "this node cannot list waiters".to_owned();
        Box::pin(std::future::ready(Err(NodeError::Other(why))))
    }

    /// Which of these locks are held, in the same order: one query for waiters for any of them.
    fn held<'a>(
        &'a self,
        names: &'a [LockName],
    ) -> Pin<Box<dyn Future<Output = Result<Vec<bool>, NodeError>> + Send + 'a>> {
        let looks = names.iter().map(|name| self.call(name, Command::Inspect));
        let looks = try_join_all(looks);
        Box::pin(async {
            let seen = looks.await?;
            let is_held = |reply: &Reply| match reply {
                Reply::Snapshot(seen) => Ok(seen.holder.is_some()),
                other => Err(fencepost_core::quorum::unexpected_reply(other)),
            };
            seen.iter().map(is_held).collect()
        })
    }

    /// Resolves when a retry makes sense after a failure: at once for a node that is never down,
    /// otherwise when it is connected again.
    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// The node itself, if it runs the whole acquisition: then it gets no
    /// [`Acquire`](Command::Acquire) and no ticket.
    fn service(&self) -> Option<&dyn LockService> {
        None
    }
}
