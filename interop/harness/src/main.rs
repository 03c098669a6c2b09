//! The harness: `./interop/run` builds and starts it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use fencepost_interop::peer::{CLASSIC, INSTALL_LIMIT, Spec, label, step};
use fencepost_interop::revision::revision;
use fencepost_interop::scene::Effort;
use fencepost_interop::table::Table;
use fencepost_interop::{classic, redisson};

const USAGE: &str = "\
usage: ./interop/run [--quick] [--report FILE] [PEER …]

  --quick        for CI: fewer hand-offs, a shorter soak, one server where three would be slow
  --report FILE  where to write the report [default: interop/report.md; none with --quick or PEER]
  PEER           only these: redsync, node-redlock, redis-py, pottery, rslock, redisson
";

const REDISSON: &str = "redisson";
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
        self.peers.is_empty() || self.peers.iter().any(|peer| peer == dir)
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
        if self.skipped.contains_key(spec.dir) {
            return false;
        }
        step(spec.name, "install");
        let limit = self.installs.left();
        match spec.install_within(limit) {
            Ok(()) => true,
            Err(why) => {
                self.skipped.insert(spec.dir, why);
                false
            }
        }
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
    let mut report = Report {
        text: String::new(),
        failures: Vec::new(),
        skipped: BTreeMap::new(),
        installs: match arguments.quick {
            true => Installs::Until(Instant::now() + QUICK_INSTALLS),
            false => Installs::Each(INSTALL_LIMIT),
        },
    };
    if CLASSIC.iter().any(|spec| arguments.wants(spec.dir)) {
        classical(&arguments, effort, &mut report);
    }
    if arguments.wants(REDISSON) {
        beside_redisson(effort, &mut report);
    }
    versions(&mut report);
    let default = (!arguments.quick && arguments.peers.is_empty())
        .then(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../report.md").to_owned());
    if let Some(path) = arguments.report.or(default) {
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
            let row = [spec.name, "", "skipped"].map(str::to_owned);
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
        report.say("skipped\n");
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
        let error = Spec::of("redsync").install_within(over.left()).unwrap_err();
        assert!(error.contains("no end within 0ns"), "{error}");
        assert_eq!(Installs::Each(INSTALL_LIMIT).left(), INSTALL_LIMIT);
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
