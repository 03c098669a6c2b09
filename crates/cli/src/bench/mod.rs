//! `fencepost bench`: how fast the user's own nodes grant and release locks.
//!
//! - `histogram`: from times to figures and bars.
//! - `svg`: the bars as a picture.
//!
//! It must never acquire a lock that is in use: its names are its own.

mod histogram;
mod svg;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fencepost::{Client, Error};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::histogram::{Histogram, Summary, Times};
use crate::args::BenchJob;
use crate::client::{self, Connect, fault};
use crate::exit::{Exit, Failure};
use crate::table::aligned;
use crate::voice;

/// How long the locks last if we are cut off.
const TTL: Duration = Duration::from_secs(10);
/// After how many turns a lock is also extended.
const EXTEND_EVERY: usize = 8;

/// What was measured.
#[derive(Default)]
struct Measured {
    acquire: Times,
    extend: Times,
    release: Times,
    /// How many turns failed, and how the first one did.
    failed: usize,
    first: Option<Error>,
}

impl Measured {
    fn rows(&self) -> [(&'static str, Summary); 3] {
        [
            ("acquire", self.acquire.summary()),
            ("extend", self.extend.summary()),
            ("release", self.release.summary()),
        ]
    }
}

pub(crate) fn run(job: &BenchJob) -> Result<ExitCode, Failure> {
    let builder = || job.place.builder();
    let (times, took) = client::with(builder, Connect::First, async |locks| {
        // Once, so that no connection is made and no script is sent while the time is taken.
        one_turn(locks, &name(0), 0, &Mutex::default())
            .await
            .map_err(|error| fault(&error))?;
        let (start, times) = (Instant::now(), Arc::default());
        let mut tasks = JoinSet::new();
        for task in 0..job.tasks {
            tasks.spawn(work(
                locks.clone(),
                task,
                start + job.time,
                Arc::clone(&times),
            ));
        }
        while tasks.join_next().await.is_some() {}
        let took = start.elapsed();
        Ok((std::mem::take(&mut *lock(&times)), took))
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

/// Nothing is awaited while it is locked.
fn lock(times: &Mutex<Measured>) -> MutexGuard<'_, Measured> {
    times.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn work(locks: Client, task: usize, end: Instant, times: Arc<Mutex<Measured>>) {
    let name = name(task);
    for turn in 0.. {
        if Instant::now() >= end {
            break;
        }
        if let Err(error) = one_turn(&locks, &name, turn, &times).await {
            let mut times = lock(&times);
            times.failed += 1;
            times.first.get_or_insert(error);
        }
    }
}

async fn one_turn(
    locks: &Client,
    name: &str,
    turn: usize,
    times: &Mutex<Measured>,
) -> Result<(), Error> {
    let start = Instant::now();
    let lease = locks.try_lock(name).ttl(TTL).renew(false).await?;
    lock(times).acquire.add(start.elapsed());
    if turn.is_multiple_of(EXTEND_EVERY) {
        let start = Instant::now();
        lease.extend().await?;
        lock(times).extend.add(start.elapsed());
    }
    let start = Instant::now();
    lease.release().await?;
    lock(times).release.add(start.elapsed());
    Ok(())
}

fn as_text(job: &BenchJob, times: &Measured, took: Duration, histogram: &Histogram) -> String {
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
        (Some(error), failed) => format!("\n{failed} rounds failed; the first: {}\n", fault(error)),
        (None, _) => String::new(),
    };
    let tasks = job.tasks;
    format!(
        "{}\nacquire, {tasks} at once\n{}{failed}",
        aligned(&rows),
        histogram.bars()
    )
}

fn as_json(job: &BenchJob, times: &Measured, took: Duration, histogram: &Histogram) -> Value {
    let micros = |time: Duration| time.as_nanos() as f64 / 1000.0;
    let mut json = json!({
        "tasks": job.tasks,
        "seconds": took.as_secs_f64(),
        "failed": times.failed,
        "first_failure": times.first.as_ref().map(|error| fault(error).to_string()),
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
