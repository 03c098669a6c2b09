//! What is about the nodes and about the program itself.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args};
use clap_complete::Shell;

use super::RawJson;
use super::place::{Place, RawPlace};
use crate::duration;
use crate::exit::Failure;

/// The most tasks that a benchmark runs at once.
const MOST_TASKS: usize = 1000;
/// The longest time it takes.
const LONGEST_BENCH: Duration = Duration::from_secs(600);

/// Check whether the nodes are safe, and say how to fix what is not
///
/// Connects to each node and checks its version, role, uptime, persistence, eviction policy, clock,
/// latency and access rights, and whether two of them are the same server. On a server it writes nothing
/// but a key `fencepost:doctor`, which it deletes. A file that is missing is created, with a warning. Exits with 0 if nothing is unsafe, with 1 if something is, and with
/// 69 if fewer than a majority of the nodes could vote.
#[derive(Args)]
pub(super) struct RawDoctor {
    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
}

/// Measure how fast the nodes grant and release locks
///
/// Acquires and releases locks of its own (`fencepost:bench:PID:N`) as fast as it can. Compare only
/// figures that were measured together: they depend on the machine and on the moment.
#[derive(Args)]
pub(super) struct RawBench {
    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration::parse)]
    #[arg(env = "FENCEPOST_BENCH_TIME", hide_env_values = true)]
    time: Duration,

    /// Number of concurrent tasks, each with a lock of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(env = "FENCEPOST_BENCH_TASKS", hide_env_values = true)]
    tasks: usize,

    /// Also draw the histogram into this SVG file
    #[arg(long, value_name = "FILE")]
    #[arg(env = "FENCEPOST_BENCH_SVG", hide_env_values = true)]
    svg: Option<PathBuf>,

    #[command(flatten)]
    place: RawPlace,

    #[command(flatten)]
    json: RawJson,
}

/// Explain an exit code or an error
///
/// Prints a page of the book, which is part of the program: no network is needed. CODE is an exit code
/// (69), the word for an error (no-quorum, quarantined), or the reason of a loss in a log (max_hold).
/// Without CODE it lists all pages.
#[derive(Args)]
pub(super) struct RawExplain {
    /// Exit code or error
    code: Option<String>,
}

/// Print a completion script for a shell
///
/// In bash, zsh and fish it also completes the names of locks that are held or remembered.
#[derive(Args)]
pub(super) struct RawCompletions {
    /// Shell
    shell: Shell,
}

/// Write the man pages into a directory
#[derive(Args)]
pub(super) struct RawMan {
    /// Directory; created if missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// A look at the nodes.
pub(crate) struct DoctorJob {
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// A measurement.
pub(crate) struct BenchJob {
    pub(crate) time: Duration,
    pub(crate) tasks: usize,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) place: Place,
    pub(crate) json: bool,
}

/// A page to be printed; all are listed if none is named.
pub(crate) struct ExplainJob {
    pub(crate) code: Option<String>,
}

/// A completion script.
pub(crate) struct CompletionsJob {
    pub(crate) shell: Shell,
}

/// The man pages.
pub(crate) struct ManJob {
    pub(crate) directory: PathBuf,
}

impl RawDoctor {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<DoctorJob, Failure> {
        Ok(DoctorJob {
            place: self.place.checked(matches)?,
            json: self.json.json,
        })
    }
}

impl RawBench {
    pub(super) fn checked(self, matches: &ArgMatches) -> Result<BenchJob, Failure> {
        if !(1..=MOST_TASKS).contains(&self.tasks) {
            return Err(Failure::usage(format!(
                "--tasks must be 1 to {MOST_TASKS}, got {}",
                self.tasks
            )));
        }
        if self.time.is_zero() || self.time > LONGEST_BENCH {
            return Err(Failure::usage("--time must be more than 0 and at most 10m"));
        }
        Ok(BenchJob {
            time: self.time,
            tasks: self.tasks,
            svg: self.svg,
            place: self.place.checked(matches)?,
            json: self.json.json,
        })
    }
}

impl RawExplain {
    pub(super) fn checked(self) -> ExplainJob {
        ExplainJob { code: self.code }
    }
}

impl RawCompletions {
    pub(super) fn checked(self) -> CompletionsJob {
        CompletionsJob { shell: self.shell }
    }
}

impl RawMan {
    pub(super) fn checked(self) -> ManJob {
        let directory = self.directory;
        ManJob { directory }
    }
}
