//! A quorum with nodes that are killed, frozen or away: what still works, how fast, and what the
//! errors say.

use std::time::{Duration, Instant};

use fencepost::{Client, NodeError, NodeOutcome};
use fencepost_tests::{Cluster, wait_until};

const TTL: Duration = Duration::from_secs(10);
/// So long that a busy machine is not taken for a node that is waited for.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);

async fn client(cluster: &Cluster) -> Client {
    let builder = cluster.builder().node_timeout(NODE_TIMEOUT);
    cluster.connect(builder).await
}

#[tokio::test]
async fn two_of_five_nodes_may_be_killed() {
    let mut cluster = Cluster::start(5);
    let locks = cluster.client().await;
    let before = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    cluster.all_have("job").await;
    cluster.servers[1].kill();
    cluster.servers[3].kill();
    before.extend().await.unwrap();
    let token = before.token();
    before.release().await.unwrap();

    let after = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    assert!(after.token() > token);
    after.extend().await.unwrap();
    after.release().await.unwrap();
}

#[tokio::test]
async fn three_of_five_killed_is_no_quorum_and_names_each_node_within_one_node_timeout() {
    let mut cluster = Cluster::start(5);
    let locks = client(&cluster).await;
    for server in &mut cluster.servers[..3] {
        server.kill();
    }
    let start = Instant::now();
    let error = locks
        .try_lock("job")
        .ttl(TTL)
        .renew(false)
        .await
        .unwrap_err();
    assert!(start.elapsed() < NODE_TIMEOUT, "{:?}", start.elapsed());
    assert!(error.is_no_quorum(), "{error}");
    assert!(error.to_string().contains("3 of 5 nodes"), "{error}");
    let nodes = error.nodes();
    for (report, server) in nodes.iter().zip(&cluster.servers).take(3) {
        assert_eq!(report.node, server.url());
        let why = &report.outcome;
        assert!(matches!(why, NodeOutcome::Failed(_)), "{why}");
    }
    let lines: Vec<String> = format!("{error:#}").lines().map(str::to_owned).collect();
    assert_eq!(
        lines.len(),
        6,
        "one for the lock, one for each node: {lines:?}"
    );
    assert!(lines[0].contains("3 of 5"), "{lines:?}");
}

#[tokio::test]
async fn a_frozen_node_never_delays_an_acquire_that_the_others_decide() {
    let cluster = Cluster::start(3);
    let locks = client(&cluster).await;
    cluster.servers[0].freeze();
    for _ in 0..50 {
        let start = Instant::now();
        let lease = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
        lease.extend().await.unwrap();
        lease.release().await.unwrap();
        assert!(start.elapsed() < NODE_TIMEOUT / 2, "{:?}", start.elapsed());
    }
    let start = Instant::now();
    let _held = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    assert!(
        locks
            .try_lock("job")
            .ttl(TTL)
            .renew(false)
            .await
            .unwrap_err()
            .is_held()
    );
    assert!(start.elapsed() < NODE_TIMEOUT / 2, "{:?}", start.elapsed());
    cluster.servers[0].thaw();
}

/// It was first looked for at all nodes, each for one node time-out.
#[tokio::test]
async fn a_frozen_node_never_delays_the_extension_of_a_detached_lock() {
    let cluster = Cluster::start(3);
    let locks = client(&cluster).await;
    let lease = locks.lock("job").ttl(TTL).renew(false).await.unwrap();
    let detached = lease.detach().await.unwrap();
    cluster.servers[1].freeze();
    let start = Instant::now();
    locks.extend_detached(&detached, TTL).await.unwrap();
    assert!(start.elapsed() < NODE_TIMEOUT, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_frozen_majority_is_no_quorum_after_one_node_timeout() {
    let cluster = Cluster::start(3);
    let locks = client(&cluster).await;
    cluster.servers[0].freeze();
    cluster.servers[2].freeze();
    let start = Instant::now();
    let error = locks
        .try_lock("job")
        .ttl(TTL)
        .renew(false)
        .await
        .unwrap_err();
    let took = start.elapsed();
    assert!(error.is_no_quorum(), "{error}");
    let nodes = error.nodes();
    let timeout = NodeOutcome::Failed(NodeError::Timeout(NODE_TIMEOUT));
    assert_eq!(nodes[0].outcome, timeout);
    assert_eq!(nodes[1].outcome, NodeOutcome::Agreed);
    assert!(took >= NODE_TIMEOUT && took < NODE_TIMEOUT * 2, "{took:?}");

    // What the frozen nodes were asked for is taken back when they thaw.
    cluster.servers[0].thaw();
    cluster.servers[2].thaw();
    wait_until("all is given back", TTL / 2, || {
        cluster.leftovers().iter().all(|key| key.contains(":gone:"))
    })
    .await;
}

#[tokio::test]
async fn a_node_that_was_away_gets_its_release_when_it_is_back() {
    let mut cluster = Cluster::start(3);
    // A server that keeps its locks, so that there is something to release after its restart.
    let kept = ["--appendonly", "yes", "--appendfsync", "always"];
    cluster.servers[2] = fencepost_tests::RedisServer::start_args(&kept);
    let locks = cluster.client().await;
    let lease = locks
        .try_lock("job")
        .ttl(TTL * 3)
        .renew(false)
        .await
        .unwrap();
    // So that the third node has it too.
    lease.extend().await.unwrap();
    wait_until("held on the third", TTL, || {
        cluster.servers[2].cli(&["EXISTS", "job"]) == "1"
    })
    .await;
    cluster.servers[2].kill();
    lease.release().await.unwrap();
    cluster.servers[2].restart();
    wait_until("released on the third", TTL, || {
        cluster.servers[2].cli(&["EXISTS", "job"]) == "0"
    })
    .await;
}

/// The register there has passed the holder's token. It did keep the holder off that node: every newcomer who
/// fails lifts it, and a lock that many ask for was lost when its nodes were restarted one after the other.
#[tokio::test]
async fn a_rival_that_failed_on_a_node_which_forgot_does_not_keep_the_holder_off_it() {
    let cluster = Cluster::start(3);
    let lease = cluster
        .client()
        .await
        .try_lock("job")
        .ttl(TTL)
        .renew(false)
        .await
        .unwrap();
    cluster.all_have("job").await;
    let forgetful = &cluster.servers[2];
    let counter = || forgetful.cli(&["ZSCORE", "fencepost:fences", "job"]);
    let before = counter();
    forgetful.cli(&["DEL", "job"]);
    let rival = cluster
        .client()
        .await
        .try_lock("job")
        .ttl(TTL)
        .renew(false)
        .await;
    assert!(rival.unwrap_err().is_held());
    wait_until("the rival is gone", TTL, || {
        counter() != before && forgetful.cli(&["EXISTS", "job"]) == "0"
    })
    .await;
    lease.extend().await.unwrap();
    cluster.all_have("job").await;
    let stored = fencepost_tests::stored(lease.value(), lease.token());
    for server in &cluster.servers {
        assert_eq!(server.cli(&["GET", "job"]), stored);
    }
}

#[tokio::test]
async fn nodes_that_disagree_on_the_counter_are_brought_to_one_token() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    // Counters ahead of every clock, each another.
    let ahead = 4_000_000_000_000_000_u64;
    for (i, server) in cluster.servers.iter().enumerate() {
        let counter = (ahead + i as u64 * 10).to_string();
        server.cli(&["ZADD", "fencepost:fences", &counter, "job"]);
    }
    let first = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    let token = first.token().get();
    assert!((ahead + 11..ahead + 10_000).contains(&token), "{token}");
    let exactly = |server: &fencepost_tests::RedisServer| {
        server.cli(&["ZSCORE", "fencepost:fences", "job"]) == token.to_string()
    };
    let certified = cluster.servers.iter().filter(|server| exactly(server));
    assert!(certified.count() >= 2);
    first.release().await.unwrap();
    let second = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    assert!(second.token() > FencingTokenOf(token));

    #[allow(non_snake_case, reason = "reads as a type where it is used")]
    fn FencingTokenOf(number: u64) -> fencepost::FencingToken {
        fencepost::FencingToken::new(number).unwrap()
    }
}

#[tokio::test]
async fn a_steal_takes_the_lock_and_the_old_holder_is_told() {
    let cluster = Cluster::start(3);
    let old = cluster.connect(cluster.builder().owner("old")).await;
    let new = cluster.connect(cluster.builder().owner("new")).await;
    let held = old.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    let stolen = new.steal("job", TTL).await.unwrap();
    assert_eq!(stolen.from.unwrap().as_str(), "old");
    assert!(stolen.lease.token() > held.token());
    let error = held.extend().await.unwrap_err();
    assert!(
        error.is_lost() && error.to_string().contains("new acquired it"),
        "{error}"
    );
    assert!(!held.is_valid(), "a lease that is lost never comes back");
    assert!(held.release().await.unwrap_err().is_lost());
    let status = new.status("job").await.unwrap();
    assert_eq!(status.holder.unwrap().owner.as_str(), "new");
    assert_eq!(status.token, Some(stolen.lease.token()));
}

#[tokio::test]
async fn status_tells_what_each_node_says_and_which_one_is_silent() {
    let mut cluster = Cluster::start(3);
    let locks = cluster.connect(cluster.builder().owner("me")).await;
    let lease = locks.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    cluster.all_have("job").await;
    cluster.servers[1].kill();
    let status = locks.status("job").await.unwrap();
    let holder = status.holder.unwrap();
    assert_eq!(holder.owner.as_str(), "me");
    assert!(holder.remaining.unwrap() <= TTL);
    assert!(status.nodes[1].lock.is_err());
    assert_eq!(status.nodes[0].node, cluster.servers[0].url());
    drop(lease);
    wait_until("released on drop", TTL, || {
        cluster.servers[0].cli(&["EXISTS", "job"]) == "0"
    })
    .await;
}

/// It gave up after one TTL, though the nodes were only waiting for their quarantine to end.
#[tokio::test]
async fn a_wait_without_a_limit_outlasts_the_quarantine_of_fresh_nodes() {
    let cluster = Cluster::start(3);
    let locks = cluster
        .builder()
        .restart_policy(fencepost::RestartPolicy::Delay)
        .max_ttl(Duration::from_secs(1))
        .connect()
        .await
        .unwrap();
    let ttl = Duration::from_millis(300);
    let error = locks
        .try_lock("job")
        .ttl(ttl)
        .renew(false)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("votes again by itself in"),
        "{error}"
    );
    drop(locks.lock("job").ttl(ttl).await.unwrap());
}
