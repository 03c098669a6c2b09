//! Any Redlock client in any language excludes us and is excluded by us, and an operator with
//! `redis-cli` sees who holds what.

use std::time::Duration;

use fencepost_tests::{Cluster, wait_until};

const TTL: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_key_set_by_hand_excludes_us_and_says_by_whom_and_for_how_long() {
    let cluster = Cluster::start(1);
    let locks = cluster.client().await;
    let server = &cluster.servers[0];
    assert_eq!(
        server.cli(&["SET", "job", "by-hand", "NX", "PX", "5000"]),
        "OK"
    );
    let error = locks
        .try_lock("job")
        .ttl(TTL)
        .renew(false)
        .await
        .unwrap_err();
    let holder = error.holder().unwrap_or_else(|| panic!("{error}"));
    assert_eq!(holder.owner.as_str(), "by-hand");
    assert!(holder.remaining.unwrap() <= Duration::from_secs(5));
    server.cli(&["DEL", "job"]);
    locks
        .try_lock("job")
        .ttl(TTL)
        .renew(false)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();

    server.cli(&["SET", "job", "for-ever"]);
    let error = locks
        .try_lock("job")
        .ttl(TTL)
        .renew(false)
        .await
        .unwrap_err();
    assert!(
        error.to_string().ends_with("held by for-ever (no expiry)"),
        "{error}"
    );
}

#[tokio::test]
async fn we_exclude_a_foreign_client_and_get_shows_our_label() {
    let cluster = Cluster::start(3);
    let locks = cluster
        .builder()
        .owner("web-3:4711")
        .connect()
        .await
        .unwrap();
    let lease = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    lease.extend().await.unwrap();
    for server in &cluster.servers {
        wait_until("held", TTL / 3, || server.cli(&["EXISTS", "job"]) == "1").await;
        assert_eq!(server.cli(&["SET", "job", "x", "NX", "PX", "5000"]), "");
        assert!(server.cli(&["GET", "job"]).ends_with(":web-3:4711"));
        let ttl: u128 = server.cli(&["PTTL", "job"]).parse().unwrap();
        assert!(ttl <= TTL.as_millis());
    }
    lease.release().await.unwrap();
    wait_until("free for others", TTL / 3, || {
        let set = |server: &fencepost_tests::RedisServer| {
            server.cli(&["SET", "job", "x", "NX", "PX", "5000"]) == "OK"
        };
        cluster.servers.iter().any(set)
    })
    .await;
}

#[tokio::test]
async fn readers_exclude_a_foreign_client_and_are_excluded_by_it() {
    let cluster = Cluster::start(1);
    let locks = cluster.client().await;
    let server = &cluster.servers[0];
    let shelf = locks.read_write("shelf");
    let set = || server.cli(&["SET", "shelf", "by-hand", "NX", "PX", "60000"]);
    let (one, other) = (shelf.read().await.unwrap(), shelf.read().await.unwrap());
    assert_eq!(set(), "");
    one.release().await.unwrap();
    assert_eq!(set(), "", "one reads still");
    other.release().await.unwrap();
    assert_eq!(server.cli(&["KEYS", "*"]), "fencepost:fences");
    assert_eq!(set(), "OK");
    let error = shelf.read().timeout(Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains("held by by-hand"), "{error}");
    server.cli(&["DEL", "shelf"]);
    // Who takes the key by force has the lock, and the readers are told.
    let reader = shelf.read().await.unwrap();
    server.cli(&["SET", "shelf", "by-force", "PX", "60000"]);
    assert!(reader.extend().await.unwrap_err().is_lost());
    assert!(reader.release().await.unwrap_err().is_lost());
    assert_eq!(server.cli(&["GET", "shelf"]), "by-force");
}

#[tokio::test]
async fn a_foreign_client_on_a_majority_excludes_us_and_on_a_minority_does_not() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let take = |i: usize| cluster.servers[i].cli(&["SET", "job", "other", "PX", "60000"]);
    take(0);
    locks
        .try_lock("job")
        .ttl(TTL)
        .renew(false)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    take(1);
    assert!(
        locks
            .try_lock("job")
            .ttl(TTL)
            .renew(false)
            .await
            .unwrap_err()
            .is_held()
    );
    // Nothing of the failed attempt stays on the third.
    wait_until("given back", TTL / 3, || {
        cluster.servers[2].cli(&["EXISTS", "job"]) == "0"
    })
    .await;
}

#[tokio::test]
async fn a_prefix_stands_before_the_keys() {
    let cluster = Cluster::start(1);
    let server = &cluster.servers[0];
    let locks = fencepost::Client::builder()
        .url(server.url())
        .prefix("app:")
        .connect()
        .await
        .unwrap();
    let lease = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    let stored = fencepost_tests::stored(lease.value(), lease.token());
    assert_eq!(server.cli(&["GET", "app:job"]), stored);
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    // Others at the same server see it, under the name with its prefix.
    let others = cluster.client().await;
    assert!(
        others
            .try_lock("app:job")
            .ttl(TTL)
            .renew(false)
            .await
            .unwrap_err()
            .is_held()
    );
    lease.release().await.unwrap();
    assert_eq!(locks.status("job").await.unwrap().holder, None);
}

/// Other clients write random bytes: shown as text they all looked alike.
#[tokio::test]
async fn a_value_that_is_no_text_is_shown_as_hex() {
    let cluster = Cluster::start(1);
    let locks = cluster.client().await;
    let set = r"return redis.call('SET', 'job', '\255\254a', 'PX', 30000)";
    cluster.servers[0].cli(&["EVAL", set, "0"]);
    let error = locks.try_lock("job").ttl(TTL).await.unwrap_err();
    assert!(error.to_string().contains("held by 0xfffe61"), "{error}");
    let status = locks.status("job").await.unwrap();
    assert!(format!("{status:?}").contains("0xfffe61"), "{status:?}");
}
