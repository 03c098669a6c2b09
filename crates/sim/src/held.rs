//! What a client may hold: a lock, a permit, a leadership, several locks; and what all of these have in
//! common.

use std::time::Duration;

use fencepost::{Error, Leadership, Lease, MultiLease, Permit, ReadLease, WriteLease};

/// What is held until it is lost or given back.
pub(crate) trait Hold {
    fn remaining(&self) -> Duration;

    fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// The locks that it is made of, each with its token.
    fn tokens(&self) -> Vec<(String, u64)>;

    /// Resolves when it is lost, and says how in a word.
    async fn lost(&self) -> String;

    async fn extend(&self) -> Result<(), Error>;
}

impl Hold for Lease {
    fn remaining(&self) -> Duration {
        self.remaining()
    }

    fn tokens(&self) -> Vec<(String, u64)> {
        vec![(self.name().to_owned(), self.token().get())]
    }

    async fn lost(&self) -> String {
        self.lost().await.as_str().to_owned()
    }

    async fn extend(&self) -> Result<(), Error> {
        self.extend().await
    }
}

/// One of the things that can be held.
pub(crate) enum Held {
    Lock(Lease),
    Reader(ReadLease),
    Writer(WriteLease),
    Permit(Permit),
    Leadership(Leadership),
    Several(MultiLease),
}

impl Held {
    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(lease) => lease.release().await,
            Self::Reader(lease) => lease.release().await,
            Self::Writer(lease) => lease.release().await,
            Self::Permit(permit) => permit.release().await,
            Self::Leadership(leadership) => leadership.resign().await,
            Self::Several(leases) => leases.release().await,
        }
    }

    /// The lease that it is, if it is one.
    fn lease(&self) -> Result<&Lease, &MultiLease> {
        match self {
            Self::Lock(lease) => Ok(lease),
            Self::Reader(lease) => Ok(lease),
            Self::Writer(lease) => Ok(lease),
            Self::Permit(permit) => Ok(permit),
            Self::Leadership(leadership) => Ok(leadership),
            Self::Several(leases) => Err(leases),
        }
    }
}

impl Hold for Held {
    fn remaining(&self) -> Duration {
        match self.lease() {
            Ok(lease) => lease.remaining(),
            Err(several) => several.remaining(),
        }
    }

    fn tokens(&self) -> Vec<(String, u64)> {
        let several = match self.lease() {
            Ok(lease) => return Hold::tokens(lease),
            Err(several) => several.tokens(),
        };
        several
            .map(|(name, token)| (name.to_owned(), token.get()))
            .collect()
    }

    async fn lost(&self) -> String {
        match self.lease() {
            Ok(lease) => Hold::lost(lease).await,
            Err(several) => several.lost().await.why.as_str().to_owned(),
        }
    }

    async fn extend(&self) -> Result<(), Error> {
        match self.lease() {
            Ok(lease) => lease.extend().await,
            Err(several) => several.extend().await,
        }
    }
}
