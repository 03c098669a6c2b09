//! A million names, each used once: what they leave on the server, whether retention takes it away again,
//! and whether the server ever stops for others meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fencepost::internals::Node;
use fencepost::internals::clock::SystemClock;
use fencepost::internals::redis::{RedisNode, RedisOptions, Roster};
use fencepost_tests::RedisServer;
use hdrhistogram::Histogram;
use tokio::time::sleep;

use crate::measure::histogram;
use crate::ours;
use crate::probe::Probe;

/// How many are used at a time.
const AT_A_TIME: usize = 64;
/// How long nothing happens, to know what the machine itself adds to a PING.
const QUIET: Duration = Duration::from_secs(5);
/// Users keep a register for an hour at the least; nobody waits for that here.
const RETENTION: Duration = Duration::from_secs(1);
/// How long retention may take, for each name.
const PATIENCE: Duration = Duration::from_millis(1);
/// What is aimed at: no command may stop the server for longer.
const LONGEST_STALL: Duration = Duration::from_millis(5);

pub(crate) async fn run(names: usize) {
    let slower_than = LONGEST_STALL.as_micros().to_string();
    let server = RedisServer::start_args(&["--slowlog-log-slower-than", &slower_than]);
    let locks = ours::connect(&[server.url()]).await;
    let mut probe = Probe::of(&server);
    let empty = probe.memory();

    let pings = Pings::start(&server);
    sleep(QUIET).await;
    let quiet = pings.stop();

    let (pings, begin) = (Pings::start(&server), Instant::now());
    let next = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let (locks, next) = (locks.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= names {
                        return;
                    }
                    let lease = locks.try_lock(format!("name-{number:08}")).await;
                    let released = lease.expect("nobody else wants it").release().await;
                    released.expect("nobody else took it");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it was free");
    }
    let (used, in_use) = (begin.elapsed(), pings.stop());
    let full = probe.memory();
    let keys = server.cli(&["DBSIZE"]);
    assert_eq!(keys, "1", "the register and nothing else is left");
    assert_eq!(names_kept(&server), names);

    // The youngest is old enough, too.
    sleep(RETENTION).await;
    let (pings, begin) = (Pings::start(&server), Instant::now());
    let options = RedisOptions {
        retention: RETENTION,
        ..RedisOptions::default()
    };
    let (roster, runtime) = (Roster::default(), tokio::runtime::Handle::current());
    let clock = Arc::new(SystemClock);
    let node = RedisNode::open(&server.url(), options, &roster, clock, &runtime);
    let node = node.expect("our own server");
    node.ready().await;
    let limit = QUIET + PATIENCE * u32::try_from(names).unwrap_or(u32::MAX);
    while names_kept(&server) > 0 {
        assert!(begin.elapsed() < limit, "{} are left", names_kept(&server));
        sleep(Duration::from_millis(100)).await;
    }
    let (forgotten, in_retention) = (begin.elapsed(), pings.stop());
    let after = probe.memory();

    let mb = |bytes: u64| bytes as f64 / 1e6;
    let per_name = full.saturating_sub(empty) as f64 / names as f64;
    println!("{names} names, each acquired and released once, n = 1\n");
    println!("memory before               {:>10.1} MB", mb(empty));
    println!(
        "memory with all names       {:>10.1} MB, {per_name:.0} bytes for each",
        mb(full)
    );
    println!("memory after retention      {:>10.1} MB", mb(after));
    let seconds = |time: Duration| time.as_secs_f64();
    println!("using them took             {:>10.1} s", seconds(used));
    println!("forgetting them took        {:>10.1} s", seconds(forgotten));
    let slow = server.cli(&["SLOWLOG", "LEN"]);
    println!("commands of more than 5 ms  {slow:>10}");
    println!("\nPING                            median       p99.9     longest, ms");
    for (when, seen) in [
        ("while nothing happens", quiet),
        ("while names are used", in_use),
        ("while names are forgotten", in_retention),
    ] {
        let ms = |nanos: u64| nanos as f64 / 1e6;
        println!(
            "{when:<26}{:>12.2}{:>12.2}{:>12.2}",
            ms(seen.value_at_quantile(0.5)),
            ms(seen.value_at_quantile(0.999)),
            ms(seen.max())
        );
    }
}

fn names_kept(server: &RedisServer) -> usize {
    let count = server.cli(&["ZCARD", "fencepost:fences"]);
    count.parse().expect("a number")
}

/// Somebody else who uses the server all the time.
struct Pings {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Histogram<u64>>,
}

impl Pings {
    const PAUSE: Duration = Duration::from_micros(500);

    fn start(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).expect("a good URL");
        let mut connection = client.get_connection().expect("our own server");
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        // A thread of its own: tasks of a busy runtime would wait for each other.
        let thread = std::thread::spawn(move || {
            let mut seen = histogram();
            while !ended.load(Ordering::Relaxed) {
                let begin = Instant::now();
                let pong = redis::cmd("PING").query::<String>(&mut connection);
                pong.expect("our own server");
                seen.saturating_record(begin.elapsed().as_nanos() as u64);
                std::thread::sleep(Self::PAUSE);
            }
            seen
        });
        Self { is_over, thread }
    }

    fn stop(self) -> Histogram<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("our own server")
    }
}
