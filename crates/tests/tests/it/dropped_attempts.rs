//! Any future may be dropped at any await: nothing of ours may be left behind.

use std::task::Poll;
use std::time::{Duration, Instant};

use fencepost_tests::{Cluster, wait_until};

const TTL: Duration = Duration::from_secs(60);

/// A number below `bound`; good enough to scatter moments.
fn random(bound: u64) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(Instant::now()) % bound
}

/// Polls a future until it has been woken so many times, and drops it. True unless it was done.
async fn dropped_after(wakes: u64, future: impl Future) -> bool {
    let mut future = Box::pin(future);
    let mut left = wakes;
    std::future::poll_fn(|cx| {
        if future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(false);
        }
        left = left.saturating_sub(1);
        match left {
            0 => Poll::Ready(true),
            _ => Poll::Pending,
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_attempts_dropped_at_random_moments_leave_no_lock_on_any_node() {
    let cluster = Cluster::start(5);
    let locks = cluster.client().await;
    let mut dropped = 0;
    let mut round = 0;
    while dropped < 1000 {
        round += 1;
        assert!(round < 20_000, "only {dropped} were dropped on their way");
        let name = format!("job-{}", round % 10);
        // From the first poll, which sends the commands, until before the last answer.
        if dropped_after(
            random(9),
            locks.try_lock(&name).ttl(TTL).renew(false).into_future(),
        )
        .await
        {
            dropped += 1;
        }
    }
    // Far sooner than the TTL, so it is the releases that did it.
    wait_until("no lock is left", TTL / 3, || {
        cluster.leftovers().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_release_that_is_dropped_on_its_way_releases_all_the_same() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    for _ in 0..200 {
        let lease = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
        let moment = Duration::from_micros(random(300));
        let _ = tokio::time::timeout(moment, lease.release()).await;
        let next = locks.lock("job").ttl(TTL).timeout(TTL / 3).await;
        drop(next.unwrap());
        locks
            .lock("job")
            .ttl(TTL)
            .timeout(TTL / 3)
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
    wait_until("no lock is left", TTL / 3, || {
        cluster.leftovers().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_dropped_lease_is_free_at_once_for_others_on_every_engine() {
    let cluster = Cluster::start(1);
    let dir = tempfile::tempdir().unwrap();
    let stores = [
        fencepost::Client::memory().unwrap(),
        fencepost::Client::builder()
            .file(dir.path().join("locks.db"))
            .build()
            .unwrap(),
        cluster.client().await,
    ];
    for locks in stores {
        drop(locks.try_lock("job").ttl(TTL).renew(false).await.unwrap());
        let next = locks.lock("job").ttl(TTL).timeout(TTL / 3).await;
        next.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_nothing() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let lease = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    let error = locks
        .lock("job")
        .timeout(Duration::from_millis(100))
        .await
        .unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let waiting = tokio::time::timeout(Duration::from_millis(50), locks.lock("job"));
    assert!(waiting.await.is_err());
    lease.release().await.unwrap();
    wait_until("no lock is left", TTL / 3, || {
        cluster.leftovers().is_empty()
    })
    .await;
}
