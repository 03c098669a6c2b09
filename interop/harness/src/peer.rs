//! [`Peer`]: a process that serves the line protocol, and what it answers.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long an answer may take beyond the wait that was asked for.
const LATE: Duration = Duration::from_secs(60);

/// A client to meet: where it is, and how it is started.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// How the report calls it.
    pub name: &'static str,
    /// Its directory in `interop/peers`.
    pub dir: &'static str,
    /// Which of several it is: the second word of `start`.
    pub variant: Option<&'static str>,
    /// What it puts before a name to make the key.
    pub prefix: &'static str,
    /// Whether it knows a quorum of several servers.
    pub quorum: bool,
    /// How a peer in Rust is built: `debug` or `release`.
    pub profile: &'static str,
}

/// Every peer that keeps the classical key: a string, set with NX and PX.
pub const CLASSIC: [Spec; 6] = [
    Spec::new("redsync", "redsync", None),
    Spec::new("node-redlock 5", "node-redlock", Some("5")),
    Spec::new("node-redlock 4", "node-redlock", Some("4")),
    Spec {
        quorum: false,
        ..Spec::new("redis-py Lock", "redis-py", None)
    },
    Spec {
        prefix: "redlock:",
        ..Spec::new("pottery", "pottery", None)
    },
    Spec::new("rslock", "rslock", None),
];

impl Spec {
    const fn new(name: &'static str, dir: &'static str, variant: Option<&'static str>) -> Self {
        Self {
            name,
            dir,
            variant,
            prefix: "",
            quorum: true,
            profile: "debug",
        }
    }

    /// The same, built as a benchmark wants it.
    #[must_use]
    pub const fn in_profile(self, profile: &'static str) -> Self {
        Self { profile, ..self }
    }

    /// The peer in that directory.
    #[must_use]
    pub const fn of(dir: &'static str) -> Self {
        Self::new(dir, dir, None)
    }

    /// One of Redisson's locks.
    #[must_use]
    pub const fn redisson(name: &'static str, kind: &'static str) -> Self {
        Self::new(name, "redisson", Some(kind))
    }

    /// The key that it has for a name.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        [self.prefix, name].concat()
    }

    /// Installs it, or says why it is skipped.
    ///
    /// # Errors
    /// Its toolchain is missing, or its dependencies cannot be had.
    pub fn install(&self) -> Result<(), String> {
        let install = peers().join(self.dir).join("install");
        let output = without_cargo(&mut Command::new(&install))
            .env("INTEROP_PROFILE", self.profile)
            .output()
            .map_err(|error| format!("{} cannot be run: {error}", install.display()))?;
        match output.status.code() {
            Some(0) => Ok(()),
            Some(3) => Err(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            _ => Err(format!(
                "its dependencies cannot be installed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
        }
    }

    /// Starts it on these servers, and waits until it has connected.
    #[must_use]
    pub fn start(&self, urls: &str) -> Peer {
        let mut command = Command::new(peers().join(self.dir).join("start"));
        command.arg(urls).args(self.variant);
        command.env("INTEROP_PROFILE", self.profile);
        Peer::spawn(self.name, command)
    }
}

/// Hides from a command what cargo told us: build scripts that look at it would run again, each time.
pub fn without_cargo(command: &mut Command) -> &mut Command {
    let told = std::env::vars_os().map(|(name, _)| name);
    for name in told.filter(|name| name.to_string_lossy().starts_with("CARGO_")) {
        if name != "CARGO_HOME" && name != "CARGO_TARGET_DIR" {
            command.env_remove(name);
        }
    }
    command
}

/// The library behind the same protocol.
#[must_use]
pub fn ours(urls: &str, kind: &str) -> Peer {
    let mut command = Command::new(beside_us("fencepost-peer"));
    command.args([urls, kind]);
    Peer::spawn("fencepost", command)
}

/// The program of that name that was built together with this one.
///
/// # Panics
/// When this program has no path.
#[must_use]
pub fn beside_us(name: &str) -> PathBuf {
    let us = std::env::current_exe().expect("our own path");
    // Tests are one directory deeper.
    let dirs = us.ancestors().skip(1);
    let found = dirs.map(|dir| dir.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not built; run ./interop/run"))
}

fn peers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers")
}

/// What a peer answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done, and what it says about it.
    Done(Vec<String>),
    /// Somebody else has the lock.
    Held,
    /// It was not held any more.
    Lost,
    /// The peer has nothing of the kind.
    Unsupported,
    /// Something else went wrong.
    Error(String),
}

impl Answer {
    fn read(line: &str) -> Self {
        let mut words = line.split('\t').map(str::to_owned);
        match words.next().as_deref() {
            Some("ok") => Self::Done(words.collect()),
            Some("held") => Self::Held,
            Some("lost") => Self::Lost,
            Some("unsupported") => Self::Unsupported,
            _ => Self::Error(words.collect::<Vec<_>>().join(" ")),
        }
    }

    /// When it was done, in microseconds since 1970.
    ///
    /// # Errors
    /// It was not.
    pub fn at(&self) -> Result<u64, String> {
        match self {
            Self::Done(words) => words
                .first()
                .and_then(|word| word.parse().ok())
                .ok_or_else(|| "no time in its answer".to_owned()),
            other => Err(format!("expected ok, got {other:?}")),
        }
    }
}

/// A running peer. Dropping it kills the process.
#[derive(Debug)]
pub struct Peer {
    name: &'static str,
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
    /// What it said to "hello".
    pub version: String,
}

impl Peer {
    fn spawn(name: &'static str, mut command: Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take().expect("a pipe");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let (said, answers) = channel();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| said.send(line))
        });
        let mut peer = Self {
            name,
            child,
            stdin,
            answers,
            version: String::new(),
        };
        match peer.ask(&["hello"]) {
            Answer::Done(words) => peer.version = words.join(" "),
            other => panic!("{name} does not answer: {other:?}"),
        }
        peer
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, words: &[&str]) -> Answer {
        self.send(words);
        self.answer()
    }

    /// Asks; [`answer`](Self::answer) waits for the answer.
    ///
    /// # Panics
    /// When the peer is gone.
    pub fn send(&mut self, words: &[&str]) {
        writeln!(self.stdin, "{}", words.join("\t")).expect("a peer that reads");
        self.stdin.flush().expect("a peer that reads");
    }

    /// The next answer.
    ///
    /// # Panics
    /// When there is none.
    pub fn answer(&mut self) -> Answer {
        match self.answers.recv_timeout(2 * LATE) {
            Ok(line) => Answer::read(&line),
            Err(RecvTimeoutError::Timeout) => panic!("{} does not answer", self.name),
            Err(RecvTimeoutError::Disconnected) => panic!("{} has ended", self.name),
        }
    }

    /// The next answer, if there is one within that time.
    pub fn answer_within(&mut self, limit: Duration) -> Option<Answer> {
        let line = self.answers.recv_timeout(limit).ok()?;
        Some(Answer::read(&line))
    }

    /// The number of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// One attempt.
    pub fn try_lock(&mut self, name: &str, ttl: Duration) -> Answer {
        self.ask(&["try", name, &millis(ttl)])
    }

    /// Waits for the lock.
    pub fn lock(&mut self, name: &str, ttl: Duration, wait: Duration) -> Answer {
        self.send_lock(name, ttl, wait);
        self.answer()
    }

    /// Begins to wait for the lock.
    pub fn send_lock(&mut self, name: &str, ttl: Duration, wait: Duration) {
        self.send(&["lock", name, &millis(ttl), &millis(wait)]);
    }

    /// Keeps it for another TTL.
    pub fn extend(&mut self, name: &str, ttl: Duration) -> Answer {
        self.ask(&["extend", name, &millis(ttl)])
    }

    /// Releases it.
    pub fn release(&mut self, name: &str) -> Answer {
        self.ask(&["release", name])
    }

    /// Kills it with -9.
    pub fn kill(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Milliseconds, as the protocol has them.
#[must_use]
pub fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}
