//! [`Service`]: what every request needs; [`Caller`]: who asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use fencepost::Client;

use crate::attempts::Attempts;
use crate::auth::{Principal, Tokens, authenticate};
use crate::limits::{Limits, Waits};
use crate::metrics::Metrics;
use crate::peers::Peers;
use crate::problem::Problem;
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

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) client: Client,
    pub(crate) limits: Arc<Limits>,
    pub(crate) waits: Waits,
    pub(crate) attempts: Attempts,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tokens: Option<Tokens>,
    pub(crate) draining: Arc<AtomicBool>,
    pub(crate) watcher: Watcher,
    pub(crate) peers: Peers,
    pub(crate) mode: Mode,
    /// Whether it is reached from this machine only.
    pub(crate) loopback: bool,
}

impl Service {
    pub(crate) fn refuse_when_draining(&self) -> Result<(), Problem> {
        match self.draining.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "draining",
                "this replica is shutting down; ask another",
            )
            .retry_after(Duration::from_secs(1))),
        }
    }
}

/// The SHA-256 of the certificate that a connection has shown.
#[derive(Clone, Copy)]
pub(crate) struct Certificate(pub(crate) Option<[u8; 32]>);

/// Who asks.
pub(crate) struct Caller(pub(crate) Principal);

impl FromRequestParts<Service> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, service: &Service) -> Result<Self, Problem> {
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
