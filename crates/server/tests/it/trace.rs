//! A request that belongs to a trace is answered in a span that says so, and so is what is logged of it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use fencepost::Client;
use fencepost_server::Options;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

use crate::service::Replica;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// The fields of spans and events, as text.
type Fields = BTreeMap<String, String>;

#[derive(Default)]
struct Seen {
    /// Of requests only.
    spans: Vec<Fields>,
    /// Of the audit only, with the number of the span in which each happened.
    events: Vec<(Fields, Option<u64>)>,
    /// The spans that are entered now: there is one thread.
    entered: Vec<u64>,
}

/// Keeps what the thread of a replica traces.
#[derive(Clone, Default)]
struct Traces(Arc<Mutex<Seen>>);

struct Text<'a>(&'a mut Fields);

impl Visit for Text<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Subscriber for Traces {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        (metadata.is_span() && target.starts_with("fencepost_server"))
            || target == "fencepost::audit"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = self.0.lock().unwrap();
        let mut fields = Fields::new();
        span.record(&mut Text(&mut fields));
        seen.spans.push(fields);
        Id::from_u64(seen.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut seen = self.0.lock().unwrap();
        let which = span.into_u64() as usize - 1;
        values.record(&mut Text(&mut seen.spans[which]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Text(&mut fields));
        let mut seen = self.0.lock().unwrap();
        let within = seen.entered.last().copied();
        seen.events.push((fields, within));
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().unwrap().entered.pop();
    }
}

/// While there is one subscriber, `tracing` asks only that of the thread which reaches a place first whether anybody
/// listens there, and in a thread of another test nobody does. So there are more.
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| {
    [
        Dispatch::new(Traces::default()),
        Dispatch::new(Traces::default()),
    ]
});

impl Traces {
    /// A replica whose thread is traced.
    fn replica(&self) -> Replica {
        let traces = self.clone();
        LazyLock::force(&OTHERS);
        Replica::start(Options::new(), async move || {
            // For as long as the thread lives.
            std::mem::forget(tracing::subscriber::set_default(traces));
            Client::memory().unwrap()
        })
    }

    /// The span of the request of that id, which has been answered.
    fn span(&self, request_id: &str) -> Fields {
        let seen = self.0.lock().unwrap();
        let mut spans = seen.spans.iter();
        let span = spans.find(|span| span["request_id"] == request_id);
        span.unwrap_or_else(|| panic!("no {request_id} in {:?}", seen.spans))
            .clone()
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn a_request_goes_on_with_the_trace_of_its_client() {
    let traces = Traces::default();
    let service = traces.replica();
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let post = |path: &str, id: &str, body: serde_json::Value| {
        let headers = [JSON, ("traceparent", &*parent), ("x-request-id", id)];
        service.send("POST", path, &headers, &body.to_string())
    };
    assert_eq!(
        post("/v1/acquire", "one", json!({ "name": "job" })).status,
        200
    );
    post("/v1/acquire", "two", json!({ "name": "job" })).is_problem(409, "held");
    let steal = json!({ "name": "job", "reason": "stuck" });
    assert_eq!(post("/v1/steal", "three", steal).status, 200);
    for (id, path, status) in [
        ("one", "/v1/acquire", "200"),
        ("two", "/v1/acquire", "409"),
        ("three", "/v1/steal", "200"),
    ] {
        let span = traces.span(id);
        assert_eq!(
            (&*span["trace_id"], &*span["parent_id"]),
            (TRACE, PARENT),
            "{span:?}"
        );
        assert_eq!(
            (&*span["path"], &*span["status"]),
            (path, status),
            "{span:?}"
        );
        assert_eq!(span["method"], "POST");
    }
    let seen = traces.0.lock().unwrap();
    let [(audit, Some(within))] = &seen.events[..] else {
        panic!("{:?}", seen.events);
    };
    assert_eq!((&*audit["reason"], &*audit["message"]), ("stuck", "stolen"));
    assert_eq!(seen.spans[*within as usize - 1]["request_id"], "three");
    // A log that shows no spans has them all the same.
    assert!(audit["trace_id"].contains(TRACE), "{audit:?}");
    assert!(audit["request_id"].contains("three"), "{audit:?}");
}

#[test]
fn a_trace_that_is_malformed_is_ignored() {
    let traces = Traces::default();
    let service = traces.replica();
    let long = format!("00-{TRACE}-{PARENT}-01-more");
    let upper = format!("00-{}-{PARENT}-01", TRACE.to_uppercase());
    let zero = format!("00-{}-{PARENT}-01", "0".repeat(32));
    let unknown = format!("ff-{TRACE}-{PARENT}-01");
    let bad = ["00", "\u{e9}", " ", &long, &upper, &zero, &unknown];
    for (number, bad) in bad.into_iter().enumerate() {
        let id = format!("request-{number}");
        let headers = [JSON, ("traceparent", bad), ("x-request-id", &id)];
        let body = json!({ "name": format!("job/{number}") }).to_string();
        let granted = service.send("POST", "/v1/acquire", &headers, &body);
        assert_eq!(granted.status, 200, "{bad:?}: {granted:?}");
        let span = traces.span(&id);
        assert_eq!(
            (&*span["trace_id"], &*span["parent_id"]),
            ("", ""),
            "{bad:?}: {span:?}"
        );
    }
    assert!(!traces.0.lock().unwrap().spans.is_empty());
}
