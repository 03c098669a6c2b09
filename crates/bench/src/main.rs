//! The benchmark: `core` beside a hand-written floor and beside `rslock`, `waiting` with many who
//! want the same lock, beside `rslock`, `faults` with two of five nodes killed, `leases` with very
//! many of them held at once. It starts its own servers.
//!
//! All contenders run on one multi-thread tokio runtime with two workers, in the same process, in
//! turns: what the machine does besides hits all of them alike. Figures of different runs do not
//! compare.

mod awake;
mod contender;
mod core;
mod faults;
mod floor;
mod leases;
mod measure;
mod ours;
mod peers;
mod process;
mod rslock;
mod table;
mod waiting;

use std::process::ExitCode;
use std::time::Duration;

use awake::Awake;
use leases::Load;

const USAGE: &str = "\
usage: cargo run --release -p fencepost-bench -- COMMAND [OPTIONS]

  core      acquire latency and cycles per second at 1, 16 and 64 tasks, n = 1 and n = 5,
            beside a hand-written floor and beside rslock
  waiting   4 and 32 workers that want one lock, n = 5, beside rslock, and beside what no lock can
            beat: a mutex in memory, and a hand-off written by hand; and what 500 waiters cost
  faults    acquire, extend and release with five nodes up, and with two of five killed
  peers     the same work for fencepost and for the clients of other languages (interop/README.md)
  leases    one process holds very many leases: none lost, and what it costs

  --asleep  do not keep the cores awake: latencies as on an idle machine, less steady
  --quick   a few seconds: shows that it runs, not how fast

 for leases:
  --nodes N    on how many servers (1)
  --leases N   how many (100000)
  --ttl S      their TTL in seconds (30)
  --seconds S  how long they are held (120)
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

/// What was asked for.
struct Arguments {
    command: String,
    effort: Effort,
    load: Load,
    asleep: bool,
    quick: bool,
}

impl Arguments {
    /// `None` when they make no sense.
    fn parse(words: impl Iterator<Item = String>) -> Option<Self> {
        let words: Vec<_> = words.collect();
        let quick = words.iter().any(|word| word == "--quick");
        let mut command = None;
        let mut asleep = false;
        let mut load = if quick { Load::QUICK } else { Load::FULL };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let mut number = || words.next()?.parse::<u32>().ok();
            match word.as_str() {
                "--quick" => {}
                "--asleep" => asleep = true,
                "--nodes" => load.nodes = number()?.max(1) as usize,
                "--leases" => load.leases = number()? as usize,
                "--ttl" => load.ttl = Duration::from_secs(number()?.into()),
                "--seconds" => load.time = Duration::from_secs(number()?.into()),
                _ if word.starts_with('-') || command.is_some() => return None,
                _ => command = Some(word),
            }
        }
        Some(Self {
            command: command?,
            effort: if quick { Effort::QUICK } else { Effort::FULL },
            load,
            asleep,
            quick,
        })
    }
}

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1)) else {
        return usage();
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let awake = || (!arguments.asleep).then(Awake::start);
    match arguments.command.as_str() {
        "core" => {
            let _awake = awake();
            runtime.block_on(core::run(arguments.effort));
        }
        "waiting" => {
            let _awake = awake();
            runtime.block_on(waiting::run(arguments.effort));
        }
        "faults" => {
            let _awake = awake();
            runtime.block_on(faults::run(arguments.effort));
        }
        "peers" => {
            let _awake = awake();
            let effort = match arguments.quick {
                true => peers::Effort::QUICK,
                false => peers::Effort::FULL,
            };
            peers::run(effort, arguments.quick);
        }
        "leases" => runtime.block_on(leases::run(arguments.load)),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(64)
}
