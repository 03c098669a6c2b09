//! Who may do what, and that a refusal tells nothing of the lock.

use std::time::Duration;

use fencepost::Client;
use fencepost_server::{Options, Tls, Tokens, hash_token};
use fencepost_tests::Authority;
use serde_json::json;

use crate::service::{Replica, Reply};

fn file(dir: &tempfile::TempDir) -> std::path::PathBuf {
    dir.path().join("tokens.toml")
}

fn entry(principal: &str, token: &str, verbs: &str, prefix: &str) -> String {
    format!(
        "[[token]]\nprincipal = \"{principal}\"\nsha256 = \"{}\"\nverbs = [{verbs}]\nprefixes = [\"{prefix}\"]\n",
        hash_token(token)
    )
}

fn guarded(dir: &tempfile::TempDir) -> Replica {
    let all = "\"acquire\", \"read\", \"steal\", \"nodes\"";
    let text = entry("ci", "one", "\"acquire\", \"read\"", "ci/") + &entry("op", "two", all, "");
    std::fs::write(file(dir), text).unwrap();
    let mut options = Options::new();
    options.tokens = Some(Tokens::load(file(dir)).unwrap());
    Replica::in_memory(options)
}

fn post(service: &Replica, token: &str, path: &str, body: &serde_json::Value) -> Reply {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("content-type", "application/json"),
        ("authorization", bearer.as_str()),
    ];
    service.send("POST", path, &headers, &body.to_string())
}

#[test]
fn no_token_wrong_token_wrong_prefix_and_wrong_verb_are_refused_alike() {
    let dir = tempfile::tempdir().unwrap();
    let service = guarded(&dir);
    let free = json!({ "name": "prod/free" });
    let held = json!({ "name": "prod/held" });
    assert_eq!(post(&service, "two", "/v1/acquire", &held).status, 200);
    service
        .post("/v1/acquire", &free)
        .is_problem(401, "unauthenticated");
    post(&service, "three", "/v1/acquire", &free).is_problem(401, "unauthenticated");
    let refusals = [&free, &held].map(|body| {
        let refused = post(&service, "one", "/v1/acquire", body);
        refused.is_problem(403, "forbidden");
        let mut problem = refused.json();
        problem["request_id"].take();
        problem
    });
    assert_eq!(refusals[0], refusals[1], "held or free looks the same");
    let steal = json!({ "name": "ci/x", "reason": "because" });
    post(&service, "one", "/v1/steal", &steal).is_problem(403, "forbidden");
    assert_eq!(
        post(&service, "one", "/v1/acquire", &json!({ "name": "ci/x" })).status,
        200
    );
    let headers = [("authorization", "Bearer one")];
    let listed = service.send("GET", "/v1/locks", &headers, "").json();
    let names: Vec<_> = listed["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| &l["name"])
        .collect();
    assert_eq!(names, ["ci/x"], "others' names are not shown");
}

/// All names were asked for, and the status of each, before it was looked who may see them: of more than 10,000 names of
/// others its own were lost.
#[test]
fn a_listing_asks_for_no_more_than_it_shows() {
    let dir = tempfile::tempdir().unwrap();
    let server = fencepost_tests::RedisServer::start();
    let all = "\"acquire\", \"read\"";
    let text = entry("ci", "one", all, "ci/") + &entry("op", "two", all, "");
    std::fs::write(file(&dir), text).unwrap();
    let mut options = Options::new();
    options.tokens = Some(Tokens::load(file(&dir)).unwrap());
    let url = server.url();
    let service = Replica::start(options, async move || {
        let builder = Client::builder().url(url).replica();
        builder.connect().await.unwrap()
    });
    for body in [
        json!({ "name": "ci/x" }),
        json!({ "name": "ci/pool", "slots": 2 }),
    ] {
        assert_eq!(post(&service, "one", "/v1/acquire", &body).status, 200);
    }
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    let token = now.as_micros().to_string();
    for some in 0..12 {
        let names: Vec<_> = (0..1_000).map(|n| format!("other/{some}/{n}")).collect();
        let scored = names.iter().flat_map(|name| [&*token, name]);
        let words: Vec<_> = ["ZADD", "fencepost:fences"]
            .into_iter()
            .chain(scored)
            .collect();
        server.cli(&words);
    }
    let get = |token: &str, path: &str| {
        let bearer = format!("Bearer {token}");
        service
            .send("GET", path, &[("authorization", &bearer)], "")
            .json()
    };
    let names = |listed: &serde_json::Value| -> Vec<String> {
        let locks = listed["locks"].as_array().unwrap().iter();
        locks
            .map(|lock| lock["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let before = server.scripts_run();
    for query in ["", "?prefix=", "?prefix=c", "?prefix=ci/"] {
        let listed = get("one", &format!("/v1/locks{query}"));
        let names = names(&listed);
        assert_eq!(names.len(), 2, "{query}: {names:?}");
        assert_eq!(
            (names[0].as_str(), &listed["more"]),
            ("ci/x", &json!(false)),
            "{query}"
        );
    }
    assert_eq!(names(&get("one", "/v1/locks?prefix=other/")), [""; 0]);
    let listed = get("two", "/v1/locks?prefix=other/3");
    let first = names(&listed);
    let cursor = listed["cursor"].as_str().unwrap();
    assert_eq!((first.len(), cursor), (500, first[499].as_str()));
    let second = get("two", &format!("/v1/locks?prefix=other/3&cursor={cursor}"));
    assert_eq!(
        (names(&second).len(), &second["more"]),
        (500, &json!(false))
    );
    let sent = server.scripts_run() - before;
    assert!(
        sent < 1_100,
        "{sent} scripts for 1,008 locks that were shown"
    );
}

/// A slot of a semaphore has a name of its own, which begins with a brace.
#[test]
fn a_principal_sees_the_slots_of_its_own_semaphores_and_of_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let service = guarded(&dir);
    for (token, name) in [("one", "ci/pool"), ("two", "prod/pool")] {
        let body = json!({ "name": name, "slots": 2 });
        assert_eq!(post(&service, token, "/v1/acquire", &body).status, 200);
    }
    let get = |path: &str| service.send("GET", path, &[("authorization", "Bearer one")], "");
    let listed = get("/v1/locks").json();
    let listed = listed["locks"].as_array().unwrap();
    let names: Vec<_> = listed
        .iter()
        .filter_map(|lock| lock["name"].as_str())
        .collect();
    assert!(!names.is_empty(), "its own");
    for name in names {
        assert!(name.starts_with("{ci/pool}:semaphore:"), "{name}");
        let lock = get(&format!(
            "/v1/locks?name=%7B{}",
            &name[1..].replace('}', "%7D")
        ));
        assert_eq!(lock.status, 200, "{lock:?}");
    }
    get("/v1/locks?name=%7Bprod/pool%7D:semaphore:0").is_problem(403, "forbidden");
}

#[test]
fn what_operators_and_probes_need_is_open_and_values_never_leave() {
    let dir = tempfile::tempdir().unwrap();
    let service = guarded(&dir);
    for path in ["/livez", "/readyz", "/metrics", "/openapi.json"] {
        assert_eq!(service.get(path).status, 200, "{path}");
    }
    let mine = post(&service, "two", "/v1/acquire", &json!({ "name": "job" })).json();
    let headers = [("authorization", "Bearer two")];
    let seen = service.send("GET", "/v1/locks?name=job", &headers, "").text;
    assert!(!seen.contains(mine["lease"].as_str().unwrap()), "{seen}");
}

#[test]
fn a_changed_file_is_read_again_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let service = guarded(&dir);
    let body = json!({ "name": "ci/x" });
    assert_eq!(post(&service, "one", "/v1/acquire", &body).status, 200);
    std::fs::write(file(&dir), entry("op", "two", "\"acquire\"", "")).unwrap();
    fencepost_tests::eventually(
        "the token is not known",
        std::time::Duration::from_secs(10),
        || post(&service, "one", "/v1/acquire", &body).status == 401,
    );
    std::fs::write(file(&dir), "[[token]]\nnonsense").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_ne!(
        post(&service, "two", "/v1/acquire", &body).status,
        401,
        "the old ones stay"
    );
}

#[test]
fn every_operation_asks_who_it_is_and_a_refusal_tells_nothing_of_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let service = guarded(&dir);
    let mine = post(&service, "two", "/v1/acquire", &json!({ "name": "prod/x" })).json();
    let lease = mine["lease"].as_str().unwrap();
    let one = json!({ "name": "prod/x", "lease": lease, "token": mine["token"] });
    let requests = [
        ("/v1/acquire", json!({ "name": "prod/x" })),
        ("/v1/acquire", json!({ "names": ["ci/x", "prod/x"] })),
        ("/v1/acquire", json!({ "name": "{prod/x}:semaphore:0" })),
        ("/v1/release", json!({ "name": "prod/x", "lease": lease })),
        (
            "/v1/steal",
            json!({ "name": "prod/x", "reason": "because" }),
        ),
        ("/v1/extend", json!({ "leases": [one] })),
    ];
    for (path, body) in &requests {
        let unknown = service.post(path, body);
        unknown.is_problem(401, "unauthenticated");
        let refused = post(&service, "one", path, body);
        match *path {
            "/v1/extend" => assert_eq!(refused.json()["leases"][0]["outcome"], "forbidden"),
            _ => refused.is_problem(403, "forbidden"),
        }
        for text in [unknown.text, refused.text] {
            let token = mine["token"].to_string();
            assert!(
                !text.contains(&token) && !text.contains("op"),
                "{path}: {text}"
            );
        }
    }
    for path in [
        "/v1/locks",
        "/v1/locks?name=prod/x",
        "/v1/nodes",
        "/v1/contention",
        "/v1/timeline",
        "/v1/events?after=0",
    ] {
        service.get(path).is_problem(401, "unauthenticated");
        let wrong = [("authorization", "Basic b25lOnR3bw==")];
        let refused = service.send("GET", path, &wrong, "");
        refused.is_problem(401, "unauthenticated");
    }
    let headers = [("authorization", "Bearer one")];
    let seen = service.send("GET", "/v1/locks?name=prod/x", &headers, "");
    seen.is_problem(403, "forbidden");
    let headers = [("authorization", "Bearer two")];
    let held = service
        .send("GET", "/v1/locks?name=prod/x", &headers, "")
        .json();
    assert_eq!(
        held["holder"]["owner"], "op",
        "nothing happened to it: {held}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_missing_expired_or_of_another_authority_opens_nothing() {
    let (authority, other) = (Authority::new(), Authority::new());
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = authority.certificate("localhost");
    let ca = write("ca.pem", &authority.pem());
    let tls = Tls::load(
        &write("cert.pem", &certificate),
        &write("key.pem", &key),
        Some(&ca),
    );
    let mut options = Options::new();
    options.tls = Some(tls.unwrap());
    let service = Replica::start(options, async || Client::memory().unwrap());
    let url = format!("https://localhost:{}", service.address.port());
    let client = |identity: Option<(String, String)>| {
        let builder = Client::builder().url(&url).tls_ca(authority.pem());
        match identity {
            Some((certificate, key)) => builder.tls_client(certificate, key),
            None => builder,
        }
        .build()
        .unwrap()
    };
    let refused = [
        client(None),
        client(Some(authority.expired_certificate("me"))),
        client(Some(other.certificate("me"))),
    ];
    for client in refused {
        let error = client.try_lock("job").await.unwrap_err();
        assert!(error.is_no_quorum(), "{error}");
    }
    let welcome = client(Some(authority.certificate("me")));
    let lease = welcome.try_lock("job").ttl(Duration::from_secs(10)).await;
    lease.unwrap().release().await.unwrap();
}
