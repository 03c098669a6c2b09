//! How a node tells a waiter that it is its turn.
//!
//! Nothing may rest on a notice: it may be lost, late, or meant for one who has gone.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use fencepost_core::name::LockName;
use fencepost_core::ticket::{ClientId, Wake};

/// Receives one node's notifications for all waiters of a client. It must not block.
pub trait WakeSink: Send + Sync + 'static {
    /// Takes one notice in.
    fn hear(&self, notice: Notice);
}

/// What a node has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// It is this ticket's turn.
    Wake(Wake),
    /// This lock was released by a client that may know of no queue, or may have been before it was
    /// [followed](super::Node::follow).
    Freed(LockName),
    /// What was stored of this lock has changed since it was [tracked](super::Node::track): it may be free.
    Changed(LockName),
    /// From now on the node can be heard. What it said before may have been missed.
    Listening,
}

/// Stops listening when it is dropped.
#[must_use = "nothing is heard once it is dropped"]
pub struct Listener(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Listener {
    /// Listens until it is dropped, and then does this.
    pub fn until(stop: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(stop)))
    }

    /// A node that says nothing: its waiters have to look.
    pub(crate) fn deaf() -> Self {
        Self(None)
    }

    /// Whether nothing will ever be heard.
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

/// Who listens to a node of this process. Clones share the list.
#[derive(Clone, Default)]
pub(super) struct Audience(Arc<Mutex<Vec<Member>>>);

type Member = (ClientId, Arc<dyn WakeSink>);

impl Audience {
    /// Adds one, until the listener is dropped.
    pub(super) fn join(&self, client: &ClientId, ear: Arc<dyn WakeSink>) -> Listener {
        self.with(|list| list.push((client.clone(), Arc::clone(&ear))));
        let audience = self.clone();
        Listener::until(move || {
            audience.with(|list| list.retain(|(_, other)| !Arc::ptr_eq(other, &ear)))
        })
    }

    /// Tells whom it concerns. Must not be called while something is locked that an ear may need.
    pub(super) fn tell(&self, wake: Wake) {
        let whom = |(client, ear): &Member| wake.ticket.is_of(client).then(|| Arc::clone(ear));
        // The replicas of a lock service share one id, and each knows its own tickets.
        let ears: Vec<_> = self.with(|list| list.iter().filter_map(whom).collect());
        for ear in ears {
            ear.hear(Notice::Wake(wake.clone()));
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Vec<Member>) -> T) -> T {
        // A panic while it was locked cannot have left it half changed.
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
