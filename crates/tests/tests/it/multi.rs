//! Several locks at once, on a quorum of real servers: all or none, and never in a circle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost_tests::{Cluster, wait_until};
use tokio::time::timeout;

const NAMES: usize = 10;
const CLIENTS: usize = 20;
const LATE: Duration = Duration::from_secs(30);

/// How long: `FENCEPOST_MULTI_SECONDS` of them, or a few.
fn time() -> Duration {
    let seconds = std::env::var("FENCEPOST_MULTI_SECONDS").ok();
    let seconds = seconds.and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

/// Two or three of the names, in any order.
fn some_names(dice: &mut u64) -> Vec<usize> {
    let mut roll = || {
        *dice ^= *dice << 13;
        *dice ^= *dice >> 7;
        *dice ^= *dice << 17;
        usize::try_from(*dice % 1_000_003).unwrap()
    };
    let mut names = vec![roll() % NAMES];
    for _ in 0..1 + roll() % 2 {
        let name = roll() % NAMES;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_clients_with_random_pairs_and_triples_never_wait_in_a_circle() {
    let cluster = Cluster::start(3);
    let taken: Arc<Vec<AtomicBool>> = Arc::new((0..NAMES).map(|_| AtomicBool::default()).collect());
    let turns = Arc::new(AtomicUsize::new(0));
    let end = Instant::now() + time();
    let mut workers = Vec::new();
    for n in 0..CLIENTS {
        // No node is away: one that is slow is waited for.
        let locks = cluster.builder().node_timeout(LATE);
        let locks = cluster.connect(locks).await;
        let (taken, turns) = (Arc::clone(&taken), Arc::clone(&turns));
        workers.push(tokio::spawn(async move {
            let mut dice = 0x9e37_79b9_7f4a_7c15 ^ (n as u64 + 1);
            while Instant::now() < end {
                let names = some_names(&mut dice);
                let all = locks.lock_all(names.iter().map(ToString::to_string));
                let all = all.ttl(Duration::from_secs(10)).await.unwrap();
                for name in &names {
                    let was = taken[*name].swap(true, Ordering::SeqCst);
                    assert!(!was, "{name} has two holders");
                }
                tokio::task::yield_now().await;
                for name in &names {
                    taken[*name].store(false, Ordering::SeqCst);
                }
                all.release().await.unwrap();
                turns.fetch_add(1, Ordering::SeqCst);
            }
            locks.shutdown().await;
        }));
    }
    let begin = Instant::now();
    for worker in workers {
        timeout(time() + LATE, worker).await.unwrap().unwrap();
    }
    let turns = turns.load(Ordering::SeqCst);
    println!(
        "{turns} turns of {CLIENTS} clients in {:?}",
        begin.elapsed()
    );
    assert!(turns > CLIENTS, "{turns}");
    let nothing_left = || cluster.leftovers().is_empty();
    wait_until("nothing partial is left", LATE, nothing_left).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_names_are_taken_together_all_or_none() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let names: Vec<_> = (0..100).map(|n| format!("account-{n}")).collect();
    let all = locks.lock_all(&names).await.unwrap();
    assert_eq!(all.tokens().count(), 100);
    let other = cluster.client().await;
    let error = other
        .lock_all(["free", "account-57"])
        .timeout(Duration::ZERO)
        .await;
    assert!(error.unwrap_err().is_held());
    drop(other.lock("free").timeout(LATE).await.unwrap());
    all.release().await.unwrap();
    locks.shutdown().await;
    other.shutdown().await;
    let nothing_left = || cluster.leftovers().is_empty();
    wait_until("nothing is left", LATE, nothing_left).await;
}
