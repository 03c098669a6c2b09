//! Several locks at once, all or none, for threads: see [`MultiLease`](crate::MultiLease).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Client;
use super::background::Background;
use crate::driver::waiters::Progress;
use crate::error::Error;
use crate::multi::LostOne;
use crate::options::option_methods;
use fencepost_core::token::FencingToken;

impl Client {
    /// Takes several locks, all or none, whatever order they are given in. Set options on what this
    /// returns, and end with [`acquire`](MultiRequest::acquire).
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// let both = locks.lock_all(["account-7", "account-3"]).acquire()?;
    /// println!("from {:?} to {:?}", both.token("account-7"), both.token("account-3"));
    /// both.release()?;
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is locked before `acquire`"]
    pub fn lock_all(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiRequest<'_> {
        MultiRequest {
            client: self,
            request: self.locks.lock_all(names),
        }
    }
}

/// Several locks that are being asked for.
#[must_use = "nothing is locked before `acquire`"]
#[derive(Debug)]
pub struct MultiRequest<'a> {
    client: &'a Client,
    request: crate::MultiRequest,
}

impl MultiRequest<'_> {
    fn set(mut self, option: impl FnOnce(crate::MultiRequest) -> crate::MultiRequest) -> Self {
        self.request = option(self.request);
        self
    }

    option_methods!(options, ttl);

    /// See [`MultiRequest::wait`](crate::MultiRequest::wait).
    pub fn timeout(mut self, at_most: Duration) -> Self {
        self.request = self.request.timeout(at_most);
        self
    }

    /// See [`MultiRequest::fair`](crate::MultiRequest::fair).
    pub fn fair(mut self, fair: bool) -> Self {
        self.request = self.request.fair(fair);
        self
    }

    /// See [`MultiRequest::max_hold`](crate::MultiRequest::max_hold).
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.request = self.request.max_hold(time);
        self
    }

    /// Tells how the wait goes on, from the background thread: see
    /// [`MultiRequest::on_progress`](crate::MultiRequest::on_progress).
    pub fn on_progress(mut self, tell: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.request = self.request.on_progress(tell);
        self
    }

    /// Blocks until all of them are ours, or the wait is over.
    ///
    /// # Errors
    /// As [`Client::try_lock`].
    pub fn acquire(self) -> Result<MultiLease, Error> {
        let Self { client, request } = self;
        let lease = client.background.run(request.into_future())?;
        let background = Arc::clone(&client.background);
        Ok(MultiLease { lease, background })
    }
}

/// Several locks that are ours until the first of them is lost. Dropping it gives all of them back.
#[must_use = "the locks are given back when it is dropped"]
pub struct MultiLease {
    // Before the thread, so that it goes first, and its releases are on their way.
    lease: crate::MultiLease,
    background: Arc<Background>,
}

impl MultiLease {
    /// The fencing token of one of the locks. `None` when it is none of them.
    #[must_use]
    pub fn token(&self, name: impl AsRef<str>) -> Option<FencingToken> {
        self.lease.token(name)
    }

    /// The fencing tokens, each with its lock's name.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, FencingToken)> {
        self.lease.tokens()
    }

    /// How long all of them are still ours, if they are not renewed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.lease.remaining()
    }

    /// Whether all of them are ours at this moment, by our own clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.lease.is_valid()
    }

    /// Which of them was lost, and how, if one was.
    #[must_use]
    pub fn loss(&self) -> Option<LostOne> {
        self.lease.loss()
    }

    /// Blocks until the first of them is lost and says which and how, or until the time is over:
    /// then, or when the client's thread is gone, `None`.
    #[must_use]
    pub fn wait_lost(&self, at_most: Duration) -> Option<LostOne> {
        let lost = async { Ok(tokio::time::timeout(at_most, self.lease.lost()).await.ok()) };
        self.background.run(lost).unwrap_or_default()
    }

    /// Keeps all of them for another TTL from now.
    ///
    /// # Errors
    /// As [`MultiLease::extend`](crate::MultiLease::extend).
    pub fn extend(&self) -> Result<(), Error> {
        self.background.run(self.lease.extend())
    }

    /// Gives all of them back and tells the outcome.
    ///
    /// # Errors
    /// As [`MultiLease::release`](crate::MultiLease::release).
    pub fn release(self) -> Result<(), Error> {
        let Self { lease, background } = self;
        background.run(lease.release())
    }
}

impl fmt::Debug for MultiLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lease.fmt(f)
    }
}
