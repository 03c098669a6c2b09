//! What happens, for logs and metrics: `tracing` events with stable field names, and counters
//! through the `metrics` facade (feature `metrics`).
//!
//! | event | level | fields |
//! | --- | --- | --- |
//! | `acquired` | debug | `lock`, `token` |
//! | `contended` | debug | `lock`, `reason` |
//! | `released` | debug | `lock`, `token` |
//! | `renewed` | trace | `lock`, `token` |
//! | `not renewed` | warn | `lock`, `token` |
//! | `lost` | warn | `lock`, `token`, `reason` |
//!
//! | metric | kind | labels |
//! | --- | --- | --- |
//! | `fencepost_acquired_total` | counter | |
//! | `fencepost_contended_total` | counter | `reason` |
//! | `fencepost_lost_total` | counter | `reason` |
//! | `fencepost_renewals_total` | counter | `outcome` |
//! | `fencepost_node_up` | gauge | `node` |
//! | `fencepost_acquire_seconds`, `fencepost_release_seconds` | histogram | |

use std::time::Duration;

use crate::error::{Error, LossReason};
use crate::name::LockName;
use crate::token::FencingToken;

pub(crate) fn acquired(lock: &LockName, token: FencingToken, took: Duration) {
    tracing::debug!(%lock, %token, "acquired");
    count::acquired(took);
}

pub(crate) fn contended(lock: &LockName, error: &Error) {
    tracing::debug!(%lock, reason = %error, "contended");
    count::contended(match error {
        Error::Held { .. } => "held",
        Error::NoQuorum { .. } => "no_quorum",
        _ => "too_late",
    });
}

pub(crate) fn released(lock: &LockName, token: FencingToken, took: Duration) {
    tracing::debug!(%lock, %token, "released");
    count::released(took);
}

pub(crate) fn renewed(lock: &LockName, token: FencingToken, well: bool) {
    if well {
        tracing::trace!(%lock, %token, "renewed");
    } else {
        tracing::warn!(%lock, %token, "not renewed");
    }
    count::renewed(if well { "ok" } else { "failed" });
}

pub(crate) fn lost(lock: &LockName, token: FencingToken, reason: &LossReason) {
    tracing::warn!(%lock, %token, %reason, "lost");
    count::lost(reason.as_str());
}

#[cfg(feature = "redis")]
pub(crate) fn node_up(node: &str, up: bool) {
    count::node_up(node, up);
}

#[cfg(feature = "metrics")]
mod count {
    use std::time::Duration;

    use metrics::{counter, gauge, histogram};

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

    pub(super) fn renewed(outcome: &'static str) {
        counter!("fencepost_renewals_total", "outcome" => outcome).increment(1);
    }

    pub(super) fn lost(reason: &'static str) {
        counter!("fencepost_lost_total", "reason" => reason).increment(1);
    }

    #[cfg(feature = "redis")]
    pub(super) fn node_up(node: &str, up: bool) {
        gauge!("fencepost_node_up", "node" => node.to_owned()).set(f64::from(u8::from(up)));
    }
}

#[cfg(not(feature = "metrics"))]
mod count {
    use std::time::Duration;

    pub(super) fn acquired(_: Duration) {}
    pub(super) fn contended(_: &'static str) {}
    pub(super) fn released(_: Duration) {}
    pub(super) fn renewed(_: &'static str) {}
    pub(super) fn lost(_: &'static str) {}
    #[cfg(feature = "redis")]
    pub(super) fn node_up(_: &str, _: bool) {}
}
