//! One `redis-server` process: started on a free port, killed, stopped, continued, restarted.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How long a server may take to answer its first PING.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How often another port is tried when somebody else took ours in between.
const START_TRIES: usize = 5;

/// What to start beside the defaults (no persistence, loopback only).
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// More words for the command line, such as `["--maxmemory", "10mb"]`. The first may be the path of
    /// a configuration file.
    pub args: Vec<String>,
    /// The password that the harness itself needs to see whether the server is up.
    pub password: Option<String>,
}

/// A running `redis-server` of our own. Dropping it kills the process and deletes its files.
#[derive(Debug)]
pub struct RedisServer {
    child: Option<Child>,
    is_frozen: AtomicBool,
    port: u16,
    dir: TempDir,
    options: ServerOptions,
}

impl RedisServer {
    /// Starts a server without persistence.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(ServerOptions::default())
    }

    /// Starts a server with more words on its command line.
    #[must_use]
    pub fn start_args(args: &[&str]) -> Self {
        Self::start_with(ServerOptions {
            args: args.iter().map(ToString::to_string).collect(),
            password: None,
        })
    }

    /// Starts a server.
    ///
    /// # Panics
    /// When `redis-server` is not installed or does not come up.
    #[must_use]
    pub fn start_with(options: ServerOptions) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut server = Self {
            child: None,
            is_frozen: AtomicBool::new(false),
            port: 0,
            dir,
            options,
        };
        for _ in 0..START_TRIES {
            server.port = free_port();
            if server.launch() {
                return server;
            }
        }
        panic!("redis-server did not come up; its log:\n{}", server.log());
    }

    /// Several servers at once.
    #[must_use]
    pub fn start_many(n: usize) -> Vec<Self> {
        (0..n).map(|_| Self::start()).collect()
    }

    fn launch(&mut self) -> bool {
        let log = std::fs::File::create(self.dir.path().join("log")).expect("a log file");
        let is_config = |word: &&String| word.starts_with('/');
        let config = self.options.args.first().filter(is_config);
        let options = &self.options.args[usize::from(config.is_some())..];
        let child = Command::new("redis-server")
            .args(config)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--dir"])
            .arg(self.dir.path())
            .arg("--unixsocket")
            .arg(self.socket())
            .args(options)
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("a second handle"))
            .stdout(log)
            .spawn()
            .expect("redis-server is needed: run ./test, which installs it");
        self.child = Some(child);
        self.is_frozen.store(false, Ordering::Relaxed);
        let end = Instant::now() + START_LIMIT;
        while Instant::now() < end {
            if self.answers() {
                return true;
            }
            let child = self.child.as_mut().expect("just started");
            if child.try_wait().expect("our own child").is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Whether the server answers a PING. Asked at its socket, which nobody else has: on its port there
    /// may be the server of another test, and then ours is about to give up.
    fn answers(&self) -> bool {
        let Ok(mut stream) = UnixStream::connect(self.socket()) else {
            return false;
        };
        let login = match &self.options.password {
            Some(password) => format!("AUTH {password}\r\n"),
            None => String::new(),
        };
        let limit = Some(Duration::from_secs(1));
        if stream.set_read_timeout(limit).is_err() || write!(stream, "{login}PING\r\n").is_err() {
            return false;
        }
        let lines = BufReader::new(stream).lines();
        lines
            .map_while(Result::ok)
            .take(2)
            .any(|line| line == "+PONG")
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:PORT`
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The path of the server's Unix socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Where the server keeps its files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What the server has logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Runs one command with `redis-cli` and returns what it printed.
    ///
    /// # Panics
    /// When `redis-cli` fails.
    pub fn cli(&self, words: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        cli.arg("-s").arg(self.socket());
        if let Some(password) = &self.options.password {
            cli.args(["--no-auth-warning", "-a", password]);
        }
        let Output {
            stdout,
            stderr,
            status,
        } = cli.args(words).output().expect("redis-cli");
        let said = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{said}; its log:\n{}", self.log());
        String::from_utf8_lossy(&stdout).trim_end().to_owned()
    }

    /// Its keys, without the fence register.
    ///
    /// # Panics
    /// When it cannot be asked.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        let all = self.cli(&["KEYS", "*"]);
        let keys = all.lines().filter(|key| !key.is_empty());
        let keys = keys.filter(|key| *key != "fencepost:fences");
        keys.map(str::to_owned).collect()
    }

    /// How many scripts it has run so far, by their digest or by their text.
    ///
    /// # Panics
    /// When it cannot be asked.
    #[must_use]
    pub fn scripts_run(&self) -> u64 {
        let stats = self.cli(&["INFO", "commandstats"]);
        let calls = |command: &str| {
            let prefix = format!("cmdstat_{command}:calls=");
            let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
            let number = line.and_then(|line| line.split(',').next());
            number.map_or(0, |number| number.parse::<u64>().expect("a number"))
        };
        calls("evalsha") + calls("eval")
    }

    /// Whether locks are acquired by plain commands there: since Redis 7, and on every Valkey.
    #[must_use]
    pub fn has_plain_commands(&self) -> bool {
        let info = self.cli(&["INFO", "server"]);
        let version = info
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"));
        let major = version.and_then(|version| version.split('.').next()?.trim().parse().ok());
        major.is_some_and(|major: u32| major >= 7)
    }

    /// Whether it was started and not killed.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Whether it runs and is not frozen.
    pub(crate) fn is_up(&self) -> bool {
        self.is_running() && !self.is_frozen.load(Ordering::Relaxed)
    }

    /// Kills the server with -9, as a power cut would. [`restart`](Self::restart) brings it back.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may be gone already; then there is nothing to kill.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the killed server again, on the same port and in the same directory.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "did not come up again:\n{}", self.log());
    }

    /// As [`restart`](Self::restart), with other words on its command line.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn restart_args(&mut self, args: &[&str]) {
        self.options.args = args.iter().map(ToString::to_string).collect();
        self.restart();
    }

    /// Stops the server in its tracks (SIGSTOP): it accepts connections and never answers.
    pub fn freeze(&self) {
        self.is_frozen.store(true, Ordering::Relaxed);
        self.signal(Signal::STOP);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.is_frozen.store(false, Ordering::Relaxed);
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            kill_process(pid.expect("a pid"), signal).expect("our own child");
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port on which nobody listens at the moment.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It was taken for up as soon as anybody answered on its port.
    #[test]
    fn a_server_whose_port_is_taken_is_not_taken_for_up() {
        let other = RedisServer::start();
        let mut late = RedisServer::start();
        late.kill();
        late.port = other.port;
        assert!(!late.launch(), "{}", late.log());
        assert!(other.answers());
    }
}
