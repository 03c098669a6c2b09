//! Spans are sent to a collector by OTLP over HTTP, and no client notices whether it takes them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fencepost_server::{Options, Otlp};
use serde_json::{Value, json};

use crate::service::Replica;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";
const LONG: Duration = Duration::from_secs(20);

/// What a collector does with what it is sent.
#[derive(Clone, Copy)]
enum Manner {
    /// It answers this.
    Answers(&'static str),
    /// It reads, and never answers.
    Hangs,
}

/// Listens like a collector, and keeps what it is sent: the path and the body of each POST.
#[derive(Clone)]
struct Collector {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<(String, String)>>>,
}

impl Collector {
    fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let this = Self {
            address: listener.local_addr().unwrap(),
            posts: Arc::default(),
        };
        let collector = this.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let collector = collector.clone();
                std::thread::spawn(move || collector.take(stream.unwrap(), manner));
            }
        });
        this
    }

    fn take(&self, mut stream: TcpStream, manner: Manner) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut first, mut length, mut is_json) = (String::new(), 0, false);
        reader.read_line(&mut first).unwrap();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            match line.split_once(": ") {
                None => break,
                Some(("content-length", bytes)) => length = bytes.parse().unwrap(),
                Some(("content-type", kind)) => is_json = kind == "application/json",
                Some(_) => {}
            }
        }
        assert!(is_json, "{first}");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let body = String::from_utf8(body).unwrap();
        self.posts.lock().unwrap().push((first, body));
        match manner {
            Manner::Answers(status) => {
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                );
                let _ = stream.write_all(answer.as_bytes());
            }
            // Until the other side has had enough.
            Manner::Hangs => drop(reader.read(&mut [0])),
        }
    }

    fn options(&self) -> Options {
        let mut options = Options::new();
        let otlp = Otlp::at(&format!("http://{}", self.address)).unwrap();
        options.otlp = Some(otlp.service_name("locks"));
        options
    }

    fn posts(&self) -> Vec<(String, String)> {
        self.posts.lock().unwrap().clone()
    }

    fn spans(&self) -> Vec<Value> {
        let bodies = self.posts().into_iter().map(|(_, body)| body);
        let spans = bodies.map(|body| {
            let body: Value = serde_json::from_str(&body).unwrap();
            let resource = &body["resourceSpans"][0];
            let service = &resource["resource"]["attributes"][0];
            assert_eq!(service["key"], "service.name");
            assert_eq!(service["value"]["stringValue"], "locks");
            resource["scopeSpans"][0]["spans"]
                .as_array()
                .unwrap()
                .clone()
        });
        spans.flatten().collect()
    }

    fn span(&self, request_id: &str) -> Option<Value> {
        let mut spans = self.spans().into_iter();
        spans.find(|span| attribute(span, "fencepost.request_id") == request_id)
    }
}

fn attribute(span: &Value, key: &str) -> String {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|it| it["key"] == key);
    let value = found.map(|it| &it["value"]);
    let text = value.and_then(|it| it["stringValue"].as_str().or(it["intValue"].as_str()));
    text.unwrap_or_default().to_owned()
}

const JSON: (&str, &str) = ("content-type", "application/json");

fn post(replica: &Replica, path: &str, id: &str, parent: &str, body: &Value) -> u16 {
    let headers = [JSON, ("traceparent", parent), ("x-request-id", id)];
    let headers = match parent {
        "" => &[headers[0], headers[2]][..],
        _ => &headers[..],
    };
    replica
        .send("POST", path, headers, &body.to_string())
        .status
}

/// The number behind a metric's name.
fn count(replica: &Replica, outcome: &str) -> u64 {
    let text = replica.get("/metrics").text;
    let name = format!("fencepost_service_spans_total{{outcome=\"{outcome}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&name));
    value.map_or(0, |value| value.parse().unwrap())
}

#[test]
fn the_span_of_a_request_continues_the_trace_of_its_client() {
    let collector = Collector::start(Manner::Answers("200 OK"));
    let replica = Replica::in_memory(collector.options());
    let sampled = format!("00-{TRACE}-{PARENT}-01");
    let job = json!({ "name": "secret/job" });
    assert_eq!(post(&replica, "/v1/acquire", "one", &sampled, &job), 200);
    assert_eq!(post(&replica, "/v1/acquire", "two", &sampled, &job), 409);
    let lease = "000102030405060708090a0b0c0d0e0f";
    let mine = json!({ "name": "other", "lease": lease });
    assert_eq!(post(&replica, "/v1/acquire", "three", "", &mine), 200);
    assert_eq!(post(&replica, "/v1/release", "four", &sampled, &mine), 200);
    // Its client keeps no spans of this trace.
    let not = format!("00-{TRACE}-{PARENT}-00");
    assert_eq!(post(&replica, "/v1/acquire", "never", &not, &mine), 410);
    assert_eq!(replica.get("/livez").status, 200);
    fencepost_tests::eventually("four spans", LONG, || collector.spans().len() >= 4);
    drop(replica);
    assert_eq!(collector.spans().len(), 4, "{:?}", collector.spans());
    for (id, name, status, outcome, is_own) in [
        ("one", "POST /v1/acquire", "200", "acquired", false),
        ("two", "POST /v1/acquire", "409", "held", false),
        ("three", "POST /v1/acquire", "200", "acquired", true),
        ("four", "POST /v1/release", "200", "released", false),
    ] {
        let span = collector.span(id).unwrap();
        assert_eq!((&span["name"], &span["kind"]), (&json!(name), &json!(2)));
        assert_eq!(attribute(&span, "http.request.method"), "POST");
        assert_eq!(attribute(&span, "http.route"), &name[5..]);
        assert_eq!(attribute(&span, "http.response.status_code"), status);
        assert_eq!(attribute(&span, "fencepost.outcome"), outcome, "{span}");
        let (trace, parent) = (&span["traceId"], &span["parentSpanId"]);
        match is_own {
            false => assert_eq!((trace, parent), (&json!(TRACE), &json!(PARENT))),
            true => {
                assert_ne!(trace, TRACE);
                assert_eq!(trace.as_str().map(str::len), Some(32));
                assert!(parent.is_null(), "{span}");
            }
        }
        let own = span["spanId"].as_str().unwrap();
        assert!(own.len() == 16 && own != PARENT, "{span}");
        let nanos = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"));
    }
    for (first, body) in collector.posts() {
        assert_eq!(first.trim(), "POST /v1/traces HTTP/1.1");
        assert!(!body.contains("secret"), "the name of a lock: {body}");
    }
}

#[test]
fn what_is_queued_is_sent_when_the_replica_stops() {
    let collector = Collector::start(Manner::Answers("200 OK"));
    let replica = Replica::in_memory(collector.options());
    let job = json!({ "name": "job" });
    assert_eq!(post(&replica, "/v1/acquire", "last", "", &job), 200);
    drop(replica);
    assert!(collector.span("last").is_some());
}

#[test]
fn a_collector_that_fails_changes_nothing_for_clients() {
    let refuses = Collector::start(Manner::Answers("500 Internal Server Error"));
    let hangs = Collector::start(Manner::Hangs);
    for (collector, fails) in [(&refuses, true), (&hangs, false)] {
        let replica = Replica::in_memory(collector.options());
        let work = |id: &str| {
            let job = json!({ "name": id, "lease": "000102030405060708090a0b0c0d0e0f" });
            assert_eq!(post(&replica, "/v1/acquire", id, "", &job), 200);
            assert_eq!(post(&replica, "/v1/release", id, "", &job), 200);
        };
        work("first");
        fencepost_tests::eventually("it was asked", LONG, || !collector.posts().is_empty());
        work("second");
        if fails {
            fencepost_tests::eventually("they are counted", LONG, || {
                count(&replica, "failed") >= 4
            });
        }
        let begin = Instant::now();
        drop(replica);
        assert!(begin.elapsed() < LONG, "it stops all the same");
    }
}

/// More than the queue has room for, while nobody takes any.
#[test]
fn spans_beyond_the_queue_are_dropped_and_counted() {
    let collector = Collector::start(Manner::Hangs);
    let replica = Replica::in_memory(collector.options());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut stream = BufReader::new(TcpStream::connect(replica.address).unwrap());
                while count(&replica, "dropped") == 0 {
                    for _ in 0..500 {
                        let ask = "GET /nothing HTTP/1.1\r\nhost: localhost\r\n\r\n";
                        stream.get_mut().write_all(ask.as_bytes()).unwrap();
                        skip_answer(&mut stream);
                    }
                }
            });
        }
    });
    assert!(count(&replica, "dropped") > 0);
    assert_eq!(count(&replica, "exported"), 0);
}

fn skip_answer(stream: &mut BufReader<TcpStream>) {
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        match line.trim().split_once(": ") {
            Some(("content-length", bytes)) => length = bytes.parse().unwrap(),
            Some(_) => {}
            None if line.trim().is_empty() => break,
            None => assert!(line.starts_with("HTTP/1.1 404"), "{line}"),
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
}

#[test]
fn a_url_that_is_no_collector_is_refused() {
    for bad in ["https://c:4318", "http://me:x@c:4318", "c:4318", "http://"] {
        assert!(Otlp::at(bad).is_err(), "{bad}");
    }
}
