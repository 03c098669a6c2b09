//! Many leases held by one process: what holding them costs, and whether all stay.
//!
//! Nobody works under these locks: what is measured is renewal, and the memory that a lease takes
//! while nothing happens to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost::internals::clock::Moment;
use fencepost::{Client, Drift, Lease};
use fencepost_core::Ttl;
use fencepost_tests::RedisServer;
use tokio::time::sleep;

use crate::ours;
use crate::probe::field;
use crate::process::Process;

/// How many acquisitions and releases are under way at a time.
const AT_A_TIME: usize = 256;
/// How often all leases are looked at while they are held. A renewal that was late in between is not
/// seen, so what is printed may be less than the worst.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is aimed at.
const MOST_BYTES_PER_LEASE: f64 = 1024.0;

/// What to hold, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) nodes: usize,
    pub(crate) leases: usize,
    pub(crate) ttl: Duration,
    pub(crate) time: Duration,
}

impl Load {
    pub(crate) const FULL: Self = Self {
        nodes: 1,
        leases: 100_000,
        ttl: Duration::from_secs(30),
        time: Duration::from_secs(120),
    };
    pub(crate) const QUICK: Self = Self {
        nodes: 1,
        leases: 1_000,
        ttl: Duration::from_secs(1),
        time: Duration::from_secs(3),
    };
}

/// What is read before and after the leases are held.
struct Reading {
    at: Instant,
    us: Process,
    server: Process,
    scripts: Scripts,
}

/// What the server has run: while leases are held, that is renewals and nothing else.
struct Scripts {
    calls: u64,
    micros: u64,
}

pub(crate) async fn run(load: Load) {
    let servers = RedisServer::start_many(load.nodes);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let locks = ours::connect(&urls).await;
    // One stands for all: each gets every command.
    let server = &servers[0];
    let empty = Process::ours();
    let leases = acquire_all(&locks, load).await;
    let before = Reading::take(server);
    let least_left = hold(&leases, load.time).await;
    let after = Reading::take(server);
    let lost = leases.iter().filter(|lease| lease.loss().is_some()).count();
    report(load, &before, &after, &empty, least_left);
    release_all(leases).await;
    println!("lost                  {lost:>10}");
    assert_eq!(lost, 0, "a lease was lost on a server that was there");
}

async fn acquire_all(locks: &Client, load: Load) -> Vec<Lease> {
    let start = Instant::now();
    let next = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let (locks, next) = (locks.clone(), next.clone());
            tokio::spawn(async move {
                let mut got = Vec::new();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= load.leases {
                        return got;
                    }
                    let lease = locks.lock(format!("lease-{number:08}")).ttl(load.ttl).await;
                    got.push(lease.expect("nobody else wants it"));
                }
            })
        })
        .collect();
    let mut leases = Vec::with_capacity(load.leases);
    for task in tasks {
        leases.extend(task.await.expect("it was free"));
    }
    told_time("acquired", leases.len(), start);
    leases
}

/// Waits, and returns the shortest time that any lease was seen to have left.
async fn hold(leases: &[Lease], time: Duration) -> Duration {
    let end = Instant::now() + time;
    let mut least = Duration::MAX;
    while Instant::now() < end {
        sleep(LOOK_EVERY.min(end.saturating_duration_since(Instant::now()))).await;
        let left = leases.iter().map(Lease::remaining).min();
        least = least.min(left.unwrap_or(Duration::MAX));
    }
    least
}

async fn release_all(mut leases: Vec<Lease>) {
    let start = Instant::now();
    let all = leases.len();
    let mut tasks = Vec::new();
    while !leases.is_empty() {
        let share = leases.split_off(leases.len().saturating_sub(all.div_ceil(AT_A_TIME)));
        tasks.push(tokio::spawn(async move {
            for lease in share {
                lease.release().await.expect("it was ours");
            }
        }));
    }
    for task in tasks {
        task.await.expect("it was ours");
    }
    told_time("released", all, start);
}

fn told_time(what: &str, leases: usize, start: Instant) {
    let took = start.elapsed().as_secs_f64();
    println!(
        "{what:<22}{leases:>10} in {took:.1} s, {:.0}/s",
        leases as f64 / took
    );
}

impl Reading {
    fn take(server: &RedisServer) -> Self {
        let info = server.cli(&["INFO", "server"]);
        let pid = field(&info, "process_id:").expect("every server tells");
        Self {
            at: Instant::now(),
            us: Process::ours(),
            server: Process::other(pid),
            scripts: Scripts::of(server),
        }
    }
}

impl Scripts {
    fn of(server: &RedisServer) -> Self {
        let info = server.cli(&["INFO", "commandstats"]);
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
        let line = line.unwrap_or_default().replace(',', "\n");
        Self {
            calls: field(&line, "calls=").unwrap_or(0),
            micros: field(&line, "usec=").unwrap_or(0),
        }
    }
}

fn report(load: Load, before: &Reading, after: &Reading, empty: &Process, least_left: Duration) {
    let time = (after.at - before.at).as_secs_f64();
    let cores = |from: &Process, to: &Process| (to.cpu - from.cpu).as_secs_f64() / time;
    let calls = after.scripts.calls - before.scripts.calls;
    let micros = after.scripts.micros - before.scripts.micros;
    let bytes =
        |holding: &Process| (holding.resident - empty.resident) as f64 / load.leases.max(1) as f64;
    let ours = cores(&before.us, &after.us);
    println!("held for              {time:>10.1} s, ttl {:?}", load.ttl);
    println!(
        "renewals per second   {:>10.0}    server's own time {:.1} us each",
        calls as f64 / time,
        micros as f64 / calls.max(1) as f64
    );
    println!(
        "our CPU               {:>9.1}%    of one core, {:.1} us a renewal",
        ours * 100.0,
        ours * time * 1e6 / calls.max(1) as f64
    );
    println!(
        "redis-server's CPU    {:>9.1}%    of one core",
        cores(&before.server, &after.server) * 100.0
    );
    println!(
        "memory per lease      {:>10.0}    bytes; {:.0} after the time held; at most {MOST_BYTES_PER_LEASE} is aimed at",
        bytes(&before.us),
        bytes(&after.us)
    );
    // Renewal is due when a third of the TTL is gone, and a lease ends before it by the drift.
    let in_time = load.ttl * 2 / 3 - drift(load.ttl);
    let late = in_time.saturating_sub(least_left);
    println!(
        "least time left       {:>9.2}s    of {:?}: a renewal was seen {:.2} s late",
        least_left.as_secs_f64(),
        load.ttl,
        late.as_secs_f64()
    );
}

/// By how much a lease that nobody renews ends before its TTL, by default.
fn drift(ttl: Duration) -> Duration {
    let start = Moment::from_start(Duration::ZERO);
    let checked = Ttl::new(ttl).expect("it was taken by the server");
    ttl - Drift::default().deadline(start, checked).since(start)
}
