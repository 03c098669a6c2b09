//! [`Call`]: what runs between our fork and the user's command.
//!
//! We start ourselves again as `fencepost __child …`, which ties its life to ours, takes the
//! terminal if it is to have it, and becomes the command. The same could be done between fork and
//! exec, but not without `unsafe`; this way costs about a millisecond.

use std::ffi::{CStr, OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, getpgrp, getppid};

use crate::exit::{Exit, Failure};
use crate::terminal;
use crate::voice::{Event, Voice};

/// The word that no user types.
const WORD: &str = "__child";
const FOREGROUND: &str = "foreground";
const BACKGROUND: &str = "background";
const NO_DEADLINE: &str = "-";

/// A call of ourselves, by ourselves.
pub(crate) struct Call<'a> {
    parent: Pid,
    foreground: bool,
    /// On the boot-time clock: what has not begun by then must not begin.
    deadline: Option<Duration>,
    program: &'a OsStr,
    args: &'a [OsString],
}

impl<'a> Call<'a> {
    pub(crate) fn parse(words: &'a [OsString]) -> Option<Self> {
        let [_, word, parent, place, deadline, program, args @ ..] = words else {
            return None;
        };
        let deadline = (word == WORD).then_some(deadline)?.to_str()?;
        Some(Self {
            parent: Pid::from_raw(parent.to_str()?.parse().ok()?),
            foreground: place == FOREGROUND,
            deadline: match deadline {
                NO_DEADLINE => None,
                nanos => Some(Duration::from_nanos(nanos.parse().ok()?)),
            },
            program,
            args,
        })
    }

    /// Returns only if the command cannot be executed.
    pub(crate) fn become_command(self) -> ExitCode {
        be_called(c"fencepost");
        die_with_parent();
        // It may have died before we asked to be told.
        if getppid() != self.parent {
            return Exit::Signal(nix::libc::SIGKILL).into();
        }
        if self.foreground {
            terminal::hand_to(getpgrp());
        }
        // As late as can be: we may have been stopped since the lock was granted.
        if self
            .deadline
            .is_some_and(|deadline| boot_time() >= deadline)
        {
            let message = "the lock expired before the command could be started";
            let failure = Failure::new(Exit::Lost, message);
            Voice::Plain.tell(&Event::Failed(&failure));
            return failure.exit.into();
        }
        let error = Command::new(self.program).args(self.args).exec();
        let failure = cannot_run(self.program, &error);
        Voice::Plain.tell(&Event::Failed(&failure));
        failure.exit.into()
    }
}

/// The command that becomes `command`, unless it does not begin in time.
pub(crate) fn around(
    command: &[OsString],
    foreground: bool,
    deadline: Option<Duration>,
) -> io::Result<Command> {
    let deadline = deadline.map(|deadline| {
        let nanos = u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX);
        nanos.to_string()
    });
    let mut shim = Command::new(ourselves()?);
    shim.arg0("fencepost")
        .arg(WORD)
        .arg(Pid::this().to_string())
        .arg(if foreground { FOREGROUND } else { BACKGROUND })
        .arg(deadline.as_deref().unwrap_or(NO_DEADLINE))
        .args(command);
    Ok(shim)
}

/// Why a command was not run, and the exit code that shells have for it.
pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let program = program.display();
    match error.kind() {
        ErrorKind::NotFound => {
            let message = format!("cannot run {program}: command not found");
            Failure::new(Exit::NotFound, message)
        }
        _ => Failure::new(
            Exit::CannotExecute,
            format!("cannot run {program}: {error}"),
        ),
    }
}

/// Not by path: the file may have been replaced by a newer version meanwhile.
#[cfg(target_os = "linux")]
pub(crate) fn ourselves() -> io::Result<std::path::PathBuf> {
    const PATH: &str = "/proc/self/exe";
    match std::fs::symlink_metadata(PATH) {
        Ok(_) => Ok(PATH.into()),
        // Otherwise it would look as if the command were missing.
        Err(error) => Err(io::Error::other(format!("{PATH}: {error}; mount /proc"))),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn ourselves() -> io::Result<std::path::PathBuf> {
    std::env::current_exe()
}

/// Asks to be killed when the thread that started us ends, which is the main thread. It holds for
/// the command too, unless that is a set-user-id program.
#[cfg(target_os = "linux")]
fn die_with_parent() {
    // It fails only for a signal that does not exist.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent() {}

/// The name that `ps` and `top` show: `/proc/self/exe` would make it `exe`.
#[cfg(target_os = "linux")]
pub(crate) fn be_called(name: &CStr) {
    // It cannot fail for a name.
    let _ = nix::sys::prctl::set_name(name);
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn be_called(_: &CStr) {}

/// The time since the machine was started, with the time that it was suspended: the clock by which
/// leases end.
pub(crate) fn boot_time() -> Duration {
    #[cfg(target_os = "linux")]
    const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;
    // A clock that does not exist would be the only fault. Then nothing begins.
    clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from)
}
