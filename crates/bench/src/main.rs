//! The benchmark. It starts its own servers.
//!
//! | file | what it is |
//! | --- | --- |
//! | `aims` | `table`: every figure beside its aim |
//! | `figures` | plots: latency against tasks, and against nodes |
//! | `core` | uncontended, beside a hand-written floor and beside `rslock` |
//! | `waiting` | many who want the same lock |
//! | `peers` | beside the clients of other languages |
//! | `faults` | with two of five nodes killed |
//! | `failovers` | on stores that fail over: a Sentinel group, `replicas=1`, a Redis Cluster |
//! | `leases` | very many leases held at once |
//! | `names` | very many names, each used once: memory, and stalls of the server |
//! | `service` | over HTTP, beside the library without the service and beside etcd; and many who wait |
//! | `floor` | what a client could be at best, written by hand |
//! | `ours`, `rslock` | the contenders, as their users would use them |
//! | `plot`, `columns` | drawing, printing |
//! | `delay` | a network that takes its time |
//! | `measure`, `probe`, `process` | counting |
//!
//! All contenders run on one multi-thread tokio runtime with two workers, in the same process, in
//! turns: what the machine does besides hits all of them alike. Figures of different runs do not
//! compare.

mod aims;
mod awake;
mod columns;
mod contender;
mod core;
mod delay;
mod failovers;
mod faults;
mod figures;
mod floor;
mod leases;
mod measure;
mod names;
mod ours;
mod peers;
mod plot;
mod probe;
mod process;
mod rslock;
mod service;
mod waiting;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use aims::Rows;
use awake::Awake;
use leases::Load;

const USAGE: &str = "\
usage: cargo run --release -p fencepost-bench -- COMMAND [OPTIONS]

  table     every figure beside its aim: docs/figures/table.md and table.json
  figures   latency against tasks, and against nodes over a slow network: docs/figures/*.svg
  core      acquire latency and cycles per second at 1, 16 and 64 tasks, n = 1 and n = 5,
            beside a hand-written floor and beside rslock
  waiting   4 and 32 workers that want one lock, n = 5, beside rslock, and beside what no lock can
            beat: a mutex in memory, and a hand-off written by hand; and what 500 waiters cost
  faults    acquire, extend and release with five nodes up, and with two of five killed
  failovers acquire and release on a plain server, a Sentinel group and a Redis Cluster, each also
            with replicas=1
  peers     the same work for fencepost and for the clients of other languages (interop/README.md):
            interop/bench.md, docs/figures/peers.svg, and the figures that README.md quotes
  service   cycles and latency over HTTP on memory, a file, one and five servers, beside the library
            without the service and beside etcd's lock API, where that is installed
  service-scale   thousands that wait for one name, and thousands of event streams: memory, idle
            processor time, and what a hand-off costs a node
  leases    one process holds very many leases: none lost, and what it costs
  names     a million names, each used once, then retention: memory, and the longest PING meanwhile

  --asleep  do not keep the cores awake: latencies as on an idle machine, less steady
  --quick   a few seconds: shows that it runs, not how fast; writes no files without --out
  --runs N  how often all of it is measured; the median is shown (table, peers: 3)
  --rows A,B…  for table: only these of alone, growth, hand-off, behind, release and slots;
            writes no files without --out
  --stores A,B…  for service: only these of memory, file, one and five
  --out DIR where files are written (docs/figures); for peers all three, README.md as a copy

 for names:
  --names N    how many (1000000)

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
    const FIGURES: Self = Self {
        rounds: 5,
        slice: Duration::from_millis(200),
    };
    const QUICK: Self = Self {
        rounds: 2,
        slice: Duration::from_millis(40),
    };
}

/// Where tables and plots are kept.
const FIGURES: &str = "docs/figures";

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What was asked for.
struct Arguments {
    command: String,
    effort: Effort,
    load: Load,
    asleep: bool,
    quick: bool,
    runs: Option<usize>,
    /// Of the table.
    rows: Vec<Rows>,
    /// Of the service.
    stores: Vec<&'static str>,
    names: usize,
    /// Where files are written; `None` for nowhere.
    out: Option<PathBuf>,
    /// What `--out` named.
    elsewhere: Option<PathBuf>,
}

impl Arguments {
    /// `None` when they make no sense.
    fn parse(words: impl Iterator<Item = String>) -> Option<Self> {
        let words: Vec<_> = words.collect();
        let quick = words.iter().any(|word| word == "--quick");
        let mut command = None;
        let mut asleep = false;
        let mut runs = None;
        let mut elsewhere = None;
        let mut rows = Rows::ALL.to_vec();
        let mut stores = service::STORES.to_vec();
        let mut names = if quick { 10_000 } else { 1_000_000 };
        let is_part = quick || words.iter().any(|word| word == "--rows");
        let mut load = if quick { Load::QUICK } else { Load::FULL };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            if word == "--out" {
                elsewhere = Some(PathBuf::from(words.next()?));
                continue;
            }
            if word == "--rows" {
                rows = Rows::parse(&words.next()?)?;
                continue;
            }
            if word == "--stores" {
                let wanted = words.next()?;
                let named = wanted.split(',').map(|word| {
                    let mut all = service::STORES.iter().copied();
                    all.find(|store| *store == word)
                });
                stores = named.collect::<Option<_>>()?;
                continue;
            }
            let mut number = || words.next()?.parse::<u32>().ok();
            match word.as_str() {
                "--quick" => {}
                "--asleep" => asleep = true,
                "--runs" => runs = Some(number()?.max(1) as usize),
                "--names" => names = number()?.max(1) as usize,
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
            runs,
            rows,
            stores,
            names,
            out: elsewhere
                .clone()
                .or_else(|| (!is_part).then(|| root().join(FIGURES))),
            elsewhere,
        })
    }
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(service::child::COMMAND) {
        service::child::run();
        return ExitCode::SUCCESS;
    }
    let Some(arguments) = Arguments::parse(std::env::args().skip(1)) else {
        return usage();
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    if let Some(directory) = &arguments.out {
        std::fs::create_dir_all(directory).expect("the directory can be made");
    }
    let awake = || (!arguments.asleep).then(Awake::start);
    match arguments.command.as_str() {
        "table" => {
            let _awake = awake();
            let (extent, runs) = match arguments.quick {
                true => (aims::Extent::QUICK, 1),
                false => (aims::Extent::FULL, 3),
            };
            let runs = arguments.runs.unwrap_or(runs);
            let out = arguments.out.as_deref();
            aims::run(&runtime, extent, runs, &arguments.rows, out);
        }
        "figures" => {
            let _awake = awake();
            let effort = match arguments.quick {
                true => Effort::QUICK,
                false => Effort::FIGURES,
            };
            runtime.block_on(figures::run(effort, arguments.out.as_deref()));
        }
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
        "failovers" => {
            let _awake = awake();
            runtime.block_on(failovers::run(arguments.effort));
        }
        "peers" => {
            let _awake = awake();
            let effort = match arguments.quick {
                true => peers::Effort::QUICK,
                false => peers::Effort::FULL,
            };
            let files = match (&arguments.elsewhere, arguments.quick) {
                (Some(directory), _) => Some(peers::Files::below(directory)),
                (None, true) => None,
                (None, false) => Some(peers::Files::kept()),
            };
            peers::run(effort.with_rounds(arguments.runs), files.as_ref());
        }
        "service" => {
            let _awake = awake();
            runtime.block_on(service::run(arguments.effort, &arguments.stores));
        }
        "service-scale" => runtime.block_on(service::scale::run(arguments.quick)),
        "names" => runtime.block_on(names::run(arguments.names)),
        "leases" => runtime.block_on(leases::run(arguments.load)),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprint!("{USAGE}");
    ExitCode::from(64)
}
