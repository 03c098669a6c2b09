//! [`Limits`]: how much of everything there may be, each with a name and a default.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;

use crate::problem::{Problem, SOON};

/// The limits of one replica.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// The largest request body, in bytes: 256 KiB.
    pub body_bytes: usize,
    /// The largest head of a request, in bytes: 64 KiB. At least 8 KiB.
    pub header_bytes: usize,
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
    /// The most locks that one principal holds, as far as this replica knows: 100,000.
    pub leases_per_principal: usize,
    /// The most readers of one name, as far as this replica knows: 10,000.
    pub leases_per_name: usize,
    /// The most event streams, and polls for events: 8,192.
    pub streams: usize,
    /// The most connections: 20,000.
    pub connections: usize,
    /// The most connections to the address of the metrics: 16.
    pub metrics_connections: usize,
    /// How long a client may take to send the head of its request, and again for the body: 10 s.
    pub read_timeout: Duration,
    /// How long a connection may be idle between two requests: 75 s.
    pub idle_timeout: Duration,
    /// How long an answer may wait for a client that takes nothing of it: 30 s.
    pub write_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 256 * 1024,
            header_bytes: 64 * 1024,
            batch: 1_000,
            names: 16,
            wait: Duration::from_secs(60),
            waits: 10_000,
            waits_per_principal: 1_000,
            waits_per_name: 10_000,
            leases_per_principal: 100_000,
            leases_per_name: 10_000,
            streams: 8_192,
            connections: 20_000,
            metrics_connections: 16,
            read_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
        }
    }
}

/// The least that hyper takes as `header_bytes`.
const LEAST_HEADER_BYTES: usize = 8 * 1024;

/// Why a limit cannot be set.
#[derive(Debug)]
pub struct LimitError(String);

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LimitError {}

/// One limit, to be set.
enum Slot<'a> {
    Count(&'a mut usize),
    Time(&'a mut Duration),
}

impl Limits {
    /// The names of all of them: what a problem says in its field `limit`.
    pub const NAMES: [&'static str; 16] = [
        "body_bytes",
        "header_bytes",
        "batch",
        "names",
        "wait",
        "waits",
        "waits_per_principal",
        "waits_per_name",
        "leases_per_principal",
        "leases_per_name",
        "streams",
        "connections",
        "metrics_connections",
        "read_timeout",
        "idle_timeout",
        "write_timeout",
    ];

    fn slot(&mut self, name: &str) -> Option<Slot<'_>> {
        Some(match name {
            "body_bytes" => Slot::Count(&mut self.body_bytes),
            "header_bytes" => Slot::Count(&mut self.header_bytes),
            "batch" => Slot::Count(&mut self.batch),
            "names" => Slot::Count(&mut self.names),
            "wait" => Slot::Time(&mut self.wait),
            "waits" => Slot::Count(&mut self.waits),
            "waits_per_principal" => Slot::Count(&mut self.waits_per_principal),
            "waits_per_name" => Slot::Count(&mut self.waits_per_name),
            "leases_per_principal" => Slot::Count(&mut self.leases_per_principal),
            "leases_per_name" => Slot::Count(&mut self.leases_per_name),
            "streams" => Slot::Count(&mut self.streams),
            "connections" => Slot::Count(&mut self.connections),
            "metrics_connections" => Slot::Count(&mut self.metrics_connections),
            "read_timeout" => Slot::Time(&mut self.read_timeout),
            "idle_timeout" => Slot::Time(&mut self.idle_timeout),
            "write_timeout" => Slot::Time(&mut self.write_timeout),
            _ => return None,
        })
    }

    /// Sets one by its name: a number, or a duration like `"10s"`.
    ///
    /// # Errors
    /// [`LimitError`] says whether it is the name or the value that cannot be used.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), LimitError> {
        let fault = |why: String| Err(LimitError(why));
        match self.slot(name) {
            None => {
                let names = Self::NAMES.join(", ");
                return fault(format!(
                    "no limit is called {name:?}; expected one of {names}"
                ));
            }
            Some(Slot::Count(count)) => match value.parse() {
                // More does not fit into a semaphore.
                Ok(number) if number <= tokio::sync::Semaphore::MAX_PERMITS => *count = number,
                _ => return fault(format!("{name}: {value:?} is no number")),
            },
            Some(Slot::Time(time)) => match humantime::parse_duration(value) {
                Ok(duration) if !duration.is_zero() => *time = duration,
                _ => return fault(format!("{name}: {value:?} is no duration like \"10s\"")),
            },
        }
        match self.header_bytes < LEAST_HEADER_BYTES {
            true => fault(format!("header_bytes is at least {LEAST_HEADER_BYTES}")),
            false => Ok(()),
        }
    }
}

/// That a limit was reached: worth asking again, when others have let go.
pub(crate) fn reached(limit: &'static str, why: &str) -> Problem {
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "limit",
        format!("{why} (limit {limit})"),
    )
    .with("limit", limit)
    .retry_after(SOON)
}

/// That a client took longer to send than it may.
pub(crate) fn sent_too_slowly(what: &str, limits: &Limits) -> Problem {
    let most = humantime::format_duration(limits.read_timeout);
    let why = format!("{what} was not sent within {most} (limit read_timeout)");
    Problem::new(StatusCode::REQUEST_TIMEOUT, "limit", why)
        .with("limit", "read_timeout")
        .retry_after(SOON)
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
        names: &[String],
    ) -> Result<WaitGuard, Problem> {
        let mut counts = self.counts();
        let principals = counts.by_principal.get(principal).copied().unwrap_or(0);
        let of_name = |name: &String| counts.by_name.get(name).copied();
        let most_of_name = names.iter().filter_map(of_name).max().unwrap_or(0);
        for (limit, now, most) in [
            ("waits", counts.all, limits.waits),
            (
                "waits_per_principal",
                principals,
                limits.waits_per_principal,
            ),
            ("waits_per_name", most_of_name, limits.waits_per_name),
        ] {
            if now >= most {
                return Err(reached(limit, &format!("{most} requests wait already")));
            }
        }
        counts.all += 1;
        *counts.by_principal.entry(principal.to_owned()).or_default() += 1;
        for name in names {
            *counts.by_name.entry(name.clone()).or_default() += 1;
        }
        drop(counts);
        Ok(WaitGuard {
            waits: self.clone(),
            principal: principal.to_owned(),
            names: names.to_vec(),
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
    names: Vec<String>,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut counts = self.waits.counts();
        counts.all -= 1;
        less(&mut counts.by_principal, &self.principal);
        for name in &self.names {
            less(&mut counts.by_name, name);
        }
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
        let begin = |who: &str, names: &[&str]| {
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            waits.begin(&limits, who, &names)
        };
        let first = begin("a", &["any", "job"]).ok();
        let refused = begin("b", &["job", "other"]).err().expect("full");
        assert_eq!((refused.status.as_u16(), refused.code), (429, "limit"));
        assert!(begin("b", &["other"]).is_ok(), "another name");
        drop(first);
        assert!(begin("b", &["job"]).is_ok());
        assert_eq!(waits.all(), 0);
    }

    #[test]
    fn every_limit_is_set_by_its_name_and_no_other_is() {
        for name in Limits::NAMES {
            let mut limits = Limits::default();
            let value = match limits.slot(name).expect("a limit of that name") {
                Slot::Count(_) => "12345",
                Slot::Time(_) => "12345s",
            };
            limits.set(name, value).expect("it is set");
            let text = format!("{limits:?}");
            assert!(text.contains(&format!("{name}: 12345")), "{text}");
            assert_eq!(text.matches("12345").count(), 1, "{text}");
        }
        let mut limits = Limits::default();
        for (name, value) in [
            ("wiats", "1"),
            ("waits", "-1"),
            ("waits", "10s"),
            ("waits", "18446744073709551615"),
            ("wait", "10"),
            ("read_timeout", "0s"),
            ("header_bytes", "1"),
        ] {
            assert!(limits.set(name, value).is_err(), "{name}={value}");
        }
    }
}
