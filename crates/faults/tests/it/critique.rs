//! The well-known critique of Redlock (Martin Kleppmann, "How to do distributed locking", 2016), and
//! what Redlock's author answered: each attack, and what becomes of it here. `GUARANTEES.md` goes
//! through both point by point; the attacks that need servers to forget, or clocks to jump, are in
//! `forgetful_restarts.rs` and `not_promised.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use fencepost::fence::Gate;
use fencepost::internals::clock::{Clock, Moment, SystemClock};
use fencepost::{Client, ErrorKind, RestartPolicy};
use fencepost_faults::cluster::{Cluster, Layout};
use fencepost_faults::node::Node;
use fencepost_faults::proxy::Rules;

const TTL: Duration = Duration::from_millis(400);
/// More than a lease of that TTL lasts.
const LONGER: Duration = Duration::from_millis(500);
const LONG: Duration = Duration::from_secs(20);
const LATE: Duration = Duration::from_secs(20);

fn start(nodes: usize, proxied: bool) -> Cluster {
    let layout = Layout {
        nodes,
        proxied,
        ..Layout::default()
    };
    Cluster::start_on_loopback(layout).unwrap()
}

/// A client that every node knows. It is there as soon as a majority is, and one whose connection to the
/// last node was still being made when the network was held up would never be heard there.
async fn client(cluster: &Cluster) -> Client {
    static WARM: AtomicUsize = AtomicUsize::new(0);
    let builder = Client::builder().url(cluster.urls());
    let trusting = builder.restart_policy(RestartPolicy::Trust);
    let client = trusting.connect().await.unwrap();
    let end = Instant::now() + LATE;
    loop {
        let name = format!("warm-{}", WARM.fetch_add(1, Ordering::Relaxed));
        drop(client.try_lock(&name).ttl(LONG).renew(false).await);
        if is_known_to_all(cluster, &name) {
            return client;
        }
        assert!(Instant::now() < end, "a node is not reached");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_known_to_all(cluster: &Cluster, name: &str) -> bool {
    let score = |node: &Node| node.ask(&["ZSCORE", "fencepost:fences", name]);
    let mut nodes = cluster.nodes.iter();
    nodes.all(|node| score(node).unwrap_or(None::<f64>).is_some())
}

fn on_all(cluster: &Cluster, key: &str) -> bool {
    let mut nodes = cluster.nodes.iter();
    nodes.all(|node| node.ask::<bool>(&["EXISTS", key]).unwrap())
}

/// "The lock service cannot protect the resource from a client that was paused after it had read and
/// before it writes." It cannot, and it says so; the token can. The holder here reads, sleeps past its
/// end without a look at its lease, and writes.
#[tokio::test]
async fn a_paused_holder_spoils_an_unguarded_resource_and_is_refused_by_one_that_checks_tokens() {
    let cluster = start(5, false);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let (mut unguarded, mut guarded) = (vec!["start"], vec!["start"]);
    let gate = Gate::new();

    let paused = one.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    gate.admit(paused.token()).unwrap();
    let read = unguarded.clone();
    tokio::time::sleep(LONGER).await;

    let next = two.lock("job").ttl(LONG).await.unwrap();
    gate.admit(next.token()).unwrap();
    unguarded.push("of the next");
    guarded.push("of the next");

    let from_the_past = [read, vec!["of the paused"]].concat();
    unguarded.clone_from(&from_the_past);
    if gate.admit(paused.token()).is_ok() {
        guarded.clone_from(&from_the_past);
    }
    assert!(!unguarded.contains(&"of the next"), "the attack works");
    assert_eq!(guarded, ["start", "of the next"], "and is refused");
    assert!(!paused.is_valid(), "whoever looks is told");
    assert!(paused.extend().await.unwrap_err().is_lost());
}

/// "Client 1 requests the lock; while the replies are on their way it stops for a garbage collection;
/// the locks expire, client 2 gets them; client 1 goes on, reads the replies, and believes that it
/// holds the lock." The time that counts is taken before the first request is sent, and looked at
/// after the last reply was read. The whole process stands still here: it has but one thread.
#[tokio::test]
async fn a_client_that_stands_still_between_request_and_replies_does_not_get_the_lock() {
    let cluster = start(5, false);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let mut attempt = one.try_lock("job").ttl(TTL).renew(false).into_future();
    let mut context = Context::from_waker(Waker::noop());
    assert!(attempt.as_mut().poll(&mut context).is_pending());
    // So that the requests leave.
    let end = Instant::now() + LATE;
    while !held_on_all(&cluster, end) {
        tokio::task::yield_now().await;
    }
    std::thread::sleep(LONGER);
    let outcome = attempt.await.unwrap_err();
    let is_over = matches!(outcome.kind(), ErrorKind::TooLate | ErrorKind::NoQuorum);
    assert!(is_over, "{outcome}");
    drop(two.lock("job").ttl(LONG).await.unwrap());
}

fn held_on_all(cluster: &Cluster, end: Instant) -> bool {
    assert!(Instant::now() < end, "not on all nodes in time");
    on_all(cluster, "job")
}

/// "A long network delay does the same as the pause." The replies are held up in the network for
/// longer than the TTL.
#[tokio::test]
async fn replies_that_arrive_after_the_end_do_not_make_a_holder() {
    let cluster = start(3, true);
    let one = client(&cluster).await;
    let hold = |hold_replies| {
        for proxy in &cluster.proxies {
            proxy.set(Rules {
                hold_replies,
                ..Rules::default()
            });
        }
    };
    hold(true);
    let attempt =
        tokio::spawn(async move { one.try_lock("job").ttl(TTL).renew(false).await.map(drop) });
    let end = Instant::now() + LATE;
    while !held_on_all(&cluster, end) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(LONGER).await;
    hold(false);
    let outcome = attempt.await.unwrap().unwrap_err();
    let is_over = matches!(outcome.kind(), ErrorKind::TooLate | ErrorKind::NoQuorum);
    assert!(is_over, "{outcome}");
    let two = client(&cluster).await;
    drop(two.lock("job").ttl(LONG).timeout(LONG).await.unwrap());
}

/// A wall clock that is wrong by whole days; the clock of deadlines is the machine's.
struct Wrong {
    ahead_days: i64,
}

impl Clock for Wrong {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall_micros(&self) -> u64 {
        let wrong = self.ahead_days * 86_400_000_000;
        SystemClock.wall_micros().saturating_add_signed(wrong)
    }
}

/// "Redlock has no way to make tokens that grow: a random value is not one, and a clock is not to be
/// relied upon." Every client here has another date, and the token grows with every holder.
#[tokio::test]
async fn tokens_grow_though_every_client_has_another_date() {
    let cluster = start(5, false);
    let mut last = None;
    for ahead_days in [0, 300, -300, 1, -1, 0, -20_000] {
        let locks = Client::builder()
            .url(cluster.urls())
            .restart_policy(RestartPolicy::Trust)
            .clock(Arc::new(Wrong { ahead_days }))
            .connect()
            .await
            .unwrap();
        let lease = locks.try_lock("job").ttl(LONG).renew(false).await.unwrap();
        assert!(Some(lease.token()) > last, "{ahead_days} days: {lease:?}");
        last = Some(lease.token());
        lease.release().await.unwrap();
    }
}

/// "A counter on one node is not enough, for that node may fail; counters on several nodes get out of
/// step." They do; a token counts only when a majority reports exactly it. The node with the largest
/// counter dies, and the next token is larger all the same.
#[tokio::test]
async fn tokens_grow_though_the_node_with_the_largest_counter_dies() {
    for nodes in [3, 5] {
        let mut cluster = start(nodes, false);
        let locks = client(&cluster).await;
        let ahead = 4_000_000_000_000_000_u64;
        let counter = ahead.to_string();
        cluster.nodes[0]
            .tell(&["ZADD", "fencepost:fences", &counter, "job"])
            .unwrap();
        // Until that node is among those that were heard.
        let first = loop {
            let lease = locks.try_lock("job").ttl(LONG).renew(false).await.unwrap();
            let token = lease.token();
            lease.release().await.unwrap();
            if token.get() > ahead {
                break token;
            }
        };
        cluster.nodes[0].kill().unwrap();
        let next = locks.lock("job").ttl(LONG).await.unwrap();
        assert!(next.token() > first, "{nodes} nodes");
    }
}

/// What Redlock's author calls the point of the random value: a release by a holder whose lease is
/// over frees nothing that is another's.
#[tokio::test]
async fn a_late_release_does_not_free_the_lock_of_the_next_holder() {
    let cluster = start(3, false);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let old = one.try_lock("job").ttl(TTL).renew(false).await.unwrap();
    let next = two.lock("job").ttl(LONG).await.unwrap();
    assert!(old.release().await.unwrap_err().is_lost());
    next.extend().await.unwrap();
    assert!(
        one.try_lock("job")
            .ttl(TTL)
            .renew(false)
            .await
            .unwrap_err()
            .is_held()
    );
}

/// "If the lock is only to save work, five servers are too many: take one." One is the same code, and
/// one write: of plain commands where the server can, of one script otherwise.
#[tokio::test]
async fn one_server_is_enough_to_save_work_and_costs_one_write() {
    let cluster = start(1, false);
    let locks = client(&cluster).await;
    let warm = locks.try_lock("warm").ttl(LONG).renew(false).await.unwrap();
    warm.release().await.unwrap();
    cluster.nodes[0].tell(&["CONFIG", "RESETSTAT"]).unwrap();
    let lease = locks.try_lock("job").ttl(LONG).renew(false).await.unwrap();
    let stats: String = cluster.nodes[0].ask(&["INFO", "commandstats"]).unwrap();
    let is_plain = ["set", "zadd", "zrange"]
        .iter()
        .all(|command| stats.contains(&format!("cmdstat_{command}:calls=1,")));
    let is_plain = is_plain && !stats.contains("cmdstat_evalsha:");
    assert!(
        is_plain || stats.contains("cmdstat_evalsha:calls=1,"),
        "{stats}"
    );
    assert!(
        locks
            .try_lock("job")
            .ttl(LONG)
            .renew(false)
            .await
            .unwrap_err()
            .is_held()
    );
    lease.release().await.unwrap();
}
