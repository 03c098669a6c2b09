//! [`LockRequest`]: asking for a lock with options, and waiting for it.
//!
//! The first attempt is made at once. If it fails, [`wait`](crate::wait) says when the next one is
//! worth its while.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::client::{Client, Wish};
use crate::driver::coordinator::Access;
use crate::driver::identity::ValueForm;
use crate::driver::waiters::{Call, News, Progress, RetryBudget, WaiterGuard};
use crate::error::Error;
use crate::lease::{Lease, Limits};
use crate::options::option_methods;
use fencepost_core::Owner;
use fencepost_core::lock::Precedence;
use fencepost_core::name::LockName;
use fencepost_core::ticket::{Ticket, TicketMode};
use fencepost_core::ttl::Ttl;

/// How to acquire and keep a lock. Everything has a default: `LockOptions::new()` is what
/// [`Client::lock`] does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct LockOptions {
    ttl: Option<Duration>,
    wait: Option<Duration>,
    fair: bool,
    no_renewal: bool,
    max_hold: Option<Duration>,
    max_renewals: Option<u32>,
}

impl LockOptions {
    /// The defaults: the client's TTL, wait as long as it takes, renew.
    pub fn new() -> Self {
        Self::default()
    }

    /// The defaults, and to wait at most for that long, if that is said.
    pub(crate) fn waiting(at_most: Option<Duration>) -> Self {
        Self {
            wait: at_most,
            ..Self::default()
        }
    }

    /// Those options, whatever was set before.
    pub(crate) fn options(self, options: Self) -> Self {
        options
    }

    /// How long a node keeps the lock when its holder is silent. The default is the client's.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long to wait at the most. Without it, for as long as it takes; with zero, not at all.
    pub fn timeout(mut self, at_most: Duration) -> Self {
        self.wait = Some(at_most);
        self
    }

    /// Whether those who wait are served strictly in the order in which they came. By default the
    /// line is a hint: whoever comes while the lock is free may take it, which is faster.
    ///
    /// Let all users of one lock ask for the same. Clients of other libraries know no line, and
    /// pass. Whoever is called and cannot take the lock within its own TTL has had its turn.
    pub fn fair(mut self, fair: bool) -> Self {
        self.fair = fair;
        self
    }

    /// Whether the lease renews itself every third of its TTL, as it does by default.
    pub fn renew(mut self, renew: bool) -> Self {
        self.no_renewal = !renew;
        self
    }

    /// How long the lease may last, however often it is renewed or extended; then it is lost with
    /// [`MaxHold`](crate::LossReason::MaxHold). The default is the client's. The nodes may keep the
    /// lock of a holder that does not give it back for one more TTL.
    pub fn max_hold(mut self, time: Duration) -> Self {
        self.max_hold = Some(time);
        self
    }

    /// How often the lease may renew itself; after that many renewals it runs out, and is lost with
    /// [`MaxHold`](crate::LossReason::MaxHold). The default is the client's. A renewal that failed,
    /// and an [`extend`](Lease::extend) of your own, is not counted.
    pub fn max_renewals(mut self, times: u32) -> Self {
        self.max_renewals = Some(times);
        self
    }

    /// What [`timeout`](Self::timeout) said.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        self.wait
    }

    /// What follows from the options, where the client says what they do not. Time counts from now.
    pub(crate) fn plan(self, locks: &Client) -> Result<Plan, Error> {
        let ttl = match self.ttl {
            Some(ttl) => locks.checked_ttl(ttl)?,
            None => locks.core.default_ttl,
        };
        let limits = Limits {
            renew: !self.no_renewal,
            max_hold: self.max_hold.or(locks.core.max_hold),
            max_renewals: self.max_renewals.or(locks.core.max_renewals),
        };
        Ok(Plan {
            ttl,
            limits,
            fair: self.fair,
            access: Access::Exclusive,
            patience: RetryBudget::new(self.wait, ttl),
        })
    }
}

/// Options that were checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) ttl: Ttl,
    pub(crate) limits: Limits,
    pub(crate) fair: bool,
    pub(crate) access: Access,
    pub(crate) patience: RetryBudget,
}

impl Plan {
    /// How somebody stands to those in line who has not got in line.
    pub(crate) fn first_turn(&self) -> Precedence {
        match self.fair {
            true => Precedence::PassNobody,
            false => Precedence::MayPass,
        }
    }

    /// How it stands to others once it has got in line.
    pub(crate) fn ticket_mode(&self) -> TicketMode {
        match self.access {
            Access::Exclusive => TicketMode::of(self.fair),
            Access::Shared => TicketMode::Reader,
        }
    }
}

/// A lock that is being asked for. Await it.
///
/// # How it waits
/// If the lock is taken, the request gets in line on all nodes. A release wakes the next in line and
/// nobody else, and it makes its attempt. Nothing is left in line when the request is dropped, or
/// its wait is over.
///
/// - The next in line is woken by the release, within a few round trips. A waiter of the same client
///   follows the release at once, in one; without `fair` it may pass others so, for a second at the
///   most: then its client knows that they are there.
/// - Whoever asks while others of its client wait gets in line without an attempt of its own.
/// - A holder that dies wakes nobody: the next in line looks when the holder's time is up.
/// - A wake-up that gets lost costs a second at the most: that is how often everybody in line looks
///   by itself. So does a release by a client of another library; if the next in line knows that it
///   is one, it looks four times a second.
/// - A waiter that dies costs the next one 50 ms, or one [ticket lease](fencepost_core::ticket::TICKET_LEASE)
///   of 3 s where the line is [fair](LockOptions::fair). Many that die together cost no more.
/// - A waiter that hears no majority of the nodes leaves the line until it does, so that it stands
///   in nobody's way. It keeps its number.
///
/// So the first in line that can reach a majority has the lock within the rest of the present hold,
/// one ticket lease and one second. Except by `fair` it may be passed by newcomers.
///
/// While too few nodes can be asked it goes on trying, until the wait is over; without a limit to
/// the wait, for one TTL in a row, not counting the time in which restarted nodes do not vote yet.
/// Then it ends with [`Error::NoQuorum`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// use std::time::Duration;
///
/// let first = locks.lock("job").await?;
/// let second = locks.lock("job").timeout(Duration::from_millis(20)).await;
/// assert!(second.unwrap_err().is_held(), "waited, and it was held all the time");
/// # Ok(()) }
/// ```
#[must_use = "nothing is locked before it is awaited"]
#[derive(Debug)]
pub struct LockRequest {
    locks: Client,
    name: Result<LockName, Error>,
    options: LockOptions,
    /// To write or to read, if it is asked for as a [read-write lock](crate::ReadWriteLock).
    access: Option<Access>,
    form: Option<ValueForm>,
    watcher: Option<Watcher>,
}

/// Whoever wants to be told how a wait goes on.
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

impl LockRequest {
    fn set(mut self, option: impl FnOnce(LockOptions) -> LockOptions) -> Self {
        self.options = option(self.options);
        self
    }

    option_methods!(options, ttl, timeout, fair, renew, max_hold, max_renewals);

    pub(crate) fn new(locks: Client, name: &str) -> Self {
        Self {
            locks,
            name: LockName::new(name).map_err(Error::from),
            options: LockOptions::new(),
            access: None,
            form: None,
            watcher: None,
        }
    }

    /// Tells how the wait goes on, as often as there is something to tell: about once a second. It
    /// is called between two steps of the wait, and must not block.
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
    ///     .on_progress(|progress| println!("place {:?} in line", progress.place));
    /// # waiting.await.unwrap_err();
    /// # Ok(()) }
    /// ```
    pub fn on_progress(self, tell: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.watched(Some(Watcher::new(tell)))
    }

    /// The same, for those who ask on somebody's behalf.
    pub(crate) fn watched(mut self, watcher: Option<Watcher>) -> Self {
        self.watcher = watcher;
        self
    }

    /// Takes it as a read-write lock, whose line is always fair.
    pub(crate) fn to(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Shows another label than the client's to others.
    pub(crate) fn labelled(mut self, owner: Owner) -> Self {
        self.form = Some(ValueForm::Labelled(owner));
        self
    }

    /// Asks as one who may enter again.
    pub(crate) fn reentrant(mut self) -> Self {
        self.form = Some(ValueForm::Reentrant);
        self
    }

    /// Which lock is asked for.
    pub(crate) fn lock_name(&self) -> Result<&LockName, Error> {
        self.name.as_ref().map_err(Clone::clone)
    }

    /// How long it waits at the most.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        self.options.wait
    }

    async fn acquire(self) -> Result<Lease, Error> {
        let Self {
            locks,
            name,
            options,
            access,
            form,
            watcher,
        } = self;
        let mut plan = options.plan(&locks)?;
        if let Some(access) = access {
            plan.access = access;
            plan.fair = true;
        }
        let mut wait = Wait {
            name: name?,
            form: form.unwrap_or_else(|| locks.core.value_form()),
            plan,
            watcher,
            locks,
        };
        if !plan.patience.is_over() && wait.locks.core.room.is_waited_for(&wait.name) {
            // Others of this client are in line already: an attempt would be one for nothing.
            return wait.sit().await;
        }
        match wait.attempt(plan.first_turn(), None).await {
            Err(error) if wait.plan.patience.goes_on_after(&error) => wait.sit().await,
            outcome => outcome,
        }
    }
}

/// A lock that is waited for.
struct Wait {
    locks: Client,
    name: LockName,
    form: ValueForm,
    plan: Plan,
    watcher: Option<Watcher>,
}

impl Wait {
    async fn sit(mut self) -> Result<Lease, Error> {
        let is_watched = self.watcher.is_some();
        let room = &self.locks.core.room;
        let seat = room.join(&self.name, self.plan.ticket_mode(), is_watched);
        if matches!(self.form, ValueForm::Reentrant) {
            seat.overhear();
        }
        loop {
            let is_last = self.until_called(&seat).await?;
            let ticket = seat.ticket();
            let turn = match &ticket {
                Some(ticket) => Precedence::Ticket(ticket.id.clone()),
                None => Precedence::PassNobody,
            };
            match self.attempt(turn, ticket).await {
                Ok(lease) => {
                    seat.served();
                    return Ok(lease);
                }
                Err(error) if is_last || !self.plan.patience.goes_on_after(&error) => {
                    return Err(error);
                }
                Err(_) => seat.sit_down(),
            }
        }
    }

    /// Waits until an attempt is worth its while, or until the wait is over: then, and that is
    /// true, the last attempt is made.
    async fn until_called(&mut self, seat: &WaiterGuard) -> Result<bool, Error> {
        loop {
            let call = tokio::select! {
                biased;
                call = seat.call() => call,
                () = self.plan.patience.ends() => {
                    seat.stand_up();
                    return Ok(true);
                }
            };
            match call {
                Call::Go => return Ok(false),
                Call::News(News::Progress(progress)) => {
                    self.plan.patience.take_heart();
                    if let Some(watcher) = &self.watcher {
                        watcher.tell(progress);
                    }
                }
                Call::News(News::NoQuorum(error)) => {
                    if !self.plan.patience.goes_on_after(&error) {
                        return Err(error);
                    }
                }
            }
        }
    }

    async fn attempt(&self, turn: Precedence, ticket: Option<Ticket>) -> Result<Lease, Error> {
        let wish = Wish {
            form: &self.form,
            name: self.name.clone(),
            ttl: self.plan.ttl,
            access: self.plan.access,
            limits: self.plan.limits,
        };
        self.locks.attempt_as(wish, turn, ticket).await
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<Lease, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// It gave up as soon as the next look would have come after the end, up to 250 ms too early.
    #[tokio::test(start_paused = true)]
    async fn a_wait_is_not_given_up_before_its_time() {
        let locks = Client::memory().unwrap();
        let lease = locks.lock("job").await.unwrap();
        let start = Instant::now();
        let error = locks.lock("job").timeout(ms(700)).await.unwrap_err();
        assert!(error.is_held(), "{error}");
        assert!(start.elapsed() >= ms(700), "{:?}", start.elapsed());
        assert!(start.elapsed() < ms(710), "{:?}", start.elapsed());

        let waiting = tokio::spawn(locks.lock("job").timeout(ms(700)).into_future());
        tokio::time::sleep(ms(695)).await;
        lease.release().await.unwrap();
        assert!(waiting.await.unwrap().is_ok(), "free before the end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_of_nothing_is_one_attempt() {
        let locks = Client::memory().unwrap();
        let _lease = locks.lock("job").await.unwrap();
        let start = Instant::now();
        assert!(locks.lock("job").timeout(Duration::ZERO).await.is_err());
        assert_eq!(start.elapsed(), Duration::ZERO);
        let endless = locks.lock("job").timeout(Duration::MAX).into_future();
        assert!(tokio::time::timeout(ms(1000), endless).await.is_err());
    }
}
