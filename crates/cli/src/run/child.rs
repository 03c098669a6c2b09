//! [`Child`]: the command and its process group.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg, raise};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpgrp};

use super::env::Environment;
use crate::shim;
use crate::terminal;
use crate::voice::Ended;

/// A command that was started, with everything in its process group.
pub(super) struct Child {
    process: std::process::Child,
    group: Pid,
    /// Whether it was handed our terminal.
    foreground: bool,
    ended: Option<Ended>,
}

impl Child {
    /// Starts the command in a group of its own, and hands it our terminal if it is to have the
    /// foreground. If it cannot be executed before `deadline`, on the boot-time clock, it is not executed at all. Call it
    /// on the main thread: the command dies with the thread that started it.
    pub(super) fn start(
        command: &[OsString],
        env: &Environment,
        foreground: bool,
        deadline: Duration,
    ) -> io::Result<Self> {
        let shim = shim::around(command, foreground, Some(deadline))?;
        Self::spawn(shim, env, Stdio::inherit(), foreground)
    }

    /// The same, without stdin and without the terminal.
    pub(super) fn start_aside(command: &[OsString], env: &Environment) -> io::Result<Self> {
        let shim = shim::around(command, false, None)?;
        Self::spawn(shim, env, Stdio::null(), false)
    }

    fn spawn(
        mut shim: Command,
        env: &Environment,
        stdin: Stdio,
        foreground: bool,
    ) -> io::Result<Self> {
        adopt_orphans();
        env.set_on(&mut shim);
        let process = shim.stdin(stdin).process_group(0).spawn()?;
        let pid = i32::try_from(process.id()).map_err(io::Error::other)?;
        Ok(Self {
            process,
            group: Pid::from_raw(pid),
            foreground,
            ended: None,
        })
    }

    /// Its process group.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// How the command itself ended, if it has.
    pub(super) fn ended(&mut self) -> io::Result<Option<Ended>> {
        if self.ended.is_none() {
            self.ended = self.process.try_wait()?.map(|status| match status.code() {
                // A process's code has eight bits.
                Some(code) => Ended::Code(u8::try_from(code).unwrap_or(u8::MAX)),
                None => Ended::Signal(status.signal().unwrap_or(0)),
            });
        }
        Ok(self.ended)
    }

    /// Whether nothing is left of the group of a command that has ended.
    pub(super) fn is_all_gone(&self) -> bool {
        // Orphans of the group are ours (see `adopt_orphans`), and there until they are reaped.
        let any = Pid::from_raw(-self.group.as_raw());
        while matches!(
            waitpid(any, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
                | Err(Errno::EINTR | Errno::EINVAL)
        ) {}
        killpg(self.group, None) == Err(Errno::ESRCH)
    }

    /// Sends a signal to everything in the group.
    pub(super) fn signal(&self, signal: Signal) {
        // It fails when nothing is left to get it.
        let _ = killpg(self.group, signal);
    }

    /// Asks everything in the group to end. What is stopped is woken to hear it.
    pub(super) fn ask_to_end(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// If the command was stopped at our terminal (^Z, or because it reads there in the background),
    /// stops with it, so that the shell notices, and returns when the shell has us go on. Then it
    /// is for the caller to [wake](Self::wake) it.
    pub(super) fn stop_with_it(&self) -> bool {
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
        let Ok(WaitStatus::Stopped(_, signal)) = waitid(Id::Pid(self.group), flags) else {
            return false;
        };
        if !terminal::is_there() {
            return false;
        }
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if wants_terminal && terminal::is_ours() {
            return true;
        }
        terminal::take_back_from(self.group);
        // The whole job, as the terminal would have done. We are stopped before this returns,
        // unless there is no shell that could have us go on.
        let _ = killpg(getpgrp(), self.stop_signal());
        true
    }

    /// What stops us. TSTP spares an orphaned group, which no shell could wake, but not a process that handles it.
    fn stop_signal(&self) -> Signal {
        match self.foreground {
            true => Signal::SIGTSTP,
            false => Signal::SIGSTOP,
        }
    }

    /// Stops the group and us: a command must not run while its lock is not renewed. Returns when
    /// we are to go on; then it is for the caller to [wake](Self::wake) it.
    pub(super) fn stop_with_us(&self) {
        self.signal(Signal::SIGSTOP);
        // It cannot fail.
        let _ = raise(Signal::SIGSTOP);
    }

    /// Lets a stopped command go on, at the terminal if we have it.
    pub(super) fn wake(&self) {
        if terminal::is_ours() {
            terminal::hand_to(self.group);
        }
        self.signal(Signal::SIGCONT);
    }
}

impl Drop for Child {
    /// Takes the terminal back.
    fn drop(&mut self) {
        if self.foreground {
            terminal::take_back_from(self.group);
        }
    }
}

/// Makes orphans of the command our children, so that we see them end: the first process of a
/// container often leaves the dead lying about, and a group with a dead member is a group.
#[cfg(target_os = "linux")]
fn adopt_orphans() {
    // It cannot fail since Linux 3.4.
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

#[cfg(not(target_os = "linux"))]
fn adopt_orphans() {}
