//! A lock file in a directory of its own, and processes that take turns on it.

#![allow(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fencepost_tests::eventually;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub(crate) const HAMMER: &str = env!("CARGO_BIN_EXE_hammer");
pub(crate) const LATE: Duration = Duration::from_secs(20);
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// A directory with a lock file in it.
pub(crate) struct Place(pub(crate) TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        // Others than us have to get through it.
        fs::set_permissions(place.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        url(&self.path("locks.db"))
    }

    /// The program, where every user may execute it.
    pub(crate) fn hammer(&self) -> PathBuf {
        let copy = self.path("hammer");
        if !copy.exists() {
            // Not by this process: one that another test forks meanwhile would have the copy open for
            // writing, and then it cannot be executed.
            let copied = Command::new("cp").arg(HAMMER).arg(&copy).status();
            assert!(copied.unwrap().success());
        }
        copy
    }

    pub(crate) fn remove(&self, suffixes: &[&str]) {
        for suffix in suffixes {
            fs::remove_file(self.path(&format!("locks.db{suffix}"))).unwrap();
        }
    }
}

pub(crate) fn url(path: &Path) -> String {
    format!("file:{}", path.display())
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A process that takes the lock and gives it back when it is told to.
pub(crate) struct Turns {
    pub(crate) process: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Turns {
    pub(crate) fn start(command: &mut Command, url: &str) -> Self {
        command.args(["turns", url, "1000"]);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        Self { process, said }
    }

    pub(crate) fn on(url: &str) -> Self {
        let mut turns = Self::start(&mut Command::new(HAMMER), url);
        assert_eq!(turns.line(), "ready");
        turns
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Lets it take one step, and returns what it says of it.
    pub(crate) fn step(&mut self) -> String {
        self.process
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"\n")
            .unwrap();
        self.line()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            let stat = format!("/proc/{}/stat", self.process.id());
            eventually("it is stopped", LATE, || {
                fs::read_to_string(&stat).unwrap().contains(") T ")
            });
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said += &String::from_utf8_lossy(&output.stderr);
    said
}

/// Whether this process may do that; otherwise says by name which test is skipped.
pub(crate) fn may(test: &str, what: &str, command: &str) -> bool {
    let done = Command::new("sh")
        .args(["-c", command])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let may = done.is_ok_and(|status| status.success());
    if !may {
        eprintln!("SKIPPED {test}: this process may not {what}");
    }
    may
}

pub(crate) fn may_mount(test: &str) -> bool {
    may(test, "mount", "unshare -m true")
}

pub(crate) fn may_be_others(test: &str) -> bool {
    may(test, "be another user", "[ $(id -u) = 0 ]")
}
