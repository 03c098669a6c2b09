//! fencepost beside the clients of other languages: the same work for each in one run, on the same servers.
//!
//! Each is a process of its own behind the line protocol of `interop/README.md`, and so is fencepost, so that all
//! of them pay for the same pipes. They are measured in turns; a figure is that of the median round.
//!
//! | file | what it does |
//! | --- | --- |
//! | this one | measures |
//! | `report` | makes tables of it, and what the README quotes |

mod report;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use fencepost_interop::peer::{
    Answer, CLASSIC, INSTALL_LIMIT, NotInstalled, Peer, Spec, label, millis, ours, step,
};
use fencepost_interop::revision::revision;
use fencepost_interop::table::Table;
use fencepost_tests::RedisServer;

use crate::contender::TTL;
use crate::plot::{Bars, bars};
use crate::process::Process;
use report::{Figure, Measure, cell, median};

const REDISSON: &str = "redisson";
const ALONE: [usize; 3] = [1, 16, 64];
const TOGETHER: [usize; 2] = [4, 32];
/// How much longer than its slice a peer may take before it is said to hang.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where the tables are kept, from the root; where their plot; and who quotes them.
const REPORT: &str = "interop/bench.md";
const PLOT: &str = "docs/figures/peers.svg";
const README: &str = "README.md";
/// How many wait at once when their memory is measured, and for how long until all of them do.
const WAITERS: usize = 200;
const ALL_WAIT: Duration = Duration::from_secs(3);

/// Whom to measure.
#[derive(Clone, Copy)]
enum Contender {
    /// The library: a kind of lock.
    Ours(&'static str, &'static str),
    Peer(Spec),
}

impl Contender {
    fn name(self) -> &'static str {
        match self {
            Self::Ours(name, _) => name,
            Self::Peer(spec) => spec.name,
        }
    }

    /// Its name on that many nodes, with its version if it is another client.
    fn label(self, peer: &Peer, nodes: usize) -> String {
        match self {
            Self::Ours(name, _) => name.to_owned(),
            // `Peer.java` has that one then.
            Self::Peer(spec) if spec.dir == REDISSON && nodes > 1 => {
                label("RedissonRedLock", &peer.version)
            }
            Self::Peer(spec) => label(spec.name, &peer.version),
        }
    }

    fn start(self, urls: &str) -> Peer {
        match self {
            Self::Ours(_, kind) => ours(urls, kind),
            Self::Peer(spec) => spec.start(urls),
        }
    }
}

/// How much is measured.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    rounds: usize,
    slice: Duration,
    waiters: usize,
}

impl Effort {
    /// With another number of rounds, if one is given.
    pub(crate) fn with_rounds(self, rounds: Option<usize>) -> Self {
        Self {
            rounds: rounds.unwrap_or(self.rounds),
            ..self
        }
    }

    pub(crate) const FULL: Self = Self {
        rounds: 3,
        slice: Duration::from_millis(1000),
        waiters: WAITERS,
    };
    pub(crate) const QUICK: Self = Self {
        rounds: 1,
        slice: Duration::from_millis(200),
        waiters: 20,
    };
}

/// What one slice came to: cycles per second, and the times of acquisitions in microseconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slice {
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) longest: f64,
}

impl Slice {
    /// What a peer answered to `load`.
    ///
    /// # Errors
    /// It is something else.
    pub(crate) fn read(words: &[String]) -> Result<Self, String> {
        let numbers: Vec<f64> = words.iter().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [rate, p50, p99, longest] => Ok(Self {
                rate,
                p50,
                p99,
                longest,
            }),
            _ => Err(format!("expected four figures, got {words:?}")),
        }
    }
}

/// What was seen of a contender.
struct Figures {
    name: &'static str,
    /// Its name and its version.
    label: String,
    /// By the number of workers, alone and together.
    alone: Vec<Vec<Slice>>,
    together: Vec<Vec<Slice>>,
    /// What the process had in memory after the most had waited, in bytes.
    resident: u64,
    /// Why it is not measured any more.
    fault: Option<String>,
}

/// A peer that is not measured.
struct Skipped {
    name: &'static str,
    why: String,
}

/// A contender that runs on some servers.
struct Runner {
    peer: Option<Peer>,
    figures: Figures,
}

/// Where the results are written.
pub(crate) struct Files {
    report: PathBuf,
    plot: PathBuf,
    readme: PathBuf,
}

impl Files {
    /// Those of the repository.
    pub(crate) fn kept() -> Self {
        let root = crate::root();
        Self {
            report: root.join(REPORT),
            plot: root.join(PLOT),
            readme: root.join(README),
        }
    }

    /// All in one directory: the README is a copy there.
    pub(crate) fn below(directory: &Path) -> Self {
        let file = |path: &str| {
            let name = Path::new(path).file_name().expect("a file");
            directory.join(name)
        };
        Self {
            report: file(REPORT),
            plot: file(PLOT),
            readme: file(README),
        }
    }
}

pub(crate) fn run(effort: Effort, files: Option<&Files>) {
    let begun = Instant::now();
    let readme = std::fs::read_to_string(crate::root().join(README)).expect("the README");
    // Before minutes of work, not behind them.
    assert!(
        report::with_block(&readme, "").is_some(),
        "the README has no place for the figures"
    );
    // Before anything is written.
    let made = format!("{}, revision {}", machine(), revision());
    let note = format!("fencepost {}, {made}", env!("CARGO_PKG_VERSION"));
    let (contenders, skipped) = contenders();
    let (mut measures, mut quoted, mut plots) = (Vec::new(), Vec::new(), Vec::new());
    let mut text = String::new();
    let mut say = |more: &str| {
        print!("{more}");
        text.push_str(more);
    };
    for nodes in [1, 5] {
        let all = measure(&contenders, nodes, effort);
        say(&format!(
            "\n## Alone, n = {nodes}\n\nNo contention: each worker has a lock of its own.\n\n"
        ));
        say(&report::alone(&all));
        say(&format!(
            "\n## Together, n = {nodes}\n\nAll workers want one lock. They hold it for 1 ms and pause for 5 ms, so \
             1000 cycles/s is the limit. Times in ms; \"longest\" is the longest wait of all rounds. A median far below \
             the hold time means that most acquisitions found the lock free while the others slept between two \
             polls.\n\n"
        ));
        say(&report::together(&all));
        measures.extend(report::measures(nodes, &all));
        quoted.extend(report::quoted(nodes, &all));
        plots.extend(plot(nodes, &all));
    }
    say(
        "\n## One node of five stopped\n\nIt accepts connections and never answers (SIGSTOP). One worker, alone.\n\n",
    );
    let (table, more) = one_stopped(&contenders, effort);
    say(&table);
    measures.extend(more);
    say(&format!(
        "\n## Memory per waiter\n\n{} workers of one process wait for a lock on one node that is never released: \
         by how much the process has grown, divided by the number of workers.\n\n",
        effort.waiters
    ));
    let (table, more) = memory(&contenders, effort);
    say(&table);
    measures.extend(more);
    say("\n## Who is ahead of fencepost\n\nBy 5 % or more, in any measure above.\n\n");
    say(&report::who_is_ahead(&measures));
    say("\n## Versions\n\n");
    say(&all_versions(&contenders, &skipped));
    eprintln!("measured in {} s", begun.elapsed().as_secs());
    if let Some(files) = files {
        let head = format!(
            "{HEAD}{}\n![fencepost beside other clients](../{PLOT})\n",
            report::short_table(&quoted)
        );
        let names: Vec<_> = skipped.iter().map(|one| one.name).collect();
        let block = report::block(&quoted, &measures, &made, &names);
        let readme = report::with_block(&readme, &block).expect("a place for the figures");
        for (path, text) in [
            (&files.report, format!("{head}{text}")),
            (&files.plot, bars(&plots, &note)),
            (&files.readme, readme),
        ] {
            std::fs::write(path, text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            eprintln!("wrote {}", path.display());
        }
    }
}

const HEAD: &str = "\
# Beside the peers: figures

Made by `cargo run --release -p fencepost-bench -- peers`, which also writes what the README quotes. Everything runs on one
machine over loopback, in turns; figures of different runs do not compare. Each contender is one process with as many
workers as the column says. fencepost and rslock are Rust, the others are what they are. \"x ours\" is a figure as a multiple
of fencepost's.

";

/// What the README shows: how many cycles at one worker, and how long the slowest waited.
fn plot(nodes: usize, all: &[Figures]) -> Vec<Bars> {
    let bars = |title: String, figure: &dyn Fn(&Figures) -> Option<f64>| Bars {
        title,
        bars: all
            .iter()
            .filter_map(|one| Some((one.label.clone(), figure(one)?)))
            .collect(),
    };
    let last = TOGETHER.len() - 1;
    match nodes {
        1 => vec![bars(format!("cycles/s, one worker, n = {nodes}"), &|one| {
            median(&one.alone[0], |slice| slice.rate)
        })],
        _ => vec![
            bars(format!("cycles/s, one worker, n = {nodes}"), &|one| {
                median(&one.alone[0], |slice| slice.rate)
            }),
            bars(
                format!("p99 wait, ms, {} workers, n = {nodes}", TOGETHER[last]),
                &|one| median(&one.together[last], |slice| slice.p99 / 1000.0),
            ),
        ],
    }
}

/// How much more memory a process has while so many of its workers wait.
fn memory(contenders: &[Contender], effort: Effort) -> (String, Vec<Measure>) {
    let mut seen = Vec::new();
    let mut table = Table::of(&["", "before, MB", "waiting, MB", "KB per waiter"]);
    for contender in contenders {
        let server = RedisServer::start();
        let (mut holder, mut waiter) = (
            contender.start(&server.url()),
            contender.start(&server.url()),
        );
        let ttl = millis(Duration::from_secs(60));
        step(contender.name(), "memory");
        let label = contender.label(&waiter, 1);
        let mut row = vec![label.clone()];
        let mut figures = None;
        // Everything that is made at the first use is made before.
        let warm = waiter.ask(&["load", "warm", "shared", "4", "500", &ttl]);
        let held = holder.ask(&["try", "crowd", &ttl]);
        if let (Answer::Done(_), Answer::Done(_)) = (&warm, &held) {
            let resident = |peer: &Peer| Process::other(u64::from(peer.pid())).resident;
            let before = resident(&waiter);
            let workers = effort.waiters.to_string();
            waiter.send(&["load", "crowd", "shared", &workers, "100", &ttl]);
            std::thread::sleep(ALL_WAIT);
            let after = resident(&waiter);
            let more = after.saturating_sub(before) as f64 / effort.waiters as f64;
            row.push(format!("{}", before >> 20));
            row.push(format!("{}", after >> 20));
            row.push(format!("{:.1}", more / 1024.0));
            figures = Some([before as f64, after as f64, more]);
        } else {
            row.push(format!("not measured: {warm:?}, {held:?}"));
        }
        table.push(row);
        seen.push((contender.name(), label, figures));
    }
    let kinds = ["before any waits", "while they wait", "per waiter"];
    let measure = |(at, kind): (usize, &str)| Measure {
        what: format!("memory {kind}"),
        more_is_better: false,
        figures: seen
            .iter()
            .map(|(name, label, figures)| Figure {
                name,
                label: label.clone(),
                value: figures.map(|figures| figures[at]),
            })
            .collect(),
    };
    let measures = kinds.into_iter().enumerate().map(measure).collect();
    (table.text(), measures)
}

/// How peers in Rust are built: as this program is.
pub(crate) const fn profile() -> &'static str {
    if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    }
}

/// With what the tables and plots were made in which rslock and redsync take part.
pub(crate) fn versions() -> Vec<String> {
    let mut lines = here();
    lines.extend(["rslock", "redsync"].map(|peer| {
        let version = pinned(peer).unwrap_or_else(|| "unknown".to_owned());
        format!("{peer}: {version}")
    }));
    lines
}

/// The version that is pinned of a peer: by the workspace's lock file, or by that of Go.
fn pinned(peer: &str) -> Option<String> {
    let read = |path: &str| std::fs::read_to_string(crate::root().join(path)).ok();
    let (text, before) = match peer {
        "redsync" => (
            read("interop/peers/redsync/go.mod")?,
            "/redsync/v4 v".to_owned(),
        ),
        _ => (
            read("Cargo.lock")?,
            format!("name = \"{peer}\"\nversion = \""),
        ),
    };
    let (_, version) = text.split_once(&before)?;
    let mut words = version.split(|c: char| c.is_whitespace() || c == '"');
    words.next().map(str::to_owned)
}

/// The server, the machine, and what was measured.
fn here() -> Vec<String> {
    let output = Command::new("redis-server").arg("--version").output();
    let output = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    vec![
        format!("fencepost: {}", env!("CARGO_PKG_VERSION")),
        format!("server: {}", output.unwrap_or_default().trim()),
        format!("machine: {}", machine()),
        format!("revision: {}", revision()),
    ]
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{cores} cores, everything on loopback")
}

/// Those whose tools are here, and the others with the reason.
///
/// # Panics
/// When one does not build: the figures would leave it out as if its tools were missing.
fn contenders() -> (Vec<Contender>, Vec<Skipped>) {
    let profile = profile();
    let mut all = vec![
        Contender::Ours("fencepost", "plain"),
        Contender::Ours("fencepost, fair", "fair"),
    ];
    let mut skipped = Vec::new();
    let redisson = Spec::redisson("Redisson RLock", "lock");
    for spec in CLASSIC.into_iter().chain([redisson]) {
        step(spec.name, "install");
        // rslock's also builds fencepost's own peer.
        match spec.in_profile(profile).install_within(INSTALL_LIMIT) {
            Ok(()) => all.push(Contender::Peer(spec.in_profile(profile))),
            Err(NotInstalled::Skipped(why)) => {
                let name = spec.name;
                eprintln!("skipped: {name}: {why}");
                skipped.push(Skipped { name, why });
            }
            Err(broken) => panic!("{}: {broken}", spec.name),
        }
    }
    (all, skipped)
}

fn measure(contenders: &[Contender], nodes: usize, effort: Effort) -> Vec<Figures> {
    let servers = RedisServer::start_many(nodes);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let able = contenders.iter().filter(|one| match one {
        Contender::Peer(spec) => nodes == 1 || spec.quorum,
        Contender::Ours(..) => true,
    });
    let mut runners: Vec<_> = able.map(|one| Runner::start(*one, &urls)).collect();
    for round in 0..=effort.rounds {
        step(
            &format!("n = {nodes}"),
            &format!("round {round} of {}", effort.rounds),
        );
        for runner in &mut runners {
            // The first round warms up: virtual machines compile, connections are made.
            match round {
                0 => runner.round(effort.slice / 2, false),
                _ => runner.round(effort.slice, true),
            }
        }
    }
    // Their processes end here, before their servers.
    runners.into_iter().map(|runner| runner.figures).collect()
}

impl Runner {
    fn start(contender: Contender, urls: &[String]) -> Self {
        let peer = contender.start(&urls.join(","));
        let nodes = urls.len();
        Self {
            figures: Figures {
                name: contender.name(),
                label: contender.label(&peer, nodes),
                alone: vec![Vec::new(); ALONE.len()],
                together: vec![Vec::new(); TOGETHER.len()],
                resident: 0,
                fault: None,
            },
            peer: Some(peer),
        }
    }

    fn round(&mut self, time: Duration, counts: bool) {
        for (at, workers) in ALONE.into_iter().enumerate() {
            let slice = self.slice("own", workers, time);
            if let Some(slice) = slice.filter(|_| counts) {
                self.figures.alone[at].push(slice);
            }
        }
        for (at, workers) in TOGETHER.into_iter().enumerate() {
            let slice = self.slice("shared", workers, time);
            if let Some(slice) = slice.filter(|_| counts) {
                self.figures.together[at].push(slice);
            }
        }
        if let Some(peer) = &self.peer {
            self.figures.resident = Process::other(u64::from(peer.pid())).resident;
        }
    }

    /// `None` when it hangs or fails: then it is not asked again.
    fn slice(&mut self, whose: &str, workers: usize, time: Duration) -> Option<Slice> {
        let peer = self.peer.as_mut()?;
        let (workers, span, ttl) = (workers.to_string(), millis(time), millis(TTL));
        let name = self.figures.name.replace([' ', ','], "-");
        peer.send(&["load", &name, whose, &workers, &span, &ttl]);
        let fault = match peer.answer_within(time + PATIENCE) {
            Some(Answer::Done(words)) => match Slice::read(&words) {
                Ok(slice) => return Some(slice),
                Err(fault) => fault,
            },
            Some(other) => format!("{other:?}"),
            None => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        self.figures.fault = Some(fault);
        self.peer = None;
        None
    }
}

fn one_stopped(contenders: &[Contender], effort: Effort) -> (String, Vec<Measure>) {
    let mut table = Table::of(&["", "p50 us", "p99 us", "longest ms", "cycles/s"]);
    let able = contenders.iter().filter(|one| match one {
        Contender::Peer(spec) => spec.quorum,
        Contender::Ours(_, kind) => *kind == "plain",
    });
    let mut seen = Vec::new();
    for contender in able {
        step(contender.name(), "one of five stopped");
        let servers = RedisServer::start_many(5);
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        let mut runner = Runner::start(*contender, &urls);
        // While it is at work, as it happens in life.
        runner.slice("own", 1, effort.slice);
        servers[4].freeze();
        let slice = runner.slice("own", 1, 2 * effort.slice);
        servers[4].thaw();
        let Figures { label, fault, .. } = runner.figures;
        let mut row = vec![label.clone()];
        row.push(cell(slice.map(|slice| slice.p50), 0));
        row.push(cell(slice.map(|slice| slice.p99), 0));
        row.push(cell(slice.map(|slice| slice.longest / 1000.0), 1));
        row.push(cell(slice.map(|slice| slice.rate), 1));
        row.extend(fault);
        table.push(row);
        seen.push((contender.name(), label, slice));
    }
    let measure = |kind: &str, more_is_better, figure: fn(Slice) -> f64| Measure {
        what: format!("one of five stopped, {kind}"),
        more_is_better,
        figures: seen
            .iter()
            .map(|(name, label, slice)| Figure {
                name,
                label: label.clone(),
                value: slice.map(figure),
            })
            .collect(),
    };
    let measures = vec![
        measure("p50", false, |slice| slice.p50),
        measure("p99", false, |slice| slice.p99),
        measure("longest", false, |slice| slice.longest),
        measure("cycles/s", true, |slice| slice.rate),
    ];
    (table.text(), measures)
}

fn all_versions(contenders: &[Contender], skipped: &[Skipped]) -> String {
    let server = RedisServer::start();
    let mut text = String::new();
    for contender in contenders {
        let peer = contender.start(&server.url());
        // Writing to a string does not fail.
        let _ = writeln!(text, "- {}: {}", contender.name(), peer.version);
    }
    for Skipped { name, why } in skipped {
        let _ = writeln!(text, "- skipped: {name}: {why}");
    }
    for line in here() {
        let _ = writeln!(text, "- {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_the_peers_in_other_tables_are_those_that_are_pinned() {
        for peer in ["rslock", "redsync"] {
            let version = pinned(peer).unwrap();
            let numbers: Vec<_> = version.split('.').collect();
            assert_eq!(numbers.len(), 3, "{peer} {version}");
            assert!(numbers[0].parse::<u32>().is_ok(), "{peer} {version}");
            assert!(versions().contains(&format!("{peer}: {version}")));
        }
        assert_eq!(pinned("nobody"), None);
    }
}
