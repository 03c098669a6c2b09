//! Thousands that wait for one name, and thousands of event streams, on one process.

use std::time::{Duration, Instant};

use fencepost_tests::RedisServer;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::child::Replica;
use super::http::Http;
use crate::process::Process;

/// How long it is looked on while nothing happens.
const IDLE: Duration = Duration::from_secs(5);
/// How long hand-offs are counted.
const HAND_OFFS: Duration = Duration::from_secs(3);
/// Descriptors for everything but these connections.
const SPARE: usize = 500;

pub(crate) async fn run(quick: bool) {
    let (waiters, streams) = match quick {
        true => (200, 100),
        false => (8_000, 4_000),
    };
    // Each connection is a descriptor here and one there; both processes have the same limit.
    let room = open_files().saturating_sub(SPARE);
    let share = (room as f64 / (waiters + streams) as f64).min(1.0);
    let scaled = |count: usize| (count as f64 * share) as usize;
    let (waiters, streams) = (scaled(waiters), scaled(streams));
    if share < 1.0 {
        println!(
            "only {waiters} waiters and {streams} streams: the file limit is {}",
            open_files()
        );
    }
    let server = RedisServer::start();
    let replica = Replica::start(&server.url());
    let mut holder = Http::connect(&replica.address).await;
    let held = json!({ "name": "job", "ttl": "60s" });
    let (status, held) = holder.post("/v1/acquire", &held).await;
    assert_eq!(status, 200, "{held}");

    let empty = Process::other(replica.pid());
    let (tell, mut told) = mpsc::unbounded_channel();
    let (begin, _) = tokio::sync::broadcast::channel::<()>(1);
    let mut waiting = Vec::with_capacity(waiters);
    for _ in 0..waiters {
        waiting.push(wait(&replica.address).await);
    }
    until_all_wait(&mut holder, waiters).await;
    let crowded = Process::other(replica.pid());
    figure("memory per waiter, bytes", per(&crowded, &empty, waiters));
    figure(
        "processor while all wait, % of a core",
        idle(&replica).await,
    );

    let mut open = Vec::with_capacity(streams);
    for _ in 0..streams {
        let mut stream = Http::connect(&replica.address).await;
        stream.send("GET", "/v1/events?name=job", "").await;
        open.push(stream);
    }
    for stream in &mut open {
        stream.drain().await;
    }
    let watched = Process::other(replica.pid());
    figure("memory per stream, bytes", per(&watched, &crowded, streams));
    figure("processor with streams, % of a core", idle(&replica).await);

    // From here on whoever is served releases at once.
    for mut client in waiting {
        let (tell, mut over) = (tell.clone(), begin.subscribe());
        tokio::spawn(async move {
            let (status, answer) = tokio::select! {
                answer = client.answer() => answer,
                _ = over.recv() => return,
            };
            if status == 200 {
                let release = json!({ "name": "job", "lease": answer["lease"] });
                client.post("/v1/release", &release).await;
                let _ = tell.send(());
            }
        });
    }
    // Streams are read, as their clients would.
    for mut stream in open {
        let mut over = begin.subscribe();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = stream.drain() => {}
                    _ = over.recv() => return,
                }
            }
        });
    }
    let (before, start) = (commands(&server), Instant::now());
    let release = json!({ "name": "job", "lease": held["lease"] });
    // The service has closed the first one, which was idle for long.
    let mut holder = Http::connect(&replica.address).await;
    holder.post("/v1/release", &release).await;
    let mut served = 0_usize;
    while start.elapsed() < HAND_OFFS && served < waiters {
        let left = HAND_OFFS.saturating_sub(start.elapsed());
        match tokio::time::timeout(left, told.recv()).await {
            Ok(Some(())) => served += 1,
            _ => break,
        }
    }
    let (took, after) = (start.elapsed(), commands(&server));
    figure("hand-offs per second", served as f64 / took.as_secs_f64());
    figure(
        "commands per node and hand-off",
        (after - before) as f64 / served.max(1) as f64,
    );
    let _ = begin.send(());
}

async fn wait(address: &str) -> Http {
    let mut client = Http::connect(address).await;
    let body = json!({ "name": "job", "ttl": "30s", "wait": "60s" }).to_string();
    client.send("POST", "/v1/acquire", &body).await;
    client
}

async fn until_all_wait(look: &mut Http, all: usize) {
    let end = Instant::now() + Duration::from_secs(40);
    loop {
        look.send("GET", "/v1/locks?name=job", "").await;
        let (_, seen) = look.answer().await;
        let waiting = seen["waiting"].as_u64().unwrap_or(0);
        if waiting >= all as u64 {
            return;
        }
        assert!(Instant::now() < end, "only {waiting} of {all} wait");
        sleep(Duration::from_millis(100)).await;
    }
}

/// The processor time of a replica to which nothing happens, as a share of one core.
async fn idle(replica: &Replica) -> f64 {
    let before = Process::other(replica.pid()).cpu;
    sleep(IDLE).await;
    let used = Process::other(replica.pid()).cpu.saturating_sub(before);
    used.as_secs_f64() * 100.0 / IDLE.as_secs_f64()
}

fn per(after: &Process, before: &Process, count: usize) -> f64 {
    after.resident.saturating_sub(before.resident) as f64 / count.max(1) as f64
}

fn figure(what: &str, figure: f64) {
    println!("{what:<42} {figure:>12.1}");
}

fn commands(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "stats"]);
    stats
        .lines()
        .find_map(|line| line.strip_prefix("total_commands_processed:"))
        .and_then(|count| count.trim().parse().ok())
        .expect("a count")
}

/// The soft limit of this process.
fn open_files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(1024)
}
