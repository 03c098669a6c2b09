//! [`ForPid`]: for which process a script's lock in a file is taken.
//!
//! It must never name a process that ends before the script does: then the lock would be free while
//! the script relies on it. Where in doubt it names one that lives longer; the TTL ends the lock
//! anyway.

use std::fs;
use std::path::PathBuf;

use fencepost::HolderProcess;
use nix::unistd::{gethostname, getppid};

use crate::exit::Failure;
use crate::owner;

/// How many subshells within subshells are seen through.
const MOST_SUBSHELLS: usize = 16;

/// The process with whose end a lock in a file is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForPid {
    Pid(u32),
    Unbound,
}

impl ForPid {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "none" => Ok(Self::Unbound),
            Ok(pid) if pid > 0 => Ok(Self::Pid(pid)),
            _ => Err("expected a process id or `none`".into()),
        }
    }

    /// Refuses a process that is not there.
    pub(crate) fn checked(self) -> Result<Self, Failure> {
        match self {
            Self::Pid(pid) if is_missing(pid) => Err(Failure::usage(format!(
                "there is no process {pid}; give --for-pid the id of a running process"
            ))),
            there => Ok(there),
        }
    }

    /// The script that runs this command: our parent; or, where that is a subshell as `$(…)` and
    /// `(…)` make it, the shell that it was forked from.
    pub(crate) fn of_the_script() -> Self {
        let Ok(mut pid) = u32::try_from(getppid().as_raw()) else {
            return Self::Unbound;
        };
        for _ in 0..MOST_SUBSHELLS {
            match Image::of(pid) {
                // A fork that has not become another program shows its parent's words.
                Some(shell) if Image::of(shell.parent).is_some_and(|it| it.is_same(&shell)) => {
                    pid = shell.parent;
                }
                _ => break,
            }
        }
        match pid {
            // Our parent is in another pid namespace, or gone.
            0 => Self::Unbound,
            pid => Self::Pid(pid),
        }
    }

    /// In the library's words.
    pub(crate) fn process(self) -> HolderProcess {
        match self {
            Self::Pid(pid) => HolderProcess::Other(pid),
            Self::Unbound => HolderProcess::Unbound,
        }
    }

    /// What others see as the holder: `host:pid:program`.
    pub(crate) fn owner(self) -> String {
        let pid = match self {
            Self::Pid(pid) => pid,
            Self::Unbound => std::process::id(),
        };
        let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let host = gethostname().unwrap_or_default();
        owner::label(&host, pid, program.trim_end().as_ref())
    }
}

/// Whether it is known that there is no such process.
fn is_missing(pid: u32) -> bool {
    let Ok(pid) = i32::try_from(pid) else {
        return true;
    };
    let pid = nix::unistd::Pid::from_raw(pid);
    nix::sys::signal::kill(pid, None) == Err(nix::errno::Errno::ESRCH)
}

/// What a process runs.
struct Image {
    program: PathBuf,
    words: Vec<u8>,
    parent: u32,
}

impl Image {
    /// `None` where `/proc` does not tell.
    fn of(pid: u32) -> Option<Self> {
        if pid <= 1 {
            return None;
        }
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // After the program's name, which may have spaces and parentheses: state, parent.
        let parent = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        Some(Self {
            program: fs::read_link(format!("/proc/{pid}/exe")).ok()?,
            words: fs::read(format!("/proc/{pid}/cmdline")).ok()?,
            parent,
        })
    }

    fn is_same(&self, other: &Self) -> bool {
        self.program == other.program && self.words == other.words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_number_or_none() {
        assert_eq!(ForPid::parse("none"), Ok(ForPid::Unbound));
        assert_eq!(ForPid::parse("17"), Ok(ForPid::Pid(17)));
        for text in ["", "0", "-1", "me", "99999999999"] {
            assert!(ForPid::parse(text).is_err(), "{text}");
        }
        assert!(ForPid::Pid(std::process::id()).checked().is_ok());
        assert!(ForPid::Pid(u32::MAX).checked().is_err());
    }
}
