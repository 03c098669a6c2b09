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
//! | `not renewed` | warn | `lock`, `token`, `reason` (`no_quorum`, `too_late`, `lost`), `detail` |
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
//! Through the [`metrics`](https://docs.rs/metrics) facade, with the feature `metrics`. Each is described
//! to the recorder when a client is made. No lock name is a label: names have no bound.
//!
//! | metric | kind | labels |
//! | --- | --- | --- |
//! | `fencepost_acquired_total` | counter | |
//! | `fencepost_contended_total` | counter | `reason` as above |
//! | `fencepost_lost_total` | counter | `reason` as above |
//! | `fencepost_renewals_total` | counter | `outcome` (`ok`, `failed`) |
//! | `fencepost_renewal_failures_total` | counter | `reason` as above |
//! | `fencepost_node_up` | gauge: 1 or 0 | `node` |
//! | `fencepost_waiting` | gauge: requests of this process that wait | |
//! | `fencepost_acquire_seconds` | histogram: one attempt | |
//! | `fencepost_wait_seconds` | histogram: in the queue, until the lock was acquired | |
//! | `fencepost_held_seconds` | histogram: from acquisition to release or loss | |
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

/// Around a release that is awaited.
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

/// The outcome of a renewal; the reason of a failure in one word, and in full.
pub(crate) fn renewed(
    lock: &LockName,
    token: FencingToken,
    outcome: Result<(), (&'static str, String)>,
    took: Duration,
) {
    match &outcome {
        Ok(()) => tracing::trace!(target: TARGET, %lock, %token, "renewed"),
        Err((reason, detail)) => {
            tracing::warn!(target: TARGET, %lock, %token, reason, detail, "not renewed");
        }
    }
    count::renewed(outcome.err().map(|(reason, _)| reason), took);
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

/// Describes each metric to the recorder. Done for every client: the recorder may have changed.
pub(crate) fn describe() {
    count::describe();
}

/// One waiting request, for as long as this lives.
pub(crate) struct Waiting(());

impl Waiting {
    pub(crate) fn begin() -> Self {
        count::waiting(1.0);
        Self(())
    }

    /// The request waited this long and acquired the lock.
    pub(crate) fn served(self, waited: Duration) {
        count::waited(waited);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        count::waiting(-1.0);
    }
}

/// A lease has ended, for any reason, after this time.
pub(crate) fn ended(held: Duration) {
    count::held(held);
}

#[cfg(feature = "metrics")]
mod count {
    use std::time::Duration;

    use metrics::{
        Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
    };

    pub(super) fn describe() {
        for (name, what) in [
            ("fencepost_acquired_total", "Locks acquired"),
            (
                "fencepost_contended_total",
                "Attempts that did not get the lock, by reason",
            ),
            (
                "fencepost_lost_total",
                "Leases lost before their holder released them, by reason",
            ),
            ("fencepost_renewals_total", "Renewals, by outcome"),
            (
                "fencepost_renewal_failures_total",
                "Renewals that failed, by reason",
            ),
        ] {
            describe_counter!(name, Unit::Count, what);
        }
        for (name, what) in [
            (
                "fencepost_acquire_seconds",
                "Time of one successful attempt to acquire a lock",
            ),
            (
                "fencepost_wait_seconds",
                "Time that a request waited in the queue until it had the lock",
            ),
            (
                "fencepost_held_seconds",
                "Time from the acquisition of a lock to its release or loss",
            ),
            ("fencepost_renew_seconds", "Time of one renewal"),
            ("fencepost_release_seconds", "Time of one release"),
        ] {
            describe_histogram!(name, Unit::Seconds, what);
        }
        describe_gauge!(
            "fencepost_waiting",
            Unit::Count,
            "Requests of this process that wait for a lock now"
        );
        describe_gauge!(
            "fencepost_node_up",
            Unit::Count,
            "1 while the node can be used, 0 while it cannot"
        );
    }

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

    pub(super) fn renewed(failed: Option<&'static str>, took: Duration) {
        let outcome = if failed.is_some() { "failed" } else { "ok" };
        counter!("fencepost_renewals_total", "outcome" => outcome).increment(1);
        if let Some(reason) = failed {
            counter!("fencepost_renewal_failures_total", "reason" => reason).increment(1);
        }
        histogram!("fencepost_renew_seconds").record(took);
    }

    pub(super) fn lost(reason: &'static str) {
        counter!("fencepost_lost_total", "reason" => reason).increment(1);
    }

    pub(super) fn waiting(more: f64) {
        gauge!("fencepost_waiting").increment(more);
    }

    pub(super) fn waited(time: Duration) {
        histogram!("fencepost_wait_seconds").record(time);
    }

    pub(super) fn held(time: Duration) {
        histogram!("fencepost_held_seconds").record(time);
    }

    #[cfg(feature = "redis")]
    pub(super) fn node_up(node: &str, up: bool) {
        gauge!("fencepost_node_up", "node" => node.to_owned()).set(f64::from(u8::from(up)));
    }
}

#[cfg(not(feature = "metrics"))]
mod count {
    use std::time::Duration;

    pub(super) fn describe() {}
    pub(super) fn acquired(_: Duration) {}
    pub(super) fn contended(_: &'static str) {}
    pub(super) fn released(_: Duration) {}
    pub(super) fn renewed(_: Option<&'static str>, _: Duration) {}
    pub(super) fn lost(_: &'static str) {}
    pub(super) fn waiting(_: f64) {}
    pub(super) fn waited(_: Duration) {}
    pub(super) fn held(_: Duration) {}
    #[cfg(feature = "redis")]
    pub(super) fn node_up(_: &str, _: bool) {}
}
