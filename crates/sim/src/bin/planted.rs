//! Plants one bug after the other into a copy of the library, and tells how many seeds the
//! simulation needs to find it, and by which checker.
//!
//! Each bug is a patch in `crates/sim/planted`, with a sentence about it on its first line, which
//! begins with the work in which it shows if that is not the mutex: `semaphore: …`. A bug in a rule
//! that only shows in few orders of events is looked for by a variant of the model check instead:
//! `model tombstones: …`; one in what talks to real servers by a row of the suite of faults, which need
//! them: `faults fork: …`. The library itself is never touched: the copy lives under
//! `target/planted`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use fencepost_sim::plan::Work;

/// How the sentence about a bug begins that is believed to do no harm, and need not be found.
const HARMLESS: &str = "harmless";

/// In how many seeds a bug is looked for. Some need a node that forgets at just the wrong moment, and a change anywhere
/// moves the seeds in which that happens.
const MOST_SEEDS: u64 = 40_000;

const USAGE: &str = "\
usage: planted [--seeds N] [NAME...]
  --seeds N   look for each bug in so many seeds (default 40000)
  NAME...     plant only these";

fn main() -> ExitCode {
    match read(std::env::args().skip(1)) {
        Ok((seeds, names)) => match plant_all(seeds, &names) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("planted: {error}");
                ExitCode::FAILURE
            }
        },
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<(u64, Vec<String>), String> {
    let (mut seeds, mut names) = (MOST_SEEDS, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--seeds" => {
                let number = arguments.next().and_then(|text| text.parse().ok());
                seeds = number.ok_or("--seeds needs a number")?;
            }
            name if !name.starts_with('-') => names.push(name.to_owned()),
            unknown => return Err(format!("what is {unknown}?")),
        }
    }
    Ok((seeds, names))
}

/// A bug that can be planted.
struct Bug {
    name: String,
    about: String,
    patch: PathBuf,
}

impl Bug {
    /// The variant of the model check that must find it, if it is not for the simulation.
    fn variant(&self) -> Option<&str> {
        let (words, _) = self.about.split_once(": ")?;
        words.strip_prefix("model ")
    }

    /// The row of faults on real servers that must find it, if it is for one.
    fn row(&self) -> Option<&str> {
        let (words, _) = self.about.split_once(": ")?;
        words.strip_prefix("faults ")
    }

    /// The work in which it shows: the word before the colon of its sentence, if that is one.
    fn work(&self) -> Work {
        let word = self.about.split_once(": ").map(|(word, _)| word);
        word.and_then(Work::of).unwrap_or_default()
    }
}

fn plant_all(seeds: u64, names: &[String]) -> io::Result<bool> {
    let garden = Garden::lay_out()?;
    let mut out = io::stdout().lock();
    writeln!(out, "| bug | what it is | found by | seeds needed |")?;
    writeln!(out, "| --- | --- | --- | ---: |")?;
    let mut all_found = true;
    for bug in garden.bugs()? {
        if !names.is_empty() && !names.contains(&bug.name) {
            continue;
        }
        let (by, needed) = match garden.plant(&bug, seeds)? {
            Some((by, needed)) => (by, needed.to_string()),
            None => {
                all_found &= bug.about.starts_with(HARMLESS);
                let looked = if bug.row().is_some() { 0 } else { seeds };
                ("nobody".to_owned(), format!("> {looked}"))
            }
        };
        writeln!(out, "| {} | {} | {by} | {needed} |", bug.name, bug.about)?;
        out.flush()?;
    }
    Ok(all_found)
}

/// Where the copy is.
struct Garden {
    source: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

impl Garden {
    /// Copies every file that git knows, as it is now.
    fn lay_out() -> io::Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()?;
        let copy = source.join("target/planted/tree");
        let target = source.join("target/planted/target");
        let mut git = Command::new("git");
        let files = checked(git.arg("ls-files").current_dir(&source))?;
        for file in String::from_utf8_lossy(&files.stdout).lines() {
            copy_if_changed(&source.join(file), &copy.join(file))?;
        }
        Ok(Self {
            source,
            copy,
            target,
        })
    }

    fn bugs(&self) -> io::Result<Vec<Bug>> {
        let mut bugs = Vec::new();
        for entry in fs::read_dir(self.source.join("crates/sim/planted"))? {
            let patch = entry?.path();
            let name = patch.file_stem().unwrap_or_default().to_string_lossy();
            let text = fs::read_to_string(&patch)?;
            let about = text.lines().next().unwrap_or_default().to_owned();
            bugs.push(Bug {
                name: name.into_owned(),
                about,
                patch,
            });
        }
        bugs.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(bugs)
    }

    /// Plants a bug, looks for it, and digs it out again.
    fn plant(&self, bug: &Bug, seeds: u64) -> io::Result<Option<(String, u64)>> {
        self.apply(bug, false)?;
        let found = match (bug.variant(), bug.row()) {
            (Some(variant), _) => self.look_for_it_in_the_model(variant),
            (None, Some(row)) => self.look_for_it_on_servers(row),
            (None, None) => self.look_for_it(bug.work(), seeds),
        };
        self.apply(bug, true)?;
        found
    }

    fn apply(&self, bug: &Bug, reverse: bool) -> io::Result<()> {
        let mut git = Command::new("git");
        git.args(["apply", "-p0"])
            .arg(&bug.patch)
            .current_dir(&self.copy);
        // The copy lies within a repository, and is none of it.
        git.env("GIT_CEILING_DIRECTORIES", self.source.join("target"));
        if reverse {
            git.arg("--reverse");
        }
        checked(&mut git).map(drop)
    }

    fn build(&self, package: &str) -> io::Result<()> {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--quiet", "-p", package]);
        cargo.args(["--bin", package]);
        cargo
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", &self.target);
        // Each build is used for seconds only: the time is in the building.
        cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
        cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        cargo.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        cargo.env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true");
        checked(&mut cargo).map(drop)
    }

    /// Looks in one variant of the model check, which has no seeds: it is found or not.
    fn look_for_it_in_the_model(&self, variant: &str) -> io::Result<Option<(String, u64)>> {
        self.build("fencepost-model")?;
        let mut model = Command::new(self.target.join("release/fencepost-model"));
        let output = model.arg(variant).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let fault = text.lines().find_map(|line| line.split_once("FAULT: "));
        Ok(fault.map(|(_, property)| (format!("model: {property}"), 0)))
    }

    /// Looks in one row, which has no seeds either: real processes differ each time.
    fn look_for_it_on_servers(&self, row: &str) -> io::Result<Option<(String, u64)>> {
        self.build("fencepost-faults")?;
        let mut faults = Command::new(self.target.join("release/fencepost-faults"));
        faults.args(["--row", row, "--nodes", "3", "--seconds", "10"]);
        let output = faults.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut checkers: Vec<&str> = Vec::new();
        for line in text.lines() {
            // "  VIOLATION overlap: …", or that a client gave up because of what it saw.
            let violation = line.trim_start().strip_prefix("VIOLATION ");
            let by = match violation.and_then(|it| it.split_once(": ")) {
                Some((checker, _)) => checker,
                None if line.contains("did not come to its end") => "workload",
                None => continue,
            };
            if !checkers.contains(&by) {
                checkers.push(by);
            }
        }
        checkers.sort_unstable();
        let by = format!("faults: {}", checkers.join(", "));
        Ok((!checkers.is_empty()).then_some((by, 0)))
    }

    fn look_for_it(&self, work: Work, seeds: u64) -> io::Result<Option<(String, u64)>> {
        self.build("fencepost-sim")?;
        let mut simulation = Command::new(self.target.join("release/fencepost-sim"));
        simulation.args(["--work", work.name()]);
        simulation.args(["--stop", "--seeds", &seeds.to_string()]);
        let output = simulation.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        // "- 17: overlap, tokens", in the list of failing seeds.
        let failing = text.lines().find_map(|line| {
            let (seed, checkers) = line.strip_prefix("- ")?.split_once(": ")?;
            Some((checkers.to_owned(), seed.parse::<u64>().ok()? + 1))
        });
        Ok(failing)
    }
}

/// Runs a command that must not fail.
fn checked(command: &mut Command) -> io::Result<Output> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {why}")))
}

/// Leaves alone what is the same already, so that it need not be built again.
fn copy_if_changed(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(text) = fs::read(from) else {
        // Deleted, and git does not know yet.
        return Ok(());
    };
    if fs::read(to).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(to, text)
}
