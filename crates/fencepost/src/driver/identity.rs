//! What a client calls itself, and the values of its attempts.

use fencepost_core::{AttemptValue, ClientId, Owner, SessionId};

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

/// Which of the two forms a value has.
#[derive(Clone, Debug)]
pub(crate) enum ValueForm {
    /// With a label for people.
    Labelled(Owner),
    /// That of a reentrant lock, as Redisson writes it.
    Reentrant,
}

impl ValueForm {
    /// A fresh value for one attempt of that session: 80 bits of it are random.
    pub(crate) fn draw(
        &self,
        randomness: &dyn Randomness,
        session: SessionId,
    ) -> Result<AttemptValue, Error> {
        let random = session.lead(draw(randomness)?);
        Ok(match self {
            Self::Labelled(owner) => AttemptValue::labelled(random, owner),
            Self::Reentrant => AttemptValue::reentrant(random, std::process::id()),
        })
    }
}
