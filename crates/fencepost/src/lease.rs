//! [`Lease`]: a lock that is held: its token, its deadline, and the ways to keep or end it.
//!
//! A lease that might not be held must never say that it is: every question is answered from the
//! holder's own clock, and a lease that has ended never comes back.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::client::Core;
use crate::clock::Moment;
use crate::error::{Error, LossReason};
use crate::quorum::fleet::{Claim, Grant, NotExtended};
use crate::quorum::late::Late;
use crate::token::FencingToken;

/// A lock that is ours until the lease ends.
///
/// Dropping it gives the lock back in the background; [`release`](Self::release) also tells the
/// outcome.
pub struct Lease {
    core: Arc<Core>,
    claim: Claim,
    token: FencingToken,
    terms: Mutex<Terms>,
    released: bool,
}

struct Terms {
    deadline: Moment,
    lost: Option<LossReason>,
    /// Commands that were not answered when they no longer mattered.
    late: Late,
}

impl Lease {
    pub(crate) fn new(core: Arc<Core>, grant: Grant) -> Self {
        Self {
            core,
            claim: grant.claim,
            token: grant.token,
            terms: Mutex::new(Terms {
                deadline: grant.deadline,
                lost: None,
                late: grant.late,
            }),
            released: false,
        }
    }

    /// The lock's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.claim.name.as_str()
    }

    /// The fencing token: larger than that of every earlier holder. Hand it to the resource.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The value that the nodes store for this lease: random, then the owner's label.
    #[must_use]
    pub fn value(&self) -> &str {
        self.claim.value.as_str()
    }

    /// How long the lock is still ours. Zero when it is not.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let terms = self.terms();
        match terms.lost {
            Some(_) => Duration::ZERO,
            None => terms.deadline.since(self.core.fleet.clock.now()),
        }
    }

    /// Whether the lock is ours at this moment, by our own clock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Keeps the lock for another TTL from now. The token stays the same.
    ///
    /// A failure takes nothing away: after [`Error::NoQuorum`] the lease goes on until its old
    /// deadline, and may be extended again.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease is over, [`Error::NoQuorum`] when too few nodes could be
    /// asked.
    pub async fn extend(&self) -> Result<(), Error> {
        let until = {
            let terms = self.terms();
            if let Some(why) = &terms.lost {
                return Err(self.lost(why.clone()));
            }
            terms.deadline
        };
        let fleet = &self.core.fleet;
        let late = |late| self.terms().late.join(late);
        match fleet.extend(&self.claim, self.token, until, late).await {
            Ok(deadline) => {
                let mut terms = self.terms();
                terms.deadline = terms.deadline.max(deadline);
                Ok(())
            }
            Err(NotExtended::NoQuorum(nodes)) => Err(Error::NoQuorum {
                name: self.claim.name.clone(),
                needed: fleet.quorum.needed(),
                nodes,
            }),
            Err(NotExtended::Lost(why)) => {
                self.terms().lost.get_or_insert(why.clone());
                Err(self.lost(why))
            }
        }
    }

    /// Gives the lock back and tells the outcome, as soon as a majority has answered.
    ///
    /// Dropping the future does not stop it: the lock is given back all the same.
    ///
    /// # Errors
    /// [`Error::Lost`] when a majority no longer had it: somebody else may have been at work
    /// meanwhile. [`Error::NoQuorum`] when too few nodes could be asked; they are told when they
    /// come back, and the lock ends by its TTL at the latest.
    pub async fn release(mut self) -> Result<(), Error> {
        self.released = true;
        let late = std::mem::take(&mut self.terms().late);
        let fleet = self.core.fleet.clone();
        fleet.release(self.claim.clone(), late).await
    }

    fn lost(&self, why: LossReason) -> Error {
        Error::Lost {
            name: self.claim.name.clone(),
            why,
        }
    }

    fn terms(&self) -> MutexGuard<'_, Terms> {
        // A panic while it was locked cannot have left it half changed.
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.released {
            let fleet = &self.core.fleet;
            let late = std::mem::take(&mut self.terms().late);
            fleet.let_go(self.claim.clone(), fleet.all(), late);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", &self.claim.name)
            .field("token", &self.token)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
