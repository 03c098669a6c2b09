//! [`Node`]: one independent place that stores locks.
//!
//! A node carries out the [`Command`]s of the [the core](fencepost_core::lock) machine, one lock at a time,
//! each of them atomically. It knows nothing of other nodes or of a quorum.

#[cfg(feature = "redis")]
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(feature = "redis")]
use std::sync::OnceLock;

use futures_util::future::try_join_all;

use crate::error::NodeError;
use fencepost_core::NamePattern;
pub use fencepost_core::Names;
use fencepost_core::lock::{Command, Reply};
use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, TicketId, TicketNumber};

pub(crate) mod facts;
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

pub(crate) use lock_service::LockService;
pub use notice::{Listener, Notice, WakeSink};

/// The most waiters that a node lists: a queue of thousands is not shown to anybody as a whole.
pub(crate) const MOST_LISTED: usize = 256;

/// One who waits on a node, and under which number.
pub type Queued = (TicketId, TicketNumber);

/// What a [`Node`] returns: an answer that is on its way.
///
/// It borrows nothing, so that a call whose caller is gone can be finished by another task.
pub type Call = Pin<Box<dyn Future<Output = Result<Reply, NodeError>> + Send>>;

/// One command that goes to all nodes. What a kind of node makes of it before it is sent, it makes once.
pub struct Request {
    /// The lock.
    pub name: LockName,
    /// What to do with it.
    pub command: Command,
    #[cfg(feature = "redis")]
    made: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Request {
    /// A command for that lock.
    #[must_use]
    pub fn new(name: &LockName, command: Command) -> Self {
        Self {
            name: name.clone(),
            command,
            #[cfg(feature = "redis")]
            made: OnceLock::new(),
        }
    }

    /// What another node of this kind has made of it.
    #[cfg(feature = "redis")]
    fn made<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let made = self.made.get()?;
        Arc::clone(made).downcast().ok()
    }

    /// Keeps what was made of it for the other nodes. The first one counts.
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
/// A call may take for ever: the caller bounds it.
pub trait Node: Send + Sync + 'static {
    /// Carries out one command on the lock of that name.
    fn call(&self, name: &LockName, command: Command) -> Call;

    /// As [`call`](Self::call), for a command that goes to several nodes.
    fn send(&self, request: &Request) -> Call {
        self.call(&request.name, request.command.clone())
    }

    /// As [`call`](Self::call), for a lock that is to outlive the process that asks. Nodes that know
    /// of no processes need not tell the two apart.
    fn call_unbound(&self, name: &LockName, command: Command) -> Call {
        self.call(name, command)
    }

    /// Tells this client's waiters when it is their turn, for as long as the listener is kept.
    ///
    /// What is said may get lost: a waiter that hears nothing looks by itself, now and then.
    fn listen(&self, client: &ClientId, ear: Arc<dyn WakeSink>) -> Listener {
        let _ = (client, ear);
        Listener::deaf()
    }

    /// Tells those who [listen](Self::listen) also when a client of another library gives this lock
    /// back, which knows of no line: for as long as what is returned is kept.
    fn follow(&self, name: &LockName) -> Listener {
        let _ = name;
        Listener::deaf()
    }

    /// Tells once, by [`Notice::Changed`], when the holder of this lock changes, or at once if it is
    /// free: for waiters behind a client of another library, which knows of no queue. A node
    /// need not be able to tell.
    fn track(&self, name: &LockName, ear: Arc<dyn WakeSink>) {
        let _ = (name, ear);
    }

    /// The node's address, for people: no password in it.
    fn address(&self) -> &str;

    /// The node's own wall clock in microseconds since 1970, about, where it is known: it bounds what token
    /// is proposed.
    fn wall_micros(&self) -> Option<u64> {
        None
    }

    /// Waits until the node is known to be there or not to be there, and tells. Unlike
    /// [`call`](Self::call), it does not wait for a frozen node longer than the node's own
    /// connect time-out.
    fn hello(&self) -> Pin<Box<dyn Future<Output = Result<(), NodeError>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// The names of the locks that it knows, held or not. A node need not be able to tell.
    fn names<'a>(
        &'a self,
        wanted: &'a NamePattern,
    ) -> Pin<Box<dyn Future<Output = Result<Names, NodeError>> + Send + 'a>> {
        let _ = wanted;
        let why = "this kind of node cannot list its locks".to_owned();
        Box::pin(std::future::ready(Err(NodeError::Other(why))))
    }

    /// Who waits for that lock, the next one first, and no more than 256 of them. A node need not be
    /// able to tell.
    fn queue<'a>(
        &'a self,
        name: &'a LockName,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<Queued>, NodeError>> + Send + 'a>> {
        let _ = name;
        let why = "this kind of node cannot list its waiters".to_owned();
        Box::pin(std::future::ready(Err(NodeError::Other(why))))
    }

    /// Which of these locks are held, in the same order: one look at many, for waiters for any of
    /// them.
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
                other => Err(fencepost_core::quorum::out_of_place(other)),
            };
            seen.iter().map(is_held).collect()
        })
    }

    /// Resolves when it is worth asking again after a failure: at once for a node that is never
    /// away, when the connection is there again for one that is.
    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// Itself, if it acquires by itself: then it is sent no [`Acquire`](Command::Acquire) and no ticket.
    fn service(&self) -> Option<&dyn LockService> {
        None
    }
}
