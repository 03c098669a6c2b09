//! What a command is, and what a reply to it says.

use crate::store::redis::protocol::wire::Urgency;
use fencepost_core::lock::{Command, Reply};

/// The reply to a command that was sent by plain commands when nothing was in its way: to an acquire or a release.
pub(super) fn usual_reply(command: &Command) -> Reply {
    command.usual_reply().unwrap_or(Reply::Released)
}

/// When a command's script is to be written.
pub(super) fn urgency(command: &Command) -> Urgency {
    match command {
        // The attempt of the follower comes in the next moment.
        Command::Release {
            follower: Some(_), ..
        } => Urgency::WithNext,
        _ => Urgency::Now,
    }
}

/// The answer to one that may take the lock, and was released before it could.
pub(crate) fn given_up(command: &Command) -> Reply {
    match command {
        Command::Extend { .. } | Command::ExtendShared { .. } => Reply::NotHeld(None),
        _ => Reply::Tombstoned,
    }
}
