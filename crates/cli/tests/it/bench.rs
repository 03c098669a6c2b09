//! The one helper: a directory with a store, the program in it, and looks at processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use fencepost_tests::{Cluster, eventually};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

/// More than anything here takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// How often runs that could not connect are started again.
const TRIES: usize = 100;
/// How long they wait before that.
const PAUSE: Duration = Duration::from_millis(200);

/// A directory of its own, and the program with its store in it.
pub(crate) struct Bench {
    dir: TempDir,
}

/// How a run ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The program with these words, in the directory, without options from outside.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        ignore_nothing();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fencepost"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FENCEPOST_") {
                command.env_remove(name);
            }
        }
        command
            .args(words)
            .current_dir(self.dir.path())
            .env("FENCEPOST_SYSTEM_CONFIG", "")
            .env("XDG_STATE_HOME", self.dir.path())
            .env("XDG_CONFIG_HOME", self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        self.command(words).output().expect("the program").into()
    }

    /// Runs it to its end, again until it says that on stdout or stderr: a server that is there may
    /// not answer in time on a busy machine.
    pub(crate) fn run_until(&self, words: &[&str], says: &str) -> Ran {
        again_until(
            says,
            || self.run(words),
            |ran| ran.out.contains(says) || ran.err.contains(says),
        )
    }

    /// A shell with a script in which `$F` is the program.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let command = self.command(&[]);
        let program = command.get_program().to_owned();
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(self.dir.path());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.env("F", program).stdin(Stdio::null());
        shell
    }

    /// Runs a script like that to its end.
    pub(crate) fn script(&self, script: &str) -> Ran {
        self.shell(script).output().expect("a shell").into()
    }

    /// Runs a script like that with a stdout that nobody reads any more, and then another.
    pub(crate) fn unread(&self, script: &str, then: &str) -> Ran {
        // The shell must outlive its own attempts to write there.
        let alone = "trap '' PIPE; while echo 2>/dev/null; do sleep 0.01; done";
        self.script(&format!("{{ {alone}; {script}; }} | : ; {then}"))
    }

    /// Starts it.
    pub(crate) fn start(&self, words: &[&str]) -> Child {
        self.command(words).spawn().expect("the program")
    }

    /// Waits until all these runs have run their commands to the end, in silence, for as long as one
    /// after the other ends. One that got no answer is started again: many that begin at once on a busy
    /// machine keep a server, or a file, from answering in time. Its command has not run then.
    pub(crate) fn all_run(&self, mut all: Vec<(Vec<&str>, Child)>) {
        let mut tries = TRIES;
        while !all.is_empty() {
            let mut ended = None;
            eventually("another one ends", LIMIT, || {
                let mut runs = all.iter_mut();
                ended = runs.position(|(_, run)| run.try_wait().expect("our own child").is_some());
                ended.is_some()
            });
            let (words, run) = all.swap_remove(ended.expect("just found"));
            let ran = end_of(run);
            let unanswered = ["cannot connect", "no answer within"];
            let unanswered = unanswered.iter().any(|says| ran.err.contains(says));
            if tries > 0 && ran.code == Some(69) && unanswered {
                tries -= 1;
                // Not at once: starting is what keeps the machine busy.
                std::thread::sleep(PAUSE);
                let again = self.start(&words);
                all.push((words, again));
                continue;
            }
            assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{words:?}");
        }
    }

    /// Starts it, and returns when its command has made the file `name`.
    pub(crate) fn start_until(&self, name: &str, words: &[&str]) -> Child {
        let child = self.start(words);
        self.await_file(name);
        child
    }

    /// What the file holds, once it holds a whole line.
    pub(crate) fn await_file(&self, name: &str) -> String {
        let read = || std::fs::read_to_string(self.path(name)).unwrap_or_default();
        eventually(name, LIMIT, || read().ends_with('\n'));
        read().trim_end().to_owned()
    }

    /// Whether the file holds a whole line before the program ends.
    pub(crate) fn has_line(&self, name: &str, child: &mut Child) -> bool {
        let read = || std::fs::read_to_string(self.path(name)).unwrap_or_default();
        let mut ended = false;
        eventually(name, LIMIT, || {
            ended = child.try_wait().expect("our own child").is_some();
            ended || read().ends_with('\n')
        });
        !ended
    }

    /// Returns when that many wait for the lock.
    pub(crate) fn await_line(&self, name: &str, store: &[&str], count: u64) {
        let words = [&["status", name, "--json"], store].concat();
        eventually("they are in the queue", LIMIT, || {
            let status = self.run(&words).out;
            let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
            status["waiting"] == count
        });
    }

    /// The pid that the command wrote into the file `name`.
    pub(crate) fn pid(&self, name: &str) -> i32 {
        self.await_file(name).parse().expect("a pid")
    }
}

/// Makes what we start from now on begin with the default for the signals that the program passes on.
///
/// Tests that were started by `nohup`, or in the background of a shell without job control, ignore some
/// of them, and a process inherits that: rightly, the program would then ignore them too. What a process
/// *handles*, its children do not inherit. So whatever is ignored gets a handler that does nothing, and
/// the rest stays as it is: ^C still ends the tests.
fn ignore_nothing() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        // The handlers outlive it.
        let _guard = runtime.as_ref().expect("a runtime").enter();
        for passed_on in [
            Signal::SIGHUP,
            Signal::SIGINT,
            Signal::SIGQUIT,
            Signal::SIGTERM,
            Signal::SIGTSTP,
        ] {
            let number = passed_on as i32;
            if ignored() & (1 << (number - 1)) != 0 {
                drop(signal(SignalKind::from_raw(number)).expect("a handler"));
            }
        }
    });
}

/// The set of signals that this process ignores, where the system tells.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.map_or(0, |set| u64::from_str_radix(set.trim(), 16).expect("a set"))
}

/// Asks again and again, until the answer is as it should be.
pub(crate) fn again_until(what: &str, ask: impl Fn() -> Ran, is_so: impl Fn(&Ran) -> bool) -> Ran {
    let mut ran = ask();
    eventually(what, LIMIT, || {
        let so = is_so(&ran);
        if !so {
            ran = ask();
        }
        so
    });
    ran
}

/// The tokens in the file `name`, a line each: every one is larger than those before it.
pub(crate) fn growing_tokens(bench: &Bench, name: &str) -> Vec<u64> {
    let lines = std::fs::read_to_string(bench.path(name)).unwrap_or_default();
    let tokens = lines.lines().map(|line| line.parse().expect("a token"));
    let tokens: Vec<u64> = tokens.collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    tokens
}

/// Returns when nothing but token counters is left on the servers: a client goes on as soon as a
/// majority has what it was sent.
pub(crate) fn nothing_is_left(cluster: &Cluster) {
    // On a busy machine an answer may be so late that its attempt is refused for a while.
    // And whoever was stolen from may ask by whom.
    let is_left = |key: &String| !key.contains(":gone:") && !key.ends_with(":stolen");
    eventually("nothing is left", LIMIT, || {
        !cluster.leftovers().iter().any(is_left)
    });
}

/// Its pid, as the system has it.
pub(crate) fn pid_of(child: &Child) -> i32 {
    i32::try_from(child.id()).expect("a pid")
}

/// Waits for its end, within [`LIMIT`].
pub(crate) fn end_of(mut child: Child) -> Ran {
    eventually("the program ends", LIMIT, || {
        child.try_wait().expect("our own child").is_some()
    });
    child.wait_with_output().expect("our own child").into()
}

/// Sends a signal by name.
pub(crate) fn send(signal: &str, pid: i32) {
    let status = Command::new("kill")
        .args(["-s", signal, "--", &pid.to_string()])
        .status();
    assert!(status.expect("kill").success(), "kill {signal} {pid}");
}

/// Whether the process runs: a dead one that nobody has taken note of does not.
pub(crate) fn runs(pid: i32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// Whether the process was stopped and may go on later.
pub(crate) fn is_stopped(pid: i32) -> bool {
    state(pid) == Some('T')
}

fn state(pid: i32) -> Option<char> {
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    let stat = std::fs::read_to_string(stat).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Asserts that the process ends within `limit`, and returns how long it took.
pub(crate) fn dies(pid: i32, limit: Duration) -> Duration {
    let start = Instant::now();
    eventually(&format!("{pid} dies"), limit, || !runs(pid));
    start.elapsed()
}
