//! [`Voice`]: what we say on stderr: a line for people, a line of JSON for programs, or nothing.
//!
//! Nothing here may panic or fail: a closed stderr must not end a command that runs under a lock.
//! No message may block either: stderr may be a pipe without a reader, and a thread that waits for it
//! can neither renew a lock nor stop a command. So `teller` writes them all.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use fencepost::{FencingToken, LockName, LossReason};
use serde_json::{Value, json};

use crate::duration::{Readable, millis};
use crate::exit::{Exit, Failure, Holder};
use crate::held::Held;
use crate::table::{since_json, width_of, wrapped_lines};
use crate::target::Target;
use crate::teller;

/// How to say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    Plain,
    /// Errors only.
    Quiet,
    Json,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// The lock cannot be had at once.
    Waiting { lock: &'a Target, why: &'a Failure },
    /// It can still not be had.
    StillWaiting {
        lock: &'a Target,
        /// All of it, for people.
        line: &'a str,
        holder: Option<Holder>,
        /// Who has it on some nodes, where nobody is known to have it on a majority.
        split: Vec<String>,
        waited: Duration,
    },
    /// It is ours.
    Acquired {
        lock: &'a Target,
        held: &'a Held,
        /// Milliseconds since 1970: until then it is ours, if it is not renewed.
        deadline: u64,
        /// How long it took, if we had to wait.
        waited: Option<Duration>,
    },
    /// It is lost, or about to be, and the command is being stopped.
    Lost { lock: &'a Target, why: Loss },
    /// The command ended.
    Exited { lock: &'a Target, ended: Ended },
    /// The lock was released.
    Released { lock: &'a Target },
    /// It could not be released and expires with its TTL.
    NotReleased { lock: &'a Target, why: &'a Failure },
    /// We end with an error.
    Failed(&'a Failure),
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(u8),
    Signal(i32),
}

/// Why the command has to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The lease said so.
    Told {
        /// Which of several, if that is known.
        which: Option<LockName>,
        why: LossReason,
    },
    /// It could not be renewed, and ends in a moment.
    NotRenewed,
    /// It was held as long as it may be, and ends in a moment.
    MaxHold,
}

impl Loss {
    /// The reason in one word, for programs.
    pub(crate) fn word(&self) -> &'static str {
        self.why().as_str()
    }

    fn why(&self) -> &LossReason {
        match self {
            Self::Told { why, .. } => why,
            Self::NotRenewed => &LossReason::NoQuorum,
            Self::MaxHold => &LossReason::MaxHold,
        }
    }

    /// Which of several locks was lost, if that is known.
    fn which(&self) -> Option<&LockName> {
        match self {
            Self::Told { which, .. } => which.as_ref(),
            Self::NotRenewed | Self::MaxHold => None,
        }
    }
}

impl Voice {
    /// What the user asked for.
    pub(crate) fn of(json: bool, quiet: bool) -> Self {
        match (json, quiet) {
            (true, _) => Self::Json,
            (false, true) => Self::Quiet,
            (false, false) => Self::Plain,
        }
    }

    pub(crate) fn tell(self, event: &Event<'_>) {
        let line = match self {
            Self::Plain => text(event),
            Self::Quiet => match event {
                Event::Failed(Failure { exit, .. }) if !matches!(exit, Exit::Busy(_)) => {
                    text(event)
                }
                _ => None,
            },
            Self::Json => {
                let mut told = json(event);
                let now = humantime::format_rfc3339_millis(SystemTime::now());
                told["time"] = now.to_string().into();
                Some(told.to_string())
            }
        };
        if let Some(line) = line {
            let line = match self {
                Self::Json => format!("{line}\n"),
                Self::Plain | Self::Quiet => {
                    wrapped_lines(&format!("fencepost: {line}"), width_of(&std::io::stderr()))
                }
            };
            teller::say(line);
        }
    }
}

/// Prints to stdout. A failure to write is reported on stderr, except for a closed pipe.
pub(crate) fn print(text: &str) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        // `| head` has had enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => {
            let message = format!("cannot write to stdout: {error}");
            let failure = Failure::new(Exit::CannotPrint, message);
            Voice::Plain.tell(&Event::Failed(&failure));
            failure.exit.into()
        }
    }
}

/// Says one of many things on stdout. `Err` when it was the last: with how to end.
pub(crate) fn go_on_printing(text: &str) -> Result<(), ExitCode> {
    match print(text) {
        ExitCode::SUCCESS => Ok(()),
        // The reader has closed the pipe, which is no error.
        ExitCode::FAILURE => Err(ExitCode::SUCCESS),
        code => Err(code),
    }
}

/// Whether stdout may still have a reader: not once the other end of a pipe is closed.
pub(crate) fn is_heard() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let out = std::io::stdout();
    let mut look = [PollFd::new(&out, PollFlags::empty())];
    // Where it cannot be asked, writing will tell.
    let _ = poll(&mut look, Some(&Timespec::default()));
    !look[0].revents().contains(PollFlags::ERR)
}

fn text(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Waiting { why, .. } => format!("waiting: {why}"),
        Event::StillWaiting { line, .. } => format!("still {line}"),
        Event::Acquired { waited: None, .. } | Event::Exited { .. } | Event::Released { .. } => {
            return None;
        }
        Event::Acquired {
            lock,
            waited: Some(time),
            ..
        } => format!("acquired {lock} after {}", Readable(*time)),
        Event::Lost { lock, why } => {
            let (part, why) = (lock.part(why.which()), why.why());
            format!("{part} is lost, and the command is stopped: {why}")
        }
        Event::NotReleased { lock, why } => {
            let part = lock.part(None);
            format!("{part} could not be released and expires with its TTL: {why}")
        }
        Event::Failed(failure) => failure.to_string(),
    })
}

fn json(event: &Event<'_>) -> Value {
    match event {
        Event::Waiting { lock, why } => {
            let mut told = failure("waiting", why);
            told["lock"] = lock.typed().into();
            told["waited_ms"] = 0.into();
            told
        }
        Event::StillWaiting {
            lock,
            line,
            holder,
            split,
            waited,
        } => json!({
            "event": "waiting",
            "lock": lock.typed(),
            "why": line,
            "holder": holder.as_ref().map(|holder| &holder.by),
            "split": split,
            "since": since_json(holder.as_ref().and_then(|holder| holder.since)),
            "remaining_ms": holder.as_ref().and_then(|holder| holder.remaining.map(millis)),
            "waited_ms": millis(*waited),
        }),
        Event::Acquired {
            lock,
            held,
            deadline,
            waited,
        } => {
            let tokens = held.tokens().map(|tokens| {
                let tokens = tokens.map(|(name, token)| (name.to_owned(), token.get().into()));
                tokens.collect::<serde_json::Map<_, _>>()
            });
            json!({
                "event": "acquired",
                "lock": lock.typed(),
                "token": held.token().map(FencingToken::get),
                "tokens": tokens,
                "slot": held.slot(),
                "value": held.proclaimed(),
                "deadline_ms": deadline,
                "waited_ms": millis(waited.unwrap_or_default()),
            })
        }
        Event::Lost { lock, why } => json!({
            "event": "lost",
            "lock": lock.typed(),
            "which": why.which().map(LockName::as_str),
            "reason": why.word(),
            "why": why.why().to_string(),
        }),
        Event::Exited { lock, ended } => {
            let (code, signal) = match ended {
                Ended::Code(code) => (Some(*code), None),
                Ended::Signal(number) => (None, Some(*number)),
            };
            json!({ "event": "exited", "lock": lock.typed(), "code": code, "signal": signal })
        }
        Event::Released { lock } => json!({ "event": "released", "lock": lock.typed() }),
        Event::NotReleased { lock, why } => {
            let mut told = failure("not_released", why);
            told["lock"] = lock.typed().into();
            told
        }
        Event::Failed(why) => {
            let mut told = failure("failed", why);
            told["exit"] = why.exit.code().into();
            told["timed_out"] = why.timed_out.into();
            told
        }
    }
}

/// What all events have that tell of something that failed.
fn failure(event: &str, why: &Failure) -> Value {
    let nodes = why.nodes.iter();
    let nodes = nodes.map(|(node, why)| json!({ "node": node, "why": why }));
    let holder = why.holder.as_ref();
    json!({
        "event": event,
        "why": why.message,
        "nodes": nodes.collect::<Vec<_>>(),
        "hints": why.hints,
        "holder": holder.map(|holder| &holder.by),
        "since": since_json(holder.and_then(|holder| holder.since)),
        "remaining_ms": holder.and_then(|holder| holder.remaining.map(millis)),
        "waited_ms": millis(why.waited.unwrap_or_default()),
    })
}
