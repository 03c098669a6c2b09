//! Runs the rows and prints what came of them; also plays the parts of the client and the reaper.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use clap::{Parser, Subcommand};
use fencepost_faults::client::{self, ClientOptions, InitJob};
use fencepost_faults::row::Row;
use fencepost_faults::run::{Extent, Verdict, run};
use fencepost_faults::service::{self, ReplicaOptions};
use fencepost_faults::{reaper, report, rows};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Hurts real servers and processes, and checks that what is promised holds.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    part: Option<Part>,
    /// Only this row; may be given more than once.
    #[arg(long = "row", value_name = "NAME")]
    rows: Vec<String>,
    /// On how many servers.
    #[arg(long, value_delimiter = ',', default_values_t = [3, 5])]
    nodes: Vec<usize>,
    /// For how many seconds faults go on in each row.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// How many rows run at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Where to write the report, as markdown.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Only list the rows.
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// A process that takes a lock again and again. The rows start it.
    #[command(hide = true)]
    Client(ClientOptions),
    /// A replica of the lock service. The rows start it.
    #[command(hide = true)]
    Replica(ReplicaOptions),
    /// A process that replaces a cluster by another.
    #[command(hide = true)]
    Init(InitJob),
    /// A process that cleans up when the run has ended, however it did.
    #[command(hide = true)]
    Reaper,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match options.part {
        Some(Part::Client(client)) => client::run(client).map(|()| ExitCode::SUCCESS),
        Some(Part::Replica(replica)) => service::run(replica).map(|()| ExitCode::SUCCESS),
        Some(Part::Init(job)) => client::init(job).map(|()| ExitCode::SUCCESS),
        Some(Part::Reaper) => reaper::reap(io::stdin().lock())
            .map(|()| ExitCode::SUCCESS)
            .map_err(Failure::from),
        None => suite(&options),
    };
    done.unwrap_or_else(|error| {
        eprintln!("fencepost-faults: {error}");
        ExitCode::from(2)
    })
}

fn suite(options: &Options) -> Result<ExitCode, Failure> {
    let rows = chosen(&options.rows)?;
    if options.list {
        for row in rows {
            println!("{:<18}  {}", row.name, row.what);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut left: Vec<(Row, usize)> = Vec::new();
    for row in rows.into_iter().rev() {
        left.extend(options.nodes.iter().rev().map(|nodes| (row, *nodes)));
    }
    let order: Vec<_> = left.iter().rev().map(|(row, n)| (row.name, *n)).collect();
    let faults_for = Duration::try_from_secs_f64(options.seconds)?;
    println!("{}", report::head());
    let left = Mutex::new(left);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..options.jobs.max(1) {
            scope.spawn(|| {
                while let Some((row, nodes)) = next(&left) {
                    let extent = Extent {
                        nodes,
                        faults_for,
                        watch_for: Duration::from_secs(3),
                    };
                    let outcome = run(row, extent);
                    tell(row, nodes, &outcome);
                    if let Ok(mut done) = done.lock() {
                        done.push((row, nodes, outcome));
                    }
                }
            });
        }
    });
    let mut done = done.into_inner().map_err(|_| "a row panicked")?;
    let place = |row: &Row, nodes| order.iter().position(|of| *of == (row.name, nodes));
    done.sort_by_key(|(row, nodes, _)| place(row, *nodes));
    let failed = done
        .iter()
        .filter(|(_, _, outcome)| outcome.is_err())
        .count();
    let outcomes = done.into_iter().filter_map(|(_, _, outcome)| outcome.ok());
    let verdicts: Vec<Verdict> = outcomes.collect();
    if let Some(file) = &options.report {
        std::fs::write(file, report::markdown(&verdicts))?;
    }
    for network in report::networks(&verdicts) {
        println!("in {network}");
    }
    let violations: usize = verdicts.iter().map(|v| v.violations.len()).sum();
    println!("{violations} violations in {} runs", verdicts.len());
    if failed > 0 {
        println!("{failed} runs did not come to their end");
    }
    Ok(match (violations, failed) {
        (0, 0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn chosen(names: &[String]) -> Result<Vec<Row>, Failure> {
    if names.is_empty() {
        return Ok(rows::all());
    }
    let find = |name: &String| {
        rows::by_name(name).ok_or_else(|| format!("no row is called {name:?}: see --list").into())
    };
    names.iter().map(find).collect()
}

fn next(left: &Mutex<Vec<(Row, usize)>>) -> Option<(Row, usize)> {
    left.lock().ok()?.pop()
}

fn tell(row: Row, nodes: usize, outcome: &io::Result<Verdict>) {
    match outcome {
        Ok(verdict) => {
            println!("{}", report::row(verdict));
            if let Some(why) = verdict.skipped {
                println!("  skipped: {why}");
            }
            for violation in &verdict.violations {
                println!("  VIOLATION {violation}");
            }
        }
        Err(error) => println!(
            "{} on {nodes} servers did not come to its end: {error}",
            row.name
        ),
    }
}
