//! Slots are used by the name that was asked for.

use std::time::Duration;

use fencepost_server::Options;
use serde_json::json;

use crate::client::replicas;
use crate::quorum::replica;
use crate::service::{Replica, Reply};

/// The release said that it had expired or was released, while it was held.
#[test]
fn a_slot_is_released_and_extended_by_the_name_that_was_asked_for() {
    let service = Replica::in_memory(Options::new());
    for name in ["ci/pool", "{tenant}:pool"] {
        let ask = json!({ "name": name, "slots": 2 });
        let first = service.post("/v1/acquire", &ask).json();
        let second = service.post("/v1/acquire", &ask).json();
        service.post("/v1/acquire", &ask).is_problem(409, "held");
        let lease = json!({
            "name": name, "slot": second["slot"], "lease": second["lease"], "token": second["token"],
        });
        let extended = service.post("/v1/extend", &json!({ "leases": [lease] }));
        let extended = extended.json()["leases"][0].clone();
        assert_eq!(extended["outcome"], "extended", "{extended}");
        let released = service.post(
            "/v1/release",
            &json!({ "name": name, "lease": first["lease"] }),
        );
        assert_eq!(released.status, 200, "{released:?}");
        let named = json!({ "name": name, "slot": second["slot"], "lease": second["lease"] });
        let released = service.post("/v1/release", &named);
        assert_eq!(released.status, 200, "{released:?}");
        service.post("/v1/release", &named).is_problem(410, "lost");
        for _ in 0..2 {
            let free = service.post("/v1/acquire", &ask);
            assert_eq!(free.status, 200, "both are free: {free:?}");
        }
    }
}

const LEASE: &str = "000102030405060708090a0b0c0d0e0f";

fn attempt(replica: &Replica, attempt: u32) -> Reply {
    let body = json!({ "name": "pool", "slots": 4, "lease": LEASE, "attempt": attempt });
    replica.post("/v1/acquire", &body)
}

/// How many of the four slots are free.
fn free(replica: &Replica) -> usize {
    let ask = json!({ "name": "pool", "slots": 4 });
    let taken = std::iter::repeat_with(|| replica.post("/v1/acquire", &ask));
    let taken: Vec<_> = taken.take_while(|reply| reply.status == 200).collect();
    for one in &taken {
        let slot = one.json();
        let release = json!({ "name": "pool", "slot": slot["slot"], "lease": slot["lease"] });
        assert_eq!(replica.post("/v1/release", &release).status, 200);
    }
    taken.len()
}

/// Each got a slot of its own as long as one was free: nobody knew of the first one.
#[test]
fn a_repeated_acquire_of_a_slot_gets_its_own_and_no_second_one_while_others_are_free() {
    let [one, two] = replicas("slots-repeated");
    gets_its_own_and_no_second_one(one, two);
    let cluster = fencepost_tests::Cluster::start(3);
    gets_its_own_and_no_second_one(replica(&cluster), replica(&cluster));
}

fn gets_its_own_and_no_second_one(one: Replica, two: Replica) {
    let first = attempt(&one, 1).json();
    attempt(&one, 1).is_problem(409, "in_progress");
    attempt(&two, 1).is_problem(409, "in_progress");
    let again = attempt(&two, 2);
    assert_eq!(again.status, 200, "{again:?}");
    assert_eq!(again.json()["repeated"], true);
    assert_eq!(again.json()["slot"], first["slot"]);
    attempt(&one, 1).is_problem(409, "in_progress");
    assert_eq!(free(&one), 3);
}

/// Neither of them sees the other before it asks.
#[test]
fn two_copies_that_are_granted_at_the_same_time_do_not_keep_two_slots() {
    let [one, two] = replicas("slots-doubled");
    for round in 0..30_u32 {
        let lease = format!("{round:032x}");
        let body = |attempt: u32| json!({ "name": "pool", "slots": 4, "lease": lease, "attempt": attempt });
        // The same attempt, and two different ones.
        let second = 1 + round % 2;
        let replies = std::thread::scope(|scope| {
            let both = [(&one, 1), (&two, second)];
            let both = both.map(|(replica, attempt)| {
                let body = body(attempt);
                scope.spawn(move || replica.post("/v1/acquire", &body))
            });
            both.map(|reply| reply.join().unwrap())
        });
        let granted = replies.iter().filter(|reply| reply.status == 200).count();
        if second == 1 {
            assert!(granted <= 1, "{replies:?}");
        }
        fencepost_tests::eventually("one has it at most", Duration::from_secs(5), || {
            free(&one) >= 3
        });
        let release = json!({ "name": "pool", "slots": 4, "lease": lease });
        one.post("/v1/release", &release);
        fencepost_tests::eventually("all are free", Duration::from_secs(5), || free(&one) == 4);
    }
}

/// The other slots had no tombstone.
#[test]
fn a_copy_that_comes_after_the_release_acquires_no_slot_for_nobody() {
    for with in ["slot", "slots", "nothing", "name"] {
        let [one, two] = replicas(&format!("slots-late-{with}"));
        let mine = attempt(&one, 1).json();
        let mut release = json!({ "name": "pool", "lease": LEASE });
        match with {
            "slot" => release["slot"] = mine["slot"].clone(),
            "slots" => release["slots"] = 4.into(),
            "name" => release["name"] = mine["name"].clone(),
            _ => {}
        }
        let released = two.post("/v1/release", &release);
        assert_eq!(released.status, 200, "{with}: {released:?}");
        for number in [1, 2] {
            attempt(&two, number).is_problem(410, "released");
        }
        assert_eq!(free(&one), 4, "{with}");
        two.post("/v1/release", &release)
            .is_problem(410, "released");
    }
}

/// Only the slot that was given had a tombstone, and a late copy acquired another one for nobody. The model found it
/// (`slots-no-tombstone-once-over`).
#[test]
fn a_release_of_a_slot_that_has_expired_voids_late_copies_all_the_same() {
    let [one, two] = replicas("slots-expired");
    let short = json!({ "name": "pool", "slots": 4, "lease": LEASE, "attempt": 1, "ttl": "50ms" });
    let mine = one.post("/v1/acquire", &short).json();
    // Others get all slots, and one of them releases another than that: it is all that a copy can get.
    let next = json!({ "name": "pool", "slots": 4 });
    let mut others = Vec::new();
    fencepost_tests::eventually("it expires", Duration::from_secs(5), || {
        let reply = one.post("/v1/acquire", &next);
        others.extend((reply.status == 200).then(|| reply.json()));
        others.len() == 4
    });
    let gone = others.iter().find(|it| it["slot"] != mine["slot"]).unwrap();
    let release = json!({ "name": "pool", "slot": gone["slot"], "lease": gone["lease"] });
    assert_eq!(one.post("/v1/release", &release).status, 200);
    for replica in [&two, &one] {
        let release = json!({ "name": "pool", "slot": mine["slot"], "lease": LEASE });
        let over = replica.post("/v1/release", &release);
        assert_eq!(over.status, 410, "{over:?}");
        for number in [1, 2] {
            attempt(replica, number).is_problem(410, "released");
        }
    }
    assert_eq!(free(&one), 1);
}

#[test]
fn a_release_that_overtakes_the_acquire_of_a_slot_voids_it_if_it_says_of_how_many() {
    let [one, two] = replicas("slots-overtaken");
    let release = json!({ "name": "pool", "slots": 4, "lease": LEASE });
    one.post("/v1/release", &release).is_problem(410, "lost");
    attempt(&two, 1).is_problem(410, "released");
    let both = json!({ "name": "pool", "slots": 4, "slot": 1, "lease": LEASE });
    one.post("/v1/release", &both).is_problem(422, "invalid");
    let none = json!({ "name": "pool", "slots": 0, "lease": LEASE });
    one.post("/v1/release", &none).is_problem(422, "invalid");
}

#[test]
fn a_lease_that_is_not_found_is_told_how_a_slot_is_named() {
    let service = Replica::in_memory(Options::new());
    let ask = json!({ "name": "pool", "slots": 2 });
    let mine = service.post("/v1/acquire", &ask).json();
    let lease = json!({ "name": "pool", "lease": mine["lease"], "token": mine["token"] });
    let answer = service
        .post("/v1/extend", &json!({ "leases": [lease] }))
        .json();
    let detail = answer["leases"][0]["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("give its slot"), "{detail}");
}

#[test]
fn slots_are_listed_and_watched_by_the_name_that_was_asked_for() {
    let service = Replica::in_memory(Options::new());
    let since = |query: &str| {
        let answer = service.get(&format!("/v1/events?{query}&after=0"));
        answer.json()["cursor"].as_str().unwrap().to_owned()
    };
    let queries = ["prefix=ci/", "name=ci/pool"];
    let cursors = queries.map(since);
    let mine = service.post("/v1/acquire", &json!({ "name": "ci/pool", "slots": 2 }));
    assert_eq!(mine.status, 200, "{mine:?}");
    service.post("/v1/acquire", &json!({ "name": "other", "slots": 2 }));
    service.post("/v1/acquire", &json!({ "name": "ci/job" }));
    let listed = service.get("/v1/locks?prefix=ci/").json();
    let names = listed["locks"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["ci/job", mine.json()["name"].as_str().unwrap()],
        "{listed}"
    );
    for (query, cursor) in queries.iter().zip(cursors) {
        let news = service
            .get(&format!("/v1/events?{query}&after={cursor}&wait=10s"))
            .json();
        let events = news["events"].as_array().unwrap();
        let acquired = |event: &&serde_json::Value| {
            event["event"] == "acquired" && event["name"] == mine.json()["name"]
        };
        assert!(
            events.iter().any(|event| acquired(&event)),
            "{query}: {news}"
        );
    }
}
