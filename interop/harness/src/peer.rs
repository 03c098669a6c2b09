//! [`Peer`]: a process that serves the line protocol, and what it answers.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long an answer may take: the longest wait that is asked for (60 s), and as much again.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// How long it may take to fetch and build what a peer needs.
pub const INSTALL_LIMIT: Duration = Duration::from_secs(600);

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

/// Why a peer cannot be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotInstalled {
    /// Its toolchain is missing, or its dependencies could not be fetched in time: nothing here is wrong.
    Skipped(String),
    /// It does not build.
    Broken(String),
}

impl fmt::Display for NotInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(why) => f.write_str(why),
            Self::Broken(why) => write!(f, "it does not build: {why}"),
        }
    }
}

/// What the exit code of a script `install` says.
fn installed(output: &Output) -> Result<(), NotInstalled> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let said = text(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(()),
        Some(3) => Err(NotInstalled::Skipped(text(&output.stdout))),
        Some(4) => {
            // The report has it in a line; npm says twenty.
            let first = said.lines().next().unwrap_or_default();
            let why = format!("its dependencies could not be fetched: {first}");
            Err(NotInstalled::Skipped(why))
        }
        _ => Err(NotInstalled::Broken(format!("{}: {said}", output.status))),
    }
}

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

    /// Installs it, or says why not.
    ///
    /// # Errors
    /// As [`install_within`](Self::install_within), as text.
    pub fn install(&self) -> Result<(), String> {
        let installed = self.install_within(INSTALL_LIMIT);
        installed.map_err(|why| why.to_string())
    }

    /// Installs it within that time.
    ///
    /// # Errors
    /// [`NotInstalled`] says whether that is a failure.
    pub fn install_within(&self, limit: Duration) -> Result<(), NotInstalled> {
        let install = peers().join(self.dir).join("install");
        let mut command = Command::new(&install);
        without_cargo(&mut command).env("INTEROP_PROFILE", self.profile);
        match bounded(&mut command, limit) {
            Ok(output) => installed(&output),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                Err(NotInstalled::Skipped(error.to_string()))
            }
            Err(error) => Err(NotInstalled::Broken(error.to_string())),
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

/// A peer and its version, without the same number twice: `node-redlock 5.0.0-beta.2`.
#[must_use]
pub fn label(name: &str, version: &str) -> String {
    let name = match name.rsplit_once(' ') {
        Some((name, number)) if version.contains(number) => name,
        _ => name,
    };
    format!("{name} {}", version.trim_start_matches('v'))
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
    /// The question that it was asked last.
    asked: String,
    /// Why it is not asked any more. An answer that comes too late would be taken for the next one.
    fault: Option<String>,
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
            asked: String::new(),
            fault: None,
            version: String::new(),
        };
        match peer.ask(&["hello"]) {
            Answer::Done(words) => peer.version = words.join(" "),
            other => peer.fault(format!("it answers hello with {other:?}")),
        }
        peer
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, words: &[&str]) -> Answer {
        self.send(words);
        self.answer()
    }

    /// Asks; [`answer`](Self::answer) waits for the answer.
    pub fn send(&mut self, words: &[&str]) {
        self.asked = words.join(" ");
        if self.fault.is_some() {
            return;
        }
        let written = writeln!(self.stdin, "{}", words.join("\t"));
        if let Err(error) = written.and_then(|()| self.stdin.flush()) {
            self.fault(format!("cannot be asked: {error}"));
        }
    }

    /// The next answer. A peer that gives none in time is killed, and answers with an error that names the
    /// question from then on: nothing here waits for ever.
    pub fn answer(&mut self) -> Answer {
        if let Some(fault) = &self.fault {
            return Answer::Error(fault.clone());
        }
        let fault = match self.answers.recv_timeout(ANSWER_LIMIT) {
            Ok(line) => return Answer::read(&line),
            Err(RecvTimeoutError::Timeout) => format!("no answer within {ANSWER_LIMIT:?}"),
            Err(RecvTimeoutError::Disconnected) => "it has ended".to_owned(),
        };
        self.fault(fault);
        self.answer()
    }

    fn fault(&mut self, fault: String) {
        let asked: String = self.asked.chars().take(80).collect();
        self.fault = Some(format!("{}, asked {asked:?}: {fault}", self.name));
        self.kill();
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

/// Runs a command to its end, or kills it and its children when it takes longer than that.
///
/// # Errors
/// It cannot be started, or did not end in time ([`io::ErrorKind::TimedOut`]).
pub fn bounded(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let words = command.get_args().map(|word| word.to_string_lossy());
    let what: Vec<_> = std::iter::once(program.as_str().into())
        .chain(words)
        .collect();
    let what = what.join(" ");
    let spawned = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Its own group, so that a package manager's children end with it.
        .process_group(0)
        .spawn();
    let child = spawned
        .map_err(|error| io::Error::new(error.kind(), format!("{what} cannot be run: {error}")))?;
    let group = child.id();
    let (ended, end) = channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()));
    match end.recv_timeout(limit) {
        Ok(output) => {
            output.map_err(|error| io::Error::new(error.kind(), format!("{what}: {error}")))
        }
        Err(_) => {
            let group = format!("-{group}");
            // It may end at this moment.
            let _ = Command::new("kill").args(["-9", "--", &group]).status();
            let why = format!("{what}: no end within {limit:?}");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}

/// Says on stderr what is done now, so that a run that hangs tells where.
pub fn step(who: &str, what: &str) {
    eprintln!("{who}: {what} …");
}

/// Milliseconds, as the protocol has them.
#[must_use]
pub fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_not_end_is_killed_and_named() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]);
        let begin = std::time::Instant::now();
        let error = bounded(&mut command, Duration::from_millis(300)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let error = error.to_string();
        assert!(error.starts_with("sh -c sleep 600"), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(60));
    }

    /// Once a peer that did not compile was skipped, and CI passed.
    #[test]
    fn a_peer_that_does_not_build_is_broken_and_never_skipped() {
        let install = |script: &str| {
            let output = Command::new("sh").args(["-c", script]).output();
            installed(&output.expect("sh"))
        };
        assert_eq!(install("exit 0"), Ok(()));
        let skipped = |why: &str| Err(NotInstalled::Skipped(why.to_owned()));
        assert_eq!(
            install("echo 'Go is not installed'; exit 3"),
            skipped("Go is not installed")
        );
        assert_eq!(
            install("printf 'no route\\nsee the log' >&2; exit 4"),
            skipped("its dependencies could not be fetched: no route")
        );
        for script in ["exit 1", "exit 101", "kill -9 $$"] {
            let script = format!("echo 'syntax error' >&2; {script}");
            let outcome = install(&script);
            assert!(
                matches!(&outcome, Err(NotInstalled::Broken(why)) if why.contains("syntax error")),
                "{script}: {outcome:?}"
            );
        }
        let no_script = Spec::of("nobody").install_within(Duration::from_secs(60));
        assert!(matches!(no_script, Err(NotInstalled::Broken(_))));
    }

    #[test]
    fn a_peer_that_has_ended_is_named_with_the_question() {
        let mut command = Command::new("sh");
        command.args(["-c", "read hello; printf 'ok\\t1\\n'; read question"]);
        let mut peer = Peer::spawn("short-lived", command);
        assert_eq!(peer.version, "1");
        let first = peer.try_lock("job", Duration::from_secs(1));
        assert_eq!(first, peer.release("job"), "it is not asked again");
        assert!(
            matches!(&first, Answer::Error(why) if why.contains("short-lived, asked \"try job 1000\": it has ended")),
            "{first:?}"
        );
    }
}
