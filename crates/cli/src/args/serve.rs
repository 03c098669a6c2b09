//! The lock service: `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgMatches, Args};
use fencepost_server::{Limits, Otlp};

use super::flag;
use super::place::{Place, RawPlace};
use crate::exit::Failure;

/// Serve locks over HTTP, for every language
///
/// Replicas are stateless: start several over the same store, and any of them extends or releases
/// what another granted. A replica that stops, also by SIGKILL, releases nothing: leases last
/// until they expire or are released. See /openapi.json for the API.
#[derive(Args)]
pub(super) struct RawServe {
    /// Address to listen at; port 0 is any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7323")]
    #[arg(env = "FENCEPOST_LISTEN", hide_env_values = true)]
    listen: SocketAddr,

    /// File of bearer tokens and what each may do; reloaded when it changes
    #[arg(long, value_name = "FILE")]
    #[arg(env = "FENCEPOST_SERVE_TOKENS", hide_env_values = true)]
    tokens: Option<PathBuf>,

    /// Address to serve /metrics, /livez and /readyz at, over plain HTTP and without authentication, for a
    /// scraper inside the network. /metrics is then not served at --listen
    #[arg(long, value_name = "ADDRESS")]
    #[arg(env = "FENCEPOST_METRICS_LISTEN", hide_env_values = true)]
    metrics_listen: Option<SocketAddr>,

    /// Certificate chain (PEM) to serve TLS with
    #[arg(long, value_name = "FILE", requires = "serve_key")]
    #[arg(env = "FENCEPOST_SERVE_CERT", hide_env_values = true)]
    serve_cert: Option<PathBuf>,

    /// Private key (PEM) of --serve-cert
    #[arg(long, value_name = "FILE", requires = "serve_cert")]
    #[arg(env = "FENCEPOST_SERVE_KEY", hide_env_values = true)]
    serve_key: Option<PathBuf>,

    /// Certificate authority (PEM): require client certificates signed by it
    #[arg(long, value_name = "FILE", requires = "serve_cert")]
    #[arg(env = "FENCEPOST_CLIENT_CA", hide_env_values = true)]
    client_ca: Option<PathBuf>,

    /// Directory to keep the timeline of losses, near misses and steals in, for the dashboard at /ui
    /// (at most 32 MiB); without it, it is kept in memory while a client watches
    #[arg(long, value_name = "DIR")]
    #[arg(env = "FENCEPOST_TIMELINE", hide_env_values = true)]
    timeline: Option<PathBuf>,

    /// Another replica, http://HOST:PORT or https://HOST:PORT: its timeline is shown together with this
    /// one's. Repeat it, or separate several by commas
    #[arg(long = "peer", value_name = "URL", value_delimiter = ',')]
    #[arg(env = "FENCEPOST_PEERS", hide_env_values = true)]
    peers: Vec<String>,

    /// Certificate authority (PEM) of the https:// peers
    #[arg(long, value_name = "FILE", requires = "peers")]
    #[arg(env = "FENCEPOST_PEER_CA", hide_env_values = true)]
    peer_ca: Option<PathBuf>,

    /// Base URL of an OpenTelemetry collector, http://HOST:4318, to export the spans of requests to (OTLP over HTTP).
    /// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_SERVICE_NAME are read, too
    #[arg(long, value_name = "URL")]
    #[arg(env = "FENCEPOST_OTLP_ENDPOINT", hide_env_values = true)]
    otlp_endpoint: Option<String>,

    /// Set a limit: waits=500, read_timeout=5s. Repeat it, or separate several by commas; names and defaults
    /// are in the documentation of the service
    #[arg(long = "limit", value_name = "NAME=VALUE", value_delimiter = ',')]
    #[arg(env = "FENCEPOST_LIMITS", hide_env_values = true)]
    limits: Vec<String>,

    /// Serve without TLS beyond this machine: anyone on the network path can read tokens and lease ids
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_ALLOW_PLAINTEXT", hide_env_values = true)]
    allow_plaintext: bool,

    /// Serve without authentication beyond this machine: any client that reaches it may do everything
    #[arg(long, value_parser = flag)]
    #[arg(env = "FENCEPOST_ALLOW_ANONYMOUS", hide_env_values = true)]
    allow_anonymous: bool,

    #[command(flatten)]
    place: RawPlace,
}

/// A service.
pub(crate) struct ServeJob {
    pub(crate) listen: SocketAddr,
    pub(crate) metrics_listen: Option<SocketAddr>,
    pub(crate) tokens: Option<PathBuf>,
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) timeline: Option<PathBuf>,
    pub(crate) peers: Vec<String>,
    pub(crate) peer_ca: Option<PathBuf>,
    pub(crate) otlp: Option<Box<Otlp>>,
    /// On the heap: other jobs are small.
    pub(crate) limits: Box<Limits>,
    pub(crate) place: Place,
}

impl RawServe {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<ServeJob, Failure> {
        let certificate = self.serve_cert.zip(self.serve_key);
        if !self.listen.ip().is_loopback() {
            let address = self.listen;
            if certificate.is_none() && !self.allow_plaintext {
                return Err(Failure::usage(format!(
                    "--listen {address} is reached from other machines, and there is no TLS: give \
                     --serve-cert and --serve-key, or --allow-plaintext where a proxy speaks TLS"
                )));
            }
            if self.tokens.is_none() && self.client_ca.is_none() && !self.allow_anonymous {
                return Err(Failure::usage(format!(
                    "--listen {address} can be reached from other machines without authentication: \
                     give --tokens or --client-ca, or --allow-anonymous"
                )));
            }
        }
        let mut limits = Limits::default();
        for limit in &self.limits {
            let set = match limit.split_once('=') {
                Some((name, value)) => limits.set(name, value).map_err(|why| why.to_string()),
                None => Err(format!("{limit:?} is not NAME=VALUE")),
            };
            set.map_err(|why| Failure::usage(format!("--limit: {why}")))?;
        }
        Ok(ServeJob {
            otlp: otlp(self.otlp_endpoint)?.map(Box::new),
            limits: Box::new(limits),
            listen: self.listen,
            metrics_listen: self.metrics_listen,
            tokens: self.tokens,
            certificate,
            client_ca: self.client_ca,
            timeline: self.timeline,
            peers: self.peers,
            peer_ca: self.peer_ca,
            place: self.place.checked(matches)?.of_nodes("serve")?,
        })
    }
}

/// The collector of spans: ours, or by the variables that every program with OpenTelemetry reads.
fn otlp(endpoint: Option<String>) -> Result<Option<Otlp>, Failure> {
    // Empty is as good as not set, says its specification.
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (exact, base) = (
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
    );
    let (name, otlp) = match (endpoint, variable(exact), variable(base)) {
        (Some(url), ..) => ("--otlp-endpoint", Otlp::at(&url)),
        (None, Some(url), _) => (exact, Otlp::at_exactly(&url)),
        (None, None, Some(url)) => (base, Otlp::at(&url)),
        (None, None, None) => return Ok(None),
    };
    let otlp = otlp.map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    Ok(Some(match variable("OTEL_SERVICE_NAME") {
        Some(service) => otlp.service_name(&service),
        None => otlp,
    }))
}
