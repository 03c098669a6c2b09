//! A steal takes locks, and nothing else: never what an application keeps, and never a free lock.

use fencepost_server::Options;
use fencepost_tests::{Cluster, RedisServer};
use serde_json::{Value, json};

use crate::service::Replica;

fn over(urls: String) -> Replica {
    Replica::start(Options::new(), async move || {
        let builder = fencepost::Client::builder().url(urls);
        let builder = builder.restart_policy(fencepost::RestartPolicy::Trust);
        builder.connect().await.unwrap()
    })
}

fn steal(service: &Replica, more: &Value) -> crate::service::Reply {
    let mut body = json!({ "name": "appdata", "reason": "it hangs" });
    let fields = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(fields);
    service.post("/v1/steal", &body)
}

fn stolen(service: &Replica) -> bool {
    let text = service.get("/metrics").text;
    text.lines()
        .any(|line| line.starts_with("fencepost_service_steals_total") && !line.ends_with(" 0"))
}

/// It replaced any string of the server, and showed what it had replaced.
#[test]
fn what_fencepost_did_not_write_is_neither_overwritten_nor_shown_unless_told_so() {
    let server = RedisServer::start();
    let service = over(server.url());
    server.cli(&["SET", "appdata", "precious"]);
    let refused = steal(&service, &json!({}));
    refused.is_problem(409, "not_a_lock");
    assert!(!refused.text.contains("precious"), "{refused:?}");
    assert_eq!(server.cli(&["GET", "appdata"]), "precious");
    assert!(!stolen(&service), "it is not counted");
    let taken = steal(&service, &json!({ "overwrite_foreign": true }));
    assert_eq!(taken.status, 200, "{taken:?}");
    assert!(!taken.text.contains("precious"), "{taken:?}");
    assert_ne!(server.cli(&["GET", "appdata"]), "precious");
    assert!(stolen(&service));
}

#[test]
fn one_node_that_has_something_else_there_is_enough_to_refuse() {
    let cluster = Cluster::start(3);
    let service = over(cluster.urls());
    let held = service.post("/v1/acquire", &json!({ "name": "appdata" }));
    assert_eq!(held.status, 200, "{held:?}");
    cluster.servers[2].cli(&["SET", "appdata", "precious"]);
    let refused = steal(&service, &json!({}));
    refused.is_problem(409, "not_a_lock");
    let named = refused.json()["nodes"].clone();
    assert_eq!(named.as_array().unwrap().len(), 1, "{refused:?}");
    assert!(!refused.text.contains("precious"), "{refused:?}");
    assert_eq!(cluster.servers[2].cli(&["GET", "appdata"]), "precious");
}

#[test]
fn a_free_lock_is_not_stolen() {
    let service = Replica::in_memory(Options::new());
    steal(&service, &json!({})).is_problem(409, "not_held");
    assert!(!stolen(&service), "it is not counted");
    let name = service.get("/v1/locks?name=appdata").json();
    assert!(name["holder"].is_null(), "{name}");
    let held = service.post("/v1/acquire", &json!({ "name": "appdata", "owner": "me" }));
    assert_eq!(held.status, 200, "{held:?}");
    let taken = steal(&service, &json!({ "owner": "op" }));
    assert_eq!(taken.json()["stolen_from"], "me", "{taken:?}");
}

/// It was 503, as if too few nodes had answered.
#[test]
fn a_lease_id_that_was_released_steals_nothing() {
    let service = Replica::in_memory(Options::new());
    let id = "0af7651916cd43dd8448eb211c80319c";
    service.post("/v1/acquire", &json!({ "name": "appdata", "lease": id }));
    let lease = json!({ "name": "appdata", "lease": id });
    assert_eq!(service.post("/v1/release", &lease).status, 200);
    service.post("/v1/acquire", &json!({ "name": "appdata" }));
    steal(&service, &json!({ "lease": id })).is_problem(410, "released");
}
