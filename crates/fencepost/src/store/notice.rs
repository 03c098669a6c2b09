//! How a node notifies a waiter that it is its turn.
//!
//! Nothing may depend on a notice: it may be lost, late, or meant for a waiter that is gone.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, Wake};

/// Receives one node's notifications for all waiters of a client. It must not block.
pub trait WakeSink: Send + Sync + 'static {
    /// Receives one notice.
    fn notify(&self, notice: Notice);
}

/// A notification of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It is this ticket's turn.
    Wake(Wake),
    /// This lock was released by a client that may know no queue, or may have been released before
    /// it was [followed](super::Node::follow).
    Freed(LockName),
    /// The stored value of this lock has changed since it was [tracked](super::Node::track): it may
    /// be free.
    Changed(LockName),
    /// The subscription is active. Earlier notifications may have been missed.
    Listening,
}

/// Stops listening when it is dropped.
#[must_use = "notifications stop as soon as it is dropped"]
pub struct Listener(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Listener {
    /// Listens until dropped, then runs `stop`.
    pub fn until(stop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(stop)))
    }

    /// A node without notifications: its waiters have to poll.
    pub(crate) fn deaf() -> Self {
        Self(None)
    }

    /// Whether there are no notifications at all.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.0.is_none()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(stop) = self.0.take() {
            stop();
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listener").field(&self.is_deaf()).finish()
    }
}

/// The listeners of a node in this process. Clones share the list.
#[derive(Clone, Default)]
pub(super) struct Audience(Arc<Mutex<Vec<Member>>>);

type Member = (ClientId, Arc<dyn WakeSink>);

impl Audience {
    /// Adds a listener, until it is dropped.
    pub(super) fn join(&self, client: &ClientId, sink: Arc<dyn WakeSink>) -> Listener {
        self.with(|list| list.push((client.clone(), Arc::clone(&sink))));
        let audience = self.clone();
        Listener::until(move || {
            audience.with(|list| list.retain(|(_, other)| !Arc::ptr_eq(other, &sink)))
        })
    }

    /// Notifies the clients concerned. Must not be called while holding a lock that a sink may
    /// need.
    pub(super) fn tell(&self, wake: Wake) {
        let whom = |(client, sink): &Member| wake.ticket.is_of(client).then(|| Arc::clone(sink));
        // The replicas of a lock service share one id, and each knows its own tickets.
        let sinks: Vec<_> = self.with(|list| list.iter().filter_map(whom).collect());
        for sink in sinks {
            sink.notify(Notice::Wake(wake.clone()));
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Vec<Member>) -> T) -> T {
        // A panic while it was locked cannot have left it half changed.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
