//! [`Service`]: what every request needs; [`Caller`]: who asks.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request;
use fencepost::Client;
use fencepost::leased::Places;
use fencepost_core::LeaseId;
use tokio::sync::watch;

use crate::attempts::Attempts;
use crate::auth::{Principal, Tokens, Verb, authenticate};
use crate::leases::Leases;
use crate::limits::{Limits, Waits};
use crate::looks::{Looks, Probe};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::problem::{Problem, SOON};
use crate::spans::Spans;
use crate::watcher::Watcher;

/// What a service does for those who ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Everything.
    #[default]
    Full,
    /// It shows, and changes nothing.
    ReadOnly,
    /// It shows, and steals.
    ReadAndSteal,
}

/// What every request needs. Clones share it: there is one for every request and extractor.
#[derive(Clone)]
pub(crate) struct Service(Arc<Parts>);

/// What a service is made of.
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) limits: Arc<Limits>,
    pub(crate) waits: Waits,
    pub(crate) attempts: Attempts,
    pub(crate) looks: Looks,
    /// Who waits for a name.
    pub(crate) queues: Looks<Places>,
    pub(crate) probe: Probe,
    pub(crate) metrics: Arc<Metrics>,
    /// Whether metrics are offered at another address, and so not here.
    pub(crate) metrics_elsewhere: bool,
    pub(crate) leases: Leases,
    pub(crate) tokens: Option<Tokens>,
    /// Whether it is told to stop.
    pub(crate) draining: watch::Sender<bool>,
    pub(crate) watcher: Watcher,
    pub(crate) peers: Peers,
    /// Where the spans of requests go, if they are exported.
    pub(crate) spans: Option<Spans>,
    pub(crate) mode: Mode,
    /// Whether it is reached from this machine only.
    pub(crate) loopback: bool,
}

impl Service {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl std::ops::Deref for Service {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

fn draining() -> Problem {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let why = "this replica is shutting down; ask another";
    Problem::new(status, "draining", why).retry_after(SOON)
}

impl Parts {
    pub(crate) fn refuse_when_draining(&self) -> Result<(), Problem> {
        match *self.draining.borrow() {
            false => Ok(()),
            true => Err(draining()),
        }
    }

    /// Resolves when the replica is told to stop.
    pub(crate) async fn drained(&self) -> Problem {
        // The sender is here.
        let _ = self.draining.subscribe().wait_for(|told| *told).await;
        draining()
    }
}

impl Parts {
    /// What a client is told, who asked for that lease and failed: with the reason, if the lease is over
    /// and this replica saw why. Its loss is counted.
    pub(crate) fn over(&self, name: &str, lease: LeaseId, mut problem: Problem) -> Problem {
        if problem.status != StatusCode::GONE {
            return problem;
        }
        self.leases.ended(&[name], lease);
        if problem.code != "lost" {
            return problem;
        }
        if problem.field("reason").is_none() && self.leases.was_robbed(name, lease) {
            problem = problem.with("reason", "stolen");
        }
        // A client that asks again was told before.
        if self.leases.told(name, lease) {
            let reason = problem.field("reason").and_then(|reason| reason.as_str());
            self.metrics.lost(match reason {
                Some("stolen") => "stolen",
                Some("max_hold") => "max_hold",
                Some("expired") => "expired",
                _ => "unknown",
            });
        }
        problem
    }
}

/// The SHA-256 of the certificate that a connection has shown.
#[derive(Clone, Copy)]
pub(crate) struct Certificate(pub(crate) Option<[u8; 32]>);

/// Who asks.
pub(crate) struct Caller(pub(crate) Principal);

impl Caller {
    fn of(parts: &request::Parts, service: &Service) -> Result<Self, Problem> {
        let certificate = parts
            .extensions
            .get::<Certificate>()
            .and_then(|shown| shown.0);
        authenticate(
            service.tokens.as_ref(),
            &parts.headers,
            certificate.as_ref(),
        )
        .map(Self)
    }
}

impl FromRequestParts<Service> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut request::Parts,
        service: &Service,
    ) -> Result<Self, Problem> {
        Self::of(parts, service)
    }
}

/// Whether who asks, whom nobody has to know, may see the nodes.
pub(crate) struct SeesNodes(pub(crate) bool);

impl FromRequestParts<Service> for SeesNodes {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut request::Parts,
        service: &Service,
    ) -> Result<Self, Infallible> {
        let caller = Caller::of(parts, service);
        Ok(Self(caller.is_ok_and(|who| who.0.has(Verb::Nodes))))
    }
}
