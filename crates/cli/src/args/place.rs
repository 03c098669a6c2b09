//! Where the locks are: common to all commands.

use std::ffi::OsString;
use std::time::Duration;

use clap::{ArgMatches, Args, ValueEnum};
use fencepost::RestartPolicy;
use fencepost::internals::redis::TlsOptions;

use super::tls::RawTls;
use crate::duration;
use crate::exit::Failure;
use crate::store::Store;

#[derive(Args)]
#[command(next_help_heading = "Store")]
pub(super) struct RawPlace {
    /// Where the locks are: file:PATH, redis://HOST, rediss://HOST, redis+unix:///PATH, or several
    /// servers separated by commas [default: a file in $XDG_STATE_HOME or ~/.local/state]
    // The value may have a password in it.
    #[arg(
        long,
        value_name = "URL",
        env = "FENCEPOST_STORE",
        hide_env_values = true
    )]
    store: Option<String>,

    /// What stands before every key on Redis: `--prefix locks:` keeps lock "job" at the key
    /// `locks:job`. All clients must use the same
    #[arg(long, value_name = "TEXT")]
    #[arg(env = "FENCEPOST_PREFIX", hide_env_values = true)]
    prefix: Option<String>,

    /// Whether a Redis server that restarted recently may vote at once (trust), or only after
    /// --max-ttl, because it may have forgotten locks (delay) [default: trust for one or two
    /// servers, delay for more]
    #[arg(long, value_name = "POLICY")]
    #[arg(env = "FENCEPOST_RESTART_POLICY", hide_env_values = true)]
    restart_policy: Option<RawRestartPolicy>,

    /// Longest TTL that any client of these servers uses. All clients must use the same: a restarted
    /// server does not vote for that long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_MAX_TTL", hide_env_values = true)]
    max_ttl: Duration,

    /// Config file, in place of $XDG_CONFIG_HOME/fencepost/config.toml
    // Read before everything else: see `config_of`.
    #[arg(long, value_name = "FILE")]
    #[arg(env = "FENCEPOST_CONFIG", hide_env_values = true)]
    config: Option<OsString>,

    #[command(flatten)]
    tls: RawTls,
}

#[derive(Clone, Copy, ValueEnum)]
enum RawRestartPolicy {
    Trust,
    Delay,
}

/// Where the locks are, and what to think of nodes that restarted.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) store: Store,
    pub(crate) prefix: Option<String>,
    pub(crate) tls: TlsOptions,
    pub(crate) restart_policy: Option<RestartPolicy>,
    pub(crate) max_ttl: Duration,
}

impl RawPlace {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<Place, Failure> {
        let store = Store::checked(self.store)?;
        Ok(Place {
            tls: self.tls.checked(&store, matches)?,
            store,
            prefix: self.prefix,
            restart_policy: self.restart_policy.map(|policy| match policy {
                RawRestartPolicy::Trust => RestartPolicy::Trust,
                RawRestartPolicy::Delay => RestartPolicy::Delay,
            }),
            max_ttl: self.max_ttl,
        })
    }
}

impl Place {
    /// A client, to set up further.
    pub(crate) fn builder(&self) -> fencepost::Builder {
        let mut builder = self.store.builder().max_ttl(self.max_ttl);
        if let Some(authorities) = &self.tls.ca_pem {
            builder = builder.tls_ca(authorities.clone());
        }
        if let Some((certificate, key)) = &self.tls.client_pem {
            builder = builder.tls_client(certificate.clone(), key.clone());
        }
        if let Some(prefix) = &self.prefix {
            builder = builder.prefix(prefix);
        }
        match self.restart_policy {
            Some(policy) => builder.restart_policy(policy),
            None => builder,
        }
    }
}
