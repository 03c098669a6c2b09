//! The harness: `./interop/run` builds and starts it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use fencepost_interop::peer::{CLASSIC, INSTALL_LIMIT, NotInstalled, Spec, label, step};
use fencepost_interop::revision::revision;
use fencepost_interop::scene::Effort;
use fencepost_interop::table::Table;
use fencepost_interop::{classic, redisson};

const USAGE: &str = "\
usage: ./interop/run [--quick] [--report FILE] [PEER …]

  --quick        for CI: fewer hand-offs, a shorter soak, one server where three would be slow
  --report FILE  where to write the report [default: interop/report.md; none with --quick or PEER, or if a
                 peer is skipped]
  PEER           only these, and none may be skipped: redsync, node-redlock, redis-py, pottery, rslock, redisson
";

const REDISSON: &str = "redisson";
/// The report of the repository.
const KEPT: &str = "interop/report.md";
/// How long all peers together may be installed with `--quick`: far less than `.ci/run` gives the whole run.
const QUICK_INSTALLS: Duration = Duration::from_secs(300);

struct Arguments {
    quick: bool,
    report: Option<String>,
    peers: Vec<String>,
}

impl Arguments {
    fn parse(words: impl Iterator<Item = String>) -> Option<Self> {
        let mut arguments = Self {
            quick: false,
            report: None,
            peers: Vec::new(),
        };
        let mut words = words;
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => arguments.quick = true,
                "--report" => arguments.report = Some(words.next()?),
                _ if word.starts_with('-') => return None,
                _ => arguments.peers.push(word),
            }
        }
        Some(arguments)
    }

    /// The first name that is nobody's: nothing would be checked, and that would look like success.
    fn unknown(&self) -> Option<&str> {
        let mut peers = self.peers.iter().map(String::as_str);
        peers.find(|peer| !names().contains(peer))
    }

    fn wants(&self, dir: &str) -> bool {
        self.peers.is_empty() || self.names(dir)
    }

    fn names(&self, dir: &str) -> bool {
        self.peers.iter().any(|peer| peer == dir)
    }

    /// Whether everybody was to be met, and everything to be checked.
    fn is_full(&self) -> bool {
        !self.quick && self.peers.is_empty()
    }

    /// Where the report goes. The kept one is not replaced by one that has less.
    fn report(&self, is_whole: bool) -> Option<String> {
        let kept = (self.is_full() && is_whole)
            .then(|| format!("{}/../../{KEPT}", env!("CARGO_MANIFEST_DIR")));
        self.report.clone().or(kept)
    }
}

/// Whom there is to meet, each once.
fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = CLASSIC.iter().map(|spec| spec.dir).collect();
    names.dedup();
    names.push(REDISSON);
    names
}

/// What is told in the end, and whether all went well.
struct Report {
    text: String,
    failures: Vec<String>,
    skipped: BTreeMap<&'static str, String>,
    /// Those that do not build: each is one of the failures.
    broken: BTreeSet<&'static str>,
    installs: Installs,
}

/// How long what is missing may be installed.
#[derive(Clone, Copy)]
enum Installs {
    /// Each peer that long.
    Each(Duration),
    /// All together until then: a slow registry costs CI its peers, and not the run.
    Until(Instant),
}

impl Installs {
    fn left(self) -> Duration {
        match self {
            Self::Each(limit) => limit,
            Self::Until(end) => end.saturating_duration_since(Instant::now()),
        }
    }
}

impl Report {
    fn new(installs: Installs) -> Self {
        Self {
            text: String::new(),
            failures: Vec::new(),
            skipped: BTreeMap::new(),
            broken: BTreeSet::new(),
            installs,
        }
    }

    fn cell(&mut self, who: &str, what: &str, outcome: &classic::Outcome) -> String {
        match outcome {
            Ok(cell) => cell.clone(),
            Err(error) => {
                self.failures.push(format!("{who}, {what}: {error}"));
                "FAILED".to_owned()
            }
        }
    }

    /// Prints it at once: some of it takes minutes.
    fn say(&mut self, text: &str) {
        print!("{text}");
        self.text.push_str(text);
    }

    fn installed(&mut self, spec: &Spec) -> bool {
        // Asked once: a peer may be met as several variants, and more than once.
        if self.is_missing(spec) {
            return false;
        }
        step(spec.name, "install");
        let limit = self.installs.left();
        self.notes(spec, spec.install_within(limit))
    }

    /// Keeps what came of it. Whether the peer can be met.
    fn notes(&mut self, spec: &Spec, installed: Result<(), NotInstalled>) -> bool {
        match installed {
            Ok(()) => {}
            Err(NotInstalled::Skipped(why)) => {
                self.skipped.insert(spec.dir, why);
            }
            Err(broken) => {
                self.broken.insert(spec.dir);
                self.failures.push(format!("{}: {broken}", spec.dir));
            }
        }
        !self.is_missing(spec)
    }

    fn is_missing(&self, spec: &Spec) -> bool {
        self.skipped.contains_key(spec.dir) || self.broken.contains(spec.dir)
    }

    /// What stands in place of the figures of a peer that cannot be met.
    fn missing(&self, spec: &Spec) -> &'static str {
        match self.broken.contains(spec.dir) {
            true => "FAILED",
            false => "skipped",
        }
    }

    /// Whoever asks for a peer by its name is not told that all is well without it.
    fn fail_skipped(&mut self, arguments: &Arguments) {
        let named = self.skipped.iter().filter(|(dir, _)| arguments.names(dir));
        let failures =
            named.map(|(dir, why)| format!("{dir} was to be met, and is skipped: {why}"));
        self.failures.extend(failures);
    }
}

fn main() -> ExitCode {
    let Some(arguments) = Arguments::parse(std::env::args().skip(1)) else {
        eprint!("{USAGE}");
        return ExitCode::from(64);
    };
    if let Some(unknown) = arguments.unknown() {
        eprintln!("no peer {unknown:?}; expected {}", names().join(", "));
        return ExitCode::from(64);
    }
    let effort = if arguments.quick {
        Effort::QUICK
    } else {
        Effort::FULL
    };
    let mut report = Report::new(match arguments.quick {
        true => Installs::Until(Instant::now() + QUICK_INSTALLS),
        false => Installs::Each(INSTALL_LIMIT),
    });
    if CLASSIC.iter().any(|spec| arguments.wants(spec.dir)) {
        classical(&arguments, effort, &mut report);
    }
    if arguments.wants(REDISSON) {
        beside_redisson(effort, &mut report);
    }
    versions(&mut report);
    report.fail_skipped(&arguments);
    let path = arguments.report(report.skipped.is_empty());
    if path.is_none() && arguments.is_full() {
        eprintln!("{KEPT} is left as it is, because peers were skipped; --report FILE writes one");
    }
    if let Some(path) = path {
        let text = format!("{HEAD}{}", report.text);
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("{path} cannot be written: {error}");
            return ExitCode::from(73);
        }
    }
    for (dir, why) in &report.skipped {
        eprintln!("skipped: {dir}: {why}");
    }
    for tool in ["etcdctl", "consul"]
        .into_iter()
        .filter(|tool| !is_installed(tool))
    {
        eprintln!(
            "skipped by the tests of docs/migrate: what needs {tool}, which is not installed"
        );
    }
    for failure in &report.failures {
        eprintln!("FAILED {failure}");
    }
    ExitCode::from(u8::from(!report.failures.is_empty()))
}

const HEAD: &str = "\
# Beside the real peers

Made by `./interop/run`; [README.md](README.md) says what is done in each column. Hand-offs are shown as median /
worst of the times from the moment before the release is sent until the waiter has the lock.

";

fn classical(arguments: &Arguments, effort: Effort, report: &mut Report) {
    report.say("## Peers that keep the classical key\n\n");
    let mut table = Table::of(&[&["peer", "nodes"], &classic::COLUMNS[..]].concat());
    let wanted = CLASSIC.iter().filter(|spec| arguments.wants(spec.dir));
    for spec in wanted {
        if !report.installed(spec) {
            let row = [spec.name, "", report.missing(spec)].map(str::to_owned);
            table.push(row.to_vec());
            continue;
        }
        let nodes: &[usize] = match (spec.quorum, arguments.quick) {
            (true, false) => &[1, 3],
            // The one that CI meets with a quorum; each of the others differs in its client only.
            (true, true) if spec.dir == "redsync" => &[3],
            _ => &[1],
        };
        for &nodes in nodes {
            let (version, outcomes) = classic::meet(spec, nodes, effort);
            let who = format!("{} {version}, {nodes} nodes", spec.name);
            let mut row = vec![label(spec.name, &version), nodes.to_string()];
            for (what, outcome) in classic::COLUMNS.iter().zip(&outcomes) {
                row.push(report.cell(&who, what, outcome));
            }
            table.push(row);
        }
    }
    report.say(&table.text());
    let wanted = CLASSIC.iter().filter(|spec| arguments.wants(spec.dir));
    let mut met = Vec::new();
    for spec in wanted {
        if report.installed(spec) {
            met.push(spec);
        }
    }
    if let Some(spec) = met.first() {
        let control = classic::control(spec, effort);
        let control = report.cell("control", "soak", &control);
        report.say(&format!("\nThe soak without a common lock: {control}.\n"));
    }
    if !met.is_empty() {
        report.say("\nOn one of our three nodes, while we have all three:\n\n");
    }
    for spec in met {
        let subset = classic::subset(spec);
        let subset = report.cell("subset", spec.name, &subset);
        report.say(&format!("- {}: {subset}\n", spec.name));
    }
}

fn beside_redisson(effort: Effort, report: &mut Report) {
    report.say("\n## Redisson\n\n");
    let spec = Spec::redisson("Redisson", "lock");
    if !report.installed(&spec) {
        let missing = report.missing(&spec);
        report.say(&format!("{missing}\n"));
        return;
    }
    let (version, rows) = redisson::meet(effort);
    let mut table = Table::of(&[&format!("Redisson {version}"), "what", "result"]);
    for (kind, what, outcome) in rows {
        let cell = report.cell(kind, what, &outcome);
        table.push(vec![kind.to_owned(), what.to_owned(), cell]);
    }
    report.say(&table.text());
}

/// With what it was made, and who is missing.
fn versions(report: &mut Report) {
    let mut text = String::from("\n## Versions\n\n");
    for (dir, why) in &report.skipped {
        // Writing to a string does not fail.
        let _ = writeln!(text, "- skipped: {dir} ({why})");
    }
    let tools = [
        ("fencepost", env!("CARGO_PKG_VERSION").to_owned()),
        ("revision", revision()),
        ("server", first_line("redis-server", &["--version"])),
        ("go", first_line("go", &["version"])),
        ("java", first_line("java", &["--version"])),
        ("node", first_line("node", &["--version"])),
        ("python", first_line("python3", &["--version"])),
    ];
    for (tool, version) in tools {
        let _ = writeln!(text, "- {tool}: {version}");
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(text, "- machine: {cores} cores; everything on loopback");
    report.say(&text);
}

fn is_installed(tool: &str) -> bool {
    let found = Command::new("which").arg(tool).output();
    found.is_ok_and(|found| found.status.success())
}

fn first_line(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output();
    let text = output.map_or_else(
        |_| "not installed".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    text.lines().next().unwrap_or("").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str) -> Option<Arguments> {
        Arguments::parse(words.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn a_registry_that_is_slow_costs_a_quick_run_its_peers_and_is_named() {
        let over = Installs::Until(Instant::now());
        let installed = Spec::of("redsync").install_within(over.left());
        assert!(
            matches!(&installed, Err(NotInstalled::Skipped(why)) if why.contains("no end within 0ns")),
            "{installed:?}"
        );
        assert_eq!(Installs::Each(INSTALL_LIMIT).left(), INSTALL_LIMIT);
    }

    #[test]
    fn a_peer_that_is_skipped_fails_the_run_that_names_it_and_one_that_is_broken_every_run() {
        let spec = Spec::of("redsync");
        for (words, failures) in [
            ("", 0),
            ("--quick", 0),
            ("rslock", 0),
            ("rslock redsync", 1),
        ] {
            let mut report = Report::new(Installs::Each(INSTALL_LIMIT));
            let skipped = Err(NotInstalled::Skipped("Go is not installed".to_owned()));
            assert!(!report.notes(&spec, skipped) && report.missing(&spec) == "skipped");
            report.fail_skipped(&parsed(words).unwrap());
            assert_eq!(report.failures.len(), failures, "{words:?}");
        }
        let mut report = Report::new(Installs::Each(INSTALL_LIMIT));
        let broken = Err(NotInstalled::Broken("syntax error".to_owned()));
        assert!(!report.notes(&spec, broken) && report.missing(&spec) == "FAILED");
        assert!(!report.installed(&spec), "it is not built again");
        report.fail_skipped(&parsed("redsync").unwrap());
        assert_eq!(
            report.failures,
            ["redsync: it does not build: syntax error"]
        );
        assert!(report.skipped.is_empty());
    }

    #[test]
    fn only_a_full_run_with_every_peer_replaces_the_kept_report() {
        let path = |words: &str, is_whole| parsed(words).unwrap().report(is_whole);
        assert!(path("", true).is_some_and(|path| path.ends_with(KEPT)));
        for (words, is_whole) in [("", false), ("--quick", true), ("redsync", true)] {
            assert_eq!(path(words, is_whole), None, "{words:?}");
        }
        for words in ["--report x", "--report x --quick", "redsync --report x"] {
            assert_eq!(path(words, false).as_deref(), Some("x"), "{words}");
        }
    }

    /// Once `./interop/run redsink` printed versions, checked nothing, and ended well.
    #[test]
    fn a_peer_that_does_not_exist_is_refused_whatever_else_is_asked() {
        for words in ["redsink", "--quick redsink", "redsync redsink --quick"] {
            assert_eq!(parsed(words).unwrap().unknown(), Some("redsink"), "{words}");
        }
        let all = names().join(" ");
        assert_eq!(parsed(&all).unwrap().unknown(), None);
        assert!(USAGE.contains(&names().join(", ")), "{USAGE}");
        assert!(parsed("--nonsense").is_none());
    }
}
