//! fencepost beside the clients of other languages: the same work for each in one run, on the same servers.
//!
//! Each is a process of its own behind the line protocol of `interop/README.md`, and so is fencepost, so that all
//! of them pay for the same pipes. They are measured in turns; a figure is that of the median round.

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use fencepost_interop::peer::{Answer, CLASSIC, Peer, Spec, millis, ours};
use fencepost_interop::table::Table;
use fencepost_tests::RedisServer;

use crate::contender::TTL;
use crate::plot::{Bars, bars};
use crate::process::Process;

const ALONE: [usize; 3] = [1, 16, 64];
const TOGETHER: [usize; 2] = [4, 32];
/// How much longer than its slice a peer may take before it is said to hang.
const PATIENCE: Duration = Duration::from_secs(30);
/// Where the table goes, and where its plot.
const FILE: &str = "interop/bench.md";
const PLOT: &str = "docs/figures/peers.svg";
/// How many wait at once when their memory is measured, and for how long until all of them do.
const WAITERS: usize = 200;
const ALL_WAIT: Duration = Duration::from_secs(3);
/// By how much another has to be better to be called ahead: less is noise.
const AHEAD: f64 = 1.05;

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

/// A contender that runs on some servers, and what was seen of it.
struct Runner {
    name: &'static str,
    peer: Option<Peer>,
    /// By the number of workers, alone and together.
    alone: Vec<Vec<Slice>>,
    together: Vec<Vec<Slice>>,
    /// What the process had in memory after the most had waited, in bytes.
    resident: u64,
    /// Why it is not measured any more.
    fault: Option<String>,
}

pub(crate) fn run(effort: Effort, quick: bool) {
    let (contenders, skipped) = contenders();
    let mut ahead = Vec::new();
    let mut plots = Vec::new();
    let mut text = String::from(
        "# Beside the peers: figures\n\n\
         Made by `cargo run --release -p fencepost-bench -- peers`. All on one machine and on loopback, in turns; \
         figures of different runs do not compare. Each contender is one process with as many workers as the column \
         says; fencepost and rslock are Rust, the others what they are.\n",
    );
    let mut say = |more: &str| {
        print!("{more}");
        text.push_str(more);
    };
    for nodes in [1, 5] {
        let runners = measure(&contenders, nodes, effort);
        say(&format!(
            "\n## Alone, n = {nodes}\n\nNobody waits: each worker has a lock of its own.\n\n"
        ));
        say(&alone(&runners));
        say(&format!(
            "\n## Together, n = {nodes}\n\nAll workers want one lock; 1 ms under it, 5 ms behind it. At most 1000 \
             cycles/s are possible. Times in ms.\n\n"
        ));
        say(&together(&runners));
        ahead.extend(who_is_ahead(nodes, &runners));
        plots.extend(plot(nodes, &runners));
    }
    say(
        "\n## One node of five stopped\n\nIt accepts connections and never answers (SIGSTOP). One worker, alone.\n\n",
    );
    say(&one_stopped(&contenders, effort));
    say(&format!(
        "\n## Memory of those who wait\n\n{} workers of one process wait for a lock on one node that nobody \
         releases: how much more memory the process has than before, for each of them.\n\n",
        effort.waiters
    ));
    say(&memory(&contenders, effort));
    say("\n## Who is ahead of fencepost\n\n");
    match ahead.is_empty() {
        true => say("Nobody, in any column of the first four tables.\n"),
        false => ahead.iter().for_each(|line| say(&format!("- {line}\n"))),
    }
    say("\n## Versions\n\n");
    say(&all_versions(&contenders, &skipped));
    if !quick {
        let write = |path: &str, text: &str| {
            std::fs::write(crate::root().join(path), text).expect("the report can be written");
        };
        write(FILE, &text);
        write(PLOT, &bars(&plots));
    }
}

type Figure = Box<dyn Fn(&Runner) -> Option<f64>>;

/// A figure that all have, and whether more of it is better.
struct Measure {
    what: String,
    more: bool,
    figure: Figure,
}

fn measures(nodes: usize) -> Vec<Measure> {
    let mut all = vec![Measure {
        what: format!("n = {nodes}, alone, p50"),
        more: false,
        figure: Box::new(|runner| median(&runner.alone[0], |slice| slice.p50)),
    }];
    for (at, workers) in ALONE.into_iter().enumerate() {
        all.push(Measure {
            what: format!("n = {nodes}, alone, cycles/s with {workers}"),
            more: true,
            figure: Box::new(move |runner| median(&runner.alone[at], |slice| slice.rate)),
        });
    }
    for (at, workers) in TOGETHER.into_iter().enumerate() {
        all.push(Measure {
            what: format!("n = {nodes}, together, cycles/s with {workers}"),
            more: true,
            figure: Box::new(move |runner| median(&runner.together[at], |slice| slice.rate)),
        });
        all.push(Measure {
            what: format!("n = {nodes}, together, p99 wait with {workers}"),
            more: false,
            figure: Box::new(move |runner| median(&runner.together[at], |slice| slice.p99)),
        });
    }
    all
}

/// A line for each figure in which somebody else is better.
fn who_is_ahead(nodes: usize, runners: &[Runner]) -> Vec<String> {
    let (ours, others): (Vec<_>, Vec<_>) = runners
        .iter()
        .partition(|runner| runner.name.starts_with("fencepost"));
    let mut lines = Vec::new();
    for measure in measures(nodes) {
        let Some(mine) = ours.first().and_then(|ours| (measure.figure)(ours)) else {
            continue;
        };
        let better = others.iter().filter_map(|runner| {
            let theirs = (measure.figure)(runner)?;
            let by = match measure.more {
                true => theirs / mine,
                false => mine / theirs,
            };
            (by > AHEAD).then(|| format!("{} by {by:.2} x", runner.name))
        });
        let better: Vec<_> = better.collect();
        if !better.is_empty() {
            lines.push(format!("{}: {}", measure.what, better.join(", ")));
        }
    }
    lines
}

/// What the README shows: how many cycles at one worker, and how long the slowest waited.
fn plot(nodes: usize, runners: &[Runner]) -> Vec<Bars> {
    let bars = |title: String, figure: &dyn Fn(&Runner) -> Option<f64>| Bars {
        title,
        bars: runners
            .iter()
            .filter_map(|runner| Some((runner.name.to_owned(), figure(runner)?)))
            .collect(),
    };
    let last = TOGETHER.len() - 1;
    match nodes {
        1 => vec![bars(
            format!("cycles/s, one worker, n = {nodes}"),
            &|runner| median(&runner.alone[0], |slice| slice.rate),
        )],
        _ => vec![
            bars(format!("cycles/s, one worker, n = {nodes}"), &|runner| {
                median(&runner.alone[0], |slice| slice.rate)
            }),
            bars(
                format!("p99 wait, ms, {} workers, n = {nodes}", TOGETHER[last]),
                &|runner| median(&runner.together[last], |slice| slice.p99 / 1000.0),
            ),
        ],
    }
}

/// How much more memory a process has while so many of its workers wait.
fn memory(contenders: &[Contender], effort: Effort) -> String {
    let mut table = Table::of(&["", "before, MB", "waiting, MB", "KB per waiter"]);
    for contender in contenders {
        let server = RedisServer::start();
        let (mut holder, mut waiter) = (
            contender.start(&server.url()),
            contender.start(&server.url()),
        );
        let ttl = millis(Duration::from_secs(60));
        let mut row = vec![contender.name().to_owned()];
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
        } else {
            row.push(format!("not measured: {warm:?}, {held:?}"));
        }
        table.push(row);
    }
    table.text()
}

/// How peers in Rust are built: as this program is.
pub(crate) const fn profile() -> &'static str {
    if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    }
}

/// The server and the machine.
pub(crate) fn versions() -> Vec<String> {
    let output = Command::new("redis-server").arg("--version").output();
    let output = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    vec![
        format!("fencepost: {}", env!("CARGO_PKG_VERSION")),
        format!("server: {}", output.unwrap_or_default().trim()),
        format!("machine: {cores} cores; everything on loopback"),
    ]
}

/// Those whose tools are here, and the others with the reason.
fn contenders() -> (Vec<Contender>, Vec<String>) {
    let profile = profile();
    let mut all = vec![
        Contender::Ours("fencepost", "plain"),
        Contender::Ours("fencepost, fair", "fair"),
    ];
    let mut skipped = Vec::new();
    let redisson = Spec::redisson("Redisson RLock", "lock");
    for spec in CLASSIC.into_iter().chain([redisson]) {
        // rslock's also builds fencepost's own peer.
        match spec.in_profile(profile).install() {
            Ok(()) => all.push(Contender::Peer(spec.in_profile(profile))),
            Err(why) => skipped.push(format!("{}: {why}", spec.name)),
        }
    }
    (all, skipped)
}

fn measure(contenders: &[Contender], nodes: usize, effort: Effort) -> Vec<Runner> {
    let servers = RedisServer::start_many(nodes);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let able = contenders.iter().filter(|one| match one {
        Contender::Peer(spec) => nodes == 1 || spec.quorum,
        Contender::Ours(..) => true,
    });
    let mut runners: Vec<_> = able
        .map(|one| Runner::start(*one, &urls.join(",")))
        .collect();
    for round in 0..=effort.rounds {
        for runner in &mut runners {
            // The first round warms up: virtual machines compile, connections are made.
            match round {
                0 => runner.round(effort.slice / 2, false),
                _ => runner.round(effort.slice, true),
            }
        }
    }
    // Before their servers end.
    for runner in &mut runners {
        runner.peer = None;
    }
    runners
}

impl Runner {
    fn start(contender: Contender, urls: &str) -> Self {
        Self {
            name: contender.name(),
            peer: Some(contender.start(urls)),
            alone: vec![Vec::new(); ALONE.len()],
            together: vec![Vec::new(); TOGETHER.len()],
            resident: 0,
            fault: None,
        }
    }

    fn round(&mut self, time: Duration, counts: bool) {
        for (at, workers) in ALONE.into_iter().enumerate() {
            let slice = self.slice("own", workers, time);
            if let Some(slice) = slice.filter(|_| counts) {
                self.alone[at].push(slice);
            }
        }
        for (at, workers) in TOGETHER.into_iter().enumerate() {
            let slice = self.slice("shared", workers, time);
            if let Some(slice) = slice.filter(|_| counts) {
                self.together[at].push(slice);
            }
        }
        if let Some(peer) = &self.peer {
            self.resident = Process::other(u64::from(peer.pid())).resident;
        }
    }

    /// `None` when it hangs or fails: then it is not asked again.
    fn slice(&mut self, whose: &str, workers: usize, time: Duration) -> Option<Slice> {
        let peer = self.peer.as_mut()?;
        let (workers, span, ttl) = (workers.to_string(), millis(time), millis(TTL));
        let name = self.name.replace([' ', ','], "-");
        peer.send(&["load", &name, whose, &workers, &span, &ttl]);
        let fault = match peer.answer_within(time + PATIENCE) {
            Some(Answer::Done(words)) => match Slice::read(&words) {
                Ok(slice) => return Some(slice),
                Err(fault) => fault,
            },
            Some(other) => format!("{other:?}"),
            None => format!("no answer within {} s", PATIENCE.as_secs()),
        };
        self.fault = Some(fault);
        self.peer = None;
        None
    }
}

/// The median of one figure over the rounds.
fn median(slices: &[Slice], figure: impl Fn(&Slice) -> f64) -> Option<f64> {
    let mut figures: Vec<_> = slices.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

fn cell(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.decimals$}"))
}

fn alone(runners: &[Runner]) -> String {
    let heads = [
        "",
        "p50 us",
        "x ours",
        "p99 us",
        "cycles/s, 1",
        "x ours",
        "16",
        "64",
    ];
    let mut table = Table::of(&heads);
    let one = |runner: &Runner, figure: fn(&Slice) -> f64| median(&runner.alone[0], figure);
    let ours = |figure| runners.first().and_then(|ours| one(ours, figure));
    for runner in runners {
        let times = |figure| Some(one(runner, figure)? / ours(figure)?);
        let ratio = |figure| cell(times(figure), 2);
        let mut row = vec![
            runner.name.to_owned(),
            cell(one(runner, |slice| slice.p50), 0),
            ratio(|slice| slice.p50),
            cell(one(runner, |slice| slice.p99), 0),
            cell(one(runner, |slice| slice.rate), 0),
            ratio(|slice| slice.rate),
        ];
        let more = runner.alone[1..].iter();
        row.extend(more.map(|seen| cell(median(seen, |slice| slice.rate), 0)));
        row.extend(runner.fault.clone());
        table.push(row);
    }
    table.text()
}

fn together(runners: &[Runner]) -> String {
    let heads = [
        "",
        "4: cycles/s",
        "p50",
        "p99",
        "longest",
        "32: cycles/s",
        "p50",
        "p99",
        "longest",
        "memory",
    ];
    let mut table = Table::of(&heads);
    for runner in runners {
        let mut row = vec![runner.name.to_owned()];
        for seen in &runner.together {
            let longest = seen
                .iter()
                .map(|slice| slice.longest / 1000.0)
                .reduce(f64::max);
            row.push(cell(median(seen, |slice| slice.rate), 0));
            row.push(cell(median(seen, |slice| slice.p50 / 1000.0), 1));
            row.push(cell(median(seen, |slice| slice.p99 / 1000.0), 1));
            row.push(cell(longest, 0));
        }
        row.push(format!("{} MB", runner.resident >> 20));
        row.extend(runner.fault.clone());
        table.push(row);
    }
    table.text()
}

fn one_stopped(contenders: &[Contender], effort: Effort) -> String {
    let mut table = Table::of(&["", "p50 us", "p99 us", "longest ms", "cycles/s"]);
    let able = contenders.iter().filter(|one| match one {
        Contender::Peer(spec) => spec.quorum,
        Contender::Ours(_, kind) => *kind == "plain",
    });
    for contender in able {
        let servers = RedisServer::start_many(5);
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        let mut runner = Runner::start(*contender, &urls.join(","));
        // While it is at work, as it happens in life.
        runner.slice("own", 1, effort.slice);
        servers[4].freeze();
        let slice = runner.slice("own", 1, 2 * effort.slice);
        servers[4].thaw();
        let mut row = vec![runner.name.to_owned()];
        row.push(cell(slice.map(|slice| slice.p50), 0));
        row.push(cell(slice.map(|slice| slice.p99), 0));
        row.push(cell(slice.map(|slice| slice.longest / 1000.0), 1));
        row.push(cell(slice.map(|slice| slice.rate), 1));
        row.extend(runner.fault.clone());
        table.push(row);
    }
    table.text()
}

fn all_versions(contenders: &[Contender], skipped: &[String]) -> String {
    let server = RedisServer::start();
    let mut text = String::new();
    for contender in contenders {
        let peer = contender.start(&server.url());
        // Writing to a string does not fail.
        let _ = writeln!(text, "- {}: {}", contender.name(), peer.version);
    }
    for one in skipped {
        let _ = writeln!(text, "- skipped: {one}");
    }
    for line in versions() {
        let _ = writeln!(text, "- {line}");
    }
    text
}
