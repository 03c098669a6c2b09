//! Readers under leases of the service.

use std::path::PathBuf;

use fencepost::{Client, RestartPolicy};
use fencepost_server::Options;
use fencepost_tests::RedisServer;
use serde_json::{Value, json};

use crate::service::{Replica, Reply};

const LEASE: &str = "000102030405060708090a0b0c0d0e0f";
/// The largest token there is.
const LARGEST: u64 = 9_007_199_254_740_991;

fn over_redis(servers: &[RedisServer]) -> Replica {
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    Replica::start(Options::new(), async move || {
        let builder = Client::builder().url(urls.join(","));
        let builder = builder.restart_policy(RestartPolicy::Trust).replica();
        builder.connect().await.unwrap()
    })
}

fn over_a_file(name: &str) -> (Replica, PathBuf) {
    let place = std::env::temp_dir().join(format!("fencepost-{name}-{}", std::process::id()));
    let path = place.clone();
    let replica = Replica::start(Options::new(), async move || {
        let builder = Client::builder().url(format!("file:{}", path.display()));
        builder.replica().build().unwrap()
    });
    (replica, place)
}

fn extend(replica: &Replica, lease: &Value, token: u64) -> Value {
    let lease = json!({ "name": lease["name"], "lease": lease["lease"], "token": token });
    let body = json!({ "leases": [lease], "ttl": "30s" });
    replica.post("/v1/extend", &body).json()["leases"][0].clone()
}

fn a_reader_cannot_spend_the_tokens(replica: &Replica) {
    let read = json!({ "name": "shelf", "shared": true });
    let reader = replica.post("/v1/acquire", &read).json();
    let token = reader["token"].as_u64().unwrap();
    for wrong in [LARGEST, token + 1] {
        let refused = extend(replica, &reader, wrong);
        assert_eq!(refused["outcome"], "invalid", "{refused}");
    }
    let extended = extend(replica, &reader, token);
    assert_eq!(extended["outcome"], "extended", "{extended}");
    let release = json!({ "name": "shelf", "lease": reader["lease"] });
    assert_eq!(replica.post("/v1/release", &release).status, 200);
    let writer = replica.post("/v1/acquire", &json!({ "name": "shelf" }));
    assert_eq!(writer.status, 200, "{writer:?}");
    assert!(writer.json()["token"].as_u64() > Some(token));
}

/// An extension with the largest token raised the fence register to it, and the name was never again granted to
/// anybody: nodes stored no token for a reader, so any was taken.
#[test]
fn a_reader_cannot_spend_the_tokens_of_a_name_in_memory_or_in_a_file() {
    a_reader_cannot_spend_the_tokens(&Replica::in_memory(Options::new()));
    let (replica, place) = over_a_file("readers-token");
    a_reader_cannot_spend_the_tokens(&replica);
    drop(replica);
    let _ = std::fs::remove_dir_all(place);
}

#[test]
fn a_reader_cannot_spend_the_tokens_of_a_name_on_one_server_or_on_three() {
    a_reader_cannot_spend_the_tokens(&over_redis(&RedisServer::start_many(1)));
    a_reader_cannot_spend_the_tokens(&over_redis(&RedisServer::start_many(3)));
}

fn read(replica: &Replica, attempt: u32) -> Reply {
    let body = json!({ "name": "shelf", "shared": true, "lease": LEASE, "attempt": attempt });
    replica.post("/v1/acquire", &body)
}

/// It was granted again, and attempt 1 after attempt 2 as well.
#[test]
fn a_shared_post_that_is_doubled_or_late_is_in_progress() {
    let place = "memory:doubled-readers";
    let [one, two] = [(); 2].map(|()| {
        Replica::start(Options::new(), async move || {
            Client::builder().url(place).replica().build().unwrap()
        })
    });
    doubled_or_late(one, two);
    let servers = RedisServer::start_many(3);
    doubled_or_late(over_redis(&servers), over_redis(&servers));
}

fn doubled_or_late(one: Replica, two: Replica) {
    assert_eq!(read(&one, 1).status, 200);
    read(&one, 1).is_problem(409, "in_progress");
    read(&two, 1).is_problem(409, "in_progress");
    let later = read(&two, 2);
    assert_eq!(later.status, 200, "{later:?}");
    assert_eq!(later.json()["repeated"], true);
    read(&one, 1).is_problem(409, "in_progress");
    let readers = || one.get("/v1/locks?name=shelf").json()["readers"].clone();
    let seen = readers();
    assert_eq!(seen.as_array().map(Vec::len), Some(1), "{seen}");
    let other = one.post("/v1/acquire", &json!({ "name": "shelf", "shared": true }));
    assert_eq!(other.status, 200, "other readers are not in the way");
    let release = json!({ "name": "shelf", "lease": LEASE });
    assert_eq!(one.post("/v1/release", &release).status, 200);
    read(&two, 3).is_problem(410, "released");
}

/// Readers share the token from which the time is counted: the second one would be over at once.
#[test]
fn a_longest_time_that_cannot_be_kept_for_a_reader_is_refused() {
    let replica = Replica::in_memory(Options::new());
    let read = json!({ "name": "shelf", "shared": true, "max_hold": "1s" });
    replica
        .post("/v1/acquire", &read)
        .is_problem(422, "invalid");
}
