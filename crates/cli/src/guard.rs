//! [`Guard`]: a second process of ours that kills the command's group if we are killed with -9.
//!
//! The parent-death signal reaches the command itself but not what it has started. The guard reads
//! from a pipe whose other end only we have, so it sees its end when we are gone, however we went.

use std::ffi::{CStr, OsString};
use std::io::{self, ErrorKind, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::shim::{self, ourselves};

/// The word that no user types.
const WORD: &str = "__guard";
/// What `ps` and `top` show: at most 15 bytes.
const NAME: &CStr = c"fencepost-guard";

/// A call of ourselves, by ourselves.
pub(crate) struct Call {
    group: Pid,
}

impl Call {
    pub(crate) fn parse(words: &[OsString]) -> Option<Self> {
        let [_, word, group] = words else { return None };
        let group = (word == WORD).then_some(group)?.to_str()?.parse().ok()?;
        // Group 0 would be our own, and 1 every process.
        (group > 1).then_some(Self {
            group: Pid::from_raw(group),
        })
    }

    /// Waits until the process that started us is gone, and kills the group.
    pub(crate) fn watch(self) -> ExitCode {
        shim::be_called(NAME);
        let mut pipe = io::stdin().lock();
        // Nothing is ever written to it: it returns at the end of the pipe, or interrupted.
        while pipe
            .read(&mut [0])
            .is_err_and(|error| error.kind() == ErrorKind::Interrupted)
        {}
        // It fails when nothing is left of it.
        let _ = killpg(self.group, Signal::SIGKILL);
        ExitCode::SUCCESS
    }
}

/// The guard of one process group, as long as this is not dropped.
pub(crate) struct Guard {
    process: Child,
    _pipe: Option<ChildStdin>,
}

impl Guard {
    pub(crate) fn over(group: Pid) -> io::Result<Self> {
        let mut process = Command::new(ourselves()?)
            .arg0("fencepost")
            .arg(WORD)
            .arg(group.to_string())
            // It must not hold on to anything: a directory, a pipe that is read to its end,
            // a terminal whose ^C is not for it.
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let _pipe = process.stdin.take();
        Ok(Self { process, _pipe })
    }

    pub(crate) fn id(&self) -> Pid {
        // A pid is positive and fits.
        Pid::from_raw(self.process.id().cast_signed())
    }

    /// Reaps it, if it was killed.
    pub(crate) fn take_note(&mut self) {
        let _ = self.process.try_wait();
    }

    /// Nothing is left to be guarded.
    pub(crate) fn dismiss(mut self) {
        // It may be gone already, if it was killed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
