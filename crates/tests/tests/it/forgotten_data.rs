//! A node that lost or replaced its data does not vote, however that came about: the restarted server
//! that says `appendfsync always`, a failover and back, FLUSHALL, and clients with another node list.
//!
//! In each test the first client holds the lock on two of three nodes, one of these two forgets, and a
//! second client must not be granted while the first is valid.

use std::time::Duration;

use fencepost::{Client, InitOptions, Lease, RestartPolicy};
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

/// The extension sees the lock on one node, and looks alone cannot tell that another has forgotten it. It used to
/// release that one as well, before anybody was told, while the holder was promised the lock: the simulation found
/// it (seeds 2596 and 7521).
#[tokio::test]
async fn an_extension_that_fails_leaves_the_lock_to_whom_it_was_promised() {
    let (cluster, second, lease) = held_on_two().await;
    let deadline = lease.deadline();
    let detached = lease.detach().await.unwrap();
    cluster.servers[2].cli(&["DEL", "job"]);
    cluster.servers[1].cli(&["FLUSHALL"]);
    let error = second
        .extend_detached(&detached, MAX_TTL)
        .await
        .unwrap_err();
    assert!(error.is_no_quorum(), "{error}");
    let mut tries = 0;
    while let Err(error) = second.try_lock("job").ttl(MAX_TTL).renew(false).await {
        tries += 1;
        if std::time::Instant::now() >= deadline {
            return;
        }
        assert!(error.is_held() || error.is_no_quorum(), "{error}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let early = deadline.saturating_duration_since(std::time::Instant::now());
    assert!(early.is_zero() && tries > 10, "granted {early:?} too early");
}

/// Two of three nodes have forgotten it, and vote for nobody: they said "not held", and whoever asked was told that the
/// lock was lost.
#[tokio::test]
async fn an_extension_is_not_told_lost_by_nodes_that_have_forgotten_while_the_promise_stands() {
    let (cluster, second, lease) = held_on_two().await;
    let deadline = lease.deadline();
    let detached = lease.detach().await.unwrap();
    // As it was before: on all three.
    let value = cluster.servers[0].cli(&["GET", "job"]);
    cluster.servers[2].cli(&["SET", "job", &value, "PX", "60000"]);
    for server in &cluster.servers[1..] {
        server.cli(&["FLUSHALL"]);
    }
    // Before and after the second client has seen it by itself.
    for look in 0..5 {
        let error = second.extend_detached(&detached, MAX_TTL).await;
        let error = error.unwrap_err();
        assert!(std::time::Instant::now() < deadline, "too slow to tell");
        assert!(error.is_no_quorum(), "look {look}: {error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The default policy: a list of one or two nodes never looked whether others vote there, and two kept no marker.
async fn is_refused(cluster: &Cluster, lease: &Lease, urls: &str) {
    let client = Client::builder().url(urls).max_ttl(MAX_TTL);
    let client = client.build().unwrap();
    excluded(&client, lease).await;
    let error = client.try_lock("other").ttl(MAX_TTL).await.unwrap_err();
    let error = error.to_string();
    for server in &cluster.servers {
        assert!(error.contains(&server.url()), "{error}");
    }
    assert!(error.contains("this client uses"), "{error}");
}

#[tokio::test]
async fn a_client_of_one_of_the_nodes_is_refused() {
    let (cluster, _, lease) = held_on_two().await;
    is_refused(&cluster, &lease, &cluster.servers[2].url()).await;
}

#[tokio::test]
async fn a_client_of_one_of_the_nodes_and_another_is_refused() {
    let other = RedisServer::start();
    let (cluster, _, lease) = held_on_two().await;
    let urls = format!("{},{}", cluster.servers[2].url(), other.url());
    is_refused(&cluster, &lease, &urls).await;
}

#[tokio::test]
async fn a_client_of_two_of_the_nodes_is_refused() {
    let (cluster, _, lease) = held_on_two().await;
    cluster.servers[1].cli(&["DEL", "job"]);
    let urls = &cluster.servers[1..];
    let urls: Vec<_> = urls.iter().map(RedisServer::url).collect();
    is_refused(&cluster, &lease, &urls.join(",")).await;
}

#[tokio::test]
async fn a_client_of_one_server_that_becomes_one_of_three_is_refused_from_the_next_look_on() {
    let cluster = Cluster::start(3);
    let alone = Client::builder().url(cluster.servers[0].url());
    let alone = alone.max_ttl(MAX_TTL).connect().await.unwrap();
    alone
        .try_lock("job")
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let _three = delayed(&cluster.urls()).await;
    until("it is refused", SOON, async || {
        match alone.try_lock("job").ttl(MAX_TTL).await {
            Ok(lease) => lease.release().await.is_err(),
            Err(error) => error.to_string().contains(&cluster.servers[2].url()),
        }
    })
    .await;
    // Whoever says that nobody shall look is not looked after.
    let trusting = Client::builder().url(cluster.servers[0].url());
    let trusting = trusting.restart_policy(RestartPolicy::Trust);
    let trusting = trusting.max_ttl(MAX_TTL).connect().await.unwrap();
    drop(trusting.try_lock("other").await.unwrap());
}

/// By default clients of two servers kept no marker, and voted through the quarantine of one that `init` had made.
#[tokio::test]
async fn two_servers_that_have_both_forgotten_do_not_vote_at_once() {
    let cluster = Cluster::start(2);
    let by_default = || Client::builder().url(cluster.urls()).max_ttl(MAX_TTL);
    let made = by_default().init(InitOptions::new().fresh(true));
    made.await.unwrap();
    let first = by_default().build().unwrap();
    let mut lease = None;
    until("it is held", SOON, async || {
        let tried = first.try_lock("job").ttl(MAX_TTL).renew(false).await;
        lease = tried.ok();
        lease.is_some()
    })
    .await;
    for server in &cluster.servers {
        server.cli(&["FLUSHALL"]);
    }
    let second = by_default().build().unwrap();
    excluded(&second, &lease.unwrap()).await;
}

/// Each host has another server there, so clients of two hosts would both be granted a majority.
#[tokio::test]
async fn a_quorum_does_not_mix_addresses_of_this_machine_with_others() {
    for local in [
        "redis+unix:///run/redis.sock",
        "redis://localhost:6379",
        "redis://user:secret@127.1.2.3:7000/2",
        "rediss://[::1]:6379",
    ] {
        let urls = format!("redis://10.0.0.1,{local},redis://b.example:6379");
        let error = Client::builder()
            .url(&urls)
            .build()
            .unwrap_err()
            .to_string();
        assert!(error.contains("local to this machine"), "{local}: {error}");
        assert!(!error.contains("secret"), "{error}");
        drop(Client::builder().url(local).build().unwrap());
        let all_local = format!("{local},redis://127.0.0.1:1,redis://localhost:2");
        drop(Client::builder().url(all_local).build().unwrap());
    }
}

/// Not promised: the append-only file that a server was told to stop writing has the promise of durability in it, and
/// is read again when the server is started with it. What struck the promise is not in it.
#[tokio::test]
async fn an_append_only_file_that_was_off_for_a_while_brings_back_its_promise_and_makes_two_holders()
 {
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers = (0..3).map(|_| RedisServer::start_args(&durable)).collect();
    let mut cluster = Cluster { servers };
    let promised = InitOptions::new().fresh(true).durable(true);
    let builder = Client::builder().url(cluster.urls()).max_ttl(MAX_TTL);
    builder.init(promised).await.unwrap();
    let first = delayed(&cluster.urls()).await;
    cluster.servers[1].cli(&["CONFIG", "SET", "appendonly", "no"]);
    until("the promise is struck", SOON, async || {
        let marker = cluster.servers[1].cli(&["GET", "fencepost:marker"]);
        marker.contains("durable false")
    })
    .await;
    let mut lease = None;
    until("it is held", SOON, async || {
        let tried = first.try_lock("job").ttl(MAX_TTL).renew(false).await;
        lease = tried.ok();
        lease.is_some()
    })
    .await;
    cluster.all_have("job").await;
    cluster.servers[2].cli(&["DEL", "job"]);
    cluster.servers[1].restart_args(&durable);
    let second = Client::builder().url(cluster.urls()).max_ttl(MAX_TTL);
    let second = second.build().unwrap();
    until("it is granted again", MAX_TTL, async || {
        second.try_lock("job").ttl(MAX_TTL).await.is_ok()
    })
    .await;
    assert!(lease.is_some_and(|lease| lease.is_valid()), "too slow");
}
