//! Which process group has the terminal's foreground.
//!
//! A process group that is not in the terminal's foreground cannot read from it. The command has a
//! group of its own, so it is handed the foreground when we had it, and we take it back at the end.

use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// Whether stdin is a terminal.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal()
}

/// Whether stdin is a terminal and we are in its foreground.
pub(crate) fn is_ours() -> bool {
    let stdin = io::stdin();
    stdin.is_terminal() && tcgetpgrp(&stdin) == Ok(getpgrp())
}

/// Puts a process group into the foreground. Without a terminal it does nothing.
pub(crate) fn hand_to(group: Pid) {
    // A process in the background that does this is stopped by SIGTTOU, unless it is blocked.
    let stop = SigSet::from(Signal::SIGTTOU);
    let blocked = stop.thread_block();
    // It fails when the terminal was hung up; then nothing reads from it.
    let _ = tcsetpgrp(io::stdin(), group);
    if blocked.is_ok() {
        let _ = stop.thread_unblock();
    }
}

/// Takes the foreground back from a process group, if that has it: a shell may have taken it from
/// both of us (`bg`).
pub(crate) fn take_back_from(group: Pid) {
    if tcgetpgrp(io::stdin()) == Ok(group) {
        hand_to(getpgrp());
    }
}
