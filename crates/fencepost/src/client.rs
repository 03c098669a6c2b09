//! [`Client`]: the client. Few words: connect (or embedded), `lock`, `try_lock`, the lease.

#[cfg(feature = "sqlite")]
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::builder::Builder;
use crate::driver::coordinator::{Access, Claim, Coordinator, Grant, Take};
use crate::driver::identity::ValueForm;
use crate::driver::waiters::WaitRegistry;
use crate::error::Error;
use crate::events;
use crate::lease::{Lease, Limits, Renewer};
use crate::lock::LockRequest;
use crate::reentrant::Doors;
use crate::status::Status;
use fencepost_core::Owner;
use fencepost_core::lock::Precedence;
use fencepost_core::name::LockName;
use fencepost_core::ticket::Ticket;
use fencepost_core::ttl::{Readable, Ttl};

/// A client of one store: one node, or several that form a quorum.
///
/// Clones are cheap and share the connections. See the [crate's front page](crate) for how to
/// begin.
#[derive(Clone)]
pub struct Client {
    pub(crate) core: Arc<Core>,
}

/// What all clones and leases of one client share.
pub(crate) struct Core {
    pub(crate) coordinator: Arc<Coordinator>,
    pub(crate) owner: Owner,
    pub(crate) room: Arc<WaitRegistry>,
    pub(crate) doors: Arc<Doors>,
    pub(crate) schedule: Arc<Renewer>,
    pub(crate) max_ttl: Ttl,
    pub(crate) default_ttl: Ttl,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_renewals: Option<u32>,
    pub(crate) node_timeout: Duration,
}

impl Core {
    /// The form of this client's values, where nothing else is said.
    pub(crate) fn value_form(&self) -> ValueForm {
        ValueForm::Labelled(self.owner.clone())
    }
}

impl Drop for Core {
    /// The last client and the last lease are gone.
    fn drop(&mut self) {
        self.schedule.close();
    }
}

/// Which lock is wanted, by whom, and how.
pub(crate) struct Wish<'a> {
    pub(crate) form: &'a ValueForm,
    pub(crate) name: LockName,
    pub(crate) ttl: Ttl,
    pub(crate) access: Access,
    pub(crate) limits: Limits,
}

/// A lock that was taken from its holder: see [`Client::steal`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Stolen {
    /// The lock is ours now.
    pub lease: Lease,
    /// Who had it.
    pub from: Option<Owner>,
}

impl Client {
    /// Connects to the store at that URL, or to a quorum of several, separated by commas.
    ///
    /// | URL | store |
    /// | --- | --- |
    /// | `memory:` | a table in this process, shared by all that ask for it |
    /// | `file:PATH` | a file, shared by all processes of this machine |
    /// | `redis://[user][:password]@host[:port][/db]` | a Redis or Valkey server |
    /// | `rediss://…` | the same over TLS |
    /// | `redis+unix:///path/to/socket` | the same over a Unix socket |
    /// | `valkey://`, `valkeys://`, `valkey+unix://` | the same three |
    ///
    /// Returns as soon as a majority of the nodes can be asked. A comma inside a password is
    /// written `%2C`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// let locks = fencepost::Client::connect("memory:").await?;
    /// let lease = locks.lock("nightly-report").await?;
    /// println!("token {}", lease.token());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidUrl`] for a URL that cannot be used, [`Error::Unreachable`] with each
    /// node's reason when fewer than a majority can be asked.
    pub async fn connect(urls: impl AsRef<str>) -> Result<Self, Error> {
        Self::builder().url(urls).connect().await
    }

    /// All options: nodes, time-outs, owner label, what to do after a restart, …
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A table in memory of its own: for one process, and for tests. Clones share it.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside of a tokio runtime.
    pub fn memory() -> Result<Self, Error> {
        Self::builder()
            .node(crate::store::memory::MemoryNode::new())
            .build()
    }

    /// A file, shared by all processes of this machine. It is made if it is missing.
    ///
    /// # Errors
    /// [`Error::Store`] when the file cannot be opened.
    #[cfg(feature = "sqlite")]
    pub fn file(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::builder().file(path).build()
    }

    /// Takes the lock if it is free. One round trip; never waits.
    ///
    /// The lease does not renew itself: it ends after `ttl` at the latest, unless you
    /// [extend](Lease::extend) it. To try without waiting and have it renewed, use
    /// [`lock`](Self::lock) with a [`wait`](LockRequest::timeout) of zero.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let lease = locks.try_lock("invoice-42", Duration::from_secs(10)).await?;
    /// let busy = locks.try_lock("invoice-42", Duration::from_secs(10)).await;
    /// assert!(busy.unwrap_err().is_held());
    /// lease.release().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Held`] says who has it and for how long, [`Error::NoQuorum`] why too few nodes
    /// could be asked, [`Error::InvalidName`] and [`Error::InvalidTtl`] what cannot be used.
    pub async fn try_lock(&self, name: impl AsRef<str>, ttl: Duration) -> Result<Lease, Error> {
        let name = LockName::new(name)?;
        let ttl = self.checked_ttl(ttl)?;
        self.attempt(name, ttl, Limits::default(), Precedence::MayPass, None)
            .await
    }

    /// Takes the lock, waiting for it if somebody else has it.
    ///
    /// Await what this returns, or set options on it first.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencepost::Error> {
    /// # let locks = fencepost::Client::memory()?;
    /// use std::time::Duration;
    ///
    /// let lease = locks
    ///     .lock("invoice-42")
    ///     .ttl(Duration::from_secs(10))
    ///     .timeout(Duration::from_secs(2))
    ///     .await?;
    /// assert!(lease.is_valid());
    /// # Ok(()) }
    /// ```
    #[must_use = "nothing is locked before it is awaited"]
    pub fn lock(&self, name: impl AsRef<str>) -> LockRequest {
        LockRequest::new(self.clone(), name.as_ref())
    }

    /// Takes the lock from whoever has it: an operator's act, for a holder that hangs.
    ///
    /// The old holder is told when it next extends its lease, and until then may go on working:
    /// only the fencing token protects the resource from it.
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock), without [`Error::Held`].
    pub async fn steal(&self, name: impl AsRef<str>, ttl: Duration) -> Result<Stolen, Error> {
        let (name, ttl) = (LockName::new(name)?, self.checked_ttl(ttl)?);
        let wish = Wish {
            form: &self.core.value_form(),
            name,
            ttl,
            access: Access::Exclusive,
            limits: Limits::default(),
        };
        let claim = self.claim(wish, None)?;
        let mut grant = self.take(&claim, &Take::Stolen).await?;
        let from = grant.evicted.take();
        let lease = Lease::new(self.core.clone(), grant, Limits::default());
        Ok(Stolen { lease, from })
    }

    /// Who holds the lock, and what each node says of it.
    ///
    /// # Errors
    /// [`Error::InvalidName`]. A node that cannot be asked is part of the answer, not an error.
    pub async fn status(&self, name: impl AsRef<str>) -> Result<Status, Error> {
        Ok(Status::ask(&self.core.coordinator, LockName::new(name)?).await)
    }

    /// Waits until what goes on in the background has ended: releases of dropped leases, and of
    /// attempts that were given up. At most as long as a node that is away is waited for, which is
    /// one TTL.
    ///
    /// Dropping the client waits for nothing, and lets what is in flight finish while the runtime
    /// lives. Use this before the runtime ends.
    pub async fn shutdown(self) {
        self.core.coordinator.settled().await;
    }

    pub(crate) async fn attempt(
        &self,
        name: LockName,
        ttl: Ttl,
        limits: Limits,
        turn: Precedence,
        ticket: Option<Ticket>,
    ) -> Result<Lease, Error> {
        let wish = Wish {
            form: &self.core.value_form(),
            name,
            ttl,
            access: Access::Exclusive,
            limits,
        };
        self.attempt_as(wish, turn, ticket).await
    }

    /// As `attempt`, with another value than one of the client's label, and to read.
    pub(crate) async fn attempt_as(
        &self,
        wish: Wish<'_>,
        turn: Precedence,
        ticket: Option<Ticket>,
    ) -> Result<Lease, Error> {
        let limits = wish.limits;
        let claim = self.claim(wish, ticket)?;
        let grant = self.take(&claim, &Take::Free(turn)).await?;
        Ok(Lease::new(self.core.clone(), grant, limits))
    }

    async fn take(&self, claim: &Claim, take: &Take) -> Result<Grant, Error> {
        let coordinator = &self.core.coordinator;
        let span = events::acquiring(&claim.name);
        let start = coordinator.clock.now();
        let outcome = coordinator
            .acquire(claim, take)
            .instrument(span.clone())
            .await;
        let _in_span = span.enter();
        match &outcome {
            Ok(grant) => {
                let took = coordinator.clock.now().since(start);
                events::acquired(&span, &claim.name, grant.token, took);
            }
            Err(error) => events::contended(&claim.name, error),
        }
        outcome
    }

    fn claim(&self, wish: Wish<'_>, ticket: Option<Ticket>) -> Result<Claim, Error> {
        let value = wish.form.draw(&*self.core.coordinator.randomness)?;
        Ok(Claim {
            name: wish.name,
            value,
            ttl: wish.ttl,
            access: wish.access,
            ticket,
            outlives: false,
        })
    }

    pub(crate) fn checked_ttl(&self, ttl: Duration) -> Result<Ttl, Error> {
        let checked = Ttl::new(ttl)?;
        let most = self.core.max_ttl;
        if checked > most {
            return Err(Error::InvalidTtl {
                ttl,
                why: format!(
                    "it is above max_ttl, which is {}; take a shorter one, or set a larger \
                     max_ttl in every client of these nodes, because a restarted node is not \
                     asked for that long",
                    Readable(most.get())
                ),
            });
        }
        Ok(checked)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nodes = self.core.coordinator.nodes().iter();
        f.debug_struct("Client")
            .field(
                "nodes",
                &nodes.map(|node| node.address()).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}
