//! What the service counts, as Prometheus text. No lock name is a label: names have no bound.
//!
//! What the library counts, and whether nodes answer, is asked for when somebody looks ([`Nodes`]).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencepost::Client;
use fencepost::internals::Replica as _;
use fencepost::leased::NodeVotes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::spans::SpanCounts;
use crate::trace;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Node {
    node: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Vote {
    node: String,
    vote: &'static str,
}

/// All of them.
pub(crate) struct Metrics {
    registry: Registry,
    acquires: Family<Outcome, Counter>,
    extends: Family<Outcome, Counter>,
    releases: Family<Outcome, Counter>,
    lost: Family<Reason, Counter>,
    steals: Counter,
    spans: SpanCounts,
    acquire_seconds: Histogram,
    wait_seconds: Histogram,
    margin_seconds: Histogram,
    hold_seconds: Histogram,
    waiters: Gauge,
    leases: Gauge,
    nodes: Arc<Nodes>,
    /// Locked while a text is written: what is known of the nodes is for one who looks.
    writes: Mutex<()>,
}

/// What is gauged only when somebody looks.
pub(crate) struct Now {
    pub(crate) waiters: usize,
    pub(crate) leases: usize,
    /// Whether each node answers.
    pub(crate) up: Vec<(String, bool)>,
    /// Whether who looks may see their addresses.
    pub(crate) sees_nodes: bool,
}

const SECONDS: [f64; 14] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0,
];

impl Metrics {
    pub(crate) fn new(client: Client) -> Self {
        let mut registry = Registry::with_prefix("fencepost_service");
        let this = Self {
            acquires: Family::default(),
            extends: Family::default(),
            releases: Family::default(),
            lost: Family::default(),
            steals: Counter::default(),
            spans: SpanCounts::default(),
            acquire_seconds: Histogram::new(SECONDS),
            wait_seconds: Histogram::new(SECONDS),
            margin_seconds: Histogram::new(SECONDS),
            hold_seconds: Histogram::new(SECONDS),
            waiters: Gauge::default(),
            leases: Gauge::default(),
            nodes: Arc::new(Nodes {
                client,
                seen: Mutex::default(),
            }),
            writes: Mutex::default(),
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
        registry.register(
            "lost",
            "Leases whose client was told that they are over, by reason",
            this.lost.clone(),
        );
        registry.register("steals", "Locks stolen by an operator", this.steals.clone());
        registry.register(
            "spans",
            "Spans of requests by what became of them: exported, dropped by a full queue, or failed at the collector",
            this.spans.0.clone(),
        );
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
        registry.register(
            "leases",
            "Locks that this replica granted or extended last, and that are held as far as it knows",
            this.leases.clone(),
        );
        registry.register_collector(Box::new(Arc::clone(&this.nodes)));
        // So that the first loss is a rise, which an alert sees, and not the beginning of a series.
        for outcome in ["exported", "dropped", "failed"] {
            this.spans.add(outcome, 0);
        }
        for reason in ["expired", "stolen", "max_hold", "unknown"] {
            drop(this.lost.get_or_create(&Reason { reason }));
        }
        Self { registry, ..this }
    }

    pub(crate) fn spans(&self) -> SpanCounts {
        self.spans.clone()
    }

    pub(crate) fn acquired(&self, outcome: &'static str, took: Duration, waits: bool) {
        trace::outcome(outcome);
        self.acquires.get_or_create(&Outcome { outcome }).inc();
        match (waits, outcome) {
            (true, "acquired") => self.wait_seconds.observe(took.as_secs_f64()),
            (true, _) => {}
            (false, _) => self.acquire_seconds.observe(took.as_secs_f64()),
        }
    }

    pub(crate) fn extended(&self, outcome: &'static str, margin: Option<Duration>) {
        trace::outcome(outcome);
        self.extends.get_or_create(&Outcome { outcome }).inc();
        if let Some(margin) = margin {
            self.margin_seconds.observe(margin.as_secs_f64());
        }
    }

    pub(crate) fn released(&self, outcome: &'static str, held: Option<Duration>) {
        trace::outcome(outcome);
        self.releases.get_or_create(&Outcome { outcome }).inc();
        if let Some(held) = held {
            self.hold_seconds.observe(held.as_secs_f64());
        }
    }

    pub(crate) fn lost(&self, reason: &'static str) {
        self.lost.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn stolen(&self) {
        trace::outcome("stolen");
        self.steals.inc();
    }

    pub(crate) fn text(&self, now: Now) -> String {
        let gauged = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.waiters.set(gauged(now.waiters));
        self.leases.set(gauged(now.leases));
        let _writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        *self.nodes.seen() = Seen {
            up: now.up,
            sees_nodes: now.sees_nodes,
        };
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// What is known of the nodes.
struct Nodes {
    client: Client,
    seen: Mutex<Seen>,
}

#[derive(Clone, Default)]
struct Seen {
    up: Vec<(String, bool)>,
    sees_nodes: bool,
}

impl Seen {
    /// What the node is called at that place: by its number for who may not see its address.
    fn label(&self, place: usize, address: &str) -> String {
        match self.sees_nodes {
            true => address.to_owned(),
            false => (place + 1).to_string(),
        }
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").finish_non_exhaustive()
    }
}

impl Nodes {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        // A panic while it was locked cannot have left it half changed.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for Nodes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let seen = self.seen().clone();
        let up = &seen.up;
        let mut gauges = encoder.encode_descriptor(
            "node_up",
            "Whether the node answered when this was asked for: 1 or 0",
            None,
            MetricType::Gauge,
        )?;
        for (place, (node, is_up)) in up.iter().enumerate() {
            let node = seen.label(place, node);
            let labels = Node { node };
            let gauge = ConstGauge::new(i64::from(*is_up));
            gauge.encode(gauges.encode_family(&labels)?)?;
        }
        let answering = up.iter().filter(|(_, is_up)| *is_up).count();
        let beyond = answering as i64 - (up.len() / 2 + 1) as i64;
        let gauge = encoder.encode_descriptor(
            "votes_beyond_quorum",
            "Nodes that answered beyond the quorum: so many may fail. Negative without a quorum",
            None,
            MetricType::Gauge,
        )?;
        ConstGauge::new(beyond).encode(gauge)?;
        let votes = self.client.votes();
        let mut counters = encoder.encode_descriptor(
            "node_votes",
            "Votes of the node on acquires and extensions: granted, refused or failed",
            None,
            MetricType::Counter,
        )?;
        for (place, of_node) in votes.iter().enumerate() {
            for (vote, count) in [
                ("granted", of_node.granted),
                ("refused", of_node.refused),
                ("failed", of_node.failed),
            ] {
                let node = seen.label(place, &of_node.node);
                let labels = Vote { node, vote };
                ConstCounter::new(count).encode(counters.encode_family(&labels)?)?;
            }
        }
        let mut histograms = encoder.encode_descriptor(
            "node_round_trip_seconds",
            "Time from asking the node for its vote to its answer",
            None,
            MetricType::Histogram,
        )?;
        for (place, of_node) in votes.iter().enumerate() {
            let node = seen.label(place, &of_node.node);
            let labels = Node { node };
            let (count, buckets) = buckets(of_node);
            let sum = of_node.answering.as_secs_f64();
            histograms
                .encode_family(&labels)?
                .encode_histogram::<prometheus_client::encoding::NoLabelSet>(
                    sum, count, &buckets, None,
                )?;
        }
        Ok(())
    }
}

fn buckets(of_node: &NodeVotes) -> (u64, Vec<(f64, u64)>) {
    let each = of_node.round_trips.iter();
    let bound = |bound: Option<Duration>| bound.map_or(f64::MAX, |bound| bound.as_secs_f64());
    let buckets = each.map(|(end, count)| (bound(*end), *count)).collect();
    let count = of_node.round_trips.iter().map(|(_, count)| count).sum();
    (count, buckets)
}
