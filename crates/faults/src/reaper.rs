//! A process that outlives us and cleans up: kills what we started, removes namespaces and folders.
//!
//! It waits for the end of its input, which comes however we end, killed or interrupted too. What
//! was taken back before is no longer its business: it must never touch what it was not told of,
//! nor a process that has got the number of one that it was told of.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use crate::program;

/// Something that has to be gone when we are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trace {
    /// A process, by its number and the time at which it was started.
    Process(u32, String),
    /// A network namespace, by its name.
    Namespace(String),
    /// A folder with all that is in it.
    Folder(PathBuf),
}

impl Trace {
    /// A running process.
    #[must_use]
    pub fn of_process(pid: u32) -> Self {
        Self::Process(pid, started_at(pid).unwrap_or_default())
    }

    fn line(&self) -> String {
        match self {
            Self::Process(pid, started) => format!("process {pid} {started}"),
            Self::Namespace(name) => format!("namespace {name}"),
            Self::Folder(path) => format!("folder {}", path.display()),
        }
    }

    fn read(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ')?;
        match kind {
            "process" => {
                let (pid, started) = rest.split_once(' ')?;
                Some(Self::Process(pid.parse().ok()?, started.to_owned()))
            }
            "namespace" => Some(Self::Namespace(rest.to_owned())),
            "folder" => Some(Self::Folder(rest.into())),
            _ => None,
        }
    }

    fn erase(&self) {
        // Whatever is gone already is what was wanted.
        match self {
            Self::Process(pid, started) => {
                let same = started_at(*pid).is_some_and(|now| now == *started);
                if let (true, Some(pid)) = (same, as_pid(*pid)) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            Self::Namespace(name) => {
                let _ = Command::new("ip").args(["netns", "del", name]).output();
            }
            Self::Folder(path) => {
                let _ = fs::remove_dir_all(path);
            }
        }
    }
}

pub(crate) fn as_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// The moment at which a process was started, in ticks since boot.
fn started_at(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have blanks and brackets in it; what follows its last bracket has none. The
    // state is the first field there, and the start the twentieth.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

/// The line to the reaper, one for the whole process.
struct Line {
    _reaper: Child,
    input: ChildStdin,
}

fn line() -> &'static Option<Mutex<Line>> {
    static LINE: OnceLock<Option<Mutex<Line>>> = OnceLock::new();
    LINE.get_or_init(|| {
        let started = program::in_the_part_of("reaper").and_then(|mut reaper| {
            reaper
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                // What interrupts us from the keyboard must not interrupt it.
                .process_group(0)
                .spawn()
        });
        let mut reaper = started.ok()?;
        let input = reaper.stdin.take()?;
        Some(Mutex::new(Line {
            _reaper: reaper,
            input,
        }))
    })
}

fn tell(word: &str, trace: &Trace) {
    if let Some(line) = line() {
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a reaper, what a killed run leaves stays; a run that ends cleans up by itself.
        let _ = writeln!(line.input, "{word} {}", trace.line());
    }
}

/// Something was made that has to be gone when we are.
pub fn expect(trace: &Trace) {
    tell("expect", trace);
}

/// It is gone already.
pub fn forget(trace: &Trace) {
    tell("forget", trace);
}

/// The reaper's own work: reads what there is until its input ends, then removes the rest.
///
/// # Errors
/// When its input cannot be read.
pub fn reap(input: impl BufRead) -> io::Result<()> {
    let mut left = BTreeSet::new();
    for line in input.lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("expect", trace)) => left.extend(Trace::read(trace)),
            Some(("forget", trace)) => {
                if let Some(trace) = Trace::read(trace) {
                    left.remove(&trace);
                }
            }
            _ => {}
        }
    }
    // In their order: processes first, so that nobody uses what is removed next.
    for trace in &left {
        trace.erase();
    }
    Ok(())
}

/// A folder of our own, gone with this handle or with us.
#[derive(Debug)]
pub struct Folder {
    inner: tempfile::TempDir,
}

impl Folder {
    /// A new one.
    ///
    /// # Errors
    /// When there is no room for one.
    pub fn new() -> io::Result<Self> {
        let inner = tempfile::Builder::new().prefix("fencepost-").tempdir()?;
        expect(&Trace::Folder(inner.path().to_owned()));
        Ok(Self { inner })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.inner.path()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_forgotten_stays_and_the_rest_is_removed() {
        let keep = tempfile::tempdir().unwrap();
        let gone = tempfile::tempdir().unwrap();
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        let kept = Trace::Folder(keep.path().to_owned()).line();
        let script = format!(
            "expect {kept}\nexpect {}\nexpect {}\nnonsense\nforget {kept}\n",
            Trace::Folder(gone.path().to_owned()).line(),
            Trace::of_process(process.id()).line(),
        );
        reap(script.as_bytes()).unwrap();
        assert!(keep.path().exists());
        assert!(!gone.path().exists());
        assert!(!process.wait().unwrap().success(), "killed");
    }

    #[test]
    fn a_process_that_took_over_a_number_is_left_alone() {
        let mut process = Command::new("sleep").arg("60").spawn().unwrap();
        Trace::Process(process.id(), "12345".into()).erase();
        assert!(process.try_wait().unwrap().is_none(), "it lives");
        process.kill().unwrap();
        process.wait().unwrap();
    }
}
