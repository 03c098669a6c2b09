//! `fencepost bench`: how fast the user's own nodes grant and release locks.
//!
//! - `histogram`: from times to figures and bars.
//! - `svg`: the bars as a picture.
//!
//! It must never take a lock that could be somebody's: its names are its own.

mod histogram;
mod svg;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use fencepost::{Client, Error};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::histogram::{Histogram, Summary};
use crate::args::BenchJob;
use crate::client::{self, Connect, fault};
use crate::exit::{Exit, Failure};
use crate::table::aligned;
use crate::voice;

/// How long the locks last if we are cut off.
const TTL: Duration = Duration::from_secs(10);
/// After how many turns a lock is also extended.
const EXTEND_EVERY: usize = 8;
/// The most turns of one task: its times are kept.
const MOST_TURNS: usize = 1_000_000;

/// The times of each operation.
#[derive(Default)]
struct Times {
    acquire: Vec<Duration>,
    extend: Vec<Duration>,
    release: Vec<Duration>,
    /// How many turns failed, and how the first one did.
    failed: usize,
    first: Option<Error>,
}

impl Times {
    fn join(&mut self, other: Self) {
        self.acquire.extend(other.acquire);
        self.extend.extend(other.extend);
        self.release.extend(other.release);
        self.failed += other.failed;
        self.first = self.first.take().or(other.first);
    }

    fn rows(&self) -> [(&'static str, Summary); 3] {
        [
            ("acquire", Summary::of(&self.acquire)),
            ("extend", Summary::of(&self.extend)),
            ("release", Summary::of(&self.release)),
        ]
    }
}

pub(crate) fn run(job: &BenchJob) -> Result<ExitCode, Failure> {
    let builder = || job.place.builder();
    let (times, took) = client::with(builder, Connect::First, async |locks| {
        // Once, so that no connection is made and no script is sent while the time is taken.
        one_turn(locks, &name(0), 0, &mut Times::default())
            .await
            .map_err(|error| fault(&error))?;
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for task in 0..job.tasks {
            tasks.spawn(work(locks.clone(), task, start + job.time));
        }
        let mut times = Times::default();
        while let Some(done) = tasks.join_next().await {
            times.join(done.unwrap_or_default());
        }
        Ok((times, start.elapsed()))
    })?;
    if let (true, Some(error)) = (times.acquire.is_empty(), &times.first) {
        return Err(fault(error));
    }
    let histogram = Histogram::of(&times.acquire);
    // First: they must not be lost with a picture that cannot be written.
    let printed = voice::print(&match job.json {
        true => format!("{:#}\n", as_json(job, &times, took, &histogram)),
        false => as_text(job, &times, took, &histogram),
    });
    if let Some(file) = &job.svg {
        let title = format!("fencepost acquire, {} task(s)", job.tasks);
        std::fs::write(file, svg::draw(&histogram, &title)).map_err(|error| {
            let message = format!("cannot write {}: {error}", file.display());
            Failure::new(Exit::CannotCreate, message)
        })?;
    }
    Ok(printed)
}

fn name(task: usize) -> String {
    format!("fencepost:bench:{}:{task}", std::process::id())
}

async fn work(locks: Client, task: usize, end: Instant) -> Times {
    let (name, mut times) = (name(task), Times::default());
    for turn in 0..MOST_TURNS {
        if Instant::now() >= end {
            break;
        }
        if let Err(error) = one_turn(&locks, &name, turn, &mut times).await {
            times.failed += 1;
            times.first.get_or_insert(error);
        }
    }
    times
}

async fn one_turn(locks: &Client, name: &str, turn: usize, times: &mut Times) -> Result<(), Error> {
    let start = Instant::now();
    let lease = locks.try_lock(name).ttl(TTL).renew(false).await?;
    times.acquire.push(start.elapsed());
    if turn.is_multiple_of(EXTEND_EVERY) {
        let start = Instant::now();
        lease.extend().await?;
        times.extend.push(start.elapsed());
    }
    let start = Instant::now();
    lease.release().await?;
    times.release.push(start.elapsed());
    Ok(())
}

fn as_text(job: &BenchJob, times: &Times, took: Duration, histogram: &Histogram) -> String {
    let titles = ["", "times", "per second", "median", "p90", "p99", "longest"];
    let mut rows = vec![titles.map(str::to_owned)];
    for (what, summary) in times.rows() {
        let time = |time: Duration| format!("{:.2?}", time);
        rows.push([
            what.to_owned(),
            summary.count.to_string(),
            format!("{:.0}", summary.count as f64 / took.as_secs_f64()),
            time(summary.median),
            time(summary.p90),
            time(summary.p99),
            time(summary.longest),
        ]);
    }
    let failed = match (&times.first, times.failed) {
        (Some(error), failed) => format!("\n{failed} turns failed, the first one so: {error}\n"),
        (None, _) => String::new(),
    };
    let tasks = job.tasks;
    format!(
        "{}\nacquire, {tasks} at once\n{}{failed}",
        aligned(&rows),
        histogram.bars()
    )
}

fn as_json(job: &BenchJob, times: &Times, took: Duration, histogram: &Histogram) -> Value {
    let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
    let mut json = json!({
        "tasks": job.tasks,
        "seconds": took.as_secs_f64(),
        "failed": times.failed,
        "first_failure": times.first.as_ref().map(ToString::to_string),
        "histogram": histogram
            .buckets()
            .map(|(from, to, count)| {
                json!({ "from_us": micros(from), "to_us": micros(to), "count": count })
            })
            .collect::<Vec<_>>(),
    });
    for (what, summary) in times.rows() {
        json[what] = json!({
            "count": summary.count,
            "per_second": summary.count as f64 / took.as_secs_f64(),
            "median_us": micros(summary.median),
            "p90_us": micros(summary.p90),
            "p99_us": micros(summary.p99),
            "longest_us": micros(summary.longest),
        });
    }
    json
}
