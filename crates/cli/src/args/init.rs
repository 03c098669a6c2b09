//! What makes a cluster.

use clap::{ArgMatches, Args};
use fencepost::InitOptions;

use super::flag;
use super::place::{Place, RawPlace};
use crate::exit::Failure;

/// Form a cluster of several Redis servers
///
/// Writes a marker on each server that names all of them and --max-ttl, so that no client with another
/// list can use them. All servers have to be up; if one is missing or belongs to another cluster, nothing
/// is left behind. The first client does the same by itself, and then waits for --max-ttl once. On a
/// cluster that exists it changes nothing but --durable. One server alone needs no marker.
#[derive(Args)]
pub(super) struct RawInit {
    /// Assert that no lock from before these servers started is still held, so that they vote at once
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_INIT_FRESH", hide_env_values = true)]
    fresh: bool,

    /// Assert that every write is synced (appendonly yes, appendfsync always, no-appendfsync-on-rewrite
    /// no), so that a restarted server votes at once. Checked at each connection; a server that breaks it
    /// loses it, until it is asserted again
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_INIT_DURABLE", hide_env_values = true)]
    durable: bool,

    /// Servers of the cluster to replace: closes it, waits for --max-ttl, and opens the new one
    #[arg(long, value_name = "URLS", hide_env_values = true)]
    #[arg(env = "FENCEPOST_INIT_REPLACE")]
    replace: Option<String>,

    #[command(flatten)]
    place: RawPlace,
}

/// Make a cluster.
pub(crate) struct InitJob {
    pub(crate) options: InitOptions,
    pub(crate) fresh: bool,
    pub(crate) place: Place,
}

impl RawInit {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<InitJob, Failure> {
        let mut options = InitOptions::new().fresh(self.fresh).durable(self.durable);
        if let Some(old) = self.replace {
            options = options.replace(old);
        }
        Ok(InitJob {
            options,
            fresh: self.fresh,
            place: self.place.checked(matches)?.of_nodes("init")?,
        })
    }
}
