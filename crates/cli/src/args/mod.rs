//! What the user asked for: raw arguments become checked ones here and nowhere else.
//!
//! | file | which arguments |
//! | --- | --- |
//! | `place` | where the locks are: common to all commands |
//! | `tls` | whom to trust there, and who we are |
//! | `claim` | how to take a lock: common to those that take one |
//! | `run` | a command under a lock: `run`, `elect` |
//! | `hand` | a lock taken, kept and given back by hand: `acquire`, `extend`, `release`, `steal` |
//! | `look` | what is to be seen: `status`, `list`, `watch`, `leader` |
//! | `init` | a cluster of several servers |
//! | `tools` | `doctor`, `bench`, `completions`, `man` |
//!
//! What is typed beats the environment, which beats the config file, which beats the default.

mod claim;
mod hand;
mod init;
mod look;
mod place;
mod run;
mod tls;
mod tools;

use std::ffi::OsString;

use clap::builder::FalseyValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{self, Config};
use crate::exit::Failure;
use crate::voice::Voice;

pub(crate) use claim::{Claim, Wait};
pub(crate) use hand::{AcquireJob, ExtendJob, Form, ReleaseJob, StealJob};
pub(crate) use init::InitJob;
pub(crate) use look::{LeaderJob, ListJob, StatusJob, WatchJob};
pub(crate) use place::Place;
pub(crate) use run::{Again, RunJob};
pub(crate) use tools::{BenchJob, CompletionsJob, DoctorJob, ManJob};

/// How much of a value that cannot be used is shown, in characters.
const MOST_SHOWN: usize = 64;

/// Distributed locks with fencing tokens: on a quorum of Redis or Valkey servers, on one Redis, or
/// on nothing but this machine.
#[derive(Parser)]
#[command(name = "fencepost", version, after_help = CONFIG_HELP)]
struct Raw {
    #[command(subcommand)]
    command: RawCommand,
}

const CONFIG_HELP: &str = "\
Every option can be set by the environment variable that the help of its command names, and, unless
it is about one call only, in the config file $XDG_CONFIG_HOME/fencepost/config.toml (or ~/.config/…,
or --config FILE) by its long name: store = \"redis://a,redis://b,redis://c\". What is typed beats the
environment, which beats the file.";

#[derive(Subcommand)]
enum RawCommand {
    Run(run::RawRun),
    Elect(run::RawElect),
    Acquire(hand::RawAcquire),
    Extend(hand::RawExtend),
    Release(hand::RawRelease),
    Status(look::RawStatus),
    List(look::RawList),
    Watch(look::RawWatch),
    Leader(look::RawLeader),
    Steal(hand::RawSteal),
    Doctor(tools::RawDoctor),
    Init(init::RawInit),
    Bench(tools::RawBench),
    Completions(tools::RawCompletions),
    Man(tools::RawMan),
}

// For programs. No doc comment: it would become the help of the whole command.
#[derive(Args)]
struct RawJson {
    /// Print it as JSON
    #[arg(long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_JSON", hide_env_values = true)]
    json: bool,
}

/// What the user wants.
pub(crate) enum Asked {
    /// Something to be done.
    Job(Box<Job>),
    /// The help or the version: this.
    Answer(String),
}

/// What is to be done.
pub(crate) enum Job {
    Run(RunJob),
    Acquire(AcquireJob),
    Extend(ExtendJob),
    Release(ReleaseJob),
    Status(StatusJob),
    List(ListJob),
    Watch(WatchJob),
    Leader(LeaderJob),
    Steal(StealJob),
    Doctor(DoctorJob),
    Init(InitJob),
    Bench(BenchJob),
    Completions(CompletionsJob),
    Man(ManJob),
}

impl Job {
    /// How to speak while doing it.
    pub(crate) fn voice(&self) -> Voice {
        match self {
            Self::Run(job) => job.voice,
            Self::Acquire(job) => job.voice,
            _ => Voice::Plain,
        }
    }
}

/// The definition of all arguments: also for completions and man pages.
pub(crate) fn definition() -> Command {
    Raw::command()
}

/// From words to what is to be done.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Asked, Failure> {
    let matches = match definition().try_get_matches_from(&words) {
        Ok(matches) => matches,
        Err(error) => return not_a_job(&error),
    };
    let matches = match config_of(&matches)? {
        None => matches,
        Some(config) => config
            .defaults_of(definition())?
            .try_get_matches_from(&words)
            // They were in order without it.
            .map_err(|error| config.blame(&sentence(&error)))?,
    };
    let raw = Raw::from_arg_matches(&matches).map_err(|error| usage(&error))?;
    let Some((_, matches)) = matches.subcommand() else {
        return Err(Failure::usage("a subcommand is missing"));
    };
    let job = match raw.command {
        RawCommand::Run(raw) => Job::Run(raw.checked(matches)?),
        RawCommand::Elect(raw) => Job::Run(raw.checked(matches)?),
        RawCommand::Acquire(raw) => Job::Acquire(raw.checked(matches)?),
        RawCommand::Extend(raw) => Job::Extend(raw.checked(matches)?),
        RawCommand::Release(raw) => Job::Release(raw.checked(matches)?),
        RawCommand::Status(raw) => Job::Status(raw.checked(matches)?),
        RawCommand::List(raw) => Job::List(raw.checked(matches)?),
        RawCommand::Watch(raw) => Job::Watch(raw.checked(matches)?),
        RawCommand::Leader(raw) => Job::Leader(raw.checked(matches)?),
        RawCommand::Steal(raw) => Job::Steal(raw.checked(matches)?),
        RawCommand::Doctor(raw) => Job::Doctor(raw.checked(matches)?),
        RawCommand::Init(raw) => Job::Init(raw.checked(matches)?),
        RawCommand::Bench(raw) => Job::Bench(raw.checked(matches)?),
        RawCommand::Completions(raw) => Job::Completions(raw.checked()),
        RawCommand::Man(raw) => Job::Man(raw.checked()),
    };
    Ok(Asked::Job(Box::new(job)))
}

/// The config file, for a command that looks at it.
fn config_of(matches: &ArgMatches) -> Result<Option<Config>, Failure> {
    let Some((_, matches)) = matches.subcommand() else {
        return Ok(None);
    };
    match matches.try_get_one::<OsString>("config") {
        Ok(path) => config::find(path.map(AsRef::as_ref)),
        // It has no use for it.
        Err(_) => Ok(None),
    }
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

fn usage(error: &clap::Error) -> Failure {
    Failure::usage(format!("{}; see `fencepost --help`", sentence(error)))
}

/// One sentence of what clap says on several lines, with the beginning of what was typed: a
/// thousand names are no sentence.
fn sentence(error: &clap::Error) -> String {
    let mut text = error.render().to_string();
    if let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidValue)
        && typed.chars().count() > MOST_SHOWN
    {
        let beginning: String = typed.chars().take(MOST_SHOWN).collect();
        text = text.replace(typed, &format!("{beginning}…"));
    }
    let words = text.lines().take_while(|line| !line.is_empty());
    let words: Vec<_> = words.map(str::trim).collect();
    let sentence = words.join(" ");
    let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
    sentence.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn every_option_can_be_set_by_the_environment() {
        let mut raw = definition();
        raw.build();
        for command in raw.get_subcommands() {
            let options = command.get_arguments().filter(|arg| !arg.is_positional());
            for option in options.filter(|arg| arg.get_id() != "help") {
                let by_env = option.get_env().is_some();
                assert!(by_env, "{} {}", command.get_name(), option.get_id());
            }
        }
    }
}
