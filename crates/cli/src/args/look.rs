//! What is to be seen.

use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use fencepost::{LockName, NamePattern};

use super::RawJson;
use super::place::{Place, RawPlace};
use super::run::check_slots;
use crate::duration;
use crate::exit::Failure;
use crate::names::Names;

/// The shortest pause between two looks: a look costs every node a script.
const SHORTEST_EVERY: Duration = Duration::from_millis(50);

/// Tell who holds a lock, and what each node says of it
///
/// With --slots it tells who has which slot of a semaphore, and how many are free. Exits with 0 when a majority of the nodes answered, and with 69 otherwise.
#[derive(Args)]
pub(super) struct RawStatus {
    /// The lock's name
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    /// Tell of the first K slots of the semaphore of that name, as `run --slots K` uses it
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
/// On Redis it looks for the token counters of fencepost (with SCAN, never KEYS), so a lock that
/// only other clients ever took is not found; `status` tells of it by its name. Exits with 0 when a
/// majority of the nodes answered, and with 69 otherwise.
#[derive(Args)]
pub(super) struct RawList {
    /// Only names that fit: * stands for anything, ? for one character
    #[arg(default_value = "*")]
    pattern: String,

    /// Also locks that nobody holds, as long as their counters are remembered
    #[arg(short, long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_ALL", hide_env_values = true)]
    all: bool,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
}

/// Print each change of a lock's holder, until interrupted
///
/// It looks again and again, so a holder that comes and goes between two looks is seen by its token
/// only. With --json each change is a line of JSON.
#[derive(Args)]
pub(super) struct RawWatch {
    /// The lock's name
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    #[command(flatten)]
    looks: RawLooks,
}

/// Tell who leads
///
/// Shows the value that the leader of an election has proclaimed (see `elect`), and its fencing
/// token. Exits with 0 when somebody leads, with 1 when nobody does, and with 69 when fewer than a
/// majority of the nodes answered. With --watch it tells each new leader once, until interrupted; that
/// nobody leads is told by `watch` only.
#[derive(Args)]
pub(super) struct RawLeader {
    /// The election's name
    #[arg(value_parser = Names::parse_one)]
    name: LockName,

    /// Tell each new leader, until interrupted
    #[arg(short, long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_WATCH", hide_env_values = true)]
    watch: bool,

    #[command(flatten)]
    looks: RawLooks,
}

// Looking again and again. No doc comment: it would become the help of the whole command.
#[derive(Args)]
struct RawLooks {
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_EVERY", hide_env_values = true)]
    every: Duration,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
}

/// A look at a lock.
pub(crate) struct StatusJob {
    pub(crate) name: LockName,
    /// How many slots to look at, if it is a semaphore.
    pub(crate) slots: Option<usize>,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// A look at all locks.
pub(crate) struct ListJob {
    pub(crate) pattern: NamePattern,
    pub(crate) all: bool,
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
        if let Some(slots) = self.slots {
            check_slots(&self.name, slots)?;
        }
        Ok(StatusJob {
            name: self.name,
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
            place: self.place.checked(matches)?,
            json: self.json.json,
        })
    }
}

impl RawLooks {
    fn checked_every(&self) -> Result<Duration, Failure> {
        if self.every < SHORTEST_EVERY {
            return Err(Failure::usage(
                "an --every below 50ms would keep the nodes busy with looking; take a longer one",
            ));
        }
        Ok(self.every)
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
        let every = self.looks.checked_every()?;
        let is_typed = matches.value_source("every") == Some(ValueSource::CommandLine);
        if is_typed && !self.watch {
            let message = "--every is for looking again and again; give --watch, too";
            return Err(Failure::usage(message));
        }
        Ok(LeaderJob {
            name: self.name,
            every: self.watch.then_some(every),
            place: self.looks.place.checked(matches)?,
            json: self.looks.json.json,
        })
    }
}
