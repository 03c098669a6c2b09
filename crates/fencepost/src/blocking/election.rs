//! The [election](crate::Election) for threads.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::{Client, Lease};
use crate::election::Leader;
use crate::error::Error;
use crate::lock::LockOptions;
use fencepost_core::value::Owner;

impl Client {
    /// An election: at most one leads at a time.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// use fencepost::LockOptions;
    ///
    /// let election = locks.election("scheduler");
    /// let leadership = election.campaign("10.0.0.7:8080", LockOptions::new())?;
    /// assert_eq!(election.leader()?.expect("we lead").value, "10.0.0.7:8080");
    /// leadership.resign()?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election {
            election: self.locks.election(name),
            client: self.clone(),
        }
    }
}

/// One leader among many: the [async election](crate::Election), with the same promises, for
/// threads.
#[derive(Clone, Debug)]
pub struct Election {
    // Before the client, and with it the thread, so that it goes first.
    election: crate::Election,
    client: Client,
}

impl Election {
    /// Blocks until we lead or the wait is over, and proclaims the value: at most 200 bytes without
    /// control characters.
    ///
    /// # Errors
    /// As [`Campaign`](crate::Campaign).
    pub fn campaign(
        &self,
        value: impl AsRef<str>,
        options: LockOptions,
    ) -> Result<Leadership, Error> {
        let campaign = self.election.campaign(value).options(options);
        let leadership = self.client.background.run(campaign.into_future())?;
        Ok(self.keep(leadership))
    }

    /// Leads if nobody else does; never waits.
    ///
    /// ```
    /// # fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::blocking::Client::memory()?;
    /// let election = locks.election("scheduler");
    /// let leadership = election.try_campaign("a")?;
    /// assert!(election.try_campaign("b").unwrap_err().is_held());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Campaign`](crate::Campaign).
    pub fn try_campaign(&self, value: impl AsRef<str>) -> Result<Leadership, Error> {
        let leadership = self.election.try_campaign(value);
        let leadership = self.client.background.run(leadership)?;
        Ok(self.keep(leadership))
    }

    /// Who leads now: see [`Election::leader`](crate::Election::leader).
    ///
    /// # Errors
    /// As there.
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        self.client.background.run(self.election.leader())
    }

    /// Watches who leads: see [`Election::observe`](crate::Election::observe).
    ///
    /// # Errors
    /// As there, and [`Error::NoThread`].
    pub fn observe(&self) -> Result<Observer, Error> {
        self.keep_observer(|election| election.observe())
    }

    /// As [`observe`](Self::observe), at another pace: see
    /// [`Election::observe_every`](crate::Election::observe_every).
    ///
    /// # Errors
    /// As there, and [`Error::NoThread`].
    pub fn observe_every(&self, pace: Duration) -> Result<Observer, Error> {
        self.keep_observer(|election| election.observe_every(pace))
    }

    fn keep_observer(
        &self,
        observe: impl FnOnce(&crate::Election) -> Result<crate::Observer, Error>,
    ) -> Result<Observer, Error> {
        let observer = async { observe(&self.election) };
        Ok(Observer {
            observer: self.client.background.run(observer)?,
            client: self.client.clone(),
        })
    }

    fn keep(&self, leadership: crate::Leadership) -> Leadership {
        let (lease, value) = leadership.into_parts();
        let lease = self.client.keep(lease);
        Leadership { lease, value }
    }
}

/// We lead, until this ends: the [`Lease`] on the election's lock. Dropping it resigns in the
/// background.
///
/// ```
/// # fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::blocking::Client::memory()?;
/// let leadership = locks.election("scheduler").try_campaign("10.0.0.7:8080")?;
/// println!("{} leads with token {}", leadership.proclaimed(), leadership.token());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Leadership {
    lease: Lease,
    value: Owner,
}

impl Leadership {
    /// The value under which we lead.
    #[must_use]
    pub fn proclaimed(&self) -> &str {
        self.value.as_str()
    }

    /// Lets others lead, and tells the outcome, as soon as a majority has answered.
    ///
    /// # Errors
    /// As [`Lease::release`].
    pub fn resign(self) -> Result<(), Error> {
        self.lease.release()
    }
}

impl Deref for Leadership {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

/// Who leads, again and again: the [async observer](crate::Observer), with the same promises, for
/// threads.
///
/// As an iterator it blocks until there is a new leader, and ends only with the client's background
/// thread.
///
/// ```
/// # fn main() -> Result<(), fencepost::Error> {
/// # let locks = fencepost::blocking::Client::memory()?;
/// use std::time::Duration;
///
/// let election = locks.election("scheduler");
/// let mut observer = election.observe()?;
/// let leadership = election.try_campaign("10.0.0.7:8080")?;
/// let leader = observer.next().expect("somebody leads");
/// assert_eq!(leader.token, leadership.token());
/// assert_eq!(observer.wait_next(Duration::from_millis(1)), None, "nobody new");
/// # Ok(()) }
/// ```
pub struct Observer {
    // Before the client, and with it the thread, so that it goes first.
    observer: crate::Observer,
    client: Client,
}

impl Observer {
    /// Blocks until there is a new leader, or until the time is over: then `None`.
    pub fn wait_next(&mut self, at_most: Duration) -> Option<Leader> {
        let next = async { Ok(tokio::time::timeout(at_most, self.observer.next()).await) };
        self.client.background.run(next).ok()?.ok()?
    }
}

impl Iterator for Observer {
    type Item = Leader;

    fn next(&mut self) -> Option<Leader> {
        let next = async { Ok(self.observer.next().await) };
        self.client.background.run(next).ok()?
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.observer.fmt(f)
    }
}
