//! [`LockService`]: a node that acquires by itself. It has a queue of its own, and its callers need no
//! tickets.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::NodeError;
use fencepost_core::Moment;
use fencepost_core::lock::Holder;
use fencepost_core::name::LockName;
use fencepost_core::token::FencingToken;
use fencepost_core::ttl::Ttl;
use fencepost_core::value::AttemptValue;

/// One acquisition: one lease id, whatever happens, and numbered attempts.
pub struct Wanted {
    /// The lock, or that of which any slot will do.
    pub name: LockName,
    /// Its unique part is the lease id.
    pub value: AttemptValue,
    /// For how long, unless it is extended.
    pub ttl: Ttl,
    /// Whether no waiter in the queue may be passed.
    pub fair: bool,
    /// Whether it is to be read together with others.
    pub shared: bool,
    /// Any of so many slots.
    pub slots: Option<usize>,
    /// How many attempts were sent.
    attempts: AtomicU32,
}

impl Wanted {
    /// Nothing was sent yet.
    #[must_use]
    pub(crate) fn new(name: LockName, value: AttemptValue, ttl: Ttl) -> Self {
        Self {
            name,
            value,
            ttl,
            fair: false,
            shared: false,
            slots: None,
            attempts: AtomicU32::new(0),
        }
    }

    /// The number of the attempt that is sent next. It voids the answers to all earlier ones.
    #[cfg(feature = "service")]
    pub(crate) fn next_attempt(&self) -> u32 {
        self.attempts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many were sent.
    #[must_use]
    pub(crate) fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }
}

/// What a service answers to an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// It is ours.
    Granted {
        /// The token.
        token: FencingToken,
        /// Until when, counted from before the attempt was sent.
        deadline: Moment,
        /// Which slot, if one of several was wanted.
        slot: Option<usize>,
    },
    /// Another client holds it.
    Held(Holder),
    /// This attempt was served before: something between us repeats what we send, and another answer is
    /// lost. The next attempt takes over what that one got.
    AlreadyServed,
}

/// An answer of a service that is on its way.
pub type Serving<'a> = Pin<Box<dyn Future<Output = Result<Served, NodeError>> + Send + 'a>>;

/// A node that acquires by itself.
pub trait LockService: Send + Sync {
    /// Sends the next attempt, and waits at most that long for the lock.
    ///
    /// It may send several, to one replica after the other: each is a new attempt of the same lease. Once
    /// this is dropped, what was sent may still be carried out.
    fn acquire<'a>(&'a self, wanted: &'a Wanted, wait: Duration) -> Serving<'a>;
}
