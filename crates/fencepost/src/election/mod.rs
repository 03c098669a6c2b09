//! [`Election`]: one leader among many candidates, with a value that all can read.
//!
//! | file | what it is |
//! | --- | --- |
//! | this one | what the user sees |
//! | `view` | the leader by the nodes' replies; pure |
//! | `observe` | a stream of leaders |
//!
//! The leader is the holder of the lock with the election's name. Nothing here may name a leader
//! that does not hold it.

mod observe;
mod view;

use std::sync::Arc;
use std::time::Duration;

use crate::acquire;
use crate::driver::identity::ValueForm;
use crate::driver::shared::Shared;
use crate::error::{Cause, Error};
use crate::inspect::look::{answered, look, too_few};
use crate::lease::Lease;
use crate::lease::run::lease_guard;
use crate::options::{Ask, request};
use fencepost_core::name::LockName;
use fencepost_core::owner::Owner;
use fencepost_core::token::FencingToken;
pub use observe::Observer;

/// One leader among many: see [`Client::election`](crate::Client::election).
///
/// The leader is the holder of the *lock* with the election's name, and the value that it proclaims
/// is the owner label. So a leader has all the guarantees of a lock:
/// - **Never two** valid leaders. One that was paused past its deadline may not know yet that it no
///   longer leads: only a resource that checks [tokens](Lease::token) is safe from it.
/// - **A new leader** within one TTL and a few round trips after the old one died or was partitioned, if
///   a waiting candidate reaches a majority of the nodes; at once after it resigned.
/// - **Tokens grow** from leader to leader.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// let election = locks.election("scheduler");
/// let first = election.campaign("a").await?;
/// let token = first.token();
/// first.resign().await?;
/// assert!(election.campaign("b").await?.token() > token);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: Result<LockName, Error>,
}

/// The current leader: see [`Election::leader`] and [`Election::observe`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// # let election = locks.election("scheduler");
/// # let _leadership = election.campaign("10.0.0.7:8080").await?;
/// if let Some(fencepost::Leader { value, token, .. }) = election.leader().await? {
///     println!("ask {value}, and refuse tokens below {token}");
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The value that it proclaims.
    pub value: String,
    /// Its fencing token. In rare cases a smaller one than its own, but larger than that of every
    /// leader seen before: while it is being elected, and when the clocks of the candidates differ
    /// and a node is down.
    pub token: FencingToken,
}

impl Election {
    /// Waits to lead, and proclaims the value: an address or a name, at most 200 bytes without
    /// control characters. Await the returned request, or set options on it first.
    ///
    /// The value is fixed for the whole term.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let election = locks.election("scheduler");
    /// let leadership = election.campaign("a").ttl(Duration::from_secs(5)).await?;
    /// let other = election.campaign("b").timeout(Duration::from_millis(20)).await;
    /// assert!(other.unwrap_err().is_timeout());
    /// # Ok(()) }
    /// ```
    pub fn campaign(&self, value: impl AsRef<str>) -> Campaign {
        Campaign(self.ask(value.as_ref()))
    }

    /// Leads if there is no other leader, in a single attempt.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let election = locks.election("scheduler");
    /// let leadership = election.try_campaign("a").await?;
    /// assert!(election.try_campaign("b").await.unwrap_err().is_held());
    /// # Ok(()) }
    /// ```
    pub fn try_campaign(&self, value: impl AsRef<str>) -> Campaign {
        Campaign(self.ask(value.as_ref()).once())
    }

    fn ask(&self, value: &str) -> Ask<(LockName, Owner)> {
        let name = self.name.clone();
        let what = name.and_then(|name| Ok((name, proclaimable(value)?)));
        Ask::new(self.shared.clone(), what)
    }

    /// The current leader according to a majority of the nodes. `None` when a majority knows of
    /// none, or a client of another library holds the lock.
    ///
    /// The answer is one round trip old: the leader may have changed since.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let election = locks.election("scheduler");
    /// assert_eq!(election.leader().await?, None);
    /// let _leadership = election.campaign("10.0.0.7:8080").await?;
    /// let leader = election.leader().await?;
    /// assert_eq!(leader.map(|leader| leader.value), Some("10.0.0.7:8080".to_owned()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NoQuorum`](crate::ErrorKind::NoQuorum) when fewer than a majority of the nodes answered, [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName).
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        let name = self.name.clone()?;
        let shared = &self.shared;
        let quorum = shared.coordinator.quorum;
        let names = std::slice::from_ref(&name);
        let seen = look(shared, names, |answers| view::is_clear(quorum, answers)).await;
        let answers = &seen[0];
        if answered(answers).count() < quorum.needed() {
            return Err(too_few(shared, &name, answers));
        }
        Ok(view::leader(quorum, answers, None).map(|(_, leader)| leader))
    }

    /// Watches the leader.
    ///
    /// See [`Observer`] for its guarantees. It polls about twice a second, which costs each node
    /// one small command; [`observe_every`](Self::observe_every) sets another interval.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let election = locks.election("scheduler");
    /// let mut observer = election.observe()?;
    /// let leadership = election.campaign("10.0.0.7:8080").await?;
    /// let leader = observer.next().await;
    /// assert_eq!((leader.value.as_str(), leader.token), ("10.0.0.7:8080", leadership.token()));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName).
    pub fn observe(&self) -> Result<Observer, Error> {
        self.observe_every(observe::PACE)
    }

    /// As [`observe`](Self::observe), with this interval between polls: a random quarter shorter,
    /// so that observers do not synchronize, and never below 10 ms.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let election = locks.election("scheduler");
    /// let mut observer = election.observe_every(Duration::from_secs(5))?;
    /// # let _leadership = election.campaign("a").await?;
    /// loop {
    ///     let leader = observer.next().await;
    ///     println!("{} leads with token {}", leader.value, leader.token);
    /// #   break;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`](crate::ErrorKind::InvalidName).
    pub fn observe_every(&self, pace: Duration) -> Result<Observer, Error> {
        let name = self.name.clone()?;
        Ok(Observer::new(self.shared.clone(), name, pace))
    }
}

/// The value as an owner label.
fn proclaimable(value: &str) -> Result<Owner, Error> {
    Owner::new(value).map_err(|error| {
        Error::from(Cause::InvalidOption {
            option: "value",
            why: error.to_string(),
        })
    })
}

request! {
    /// A request for leadership. Await it.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`](crate::ErrorKind::Timeout) when another candidate led until the timeout, [`ErrorKind::InvalidOption`](crate::ErrorKind::InvalidOption) for a
    /// value that cannot be proclaimed, and what else a [lock](crate::LockRequest) may be refused for.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let refused = locks.election("scheduler").campaign("two\nlines").await;
    /// assert!(refused.unwrap_err().to_string().contains("without control characters"));
    /// # Ok(()) }
    /// ```
    Campaign((LockName, Owner)) -> Leadership by lead
}

async fn lead(ask: Ask<(LockName, Owner)>) -> Result<Leadership, Error> {
    let spec = acquire::check(&ask)?;
    let (name, value) = ask.what?;
    let spec = spec.form(ValueForm::Labelled(value.clone()));
    let lease = acquire::one(&ask.shared, &name, spec).await?;
    Ok(Leadership { lease, value })
}

/// Leadership, until this ends: the [`Lease`] on the election's lock.
///
/// It renews itself, and reports when it is [lost](Lease::lost). Dropping it resigns in the
/// background.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::Client::memory()?;
/// # async fn schedule(_: fencepost::FencingToken) {}
/// let leadership = locks.election("scheduler").campaign("10.0.0.7:8080").await?;
/// tokio::select! {
///     () = schedule(leadership.token()) => println!("done"),
///     why = leadership.lost() => println!("step down: {why}"),
/// }
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "leadership ends as soon as this is dropped"]
pub struct Leadership {
    lease: Lease,
    value: Owner,
}

impl Leadership {
    /// The proclaimed value.
    #[must_use]
    pub fn proclaimed(&self) -> &str {
        self.value.as_str()
    }

    /// Resigns, and reports the outcome as soon as a majority has answered: see
    /// [`Lease::release`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// let election = locks.election("scheduler");
    /// let leadership = election.campaign("a").await?;
    /// assert_eq!(leadership.proclaimed(), "a");
    /// leadership.resign().await?;
    /// assert!(election.try_campaign("b").await.is_ok());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Lease::release`].
    pub async fn resign(self) -> Result<(), Error> {
        self.lease.release().await
    }
}

lease_guard!(Leadership, resign);
