//! The SQLite node among real processes: they are started, killed, stopped and locked out.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost::internals::Node;
use fencepost::internals::clock::SystemClock;
use fencepost::internals::sqlite::SqliteNode;
use fencepost::{AttemptValue, FencingToken, LockName};
use fencepost_core::Ttl;
use fencepost_core::lock::{self, Reply};
use fencepost_tests::eventually;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const HAMMER: &str = env!("CARGO_BIN_EXE_hammer");

/// What "at once" may take on a machine that is busy with other things. The TTL is 30 s.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A directory with a lock file and a counter in it, and the processes that work on them.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }

    fn counter(&self) -> PathBuf {
        self.0.path().join("counter")
    }

    fn count(&self) -> u64 {
        // The file is empty for a moment whenever it is written.
        let text = fs::read_to_string(self.counter()).unwrap_or_default();
        let number = text.split_whitespace().next();
        number.map_or(0, |number| number.parse().expect("a number"))
    }

    fn hammer(&self, mode: &str) -> Command {
        let mut hammer = Command::new(HAMMER);
        hammer.arg(mode).arg(self.file()).stdout(Stdio::piped());
        hammer
    }

    fn workers(&self, n: usize, rounds: u32) -> Vec<Child> {
        let start = |_| {
            self.hammer("work")
                .arg(self.counter())
                .arg(rounds.to_string())
                .spawn()
                .expect("a process")
        };
        (0..n).map(start).collect()
    }

    /// A process that holds the lock by the time this returns.
    fn holder(&self) -> Killed {
        let mut holder = Killed(
            self.hammer("hold")
                .arg(self.counter())
                .spawn()
                .expect("a process"),
        );
        let mut line = String::new();
        let stdout = holder.0.stdout.as_mut().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        assert_eq!(line, "holding\n");
        holder
    }

    fn node(&self) -> SqliteNode {
        SqliteNode::open(self.file(), Arc::new(SystemClock)).expect("a node")
    }
}

/// A process that is killed when the test is over, however it ends.
struct Killed(Child);

impl Killed {
    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), signal).expect("our own child");
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn all_succeed(children: Vec<Child>) {
    for child in children {
        let output = child.wait_with_output().expect("our own child");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
    }
}

async fn try_acquire(node: &SqliteNode, value: &str) -> Reply {
    let acquire = lock::Command::Acquire {
        value: AttemptValue::reported(value),
        ttl: Ttl::new(Duration::from_secs(30)).expect("a TTL"),
        proposed: FencingToken::ZERO,
        turn: Default::default(),
    };
    let name = LockName::new("job").expect("a name");
    node.call(&name, acquire).await.expect("an answer")
}

#[test]
fn eight_processes_count_exactly_though_one_is_killed_while_it_holds_the_lock() {
    const WORKERS: usize = 7;
    const ROUNDS: u32 = 200;
    let place = Place::new();
    let workers = place.workers(WORKERS, ROUNDS);
    // It has to get its turn among the others, who are at it already.
    let holder = place.holder();
    let held_at = place.count();
    // That nobody gets in, only time can tell.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(place.count(), held_at, "nobody else has the lock meanwhile");

    // Not reaped: for those who look, it is a zombie.
    holder.signal(Signal::KILL);
    let killed = Instant::now();
    eventually("the others go on", AT_ONCE, || place.count() > held_at);
    println!("went on {:?} after the kill", killed.elapsed());

    all_succeed(workers);
    assert_eq!(place.count(), WORKERS as u64 * u64::from(ROUNDS) + 1);
}

#[test]
fn eight_processes_that_begin_at_once_on_a_missing_file_all_get_it() {
    for _ in 0..10 {
        let place = Place::new();
        all_succeed(place.workers(8, 1));
        assert_eq!(place.count(), 8);
    }
}

#[tokio::test]
async fn a_holder_that_exited_and_was_reaped_frees_its_lock_at_once() {
    let place = Place::new();
    let node = place.node();
    let holder = place.holder();
    assert!(matches!(try_acquire(&node, "a").await, Reply::Held(_)));
    drop(holder);
    let name = LockName::new("job").expect("a name");
    let seen = node.call(&name, lock::Command::Inspect).await;
    let Ok(Reply::Snapshot(seen)) = seen else {
        panic!("{seen:?}");
    };
    assert_eq!(seen.holder, None, "a look sees it too");
    let reply = try_acquire(&node, "a").await;
    assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
}

#[tokio::test]
async fn a_holder_that_is_only_stopped_keeps_its_lock() {
    let place = Place::new();
    let node = place.node();
    let holder = place.holder();
    holder.signal(Signal::STOP);
    let stat = format!("/proc/{}/stat", holder.0.id());
    eventually("it is stopped", AT_ONCE, || {
        fs::read_to_string(&stat)
            .expect("its state")
            .contains(") T ")
    });
    assert!(matches!(try_acquire(&node, "a").await, Reply::Held(_)));
}

#[tokio::test]
async fn a_lock_of_this_process_excludes_another_and_is_seen_there() {
    let place = Place::new();
    let node = place.node();
    let reply = try_acquire(&node, "a").await;
    assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    let mut other = Killed(place.workers(1, 1).remove(0));
    // That it does not get in, only time can tell.
    std::thread::sleep(Duration::from_millis(200));
    assert!(other.0.try_wait().expect("our own child").is_none());
    let release = lock::Command::Release {
        value: AttemptValue::reported("a"),
        tombstone: None,
        ticket: Default::default(),
        follower: None,
        is_lease: false,
    };
    let name = LockName::new("job").expect("a name");
    let reply = node.call(&name, release).await;
    assert_eq!(reply, Ok(Reply::Released));
    eventually("the other gets it", AT_ONCE, || place.count() == 1);
}

#[test]
fn new_files_are_for_their_owner_alone() {
    for (umask, mode) in [("077", 0o600), ("022", 0o600)] {
        let place = Place::new();
        let script = format!("umask {umask}; exec \"$0\" open \"$1\"");
        let status = Command::new("sh")
            .args(["-c", &script, HAMMER])
            .arg(place.0.path().join("new/locks.db"))
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("a shell").success());
        let file = fs::metadata(place.0.path().join("new/locks.db")).expect("the file");
        assert_eq!(file.permissions().mode() & 0o777, mode, "umask {umask}");
    }
}

/// What `hammer open` says as a user who has no special rights.
fn open_as_nobody(dir: &Path, file: &str) -> String {
    // Where the program was built, that user may not even be allowed to look.
    let hammer = dir.join("hammer");
    // By a process of its own: a child that another test starts meanwhile would inherit the descriptor
    // that we write with, and a program that is open for writing cannot be started ("Text file busy").
    let copied = Command::new("cp").arg(HAMMER).arg(&hammer).status();
    assert!(copied.expect("cp").success());
    let mut open = Command::new(hammer);
    open.arg("open").arg(dir.join(file));
    if rustix::process::geteuid().is_root() {
        open.uid(65534).gid(65534);
    }
    let output = open.output().expect("a process");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our own file");
}

#[test]
fn what_may_not_be_written_is_refused_with_the_reason() {
    let place = Place::new();
    let dir = place.0.path();
    set_mode(dir, 0o777);
    assert_eq!(open_as_nobody(dir, "fine/locks.db"), "ok\n");

    // Open elsewhere or not makes a difference to SQLite: it could read along.
    let node = place.node();
    set_mode(&place.file(), 0o444);
    let said = open_as_nobody(dir, "locks.db");
    assert!(said.contains("it is read-only"), "{said}");
    drop(node);
    let side_file = dir.join("locks.db-shm");
    eventually("it is closed", AT_ONCE, || !side_file.exists());
    let said = open_as_nobody(dir, "locks.db");
    assert!(said.contains("it is read-only"), "{said}");

    set_mode(&place.file(), 0o000);
    let said = open_as_nobody(dir, "locks.db");
    assert!(said.contains("permission denied"), "{said}");

    let closed = dir.join("closed");
    fs::create_dir(&closed).expect("a directory");
    set_mode(&closed, 0o555);
    let said = open_as_nobody(dir, "closed/locks.db");
    assert!(said.contains("permission denied"), "{said}");
    let said = open_as_nobody(dir, "closed/deeper/locks.db");
    assert!(said.contains("cannot create"), "{said}");
}
