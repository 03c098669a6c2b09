//! [`Program`]: `fencepost`, as a script would call it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::Value;

use crate::peer::{beside_us, bounded, millis};

/// What it exits with when somebody else has the lock.
const HELD: i32 = 75;
/// What it exits with when the lock is lost.
const LOST: i32 = 79;

/// How long it may take: the longest wait that it is given, and a minute.
const LIMIT: Duration = Duration::from_secs(180);

/// The program, and the store that it is called with.
#[derive(Clone, Debug)]
pub struct Program {
    store: String,
}

/// A lock that `fencepost acquire` handed over.
#[derive(Clone, Debug)]
pub struct Handed {
    value: String,
    /// Its fencing token.
    pub token: u64,
}

/// What `fencepost acquire` ended with.
#[derive(Clone, Debug)]
pub enum Acquired {
    /// The lock is ours.
    Ours(Handed),
    /// Somebody else has it.
    Held,
    /// Something else went wrong: its exit code, and what it said.
    Failed(i32, String),
}

impl Program {
    /// On these servers, which have just been started.
    #[must_use]
    pub fn on(urls: &str) -> Self {
        Self {
            store: urls.to_owned(),
        }
    }

    /// The program with these words, to be started.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(beside_us("fencepost"));
        command
            .args(words)
            .env("FENCEPOST_STORE", &self.store)
            .env("FENCEPOST_RESTART_POLICY", "trust")
            .stdin(Stdio::null());
        command
    }

    /// Its exit code, or -1, and what it printed to stdout and stderr.
    fn output(&self, words: &[&str]) -> (i32, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = match bounded(&mut self.command(words), LIMIT) {
            Ok(output) => output,
            Err(error) => return (-1, String::new(), error.to_string()),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        (status.code().unwrap_or(-1), text(&stdout), text(&stderr))
    }

    /// `fencepost acquire`, which waits at most that long.
    #[must_use]
    pub fn acquire(&self, name: &str, ttl: Duration, wait: Duration) -> Acquired {
        let (ttl, wait) = (time(ttl), time(wait));
        let words = ["acquire", name, "--ttl", &ttl, "--wait", &wait, "--json"];
        match self.output(&words) {
            (0, printed, _) => match handed(&printed) {
                Some(handed) => Acquired::Ours(handed),
                None => Acquired::Failed(0, printed),
            },
            (HELD, _, _) => Acquired::Held,
            (code, _, said) => Acquired::Failed(code, said),
        }
    }

    /// `fencepost release`: whether it was ours until then.
    ///
    /// # Errors
    /// What it said otherwise.
    pub fn release(&self, name: &str, handed: &Handed) -> Result<(), String> {
        match self.output(&["release", name, "--value", &handed.value]) {
            (0, ..) => Ok(()),
            (code, _, said) => Err(format!("release exits with {code}: {said}")),
        }
    }

    /// `fencepost extend`: whether it is ours still.
    ///
    /// # Errors
    /// What it said otherwise.
    pub fn extend(&self, name: &str, handed: &Handed, ttl: Duration) -> Result<bool, String> {
        let (token, ttl) = (handed.token.to_string(), time(ttl));
        let words = ["extend", name, "--value", &handed.value];
        let more = ["--token", &token, "--ttl", &ttl];
        match self.output(&[words, more].concat()) {
            (0, ..) => Ok(true),
            (LOST, ..) => Ok(false),
            (code, _, said) => Err(format!("extend exits with {code}: {said}")),
        }
    }

    /// `fencepost run` with a command that never ends. Returns when the command has begun.
    ///
    /// # Errors
    /// It does not begin.
    pub fn hold(&self, name: &str, ttl: Duration) -> Result<Running, String> {
        let script = "echo begun; exec sleep 600";
        let words = ["run", name, "--ttl", &time(ttl), "--", "sh", "-c", script];
        let mut command = self.command(&words);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("fencepost");
        let stdout = child.stdout.take().expect("a pipe");
        let running = Running { child };
        let (said, first) = channel();
        std::thread::spawn(move || {
            let line = BufReader::new(stdout).lines().next();
            said.send(line.and_then(Result::ok))
        });
        match first.recv_timeout(LIMIT) {
            Ok(Some(line)) if line == "begun" => Ok(running),
            other => Err(format!("fencepost run {name:?} does not begin: {other:?}")),
        }
    }

    /// `fencepost run` with a command that reads and writes a counter, that often.
    ///
    /// # Errors
    /// The first run that did not end well.
    pub fn soak(
        &self,
        name: &str,
        counter: &str,
        port: u16,
        rounds: usize,
    ) -> Result<usize, String> {
        let cli = format!("redis-cli -p {port}");
        let script = format!("seen=$({cli} GET {counter}); {cli} SET {counter} $((seen + 1))");
        for _ in 0..rounds {
            let words = [
                "run", name, "--wait", "120s", "-q", "--", "sh", "-c", &script,
            ];
            let (code, _, said) = self.output(&words);
            if code != 0 {
                return Err(format!("run exits with {code}: {said}"));
            }
        }
        Ok(rounds)
    }
}

/// A `fencepost run` that goes on. Dropping it kills it with -9.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

impl Running {
    /// Kills it with -9.
    pub fn kill(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn handed(printed: &str) -> Option<Handed> {
    let json: Value = serde_json::from_str(printed).ok()?;
    Some(Handed {
        value: json["value"].as_str()?.to_owned(),
        token: json["token"].as_u64()?,
    })
}

fn time(time: Duration) -> String {
    millis(time) + "ms"
}
