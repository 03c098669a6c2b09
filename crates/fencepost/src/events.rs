//! Logs and metrics. The names here are stable. There is nothing to call.
//!
//! # Logs
//! Events and spans of [`tracing`](https://docs.rs/tracing), on the target `fencepost` and below
//! it. `lock` is the lock's name, `token` its fencing token, `node` a node's address without
//! password, `reason` one word where it stands beside `detail`, which is for people.
//!
//! | event | level | fields |
//! | --- | --- | --- |
//! | `acquired` | debug | `lock`, `token` |
//! | `contended` | debug | `lock`, `reason` (`held`, `no_quorum`, `too_late`), `detail` |
//! | `released` | debug | `lock`, `token` |
//! | `not released` | debug | `lock`, `token`, `detail` |
//! | `dropped` | debug | `lock`, `token`: it is released in the background |
//! | `renewed` | trace | `lock`, `token` |
//! | `not renewed` | warn | `lock`, `token` |
//! | `lost` | warn | `lock`, `token`, `reason` (see [`LossReason::as_str`]), `detail` |
//! | `connected` | debug | `node` |
//! | `connection lost` | debug | `node`, `reason` (for people) |
//! | `cannot be used` | warn | `node`, `reason` (for people); debug when it is still the same |
//! | `this server does not vote yet` | warn | `node`, `reason` (for people) |
//!
//! | span | level | fields |
//! | --- | --- | --- |
//! | `acquire` | debug | `lock`, `token` once it is known |
//! | `renew` | trace | `lock`, `token` |
//! | `release` | debug | `lock`, `token` |
//!
//! # Metrics
//! Through the [`metrics`](https://docs.rs/metrics) facade, with the feature `metrics`.
//!
//! | metric | kind | labels |
//! | --- | --- | --- |
//! | `fencepost_acquired_total` | counter | |
//! | `fencepost_contended_total` | counter | `reason` as above |
//! | `fencepost_lost_total` | counter | `reason` as above |
//! | `fencepost_renewals_total` | counter | `outcome` (`ok`, `failed`) |
//! | `fencepost_node_up` | gauge: 1 or 0 | `node` |
//! | `fencepost_acquire_seconds` | histogram | |
//! | `fencepost_renew_seconds` | histogram | |
//! | `fencepost_release_seconds` | histogram | |

use std::time::Duration;

use tracing::{Span, field};

use crate::error::{Cause, Error, LossReason};
use fencepost_core::name::LockName;
use fencepost_core::token::FencingToken;

const TARGET: &str = "fencepost";

/// Around an attempt.
pub(crate) fn acquiring(lock: &LockName) -> Span {
    tracing::debug_span!(target: TARGET, "acquire", %lock, token = field::Empty)
}

/// Around a renewal.
pub(crate) fn renewing(lock: &LockName, token: FencingToken) -> Span {
    tracing::trace_span!(target: TARGET, "renew", %lock, %token)
}

/// Around a release that somebody waits for.
pub(crate) fn releasing(lock: &LockName, token: FencingToken) -> Span {
    tracing::debug_span!(target: TARGET, "release", %lock, %token)
}

/// In the span of its attempt.
pub(crate) fn acquired(span: &Span, lock: &LockName, token: FencingToken, took: Duration) {
    span.record("token", field::display(token));
    tracing::debug!(target: TARGET, %lock, %token, "acquired");
    count::acquired(took);
}

pub(crate) fn contended(lock: &LockName, error: &Error) {
    let reason = match error.cause() {
        Cause::Held { .. } => "held",
        Cause::NoQuorum { .. } => "no_quorum",
        _ => "too_late",
    };
    tracing::debug!(target: TARGET, %lock, reason, detail = %error, "contended");
    count::contended(reason);
}

pub(crate) fn released(
    lock: &LockName,
    token: FencingToken,
    outcome: &Result<(), Error>,
    took: Duration,
) {
    match outcome {
        Ok(()) => tracing::debug!(target: TARGET, %lock, %token, "released"),
        Err(error) => {
            tracing::debug!(target: TARGET, %lock, %token, detail = %error, "not released");
        }
    }
    count::released(took);
}

pub(crate) fn dropped(lock: &LockName, token: FencingToken) {
    tracing::debug!(target: TARGET, %lock, %token, "dropped");
}

pub(crate) fn renewed(lock: &LockName, token: FencingToken, well: bool, took: Duration) {
    if well {
        tracing::trace!(target: TARGET, %lock, %token, "renewed");
    } else {
        tracing::warn!(target: TARGET, %lock, %token, "not renewed");
    }
    count::renewed(if well { "ok" } else { "failed" }, took);
}

pub(crate) fn lost(lock: &LockName, token: FencingToken, reason: &LossReason) {
    let word = reason.as_str();
    tracing::warn!(target: TARGET, %lock, %token, reason = word, detail = %reason, "lost");
    count::lost(word);
}

#[cfg(feature = "redis")]
pub(crate) fn node_up(node: &str, up: bool) {
    count::node_up(node, up);
}

#[cfg(feature = "metrics")]
mod count {
    use std::time::Duration;

    use metrics::{counter, histogram};

    pub(super) fn acquired(took: Duration) {
        counter!("fencepost_acquired_total").increment(1);
        histogram!("fencepost_acquire_seconds").record(took);
    }

    pub(super) fn contended(reason: &'static str) {
        counter!("fencepost_contended_total", "reason" => reason).increment(1);
    }

    pub(super) fn released(took: Duration) {
        histogram!("fencepost_release_seconds").record(took);
    }

    pub(super) fn renewed(outcome: &'static str, took: Duration) {
        counter!("fencepost_renewals_total", "outcome" => outcome).increment(1);
        histogram!("fencepost_renew_seconds").record(took);
    }

    pub(super) fn lost(reason: &'static str) {
        counter!("fencepost_lost_total", "reason" => reason).increment(1);
    }

    #[cfg(feature = "redis")]
    pub(super) fn node_up(node: &str, up: bool) {
        metrics::gauge!("fencepost_node_up", "node" => node.to_owned())
            .set(f64::from(u8::from(up)));
    }
}

#[cfg(not(feature = "metrics"))]
mod count {
    use std::time::Duration;

    pub(super) fn acquired(_: Duration) {}
    pub(super) fn contended(_: &'static str) {}
    pub(super) fn released(_: Duration) {}
    pub(super) fn renewed(_: &'static str, _: Duration) {}
    pub(super) fn lost(_: &'static str) {}
    #[cfg(feature = "redis")]
    pub(super) fn node_up(_: &str, _: bool) {}
}
