//! `?replicas=K`: a vote counts only once K replicas have it.

use std::time::{Duration, Instant};

use fencepost::{Client, Error, NodeError, NodeOutcome};
use fencepost_tests::{RedisServer, eventually};
use tokio::time::sleep;

const LATE: Duration = Duration::from_secs(30);

/// A master and its replica.
fn pair() -> (RedisServer, RedisServer) {
    let master = RedisServer::start_args(&["--repl-diskless-sync-delay", "0"]);
    let port = master.port().to_string();
    let replica = RedisServer::start_args(&["--replicaof", "127.0.0.1", &port]);
    attached(&master);
    (master, replica)
}

fn attached(master: &RedisServer) {
    let is_online = || {
        master
            .cli(&["INFO", "replication"])
            .contains("state=online")
    };
    eventually("the replica is attached", LATE, is_online);
}

async fn client(master: &RedisServer, replicas: u32, node_timeout: Duration) -> Client {
    let builder = Client::builder().url(format!("{}?replicas={replicas}", master.url()));
    builder.node_timeout(node_timeout).connect().await.unwrap()
}

fn reason(error: &Error) -> &NodeError {
    match &error.nodes()[0].outcome {
        NodeOutcome::Failed(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_granted_is_on_the_replica_already() {
    let (master, replica) = pair();
    let locks = client(&master, 1, Duration::from_secs(5)).await;
    for n in 0..20 {
        let name = format!("job-{n}");
        let lease = locks.lock(&name).await.unwrap();
        assert_eq!(replica.cli(&["EXISTS", &name]), "1");
        lease.extend().await.unwrap();
        lease.release().await.unwrap();
    }
    // Many at once share what they wait for.
    let mut all = tokio::task::JoinSet::new();
    for n in 0..50 {
        let locks = locks.clone();
        all.spawn(async move { locks.lock(format!("many-{n}")).await.is_ok() });
    }
    assert!(all.join_all().await.iter().all(|granted| *granted));
}

#[tokio::test]
async fn too_few_replicas_are_told_and_the_lock_is_given_back() {
    let (master, replica) = pair();
    let two = client(&master, 2, Duration::from_secs(3)).await;
    let error = two.try_lock("job").await.unwrap_err();
    let expected = NodeError::TooFewReplicas { have: 1, needed: 2 };
    assert_eq!(reason(&error), &expected, "{error}");
    assert!(
        error.to_string().contains("written to 1 of 2 replicas"),
        "{error}"
    );
    let is_free = || master.cli(&["EXISTS", "job"]) == "0";
    eventually("it is given back", LATE, is_free);
    // A replica that hangs is none.
    let one = client(&master, 1, Duration::from_secs(3)).await;
    one.lock("job").await.unwrap().release().await.unwrap();
    replica.freeze();
    let error = one.try_lock("job").await.unwrap_err();
    let expected = NodeError::TooFewReplicas { have: 0, needed: 1 };
    assert_eq!(reason(&error), &expected, "{error}");
    replica.thaw();
    one.lock("job")
        .timeout(LATE)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_returns_in_the_middle_of_the_wait_is_counted_and_nobody_else_waits() {
    let (master, mut replica) = pair();
    let locks = client(&master, 1, Duration::from_secs(20)).await;
    let held = locks.lock("held").await.unwrap();
    replica.kill();
    let granted = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock("job").await.unwrap() }
    });
    let is_written = || master.cli(&["EXISTS", "job"]) == "1";
    eventually("the master has it", LATE, is_written);
    sleep(Duration::from_millis(300)).await;
    assert!(!granted.is_finished(), "no replica has it");
    // What needs no replica is not stuck behind it.
    let begin = Instant::now();
    locks.status("other").await.unwrap();
    held.release().await.unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10));
    assert!(!granted.is_finished(), "no replica has it");
    replica.restart();
    let lease = granted.await.unwrap();
    assert_eq!(replica.cli(&["EXISTS", "job"]), "1");
    lease.release().await.unwrap();
}

/// It was granted, and left to nobody: that it might not be waited for came after.
#[tokio::test]
async fn a_user_that_may_not_wait_is_refused_before_anything_is_granted() {
    let (master, _replica) = pair();
    let poor = ["on", ">x", "~*", "&*", "+@all", "-wait"];
    master.cli(&[&["ACL", "SETUSER", "poor"], &poor[..]].concat());
    let url = format!("redis://poor:x@127.0.0.1:{}?replicas=1", master.port());
    let locks = Client::builder().url(url).build().unwrap();
    let error = locks.try_lock("job").await.unwrap_err();
    assert!(
        matches!(reason(&error), NodeError::Permission(_)),
        "{error}"
    );
    assert!(error.to_string().contains("+wait"), "{error}");
    assert_eq!(master.cli(&["EXISTS", "job"]), "0");
}
