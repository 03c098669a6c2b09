//! The benchmark: `core` beside a hand-written floor and beside `rslock`, `faults` with two of five
//! nodes killed. It starts its own servers.
//!
//! All contenders run on one multi-thread tokio runtime with two workers, in the same process, in
//! turns: what the machine does besides hits all of them alike. Figures of different runs do not
//! compare.

mod awake;
mod contender;
mod core;
mod faults;
mod floor;
mod measure;
mod ours;
mod rslock;
mod table;

use std::process::ExitCode;
use std::time::Duration;

use awake::Awake;

const USAGE: &str = "\
usage: cargo run --release -p fencepost-bench -- COMMAND [OPTIONS]

  core      acquire latency and cycles per second at 1, 16 and 64 tasks, n = 1 and n = 5,
            beside a hand-written floor and beside rslock
  faults    acquire, extend and release with five nodes up, and with two of five killed

  --asleep  do not keep the cores awake: latencies as on an idle machine, less steady
  --quick   a few seconds: shows that it runs, not how fast
";

/// How long and how often each contender is measured.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    slice: Duration,
}

impl Effort {
    const FULL: Self = Self {
        rounds: 12,
        slice: Duration::from_millis(250),
    };
    const QUICK: Self = Self {
        rounds: 2,
        slice: Duration::from_millis(40),
    };
}

fn main() -> ExitCode {
    let (words, options): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|word| !word.starts_with('-'));
    let option = |name: &str| options.iter().any(|option| option == name);
    if options
        .iter()
        .any(|option| !["--asleep", "--quick"].contains(&option.as_str()))
    {
        return usage();
    }
    let effort = match option("--quick") {
        true => Effort::QUICK,
        false => Effort::FULL,
    };
    let awake = (!option("--asleep")).then(Awake::start);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["core"] => runtime.block_on(core::run(effort)),
        ["faults"] => runtime.block_on(faults::run(effort)),
        _ => return usage(),
    }
    drop(awake);
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(64)
}
