//! `GET /v1/events` as a client reads it: a stream over a plain socket, and polls.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fencepost_server::{Mode, Options, Tokens, hash_token};
use serde_json::{Value, json};

use crate::service::Replica;

/// More than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// A stream of events.
pub(crate) struct Stream(pub(crate) BufReader<TcpStream>);

impl Stream {
    pub(crate) fn open(address: SocketAddr, path: &str, more: &str) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        Self::on(socket, path, more)
    }

    /// A stream over a connection that is there already.
    pub(crate) fn on(mut socket: TcpStream, path: &str, more: &str) -> Self {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        write!(
            socket,
            "GET {path} HTTP/1.1\r\nhost: localhost\r\n{more}\r\n"
        )
        .unwrap();
        Self(BufReader::new(socket))
    }

    /// The next event, unless the stream has ended.
    pub(crate) fn next(&mut self) -> Option<(String, Value)> {
        let mut event = String::new();
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(name) = line.strip_prefix("event: ") {
                name.trim().clone_into(&mut event);
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some((event, serde_json::from_str(data).unwrap()));
            }
            // The last chunk.
            if line == "0\r\n" {
                return None;
            }
        }
    }

    /// Reads on until that has happened.
    pub(crate) fn until(&mut self, wanted: &str) -> Value {
        let end = Instant::now() + LIMIT;
        while Instant::now() < end {
            match self.next() {
                Some((event, data)) if event == wanted => return data,
                Some(_) => {}
                None => break,
            }
        }
        panic!("no {wanted}")
    }
}

fn acquire(service: &Replica, name: &str, ttl: &str) -> Value {
    let granted = service.post("/v1/acquire", &json!({ "name": name, "ttl": ttl }));
    assert_eq!(granted.status, 200, "{granted:?}");
    granted.json()
}

fn release(service: &Replica, granted: &Value) {
    let lease = json!({ "name": granted["name"], "lease": granted["lease"] });
    assert_eq!(service.post("/v1/release", &lease).status, 200);
}

#[test]
fn a_stream_begins_with_what_is_there_and_tells_what_happens_then() {
    let service = Replica::in_memory(Options::new());
    let held = acquire(&service, "there", "30s");
    let mut stream = Stream::open(service.address, "/v1/events", "");
    let (first, snapshot) = stream.next().unwrap();
    assert_eq!(first, "snapshot");
    assert_eq!(snapshot["locks"][0]["name"], "there");
    assert_eq!(snapshot["locks"][0]["holder"]["token"], held["token"]);
    let new = acquire(&service, "new", "30s");
    let acquired = stream.until("acquired");
    assert_eq!(
        (&acquired["name"], &acquired["token"]),
        (&json!("new"), &new["token"])
    );
    release(&service, &new);
    let released = stream.until("released");
    assert_eq!(
        (&released["name"], &released["token"]),
        (&json!("new"), &new["token"])
    );
    acquire(&service, "short", "600ms");
    let expired = stream.until("expired");
    assert_eq!(expired["name"], "short", "nobody renewed it");
    let steal = json!({ "name": "there", "reason": "stuck since noon" });
    let stolen_by = service.post("/v1/steal", &steal).json();
    let stolen = stream.until("stolen");
    assert_eq!(stolen["reason"], "stuck since noon");
    assert_eq!(stolen["token"], held["token"], "of whom it was stolen");
    assert_eq!(stream.until("acquired")["token"], stolen_by["token"]);
    let timeline = service.get("/v1/timeline").json();
    let kinds: Vec<_> = timeline["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["event"])
        .collect();
    assert_eq!(
        kinds,
        ["stolen", "expired"],
        "the latest first, and nothing that is usual"
    );
}

#[test]
fn a_stream_of_one_name_shows_each_node_the_queue_and_who_held_it_before() {
    let service = Replica::in_memory(Options::new());
    let mut stream = Stream::open(service.address, "/v1/events?name=job", "");
    stream.until("snapshot");
    let held = acquire(&service, "job", "30s");
    stream.until("acquired");
    release(&service, &held);
    stream.until("released");
    acquire(&service, "job", "30s");
    acquire(&service, "other", "30s");
    let address = service.address;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let wait = json!({ "name": "job", "wait": "3s", "fair": true });
            service.post("/v1/acquire", &wait).is_problem(409, "held");
        });
        let mut stream = Stream::open(address, "/v1/events?name=job", "");
        let end = Instant::now() + LIMIT;
        let mut lock = stream.until("snapshot")["locks"][0].clone();
        while lock["queue"][0].is_null() && Instant::now() < end {
            lock = stream.until("locks")["changed"][0].clone();
        }
        assert_eq!(lock["queue"][0]["mode"], "fair", "{lock}");
        assert_eq!(lock["nodes"].as_array().unwrap().len(), 1);
        assert_eq!(lock["past"][0]["ended"], "released");
        assert_eq!(lock["past"][0]["token"], held["token"]);
        assert!(
            !lock.to_string().contains(held["lease"].as_str().unwrap()),
            "{lock}"
        );
    });
}

#[test]
fn a_replica_that_drains_says_so_and_ends_its_streams() {
    let service = Replica::in_memory(Options::new());
    let mut stream = Stream::open(service.address, "/v1/events", "");
    stream.until("snapshot");
    let start = Instant::now();
    drop(service);
    assert_eq!(stream.until("closing")["code"], "draining");
    assert!(stream.next().is_none());
    assert!(start.elapsed() < LIMIT);
}

#[test]
fn a_poll_gets_what_happened_since_its_cursor_and_begins_anew_with_one_of_another_process() {
    let service = Replica::in_memory(Options::new());
    let first = service.get("/v1/events?after=0").json();
    assert_eq!(first["snapshot"]["locks"], json!([]));
    acquire(&service, "job", "30s");
    let path = format!(
        "/v1/events?wait=20s&after={}",
        first["cursor"].as_str().unwrap()
    );
    let mut events = Value::Null;
    let mut path = path;
    let end = Instant::now() + LIMIT;
    while events[0].is_null() && Instant::now() < end {
        let next = service.get(&path).json();
        path = format!(
            "/v1/events?wait=20s&after={}",
            next["cursor"].as_str().unwrap()
        );
        events = next["events"].clone();
    }
    assert_eq!(events[0]["event"], "acquired", "{events}");
    let other = service.get("/v1/events?after=7-7").json();
    assert_eq!(other["snapshot"]["locks"][0]["name"], "job");
    service.get("/v1/events?after=x").is_problem(422, "invalid");
    service.get("/v1/events?nmae=x").is_problem(422, "invalid");
}

fn with_tokens(text: &str) -> (tempfile::TempDir, std::path::PathBuf, Options) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    std::fs::write(&path, text).unwrap();
    let mut options = Options::new();
    options.tokens = Some(Tokens::load(&path).unwrap());
    (dir, path, options)
}

fn entry(principal: &str, verbs: &str, prefix: &str) -> String {
    let hash = hash_token(principal);
    format!(
        "[[token]]\nprincipal = \"{principal}\"\nsha256 = \"{hash}\"\nverbs = [{verbs}]\nprefixes = [\"{prefix}\"]\n"
    )
}

#[test]
fn a_principal_sees_events_of_its_own_prefixes_only_and_none_once_its_token_is_gone() {
    let all = r#""acquire", "read", "steal", "nodes""#;
    let text = entry("ops", all, "") + &entry("ci", r#""read""#, "ci/");
    let (_dir, path, options) = with_tokens(&text);
    let service = Replica::in_memory(options);
    let mut stream = Stream::open(
        service.address,
        "/v1/events",
        "authorization: Bearer ci\r\n",
    );
    let snapshot = stream.until("snapshot");
    assert_eq!(snapshot["you"]["may_steal"], false);
    assert!(snapshot["nodes"].is_null(), "{snapshot}");
    let ops = [
        ("authorization", "Bearer ops"),
        ("content-type", "application/json"),
    ];
    for name in ["prod/db", "ci/build"] {
        let body = json!({ "name": name }).to_string();
        assert_eq!(service.send("POST", "/v1/acquire", &ops, &body).status, 200);
    }
    let (_, seen) = stream.next().unwrap();
    assert_eq!(seen["name"], "ci/build");
    let ci = [("authorization", "Bearer ci")];
    for path in ["/v1/events?name=prod/db", "/v1/nodes"] {
        service
            .send("GET", path, &ci, "")
            .is_problem(403, "forbidden");
    }
    service.get("/v1/events").is_problem(401, "unauthenticated");
    // Written later, so that the file's time is another one.
    std::thread::sleep(Duration::from_millis(20));
    std::fs::write(&path, entry("ops", all, "")).unwrap();
    assert_eq!(stream.until("closing")["code"], "unauthenticated");
}

#[test]
fn a_page_of_another_site_can_neither_steal_nor_read() {
    let service = Replica::in_memory(Options::new());
    let held = acquire(&service, "job", "30s");
    let form = "name=job&reason=mine";
    let kind = ("content-type", "application/x-www-form-urlencoded");
    for foreign in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ] {
        service
            .send("POST", "/v1/steal", &[kind, foreign], form)
            .is_problem(403, "foreign_origin");
        service
            .send("GET", "/v1/locks", &[foreign], "")
            .is_problem(403, "foreign_origin");
    }
    // A name of the attacker's that points to this machine.
    service
        .send("GET", "/v1/locks", &[("host", "evil.example:7323")], "")
        .is_problem(403, "foreign_host");
    let lock = service.get("/v1/events?after=0&name=job").json();
    assert_eq!(
        lock["snapshot"]["locks"][0]["holder"]["token"],
        held["token"]
    );
    let own = format!("http://{}", service.address);
    let stolen = service.send("POST", "/v1/steal", &[kind, ("origin", &own)], form);
    assert_eq!(stolen.status, 200, "{stolen:?}");
}

#[test]
fn a_service_that_only_shows_changes_nothing() {
    let mut options = Options::new();
    options.mode = Mode::ReadOnly;
    let service = Replica::in_memory(options);
    for path in ["acquire", "extend", "release", "steal"] {
        let refused = service.post(
            &format!("/v1/{path}"),
            &json!({ "name": "job", "reason": "x" }),
        );
        refused.is_problem(403, "read_only");
    }
    let mut options = Options::new();
    options.mode = Mode::ReadAndSteal;
    let service = Replica::in_memory(options);
    service
        .post("/v1/acquire", &json!({ "name": "job" }))
        .is_problem(403, "read_only");
    let stolen = service.post("/v1/steal", &json!({ "name": "job", "reason": "x" }));
    assert_ne!(stolen.status, 403, "{stolen:?}");
}

#[test]
fn the_dashboard_may_load_nothing_from_elsewhere_and_nothing_inline() {
    let service = Replica::in_memory(Options::new());
    let page = service.get("/ui/");
    assert_eq!(
        (page.status, page.kind.as_str()),
        (200, "text/html; charset=utf-8")
    );
    for inline in [
        "<script>",
        " style=",
        " onclick",
        "javascript:",
        "http://",
        "https://",
    ] {
        assert!(!page.text.contains(inline), "{inline}");
    }
    for part in page.text.split('"').filter(|part| part.starts_with("/ui/")) {
        assert_eq!(service.get(part).status, 200, "{part}");
    }
    assert_eq!(service.get("/ui/nothing.js").status, 404);
}
