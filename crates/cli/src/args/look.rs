//! What is to be seen.

use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use fencepost::{LockName, NamePattern};

use super::place::{Place, RawPlace};
use super::run::check_slots;
use super::{RawJson, flag};
use crate::duration;
use crate::exit::Failure;
use crate::names::Names;

/// The shortest polling interval: each poll runs a script on every node.
const SHORTEST_EVERY: Duration = Duration::from_millis(50);

/// Show who holds a lock, and what each node says about it
///
/// Takes one name or several. With --slots it shows who holds which slot of a semaphore, and
/// how many are free. Exits with 0 if a majority of the nodes answered, and with 69 otherwise.
#[derive(Args)]
pub(super) struct RawStatus {
    /// Name of the lock, or several: a,b,c or a b c
    #[arg(required = true, value_name = "NAME", value_parser = Names::parse)]
    names: Vec<Names>,

    /// Show the first K slots of the semaphore of that name, as `run --slots K` uses it
    #[arg(long, value_name = "K")]
    #[arg(env = "FENCEPOST_SLOTS", hide_env_values = true)]
    slots: Option<usize>,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
}

/// List the locks that are held
///
/// On Redis it finds locks in the fence register (with ZSCAN, never KEYS), so a lock that
/// only other clients ever acquired is not listed; `status` shows it by its name. Exits with 0 if a
/// majority of the nodes answered, and with 69 otherwise. With --watch it prints the list again
/// whenever it has changed, until interrupted.
#[derive(Args)]
pub(super) struct RawList {
    /// Only names that match: * matches anything, ? one character
    #[arg(default_value = "*")]
    pattern: String,

    /// Also free locks, as long as their tokens are remembered
    #[arg(short, long, value_parser = flag)]
    #[arg(env = "FENCEPOST_ALL", hide_env_values = true)]
    all: bool,

    /// Print only names, one per line, escaped as on the command line
    #[arg(long, conflicts_with = "json", value_parser = flag)]
    #[arg(env = "FENCEPOST_NAMES", hide_env_values = true)]
    names: bool,

    /// Print the list again whenever it has changed, until interrupted
    #[arg(short, long, value_parser = flag)]
    #[arg(env = "FENCEPOST_WATCH", hide_env_values = true)]
    watch: bool,

    #[command(flatten)]
    looks: RawLooks,
}

/// Print each change of a lock's holder, until interrupted
///
/// It polls: a holder that comes and goes between two polls is seen only by the next token. With
/// --json each change is a line of JSON.
#[derive(Args)]
pub(super) struct RawWatch {
    /// Name of the lock
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    #[command(flatten)]
    looks: RawLooks,
}

/// Show who leads an election
///
/// Shows the value that the leader has proclaimed (see `elect`), and its fencing token. Exits with 0
/// if there is a leader, with 1 if there is none, and with 69 if fewer than a majority of the nodes
/// answered. With --watch it prints each new leader once, until interrupted; the end of a leadership is
/// printed by `watch` only.
#[derive(Args)]
pub(super) struct RawLeader {
    /// Name of the election
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    /// Print each new leader, until interrupted
    #[arg(short, long, value_parser = flag)]
    #[arg(env = "FENCEPOST_WATCH", hide_env_values = true)]
    watch: bool,

    #[command(flatten)]
    looks: RawLooks,
}

// Looking again and again. No doc comment: it would become the help of the whole command.
#[derive(Args)]
struct RawLooks {
    /// Polling interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_EVERY", hide_env_values = true)]
    every: Duration,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
}

/// A look at a lock, or at several.
pub(crate) struct StatusJob {
    /// At least one, in the order in which they were given.
    pub(crate) names: Vec<LockName>,
    /// How many slots to look at, if it is a semaphore.
    pub(crate) slots: Option<usize>,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// A look at all locks.
pub(crate) struct ListJob {
    pub(crate) pattern: NamePattern,
    pub(crate) all: bool,
    /// Whether to print nothing but names.
    pub(crate) names: bool,
    /// How often to look; `None`: once.
    pub(crate) every: Option<Duration>,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// A look at a lock, again and again.
pub(crate) struct WatchJob {
    pub(crate) name: LockName,
    pub(crate) every: Duration,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// A look at who leads, or many.
pub(crate) struct LeaderJob {
    pub(crate) name: LockName,
    /// How often to look; `None`: once.
    pub(crate) every: Option<Duration>,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

impl RawStatus {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<StatusJob, Failure> {
        let mut names: Vec<LockName> = Vec::new();
        for name in self.names.iter().flat_map(Names::iter) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        match (self.slots, names.as_slice()) {
            (None, _) => {}
            (Some(slots), [name]) => check_slots(name, slots)?,
            (Some(_), several) => {
                let count = several.len();
                return Err(Failure::usage(format!(
                    "--slots takes one name, got {count}"
                )));
            }
        }
        Ok(StatusJob {
            names,
            slots: self.slots,
            place: self.place.checked(matches)?,
            json: self.json.json,
        })
    }
}

impl RawList {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<ListJob, Failure> {
        Ok(ListJob {
            pattern: NamePattern::new(self.pattern),
            all: self.all,
            names: self.names,
            every: self.looks.checked_watch(matches, self.watch)?,
            place: self.looks.place.checked(matches)?,
            json: self.looks.json.json,
        })
    }
}

impl RawLooks {
    fn checked_every(&self) -> Result<Duration, Failure> {
        if self.every < SHORTEST_EVERY {
            return Err(Failure::usage(
                "--every must be at least 50ms: each poll runs a script on every node",
            ));
        }
        Ok(self.every)
    }

    /// How often to look, if it is to be watched.
    fn checked_watch(
        &self,
        matches: &ArgMatches,
        watch: bool,
    ) -> Result<Option<Duration>, Failure> {
        let every = self.checked_every()?;
        let is_typed = matches.value_source("every") == Some(ValueSource::CommandLine);
        match is_typed && !watch {
            true => Err(Failure::usage("--every needs --watch")),
            false => Ok(watch.then_some(every)),
        }
    }
}

impl RawWatch {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<WatchJob, Failure> {
        Ok(WatchJob {
            name: self.name,
            every: self.looks.checked_every()?,
            place: self.looks.place.checked(matches)?,
            json: self.looks.json.json,
        })
    }
}

impl RawLeader {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<LeaderJob, Failure> {
        let every = self.looks.checked_watch(matches, self.watch)?;
        Ok(LeaderJob {
            name: self.name,
            every,
            place: self.looks.place.checked(matches)?,
            json: self.looks.json.json,
        })
    }
}
