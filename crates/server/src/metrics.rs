//! What the service counts, as Prometheus text. No lock name is a label: names have no bound.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
pub(crate) struct Outcome {
    outcome: &'static str,
}

/// All of them. Clones share the counts.
pub(crate) struct Metrics {
    registry: Registry,
    acquires: Family<Outcome, Counter>,
    extends: Family<Outcome, Counter>,
    releases: Family<Outcome, Counter>,
    steals: Counter,
    acquire_seconds: Histogram,
    wait_seconds: Histogram,
    margin_seconds: Histogram,
    hold_seconds: Histogram,
    waiters: Gauge,
}

const SECONDS: [f64; 14] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0,
];

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("fencepost_service");
        let this = Self {
            acquires: Family::default(),
            extends: Family::default(),
            releases: Family::default(),
            steals: Counter::default(),
            acquire_seconds: Histogram::new(SECONDS),
            wait_seconds: Histogram::new(SECONDS),
            margin_seconds: Histogram::new(SECONDS),
            hold_seconds: Histogram::new(SECONDS),
            waiters: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register(
            "acquires",
            "Acquire requests by outcome",
            this.acquires.clone(),
        );
        registry.register(
            "extends",
            "Leases in extend requests by outcome",
            this.extends.clone(),
        );
        registry.register(
            "releases",
            "Release requests by outcome",
            this.releases.clone(),
        );
        registry.register("steals", "Locks stolen by an operator", this.steals.clone());
        registry.register(
            "acquire_seconds",
            "Time of acquire requests that did not ask to wait",
            this.acquire_seconds.clone(),
        );
        registry.register(
            "wait_seconds",
            "Time waited by acquire requests that asked to wait and were served",
            this.wait_seconds.clone(),
        );
        registry.register(
            "renewal_margin_seconds",
            "Validity that was left on the nodes when a lease was extended",
            this.margin_seconds.clone(),
        );
        registry.register(
            "hold_seconds",
            "Time that released leases were held, by their tokens",
            this.hold_seconds.clone(),
        );
        registry.register(
            "waiters",
            "Requests that wait for a lock now",
            this.waiters.clone(),
        );
        Self { registry, ..this }
    }

    pub(crate) fn acquired(&self, outcome: &'static str, took: Duration, waits: bool) {
        self.acquires.get_or_create(&Outcome { outcome }).inc();
        match (waits, outcome) {
            (true, "acquired") => self.wait_seconds.observe(took.as_secs_f64()),
            (true, _) => {}
            (false, _) => self.acquire_seconds.observe(took.as_secs_f64()),
        }
    }

    pub(crate) fn extended(&self, outcome: &'static str, margin: Option<Duration>) {
        self.extends.get_or_create(&Outcome { outcome }).inc();
        if let Some(margin) = margin {
            self.margin_seconds.observe(margin.as_secs_f64());
        }
    }

    pub(crate) fn released(&self, outcome: &'static str, held: Option<Duration>) {
        self.releases.get_or_create(&Outcome { outcome }).inc();
        if let Some(held) = held {
            self.hold_seconds.observe(held.as_secs_f64());
        }
    }

    pub(crate) fn stolen(&self) {
        self.steals.inc();
    }

    pub(crate) fn text(&self, waiters: usize) -> String {
        self.waiters.set(i64::try_from(waiters).unwrap_or(i64::MAX));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
