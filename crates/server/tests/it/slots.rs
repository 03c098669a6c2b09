//! Slots are used by the name that was asked for.

use fencepost_server::Options;
use serde_json::json;

use crate::service::Replica;

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
