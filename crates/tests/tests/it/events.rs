//! What logs and metrics tell of a lock's life has the names that `fencepost::events` promises.
//!
//! The listener is global, because tracing caches for all threads at once whether anybody listens. It
//! keeps what is said on the test's own thread, where everything of its client runs; the other tests of
//! this process are not heard.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use fencepost::{Client, LossReason};
use fencepost_tests::{Cluster, wait_until};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

const TTL: Duration = Duration::from_millis(1200);
/// How long the one who waits has to wait.
const PATIENCE: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(10);

/// An event or a span: its level, its name and its fields.
#[derive(Clone, Debug)]
struct Said {
    target: String,
    level: Level,
    name: String,
    fields: BTreeMap<String, String>,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields
            .insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields
            .insert(field.name().to_owned(), value.to_owned());
    }
}

/// Keeps all that is said on one thread.
#[derive(Clone)]
struct Listener {
    thread: ThreadId,
    events: Arc<Mutex<Vec<Said>>>,
    spans: Arc<Mutex<BTreeMap<u64, Said>>>,
    next: Arc<AtomicU64>,
}

impl Listener {
    fn of_this_thread() -> Self {
        Self {
            thread: thread::current().id(),
            events: Arc::default(),
            spans: Arc::default(),
            next: Arc::default(),
        }
    }

    fn said(metadata: &Metadata<'_>) -> Said {
        Said {
            target: metadata.target().to_owned(),
            level: *metadata.level(),
            name: metadata.name().to_owned(),
            fields: BTreeMap::new(),
        }
    }

    /// The first event of that name with these fields among its own.
    fn event(&self, name: &str, fields: &[(&str, &str)]) -> Option<Said> {
        let events = self.events.lock().unwrap();
        events.iter().find(|said| said.is(name, fields)).cloned()
    }

    fn span(&self, name: &str, fields: &[(&str, &str)]) -> Option<Said> {
        let spans = self.spans.lock().unwrap();
        spans.values().find(|said| said.is(name, fields)).cloned()
    }
}

impl Said {
    fn is(&self, name: &str, fields: &[(&str, &str)]) -> bool {
        let has =
            |(field, value): &(&str, &str)| self.fields.get(*field).is_some_and(|own| own == value);
        self.name == name && fields.iter().all(has)
    }
}

impl Subscriber for Listener {
    /// By default, whoever comes to a place first is asked for all threads.
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        thread::current().id() == self.thread && metadata.target().starts_with("fencepost")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let mut said = Self::said(span.metadata());
        span.record(&mut said);
        self.spans.lock().unwrap().insert(id, said);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.spans.lock().unwrap();
        values.record(spans.get_mut(&span.into_u64()).unwrap());
    }

    fn event(&self, event: &Event<'_>) {
        let mut said = Self::said(event.metadata());
        event.record(&mut said);
        said.name = said.fields.remove("message").unwrap_or_default();
        self.events.lock().unwrap().push(said);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// What each metric is said to be.
fn described(snapshotter: &Snapshotter) -> BTreeMap<String, String> {
    let all = snapshotter.snapshot().into_vec().into_iter();
    let all = all.map(|(key, _, what, _)| (key.key().name().to_owned(), what.unwrap_or_default()));
    all.map(|(name, what)| (name, what.to_string())).collect()
}

/// What was counted, as `name{label=value}`.
fn counted(snapshotter: &Snapshotter) -> BTreeMap<String, DebugValue> {
    let all = snapshotter.snapshot().into_vec().into_iter();
    all.map(|(key, _, _, value)| {
        let labels = key.key().labels();
        let labels: Vec<_> = labels
            .map(|l| format!("{}={}", l.key(), l.value()))
            .collect();
        (
            format!("{}{{{}}}", key.key().name(), labels.join(",")),
            value,
        )
    })
    .collect()
}

/// A lock's life: acquired, wanted by another, renewed, waited for by a third, given back; taken again
/// and stolen; taken again and dropped.
async fn live(locks: &Client, job: &str) -> String {
    let lease = locks.lock(job).ttl(TTL).await.unwrap();
    let token = lease.token().to_string();
    assert!(
        locks
            .try_lock(job)
            .ttl(TTL)
            .renew(false)
            .await
            .unwrap_err()
            .is_held()
    );
    // Nothing but time makes a renewal due.
    tokio::time::sleep(TTL / 2).await;
    let next = async { locks.lock(job).ttl(TTL).await.unwrap() };
    let release = async {
        tokio::time::sleep(PATIENCE).await;
        lease.release().await.unwrap();
    };
    let (lease, ()) = tokio::join!(next, release);
    let thief = locks.steal(job, TTL).await.unwrap();
    let why = tokio::time::timeout(SOON, lease.lost()).await.unwrap();
    assert!(matches!(why, LossReason::Stolen { .. }));
    assert!(lease.release().await.unwrap_err().is_lost());
    drop(thief);
    token
}

#[tokio::test]
async fn logs_tell_a_locks_life_in_the_promised_words() {
    let listener = Listener::of_this_thread();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let mut cluster = Cluster::start(1);
    let locks = cluster.builder().owner("me").connect().await.unwrap();
    let token = live(&locks, "logged").await;
    cluster.servers[0].kill();
    let url = cluster.servers[0].url();
    let node = &[("node", &*url)];
    let gone = || listener.event("cannot be used", node).is_some();
    wait_until("the node is known to be away", SOON, gone).await;

    let lock = &[("lock", "logged")];
    let not_renewed = &[
        ("lock", "logged"),
        ("reason", "lost"),
        ("detail", "me acquired it"),
    ];
    let held = &[("lock", "logged"), ("reason", "held")];
    let stolen = &[
        ("lock", "logged"),
        ("reason", "stolen"),
        ("detail", "me acquired it"),
    ];
    let lock_and_token = &[("lock", "logged"), ("token", &*token)];
    for (name, level, fields) in [
        ("acquired", Level::DEBUG, &lock_and_token[..]),
        ("contended", Level::DEBUG, held),
        ("renewed", Level::TRACE, lock_and_token),
        ("released", Level::DEBUG, lock_and_token),
        ("lost", Level::WARN, stolen),
        ("not renewed", Level::WARN, not_renewed),
        ("not released", Level::DEBUG, lock),
        ("dropped", Level::DEBUG, lock),
        ("connected", Level::DEBUG, node),
        ("connection lost", Level::DEBUG, node),
        ("cannot be used", Level::WARN, node),
    ] {
        let said = listener.event(name, fields);
        let said = said.unwrap_or_else(|| panic!("no {name} with {fields:?}"));
        assert_eq!(said.level, level, "{said:?}");
        assert!(said.target.starts_with("fencepost"), "{said:?}");
        let of_a_lock = fields[0].0 == "lock" && name != "contended";
        assert!(!of_a_lock || said.fields.contains_key("token"), "{said:?}");
    }
    for (name, level) in [
        ("acquire", Level::DEBUG),
        ("renew", Level::TRACE),
        ("release", Level::DEBUG),
    ] {
        let said = listener.span(name, lock_and_token);
        let said = said.unwrap_or_else(|| panic!("no span {name}"));
        assert_eq!((said.level, &*said.target), (level, "fencepost"));
    }
}

#[tokio::test]
async fn metrics_count_a_locks_life_under_the_promised_names() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let mut cluster = Cluster::start(1);
    let locks = cluster.client().await;
    let begin = Instant::now();
    live(&locks, "counted").await;
    let lifetime = begin.elapsed().as_secs_f64();
    let up = format!("fencepost_node_up{{node={}}}", cluster.servers[0].url());
    let first = counted(&snapshotter);
    assert_eq!(first[&up], DebugValue::Gauge(1.0.into()));
    for (name, count) in [
        ("fencepost_acquired_total{}", 3),
        // One at once, and the first attempt of the one who waited.
        ("fencepost_contended_total{reason=held}", 2),
        ("fencepost_lost_total{reason=stolen}", 1),
        ("fencepost_renewals_total{outcome=failed}", 1),
        ("fencepost_renewal_failures_total{reason=lost}", 1),
    ] {
        assert_eq!(
            first.get(name),
            Some(&DebugValue::Counter(count)),
            "{name} in {first:?}"
        );
    }
    let DebugValue::Counter(renewals) = first["fencepost_renewals_total{outcome=ok}"] else {
        panic!("{first:?}");
    };
    // Once every third of the TTL, in the first and in the second life.
    let most = (lifetime / (TTL / 3).as_secs_f64()).ceil() as u64;
    assert!((1..=most).contains(&renewals), "{renewals} of {most}");
    for (name, count) in [
        ("fencepost_acquire_seconds{}", 3),
        ("fencepost_wait_seconds{}", 1),
        ("fencepost_held_seconds{}", 3),
        ("fencepost_renew_seconds{}", renewals as usize + 1),
        ("fencepost_release_seconds{}", 2),
    ] {
        let Some(DebugValue::Histogram(samples)) = first.get(name) else {
            panic!("{name} in {first:?}");
        };
        assert_eq!(samples.len(), count, "{name}");
        let plausible = |took: f64| took > 0.0 && took < lifetime;
        assert!(
            samples.iter().all(|took| plausible(took.into_inner())),
            "{samples:?}"
        );
    }
    let Some(DebugValue::Histogram(waited)) = first.get("fencepost_wait_seconds{}") else {
        panic!("{first:?}");
    };
    // Its first attempt, before it waits, takes its part of that time.
    let least = PATIENCE.as_secs_f64() / 2.0;
    assert!(waited[0].into_inner() >= least, "{waited:?}");
    assert_eq!(first["fencepost_waiting{}"], DebugValue::Gauge(0.0.into()));
    for (name, what) in described(&snapshotter) {
        assert!(what.len() > 10, "{name} is described as {what:?}");
    }
    cluster.servers[0].kill();
    let down = || counted(&snapshotter).get(&up) == Some(&DebugValue::Gauge(0.0.into()));
    wait_until("the gauge falls", SOON, down).await;
    assert!(
        locks
            .try_lock("job")
            .ttl(TTL)
            .renew(false)
            .await
            .unwrap_err()
            .is_no_quorum()
    );
    let last = counted(&snapshotter);
    let no_quorum = last.get("fencepost_contended_total{reason=no_quorum}");
    assert_eq!(no_quorum, Some(&DebugValue::Counter(1)));
}
