//! What a command is, and what a reply to it says.

use super::super::wire::Urgency;
use fencepost_core::lock::{Command, Reply};

/// The reply that a command has when nothing is in its way.
pub(super) fn usual_reply(command: &Command) -> Reply {
    match command {
        Command::Acquire { proposed, .. } => Reply::Granted {
            register: *proposed,
            evicted: None,
        },
        _ => Reply::Released,
    }
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

/// Whether the answer may be counted towards a quorum.
pub(in crate::store::redis) fn is_vote(command: &Command) -> bool {
    !matches!(
        command,
        Command::Release { .. }
            | Command::ReleaseLease { .. }
            | Command::Enqueue { .. }
            | Command::Leave { .. }
            | Command::Inspect
    )
}

/// Whether the answer says that the lock is the caller's.
pub(in crate::store::redis) fn holds(reply: &Reply) -> bool {
    matches!(
        reply,
        Reply::Granted { .. }
            | Reply::Raised(_)
            | Reply::NotRaised(_)
            | Reply::Extended
            | Reply::Repaired
    )
}

/// The answer to one that may take the lock, and was released before it could.
pub(in crate::store::redis) fn given_up(command: &Command) -> Reply {
    match command {
        Command::Extend { .. } | Command::ExtendShared { .. } => Reply::NotHeld(None),
        _ => Reply::Tombstoned,
    }
}
