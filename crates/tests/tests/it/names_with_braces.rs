//! Every name that a client of another library can use is a name of ours, and the same key: also those
//! whose braces leave no room for a `{tag}`. They were refused once, with the advice to leave the braces
//! out, which is another key and excludes nobody.

use std::time::Duration;

use fencepost::{Client, NamePattern};
use fencepost_tests::{RedisServer, wait_until};

const NAMES: [&str; 7] = ["{t}", "t", "{}x", "x}", "a}b{c", "{}", "}{"];
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test]
async fn a_name_with_any_braces_is_the_key_that_other_clients_use() {
    let server = RedisServer::start();
    let locks = Client::connect(&server.url()).await.unwrap();
    for name in NAMES {
        assert_eq!(
            server.cli(&["SET", name, "peer", "NX", "PX", "60000"]),
            "OK"
        );
        let held = locks.try_lock(name).await.unwrap_err();
        assert_eq!(held.holder().unwrap().owner.as_str(), "peer", "{name}");
        server.cli(&["DEL", name]);
        let lease = locks.try_lock(name).await.unwrap();
        assert_eq!(
            server.cli(&["SET", name, "peer", "NX", "PX", "60000"]),
            "",
            "{name}"
        );
        lease.release().await.unwrap();
        assert_eq!(server.cli(&["EXISTS", name]), "0", "{name}");
    }
}

#[tokio::test]
async fn names_that_differ_in_braces_only_are_different_locks() {
    let server = RedisServer::start();
    let locks = Client::connect(&server.url()).await.unwrap();
    let mut leases = Vec::new();
    for name in NAMES {
        leases.push(locks.try_lock(name).await.unwrap());
    }
    let listing = locks.list(&NamePattern::all()).await.unwrap();
    let mut seen: Vec<_> = listing.locks.iter().map(|it| it.name.as_str()).collect();
    let mut all = NAMES.to_vec();
    seen.sort_unstable();
    all.sort_unstable();
    assert_eq!(seen, all);
    for name in NAMES {
        let waited = locks.lock(name).timeout(SHORT).await.unwrap_err();
        assert!(waited.is_timeout(), "{name}: {waited}");
    }
}

/// On a server that is told to be part of a Cluster, a script whose keys have several slots is refused.
#[tokio::test]
async fn all_keys_of_such_a_lock_share_its_hash_slot() {
    let cluster = RedisServer::start_args(&["--cluster-enabled", "yes"]);
    let slot = |key: &str| cluster.cli(&["CLUSTER", "KEYSLOT", key]);
    for name in NAMES {
        let server = RedisServer::start();
        let locks = Client::connect(&server.url()).await.unwrap();
        let lease = locks.try_lock(name).await.unwrap();
        let waits = tokio::spawn({
            let (locks, name) = (locks.clone(), name.to_owned());
            async move { locks.lock(name).await.map(drop) }
        });
        let side_keys = || {
            let keys = server.keys().into_iter();
            keys.filter(|key| key.contains(name)).collect::<Vec<_>>()
        };
        let limit = Duration::from_secs(10);
        wait_until("the waiter is in the queue", limit, || {
            side_keys().len() >= 3
        })
        .await;
        for key in side_keys() {
            assert_eq!(slot(&key), slot(name), "{key} beside {name}");
        }
        lease.release().await.unwrap();
        waits.await.unwrap().unwrap();
    }
}
