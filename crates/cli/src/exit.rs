//! [`Exit`]: the codes of our own; [`Failure`]: an error with its code.

use std::fmt;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use crate::table::aligned;

/// What added to a signal's number is the exit code of a command that it killed, as shells have it.
pub(crate) const SIGNAL_BASE: u8 = 128;

/// How we end when it is not the command that decides. After `sysexits.h` and the shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 1: there was nothing to do: the lock to steal is free.
    Nothing,
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
    /// 75, or what `-E` says: another holder has the lock.
    Busy(u8),
    /// 79: the lock was lost.
    Lost,
    /// 126: the command cannot be executed.
    CannotExecute,
    /// 127: the command is not found.
    NotFound,
    /// 128 + n: signal n ended us before the command began.
    Signal(i32),
}

impl Exit {
    /// What `-E` changes.
    pub(crate) const BUSY: u8 = 75;

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Nothing => 1,
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

/// Who holds a lock that we cannot have.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) by: String,
    /// Since when, about; `None` where the holder's token does not tell.
    pub(crate) since: Option<SystemTime>,
    /// How long still if it is not renewed; `None` when it never expires.
    pub(crate) remaining: Option<Duration>,
}

/// Why we end without the command's own code: one sentence, and a line for each node that has a
/// reason of its own.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    /// Each node, and what it said.
    pub(crate) nodes: Vec<(String, String)>,
    /// What can be done about it.
    pub(crate) hints: Vec<String>,
    /// Who holds the lock, if that is why.
    pub(crate) holder: Option<Box<Holder>>,
    /// How long it was waited for, if it was.
    pub(crate) waited: Option<Duration>,
    /// Whether the wait ended by its limit.
    pub(crate) timed_out: bool,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            nodes: Vec::new(),
            hints: Vec::new(),
            holder: None,
            waited: None,
            timed_out: false,
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)?;
        match self.nodes.as_slice() {
            // A single node needs no list.
            [(node, why)] => write!(f, ": {node}: {why}")?,
            nodes => {
                let rows = nodes.iter();
                let rows: Vec<_> = rows
                    .map(|(node, why)| [node.clone(), why.clone()])
                    .collect();
                for line in aligned(&rows).lines() {
                    write!(f, "\n  {line}")?;
                }
            }
        }
        for hint in &self.hints {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
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
