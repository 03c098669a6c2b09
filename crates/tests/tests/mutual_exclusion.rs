//! Many processes want one lock while nodes are stopped and continued at random: no two valid
//! leases overlap, and tokens are distinct and grow in real-time order.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fencepost_tests::{Cluster, Turn, check};

const PROCESSES: usize = 4;
const TASKS: usize = 8;
/// A task takes this many turns; 2,000 in all, and a few more.
const TURNS: usize = 63;
/// How long the whole may take.
const LIMIT: Duration = Duration::from_secs(180);

/// A fixed sequence of numbers that look random, so that a failure can be told from luck.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // Knuth's MMIX; the high bits are the good ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn contend(urls: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_contend"))
        .args([urls, "job", &TASKS.to_string(), &TURNS.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("our own program")
}

/// Stops up to two nodes at a time, now and then three, until `done`.
fn stop_and_continue(cluster: &Cluster, mut done: impl FnMut() -> bool) -> usize {
    let mut random = Random(7);
    let mut stops = 0;
    while !done() {
        let many = match random.below(10) {
            0 => 3,
            n => 1 + n % 2,
        };
        let first = random.below(5);
        let nodes: Vec<_> = (0..many).map(|i| ((first + i) % 5) as usize).collect();
        nodes
            .iter()
            .for_each(|node| cluster.servers[*node].freeze());
        stops += nodes.len();
        std::thread::sleep(Duration::from_millis(5 + random.below(120)));
        nodes.iter().for_each(|node| cluster.servers[*node].thaw());
        std::thread::sleep(Duration::from_millis(5 + random.below(60)));
    }
    stops
}

#[test]
fn thirty_two_tasks_in_four_processes_never_hold_the_lock_together() {
    let cluster = Cluster::start(5);
    let urls = cluster.urls();
    let mut processes: Vec<Child> = (0..PROCESSES).map(|_| contend(&urls)).collect();
    let readers: Vec<_> = processes
        .iter_mut()
        .map(|process| {
            let out = BufReader::new(process.stdout.take().expect("piped"));
            std::thread::spawn(move || {
                let lines = out.lines().map_while(Result::ok);
                lines
                    .map(|line| line.parse())
                    .collect::<Result<Vec<Turn>, _>>()
            })
        })
        .collect();
    let end = Instant::now() + LIMIT;
    let stops = stop_and_continue(&cluster, || {
        Instant::now() > end || readers.iter().all(|reader| reader.is_finished())
    });
    let in_time = Instant::now() <= end;
    for mut process in processes {
        let _ = process.kill().and_then(|()| process.wait());
    }
    assert!(in_time, "not done within {LIMIT:?}");
    let mut turns = Vec::new();
    for reader in readers {
        turns.extend(reader.join().expect("no panic").expect("turns"));
    }
    assert_eq!(
        turns.len(),
        PROCESSES * TASKS * TURNS,
        "all have had their turns"
    );
    assert!(stops > 20, "only {stops} stops");
    check(&turns).unwrap();
}
