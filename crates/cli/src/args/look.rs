//! What is to be seen.

use std::time::Duration;

use clap::Args;
use clap::builder::FalseyValueParser;
use fencepost::{LockName, NamePattern};

use super::place::{Place, RawPlace};
use super::{RawJson, lock_name};
use crate::duration;
use crate::exit::Failure;

/// The shortest pause between two looks: a look costs every node a script.
const SHORTEST_EVERY: Duration = Duration::from_millis(50);

/// Tell who holds a lock, and what each node says of it
///
/// Exits with 0 when a majority of the nodes answered, and with 69 otherwise.
#[derive(Args)]
pub(super) struct RawStatus {
    /// The lock's name
    #[arg(value_parser = lock_name)]
    name: LockName,

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
    #[arg(value_parser = lock_name)]
    name: LockName,

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

impl RawStatus {
    pub(super) fn checked(self) -> Result<StatusJob, Failure> {
        Ok(StatusJob {
            name: self.name,
            place: self.place.checked()?,
            json: self.json.json,
        })
    }
}

impl RawList {
    pub(super) fn checked(self) -> Result<ListJob, Failure> {
        Ok(ListJob {
            pattern: NamePattern::new(self.pattern),
            all: self.all,
            place: self.place.checked()?,
            json: self.json.json,
        })
    }
}

impl RawWatch {
    pub(super) fn checked(self) -> Result<WatchJob, Failure> {
        if self.every < SHORTEST_EVERY {
            return Err(Failure::usage(
                "an --every below 50ms would keep the nodes busy with looking; take a longer one",
            ));
        }
        Ok(WatchJob {
            name: self.name,
            every: self.every,
            place: self.place.checked()?,
            json: self.json.json,
        })
    }
}
