//! Where the locks are: common to all commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, ValueEnum};
use fencepost::RestartPolicy;
use fencepost::internals::redis::TlsOptions;

use super::flag;
use super::tls::{self, RawTls};
use crate::duration;
use crate::exit::Failure;
use crate::store::Store;

#[derive(Args)]
#[command(next_help_heading = "Store")]
pub(super) struct RawPlace {
    /// Where the locks are: file:PATH, redis://HOST, rediss://HOST, redis+unix:///PATH, or several
    /// servers separated by commas; a Sentinel group, redis+sentinel://S1,S2,S3/MASTER; a Redis
    /// Cluster, redis+cluster://NODE1,NODE2,NODE3; or a lock service, https://HOST, with its replicas separated by
    /// commas [default: a file in $XDG_STATE_HOME or ~/.local/state]
    // The value may have a password in it.
    #[arg(
        long,
        value_name = "URL",
        env = "FENCEPOST_STORE",
        hide_env_values = true
    )]
    store: Option<String>,

    /// Prefix of every key on Redis: `--prefix locks:` keeps lock "job" at the key `locks:job`. All
    /// clients must use the same
    #[arg(long, value_name = "TEXT")]
    #[arg(env = "FENCEPOST_PREFIX", hide_env_values = true)]
    prefix: Option<String>,

    /// Whether a Redis server that restarted recently may vote at once (trust), or only after
    /// --max-ttl, because it may have forgotten locks (delay) [default: trust for one server,
    /// delay for more]
    #[arg(long, value_name = "POLICY")]
    #[arg(env = "FENCEPOST_RESTART_POLICY", hide_env_values = true)]
    restart_policy: Option<RawRestartPolicy>,

    /// Longest TTL that any client of these servers uses. All clients must use the same: a restarted
    /// server does not vote for that long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_MAX_TTL", hide_env_values = true)]
    max_ttl: Duration,

    /// How long a server remembers the largest fencing token of a name after its last acquisition, at least an hour and two
    /// --max-ttl. All clients must use the same [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_RETENTION", hide_env_values = true)]
    retention: Option<Duration>,

    /// File with the token for a lock service [default: the token in FENCEPOST_SERVICE_TOKEN]
    #[arg(long, value_name = "FILE")]
    #[arg(env = "FENCEPOST_SERVICE_TOKEN_FILE", hide_env_values = true)]
    service_token_file: Option<PathBuf>,

    /// Use a lock service at http:// beyond this machine: anyone on the network path can read
    /// tokens and lease ids
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_ALLOW_PLAINTEXT_SERVICE", hide_env_values = true)]
    allow_plaintext_service: bool,

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
    retention: Option<Duration>,
    /// For a lock service.
    service_token: Option<String>,
    allow_plaintext_service: bool,
}

impl RawPlace {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<Place, Failure> {
        let store = Store::checked(self.store)?;
        // In the environment and in the config file it may be for another store.
        let file = self.service_token_file.filter(|_| store.is_service());
        let service_token = file.map(|path| {
            let bytes = tls::read("service-token-file", &path)?;
            String::from_utf8(bytes).map_err(|_| {
                let path = path.display();
                Failure::usage(format!(
                    "--service-token-file {path} cannot be used: it is not text; give a file that has \
                     the token and nothing else"
                ))
            })
        });
        Ok(Place {
            service_token: service_token.transpose()?,
            allow_plaintext_service: self.allow_plaintext_service,
            tls: self.tls.checked(&store, matches)?,
            store,
            prefix: self.prefix,
            restart_policy: self.restart_policy.map(|policy| match policy {
                RawRestartPolicy::Trust => RestartPolicy::Trust,
                RawRestartPolicy::Delay => RestartPolicy::Delay,
            }),
            max_ttl: self.max_ttl,
            retention: self.retention,
        })
    }
}

impl Place {
    /// Refuses a lock service where its nodes are needed.
    pub(super) fn of_nodes(self, command: &str) -> Result<Self, Failure> {
        match self.store.is_service() {
            false => Ok(self),
            true => Err(Failure::usage(format!(
                "{command} needs the nodes themselves, and --store is a lock service; give the --store \
                 that the service was started with"
            ))),
        }
    }

    /// A client, to set up further.
    pub(crate) fn builder(&self) -> fencepost::Builder {
        let mut builder = self.store.builder().max_ttl(self.max_ttl);
        if let Some(authorities) = &self.tls.ca_pem {
            builder = builder.tls_ca(authorities.clone());
        }
        if let Some((certificate, key)) = &self.tls.client_pem {
            builder = builder.tls_client(certificate.clone(), key.clone());
        }
        if let Some(token) = &self.service_token {
            builder = builder.service_token(token);
        }
        if let Some(time) = self.retention {
            builder = builder.retention(time);
        }
        builder = builder.allow_plaintext(self.allow_plaintext_service);
        if let Some(prefix) = &self.prefix {
            builder = builder.prefix(prefix);
        }
        match self.restart_policy {
            Some(policy) => builder.restart_policy(policy),
            None => builder,
        }
    }
}
