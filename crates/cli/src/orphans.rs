//! Processes whose parents have ended become children of ours: when we are the first process of a
//! container, and while a command runs (see `run::child`). They stay zombies until we
//! reap them.

use nix::sys::wait::{Id, WaitPidFlag, waitid, waitpid};
use nix::unistd::Pid;

/// Reaps all that have ended, up to the first that is `mine`, which it returns: its status is read by the
/// code that started it.
pub(crate) fn reap(mine: impl Fn(Pid) -> bool) -> Option<Pid> {
    // It looks without reaping, so that the status of a process that is `mine` is not lost.
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Some(pid) = waitid(Id::All, look).ok().and_then(|status| status.pid()) {
        if mine(pid) {
            return Some(pid);
        }
        if waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_err() {
            break;
        }
    }
    None
}
