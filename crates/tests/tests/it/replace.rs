//! A cluster grows from three to five servers under load, with one of the three dead: nobody is granted
//! what a client of the old list may still hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fencepost::{Builder, Client, InitOptions, RestartPolicy};
use fencepost_tests::{Cluster, RedisServer, until};

const MAX_TTL: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(30);
/// Where a server keeps its marker.
const KEY: &str = "fencepost:marker";

fn builder(urls: &str) -> Builder {
    let builder = Client::builder().url(urls).max_ttl(MAX_TTL);
    builder.restart_policy(RestartPolicy::Delay)
}

/// Acquires and releases until it is stopped, and is never let in while another is.
async fn work(client: Client, is_held: Arc<AtomicBool>, is_over: Arc<AtomicBool>) -> usize {
    let mut turns = 0;
    while !is_over.load(Ordering::SeqCst) {
        if let Ok(lease) = client.try_lock("job").ttl(MAX_TTL).renew(false).await {
            assert!(!is_held.swap(true, Ordering::SeqCst), "two holders");
            tokio::time::sleep(Duration::from_millis(2)).await;
            assert!(lease.is_valid(), "too slow to tell");
            is_held.store(false, Ordering::SeqCst);
            let _ = lease.release().await;
            turns += 1;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    turns
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_grows_from_three_to_five_under_load_with_a_dead_node() {
    let mut cluster = Cluster::start(6);
    let urls: Vec<_> = cluster.servers.iter().map(RedisServer::url).collect();
    let old = urls[..3].join(",");
    let new = [&urls[..2], &urls[3..]].concat().join(",");
    let fresh = InitOptions::new().fresh(true);
    builder(&old).init(fresh).await.unwrap();
    let before = builder(&old).connect().await.unwrap();
    let (is_held, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let of_old = work(before.clone(), Arc::clone(&is_held), Arc::clone(&is_over));
    let of_old = tokio::spawn(of_old);
    let long = before.lock("long").ttl(MAX_TTL).await.unwrap();
    cluster.servers[2].kill();

    // A majority of the old ones has to agree.
    let refused = InitOptions::new().replace(urls[3..].join(","));
    assert!(builder(&new).init(refused).await.is_err());
    let start = Instant::now();
    let replaced = InitOptions::new().replace(&old);
    builder(&new).init(replaced).await.unwrap();
    assert!(start.elapsed() >= MAX_TTL, "{:?}", start.elapsed());

    let after = builder(&new).connect().await.unwrap();
    until("the new cluster votes", SOON, async || {
        match after.try_lock("long").ttl(MAX_TTL).renew(false).await {
            Ok(lease) => {
                assert!(!long.is_valid(), "two holders");
                lease.release().await.is_ok()
            }
            Err(_) => false,
        }
    })
    .await;
    println!("without a quorum for {:?}", start.elapsed());
    let of_new = work(after, Arc::clone(&is_held), Arc::clone(&is_over));
    let of_new = tokio::spawn(of_new);
    tokio::time::sleep(Duration::from_secs(1)).await;
    is_over.store(true, Ordering::SeqCst);
    assert!(of_old.await.unwrap() > 0 && of_new.await.unwrap() > 0);
    // The dead one comes back with nothing, and whoever still has the old list is refused.
    cluster.servers[2].restart();
    let error = builder(&old).connect().await.unwrap_err().to_string();
    assert!(error.contains(&urls[4]), "{error}");
}

/// A closed node that loses its data is taken back into the old cluster by a client that cannot see the others.
/// The replacement did not look again after its wait, and opened while the old cluster could vote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_waits_anew_for_nodes_that_came_back_into_the_old_cluster() {
    let cluster = Cluster::start(5);
    let urls: Vec<_> = cluster.servers.iter().map(RedisServer::url).collect();
    let (old, new) = (urls[..3].join(","), urls.join(","));
    let fresh = InitOptions::new().fresh(true);
    builder(&old).init(fresh).await.unwrap();
    let voting = &cluster.servers[..2];
    let markers: Vec<_> = voting
        .iter()
        .map(|server| server.cli(&["GET", KEY]))
        .collect();
    let replaced = InitOptions::new().replace(&old);
    let replaced = tokio::spawn(builder(&new).init(replaced));
    until("the old cluster is closed", SOON, async || {
        let is_closed = |server: &RedisServer| server.cli(&["GET", KEY]).contains("state closing");
        voting.iter().all(is_closed)
    })
    .await;
    tokio::time::sleep(MAX_TTL / 2).await;
    for (server, marker) in voting.iter().zip(&markers) {
        server.cli(&["SET", KEY, &format!("{marker}\n")]);
    }
    let came_back = Instant::now();
    replaced.await.unwrap().unwrap();
    let waited = came_back.elapsed();
    assert!(waited >= MAX_TTL, "{waited:?}");
}

/// A replacement that could not succeed closed the old cluster first: its jobs lost their locks, and nobody could
/// acquire one until another replacement.
#[tokio::test]
async fn a_replacement_that_must_fail_closes_nothing() {
    let mut cluster = Cluster::start(5);
    let urls: Vec<_> = cluster.servers.iter().map(RedisServer::url).collect();
    let old = urls[..3].join(",");
    let fresh = || InitOptions::new().fresh(true);
    builder(&old).init(fresh()).await.unwrap();
    builder(&urls[3..].join(",")).init(fresh()).await.unwrap();
    let client = builder(&old).connect().await.unwrap();
    let lease = client.lock("job").ttl(MAX_TTL).await.unwrap();
    cluster.servers[2].kill();
    let of_another = format!("{},{},{}", urls[0], urls[1], urls[4]);
    for (new, culprit) in [(&old, &urls[2]), (&of_another, &urls[3])] {
        let replaced = InitOptions::new().replace(&old);
        let error = builder(new).init(replaced).await.unwrap_err().to_string();
        assert!(error.contains(culprit), "{error}");
        for server in &cluster.servers[..2] {
            let marker = server.cli(&["GET", KEY]);
            assert!(marker.contains("state active"), "{marker}");
        }
        assert!(lease.is_valid());
    }
    drop(client.try_lock("other").ttl(MAX_TTL).await.unwrap());
}

#[tokio::test]
async fn a_replacement_that_fails_after_it_closed_the_old_cluster_says_what_to_type() {
    let mut cluster = Cluster::start(4);
    let urls: Vec<_> = cluster.servers.iter().map(RedisServer::url).collect();
    let (old, new) = (urls[..3].join(","), urls.join(","));
    let fresh = InitOptions::new().fresh(true);
    builder(&old).init(fresh).await.unwrap();
    let replaced = || InitOptions::new().replace(&old);
    let failing = tokio::spawn(builder(&new).init(replaced()));
    until("the old cluster is closed", SOON, async || {
        cluster.servers[0]
            .cli(&["GET", KEY])
            .contains("state closing")
    })
    .await;
    cluster.servers[3].kill();
    let error = failing.await.unwrap().unwrap_err();
    let said = error.to_string();
    assert!(said.contains("the old cluster is closed"), "{said}");
    assert!(said.contains("run the same command again"), "{said}");
    assert_eq!(error.nodes().len(), 4, "{said}");
    cluster.servers[3].restart();
    builder(&new).init(replaced()).await.unwrap();
}
