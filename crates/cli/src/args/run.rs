//! A command under a lock, under several, with a slot of a semaphore, or while it leads.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgMatches, Args, ValueEnum};
use fencepost::{LockName, Owner};

use super::claim::{Claim, RawClaim};
use super::place::{Place, RawPlace};
use crate::duration::{self, Readable};
use crate::exit::Failure;
use crate::names::Names;
use crate::owner;
use crate::target::Target;
use crate::voice::Voice;

/// The grace when none is given, if TTL and longest hold allow it.
const GRACE: Duration = Duration::from_secs(2);
/// What part of TTL and longest hold the default grace may be.
const GRACE_SHARE: u32 = 3;
/// What part of them a given grace may be: a lease that is renewed in time never has less than
/// two thirds of its TTL left.
const MOST_GRACE_SHARE: u32 = 2;
/// The most slots of a semaphore; the library takes no more.
const MOST_SLOTS: usize = 1000;
/// The longest name of a semaphore, in bytes; the library takes no longer one.
const LONGEST_SEMAPHORE: usize = 480;

/// Hold a lock while a command runs
///
/// The command runs in a process group of its own and has FENCEPOST_LOCK, FENCEPOST_TOKEN (the
/// fencing token) and FENCEPOST_DEADLINE in its environment: the milliseconds since 1970 until
/// which the lock was ours when the command began. The lock is renewed all the time, so the true
/// deadline moves on; when it cannot be renewed, the group gets TERM, and KILL before the deadline.
/// INT, TERM, HUP and QUIT are passed on to the group. What the command leaves behind in its group
/// is stopped before the lock is given back. If we are killed with -9, the group is killed; what
/// has left the group (by setsid, as daemons do) is beyond our reach.
///
/// Several names, separated by commas, are several locks: all or none, and whoever names them in
/// another order never waits in a circle. Then FENCEPOST_TOKENS has a line for each, "TOKEN NAME",
/// and there is no FENCEPOST_TOKEN. With --slots, FENCEPOST_SLOT is the number of the slot. With
/// --shared, all who say so run at once, and nobody beside them.
#[derive(Args)]
#[command(after_help = RUN_EXIT_CODES)]
pub(super) struct RawRun {
    /// The lock's name, or several: a,b,c. A comma that is part of a name is written \,
    #[arg(value_name = "NAME", value_parser = Names::parse)]
    names: Names,

    /// Let up to this many run at once, each with a slot of its own: from 0 to K - 1. All who use the
    /// name have to say the same number; it does not exclude a run without --slots
    #[arg(long, value_name = "K")]
    #[arg(env = "FENCEPOST_SLOTS", hide_env_values = true)]
    slots: Option<usize>,

    /// Share the lock with all who say so too, as readers do: a run without --shared excludes them
    /// all. Who waits is served in the order of coming
    #[arg(long, conflicts_with = "slots", value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_SHARED", hide_env_values = true)]
    shared: bool,

    #[command(flatten)]
    under: RawUnder,
}

/// Run a command while we lead
///
/// At most one leads at a time: whoever has the lock of the election's name. It proclaims a value,
/// an address for example, that `fencepost leader` shows to everybody. The command begins when we
/// are elected, and when it ends we resign. When the leadership is lost, the command is stopped as
/// `run` does it. It has FENCEPOST_LOCK (the election), FENCEPOST_TOKEN, FENCEPOST_DEADLINE and
/// FENCEPOST_ELECT_VALUE in its environment.
#[derive(Args)]
#[command(after_help = RUN_EXIT_CODES)]
pub(super) struct RawElect {
    /// The election's name
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    /// What everybody sees of us while we lead [default: host:pid:command]
    #[arg(long, env = "FENCEPOST_ELECT_VALUE", hide_env_values = true)]
    value: Option<String>,

    /// When to campaign again instead of ending. Neither after INT, TERM or QUIT, nor when the
    /// command cannot be executed
    #[arg(long, value_name = "WHEN", default_value = "never")]
    #[arg(env = "FENCEPOST_AGAIN", hide_env_values = true)]
    again: Again,

    #[command(flatten)]
    under: RawUnder,
}

/// When to campaign again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Again {
    /// End when the command has ended
    Never,
    /// When the leadership was lost, and then for as long as the nodes stay away
    Lost,
    /// When it was lost, and a second after the command has ended by itself
    Always,
}

// What is common to the commands that run one. No doc comment: it would become their help.
#[derive(Args)]
struct RawUnder {
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

/// A command, and what is to be held while it runs.
pub(crate) struct RunJob {
    pub(crate) target: Target,
    /// When to begin again instead of ending.
    pub(crate) again: Again,
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
        let target = target(self.names, self.slots, self.shared)?;
        self.under.checked(matches, Again::Never, |_| target)
    }
}

/// What the names and the options of `run` ask for together.
fn target(names: Names, slots: Option<usize>, shared: bool) -> Result<Target, Failure> {
    match (names.only(), slots) {
        (Ok(name), None) if shared => Ok(Target::Shared(name)),
        (Err(names), None) if shared => Err(Failure::usage(format!(
            "--shared is for one name, and these are {}; run one under the other: fencepost run A \
             --shared -- fencepost run B --shared -- …, by all in the same order",
            names.iter().count()
        ))),
        (Ok(name), None) => Ok(Target::One(name)),
        (Err(names), None) => Ok(Target::All(names)),
        (Ok(of), Some(slots)) => {
            check_slots(&of, slots)?;
            Ok(Target::Slot { of, slots })
        }
        (Err(names), Some(_)) => Err(Failure::usage(format!(
            "--slots is for one name, and these are {}; run one under the other: fencepost run A \
             --slots K -- fencepost run B -- …",
            names.iter().count()
        ))),
    }
}

/// Whether the name can be that of a semaphore with so many slots.
pub(super) fn check_slots(of: &LockName, slots: usize) -> Result<(), Failure> {
    if !(1..=MOST_SLOTS).contains(&slots) {
        let message = format!("--slots is 1 to {MOST_SLOTS}, and not {slots}");
        return Err(Failure::usage(message));
    }
    if of.as_str().len() > LONGEST_SEMAPHORE {
        return Err(Failure::usage(format!(
            "with --slots a name has at most {LONGEST_SEMAPHORE} bytes; take a shorter one"
        )));
    }
    Ok(())
}

impl RawElect {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<RunJob, Failure> {
        let (of, value) = (self.name, self.value.map(checked_value).transpose()?);
        self.under.checked(matches, self.again, |command| {
            let value = value.unwrap_or_else(|| owner::of_command(command));
            Target::Leader { of, value }
        })
    }
}

fn checked_value(value: String) -> Result<String, Failure> {
    match Owner::new(&value) {
        Ok(_) if !value.is_empty() => Ok(value),
        _ => Err(Failure::usage(format!(
            "a --value has 1 to 200 bytes and no control characters, and this one has {} bytes",
            value.len()
        ))),
    }
}

impl RawUnder {
    /// `target` is what is to be held for the command.
    fn checked(
        self,
        matches: &ArgMatches,
        again: Again,
        target: impl FnOnce(&[OsString]) -> Target,
    ) -> Result<RunJob, Failure> {
        let claim = self.claim.checked(matches)?;
        let grace = self.checked_grace(claim.ttl)?;
        let command = checked_command(self.command, self.shell)?;
        Ok(RunJob {
            target: target(&command),
            again,
            grace,
            claim,
            command,
            place: self.place.checked(matches)?,
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
