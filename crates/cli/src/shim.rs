//! [`Call`]: what runs between our fork and the user's command.
//!
//! We start ourselves again as `fencepost __child …`, which ties its life to ours, takes the
//! terminal if it is to have it, and becomes the command. The same could be done between fork and
//! exec, but not without `unsafe`; this way costs about a millisecond.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nix::unistd::{Pid, getpgrp, getppid};

use crate::exit::{Exit, Failure};
use crate::run::terminal;
use crate::voice::{Event, Voice};

/// The word that no user types.
const WORD: &str = "__child";
const FOREGROUND: &str = "foreground";
const BACKGROUND: &str = "background";

/// A call of ourselves, by ourselves.
pub(crate) struct Call<'a> {
    parent: Pid,
    foreground: bool,
    program: &'a OsStr,
    args: &'a [OsString],
}

impl<'a> Call<'a> {
    pub(crate) fn parse(words: &'a [OsString]) -> Option<Self> {
        let [_, word, parent, place, program, args @ ..] = words else {
            return None;
        };
        Some(Self {
            parent: Pid::from_raw((word == WORD).then_some(parent)?.to_str()?.parse().ok()?),
            foreground: place == FOREGROUND,
            program,
            args,
        })
    }

    /// Returns only if the command cannot be executed.
    pub(crate) fn become_command(self) -> ExitCode {
        die_with_parent();
        // It may have died before we asked to be told.
        if getppid() != self.parent {
            return Exit::Signal(nix::libc::SIGKILL).into();
        }
        if self.foreground {
            terminal::hand_to(getpgrp());
        }
        let error = Command::new(self.program).args(self.args).exec();
        let failure = cannot_run(self.program, &error);
        Voice::Plain.tell(&Event::Failed(&failure));
        failure.exit.into()
    }
}

/// The command that becomes `command`.
pub(crate) fn around(command: &[OsString], foreground: bool) -> io::Result<Command> {
    let mut shim = Command::new(ourselves()?);
    shim.arg0("fencepost")
        .arg(WORD)
        .arg(Pid::this().to_string())
        .arg(if foreground { FOREGROUND } else { BACKGROUND })
        .args(command);
    Ok(shim)
}

/// Why a command was not run, and the exit code that shells have for it.
pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let program = program.display();
    match error.kind() {
        ErrorKind::NotFound => {
            let message = format!("cannot run {program}: there is no such command");
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
    Ok("/proc/self/exe".into())
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
