//! [`Monitor`]: what a server is told, as `MONITOR` shows it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use fencepost_tests::RedisServer;

use crate::scene::eventually;

/// What a server is told, as `MONITOR` shows it.
#[derive(Debug)]
pub struct Monitor {
    child: Child,
    seen: Arc<Mutex<Vec<Told>>>,
}

/// When, in microseconds since 1970, and the words.
type Told = (u64, Vec<String>);

impl Monitor {
    /// Watches the server from now on.
    ///
    /// # Errors
    /// It cannot be watched.
    pub fn of(server: &RedisServer) -> Result<Self, String> {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &server.port().to_string(), "MONITOR"]);
        let mut child = cli
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let stdout = child.stdout.take().ok_or("no pipe")?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&seen);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push((moment(&line), words(&line)));
            }
        });
        let monitor = Self { child, seen };
        eventually("the server is watched", || {
            monitor.any(|words| words == ["OK"])
        })?;
        Ok(monitor)
    }

    /// Whether there was such a command.
    pub fn any(&self, is: impl Fn(&[String]) -> bool) -> bool {
        self.take(is).is_some()
    }

    /// The first such command: its words.
    pub fn take(&self, is: impl Fn(&[String]) -> bool) -> Option<Vec<String>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut words = seen.iter().map(|(_, words)| words);
        words.find(|words| !words.is_empty() && is(words)).cloned()
    }

    /// When there were such commands, by the server's clock, in microseconds since 1970.
    pub fn moments(&self, is: impl Fn(&[String]) -> bool) -> Vec<u64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let such = seen.iter().filter(|(_, words)| is(words));
        such.map(|(moment, _)| *moment).collect()
    }

    /// Every command so far.
    #[must_use]
    pub fn all(&self) -> Vec<Vec<String>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().map(|(_, words)| words.clone()).collect()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // It may have gone with the server.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a line begins with: `1700000000.123456 [0 lua] …`, or zero.
fn moment(line: &str) -> u64 {
    let (moment, _) = line.split_once(' ').unwrap_or((line, ""));
    moment.replace('.', "").parse().unwrap_or(0)
}

/// The quoted words of a line: `1700000000.1 [0 lua] "del" "job"`. A line without any is one word.
fn words(line: &str) -> Vec<String> {
    let Some((_, quoted)) = line.split_once("] \"") else {
        return vec![line.to_owned()];
    };
    let quoted = quoted.trim_end().trim_end_matches('"');
    quoted.split("\" \"").map(str::to_owned).collect()
}
