//! What the user asked for: raw arguments become checked ones here and nowhere else.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use fencepost::{LockName, RestartPolicy, Ttl};

use crate::duration::{self, Readable};
use crate::exit::{Exit, Failure};
use crate::store::Store;
use crate::voice::Voice;

/// The grace when none is given, if TTL and longest hold allow it.
const GRACE: Duration = Duration::from_secs(2);
/// What part of TTL and longest hold the default grace may be.
const GRACE_SHARE: u32 = 3;
/// What part of them a given grace may be: a lease that is renewed in time never has less than
/// two thirds of its TTL left.
const MOST_GRACE_SHARE: u32 = 2;

/// Distributed locks with fencing tokens: on a quorum of Redis or Valkey servers, on one Redis, or
/// on nothing but this machine.
#[derive(Parser)]
#[command(name = "fencepost", version)]
struct Raw {
    #[command(subcommand)]
    command: RawCommand,
}

#[derive(Subcommand)]
enum RawCommand {
    Run(RawRun),
    Status(RawStatus),
}

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
struct RawRun {
    /// The lock's name
    #[arg(value_parser = lock_name)]
    name: LockName,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    #[command(flatten)]
    place: RawPlace,

    /// How long the lock outlives us if we are cut off
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_TTL", hide_env_values = true)]
    ttl: Duration,

    /// Wait for the lock at most this long [default: as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_WAIT", hide_env_values = true)]
    wait: Option<Duration>,

    /// Do not wait for the lock
    #[arg(long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_NO_WAIT", hide_env_values = true)]
    no_wait: bool,

    /// The exit code when somebody else has the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Exit::BUSY)]
    #[arg(env = "FENCEPOST_CONFLICT_EXIT_CODE", hide_env_values = true)]
    conflict_exit_code: u8,

    /// Stop the command after this long [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_MAX_HOLD", hide_env_values = true)]
    max_hold: Option<Duration>,

    /// How long before the end of a lock that cannot be renewed the command gets TERM
    /// [default: 2s, or a third of the TTL]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_GRACE", hide_env_values = true)]
    grace: Option<Duration>,

    /// Say nothing but errors, and nothing when somebody else has the lock
    #[arg(short, long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_QUIET", hide_env_values = true)]
    quiet: bool,

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

/// Tell who holds a lock, and what each node says of it
///
/// Exits with 0 when a majority of the nodes answered, and with 69 otherwise.
#[derive(Args)]
struct RawStatus {
    /// The lock's name
    #[arg(value_parser = lock_name)]
    name: LockName,

    #[command(flatten)]
    place: RawPlace,

    /// Print it as JSON
    #[arg(long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_JSON", hide_env_values = true)]
    json: bool,
}

/// Where the locks are.
#[derive(Args)]
struct RawPlace {
    /// Where the locks are: file:PATH, redis://HOST, rediss://HOST, redis+unix:///PATH, or several,
    /// separated by commas [default: a file in $XDG_STATE_HOME or ~/.local/state]
    // The value may have a password in it.
    #[arg(
        long,
        value_name = "URL",
        env = "FENCEPOST_STORE",
        hide_env_values = true
    )]
    store: Option<String>,

    /// Whether a Redis server that restarted a short while ago may vote at once, or has to wait
    /// because it may have forgotten locks [default: trust for one or two, delay for more]
    #[arg(long, value_name = "POLICY")]
    #[arg(env = "FENCEPOST_RESTART_POLICY", hide_env_values = true)]
    restart_policy: Option<RawRestartPolicy>,

    /// The longest TTL that anybody uses on these nodes: all clients must agree on it, because a
    /// restarted node does not vote for that long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_MAX_TTL", hide_env_values = true)]
    max_ttl: Duration,
}

#[derive(Clone, Copy, ValueEnum)]
enum RawRestartPolicy {
    Trust,
    Delay,
}

fn lock_name(name: &str) -> Result<LockName, fencepost::Error> {
    LockName::new(name)
}

/// What the user wants.
pub(crate) enum Asked {
    /// Something to be done.
    Job(Job),
    /// The help or the version: this.
    Answer(String),
}

/// What is to be done.
pub(crate) enum Job {
    Run(RunJob),
    Status(StatusJob),
}

impl Job {
    /// How to speak while doing it.
    pub(crate) fn voice(&self) -> Voice {
        match self {
            Self::Run(job) => job.voice,
            Self::Status(_) => Voice::Plain,
        }
    }
}

/// A command under a lock.
pub(crate) struct RunJob {
    pub(crate) name: LockName,
    pub(crate) place: Place,
    /// At least one word.
    pub(crate) command: Vec<OsString>,
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) busy: u8,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) grace: Duration,
    pub(crate) on_lost: Option<OsString>,
    pub(crate) voice: Voice,
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    AsLongAsItTakes,
    AtMost(Duration),
}

/// A look at a lock.
pub(crate) struct StatusJob {
    pub(crate) name: LockName,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// Where the locks are, and what to think of nodes that restarted.
pub(crate) struct Place {
    store: Store,
    restart_policy: Option<RestartPolicy>,
    max_ttl: Duration,
}

impl Place {
    /// A client, to set up further.
    pub(crate) fn builder(&self) -> fencepost::Builder {
        let builder = self.store.builder().max_ttl(self.max_ttl);
        match self.restart_policy {
            Some(policy) => builder.restart_policy(policy),
            None => builder,
        }
    }
}

/// From words to what is to be done.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Asked, Failure> {
    let matches = match Raw::command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => return not_a_job(&error),
    };
    let raw = Raw::from_arg_matches(&matches).map_err(|error| usage(&error))?;
    let job = match (raw.command, matches.subcommand()) {
        (RawCommand::Run(raw), Some((_, matches))) => Job::Run(raw.checked(matches)?),
        (RawCommand::Run(_), None) => return Err(Failure::usage("a subcommand is missing")),
        (RawCommand::Status(raw), _) => Job::Status(StatusJob {
            name: raw.name,
            place: raw.place.checked()?,
            json: raw.json,
        }),
    };
    Ok(Asked::Job(job))
}

fn not_a_job(error: &clap::Error) -> Result<Asked, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            Ok(Asked::Answer(error.render().to_string()))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Err(Failure::usage(
            "what to do is missing; see `fencepost --help`",
        )),
        _ => Err(usage(error)),
    }
}

/// One sentence of what clap says on several lines.
fn usage(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let words = text.lines().take_while(|line| !line.is_empty());
    let words: Vec<_> = words.map(str::trim).collect();
    let sentence = words.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    Failure::usage(format!("{sentence}; see `fencepost --help`"))
}

impl RawPlace {
    fn checked(self) -> Result<Place, Failure> {
        Ok(Place {
            store: Store::checked(self.store)?,
            restart_policy: self.restart_policy.map(|policy| match policy {
                RawRestartPolicy::Trust => RestartPolicy::Trust,
                RawRestartPolicy::Delay => RestartPolicy::Delay,
            }),
            max_ttl: self.max_ttl,
        })
    }
}

impl RawRun {
    fn checked(self, matches: &ArgMatches) -> Result<RunJob, Failure> {
        Ttl::new(self.ttl).map_err(|error| Failure::of(&error, Exit::BUSY))?;
        Ok(RunJob {
            wait: self.checked_wait(matches)?,
            grace: self.checked_grace()?,
            command: checked_command(self.command, self.shell)?,
            name: self.name,
            place: self.place.checked()?,
            ttl: self.ttl,
            busy: self.conflict_exit_code,
            max_hold: self.max_hold,
            on_lost: self.on_lost,
            voice: match (self.json, self.quiet) {
                (true, _) => Voice::Json,
                (false, true) => Voice::Quiet,
                (false, false) => Voice::Plain,
            },
        })
    }

    fn checked_wait(&self, matches: &ArgMatches) -> Result<Wait, Failure> {
        // What is typed beats what the environment says.
        let typed = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        match (self.wait, self.no_wait) {
            (None, false) => Ok(Wait::AsLongAsItTakes),
            (None, true) => Ok(Wait::AtMost(Duration::ZERO)),
            (Some(time), false) => Ok(Wait::AtMost(time)),
            (Some(time), true) => match (typed("wait"), typed("no_wait")) {
                (true, false) => Ok(Wait::AtMost(time)),
                (false, true) => Ok(Wait::AtMost(Duration::ZERO)),
                _ => Err(Failure::usage(
                    "--wait and --no-wait exclude each other; give one of them",
                )),
            },
        }
    }

    fn checked_grace(&self) -> Result<Duration, Failure> {
        if self.max_hold.is_some_and(|time| time.is_zero()) {
            return Err(Failure::usage("a --max-hold of 0 leaves no time to run"));
        }
        let hold = self.max_hold.unwrap_or(Duration::MAX).min(self.ttl);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        Raw::command().debug_assert();
    }

    #[test]
    fn every_option_can_be_set_by_the_environment() {
        let mut raw = Raw::command();
        raw.build();
        for command in raw.get_subcommands() {
            for option in command.get_opts().filter(|arg| arg.get_id() != "help") {
                let by_env = option.get_env().is_some();
                assert!(by_env, "{} {}", command.get_name(), option.get_id());
            }
        }
    }
}
