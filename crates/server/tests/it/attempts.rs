//! A lease id of the client's own and numbered attempts: every acquire is safe to repeat, at any replica.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fencepost::Client;
use fencepost_server::Options;
use serde_json::{Value, json};

use crate::service::{Replica, Reply};

const LEASE: &str = "000102030405060708090a0b0c0d0e0f";

/// Two replicas over one store.
fn two() -> [Replica; 2] {
    let place = format!("memory:{:?}", std::thread::current().id());
    [(); 2].map(|()| {
        let place = place.clone();
        Replica::start(Options::new(), async move || {
            Client::builder().url(place).replica().build().unwrap()
        })
    })
}

fn attempt(replica: &Replica, name: &str, attempt: u32) -> Reply {
    let body = json!({ "name": name, "lease": LEASE, "attempt": attempt, "ttl": "30s" });
    replica.post("/v1/acquire", &body)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(15), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn waiting(replica: &Replica, name: &str) -> Value {
    replica.get(&format!("/v1/locks?name={name}")).json()["waiting"].clone()
}

#[test]
fn a_repeated_acquire_gets_its_lock_at_any_replica_with_a_larger_token() {
    let [one, two] = two();
    let first = attempt(&one, "job", 1).json();
    assert_eq!(first["lease"], LEASE);
    let again = attempt(&two, "job", 2);
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json()["repeated"], true);
    assert!(again.json()["token"].as_u64() > first["token"].as_u64());
    one.post("/v1/acquire", &json!({ "name": "job" }))
        .is_problem(409, "held");
    let both = json!({ "name": "job", "lease": LEASE, "token": first["token"] });
    let old = one.post("/v1/extend", &json!({ "leases": [both] })).json();
    assert_eq!(
        old["leases"][0]["outcome"], "invalid",
        "the old token is void: {old}"
    );
    let released = one.post("/v1/release", &json!({ "name": "job", "lease": LEASE }));
    assert_eq!(released.status, 200, "{released:?}");
    assert_eq!(
        one.post("/v1/acquire", &json!({ "name": "job" })).status,
        200
    );
}

#[test]
fn a_post_that_a_proxy_doubles_is_in_progress_and_takes_nothing_over() {
    let [one, two] = two();
    let first = attempt(&one, "job", 2).json();
    attempt(&one, "job", 2).is_problem(409, "in_progress");
    attempt(&two, "job", 2).is_problem(409, "in_progress");
    attempt(&two, "job", 1).is_problem(409, "in_progress");
    let mine = json!({ "name": "job", "lease": LEASE, "token": first["token"] });
    let kept = two.post("/v1/extend", &json!({ "leases": [mine] })).json();
    assert_eq!(kept["leases"][0]["outcome"], "extended", "{kept}");
}

#[test]
fn a_post_that_is_repeated_after_the_release_acquires_for_nobody() {
    let [one, two] = two();
    attempt(&one, "job", 1);
    one.post("/v1/release", &json!({ "name": "job", "lease": LEASE }));
    attempt(&two, "job", 1).is_problem(410, "released");
    attempt(&one, "job", 7).is_problem(410, "released");
    assert_eq!(
        two.post("/v1/acquire", &json!({ "name": "job" })).status,
        200
    );
}

#[test]
fn a_release_that_overtakes_its_acquire_voids_it() {
    let [one, two] = two();
    one.post("/v1/release", &json!({ "name": "job", "lease": LEASE }))
        .is_problem(410, "lost");
    attempt(&two, "job", 1).is_problem(410, "released");
}

/// The replica that acquired it knows the value, which by then is not the lease's any more.
#[test]
fn a_lease_that_a_later_attempt_took_over_is_released_where_it_was_first_acquired() {
    let [one, two] = two();
    let mine = one.post("/v1/acquire", &json!({ "name": "job" })).json();
    let again = json!({ "name": "job", "lease": mine["lease"], "attempt": 1 });
    assert_eq!(two.post("/v1/acquire", &again).json()["repeated"], true);
    let mine = json!({ "name": "job", "lease": mine["lease"] });
    let released = one.post("/v1/release", &mine);
    assert_eq!(released.status, 200, "{released:?}");
    two.post("/v1/acquire", &again).is_problem(410, "released");
    assert_eq!(
        one.post("/v1/acquire", &json!({ "name": "job" })).status,
        200
    );
}

fn send_and_wait(replica: &Replica, name: &str, attempt: Option<u32>) -> TcpStream {
    let mut body = json!({ "name": name, "wait": "60s", "fair": true });
    if let Some(attempt) = attempt {
        body["lease"] = LEASE.into();
        body["attempt"] = attempt.into();
    }
    let body = body.to_string();
    let mut stream = TcpStream::connect(replica.address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /v1/acquire HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> String {
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_waiter_that_comes_back_at_another_replica_has_its_place() {
    let [one, two] = two();
    let held = one.post("/v1/acquire", &json!({ "name": "job" })).json();
    let first = send_and_wait(&one, "job", Some(1));
    until("one waits", || waiting(&one, "job") == 1);
    let behind = send_and_wait(&one, "job", None);
    until("two wait", || waiting(&one, "job") == 2);
    drop(first);
    // Its place is kept for one ticket lease, and nobody else has its ticket.
    let back = send_and_wait(&two, "job", Some(2));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(waiting(&two, "job"), 2, "the same ticket");
    one.post(
        "/v1/release",
        &json!({ "name": "job", "lease": held["lease"] }),
    );
    let back = answer(back);
    assert!(back.starts_with("HTTP/1.1 200"), "{back}");
    let released = two.post("/v1/release", &json!({ "name": "job", "lease": LEASE }));
    assert_eq!(released.status, 200, "{released:?}");
    let behind = answer(behind);
    assert!(behind.starts_with("HTTP/1.1 200"), "{behind}");
}

#[test]
fn a_wait_that_ended_is_told_its_place_in_the_queue_while_that_is_kept() {
    let [one, two] = two();
    for (name, more) in [("job", json!({})), ("pool", json!({ "slots": 1 }))] {
        let ask = |replica: &Replica, fields: Value| {
            let mut body = json!({ "name": name, "fair": true });
            for part in [&more, &fields] {
                body.as_object_mut()
                    .unwrap()
                    .extend(part.as_object().unwrap().clone());
            }
            replica.post("/v1/acquire", &body)
        };
        assert_eq!(ask(&one, json!({})).status, 200);
        let held = ask(&one, json!({ "lease": LEASE }));
        assert!(
            held.json().get("place").is_none(),
            "it did not wait: {held:?}"
        );
        let first = ask(&one, json!({ "lease": LEASE, "wait": "300ms" }));
        first.is_problem(409, "held");
        assert_eq!(first.json()["place"], 1, "{first:?}");
        assert!(first.json()["since_ms"].is_u64(), "{first:?}");
        let other = format!("{:032x}", 7);
        let second = ask(&two, json!({ "lease": other, "wait": "300ms" }));
        assert_eq!(second.json()["place"], 2, "{second:?}");
    }
    let document = one.get("/openapi.json").json();
    let problem = &document["components"]["schemas"]["Problem"]["properties"];
    for field in ["place", "since_ms"] {
        assert!(problem[field].is_object(), "{field}");
    }
}

/// A replica that was told to stop went on until each wait was over.
#[test]
fn who_waits_at_a_replica_that_drains_is_told_so_and_keeps_its_place() {
    let [one, two] = two();
    let held = two.post("/v1/acquire", &json!({ "name": "job" })).json();
    let first = send_and_wait(&one, "job", Some(1));
    until("one waits", || waiting(&two, "job") == 1);
    let nobody = send_and_wait(&one, "job", None);
    until("two wait", || waiting(&two, "job") == 2);
    let behind = send_and_wait(&two, "job", None);
    until("three wait", || waiting(&two, "job") == 3);
    let start = Instant::now();
    drop(one);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    for told in [first, nobody] {
        let told = answer(told);
        assert!(told.starts_with("HTTP/1.1 503"), "{told}");
        assert!(told.contains("\"code\":\"draining\""), "{told}");
    }
    let again = send_and_wait(&two, "job", Some(2));
    until("the place was kept, and the other's not", || {
        waiting(&two, "job") == 2
    });
    two.post(
        "/v1/release",
        &json!({ "name": "job", "lease": held["lease"] }),
    );
    let again = answer(again);
    assert!(again.starts_with("HTTP/1.1 200"), "{again}");
    drop(behind);
}

#[test]
fn a_later_attempt_ends_the_one_that_waits_here() {
    let [one, _] = two();
    one.post("/v1/acquire", &json!({ "name": "job" }));
    let first = send_and_wait(&one, "job", Some(1));
    until("one waits", || waiting(&one, "job") == 1);
    let second = send_and_wait(&one, "job", Some(2));
    assert!(answer(first).contains("superseded"));
    until("one waits", || waiting(&one, "job") == 1);
    drop(second);
}

/// The waiter's connection is half open: its replica does not see that nobody reads any more.
#[test]
fn a_grant_that_an_earlier_attempt_got_while_waiting_is_taken_over() {
    let [one, two] = two();
    let held = one.post("/v1/acquire", &json!({ "name": "job" })).json();
    let _half_open = send_and_wait(&one, "job", Some(1));
    until("one waits", || waiting(&one, "job") == 1);
    let second = send_and_wait(&two, "job", Some(2));
    one.post(
        "/v1/release",
        &json!({ "name": "job", "lease": held["lease"] }),
    );
    let second = answer(second);
    assert!(second.starts_with("HTTP/1.1 200"), "{second}");
}

#[test]
fn a_grant_whose_answer_cannot_be_sent_is_released() {
    let [one, _] = two();
    let behind = ["", "\r\n", "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n"];
    for round in 0..30 {
        let held = one.post("/v1/acquire", &json!({ "name": "job" })).json();
        let mut gone = send_and_wait(&one, "job", (round % 2 == 0).then_some(round + 1));
        let behind = behind[round as usize % behind.len()];
        gone.write_all(behind.as_bytes()).unwrap();
        until("one waits", || waiting(&one, "job") == 1);
        drop(gone);
        one.post(
            "/v1/release",
            &json!({ "name": "job", "lease": held["lease"] }),
        );
        until("free again", || {
            let next = one.post("/v1/acquire", &json!({ "name": "job", "wait": "10s" }));
            assert_eq!(next.status, 200, "{next:?}");
            let lease = next.json()["lease"].clone();
            one.post("/v1/release", &json!({ "name": "job", "lease": lease }));
            waiting(&one, "job") == 0
        });
    }
}

#[test]
fn several_names_are_acquired_all_or_none_and_released_one_by_one() {
    let [one, two] = two();
    let held = one.post("/v1/acquire", &json!({ "name": "b" })).json();
    let all = json!({ "names": ["c", "a", "b"], "lease": LEASE, "attempt": 1 });
    one.post("/v1/acquire", &all).is_problem(409, "held");
    until("a is free", || {
        one.get("/v1/locks?name=a").json()["holder"].is_null()
    });
    one.post(
        "/v1/release",
        &json!({ "name": "b", "lease": held["lease"] }),
    );
    let mine = one.post(
        "/v1/acquire",
        &json!({ "names": ["c", "a", "b"], "lease": LEASE, "attempt": 2 }),
    );
    assert_eq!(mine.status, 200, "{mine:?}");
    let names: Vec<_> = mine.json()["leases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert_eq!(names, ["a", "b", "c"]);
    let again = two.post(
        "/v1/acquire",
        &json!({ "names": ["c", "a", "b"], "lease": LEASE, "attempt": 3 }),
    );
    assert_eq!(
        (again.status, &again.json()["repeated"]),
        (200, &json!(true)),
        "{again:?}"
    );
    for name in ["a", "b", "c"] {
        let released = two.post("/v1/release", &json!({ "name": name, "lease": LEASE }));
        assert_eq!(released.status, 200, "{released:?}");
    }
}

#[test]
fn a_slot_is_one_of_so_many_and_a_repeat_gets_the_same() {
    let [one, two] = two();
    let ask = |replica: &Replica, body: Value| replica.post("/v1/acquire", &body);
    let first = ask(&one, json!({ "name": "pool", "slots": 2, "lease": LEASE }));
    assert_eq!(first.status, 200, "{first:?}");
    let second = ask(&one, json!({ "name": "pool", "slots": 2 })).json();
    assert_ne!(first.json()["slot"], second["slot"]);
    ask(&one, json!({ "name": "pool", "slots": 2 })).is_problem(409, "held");
    let again = ask(
        &two,
        json!({ "name": "pool", "slots": 2, "lease": LEASE, "attempt": 2 }),
    );
    assert_eq!(again.json()["slot"], first.json()["slot"], "{again:?}");
    let name = again.json()["name"].clone();
    let released = one.post("/v1/release", &json!({ "name": name, "lease": LEASE }));
    assert_eq!(released.status, 200, "{released:?}");
}

#[test]
fn a_lease_is_extended_no_longer_than_it_may_be_held() {
    let [one, _] = two();
    let mine = one
        .post(
            "/v1/acquire",
            &json!({ "name": "job", "ttl": "1s", "max_hold": "2s" }),
        )
        .json();
    let lease = json!({ "name": "job", "lease": mine["lease"], "token": mine["token"] });
    let mut last = Value::Null;
    until("no longer extended", || {
        last = one
            .post("/v1/extend", &json!({ "leases": [lease], "ttl": "1s" }))
            .json();
        last["leases"][0]["outcome"] != "extended"
    });
    assert_eq!(last["leases"][0]["outcome"], "lost", "{last}");
}

/// The first TTL was granted whole, and only extensions were cut.
#[test]
fn a_lease_is_granted_for_no_longer_than_it_may_be_held() {
    let [one, two] = two();
    let ask = |replica: &Replica, attempt: u32| {
        let body = json!({
            "name": "job", "lease": LEASE, "attempt": attempt, "ttl": "20s", "max_hold": "9s",
        });
        let granted = replica.post("/v1/acquire", &body).json();
        granted["valid_for_ms"].as_u64().unwrap()
    };
    assert!(ask(&one, 1) <= 9_000);
    assert!(ask(&two, 2) <= 9_000, "nor when it is taken over");
    let held = one.get("/v1/locks?name=job").json()["holder"].clone();
    assert!(held["expires_in_ms"].as_u64() <= Some(9_000), "{held}");
}

/// The nodes stored a number that they could not read again: the holder's label was its lease id, and it could be
/// neither extended nor released.
#[test]
fn a_longest_hold_time_that_cannot_be_stored_is_refused() {
    let [one, _] = two();
    for time in ["600000000years", "11years", "999us"] {
        let body = json!({ "name": "job", "lease": LEASE, "ttl": "20s", "max_hold": time });
        one.post("/v1/acquire", &body).is_problem(422, "invalid");
    }
    let body = json!({ "name": "job", "lease": LEASE, "ttl": "20s", "max_hold": "10years" });
    assert_eq!(one.post("/v1/acquire", &body).status, 200);
    let held = one.get("/v1/locks?name=job").text;
    assert!(!held.contains(LEASE), "{held}");
    let released = one.post("/v1/release", &json!({ "name": "job", "lease": LEASE }));
    assert_eq!(released.status, 200, "{released:?}");
}

#[test]
fn the_lease_id_of_a_holder_is_shown_to_nobody() {
    let [one, _] = two();
    let body = json!({ "name": "job", "lease": LEASE, "owner": "web-3", "meta": "invoice 42" });
    assert_eq!(one.post("/v1/acquire", &body).status, 200);
    let seen = [
        one.get("/v1/locks?name=job").text,
        one.get("/v1/locks").text,
        one.post("/v1/acquire", &json!({ "name": "job" })).text,
        one.get("/metrics").text,
    ];
    for text in &seen {
        assert!(
            !text.contains(LEASE) && !text.contains("0b0c0d0e0f"),
            "{text}"
        );
    }
    assert!(seen[0].contains("web-3; invoice 42"), "{}", seen[0]);
}

/// Each of them asked the nodes once a second whether another attempt of its lease had the lock.
#[test]
fn those_who_wait_under_lease_ids_of_their_own_look_together() {
    const WAITERS: u128 = 60;
    let server = fencepost_tests::RedisServer::start();
    let url = server.url();
    let replica = Replica::start(Options::new(), async move || {
        let builder = Client::builder().url(url).replica();
        builder.connect().await.unwrap()
    });
    let held = replica.post("/v1/acquire", &json!({ "name": "job", "ttl": "60s" }));
    assert_eq!(held.status, 200, "{held:?}");
    let mut waiters = Vec::new();
    for lease in 0..WAITERS {
        let body = json!({
            "name": "job", "ttl": "60s", "wait": "40s", "lease": format!("{lease:032x}"),
        })
        .to_string();
        let mut stream = TcpStream::connect(replica.address).unwrap();
        write!(
            stream,
            "POST /v1/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        waiters.push(stream);
    }
    until("all wait", || waiting(&replica, "job") == json!(WAITERS));
    let scripts = || -> u64 {
        let stats = server.cli(&["INFO", "commandstats"]);
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.unwrap().split(',').next().unwrap().parse().unwrap()
    };
    let before = scripts();
    std::thread::sleep(Duration::from_secs(3));
    let sent = scripts() - before;
    assert!(sent < 60, "{sent} scripts in three seconds");
}
