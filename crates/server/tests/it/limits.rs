//! Every limit is named by the answer of whoever exceeds it, and by the documents.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fencepost_server::{Limits, Options, Tokens, hash_token};
use serde_json::{Value, json};

use crate::events::Stream;
use crate::service::{Replica, Reply};

/// More than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

fn limited(set: impl FnOnce(&mut Limits)) -> Replica {
    let mut options = Options::new();
    set(&mut options.limits);
    Replica::in_memory(options)
}

fn is_beyond(refused: &Reply, limit: &str) {
    refused.is_problem(429, "limit");
    assert_eq!(refused.json()["limit"], limit, "{refused:?}");
    assert!(refused.json()["retry_after_ms"].is_u64(), "{refused:?}");
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// All that is answered until the other side closes the connection.
fn rest(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

/// A connection that is open, and has had one answer.
fn open(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    while !answer.ends_with("ok\n") {
        let mut some = [0; 1024];
        let length = stream.read(&mut some).unwrap();
        assert_ne!(length, 0, "{answer}");
        answer += std::str::from_utf8(&some[..length]).unwrap();
    }
    stream
}

#[test]
fn a_principal_holds_so_many_locks_and_loses_none_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    let entry = |who: &str| {
        let hash = hash_token(who);
        format!(
            "[[token]]\nprincipal = \"{who}\"\nsha256 = \"{hash}\"\nverbs = [\"acquire\", \"read\"]\nprefixes = [\"\"]\n"
        )
    };
    std::fs::write(&path, entry("greedy") + &entry("other")).unwrap();
    let mut options = Options::new();
    options.tokens = Some(Tokens::load(&path).unwrap());
    options.limits.leases_per_principal = 2;
    let service = Replica::in_memory(options);
    let post = |who: &str, verb: &str, body: Value| {
        let bearer = format!("Bearer {who}");
        let headers = [
            ("authorization", &*bearer),
            ("content-type", "application/json"),
        ];
        service.send("POST", &format!("/v1/{verb}"), &headers, &body.to_string())
    };
    let acquire = |who: &str, body: Value| post(who, "acquire", body);
    let (first, second) = (format!("{:032x}", 1), format!("{:032x}", 2));
    let held = json!({ "name": "one", "lease": first });
    let one = acquire("greedy", held.clone());
    assert_eq!(one.status, 200, "{one:?}");
    let short = json!({ "name": "two", "lease": second, "ttl": "500ms" });
    assert_eq!(acquire("greedy", short).status, 200);
    let refused = acquire("greedy", json!({ "names": ["three", "four"] }));
    is_beyond(&refused, "leases_per_principal");
    let shared = json!({ "name": "shelf", "shared": true, "wait": "1s" });
    is_beyond(&acquire("greedy", shared), "leases_per_principal");
    assert_eq!(acquire("other", json!({ "name": "three" })).status, 200);

    // What it has it keeps, and the next attempt of a lease is no other lease.
    let lease = json!({ "name": "one", "lease": first, "token": one.json()["token"] });
    let extended = post("greedy", "extend", json!({ "leases": [lease] }));
    assert_eq!(
        extended.json()["leases"][0]["outcome"],
        "extended",
        "{extended:?}"
    );
    let again = json!({ "name": "one", "lease": first, "attempt": 2 });
    assert_eq!(acquire("greedy", again).json()["repeated"], true);

    eventually("what has expired makes room", || {
        acquire("greedy", json!({ "name": "four" })).status == 200
    });
    is_beyond(
        &acquire("greedy", json!({ "name": "five" })),
        "leases_per_principal",
    );
    let released = post(
        "greedy",
        "release",
        json!({ "name": "one", "lease": first }),
    );
    assert_eq!(released.status, 200, "{released:?}");
    assert_eq!(acquire("greedy", json!({ "name": "five" })).status, 200);
    let headers = [("authorization", "Bearer other")];
    // What has expired for its client is held by the nodes for a moment longer.
    eventually("nothing else is locked", || {
        let locks = service.send("GET", "/v1/locks", &headers, "").json();
        let locks = locks["locks"].as_array().unwrap().iter();
        let held = locks.filter(|lock| lock["held"] == true);
        let names: Vec<_> = held.map(|lock| &lock["name"]).collect();
        names == ["five", "four", "three"]
    });
}

#[test]
fn a_name_has_so_many_readers() {
    let service = limited(|limits| limits.leases_per_name = 2);
    let read = json!({ "name": "shelf", "shared": true });
    let (one, two) = (
        service.post("/v1/acquire", &read),
        service.post("/v1/acquire", &read),
    );
    assert_eq!((one.status, two.status), (200, 200), "{one:?} {two:?}");
    is_beyond(&service.post("/v1/acquire", &read), "leases_per_name");
    let release = json!({ "name": "shelf", "lease": one.json()["lease"] });
    assert_eq!(service.post("/v1/release", &release).status, 200);
    assert_eq!(service.post("/v1/acquire", &read).status, 200);
}

#[test]
fn a_connection_beyond_the_limit_is_told_so() {
    let service = limited(|limits| limits.connections = 1);
    let only = open(service.address);
    is_beyond(&service.get("/livez"), "connections");
    let acquire = json!({ "name": "job", "meta": "x".repeat(100) });
    is_beyond(&service.post("/v1/acquire", &acquire), "connections");
    drop(only);
    let mut locks = Value::Null;
    eventually("there is room", || {
        locks = service.get("/v1/locks").json();
        locks["code"].is_null()
    });
    assert_eq!(locks["locks"], json!([]), "nothing happened");
}

#[test]
fn the_address_of_the_metrics_has_a_limit_of_its_own() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut options = Options::new();
    options.metrics = Some(listener);
    options.limits.metrics_connections = 1;
    let service = Replica::in_memory(options);
    let _only = open(address);
    is_beyond(&Reply::get(address, "/metrics"), "metrics_connections");
    assert_eq!(service.get("/livez").status, 200);
}

#[test]
fn a_stream_beyond_the_limit_is_told_so() {
    let service = limited(|limits| limits.streams = 1);
    let mut only = Stream::open(service.address, "/v1/events", "");
    only.until("snapshot");
    is_beyond(&service.get("/v1/events"), "streams");
    is_beyond(&service.get("/v1/events?after=0"), "streams");
    drop(only);
    eventually("there is room", || {
        service.get("/v1/events?after=0").status == 200
    });
}

#[test]
fn a_request_that_is_sent_too_slowly_is_told_so() {
    let service = limited(|limits| limits.read_timeout = Duration::from_millis(300));
    let head = "POST /v1/acquire HTTP/1.1\r\nhost: localhost\r\n";
    let part =
        format!("{head}content-type: application/json\r\ncontent-length: 14\r\n\r\n{{\"name\":");
    for sent in [&head[..20], head, &part] {
        let mut slow = TcpStream::connect(service.address).unwrap();
        slow.write_all(sent.as_bytes()).unwrap();
        let answer = rest(slow);
        let (head, body) = answer
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{answer:?}"));
        assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
        assert!(
            head.contains("content-type: application/problem+json"),
            "{head}"
        );
        let problem: Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            (&problem["status"], &problem["code"]),
            (&json!(408), &json!("limit"))
        );
        assert_eq!(problem["limit"], "read_timeout");
    }
    assert_eq!(service.get("/v1/locks").json()["locks"], json!([]));
}

/// It was closed after the time that a request may take to be sent, while a client that renews every ten seconds was about
/// to send the next.
#[test]
fn an_idle_connection_is_kept_for_longer_than_a_request_may_take_to_be_sent() {
    let service = limited(|limits| limits.read_timeout = Duration::from_millis(300));
    let mut idle = open(service.address);
    std::thread::sleep(Duration::from_secs(1));
    for part in ["GET /livez HTTP/1.1\r\n", "host: localhost\r\n\r\n"] {
        idle.write_all(part.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut some = [0; 1024];
    let length = idle.read(&mut some).unwrap();
    let answer = std::str::from_utf8(&some[..length]).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer:?}");
    // From its first byte on a request has its time, as the first one had.
    idle.write_all(b"GET ").unwrap();
    let answer = rest(idle);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_connection_that_is_idle_for_too_long_is_closed_without_a_word_and_one_that_waits_is_not() {
    let service = limited(|limits| limits.idle_timeout = Duration::from_millis(300));
    let start = Instant::now();
    assert_eq!(rest(open(service.address)), "");
    assert!(start.elapsed() < Duration::from_secs(9), "read_timeout");
    let held = service.post("/v1/acquire", &json!({ "name": "job" }));
    assert_eq!(held.status, 200);
    let wait = json!({ "name": "job", "wait": "1s" });
    service.post("/v1/acquire", &wait).is_problem(409, "held");
}

/// So that it is soon full.
fn with_a_small_buffer(address: SocketAddr) -> TcpStream {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream
}

/// It keeps its connection alive and reads nothing: without a limit it keeps its place for ever.
#[test]
fn a_reader_of_events_that_takes_nothing_loses_its_place() {
    let service = limited(|limits| {
        limits.streams = 1;
        limits.write_timeout = Duration::from_millis(300);
    });
    // More than the buffers of two sockets hold, in the end: each look repeats what has changed.
    let mut leases = Vec::new();
    for batch in 0..20 {
        let names: Vec<_> = (0..16)
            .map(|n| format!("{batch}/{n}/{}", "x".repeat(480)))
            .collect();
        let granted = service.post("/v1/acquire", &json!({ "names": names, "ttl": "60s" }));
        let granted = granted.json();
        for lock in granted["leases"].as_array().unwrap() {
            let (name, token) = (&lock["name"], &lock["token"]);
            leases.push(json!({ "name": name, "lease": granted["lease"], "token": token }));
        }
    }
    let socket = with_a_small_buffer(service.address);
    let mut stream = Stream::on(socket, "/v1/events", "");
    stream.until("snapshot");
    is_beyond(&service.get("/v1/events?after=0"), "streams");
    let extend = json!({ "leases": leases, "ttl": "60s" });
    eventually("its place is free", || {
        let extended = service.post("/v1/extend", &extend);
        assert_eq!(extended.status, 200, "{extended:?}");
        service.get("/v1/events?after=0").status == 200
    });
    // What had been sent before the end is there, and then the end.
    let mut sent = Vec::new();
    stream.0.read_to_end(&mut sent).unwrap();
    assert!(!sent.ends_with(b"0\r\n\r\n"), "it was cut off");
}

#[test]
fn a_body_that_is_too_large_is_told_apart_from_one_that_is_broken() {
    let service = limited(|limits| limits.body_bytes = 200);
    let large = service.post("/v1/acquire", &json!({ "name": "x".repeat(300) }));
    large.is_problem(413, "too_large");
    assert_eq!(large.json()["limit"], "body_bytes");
    let mut broken = TcpStream::connect(service.address).unwrap();
    write!(
        broken,
        "POST /v1/acquire HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"
    )
    .unwrap();
    let answer = rest(broken);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("\"malformed\""), "{answer}");
}

#[test]
fn the_documents_name_every_limit() {
    let service = limited(|limits| limits.names = 3);
    let document = service.get("/openapi.json").json();
    let schemas = &document["components"]["schemas"];
    assert_eq!(
        schemas["Problem"]["properties"]["limit"]["enum"],
        json!(Limits::NAMES)
    );
    assert_eq!(schemas["Acquire"]["properties"]["names"]["maxItems"], 3);
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/service.md");
    let guide = std::fs::read_to_string(root).unwrap();
    for name in Limits::NAMES {
        assert!(guide.contains(&format!("| `{name}` |")), "{name}");
    }
}
