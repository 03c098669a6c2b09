//! Which process a lock in a file is tied to.
//!
//! It must never tie a lock to a process that may end before its holder: extending a lock for
//! another process leaves it tied as it was.

use super::process::Process;
use fencepost_core::lock::Reply;

/// The process that a lock in a file is tied to: when it dies, the lock is free at once.
///
/// For programs that acquire a lock, exit, and leave it to others; see
/// [`Lease::detach`](crate::Lease::detach). Redis knows no processes: there a lock ends with its
/// TTL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HolderProcess {
    /// This process.
    #[default]
    This,
    /// The process with this id, which must exist when the store is opened.
    Other(u32),
    /// None: an acquired lock ends with its TTL, and an extended one stays tied as it was.
    Unbound,
}

/// The same, with the process resolved.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holder {
    Process(Option<Process>),
    AsItWas,
}

/// Whether a command ties its lock to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bond {
    /// To the process of this node.
    OfThisNode,
    /// To none: the lock ends with its TTL.
    None,
}

impl Holder {
    /// Resolves the process.
    pub(super) fn find(holder: HolderProcess) -> Result<Self, String> {
        match holder {
            HolderProcess::This => Ok(Self::Process(Process::current())),
            HolderProcess::Unbound => Ok(Self::AsItWas),
            HolderProcess::Other(pid) => match (Process::current(), Process::of(pid)) {
                (Some(_), None) => Err(format!(
                    "no process {pid} to hold its locks; use the id of a running process"
                )),
                // If processes cannot be identified, the TTL decides.
                (_, process) => Ok(Self::Process(process)),
            },
        }
    }

    /// The process that a lock is tied to after a command with this reply, when it was tied to
    /// `before`.
    pub(super) fn after(
        self,
        bond: Bond,
        reply: &Reply,
        before: Option<Process>,
    ) -> Option<Process> {
        let us = match (bond, self) {
            (Bond::None, _) => Some(None),
            (Bond::OfThisNode, Self::Process(us)) => Some(us),
            (Bond::OfThisNode, Self::AsItWas) => None,
        };
        match reply {
            Reply::Granted { .. } | Reply::Repaired => us.flatten(),
            Reply::Extended => us.unwrap_or(before),
            _ => before,
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::process::Command;

    use fencepost_core::token::FencingToken;

    const GRANTED: Reply = Reply::Granted {
        register: FencingToken::ZERO,
        evicted: None,
    };

    #[test]
    fn what_is_taken_is_tied_to_whom_it_was_taken_for() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let other = Holder::find(HolderProcess::Other(child.id())).unwrap();
        let tied = other.after(Bond::OfThisNode, &GRANTED, None).unwrap();
        assert_eq!(tied.pid, child.id());
        assert_eq!(
            other.after(Bond::OfThisNode, &Reply::Extended, None),
            Some(tied)
        );
        assert_eq!(
            other.after(Bond::OfThisNode, &Reply::NotHeld(None), None),
            None
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(tied.is_gone(&Process::current().unwrap()));
        let error = Holder::find(HolderProcess::Other(child.id())).unwrap_err();
        assert!(error.contains("no process"), "{error}");
    }

    #[test]
    fn who_extends_for_another_leaves_it_tied_as_it_was() {
        let unbound = Holder::find(HolderProcess::Unbound).unwrap();
        let us = Process::current();
        assert_eq!(unbound.after(Bond::OfThisNode, &Reply::Extended, us), us);
        assert_eq!(unbound.after(Bond::OfThisNode, &Reply::Repaired, us), None);
        assert_eq!(unbound.after(Bond::OfThisNode, &GRANTED, us), None);
        let this = Holder::find(HolderProcess::This).unwrap();
        assert_eq!(this.after(Bond::OfThisNode, &GRANTED, None), us);
    }

    #[test]
    fn what_is_to_outlive_its_process_is_tied_to_none() {
        let us = Process::current();
        for holder in [HolderProcess::This, HolderProcess::Unbound] {
            let holder = Holder::find(holder).unwrap();
            assert_eq!(holder.after(Bond::None, &Reply::Extended, us), None);
            assert_eq!(holder.after(Bond::None, &GRANTED, us), None);
            assert_eq!(holder.after(Bond::None, &Reply::NotHeld(None), us), us);
        }
    }
}
