//! Processes at work while the nodes are stopped and continued at random.

use std::fmt::Debug;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use crate::Cluster;

/// A fixed sequence of numbers that look random, so that a failure can be told from luck.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Knuth's MMIX; the high bits are the good ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Stops up to two nodes of five at a time, now and then three, until `done`. Returns how many stops
/// that were.
pub fn stop_and_continue(cluster: &Cluster, mut done: impl FnMut() -> bool) -> usize {
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

/// Runs these programs on five nodes that are stopped and continued, until all have ended, and
/// returns what they printed, line by line, and how many stops there were.
///
/// # Panics
/// When they have not ended within `limit`, or print something else.
pub fn run_in_chaos<T>(
    cluster: &Cluster,
    programs: Vec<Command>,
    limit: Duration,
) -> (Vec<T>, usize)
where
    T: FromStr + Send + 'static,
    T::Err: Debug + Send,
{
    let mut processes = Vec::new();
    let mut readers = Vec::new();
    for mut program in programs {
        let mut process = program
            .stdout(Stdio::piped())
            .spawn()
            .expect("our own program");
        let out = BufReader::new(process.stdout.take().expect("piped"));
        processes.push(process);
        readers.push(std::thread::spawn(move || {
            let lines = out.lines().map_while(Result::ok);
            lines
                .map(|line| line.parse())
                .collect::<Result<Vec<T>, _>>()
        }));
    }
    let end = Instant::now() + limit;
    let stops = stop_and_continue(cluster, || {
        Instant::now() > end || readers.iter().all(|reader| reader.is_finished())
    });
    let in_time = Instant::now() <= end;
    for mut process in processes {
        let _ = process.kill().and_then(|()| process.wait());
    }
    assert!(in_time, "not done within {limit:?}");
    let mut printed = Vec::new();
    for reader in readers {
        printed.extend(reader.join().expect("no panic").expect("what was agreed"));
    }
    (printed, stops)
}
