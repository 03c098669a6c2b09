//! Runs clients for a slice of time and counts.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::contender::Contender;
use crate::probe::Probe;

/// What was seen of one contender at one number of tasks, over all rounds.
pub(crate) struct Seen {
    /// Acquire, in nanoseconds.
    acquire: Histogram<u64>,
    /// Acquire and release, per second, one figure a round.
    cycles: Vec<f64>,
    /// The processor time of the first server.
    server: Duration,
}

impl Seen {
    pub(crate) fn new() -> Self {
        Self {
            acquire: histogram(),
            cycles: Vec::new(),
            server: Duration::ZERO,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cycles.is_empty()
    }

    /// The acquire's latency at that quantile.
    pub(crate) fn acquire_micros(&self, quantile: f64) -> f64 {
        self.acquire.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// The median round: one disturbed round does not count.
    pub(crate) fn cycles_per_second(&self) -> f64 {
        median(&self.cycles)
    }

    /// What one cycle costs the first server.
    pub(crate) fn server_micros(&self) -> f64 {
        self.server.as_secs_f64() * 1e6 / self.acquire.len() as f64
    }
}

/// The figure in the middle.
///
/// # Panics
/// When there is none.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

pub(crate) fn histogram() -> Histogram<u64> {
    // With a bound, so that recording never has to grow it in the middle of a measurement.
    let longest = Duration::from_secs(10).as_nanos() as u64;
    Histogram::new_with_bounds(1, longest, 3).expect("sound bounds")
}

/// Lets each of these clients cycle for that long, each in a task of its own.
pub(crate) async fn slice<C: Contender>(
    clients: &mut Vec<C>,
    tasks: usize,
    time: Duration,
    probe: &mut Probe,
    seen: &mut Seen,
) {
    let used = probe.cpu();
    cycles(clients, tasks, time, seen).await;
    seen.server += probe.cpu().saturating_sub(used);
}

/// The same without a look at a server.
pub(crate) async fn cycles<C: Contender>(
    clients: &mut Vec<C>,
    tasks: usize,
    time: Duration,
    seen: &mut Seen,
) {
    let begin = Instant::now();
    let end = begin + time;
    let running: Vec<_> = clients
        .drain(..tasks)
        .map(|client| tokio::spawn(cycle_until(client, end)))
        .collect();
    let mut cycles = 0;
    for task in running {
        let (client, latencies) = task.await.expect("a contender failed");
        cycles += latencies.len();
        seen.acquire.add(latencies).expect("the same bounds");
        clients.push(client);
    }
    seen.cycles
        .push(cycles as f64 / begin.elapsed().as_secs_f64());
}

async fn cycle_until<C: Contender>(mut client: C, end: Instant) -> (C, Histogram<u64>) {
    let mut latencies = histogram();
    loop {
        let start = Instant::now();
        if start >= end {
            return (client, latencies);
        }
        let held = client.acquire().await;
        latencies.saturating_record(start.elapsed().as_nanos() as u64);
        client.release(held).await;
    }
}
