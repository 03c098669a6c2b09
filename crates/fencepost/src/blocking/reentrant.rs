//! The [session](crate::Session) and its reentrant locks for threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Client;
use super::background::Background;
use crate::error::{Error, LossReason};
use crate::lock::LockOptions;
use fencepost_core::token::FencingToken;

impl Client {
    /// A session: one who may enter a [reentrant lock](Session::reentrant) again while it is inside.
    ///
    /// Within one client, and its clones, sessions of the same label are the same.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// use fencepost::LockOptions;
    ///
    /// let session = locks.session("worker-7");
    /// let outer = session.reentrant("invoice-42", LockOptions::new())?;
    /// let inner = session.reentrant("invoice-42", LockOptions::new())?;
    /// assert_eq!(inner.token(), outer.token());
    /// drop(outer);
    /// assert!(inner.is_valid(), "still inside");
    /// inner.release()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn session(&self, label: impl AsRef<str>) -> Session {
        Session {
            session: self.locks.session(label),
            client: self.clone(),
        }
    }
}

/// One who may enter a reentrant lock again: the [async session](crate::Session), with the same
/// promises, for threads.
#[derive(Clone, Debug)]
pub struct Session {
    // Before the client, and with it the thread, so that it goes first.
    session: crate::Session,
    client: Client,
}

impl Session {
    /// Enters the lock, and blocks until it is free or the wait is over. Who is inside enters again at
    /// once.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// use std::time::Duration;
    /// use fencepost::LockOptions;
    ///
    /// let guard = locks.session("one").reentrant("job", LockOptions::new())?;
    /// let shortly = LockOptions::new().timeout(Duration::from_millis(20));
    /// assert!(locks.session("two").reentrant("job", shortly).unwrap_err().is_held());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`ReentrantRequest`](crate::ReentrantRequest).
    pub fn reentrant(
        &self,
        name: impl AsRef<str>,
        options: LockOptions,
    ) -> Result<ReentrantGuard, Error> {
        let request = self.session.reentrant(name).options(options);
        let background = &self.client.background;
        let guard = match request.enter_again() {
            Some(guard) => guard,
            None => background.run(request.into_future())?,
        };
        let background = Arc::clone(background);
        Ok(ReentrantGuard { guard, background })
    }

    /// The label.
    #[must_use]
    pub fn label(&self) -> &str {
        self.session.label()
    }
}

/// One entry into a reentrant lock: the [async guard](crate::ReentrantGuard) for threads. Dropping it
/// leaves; the last of its session to leave gives the lock back in the background.
///
/// ```
/// # fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::blocking::Client::memory()?;
/// let guard = locks.session("worker-7").reentrant("job", fencepost::LockOptions::new())?;
/// assert_eq!((guard.name(), guard.entries()), ("job", 1));
/// # Ok(()) }
/// ```
pub struct ReentrantGuard {
    // Before the thread, so that it goes first, and its release is on its way.
    guard: crate::ReentrantGuard,
    background: Arc<Background>,
}

impl ReentrantGuard {
    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// The fencing token: that of the session's first entry.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.guard.token()
    }

    /// The value that the nodes store for this session's lease: `uuid:number`.
    #[must_use]
    pub fn value(&self) -> &str {
        self.guard.value()
    }

    /// How many guards of its session share the lease, this one included.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.guard.entries()
    }

    /// How long the lock is still ours, if it is not renewed. Zero when it is not ours.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether the lock is ours at this moment, by our own clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// How the lease was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<LossReason> {
        self.guard.loss()
    }

    /// Blocks until the lease is lost and says how, or until the time is over: then `None`. See
    /// [`Lease::wait_lost`](super::Lease::wait_lost).
    pub fn wait_lost(&self, at_most: Duration) -> Option<LossReason> {
        super::wait_lost(&self.background, &self.guard, at_most)
    }

    /// A token that is cancelled when the lock is no longer ours: lost, or left by all.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.guard.cancellation()
    }

    /// Keeps the lock for another TTL from now, for all guards of its session.
    ///
    /// # Errors
    /// As [`Lease::extend`](crate::Lease::extend).
    pub fn extend(&self) -> Result<(), Error> {
        self.background.run(self.guard.extend())
    }

    /// Leaves. The last of its session gives the lock back and tells the outcome.
    ///
    /// # Errors
    /// As [`ReentrantGuard::release`](crate::ReentrantGuard::release).
    pub fn release(self) -> Result<(), Error> {
        let Self { guard, background } = self;
        background.run(guard.release())
    }
}

impl fmt::Debug for ReentrantGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
