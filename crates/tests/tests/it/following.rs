//! A waiter that follows a release of its own client: what becomes of the release, and of the others, when
//! it does not go.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use fencepost::{Client, LockRequest};
use fencepost_tests::{Cluster, RedisServer, eventually, wait_until};
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(60);
/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);

/// Returns when so many wait for `job`.
async fn until_waiting(locks: &Client, count: usize) {
    let counted = async {
        while locks.status("job").await.unwrap().waiting != count {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LATE, counted).await.unwrap();
}

/// Polls a request until so many wait, and no longer.
async fn in_line(
    locks: &Client,
    count: usize,
    request: LockRequest,
) -> <LockRequest as IntoFuture>::IntoFuture {
    let mut request = request.into_future();
    tokio::select! {
        _ = &mut request => panic!("it is held"),
        () = until_waiting(locks, count) => {}
    }
    request
}

fn is_held(cluster: &Cluster) -> bool {
    let holds = |server: &RedisServer| server.cli(&["EXISTS", "job"]) == "1";
    cluster.servers.iter().any(holds)
}

/// The release was kept back for the attempt of the follower, which could not come: whoever drops a lease may do other work
/// on the only thread, or end the program.
#[tokio::test]
async fn a_lease_that_is_dropped_is_on_its_way_when_that_is_done() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let lease = locks.lock("job").ttl(TTL).await.unwrap();
    let _follower = in_line(&locks, 1, locks.lock("job")).await;
    drop(lease);
    // Without letting anything else run.
    eventually("nobody holds it", TTL / 3, || !is_held(&cluster));
}

/// It waited for its own look, a second: the nodes tell nobody of a client that follows its own release.
#[tokio::test]
async fn a_follower_that_nobody_polls_costs_the_next_a_moment() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let mut lease = locks.lock("job").await.unwrap();
    let begin = Instant::now();
    for _ in 0..8 {
        let follower = in_line(&locks, 1, locks.lock("job")).await;
        let next = in_line(&locks, 2, locks.lock("job")).await;
        lease.release().await.unwrap();
        lease = timeout(LATE, next).await.unwrap().unwrap();
        drop(follower);
        until_waiting(&locks, 0).await;
    }
    assert!(
        begin.elapsed() < Duration::from_secs(3),
        "{:?}",
        begin.elapsed()
    );
    lease.release().await.unwrap();
    wait_until("nothing is left", LATE, || cluster.leftovers().is_empty()).await;
}
