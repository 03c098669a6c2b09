//! A command under a lock.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgMatches, Args};
use fencepost::LockName;

use super::claim::{Claim, RawClaim};
use super::lock_name;
use super::place::{Place, RawPlace};
use crate::duration::{self, Readable};
use crate::exit::Failure;
use crate::voice::Voice;

/// The grace when none is given, if TTL and longest hold allow it.
const GRACE: Duration = Duration::from_secs(2);
/// What part of TTL and longest hold the default grace may be.
const GRACE_SHARE: u32 = 3;
/// What part of them a given grace may be: a lease that is renewed in time never has less than
/// two thirds of its TTL left.
const MOST_GRACE_SHARE: u32 = 2;

/// Hold a lock while a command runs
///
/// The command runs in a process group of its own and has FENCEPOST_LOCK, FENCEPOST_TOKEN (the
/// fencing token) and FENCEPOST_DEADLINE in its environment: the milliseconds since 1970 until
/// which the lock was ours when the command began. The lock is renewed all the time, so the true
/// deadline moves on; when it cannot be renewed, the group gets TERM, and KILL before the deadline.
/// INT, TERM, HUP and QUIT are passed on to the group. What the command leaves behind in its group
/// is stopped before the lock is given back. If we are killed with -9, the group is killed; what
/// has left the group (by setsid, as daemons do) is beyond our reach.
#[derive(Args)]
#[command(after_help = RUN_EXIT_CODES)]
pub(super) struct RawRun {
    /// The lock's name
    #[arg(value_parser = lock_name)]
    name: LockName,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    claim: RawClaim,

    /// Stop the command after this long [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_MAX_HOLD", hide_env_values = true)]
    max_hold: Option<Duration>,

    /// How long before the end of a lock that cannot be renewed the command gets TERM
    /// [default: 2s, or a third of the TTL]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_GRACE", hide_env_values = true)]
    grace: Option<Duration>,

    /// Say what happens as lines of JSON on stderr
    #[arg(long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_JSON", hide_env_values = true)]
    json: bool,

    /// Run this by `sh -c` when the lock was lost and the command is dead; FENCEPOST_REASON says
    /// how it was lost
    #[arg(long, value_name = "COMMAND")]
    #[arg(env = "FENCEPOST_ON_LOST", hide_env_values = true)]
    on_lost: Option<OsString>,

    /// The command is one string for `sh -c`
    #[arg(long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_SHELL", hide_env_values = true)]
    shell: bool,
}

const RUN_EXIT_CODES: &str = "\
Exit codes:
  the command's own, or 128+n when signal n killed it
  64   the arguments cannot be used
  69   no quorum, or the store cannot be reached
  75   somebody else has the lock, or still had it when the wait was over (-E changes it)
  79   the lock was lost, and the command was stopped
  126  the command cannot be executed
  127  there is no such command

Times are written 250ms, 10s, 2m or 1h.";

/// A command under a lock.
pub(crate) struct RunJob {
    pub(crate) name: LockName,
    pub(crate) place: Place,
    /// At least one word.
    pub(crate) command: Vec<OsString>,
    pub(crate) claim: Claim,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) on_lost: Option<OsString>,
    pub(crate) voice: Voice,
}

impl RawRun {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<RunJob, Failure> {
        let claim = self.claim.checked(matches)?;
        Ok(RunJob {
            grace: self.checked_grace(claim.ttl)?,
            claim,
            command: checked_command(self.command, self.shell)?,
            name: self.name,
            place: self.place.checked()?,
            max_hold: self.max_hold,
            on_lost: self.on_lost,
            voice: Voice::of(self.json, self.claim.quiet),
        })
    }

    fn checked_grace(&self, ttl: Duration) -> Result<Duration, Failure> {
        if self.max_hold.is_some_and(|time| time.is_zero()) {
            return Err(Failure::usage("a --max-hold of 0 leaves no time to run"));
        }
        let hold = self.max_hold.unwrap_or(Duration::MAX).min(ttl);
        match self.grace {
            None => Ok(GRACE.min(hold / GRACE_SHARE)),
            Some(grace) if grace <= hold / MOST_GRACE_SHARE => Ok(grace),
            Some(grace) => Err(Failure::usage(format!(
                "a --grace of {} is too long: it is at most half of --ttl and of --max-hold, \
                 which is {} here",
                Readable(grace),
                Readable(hold / MOST_GRACE_SHARE)
            ))),
        }
    }
}

fn checked_command(command: Vec<OsString>, shell: bool) -> Result<Vec<OsString>, Failure> {
    match (shell, command.len()) {
        (false, _) => Ok(command),
        (true, 1) => {
            let line = command.into_iter();
            Ok(["sh", "-c"]
                .map(OsString::from)
                .into_iter()
                .chain(line)
                .collect())
        }
        (true, words) => Err(Failure::usage(format!(
            "with --shell the command is one string, and these are {words} words; quote it"
        ))),
    }
}
