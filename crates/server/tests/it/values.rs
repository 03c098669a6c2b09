//! What nodes store for a holder is enough to release its lock: no answer shows it, whoever stored it.

use fencepost::Client;
use fencepost_server::Options;
use fencepost_tests::RedisServer;
use serde_json::{Value, json};

use crate::service::Replica;

const REDSYNC: &str = "bXlfcmFuZG9tX3ZhbHVl";
const REDISSON: &str = "6f0829ed-bfd3-4e6f-bba3-6f3d66cd176c";
const SESSION: &str = r#"{"cookie":"s3cr3t"}"#;

/// Another library's value, an application's and Redisson's appeared as the owner's label.
#[test]
fn the_value_of_another_program_is_shown_to_nobody() {
    let server = RedisServer::start();
    let url = server.url();
    let replica = Replica::start(Options::new(), async move || {
        let builder = Client::builder().url(url).replica();
        builder.connect().await.unwrap()
    });
    server.cli(&["SET", "redsync", REDSYNC, "PX", "60000"]);
    server.cli(&["SET", "sess:1", SESSION]);
    server.cli(&["HSET", "redisson", &format!("{REDISSON}:54"), "1"]);
    server.cli(&["PEXPIRE", "redisson", "60000"]);
    // A reentrant lock of ours: its value is no label either.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let local = Client::builder().url(server.url());
    let lease = runtime.block_on(async {
        let client = local.connect().await.unwrap();
        let lease = client.reentrant("ours").lock().await.unwrap();
        (lease, client)
    });
    let mine = server.cli(&["HKEYS", "ours"]);
    let mine = mine.trim().split(':').next().unwrap().to_owned();
    assert_eq!(mine.len(), REDISSON.len(), "{mine}");

    let mut seen = vec![
        replica.get("/v1/locks").text,
        replica.get("/v1/locks?prefix=").text,
        replica.get("/metrics").text,
    ];
    for (name, plain) in [
        ("redsync", true),
        ("sess:1", true),
        ("redisson", false),
        ("ours", false),
    ] {
        for wait in ["0s", "300ms"] {
            let held = replica.post("/v1/acquire", &json!({ "name": name, "wait": wait }));
            // A plain lock is never a hash: nobody can say by whom that is held.
            let expected = if plain { 409 } else { 503 };
            assert_eq!(held.status, expected, "{held:?}");
            seen.push(held.text);
        }
        let own = json!({ "name": name, "lease": "000102030405060708090a0b0c0d0e0f" });
        seen.push(replica.post("/v1/release", &own).text);
        seen.push(replica.get(&format!("/v1/locks?name={name}")).text);
        seen.push(replica.get(&format!("/v1/events?name={name}&after=0")).text);
    }
    for text in &seen {
        for secret in [REDSYNC, REDISSON, "s3cr3t", &mine] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    let held: Value = replica
        .post("/v1/acquire", &json!({ "name": "redsync" }))
        .json();
    let holder = held["holder"].as_str().unwrap();
    assert!(
        holder.starts_with("a client of another library"),
        "{holder}"
    );
    assert!(held["detail"].as_str().unwrap().contains(holder), "{held}");
    drop(lease);
}
