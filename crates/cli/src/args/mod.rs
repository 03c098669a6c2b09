//! What the user asked for: raw arguments become checked ones here and nowhere else.
//!
//! | file | which arguments |
//! | --- | --- |
//! | `place` | where the locks are: common to all commands |
//! | `tls` | whom to trust there, and who we are |
//! | `claim` | how to take a lock: common to those that take one |
//! | `run` | a command under a lock: `run`, `elect` |
//! | `hand` | a lock acquired, extended and released by hand: `acquire`, `extend`, `release`, `steal` |
//! | `look` | what is to be seen: `status`, `list`, `watch`, `leader` |
//! | `init` | a cluster of several servers |
//! | `serve` | the lock service |
//! | `dashboard` | the dashboard: `ui`, `top`, `deadlocks` |
//! | `extra` | examples and exit codes, for help and man pages |
//! | `tools` | `doctor`, `bench`, `explain`, `completions`, `man` |
//!
//! What is typed beats the environment, which beats the config file, which beats the default.

mod claim;
mod dashboard;
pub(crate) mod extra;
mod hand;
mod init;
mod look;
mod place;
mod run;
mod serve;
mod tls;
mod tools;

use std::ffi::OsString;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{self, Config};
use crate::exit::{Exit, Failure};
use crate::voice::Voice;

pub(crate) use claim::{Claim, Wait};
pub(crate) use dashboard::{DeadlocksJob, TopJob, UiJob};
pub(crate) use hand::{AcquireJob, ExtendJob, Form, ReleaseJob, StealJob};
pub(crate) use init::InitJob;
pub(crate) use look::{LeaderJob, ListJob, StatusJob, WatchJob};
pub(crate) use place::Place;
pub(crate) use run::{Again, RunJob};
pub(crate) use serve::ServeJob;
pub(crate) use tools::{BenchJob, CompletionsJob, DoctorJob, ExplainJob, ManJob};

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
Examples:
  fencepost run nightly -- ./report.sh     a second one waits until the first is done
  fencepost status nightly                 who holds it?
  fencepost doctor                         is the store fit to hold locks?

Options can be set by environment variables, which the help of each command names, and by their long
names in $XDG_CONFIG_HOME/fencepost/config.toml (or --config FILE) and /etc/fencepost/config.toml:
store = \"redis://a,redis://b,redis://c\". The command line overrides the environment, which overrides
the user's file, which overrides the system's.";

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
    Serve(serve::RawServe),
    Ui(dashboard::RawUi),
    Top(dashboard::RawTop),
    Deadlocks(dashboard::RawDeadlocks),
    Doctor(tools::RawDoctor),
    Init(init::RawInit),
    Bench(tools::RawBench),
    Explain(tools::RawExplain),
    Completions(tools::RawCompletions),
    Man(tools::RawMan),
}

// For programs. No doc comment: it would become the help of the whole command.
#[derive(Args)]
struct RawJson {
    /// Print JSON
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_JSON", hide_env_values = true)]
    #[arg(help_heading = "Output")]
    json: bool,
}

/// Reads what the environment or the config file says of a flag.
fn flag(text: &str) -> Result<bool, &'static str> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" | "y" | "t" => Ok(true),
        // A variable that is set to nothing is as good as none.
        "0" | "false" | "no" | "off" | "n" | "f" | "" => Ok(false),
        _ => Err("expected true or false"),
    }
}

/// What is typed beats what the environment says, and that beats the config file.
fn rank(matches: &ArgMatches, id: &str) -> u8 {
    match matches.value_source(id) {
        Some(ValueSource::CommandLine) => 3,
        Some(ValueSource::EnvVariable) => 2,
        Some(_) => 1,
        None => 0,
    }
}

/// What the user wants.
pub(crate) enum Asked {
    /// Something to be done, and where its options come from.
    Job(Box<Job>, Box<Origins>),
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
    Serve(ServeJob),
    Ui(UiJob),
    Top(TopJob),
    Deadlocks(DeadlocksJob),
    Doctor(DoctorJob),
    Init(InitJob),
    Bench(BenchJob),
    Explain(ExplainJob),
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
    let mut definition = Raw::command();
    let commands = definition.get_subcommands();
    let names: Vec<_> = commands
        .map(|command| command.get_name().to_owned())
        .collect();
    for name in names {
        definition = definition.mut_subcommand(name, extra::with_help);
    }
    definition
}

/// From words to what is to be done.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Asked, Failure> {
    let matches = match definition().try_get_matches_from(&words) {
        Ok(matches) => matches,
        Err(error) => return not_a_job(&error, &words),
    };
    let config = config_of(&matches)?;
    let matches = match &config {
        None => matches,
        Some(config) => config
            .defaults_of(definition())?
            .try_get_matches_from(&words)
            // They were in order without it.
            .map_err(|error| {
                let option = option_of(&error, &words).and_then(|arg| arg.long);
                config.blame(option.as_deref(), &sentence(&error))
            })?,
    };
    let job = checked(&matches);
    let origins = Origins { matches, config };
    match job {
        Ok(job) => Ok(Asked::Job(job, Box::new(origins))),
        Err(failure) => Err(origins.told(failure)),
    }
}

/// Where options come from.
pub(crate) struct Origins {
    matches: ArgMatches,
    config: Option<Config>,
}

impl Origins {
    /// Says where an option comes from that cannot be used, if it was not typed.
    pub(crate) fn told(&self, failure: Failure) -> Failure {
        match failure.exit {
            Exit::Usage => with_origins(failure, &self.matches, self.config.as_ref()),
            _ => failure,
        }
    }
}

fn with_origins(mut failure: Failure, matches: &ArgMatches, config: Option<&Config>) -> Failure {
    let Some((name, matches)) = matches.subcommand() else {
        return failure;
    };
    let definition = definition();
    let Some(command) = definition.find_subcommand(name) else {
        return failure;
    };
    for arg in command.get_arguments() {
        let Some(long) = arg.get_long() else { continue };
        if !names_option(&failure.message, long) {
            continue;
        }
        let origin = match (matches.value_source(arg.get_id().as_str()), arg.get_env()) {
            (Some(ValueSource::EnvVariable), Some(variable)) => {
                Some(format!("the environment variable {}", variable.display()))
            }
            (Some(ValueSource::DefaultValue), _) => config.and_then(|config| config.origin(long)),
            _ => None,
        };
        if let Some(origin) = origin {
            failure.hints.push(format!("--{long} is set by {origin}"));
        }
    }
    failure
}

/// Whether the sentence speaks of that option, and not of one that begins like it.
fn names_option(sentence: &str, long: &str) -> bool {
    let option = format!("--{long}");
    let mut places = sentence.match_indices(&option);
    places.any(|(at, _)| {
        let behind = sentence[at + option.len()..].chars().next();
        !behind.is_some_and(|c| c.is_alphanumeric() || c == '-')
    })
}

fn checked(matches: &ArgMatches) -> Result<Box<Job>, Failure> {
    let raw = Raw::from_arg_matches(matches).map_err(|error| usage(&error))?;
    let Some((_, matches)) = matches.subcommand() else {
        return Err(Failure::usage("no command given"));
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
        RawCommand::Serve(raw) => Job::Serve(raw.checked(matches)?),
        RawCommand::Ui(raw) => Job::Ui(raw.checked(matches)?),
        RawCommand::Top(raw) => Job::Top(raw.checked(matches)?),
        RawCommand::Deadlocks(raw) => Job::Deadlocks(raw.checked(matches)?),
        RawCommand::Doctor(raw) => Job::Doctor(raw.checked(matches)?),
        RawCommand::Init(raw) => Job::Init(raw.checked(matches)?),
        RawCommand::Bench(raw) => Job::Bench(raw.checked(matches)?),
        RawCommand::Explain(raw) => Job::Explain(raw.checked()),
        RawCommand::Completions(raw) => Job::Completions(raw.checked()),
        RawCommand::Man(raw) => Job::Man(raw.checked()),
    };
    Ok(Box::new(job))
}

/// The config files, for a command that looks at them.
fn config_of(matches: &ArgMatches) -> Result<Option<Config>, Failure> {
    let Some((_, matches)) = matches.subcommand() else {
        return Ok(None);
    };
    match matches.try_get_one::<OsString>("config") {
        Ok(path) => config::find(path.map(AsRef::as_ref)).map(Some),
        // It has no use for them.
        Err(_) => Ok(None),
    }
}

fn not_a_job(error: &clap::Error, words: &[OsString]) -> Result<Asked, Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            Ok(Asked::Answer(error.render().to_string()))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::usage("no command given; see `fencepost --help`"))
        }
        _ => match variable_of(error, words) {
            Some(variable) => Err(Failure::usage(format!(
                "environment variable {variable}: {}",
                sentence(error)
            ))),
            None => {
                let command = words.get(1).and_then(|word| word.to_str());
                let known = |name: &&str| definition().find_subcommand(name).is_some();
                let page = command.filter(known).map(|name| format!(" {name}"));
                let page = page.unwrap_or_default();
                let why = with_fd_hint(sentence(error), error, words);
                let why = with_run_hint(why, words);
                let (end, see) = if why.ends_with('?') {
                    (" ", "See")
                } else {
                    ("; ", "see")
                };
                Err(Failure::usage(format!(
                    "{why}{end}{see} `fencepost{page} --help`"
                )))
            }
        },
    }
}

/// A line of flock with the word exchanged lacks `run`, and so does a command that follows a name.
fn with_run_hint(why: String, words: &[OsString]) -> String {
    // A word that is a command was meant as one.
    let is_command = |word: &&OsString| definition().find_subcommand(word).is_some();
    let first = words.get(1).filter(|word| !is_command(word));
    let Some(first) = first.filter(|_| !why.ends_with('?')) else {
        return why;
    };
    let line = ["fencepost", "run"].into_iter().map(OsString::from);
    let line = line.chain(words[1..].iter().cloned());
    match definition().try_get_matches_from(line) {
        Ok(_) => format!("{why}: did you mean `fencepost run {} …`?", first.display()),
        Err(_) => why,
    }
}

/// `flock 9` locks a file descriptor that the shell has opened; there is no such thing here.
fn with_fd_hint(why: String, error: &clap::Error, words: &[OsString]) -> String {
    let is_number = |word: &OsString| {
        word.to_str()
            .is_some_and(|word| word.parse::<u32>().is_ok())
    };
    let is_fd = error.kind() == ErrorKind::MissingRequiredArgument
        && words.get(1).is_some_and(|word| word == "run")
        && words.last().is_some_and(is_number);
    match is_fd {
        true => format!(
            "{why}; a file descriptor cannot be locked: for a part of a script use `fencepost \
             acquire` and `fencepost release`"
        ),
        false => why,
    }
}

/// What is known of the option that an error is about.
struct Culprit {
    long: Option<String>,
    variable: Option<String>,
}

fn option_of(error: &clap::Error, words: &[OsString]) -> Option<Culprit> {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let mut all = definition();
    all.build();
    let command = all.find_subcommand(words.get(1)?)?;
    let arg = command
        .get_arguments()
        .find(|arg| arg.to_string() == *shown)?;
    Some(Culprit {
        long: arg.get_long().map(str::to_owned),
        variable: arg.get_env().map(|name| name.display().to_string()),
    })
}

/// The variable whose value is wrong, if it is one: the words are in order without the environment.
fn variable_of(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let variable = option_of(error, words)?.variable?;
    std::env::var_os(&variable)?;
    let command = words.get(1)?.to_str()?;
    let alone = definition().mut_subcommand(command, |command| {
        let without = |arg: clap::Arg| match arg.get_env() {
            Some(name) if name == variable.as_str() => arg.env(Resettable::Reset),
            _ => arg,
        };
        command.mut_args(without)
    });
    let still = alone.try_get_matches_from(words).err();
    let still = still.is_some_and(|still| sentence(&still) == sentence(error));
    (!still).then_some(variable)
}

fn usage(error: &clap::Error) -> Failure {
    Failure::usage(format!("{}; see `fencepost --help`", sentence(error)))
}

/// One sentence of what clap says on several lines, with the beginning of what was typed: a
/// thousand names are no sentence. What may have been meant is part of it.
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
    match suggestion(error) {
        Some(meant) => format!("{sentence}: did you mean {meant}?"),
        None => sentence.to_owned(),
    }
}

fn suggestion(error: &clap::Error) -> Option<String> {
    [
        ContextKind::SuggestedArg,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedValue,
    ]
    .into_iter()
    .find_map(|kind| match error.get(kind)? {
        ContextValue::String(meant) => Some(meant.clone()),
        // The most similar comes last.
        ContextValue::Strings(meant) => meant.last().cloned(),
        _ => None,
    })
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
            // What is asserted of one call only, and what an outer call of ours may have set, is typed.
            let typed = ["help", "value", "yes", "overwrite_foreign"];
            let typed = |arg: &&clap::Arg| typed.contains(&arg.get_id().as_str());
            for option in options.filter(|arg| !typed(arg) && !arg.is_hide_set()) {
                let by_env = option.get_env().is_some();
                assert!(by_env, "{} {}", command.get_name(), option.get_id());
            }
        }
    }
}
