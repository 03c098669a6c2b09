//! [`Scene`]: servers, and who meets on them; [`Effort`]: how often they meet.

use std::time::{Duration, Instant};

use fencepost_tests::RedisServer;

use crate::peer::{Peer, Spec, ours};
use crate::program::Program;

/// A TTL that does not end during a check.
pub const TTL: Duration = Duration::from_secs(20);
/// How long somebody waits who is to get the lock.
pub const WAIT: Duration = Duration::from_secs(60);

/// How often things are done.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Hand-offs in each direction.
    pub hand_offs: usize,
    /// Rounds of each process in a soak.
    pub soak: usize,
}

impl Effort {
    /// For a report.
    pub const FULL: Self = Self {
        hand_offs: 20,
        soak: 150,
    };
    /// For CI.
    pub const QUICK: Self = Self {
        hand_offs: 5,
        soak: 25,
    };
}

/// One or more servers that have just been started.
#[derive(Debug)]
pub struct Scene {
    /// The servers.
    pub servers: Vec<RedisServer>,
}

impl Scene {
    /// That many servers.
    #[must_use]
    pub fn of(nodes: usize) -> Self {
        Self {
            servers: RedisServer::start_many(nodes),
        }
    }

    /// Their URLs, separated by commas.
    #[must_use]
    pub fn urls(&self) -> String {
        let urls: Vec<_> = self.servers.iter().map(RedisServer::url).collect();
        urls.join(",")
    }

    /// The first of them.
    #[must_use]
    pub fn first(&self) -> &RedisServer {
        &self.servers[0]
    }

    /// The program on all of them.
    #[must_use]
    pub fn program(&self) -> Program {
        Program::on(&self.urls())
    }

    /// The library on all of them.
    #[must_use]
    pub fn ours(&self, kind: &str) -> Peer {
        ours(&self.urls(), kind)
    }

    /// A peer on all of them.
    #[must_use]
    pub fn peer(&self, spec: &Spec) -> Peer {
        spec.start(&self.urls())
    }
}

/// Times of one kind: from when to when, in microseconds since 1970.
#[derive(Clone, Debug, Default)]
pub struct Times(Vec<(u64, u64)>);

impl Times {
    /// Adds one.
    pub fn add(&mut self, from: u64, to: u64) {
        self.0.push((from, to));
    }

    /// The same, counted from other moments.
    #[must_use]
    pub fn counted_from(&self, moments: &[u64]) -> Self {
        let times = moments.iter().zip(&self.0);
        Self(times.map(|(from, (_, to))| (*from, *to)).collect())
    }

    /// The shortest first. The clock may be read in the other order.
    fn sorted(&self) -> Vec<Duration> {
        let times = self.0.iter().map(|(from, to)| to.saturating_sub(*from));
        let mut times: Vec<_> = times.map(Duration::from_micros).collect();
        times.sort_unstable();
        times
    }

    /// That in the middle.
    #[must_use]
    pub fn median(&self) -> Duration {
        let sorted = self.sorted();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// The longest.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.sorted().last().copied().unwrap_or_default()
    }

    /// `median / worst ms`
    #[must_use]
    pub fn text(&self) -> String {
        format!("{} / {} ms", ms(self.median()), ms(self.worst()))
    }
}

fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        ms if ms < 10.0 => format!("{ms:.1}"),
        ms => format!("{ms:.0}"),
    }
}

/// Seconds with a decimal.
#[must_use]
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Waits until `holds`, or says what did not.
///
/// # Errors
/// It did not in time.
pub fn eventually(what: &str, holds: impl Fn() -> bool) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        if Instant::now() > end {
            return Err(format!("not in time: {what}"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
