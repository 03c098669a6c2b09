//! Reentrant locks: on every engine, and over several servers while some of them forget. How they get on
//! with Redisson is in `redisson.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use fencepost::internals::Node;
use fencepost::{
    Client, Error, LockOptions, LossReason, NodeError, NodeOutcome, ReentrantGuard, ReentrantLock,
};
use fencepost_tests::{Cluster, RedisServer, until, until_somebody_waits, wait_until};
use tokio::time::timeout;

use crate::engines::every_node_shows_that;

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);

every_node_shows_that! {
    an_owner_enters_again_and_leaves_in_any_order,
    owners_keep_each_other_out_and_the_next_is_woken,
    a_plain_lock_does_not_get_in_while_an_owner_is_inside,
    what_is_lost_is_told_and_taken_anew,
    an_owner_that_stops_waiting_leaves_nothing_behind,
    many_tasks_of_many_owners_are_never_inside_together,
}

fn client(node: &Arc<dyn Node>) -> Client {
    let builder = Client::builder().shared_node(Arc::clone(node));
    builder.build().unwrap()
}

async fn enter(lock: &ReentrantLock) -> ReentrantGuard {
    lock.lock().await.unwrap()
}

/// To another owner.
async fn is_shut(locks: &Client) -> bool {
    match locks.reentrant("job").try_lock().await {
        Err(error) => {
            assert!(error.is_held(), "{error}");
            true
        }
        Ok(_) => false,
    }
}

async fn an_owner_enters_again_and_leaves_in_any_order(node: &Arc<dyn Node>) {
    let (locks, others) = (client(node), client(node));
    let lock = locks.reentrant("job");
    let mut guards = vec![enter(&lock).await];
    for _ in 0..9 {
        guards.push(enter(&lock.clone()).await);
    }
    let token = guards[0].token();
    assert!(guards.iter().all(|guard| guard.token() == token));
    guards[0].extend().await.unwrap();
    for n in (1..10).rev() {
        // From the middle, by turns dropped and released.
        let guard = guards.remove(n / 2);
        match n % 2 {
            0 => drop(guard),
            _ => guard.release().await.unwrap(),
        }
        assert!(is_shut(&others).await, "another client's");
        assert!(guards[0].is_valid());
    }
    guards.remove(0).release().await.unwrap();
    let next = enter(&others.reentrant("job")).await;
    assert!(next.token() > token);
}

async fn owners_keep_each_other_out_and_the_next_is_woken(node: &Arc<dyn Node>) {
    let (locks, others) = (client(node), client(node));
    let lock = locks.reentrant("job");
    let guards = [enter(&lock).await, enter(&lock).await];
    assert!(is_shut(&locks).await);
    let waiting = tokio::spawn({
        let others = others.clone();
        async move { enter(&others.reentrant("job")).await }
    });
    until_somebody_waits(&locks, "job").await;
    drop(guards);
    let guard = timeout(LATE, waiting).await.unwrap().unwrap();
    assert!(is_shut(&locks).await);
    drop(guard);
}

async fn a_plain_lock_does_not_get_in_while_an_owner_is_inside(node: &Arc<dyn Node>) {
    let locks = client(node);
    let ttl = Duration::from_secs(10);
    let guard = enter(&locks.reentrant("job")).await;
    let error = locks
        .try_lock("job")
        .ttl(ttl)
        .renew(false)
        .await
        .unwrap_err();
    if node.address().starts_with("redis") {
        assert_wrong_kind(&error, "reentrant lock");
        // It would wait for ever: whoever waits is told at once, too.
        let error = timeout(LATE, locks.lock("job").into_future())
            .await
            .unwrap();
        assert_wrong_kind(&error.unwrap_err(), "reentrant lock");
    } else {
        assert!(error.is_held(), "{error}");
    }
    let status = locks.status("job").await.unwrap();
    assert_eq!(status.holder.unwrap().owner.as_str(), guard.value());
    guard.release().await.unwrap();

    let lease = locks.try_lock("job").ttl(ttl).renew(false).await.unwrap();
    let error = locks.reentrant("job").try_lock().await.unwrap_err();
    if node.address().starts_with("redis") {
        assert_wrong_kind(&error, "plain lock");
    } else {
        assert!(error.is_held(), "{error}");
    }
    lease.release().await.unwrap();
}

fn assert_wrong_kind(error: &Error, which: &str) {
    assert!(error.is_no_quorum(), "{error}");
    for report in error.nodes() {
        let outcome = &report.outcome;
        let wrong = matches!(outcome, NodeOutcome::Failed(NodeError::WrongType(_)));
        assert!(wrong && outcome.to_string().contains(which), "{outcome}");
    }
}

async fn what_is_lost_is_told_and_taken_anew(node: &Arc<dyn Node>) {
    let locks = client(node);
    let lock = locks.reentrant("job");
    let brief = LockOptions::new().ttl(Duration::from_secs(1)).renew(false);
    let outer = lock.lock().options(brief).await.unwrap();
    let inner = lock.lock().await.unwrap();
    for guard in [&outer, &inner] {
        let why = timeout(LATE, guard.lost()).await.unwrap();
        assert_eq!(why, LossReason::Expired);
        assert!(!guard.is_valid());
    }
    let anew = timeout(LATE, lock.lock().into_future());
    let anew = anew.await.unwrap().unwrap();
    assert!(anew.token() > outer.token());
    assert!(inner.release().await.unwrap_err().is_lost());
    assert!(outer.release().await.unwrap_err().is_lost());
    assert!(anew.is_valid());
    assert!(is_shut(&locks).await);
}

async fn an_owner_that_stops_waiting_leaves_nothing_behind(node: &Arc<dyn Node>) {
    let (locks, others) = (client(node), client(node));
    let guard = enter(&locks.reentrant("job")).await;
    let waiting = tokio::spawn({
        let others = others.clone();
        async move { enter(&others.reentrant("job")).await }
    });
    until_somebody_waits(&locks, "job").await;
    waiting.abort();
    let nobody = async || locks.status("job").await.unwrap().waiting == 0;
    until("it has left the line", LATE, nobody).await;
    guard.release().await.unwrap();
    let _next = others.reentrant("job").try_lock().await.unwrap();
}

async fn many_tasks_of_many_owners_are_never_inside_together(node: &Arc<dyn Node>) {
    const OWNERS: usize = 4;
    let inside: Arc<[AtomicUsize; OWNERS]> = Arc::default();
    let clients = [client(node), client(node)];
    let owners: Vec<_> = (0..OWNERS)
        .map(|n| clients[n % 2].reentrant("job"))
        .collect();
    let tasks = (0..12).map(|n| {
        let owner = n % OWNERS;
        let lock = owners[owner].clone();
        let inside = Arc::clone(&inside);
        tokio::spawn(async move {
            for _ in 0..5 {
                let outer = enter(&lock).await;
                inside[owner].fetch_add(1, SeqCst);
                tokio::task::yield_now().await;
                let inner = enter(&lock).await;
                assert_eq!(inner.token(), outer.token());
                drop(outer);
                tokio::task::yield_now().await;
                let now: Vec<_> = inside.iter().map(|n| n.load(SeqCst)).collect();
                let others = now.iter().enumerate().filter(|(n, _)| *n != owner);
                assert_eq!(others.map(|(_, n)| n).sum::<usize>(), 0, "{now:?}");
                inside[owner].fetch_sub(1, SeqCst);
                drop(inner);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        timeout(LATE * 3, task).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn fifty_entries_with_a_server_that_comes_back_empty_are_given_back_on_every_server_at_the_end()
 {
    for n in [3, 5] {
        let mut cluster = Cluster::start(n);
        let locks = cluster.client().await;
        let others = cluster.client().await;
        let lock = locks.reentrant("job");
        let mut guards = Vec::new();
        for depth in 1..=50 {
            // So long that no renewal comes in between: the server that forgets would learn it again.
            let guard = lock.lock().ttl(Duration::from_secs(60));
            guards.push(guard.await.unwrap());
            if depth == 25 {
                cluster.all_have("job").await;
                // It keeps nothing on disk.
                cluster.servers[0].restart();
                assert_eq!(cluster.servers[0].cli(&["EXISTS", "job"]), "0");
            }
        }
        let token = guards[0].token();
        let field = guards[0].value().to_owned();
        let stored = |server: &RedisServer| server.cli(&["HGETALL", "job"]);
        let everywhere = |count: usize| {
            let expected = format!("{field}\n{count}:{token}");
            cluster.servers.iter().all(|s| stored(s) == expected)
        };
        renew_until("known to the one that forgot", &guards[0], || {
            everywhere(50)
        })
        .await;
        for depth in (1..50).rev() {
            // In no particular order.
            let guard = guards.remove((depth * 7) % guards.len());
            assert_eq!(guard.token(), token);
            guard.release().await.unwrap();
            if depth % 10 == 0 {
                renew_until("lowered everywhere", &guards[0], || everywhere(depth)).await;
                assert!(is_shut(&others).await);
            }
        }
        assert!(is_shut(&others).await);
        guards.remove(0).release().await.unwrap();
        let is_free = |server: &RedisServer| server.cli(&["EXISTS", "job"]) == "0";
        wait_until("given back everywhere", LATE, || {
            cluster.servers.iter().all(is_free)
        })
        .await;
        assert!(enter(&others.reentrant("job")).await.token() > token);
    }
}

/// A node that has missed a renewal, or had to be sent the script again, learns the number by a later one.
async fn renew_until(what: &str, guard: &ReentrantGuard, holds: impl Fn() -> bool) {
    until(what, LATE, async || {
        guard.extend().await.unwrap();
        holds()
    })
    .await;
}

#[tokio::test]
async fn an_owner_inside_is_told_when_a_majority_has_forgotten_it() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let lock = locks.reentrant("job");
    let guard = enter(&lock).await;
    let again = enter(&lock).await;
    cluster.all_have("job").await;
    for server in &cluster.servers[..2] {
        server.cli(&["FLUSHALL"]);
    }
    assert!(guard.extend().await.unwrap_err().is_lost());
    assert!(!again.is_valid());
    assert!(again.release().await.unwrap_err().is_lost());
}
