//! A node that lost or replaced its data does not vote, however that came about: the restarted server
//! that says `appendfsync always`, a failover and back, FLUSHALL, and clients with another node list.
//!
//! In each test the first client holds the lock on two of three nodes, one of these two forgets, and a
//! second client must not be granted while the first is valid.

use std::time::Duration;

use fencepost::{Client, Lease, RestartPolicy};
use fencepost_tests::{Cluster, RedisServer, eventually, until};

const MAX_TTL: Duration = Duration::from_secs(8);
const SOON: Duration = Duration::from_secs(30);

async fn delayed(urls: &str) -> Client {
    let builder = Client::builder().url(urls).max_ttl(MAX_TTL);
    let builder = builder.restart_policy(RestartPolicy::Delay);
    let client = builder.connect().await.unwrap();
    until("a lock can be acquired", SOON, async || {
        match client.try_lock("warm-up").ttl(MAX_TTL).renew(false).await {
            Ok(lease) => lease.release().await.is_ok(),
            Err(_) => false,
        }
    })
    .await;
    client
}

/// Three servers, two clients that are connected, and a lease of the first on nodes 0 and 1 alone.
async fn held_on_two() -> (Cluster, Client, Lease) {
    let cluster = Cluster::start(3);
    let first = delayed(&cluster.urls()).await;
    let second = delayed(&cluster.urls()).await;
    let lease = first
        .try_lock("job")
        .ttl(MAX_TTL)
        .renew(false)
        .await
        .unwrap();
    cluster.all_have("job").await;
    // As if its reply had been lost on the way.
    cluster.servers[2].cli(&["DEL", "job"]);
    (cluster, second, lease)
}

/// The second client is refused for as long as the first is valid.
async fn excluded(second: &Client, lease: &Lease) {
    let mut tries = 0;
    while lease.is_valid() {
        if let Ok(other) = second.try_lock("job").ttl(MAX_TTL).renew(false).await {
            assert!(!lease.is_valid(), "two holders: {lease:?} {other:?}");
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(tries > 10, "the first was not held for long enough to tell");
}

#[tokio::test]
async fn a_restart_with_appendfsync_always_is_no_proof_that_nothing_was_lost() {
    let (mut cluster, _, lease) = held_on_two().await;
    cluster.servers[1].restart_args(&["--appendonly", "yes", "--appendfsync", "always"]);
    let builder = Client::builder().url(cluster.urls()).max_ttl(MAX_TTL);
    let builder = builder.restart_policy(RestartPolicy::Delay);
    let third = builder.build().unwrap();
    excluded(&third, &lease).await;
}

#[tokio::test]
async fn a_failover_and_back_without_a_restart_is_seen() {
    let (cluster, second, lease) = held_on_two().await;
    let other = RedisServer::start();
    other.cli(&["SET", "some", "thing"]);
    let port = other.port().to_string();
    cluster.servers[1].cli(&["REPLICAOF", "127.0.0.1", &port]);
    eventually("its data are replaced", SOON, || {
        cluster.servers[1].cli(&["EXISTS", "some"]) == "1"
    });
    cluster.servers[1].cli(&["REPLICAOF", "NO", "ONE"]);
    excluded(&second, &lease).await;
}

#[tokio::test]
async fn a_flush_while_connected_is_seen() {
    let (cluster, second, lease) = held_on_two().await;
    cluster.servers[1].cli(&["FLUSHALL"]);
    excluded(&second, &lease).await;
}

#[tokio::test]
async fn clients_with_another_node_list_are_refused() {
    // Before the others, so that they have been up for long enough to vote.
    let more = Cluster::start(2);
    let (cluster, _, lease) = held_on_two().await;
    let urls = format!("{},{}", cluster.urls(), more.urls());
    let builder = Client::builder().url(urls).max_ttl(MAX_TTL);
    let builder = builder.restart_policy(RestartPolicy::Delay);
    let third = builder.build().unwrap();
    excluded(&third, &lease).await;
}
