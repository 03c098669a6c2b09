//! How to take a lock: common to the commands that take one.

use std::time::Duration;

use clap::{ArgMatches, Args};
use fencepost_core::Ttl;

use super::{flag, rank};
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::fault;

#[derive(Args)]
#[command(next_help_heading = "Waiting")]
pub(super) struct RawClaim {
    /// Wait for the lock at most this long, then give up [default: wait until it is free]
    #[arg(short, long, visible_alias = "timeout", value_name = "TIME")]
    #[arg(value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_WAIT", hide_env_values = true)]
    wait: Option<Duration>,

    /// Fail at once if the lock is held
    #[arg(short = 'n', long, visible_aliases = ["nonblock", "nb"], value_parser = flag)]
    #[arg(env = "FENCEPOST_NO_WAIT", hide_env_values = true)]
    no_wait: bool,

    /// First come, first served among those who wait
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_FAIR", hide_env_values = true)]
    fair: bool,

    /// Without a terminal: how often to print a reminder while waiting; 0 for never
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_REMIND", hide_env_values = true)]
    remind: Duration,

    /// Exit code if the lock is held, or still held when --wait runs out
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = Exit::BUSY)]
    #[arg(env = "FENCEPOST_CONFLICT_EXIT_CODE", hide_env_values = true)]
    conflict_exit_code: u8,

    /// Lock TTL: how long the lock survives a crashed or partitioned holder
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_TTL", hide_env_values = true)]
    #[arg(help_heading = "Holding")]
    ttl: Duration,

    /// Print errors only, and nothing if the lock is held
    #[arg(short, long, value_parser = flag)]
    #[arg(env = "FENCEPOST_QUIET", hide_env_values = true)]
    #[arg(help_heading = "Output")]
    pub(super) quiet: bool,
}

/// How to take a lock.
pub(crate) struct Claim {
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) fair: bool,
    /// How often to say again what is waited for; zero for never.
    pub(crate) remind: Duration,
    /// The exit code when it is held.
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
            wait: self.checked_wait(matches),
            fair: self.fair,
            remind: self.remind,
            busy: self.conflict_exit_code,
        })
    }

    fn checked_wait(&self, matches: &ArgMatches) -> Wait {
        let rank = |id| rank(matches, id);
        match (self.wait, self.no_wait) {
            (None, false) => Wait::AsLongAsItTakes,
            // Where both are typed, --no-wait counts, as flock has it.
            (Some(time), is_no_wait) if !is_no_wait || rank("wait") > rank("no_wait") => {
                Wait::AtMost(time)
            }
            _ => Wait::AtMost(Duration::ZERO),
        }
    }
}

/// Refuses a TTL that no lock can have.
pub(super) fn checked_ttl(ttl: Duration) -> Result<(), Failure> {
    Ttl::new(ttl).map_err(|error| fault::failure(&error.into(), Exit::BUSY))?;
    Ok(())
}
