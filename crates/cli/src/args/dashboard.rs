//! The dashboard, and what of it fits a terminal: `ui`, `top`, `deadlocks`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args};

use super::place::{Place, RawPlace};
use super::{RawJson, flag};
use crate::duration;
use crate::exit::Failure;

/// The shortest polling interval: each poll runs a script on every node for each lock.
const SHORTEST_EVERY: Duration = Duration::from_millis(100);

/// Show the dashboard in a browser: who holds what, who waits for whom
///
/// Serves the dashboard on this machine until interrupted, and prints its address. It changes
/// nothing, unless --allow-steal is given. `fencepost serve` has the same dashboard at /ui.
#[derive(Args)]
pub(super) struct RawUi {
    /// Port to listen at on this machine; 0 is any free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    #[arg(env = "FENCEPOST_UI_PORT", hide_env_values = true)]
    port: u16,

    /// Let the dashboard steal locks
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_ALLOW_STEAL", hide_env_values = true)]
    allow_steal: bool,

    /// Directory to keep the timeline of losses, near misses and steals in (at most 32 MiB)
    #[arg(long, value_name = "DIR")]
    #[arg(env = "FENCEPOST_TIMELINE", hide_env_values = true)]
    timeline: Option<PathBuf>,

    #[command(flatten)]
    place: RawPlace,
}

/// Show locks and nodes in the terminal, refreshed every second
///
/// Locks with the most waiters come first, as many as fit. In a pipe it prints all of them, one snapshot
/// after another.
#[derive(Args)]
pub(super) struct RawTop {
    /// Polling interval
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_EVERY", hide_env_values = true)]
    every: Duration,

    /// Exit after this many snapshots
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(env = "FENCEPOST_COUNT", hide_env_values = true)]
    count: Option<u64>,

    #[command(flatten)]
    place: RawPlace,
}

/// Find cycles of sessions that wait for each other's locks
///
/// Waiters and holders are matched by the session ids that the nodes store, never by labels. A
/// process that does several things at once may be in a cycle that ends by itself. Exits with 0 if
/// there is no cycle, with 1 if there is one, and with 69 if fewer than a majority of the nodes
/// answered.
#[derive(Args)]
pub(super) struct RawDeadlocks {
    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
}

/// A dashboard for this machine.
pub(crate) struct UiJob {
    pub(crate) listen: SocketAddr,
    pub(crate) allow_steal: bool,
    pub(crate) timeline: Option<PathBuf>,
    pub(crate) place: Place,
}

/// Pictures of locks and nodes.
pub(crate) struct TopJob {
    pub(crate) every: Duration,
    pub(crate) count: Option<u64>,
    pub(crate) place: Place,
}

/// A search for cycles.
pub(crate) struct DeadlocksJob {
    pub(crate) place: Place,
    pub(crate) json: bool,
}

impl RawUi {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<UiJob, Failure> {
        Ok(UiJob {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port),
            allow_steal: self.allow_steal,
            timeline: self.timeline,
            place: self.place.checked(matches)?.of_nodes("ui")?,
        })
    }
}

impl RawTop {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<TopJob, Failure> {
        if self.every < SHORTEST_EVERY {
            return Err(Failure::usage(
                "--every must be at least 100ms: each poll runs a script on every node for each lock",
            ));
        }
        Ok(TopJob {
            every: self.every,
            count: self.count,
            place: self.place.checked(matches)?.of_nodes("top")?,
        })
    }
}

impl RawDeadlocks {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<DeadlocksJob, Failure> {
        Ok(DeadlocksJob {
            place: self.place.checked(matches)?.of_nodes("deadlocks")?,
            json: self.json.json,
        })
    }
}
