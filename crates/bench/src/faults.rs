//! What acquire, extend and release take with five nodes up, and with two of five killed.
//!
//! Two sets of five servers, measured in turns: killing and restarting one set in between would
//! measure the reconnect instead.

use std::time::{Duration, Instant};

use fencepost::Client;
use fencepost_tests::RedisServer;
use hdrhistogram::Histogram;

use crate::contender::TTL;
use crate::measure::histogram;
use crate::{Effort, ours};

/// Nodes that are killed: the most that a quorum of five survives.
const KILLED: usize = 2;
/// What is aimed at: killed nodes make nothing slower than this.
const AIM: f64 = 1.5;
const STEPS: [&str; 3] = ["acquire", "extend", "release"];

struct Side {
    locks: Client,
    /// In nanoseconds, one for each of [`STEPS`].
    taken: [Histogram<u64>; STEPS.len()],
}

pub(crate) async fn run(effort: Effort) {
    let healthy = RedisServer::start_many(5);
    let mut crippled = RedisServer::start_many(5);
    let mut up = Side::connect(&healthy).await;
    let mut down = Side::connect(&crippled).await;
    // While the client is at work, as it happens in life.
    down.cycle(effort.slice).await;
    crippled[..KILLED].iter_mut().for_each(RedisServer::kill);
    // Warm-up: by its end both clients know who is there.
    for side in [&mut up, &mut down] {
        side.cycle(effort.slice).await;
        side.taken = STEPS.map(|_| histogram());
    }
    for _ in 0..effort.rounds {
        up.cycle(effort.slice).await;
        down.cycle(effort.slice).await;
    }
    print(&up, &down);
}

impl Side {
    async fn connect(servers: &[RedisServer]) -> Self {
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        Self {
            locks: ours::connect(&urls).await,
            taken: STEPS.map(|_| histogram()),
        }
    }

    /// Acquires, extends and releases for that long, in a task on a worker as everywhere else.
    async fn cycle(&mut self, time: Duration) {
        let locks = self.locks.clone();
        let task = tokio::spawn(async move {
            let mut taken = STEPS.map(|_| histogram());
            let end = Instant::now() + time;
            while Instant::now() < end {
                for (histogram, time) in taken.iter_mut().zip(one_cycle(&locks).await) {
                    histogram.saturating_record(time.as_nanos() as u64);
                }
            }
            taken
        });
        let taken = task.await.expect("two of five may be down");
        for (all, more) in self.taken.iter_mut().zip(taken) {
            all.add(more).expect("the same bounds");
        }
    }
}

async fn one_cycle(locks: &Client) -> [Duration; STEPS.len()] {
    let start = Instant::now();
    let lease = locks
        .try_lock("faults")
        .ttl(TTL)
        .renew(false)
        .await
        .expect("it is free");
    let acquired = start.elapsed();
    lease.extend().await.expect("it is ours");
    let extended = start.elapsed();
    lease.release().await.expect("it is ours");
    [acquired, extended - acquired, start.elapsed() - extended]
}

fn print(up: &Side, down: &Side) {
    println!(
        "{:<16}{:>12}{:>12}{:>12}{:>12}{:>8}",
        "n = 5, us", "p50, 5 up", "p50, 3 up", "p99, 5 up", "p99, 3 up", "p50"
    );
    for (at, step) in STEPS.into_iter().enumerate() {
        let micros =
            |side: &Side, quantile| side.taken[at].value_at_quantile(quantile) as f64 / 1000.0;
        println!(
            "{step:<16}{:>12.1}{:>12.1}{:>12.1}{:>12.1}{:>7.2}x",
            micros(up, 0.5),
            micros(down, 0.5),
            micros(up, 0.99),
            micros(down, 0.99),
            micros(down, 0.5) / micros(up, 0.5),
        );
    }
    println!("\nlast column: three up over five up; at most {AIM} is aimed at");
}
