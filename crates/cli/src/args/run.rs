//! A command under a lock, under several, with a slot of a semaphore, or while it leads.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgAction, ArgMatches, Args, ValueEnum};
use fencepost::{LockName, Owner};

use super::claim::{Claim, RawClaim};
use super::place::{Place, RawPlace};
use super::{flag, rank};
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
/// The command runs in a process group of its own, with FENCEPOST_LOCK, FENCEPOST_TOKEN (the fencing
/// token) and FENCEPOST_DEADLINE (milliseconds since 1970) in its environment. The lock is renewed
/// while the command runs. If it cannot be renewed, the group gets TERM, and KILL before the lock
/// expires. INT, TERM, HUP and QUIT are passed on to the group. What the command leaves behind in its
/// group is stopped before the lock is released. If fencepost is killed with -9, the group is killed.
/// A process that leaves the group (setsid, as daemons do) escapes all of this.
///
/// Several names, separated by commas, are several locks: all or none, in any order, without deadlock.
/// FENCEPOST_TOKENS then has a line "TOKEN NAME" for each, and FENCEPOST_TOKEN is not set.
///
/// The options of flock(1) work here: `flock -n FILE COMMAND` becomes
/// `fencepost run -n FILE COMMAND`.
#[derive(Args)]
pub(super) struct RawRun {
    /// Name of the lock, or several: a,b,c. Write a comma that is part of a name as \,
    #[arg(value_name = "NAME", value_parser = Names::parse)]
    names: Names,

    /// Semaphore: let up to K commands run at once, each with a slot number from 0 to K - 1 in
    /// FENCEPOST_SLOT. All callers must give the same K; a run without --slots uses a different lock
    #[arg(long, value_name = "K", help_heading = "Locking")]
    #[arg(env = "FENCEPOST_SLOTS", hide_env_values = true)]
    slots: Option<usize>,

    /// Shared (read) lock: any number of --shared runs hold it together; a run without --shared
    /// excludes them
    #[arg(short, long, conflicts_with = "slots", value_parser = flag, help_heading = "Locking")]
    #[arg(overrides_with = "exclusive")]
    #[arg(env = "FENCEPOST_SHARED", hide_env_values = true)]
    shared: bool,

    /// Exclusive (write) lock; the default
    #[arg(short = 'x', short_alias = 'e', long, value_parser = flag, help_heading = "Locking")]
    #[arg(overrides_with = "shared")]
    #[arg(env = "FENCEPOST_EXCLUSIVE", hide_env_values = true)]
    exclusive: bool,

    /// For flock's sake: there is no file descriptor to close
    #[arg(short = 'o', long = "close", action = ArgAction::SetTrue, hide = true)]
    _close: bool,

    /// For flock's sake: what is held by a process of its own needs no fork less
    #[arg(short = 'F', long = "no-fork", action = ArgAction::SetTrue, hide = true)]
    _no_fork: bool,

    /// For flock's sake: what is worth saying is said without it
    #[arg(long = "verbose", action = ArgAction::SetTrue, hide = true)]
    _verbose: bool,

    #[command(flatten)]
    under: RawUnder,
}

/// Run a command while this process leads an election
///
/// At most one process leads at a time: the holder of the election's lock. `fencepost leader` shows the
/// value that it proclaims, for example an address. The command starts when this process is elected, and
/// the leadership is released when it ends. If the leadership is lost, the command is stopped as by
/// `run`. Its environment has FENCEPOST_LOCK (the election), FENCEPOST_TOKEN, FENCEPOST_DEADLINE and
/// FENCEPOST_ELECT_VALUE.
#[derive(Args)]
pub(super) struct RawElect {
    /// Name of the election
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    /// Value that `fencepost leader` shows while this process leads [default: host:pid:command]
    // Not from the environment: an election inside an election would proclaim the outer one's value.
    #[arg(long, help_heading = "Election")]
    value: Option<String>,

    /// When to campaign again instead of exiting. Never after INT, TERM or QUIT, nor when the command
    /// cannot be executed
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "never",
        help_heading = "Election"
    )]
    #[arg(env = "FENCEPOST_AGAIN", hide_env_values = true)]
    again: Again,

    #[command(flatten)]
    under: RawUnder,
}

/// When to campaign again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Again {
    /// Exit when the command has ended
    Never,
    /// After the leadership was lost, also while no majority of the nodes can be reached
    Lost,
    /// After the leadership was lost, and after the command has ended; then after a second
    Always,
}

// What is common to the commands that run one. No doc comment: it would become their help.
#[derive(Args)]
struct RawUnder {
    /// Command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    #[command(flatten)]
    claim: RawClaim,

    /// Stop the command after this long [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Holding")]
    #[arg(env = "FENCEPOST_MAX_HOLD", hide_env_values = true)]
    max_hold: Option<Duration>,

    /// If the lock cannot be renewed, send TERM to the command this long before it expires
    /// [default: 2s, or a third of the TTL]
    #[arg(long, value_name = "TIME", value_parser = duration::parse, help_heading = "Holding")]
    #[arg(env = "FENCEPOST_GRACE", hide_env_values = true)]
    grace: Option<Duration>,

    /// Run this with `sh -c` after the lock was lost and the command was stopped; FENCEPOST_REASON has
    /// the reason
    #[arg(long, value_name = "COMMAND", help_heading = "Holding")]
    #[arg(env = "FENCEPOST_ON_LOST", hide_env_values = true)]
    on_lost: Option<OsString>,

    /// The command is one string for `sh -c`
    #[arg(short = 'c', long, visible_alias = "command", value_parser = flag)]
    #[arg(env = "FENCEPOST_SHELL", hide_env_values = true)]
    #[arg(help_heading = "Command")]
    shell: bool,

    /// Print events as lines of JSON on stderr
    #[arg(long, value_parser = flag, help_heading = "Output")]
    #[arg(env = "FENCEPOST_JSON", hide_env_values = true)]
    json: bool,

    #[command(flatten)]
    place: RawPlace,
}

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
        // What is typed beats what is not, and --exclusive is the default.
        let shared = self.shared
            && !(self.exclusive && rank(matches, "exclusive") > rank(matches, "shared"));
        let target = target(self.names, self.slots, shared)?;
        self.under.checked(matches, Again::Never, |_| target)
    }
}

/// What the names and the options of `run` ask for together.
fn target(names: Names, slots: Option<usize>, shared: bool) -> Result<Target, Failure> {
    match (names.only(), slots) {
        (Ok(name), None) if shared => Ok(Target::Shared(name)),
        (Err(names), None) if shared => Err(Failure::usage(format!(
            "--shared takes one name, got {}; nest them: fencepost run A --shared -- fencepost run \
             B --shared -- …, everywhere in the same order",
            names.iter().count()
        ))),
        (Ok(name), None) => Ok(Target::One(name)),
        (Err(names), None) => Ok(Target::All(names)),
        (Ok(of), Some(slots)) => {
            check_slots(&of, slots)?;
            Ok(Target::Slot { of, slots })
        }
        (Err(names), Some(_)) => Err(Failure::usage(format!(
            "--slots takes one name, got {}; nest them: fencepost run A --slots K -- fencepost run \
             B -- …",
            names.iter().count()
        ))),
    }
}

/// Whether the name can be that of a semaphore with so many slots.
pub(super) fn check_slots(of: &LockName, slots: usize) -> Result<(), Failure> {
    if !(1..=MOST_SLOTS).contains(&slots) {
        let message = format!("--slots must be 1 to {MOST_SLOTS}, got {slots}");
        return Err(Failure::usage(message));
    }
    if of.as_str().len() > LONGEST_SEMAPHORE {
        return Err(Failure::usage(format!(
            "with --slots a name has at most {LONGEST_SEMAPHORE} bytes, got {}",
            of.as_str().len()
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
            "--value must have 1 to 200 bytes and no control characters; this one has {} bytes",
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
            return Err(Failure::usage("--max-hold must be more than 0"));
        }
        let hold = self.max_hold.unwrap_or(Duration::MAX).min(ttl);
        match self.grace {
            None => Ok(GRACE.min(hold / GRACE_SHARE)),
            Some(grace) if grace <= hold / MOST_GRACE_SHARE => Ok(grace),
            Some(grace) => Err(Failure::usage(format!(
                "--grace {} is too long: the most is half of --ttl and of --max-hold, here {}",
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
            "--shell takes the command as one string, got {words} words; quote it"
        ))),
    }
}
