//! What a client calls itself, and the values of its attempts.

use fencepost_core::{AttemptValue, ClientId, LeaseAttempt, Owner, SessionId};

use crate::error::Error;
use crate::runtime::randomness::{Randomness, draw};

/// `host:pid:program` of this process.
pub(crate) fn this_process() -> Owner {
    let host = rustix::system::uname();
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(|path| path.file_name());
    Owner::shortened(&format!(
        "{}:{}:{}",
        host.nodename().to_string_lossy(),
        std::process::id(),
        program.unwrap_or_default().to_string_lossy(),
    ))
}

/// An id that no other client has, and the session that it begins with: that one, or one of its own.
pub(crate) fn client_id(
    randomness: &dyn Randomness,
    session: Option<SessionId>,
) -> Result<(ClientId, SessionId), Error> {
    let random = draw(randomness)?;
    let session = session.unwrap_or(SessionId::of(random));
    Ok((ClientId::of(session.lead(random)), session))
}

/// For whom a replica of the lock service asks: see [`leased`](crate::leased).
#[derive(Clone, Debug)]
pub struct OnBehalf {
    /// Which attempt of which lease.
    pub of: LeaseAttempt,
    /// The owner's label, also of the ticket.
    pub owner: Owner,
    /// Whether the ticket stays in the queue for one ticket lease when the request ends without the
    /// lock: its client may send it again, here or to another replica.
    pub keeps_place: bool,
}

/// Which form a value has.
#[derive(Clone, Debug)]
pub(crate) enum ValueForm {
    /// With a label for people.
    Labelled(Owner),
    /// That of a reentrant lock, as Redisson writes it.
    Reentrant,
    /// With the lease id and the attempt of a client of the lock service.
    Leased(LeaseAttempt, Owner),
}

impl ValueForm {
    /// A fresh value for one attempt of that session: 80 bits of it are random.
    pub(crate) fn draw(
        &self,
        randomness: &dyn Randomness,
        session: SessionId,
    ) -> Result<AttemptValue, Error> {
        let session = match self {
            // What one client of the service holds and waits for begins as its lease ids do.
            Self::Leased(of, _) => SessionId::of(of.lease.get()),
            _ => session,
        };
        let random = session.lead(draw(randomness)?);
        Ok(match self {
            Self::Labelled(owner) => AttemptValue::labelled(random, owner),
            Self::Reentrant => AttemptValue::reentrant(random, std::process::id()),
            Self::Leased(of, owner) => AttemptValue::leased(random, *of, owner),
        })
    }
}
