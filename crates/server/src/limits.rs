//! [`Limits`]: how much of everything there may be, each with a name and a default.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;

use crate::problem::Problem;

/// The limits of one replica.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The largest request body, in bytes: 256 KiB.
    pub body_bytes: usize,
    /// The most leases in one `extend`: 1,000.
    pub batch: usize,
    /// The most names in one `acquire`: 16.
    pub names: usize,
    /// The longest `wait` of one request: 60 s.
    pub wait: Duration,
    /// The most requests that wait at the same time: 10,000.
    pub waits: usize,
    /// The most requests of one principal that wait at the same time: 1,000.
    pub waits_per_principal: usize,
    /// The most requests that wait for the same name: 10,000.
    pub waits_per_name: usize,
    /// The most connections: 20,000.
    pub connections: usize,
    /// How long a client may take to send its request: 10 s.
    pub read_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 256 * 1024,
            batch: 1_000,
            names: 16,
            wait: Duration::from_secs(60),
            waits: 10_000,
            waits_per_principal: 1_000,
            waits_per_name: 10_000,
            connections: 20_000,
            read_timeout: Duration::from_secs(10),
        }
    }
}

/// Who waits now.
#[derive(Clone, Default)]
pub(crate) struct Waits(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    all: usize,
    by_principal: HashMap<String, usize>,
    by_name: HashMap<String, usize>,
}

impl Waits {
    /// Counts one more who waits, for as long as the guard lives.
    pub(crate) fn begin(
        &self,
        limits: &Limits,
        principal: &str,
        name: &str,
    ) -> Result<WaitGuard, Problem> {
        let mut counts = self.counts();
        let principals = counts.by_principal.get(principal).copied().unwrap_or(0);
        let names = counts.by_name.get(name).copied().unwrap_or(0);
        for (limit, now, most) in [
            ("waits", counts.all, limits.waits),
            (
                "waits_per_principal",
                principals,
                limits.waits_per_principal,
            ),
            ("waits_per_name", names, limits.waits_per_name),
        ] {
            if now >= most {
                let why = format!("{most} requests wait already (limit {limit})");
                return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "limit", why)
                    .with("limit", limit)
                    .retry_after(Duration::from_secs(1)));
            }
        }
        counts.all += 1;
        *counts.by_principal.entry(principal.to_owned()).or_default() += 1;
        *counts.by_name.entry(name.to_owned()).or_default() += 1;
        drop(counts);
        Ok(WaitGuard {
            waits: self.clone(),
            principal: principal.to_owned(),
            name: name.to_owned(),
        })
    }

    pub(crate) fn all(&self) -> usize {
        self.counts().all
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        // A panic while it was locked cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who waits.
pub(crate) struct WaitGuard {
    waits: Waits,
    principal: String,
    name: String,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut counts = self.waits.counts();
        counts.all -= 1;
        less(&mut counts.by_principal, &self.principal);
        less(&mut counts.by_name, &self.name);
    }
}

fn less(counts: &mut HashMap<String, usize>, key: &str) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_named_and_whoever_goes_makes_room() {
        let limits = Limits {
            waits_per_name: 1,
            ..Limits::default()
        };
        let waits = Waits::default();
        let first = waits.begin(&limits, "a", "job").ok();
        let refused = waits.begin(&limits, "b", "job").err().expect("full");
        assert_eq!((refused.status.as_u16(), refused.code), (429, "limit"));
        assert!(waits.begin(&limits, "b", "other").is_ok(), "another name");
        drop(first);
        assert!(waits.begin(&limits, "b", "job").is_ok());
        assert_eq!(waits.all(), 0);
    }
}
