//! What a lock costs on stores that fail over, beside a plain server: a Sentinel group and a Redis Cluster, each also
//! with `replicas=1`. In turns, in one run.

use std::time::{Duration, Instant};

use fencepost::Client;
use fencepost_tests::{GroupSetup, RedisCluster, RedisServer, SentinelGroups, eventually};
use hdrhistogram::Histogram;

use crate::contender::TTL;
use crate::measure::histogram;
use crate::{Effort, ours};

/// How long a replica may take to be attached.
const ATTACH_LIMIT: Duration = Duration::from_secs(30);

struct Side {
    what: &'static str,
    locks: Client,
    /// In nanoseconds: acquire, and the whole cycle with the release.
    taken: [Histogram<u64>; 2],
}

pub(crate) async fn run(effort: Effort) {
    let plain = RedisServer::start();
    let master = RedisServer::start_args(&["--repl-diskless-sync-delay", "0"]);
    let port = master.port().to_string();
    let _replica = RedisServer::start_args(&["--replicaof", "127.0.0.1", &port]);
    let info = || master.cli(&["INFO", "replication"]);
    let is_attached = || info().contains("state=online");
    eventually("the replica is attached", ATTACH_LIMIT, is_attached);
    let groups = SentinelGroups::start(1, &GroupSetup::default());
    groups.init(TTL).await;
    let cluster = RedisCluster::start(3, 1);
    cluster.init(TTL).await;
    let of_group = groups.url_of(0, "a");
    let of_cluster = cluster.url();
    let connect = async |url: &str| {
        let client = Client::builder().url(url).max_ttl(TTL).connect().await;
        client.expect("servers of our own")
    };
    let sides = [
        ("a plain server", ours::connect(&[plain.url()]).await),
        (
            "  with replicas=1",
            ours::connect(&[format!("{}?replicas=1", master.url())]).await,
        ),
        ("a Sentinel group", connect(&of_group).await),
        (
            "  with replicas=1",
            connect(&format!("{of_group}&replicas=1")).await,
        ),
        ("a Redis Cluster", connect(&of_cluster).await),
        (
            "  with replicas=1",
            connect(&format!("{of_cluster}&replicas=1")).await,
        ),
    ];
    let mut sides = sides.map(|(what, locks)| Side {
        what,
        locks,
        taken: [histogram(), histogram()],
    });
    for side in &mut sides {
        // Warm-up.
        side.cycle(effort.slice).await;
        side.taken = [histogram(), histogram()];
    }
    for _ in 0..effort.rounds {
        for side in &mut sides {
            side.cycle(effort.slice).await;
        }
    }
    print(&sides);
}

impl Side {
    /// Acquires and releases for that long, in a task on a worker as everywhere else.
    async fn cycle(&mut self, time: Duration) {
        let locks = self.locks.clone();
        let task = tokio::spawn(async move {
            let mut taken = [histogram(), histogram()];
            let end = Instant::now() + time;
            while Instant::now() < end {
                let start = Instant::now();
                let lease = locks.try_lock("failovers").ttl(TTL).renew(false).await;
                let lease = lease.expect("it is free");
                let acquired = start.elapsed();
                lease.release().await.expect("it is ours");
                for (histogram, time) in taken.iter_mut().zip([acquired, start.elapsed()]) {
                    histogram.saturating_record(time.as_nanos() as u64);
                }
            }
            taken
        });
        let taken = task.await.expect("servers of our own");
        for (all, more) in self.taken.iter_mut().zip(taken) {
            all.add(more).expect("the same bounds");
        }
    }
}

fn print(sides: &[Side]) {
    println!(
        "{:<20}{:>14}{:>14}{:>12}{:>8}",
        "n = 1, us", "acquire p50", "acquire p99", "cycle p50", "p50"
    );
    let micros = |histogram: &Histogram<u64>, quantile| {
        histogram.value_at_quantile(quantile) as f64 / 1000.0
    };
    let plain = micros(&sides[0].taken[0], 0.5);
    for side in sides {
        let [acquire, cycle] = &side.taken;
        println!(
            "{:<20}{:>14.1}{:>14.1}{:>12.1}{:>7.2}x",
            side.what,
            micros(acquire, 0.5),
            micros(acquire, 0.99),
            micros(cycle, 0.5),
            micros(acquire, 0.5) / plain,
        );
    }
    println!("\nlast column: acquire, over a plain server");
}
