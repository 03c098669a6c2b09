//! [`LockService`]: a node that runs the whole acquisition itself. It has its own queue, so callers
//! need no tickets.

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

/// One acquisition: a single lease id, and numbered attempts.
pub struct Wanted {
    /// The lock, or the semaphore of which any slot will do.
    pub name: LockName,
    /// Its unique part is the lease id.
    pub value: AttemptValue,
    /// TTL, unless extended.
    pub ttl: Ttl,
    /// Whether it must not pass waiters.
    pub fair: bool,
    /// Whether it is shared with other readers.
    pub shared: bool,
    /// Any of this many slots.
    pub slots: Option<usize>,
    /// The number of attempts sent.
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

    /// The number of the next attempt. Sending it voids the answers to all earlier ones.
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

/// A service's answer to an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// Acquired.
    Granted {
        /// The token.
        token: FencingToken,
        /// Valid until, counted from before the attempt was sent.
        deadline: Moment,
        /// The slot, if one of several was requested.
        slot: Option<usize>,
    },
    /// Another client holds it.
    Held(Holder),
    /// This attempt was served before: something in between repeats our requests, and another
    /// answer was lost. The next attempt takes over what that one acquired.
    AlreadyServed,
}

/// A pending answer of a service.
pub type Serving<'a> = Pin<Box<dyn Future<Output = Result<Served, NodeError>> + Send + 'a>>;

/// A node that runs the whole acquisition itself.
pub trait LockService: Send + Sync {
    /// Sends the next attempt, and waits at most this long for the lock.
    ///
    /// It may send several, to one replica after the other: each is a new attempt of the same
    /// lease. If this is dropped, what was sent may still take effect.
    fn acquire<'a>(&'a self, wanted: &'a Wanted, wait: Duration) -> Serving<'a>;
}
