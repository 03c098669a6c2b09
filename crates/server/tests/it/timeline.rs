//! `GET /v1/timeline`: did we run twice last night? Kept across restarts, and of all replicas together.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencepost_server::{Options, Peers, Tls, Tokens, hash_token};
use fencepost_tests::{Authority, Cluster, eventually};
use serde_json::{Value, json};

use crate::service::Replica;

/// More than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);

fn replica(cluster: &Cluster, dir: &Path, change: impl FnOnce(&mut Options)) -> Replica {
    let urls = cluster.urls();
    let mut options = Options::new();
    options.timeline = Some(dir.to_owned());
    change(&mut options);
    Replica::start(options, async move || {
        let builder = fencepost::Client::builder().url(urls);
        let builder = builder.restart_policy(fencepost::RestartPolicy::Trust);
        builder.connect().await.unwrap()
    })
}

fn peer(of: &Replica) -> impl FnOnce(&mut Options) + use<> {
    let url = format!("http://{}", of.address);
    move |options| options.peers = Peers::new(&[url], None).unwrap()
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// The events of a kind, once there are any.
fn events(replica: &Replica, query: &str, kind: &str) -> Vec<Value> {
    let mut found = Vec::new();
    eventually(kind, LIMIT, || {
        let all = replica.get(&format!("/v1/timeline?{query}")).json();
        let all = all["events"].as_array().unwrap().clone();
        found = all.into_iter().filter(|it| it["event"] == kind).collect();
        !found.is_empty()
    });
    found
}

/// Until it has looked: what happens before the first look is not known.
fn has_looked(replica: &Replica) {
    eventually("it watches", LIMIT, || {
        let known = replica.get("/v1/timeline?only=this").json();
        let watched = known["watched"].as_array().unwrap();
        watched
            .last()
            .is_some_and(|it| it["to_ms"].as_u64().unwrap() + 5_000 > now_ms())
    });
}

fn expires(replica: &Replica, name: &str) {
    let short = json!({ "name": name, "ttl": "700ms" });
    assert_eq!(replica.post("/v1/acquire", &short).status, 200);
}

#[test]
fn what_went_wrong_survives_a_restart_and_when_nobody_watched_is_named() {
    let (cluster, dir) = (Cluster::start(3), tempfile::tempdir().unwrap());
    let (from, to) = (now_ms() - 7_200_000, now_ms() - 3_600_000);
    let last_night = format!(
        "{}\n{}\n",
        json!({ "watched": { "from_ms": from, "to_ms": to } }),
        json!({ "event": "lost", "at_ms": to - 5, "name": "backup", "owner": "db-1", "token": 7 }),
    );
    std::fs::write(dir.path().join("timeline.0.jsonl"), last_night).unwrap();
    let service = replica(&cluster, dir.path(), |_| {});
    has_looked(&service);
    expires(&service, "job");
    assert_eq!(events(&service, "name=job", "expired")[0]["name"], "job");
    drop(service);

    let service = replica(&cluster, dir.path(), |_| {});
    assert_eq!(events(&service, "owner=db-", "lost")[0]["token"], 7);
    assert_eq!(events(&service, "", "expired").len(), 1);
    let known = service.get("/v1/timeline").json();
    assert_eq!(
        (&known["since_ms"], &known["kept"]),
        (&json!(from), &json!(true))
    );
    let gaps = known["gaps"].as_array().unwrap();
    assert_eq!(gaps.len(), 1, "{known}");
    assert_eq!(gaps[0]["from_ms"], to);
    assert!(
        gaps[0]["to_ms"].as_u64().unwrap() + 120_000 > now_ms(),
        "{known}"
    );
}

#[test]
fn replicas_are_asked_for_what_they_saw_and_one_that_is_silent_is_named() {
    let cluster = Cluster::start(3);
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let one = replica(&cluster, first.path(), |_| {});
    let two = replica(&cluster, second.path(), peer(&one));
    let url = format!("http://{}", one.address);
    has_looked(&one);
    has_looked(&two);
    expires(&one, "job");
    // Both have seen it, and it is there once.
    eventually("both have seen it", LIMIT, || {
        let seen = events(&two, "name=job", "expired");
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0]["seen_by"].as_array().unwrap().len() == 2
    });
    // Who stole it and why, only the replica knows that did it.
    assert_eq!(
        one.post("/v1/acquire", &json!({ "name": "prize" })).status,
        200
    );
    has_looked(&one);
    std::thread::sleep(Duration::from_secs(1));
    let steal = json!({ "name": "prize", "reason": "it hangs" });
    assert_eq!(one.post("/v1/steal", &steal).status, 200);
    let stolen = events(&two, "name=prize", "stolen");
    assert_eq!(stolen[0]["reason"], "it hangs");
    assert_eq!(stolen[0]["seen_by"], json!([url]));
    drop(one);
    let known = two.get("/v1/timeline").json();
    let replicas = known["replicas"].as_array().unwrap();
    assert_eq!((replicas.len(), &replicas[1]["replica"]), (2, &json!(url)));
    assert!(replicas[1]["error"].is_string(), "{known}");
    assert_eq!(
        known["events"][0]["name"], "job",
        "what this one saw is there"
    );
}

#[test]
fn whoever_asks_sees_at_a_peer_no_more_than_the_peer_shows_it() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let entry = |who: &str, prefix: &str| {
        let hash = hash_token(who);
        format!(
            "[[token]]\nprincipal = \"{who}\"\nsha256 = \"{hash}\"\nverbs = [\"read\"]\n\
             prefixes = [\"{prefix}\"]\n"
        )
    };
    let tokens = |name: &str, text: String| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        Tokens::load(path).unwrap()
    };
    let narrow = tokens("narrow", entry("me", "mine/"));
    let wide = tokens("wide", entry("me", "") + &entry("other", ""));
    for (at, name) in [(1, "mine/a"), (2, "theirs/b")] {
        let line = json!({ "event": "lost", "at_ms": at, "name": name, "owner": "x" });
        std::fs::create_dir_all(dir.path().join("one")).unwrap();
        let path = dir.path().join("one/timeline.0.jsonl");
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(path, format!("{old}{line}\n")).unwrap();
    }
    let one = replica(&cluster, &dir.path().join("one"), |options| {
        options.tokens = Some(narrow);
    });
    let asks = peer(&one);
    let two = replica(&cluster, &dir.path().join("two"), |options| {
        options.tokens = Some(wide);
        asks(options);
    });
    let known = |who: &str| {
        let bearer = format!("Bearer {who}");
        let answer = two.send("GET", "/v1/timeline", &[("authorization", &bearer)], "");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    };
    let mine = known("me");
    let names: Vec<_> = mine["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["mine/a"], "{mine}");
    let other = known("other");
    assert_eq!(other["events"], json!([]));
    let why = other["replicas"][1]["error"].as_str().unwrap();
    assert!(why.contains("401"), "{other}");
}

#[test]
fn a_peer_is_asked_over_tls_and_must_be_who_the_authority_says() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (ours, foreign) = (Authority::new(), Authority::new());
    let (certificate, key) = ours.certificate("localhost");
    let tls = Tls::load(&write("cert", &certificate), &write("key", &key), None).unwrap();
    let one = replica(&cluster, &dir.path().join("one"), |options| {
        options.tls = Some(tls)
    });
    let url = format!("https://localhost:{}", one.address.port());
    for (name, authority, trusted) in [("ours", ours, true), ("foreign", foreign, false)] {
        let authority = write(name, &authority.pem());
        let peers = Peers::new(std::slice::from_ref(&url), Some(&authority)).unwrap();
        let two = replica(
            &cluster,
            &dir.path().join(format!("two-{name}")),
            |options| {
                options.peers = peers;
            },
        );
        let known = two.get("/v1/timeline").json();
        let error = &known["replicas"][1]["error"];
        assert_eq!(error.is_null(), trusted, "{known}");
    }
}
