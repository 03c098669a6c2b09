//! How to take a lock: common to the commands that take one.

use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use fencepost::Ttl;

use crate::duration;
use crate::exit::{Exit, Failure};

#[derive(Args)]
pub(super) struct RawClaim {
    /// How long the lock outlives its holder if that is cut off
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

    /// Wait in line: whoever came before is served before
    #[arg(long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_FAIR", hide_env_values = true)]
    fair: bool,

    /// The exit code when somebody else has the lock
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Exit::BUSY)]
    #[arg(env = "FENCEPOST_CONFLICT_EXIT_CODE", hide_env_values = true)]
    conflict_exit_code: u8,

    /// Say nothing but errors, and nothing when somebody else has the lock
    #[arg(short, long, value_parser = FalseyValueParser::new())]
    #[arg(env = "FENCEPOST_QUIET", hide_env_values = true)]
    pub(super) quiet: bool,
}

/// How to take a lock.
pub(crate) struct Claim {
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) fair: bool,
    /// The exit code when somebody else has it.
    pub(crate) busy: u8,
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    AsLongAsItTakes,
    AtMost(Duration),
}

impl RawClaim {
    pub(super) fn checked(&self, matches: &ArgMatches) -> Result<Claim, Failure> {
        checked_ttl(self.ttl)?;
        Ok(Claim {
            ttl: self.ttl,
            wait: self.checked_wait(matches)?,
            fair: self.fair,
            busy: self.conflict_exit_code,
        })
    }

    fn checked_wait(&self, matches: &ArgMatches) -> Result<Wait, Failure> {
        // What is typed beats what the environment says, and that beats the config file.
        let rank = |id| match matches.value_source(id) {
            Some(ValueSource::CommandLine) => 3,
            Some(ValueSource::EnvVariable) => 2,
            Some(_) => 1,
            None => 0,
        };
        match (self.wait, self.no_wait) {
            (None, false) => Ok(Wait::AsLongAsItTakes),
            (None, true) => Ok(Wait::AtMost(Duration::ZERO)),
            (Some(time), false) => Ok(Wait::AtMost(time)),
            (Some(time), true) => match rank("wait").cmp(&rank("no_wait")) {
                std::cmp::Ordering::Greater => Ok(Wait::AtMost(time)),
                std::cmp::Ordering::Less => Ok(Wait::AtMost(Duration::ZERO)),
                std::cmp::Ordering::Equal => Err(Failure::usage(
                    "--wait and --no-wait exclude each other; give one of them",
                )),
            },
        }
    }
}

/// Refuses a TTL that no lock can have.
pub(super) fn checked_ttl(ttl: Duration) -> Result<(), Failure> {
    Ttl::new(ttl).map_err(|error| Failure::of(&error.into(), Exit::BUSY))?;
    Ok(())
}
