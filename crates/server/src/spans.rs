//! [`Spans`]: the span of each request, sent to a collector by OTLP over HTTP, in batches. [`Otlp`]: which collector.
//!
//! By hand, in the protocol's JSON: a batch is one POST, and hyper and serde_json are here already. `opentelemetry-otlp` with
//! `tracing-opentelemetry` (HTTP, JSON, hyper) would bring 17 crates that nothing else here needs and 90 s of compiling,
//! for one kind of span, and would take the place of the program's own subscriber. There is no retry: a batch that the collector does not take is counted and
//! gone. No request waits for any of it.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::extract::Request;
use axum::http::{Method, StatusCode, Uri, header};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::operations::ROUTES;
use crate::peers::exchange;
use crate::traceparent::{TraceParent, traceparent};

/// The most spans that wait to be sent. Those beyond it are dropped, and counted.
const MOST_QUEUED: usize = 4096;
/// The most spans of one batch.
const MOST_IN_BATCH: usize = 512;
/// How long a batch is gathered.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take for a batch.
const LIMIT: Duration = Duration::from_secs(5);
/// How long a replica that stops goes on sending what is queued.
const FLUSH: Duration = Duration::from_secs(3);
/// How often it is logged that the collector takes nothing.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);
/// Where a collector takes spans, behind its base address.
const PATH: &str = "/v1/traces";

/// Where spans are sent, by OTLP over plain HTTP, and as whose.
#[derive(Clone, Debug)]
pub struct Otlp {
    authority: String,
    host: String,
    port: u16,
    path: String,
    service: String,
}

/// What is wrong with the address of a collector.
#[derive(Debug)]
pub struct OtlpError(String);

impl fmt::Display for OtlpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OtlpError {}

impl Otlp {
    /// The collector at that base address, `http://host:4318`: spans go to `/v1/traces` behind it.
    ///
    /// # Errors
    /// [`OtlpError`] if it is not such an address.
    pub fn at(base: &str) -> Result<Self, OtlpError> {
        let mut this = Self::at_exactly(base)?;
        let path = this.path.trim_end_matches('/');
        this.path = format!("{path}{PATH}");
        Ok(this)
    }

    /// The collector that takes spans at exactly that address.
    ///
    /// # Errors
    /// [`OtlpError`] if it is not an address of plain HTTP.
    pub fn at_exactly(url: &str) -> Result<Self, OtlpError> {
        // It may have a password in it, and goes to a terminal.
        let fault = |why: &str| OtlpError(format!("{why}; expected http://HOST:PORT"));
        let uri: Uri = url.parse().map_err(|_| fault("not a URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                let why = "spans are sent by plain HTTP only: run a collector beside the replica";
                return Err(fault(why));
            }
            _ => return Err(fault("not a URL of HTTP")),
        }
        let authority = uri.authority().ok_or_else(|| fault("no host"))?;
        if authority.as_str().contains('@') {
            return Err(fault("a user or a password in the URL is not supported"));
        }
        if uri.query().is_some() || url.contains('#') {
            return Err(fault("a query or a fragment is not supported"));
        }
        let host = authority.host().trim_matches(['[', ']']);
        // What is no number behind the colon would be taken for the default.
        let port = match authority.as_str().rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => port.parse().ok().filter(|port| *port > 0),
            _ => Some(80),
        };
        let port = port.ok_or_else(|| fault("not a port"))?;
        if host.is_empty() {
            return Err(fault("no host"));
        }
        Ok(Self {
            authority: authority.to_string(),
            host: host.to_owned(),
            port,
            path: uri.path().to_owned(),
            service: "fencepost".to_owned(),
        })
    }

    /// Under this name (`service.name`), `fencepost` by default.
    #[must_use]
    pub fn service_name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.service);
        self
    }
}

/// How many spans were exported, and how many were not.
#[derive(Clone, Default)]
pub(crate) struct SpanCounts(pub(crate) Family<SpanOutcome, Counter>);

/// What became of a span.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct SpanOutcome {
    outcome: &'static str,
}

impl SpanCounts {
    pub(crate) fn add(&self, outcome: &'static str, spans: u64) {
        self.0.get_or_create(&SpanOutcome { outcome }).inc_by(spans);
    }

    /// The collector took them.
    fn exported(&self, spans: u64) {
        self.add("exported", spans);
    }

    /// The queue was full.
    fn dropped(&self, spans: u64) {
        self.add("dropped", spans);
    }

    /// The collector did not take them.
    fn failed(&self, spans: u64) {
        self.add("failed", spans);
    }
}

/// What ended, to be sent.
struct Span {
    trace: String,
    id: u64,
    parent: Option<String>,
    method: &'static str,
    route: Option<&'static str>,
    request: String,
    begun: SystemTime,
    ended: SystemTime,
    /// None if its client went away before.
    status: Option<StatusCode>,
    outcome: &'static str,
}

/// Takes the spans of requests. Clones share the queue.
#[derive(Clone)]
pub(crate) struct Spans {
    queue: mpsc::Sender<Span>,
    counts: SpanCounts,
}

/// A request under way. Dropped, its span ends.
pub(crate) struct UnderWay {
    spans: Spans,
    span: Option<Span>,
    outcome: Outcome,
}

/// What came of a request, in one word. The first one counts, and what was extended gives way to what was not.
#[derive(Clone, Default)]
pub(crate) struct Outcome(Arc<Mutex<&'static str>>);

impl Outcome {
    pub(crate) fn is(&self, word: &'static str) {
        // A panic while it was locked cannot have left it half changed.
        let mut outcome = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*outcome, "" | "extended") {
            *outcome = word;
        }
    }

    fn word(&self) -> &'static str {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spans {
    /// Begins the span of a request; none for one whose trace is not sampled, and for probes that belong to none.
    pub(crate) fn begin(&self, request: &Request, id: &str) -> Option<UnderWay> {
        let parent = traceparent(request.headers());
        let route = route(request.uri().path());
        let is_probe = matches!(route, Some("/livez" | "/readyz" | "/metrics"));
        if !parent.as_ref().map_or(!is_probe, |parent| parent.sampled) {
            return None;
        }
        let (trace, parent) = match parent {
            Some(TraceParent { trace, span, .. }) => (trace, Some(span)),
            None => (format!("{:016x}{:016x}", drawn(), drawn()), None),
        };
        let now = SystemTime::now();
        Some(UnderWay {
            spans: self.clone(),
            span: Some(Span {
                trace,
                id: drawn(),
                parent,
                method: known(request.method()),
                route,
                request: id.to_owned(),
                begun: now,
                ended: now,
                status: None,
                outcome: "",
            }),
            outcome: Outcome::default(),
        })
    }
}

impl UnderWay {
    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome.clone()
    }

    pub(crate) fn answered(mut self, status: StatusCode) {
        if let Some(span) = &mut self.span {
            span.status = Some(status);
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(mut span) = self.span.take() else {
            return;
        };
        span.ended = SystemTime::now();
        span.outcome = match (self.outcome.word(), span.status) {
            (_, None) => "cancelled",
            ("", Some(status)) if status.is_success() => "ok",
            ("", Some(_)) => "error",
            (word, Some(_)) => word,
        };
        if self.spans.queue.try_send(span).is_err() {
            self.spans.counts.dropped(1);
        }
    }
}

/// An id that is random enough, without a system call: nobody's secret, and never 0.
fn drawn() -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    KEY.hash_one(NEXT.fetch_add(1, Ordering::Relaxed)).max(1)
}

/// Paths of operations have no names of locks in them; what else is asked for is not told.
fn route(path: &str) -> Option<&'static str> {
    let known = ROUTES.iter().map(|route| route.path).find(|it| *it == path);
    known.or_else(|| path.starts_with("/ui").then_some("/ui"))
}

/// Any other one is a client's own word, of which there is no end.
fn known(method: &Method) -> &'static str {
    let all = ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"];
    let known = all.into_iter().find(|it| *it == method.as_str());
    known.unwrap_or("_OTHER")
}

impl Span {
    fn json(&self) -> Value {
        let nanos = |at: SystemTime| {
            let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            since.as_nanos().to_string()
        };
        let text =
            |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
        let mut attributes = vec![
            text("http.request.method", self.method),
            text("fencepost.outcome", self.outcome),
            text("fencepost.request_id", &self.request),
        ];
        if let Some(route) = self.route {
            attributes.push(text("http.route", route));
        }
        if let Some(status) = self.status {
            // Numbers of 64 bits are text in this JSON.
            let value = json!({ "intValue": status.as_u16().to_string() });
            attributes.push(json!({ "key": "http.response.status_code", "value": value }));
        }
        let is_error = self.status.is_some_and(|status| status.is_server_error());
        let mut span = json!({
            "traceId": self.trace,
            "spanId": format!("{:016x}", self.id),
            "name": self.route.map_or(self.method.to_owned(), |it| format!("{} {it}", self.method)),
            // A server's.
            "kind": 2,
            "startTimeUnixNano": nanos(self.begun),
            "endTimeUnixNano": nanos(self.ended.max(self.begun)),
            "attributes": attributes,
            "status": if is_error { json!({ "code": 2 }) } else { json!({}) },
        });
        if let Some(parent) = &self.parent {
            span["parentSpanId"] = json!(parent);
        }
        span
    }
}

/// Sends what is queued.
struct Exporter {
    to: Otlp,
    queue: mpsc::Receiver<Span>,
    counts: SpanCounts,
    complained: Option<Instant>,
}

/// Spans are sent for as long as it is there.
pub(crate) struct Exporting {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// Begins to send spans there.
pub(crate) fn export(to: Otlp, counts: SpanCounts) -> (Spans, Exporting) {
    let (queue, queued) = mpsc::channel(MOST_QUEUED);
    let (stop, stopped) = oneshot::channel();
    let exporter = Exporter {
        to,
        queue: queued,
        counts: counts.clone(),
        complained: None,
    };
    let task = tokio::spawn(exporter.run(stopped));
    (Spans { queue, counts }, Exporting { stop, task })
}

impl Exporting {
    /// Sends what is queued, as far as there is time.
    pub(crate) async fn flush(mut self) {
        let _ = self.stop.send(());
        if timeout(FLUSH, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Exporter {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut is_last = false;
        while !is_last || !self.queue.is_empty() {
            let mut batch = Vec::new();
            let mut end = None;
            while !is_last && batch.len() < MOST_IN_BATCH {
                let room = MOST_IN_BATCH - batch.len();
                tokio::select! {
                    biased;
                    _ = &mut stopped => is_last = true,
                    () = sleep_until(end.unwrap_or_else(Instant::now)), if end.is_some() => break,
                    _ = self.queue.recv_many(&mut batch, room) => {
                        end.get_or_insert_with(|| Instant::now() + GATHER);
                    }
                }
            }
            if is_last {
                // What is begun from here on is not waited for.
                self.queue.close();
            }
            while batch.len() < MOST_IN_BATCH
                && let Ok(span) = self.queue.try_recv()
            {
                batch.push(span);
            }
            if !batch.is_empty() {
                self.send(&batch).await;
            }
        }
    }

    async fn send(&mut self, batch: &[Span]) {
        let sent = timeout(LIMIT, self.post(batch)).await;
        let late = || Err(format!("no answer within {} s", LIMIT.as_secs()));
        let spans = batch.len() as u64;
        match sent.unwrap_or_else(|_| late()) {
            Ok(refused) => {
                self.counts.exported(spans.saturating_sub(refused));
                self.counts.failed(refused.min(spans));
            }
            Err(why) => {
                self.counts.failed(spans);
                let now = Instant::now();
                let is_due = |last: Instant| now - last >= COMPLAIN_EVERY;
                if self.complained.is_none_or(is_due) {
                    self.complained = Some(now);
                    let collector = &self.to.authority;
                    tracing::warn!(%collector, %why, "the collector takes no spans");
                }
            }
        }
    }

    /// Sends them in one request: how many of them the collector refused.
    async fn post(&self, batch: &[Span]) -> Result<u64, String> {
        let version = env!("CARGO_PKG_VERSION");
        let text =
            |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
        let spans: Vec<Value> = batch.iter().map(Span::json).collect();
        let body = json!({ "resourceSpans": [{
            "resource": { "attributes": [
                text("service.name", &self.to.service),
                text("service.version", version),
            ] },
            "scopeSpans": [{
                "scope": { "name": "fencepost-server", "version": version },
                "spans": spans,
            }],
        }] });
        let request = Request::post(&self.to.path)
            .header(header::HOST, &self.to.authority)
            .header(header::CONTENT_TYPE, "application/json");
        let request = request.body(body.to_string());
        let request = request.map_err(|error| error.to_string())?;
        let stream = TcpStream::connect((self.to.host.as_str(), self.to.port));
        let stream = stream.await.map_err(|error| error.to_string())?;
        let (status, answer) = exchange(stream, request).await?;
        if !status.is_success() {
            return Err(format!("it answered {status}"));
        }
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let refused = &answer["partialSuccess"]["rejectedSpans"];
        let text = refused.as_str().and_then(|refused| refused.parse().ok());
        Ok(text.or(refused.as_u64()).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_is_a_url_of_plain_http() {
        let good = |url: &str| {
            let it = Otlp::at(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            (it.host, it.port, it.path)
        };
        let path = || "/v1/traces".to_owned();
        assert_eq!(good("http://c:4318"), ("c".into(), 4318, path()));
        assert_eq!(good("http://c:4318/"), ("c".into(), 4318, path()));
        assert_eq!(good("http://[::1]"), ("::1".into(), 80, path()));
        assert_eq!(good("http://[::1]:9/a/").2, "/a/v1/traces");
        let exactly = Otlp::at_exactly("http://c:1/spans").expect("good");
        assert_eq!(exactly.path, "/spans");
        for bad in [
            "",
            "c:4318",
            "http://",
            "http://:4318",
            "https://c:4318",
            "grpc://c:4317",
            "file:///etc/passwd",
            "http://me:secret@c:4318",
            "http://c:99999",
            "http://c:0",
            "http://c:4318/?a=b",
            "http://c:4318/#a",
            "http://c:4318/a b",
            "http://c\r\nx: y:4318",
        ] {
            let refused = Otlp::at(bad).err().map(|error| error.to_string());
            let why = refused.unwrap_or_else(|| panic!("{bad:?} is taken"));
            assert!(!why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn ids_differ_and_are_not_zero() {
        let ids: std::collections::HashSet<u64> = (0..1000).map(|_| drawn()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(!ids.contains(&0));
    }

    #[test]
    fn no_path_but_that_of_an_operation_is_told() {
        assert_eq!(route("/v1/acquire"), Some("/v1/acquire"));
        assert_eq!(route("/ui/app.js"), Some("/ui"));
        assert_eq!(route("/v1/locks/secret-name"), None);
    }
}
