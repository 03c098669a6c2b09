//! [`Exit`]: the codes of our own; [`Failure`]: an error with its code.

use std::fmt;
use std::process::ExitCode;

use fencepost::{Error, ErrorKind};

/// What added to a signal's number is the exit code of a command that it killed, as shells have it.
pub(crate) const SIGNAL_BASE: u8 = 128;

/// How we end when it is not the command that decides. After `sysexits.h` and the shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 64: the arguments cannot be used.
    Usage,
    /// 69: no quorum, or the store cannot be reached.
    Unavailable,
    /// 70: the operating system denied us something that it never should.
    Internal,
    /// 73: a file cannot be written.
    CannotCreate,
    /// 74: what was asked for cannot be printed.
    CannotPrint,
    /// 75, or what `-E` says: somebody else has the lock.
    Busy(u8),
    /// 79: the lock was lost.
    Lost,
    /// 126: the command cannot be executed.
    CannotExecute,
    /// 127: there is no such command.
    NotFound,
    /// 128 + n: signal n ended us before the command began.
    Signal(i32),
}

impl Exit {
    /// What `-E` changes.
    pub(crate) const BUSY: u8 = 75;

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Usage => 64,
            Self::Unavailable => 69,
            Self::Internal => 70,
            Self::CannotCreate => 73,
            Self::CannotPrint => 74,
            Self::Busy(code) => code,
            Self::Lost => 79,
            Self::CannotExecute => 126,
            Self::NotFound => 127,
            Self::Signal(number) => by_signal(number),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// The exit code that tells of a signal.
pub(crate) fn by_signal(number: i32) -> u8 {
    // The largest signal is 64.
    SIGNAL_BASE.saturating_add(u8::try_from(number).unwrap_or(0))
}

/// Why we end without the command's own code: one sentence.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { exit, message }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// What went wrong in the library; `busy` is the code for a lock that somebody else has.
    pub(crate) fn of(error: &Error, busy: u8) -> Self {
        let exit = match error.kind() {
            ErrorKind::Held | ErrorKind::Timeout => Exit::Busy(busy),
            ErrorKind::Lost => Exit::Lost,
            ErrorKind::InvalidName
            | ErrorKind::InvalidTtl
            | ErrorKind::InvalidUrl
            | ErrorKind::InvalidOption => Exit::Usage,
            ErrorKind::NoRuntime | ErrorKind::NoRandomness => Exit::Internal,
            // No quorum, unreachable, too late, a file that cannot be opened.
            _ => Exit::Unavailable,
        };
        Self::new(exit, error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_the_manual() {
        for (exit, code) in [
            (Exit::Usage, 64),
            (Exit::Unavailable, 69),
            (Exit::CannotPrint, 74),
            (Exit::Busy(Exit::BUSY), 75),
            (Exit::Busy(0), 0),
            (Exit::Lost, 79),
            (Exit::CannotExecute, 126),
            (Exit::NotFound, 127),
            (Exit::Signal(15), 143),
        ] {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }
}
