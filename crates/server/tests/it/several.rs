//! Several names in one acquire, sent again: all or none, and each as long as the answer says.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use fencepost_server::Options;
use serde_json::{Value, json};

use crate::client::replicas;
use crate::service::{Replica, Reply};

const LEASE: &str = "000102030405060708090a0b0c0d0e0f";
const TTL: Duration = Duration::from_millis(600);

fn both(attempt: u32) -> Value {
    json!({
        "names": ["a", "b"], "lease": LEASE, "attempt": attempt,
        "ttl": format!("{}ms", TTL.as_millis()), "wait": "20s",
    })
}

/// Sent from a thread of its own.
fn sent(replica: &Replica, body: Value) -> Receiver<Reply> {
    let (tell, told) = mpsc::channel();
    let address = replica.address;
    std::thread::spawn(move || tell.send(Reply::post(address, "/v1/acquire", &body)));
    told
}

fn until_it_waits_for_b(replica: &Replica) {
    fencepost_tests::eventually("it waits for b", Duration::from_secs(20), || {
        replica.get("/v1/locks?name=b").json()["waiting"] == 1
    });
}

fn is_held_after_its_ttl(replica: &Replica, name: &str) {
    std::thread::sleep(TTL * 3);
    replica
        .post("/v1/acquire", &json!({ "name": name }))
        .is_problem(409, "held");
}

fn answer(waiting: &Receiver<Reply>) -> Reply {
    waiting.recv_timeout(Duration::from_secs(20)).unwrap()
}

/// A retry waited for each name by itself, and renewed none of those that it had: the answer named two
/// leases while somebody else held the first lock.
#[test]
fn what_a_retry_has_acquired_is_renewed_while_it_waits_for_the_rest() {
    let [one] = replicas("retry-renews");
    let held = one.post("/v1/acquire", &json!({ "name": "b" })).json();
    let waiting = sent(&one, both(2));
    until_it_waits_for_b(&one);
    is_held_after_its_ttl(&one, "a");
    one.post(
        "/v1/release",
        &json!({ "name": "b", "lease": held["lease"] }),
    );
    let mine = answer(&waiting);
    assert_eq!(mine.status, 200, "{mine:?}");
    assert_eq!(mine.json()["leases"].as_array().unwrap().len(), 2);
}

#[test]
fn what_a_retry_has_taken_over_is_renewed_while_it_waits_for_the_rest() {
    let [one, two] = replicas("taken-over-renews");
    let mine = one.post("/v1/acquire", &both(1));
    assert_eq!(mine.status, 200, "{mine:?}");
    let thief = json!({ "name": "b", "reason": "a test", "ttl": "60s" });
    let thief = one.post("/v1/steal", &thief).json();
    let waiting = sent(&two, both(2));
    until_it_waits_for_b(&one);
    is_held_after_its_ttl(&one, "a");
    one.post(
        "/v1/release",
        &json!({ "name": "b", "lease": thief["lease"] }),
    );
    let mine = answer(&waiting);
    assert_eq!(mine.status, 200, "{mine:?}");
    assert_eq!(mine.json()["repeated"], true);
}

/// All or none: the answer was 200, and named a lease that was over.
#[test]
fn a_lock_that_is_lost_while_the_rest_is_waited_for_is_no_grant() {
    let [one] = replicas("lost-while-waiting");
    one.post("/v1/acquire", &json!({ "name": "b" }));
    let waiting = sent(&one, both(2));
    until_it_waits_for_b(&one);
    let thief = json!({ "name": "a", "reason": "a test", "ttl": "60s" });
    assert_eq!(one.post("/v1/steal", &thief).status, 200);
    answer(&waiting).is_problem(503, "too_late");
    let waits = one.get("/v1/locks?name=b").json()["waiting"].clone();
    assert!(waits == 0 || waits == 1, "its place may be kept: {waits}");
}

/// Each of them would be wrong for the others.
#[test]
fn the_header_with_the_token_is_for_one_lock_only() {
    let one = Replica::in_memory(Options::new());
    let mine = one.post("/v1/acquire", &json!({ "name": "job" }));
    assert_eq!(mine.token, mine.json()["token"].to_string());
    let mine = one.post("/v1/acquire", &json!({ "names": ["a", "b"] }));
    assert_eq!((mine.status, mine.token.as_str()), (200, ""), "{mine:?}");
    let mine = one.post("/v1/acquire", &json!({ "names": ["c"] }));
    assert_eq!(mine.token, mine.json()["token"].to_string());
}
