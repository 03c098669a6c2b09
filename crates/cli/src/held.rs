//! [`Held`]: what is ours while a command runs.
//!
//! It must never say that it is valid when a part of it is not.

use std::time::Duration;

use fencepost::{
    DetachedLock, Error, FencingToken, Leadership, Lease, LockName, LossReason, MultiLease, Permit,
    ReadLease,
};

use crate::client::fault;
use crate::exit::Failure;

/// What was wanted, and is ours.
#[derive(Debug)]
pub(crate) enum Held {
    One(Lease),
    Shared(ReadLease),
    All(MultiLease),
    Slot(Permit),
    Leader(Leadership),
}

/// All that is held is one lease, or several.
enum Leases<'a> {
    One(&'a Lease),
    Several(&'a MultiLease),
}

impl Held {
    fn leases(&self) -> Leases<'_> {
        match self {
            Self::One(lease) => Leases::One(lease),
            Self::Shared(lease) => Leases::One(lease),
            Self::All(leases) => Leases::Several(leases),
            Self::Slot(permit) => Leases::One(permit),
            Self::Leader(leadership) => Leases::One(leadership),
        }
    }

    /// How long it is still ours, if it is not renewed.
    pub(crate) fn remaining(&self) -> Duration {
        match self.leases() {
            Leases::One(lease) => lease.remaining(),
            Leases::Several(leases) => leases.remaining(),
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How it was lost, if it was, and which of several.
    pub(crate) fn loss(&self) -> Option<(Option<LockName>, LossReason)> {
        match self.leases() {
            Leases::One(lease) => Some((None, lease.loss()?)),
            Leases::Several(leases) => leases.loss().map(|lost| (Some(lost.name), lost.why)),
        }
    }

    /// Returns when it is lost.
    pub(crate) async fn lost(&self) {
        match self.leases() {
            Leases::One(lease) => drop(lease.lost().await),
            Leases::Several(leases) => drop(leases.lost().await),
        }
    }

    /// The token, if it has one only.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        match self.leases() {
            Leases::One(lease) => Some(lease.token()),
            Leases::Several(_) => None,
        }
    }

    /// The tokens of several locks, each with its lock's name.
    pub(crate) fn tokens(&self) -> Option<impl Iterator<Item = (&str, FencingToken)>> {
        match self.leases() {
            Leases::One(_) => None,
            Leases::Several(leases) => Some(leases.tokens()),
        }
    }

    /// The number of the slot, if it is one.
    pub(crate) fn slot(&self) -> Option<usize> {
        match self {
            Self::Slot(permit) => Some(permit.slot()),
            _ => None,
        }
    }

    /// The value under which we lead, if we do.
    pub(crate) fn proclaimed(&self) -> Option<&str> {
        match self {
            Self::Leader(leadership) => Some(leadership.proclaimed()),
            _ => None,
        }
    }

    pub(crate) async fn extend(&self) -> Result<(), Error> {
        match self.leases() {
            Leases::One(lease) => lease.extend().await,
            Leases::Several(leases) => leases.extend().await,
        }
    }

    /// Gives it back and tells the outcome.
    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::One(lease) => lease.release().await,
            Self::Shared(lease) => lease.release().await,
            Self::All(leases) => leases.release().await,
            Self::Slot(permit) => permit.release().await,
            Self::Leader(leadership) => leadership.resign().await,
        }
    }

    /// Leaves it to the caller who has its value.
    pub(crate) async fn detach(self) -> Result<DetachedLock, Failure> {
        let detached = match self {
            Self::One(lease) => lease.detach().await,
            Self::Shared(lease) => lease.detach().await,
            _ => return Err(Failure::usage("only a single lock can be detached")),
        };
        detached.map_err(|error| fault(&error))
    }
}
