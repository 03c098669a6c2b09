//! The options of a request and its three endings: the same words for every primitive, defined
//! once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::identity::OnBehalf;
use crate::driver::shared::Shared;
use crate::driver::waiters::Progress;
use crate::error::Error;

/// How to acquire and keep a lock. Everything has a default: `LockOptions::new()` is what
/// [`Client::lock`](crate::Client::lock) does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LockOptions {
    pub(crate) ttl: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) fair: bool,
    pub(crate) no_renewal: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_renewals: Option<u32>,
}

impl LockOptions {
    /// The defaults: the client's TTL, no timeout, renewal.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long a node keeps the lock when its holder is silent. The default is the client's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The limit on waiting. Without it, a request waits indefinitely; with zero, it makes a single
    /// attempt.
    pub fn timeout(mut self, at_most: Duration) -> Self {
        self.timeout = Some(at_most);
        self
    }

    /// Whether waiters are served strictly first in, first out. By default the queue is a hint: a
    /// newcomer may acquire a free lock before the waiters, which is faster.
    ///
    /// All users of one lock should choose the same. Clients of other libraries ignore the queue. A
    /// waiter that is woken and cannot acquire the lock within its own TTL loses its turn.
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// Whether the lease renews itself every third of its TTL. The default is true.
    pub fn renew(mut self, renew: bool) -> Self {
        self.no_renewal = !renew;
        self
    }

    /// Maximum hold time of the lease, including renewals and extensions; then it is lost with
    /// [`MaxHold`](crate::LossReason::MaxHold). The default is the client's. The nodes may keep the
    /// lock for one more TTL if its holder does not release it.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.max_hold = Some(time);
        self
    }

    /// Maximum number of renewals; after that the lease expires, and is lost with
    /// [`MaxHold`](crate::LossReason::MaxHold). The default is the client's. Failed renewals and
    /// your own [`extend`](crate::Lease::extend) calls do not count.
    pub fn max_renewals(mut self, times: u32) -> Self {
        self.max_renewals = Some(times);
        self
    }
}

/// Callback for the progress of a wait.
#[derive(Clone)]
pub(crate) struct Watcher(Arc<dyn Fn(Progress) + Send + Sync>);

impl Watcher {
    pub(crate) fn new(tell: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn tell(&self, progress: Progress) {
        self.0(progress);
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watcher")
    }
}

/// The common part of every request: what to acquire, from which client, with which options.
#[derive(Clone, Debug)]
pub(crate) struct Ask<T> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) what: Result<T, Error>,
    pub(crate) options: LockOptions,
    pub(crate) watcher: Option<Watcher>,
    pub(crate) on_behalf: Option<OnBehalf>,
    /// A single attempt, whatever the options say.
    is_once: bool,
}

impl<T> Ask<T> {
    pub(crate) fn new(shared: Arc<Shared>, what: Result<T, Error>) -> Self {
        Self {
            shared,
            what,
            options: LockOptions::new(),
            watcher: None,
            on_behalf: None,
            is_once: false,
        }
    }

    /// A single attempt.
    pub(crate) fn once(mut self) -> Self {
        self.is_once = true;
        self
    }

    /// With the limit that it has when all options are known.
    pub(crate) fn limited(mut self) -> Self {
        if self.is_once {
            self.options.timeout = Some(Duration::ZERO);
        }
        self
    }
}

/// Defines a request type of this name for this guard type, by a function that acquires it.
macro_rules! request {
    (
        $(#[$doc:meta])*
        $request:ident($what:ty) -> $guard:ident by $acquire:path
    ) => {
        $(#[$doc])*
        #[must_use = "nothing is acquired before the request is awaited, run or blocked on"]
        #[derive(Debug)]
        pub struct $request(pub(crate) $crate::options::Ask<$what>);

        impl $request {
            /// All options at once. A `try_` request stays a single attempt.
            pub fn options(mut self, options: $crate::LockOptions) -> Self {
                self.0.options = options;
                self
            }

            /// On whose behalf a replica of the lock service asks.
            #[doc(hidden)]
            pub fn on_behalf(mut self, on_behalf: $crate::driver::identity::OnBehalf) -> Self {
                self.0.on_behalf = Some(on_behalf);
                self
            }

            /// See [`LockOptions::ttl`](crate::LockOptions::ttl).
            pub fn ttl(mut self, ttl: std::time::Duration) -> Self {
                self.0.options = self.0.options.ttl(ttl);
                self
            }

            /// See [`LockOptions::timeout`](crate::LockOptions::timeout).
            pub fn timeout(mut self, at_most: std::time::Duration) -> Self {
                self.0.options = self.0.options.timeout(at_most);
                self
            }

            /// See [`LockOptions::fair`](crate::LockOptions::fair).
            pub fn fair(mut self, fair: bool) -> Self {
                self.0.options = self.0.options.fair(fair);
                self
            }

            /// See [`LockOptions::renew`](crate::LockOptions::renew).
            pub fn renew(mut self, renew: bool) -> Self {
                self.0.options = self.0.options.renew(renew);
                self
            }

            /// See [`LockOptions::max_hold`](crate::LockOptions::max_hold).
            pub fn max_hold(mut self, time: std::time::Duration) -> Self {
                self.0.options = self.0.options.max_hold(time);
                self
            }

            /// See [`LockOptions::max_renewals`](crate::LockOptions::max_renewals).
            pub fn max_renewals(mut self, times: u32) -> Self {
                self.0.options = self.0.options.max_renewals(times);
                self
            }

            /// Reports the progress of the wait, about once a second. The callback runs between two
            /// steps of the wait and must not block.
            ///
            /// For several locks it reports the one being waited for; for several slots, the one
            /// that expires first and the best place in any queue.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), fencepost::Error> {
            /// # let locks = fencepost::Client::memory()?;
            /// use std::time::Duration;
            ///
            /// # let lease = locks.lock("job").await?;
            /// let waiting = locks
            ///     .lock("job")
            ///     .timeout(Duration::from_millis(20))
            ///     .on_progress(|progress| println!("place {:?} in the queue", progress.place));
            /// # waiting.await.unwrap_err();
            /// # Ok(()) }
            /// ```
            pub fn on_progress(
                mut self,
                tell: impl Fn($crate::Progress) + Send + Sync + 'static,
            ) -> Self {
                self.0.watcher = Some($crate::options::Watcher::new(tell));
                self
            }

            /// Acquires, runs a body, and releases in the end, also when the body returns early,
            /// panics or is cancelled. Renewal continues while the body runs.
            ///
            /// When the lock is lost, the body is dropped at its next await, and the caller gets
            /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) with the reason. A body that does not await
            /// cannot be stopped: then only the [fencing token](crate::FencingToken) protects the
            /// resource.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> Result<(), fencepost::Error> {
            /// # let locks = fencepost::Client::memory()?;
            /// let total = locks
            ///     .lock("invoice-42")
            ///     .run(async |lease| {
            ///         println!("charging with token {}", lease.token());
            ///         42
            ///     })
            ///     .await?;
            /// assert_eq!(total, 42);
            /// # Ok(()) }
            /// ```
            ///
            /// # Errors
            /// The errors of awaiting the request, and [`ErrorKind::Lost`](crate::ErrorKind::Lost).
            pub async fn run<T>(
                self,
                body: impl AsyncFnOnce(&$guard) -> T,
            ) -> Result<T, $crate::Error> {
                $crate::lease::run::run(self.await?, body).await
            }
        }

        impl IntoFuture for $request {
            type Output = Result<$guard, $crate::Error>;
            type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Self::Output> + Send>>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin($acquire(self.0.limited()))
            }
        }
    };
}

pub(crate) use request;
