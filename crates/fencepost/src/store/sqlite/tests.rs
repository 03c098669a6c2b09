//! What the node promises beyond the state machine: on real files, with a clock of the test's own.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tempfile::TempDir;

use super::*;
use crate::error::NodeError;
use crate::runtime::clock::{Moment, SystemClock};
use crate::{AttemptValue, FencingToken};
use fencepost_core::Ttl;
use fencepost_core::lock::{REGISTER_RETENTION, Repair, Reply};

/// A clock that stands still until it is set.
struct HandClock {
    elapsed: Mutex<Duration>,
    wall_micros: AtomicU64,
    panics: AtomicBool,
}

impl HandClock {
    fn at(elapsed: Duration) -> Arc<Self> {
        Arc::new(Self {
            elapsed: Mutex::new(elapsed),
            wall_micros: AtomicU64::new(1_000_000),
            panics: AtomicBool::new(false),
        })
    }

    fn set(&self, elapsed: Duration) {
        *self.elapsed.lock().unwrap() = elapsed;
    }
}

impl Clock for HandClock {
    fn now(&self) -> Moment {
        assert!(!self.panics.load(Ordering::Relaxed), "no time today");
        Moment::from_start(*self.elapsed.lock().unwrap())
    }

    fn wall_micros(&self) -> u64 {
        self.wall_micros.load(Ordering::Relaxed)
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn acquire(value: &str) -> Command {
    Command::Acquire {
        value: AttemptValue::reported(value),
        ttl: Ttl::new(secs(30)).unwrap(),
        proposed: FencingToken::ZERO,
        turn: Default::default(),
    }
}

fn release(value: &str) -> Command {
    Command::Release {
        value: AttemptValue::reported(value),
        tombstone: None,
        ticket: Default::default(),
        follower: None,
        is_lease: false,
    }
}

fn granted(register: u64) -> Result<Reply, NodeError> {
    Ok(Reply::Granted {
        register: FencingToken::saturating(register),
        evicted: None,
    })
}

/// A file in a directory of its own, and ways to see and bend its rows behind the node's back.
struct File(TempDir);

impl File {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("locks.db")
    }

    fn node(&self, clock: &Arc<HandClock>) -> SqliteNode {
        SqliteNode::open(self.path(), Arc::clone(clock) as Arc<dyn Clock>).unwrap()
    }

    fn store(&self, clock: Arc<HandClock>) -> Store {
        let us = Holder::find(HolderProcess::This).unwrap();
        Store::open(FileSpec::new(self.path()), clock, us).unwrap()
    }

    fn sql(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    fn why(&self) -> String {
        match SqliteNode::open(self.path(), Arc::new(SystemClock)) {
            Ok(_) => panic!("opened"),
            Err(error) => error.to_string(),
        }
    }

    fn names(&self) -> u32 {
        let count = "SELECT count(*) FROM locks";
        self.sql().query_row(count, [], |row| row.get(0)).unwrap()
    }
}

fn is_held(reply: &Result<Reply, NodeError>) -> bool {
    matches!(reply, Ok(Reply::Held(_)))
}

#[tokio::test]
async fn a_reboot_frees_the_lock_and_the_register_goes_on() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    assert_eq!(node.call(&a, acquire("one")).await, granted(1));
    assert!(is_held(&node.call(&a, acquire("two")).await));
    file.sql()
        .execute("UPDATE locks SET boot = 'another'", [])
        .unwrap();
    clock.set(secs(5));
    let Ok(Reply::Snapshot(seen)) = node.call(&a, Command::Inspect).await else {
        panic!("no snapshot");
    };
    assert_eq!((seen.holder, seen.register.get()), (None, 1));
    assert_eq!(node.call(&a, acquire("two")).await, granted(2));
    assert!(is_held(&node.call(&a, acquire("three")).await));
}

#[tokio::test]
async fn without_a_boot_id_a_holder_is_kept_for_its_ttl_at_most() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let _ = node.call(&a, acquire("one")).await;
    file.sql()
        .execute("UPDATE locks SET boot = NULL", [])
        .unwrap();
    assert!(is_held(&node.call(&a, acquire("two")).await));
    clock.set(secs(999));
    assert_eq!(node.call(&a, acquire("two")).await, granted(2));
}

#[tokio::test]
async fn a_jump_of_the_wall_clock_neither_expires_nor_prolongs_anything() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let _ = node.call(&a, acquire("one")).await;
    for micros in [u64::MAX, 0] {
        clock.wall_micros.store(micros, Ordering::Relaxed);
        assert!(is_held(&node.call(&a, acquire("two")).await));
    }
    clock.set(secs(1030));
    assert_eq!(node.call(&a, acquire("two")).await, granted(2));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_pid_that_was_given_to_another_process_frees_the_lock() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let _ = node.call(&a, acquire("one")).await;
    let ours: u32 = file
        .sql()
        .query_row("SELECT pid FROM locks", [], |row| row.get(0))
        .unwrap();
    assert_eq!(ours, std::process::id());
    assert!(
        is_held(&node.call(&a, acquire("two")).await),
        "we are alive"
    );
    file.sql()
        .execute("UPDATE locks SET started = started - 1", [])
        .unwrap();
    assert_eq!(node.call(&a, acquire("two")).await, granted(2));
    assert!(
        is_held(&node.call(&a, acquire("three")).await),
        "the new holder's process is written down, not the old one's"
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_holder_in_another_pid_namespace_is_left_to_its_ttl() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let _ = node.call(&a, acquire("one")).await;
    file.sql()
        .execute("UPDATE locks SET started = 1, pid_ns = pid_ns + 1", [])
        .unwrap();
    assert!(is_held(&node.call(&a, acquire("two")).await));
    clock.set(secs(1029));
    assert!(is_held(&node.call(&a, acquire("two")).await));
    clock.set(secs(1030));
    assert_eq!(node.call(&a, acquire("two")).await, granted(2));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn whoever_extends_a_lock_is_its_holder_from_then_on() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let _ = node.call(&a, acquire("one")).await;
    // Another process, which we cannot judge, had it until now.
    file.sql()
        .execute("UPDATE locks SET pid = 1, pid_ns = pid_ns + 1", [])
        .unwrap();
    let extend = Command::Extend {
        value: AttemptValue::reported("one"),
        ttl: Ttl::new(secs(30)).unwrap(),
        token: FencingToken::saturating(1),
        entries: NonZeroU32::MIN,
        repair: Repair::Always,
    };
    assert_eq!(node.call(&a, extend).await, Ok(Reply::Extended));
    let pid: u32 = file
        .sql()
        .query_row("SELECT pid FROM locks", [], |row| row.get(0))
        .unwrap();
    assert_eq!(pid, std::process::id());
    let _ = node.call(&a, release("one")).await;
    let pid: Option<u32> = file
        .sql()
        .query_row("SELECT pid FROM locks", [], |row| row.get(0))
        .unwrap();
    assert_eq!(pid, None, "a free lock has no holder");
}

#[tokio::test]
async fn names_that_nobody_needs_are_swept_out() {
    let (file, clock) = (File::new(), HandClock::at(secs(1000)));
    let node = file.node(&clock);
    for i in 0..100 {
        let _ = node.call(&name(&format!("old-{i}")), acquire("one")).await;
    }
    assert_eq!(file.names(), 100);
    clock.set(secs(1000 + 30) + REGISTER_RETENTION - secs(1));
    let kept = name("z-kept");
    for i in 0..100 {
        let _ = node.call(&kept, acquire(&format!("{i}"))).await;
        let _ = node.call(&kept, release(&format!("{i}"))).await;
    }
    assert_eq!(file.names(), 101, "their time was not up");
    clock.set(secs(1000 + 30) + REGISTER_RETENTION);
    for i in 0..100 {
        let _ = node.call(&kept, acquire(&format!("{i}"))).await;
        let _ = node.call(&kept, release(&format!("{i}"))).await;
    }
    assert_eq!(file.names(), 1);
}

#[tokio::test]
async fn names_of_an_earlier_boot_are_swept_out_once_this_one_is_old_enough() {
    let (file, clock) = (File::new(), HandClock::at(secs(1000)));
    let node = file.node(&clock);
    for i in 0..20 {
        let _ = node.call(&name(&format!("old-{i}")), acquire("one")).await;
    }
    file.sql()
        .execute("UPDATE locks SET boot = 'another'", [])
        .unwrap();
    let kept = name("z-kept");
    for (now, names) in [(REGISTER_RETENTION - secs(1), 21), (REGISTER_RETENTION, 1)] {
        clock.set(now);
        for i in 0..40 {
            let _ = node.call(&kept, acquire(&format!("{i}"))).await;
            let _ = node.call(&kept, release(&format!("{i}"))).await;
        }
        assert_eq!(file.names(), names);
    }
}

#[tokio::test]
async fn a_refused_command_writes_nothing() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let _ = node.call(&a, acquire("one")).await;
    let sql = file.sql();
    let version = || -> u32 {
        sql.query_row("PRAGMA data_version", [], |row| row.get(0))
            .unwrap()
    };
    let before = version();
    assert!(is_held(&node.call(&a, acquire("two")).await));
    let _ = node.call(&a, release("two")).await;
    let _ = node.call(&name("never-used"), release("two")).await;
    let _ = node.call(&name("never-used"), Command::Inspect).await;
    assert_eq!(version(), before);
    assert_eq!(file.names(), 1);
    let _ = node.call(&a, release("one")).await;
    assert_ne!(version(), before);
}

#[tokio::test]
async fn a_panic_in_the_thread_is_an_error_and_the_node_goes_on() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    clock.panics.store(true, Ordering::Relaxed);
    let error = node.call(&a, acquire("one")).await.unwrap_err();
    assert_eq!(
        error,
        NodeError::Store("panicked: no time today".into()),
        "{error}"
    );
    clock.panics.store(false, Ordering::Relaxed);
    assert_eq!(node.call(&a, acquire("two")).await, granted(1));
}

#[tokio::test]
async fn the_thread_ends_with_the_last_clone_and_leaves_only_the_database() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let clone = node.clone();
    let _ = node.call(&a, acquire("one")).await;
    drop(node);
    assert!(is_held(&clone.call(&a, acquire("two")).await));
    drop(clone);
    let end = Instant::now() + secs(10);
    // SQLite deletes its side files when the last connection is closed.
    while std::fs::read_dir(file.0.path()).unwrap().count() > 1 || Arc::strong_count(&clock) > 1 {
        assert!(Instant::now() < end, "the thread goes on");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The file was made again at once, and the lock was given to the next one who asked while its holder
/// relied on it for another 30 seconds.
#[tokio::test]
async fn who_sees_a_deleted_file_does_not_vote_until_its_locks_have_expired() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let (one, two) = (file.node(&clock), file.node(&clock));
    assert_eq!(one.call(&a, acquire("one")).await, granted(1));
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(file.0.path().join(format!("locks.db{suffix}"))).unwrap();
    }
    clock.set(secs(1010));
    for node in [&one, &two] {
        for command in [acquire("two"), Command::Inspect, release("one")] {
            let error = node.call(&a, command).await.unwrap_err().to_string();
            assert!(error.contains("it was deleted or replaced"), "{error}");
            assert!(error.contains("votes again in 20s"), "{error}");
        }
    }
    clock.set(secs(1030));
    assert_eq!(one.call(&a, acquire("two")).await, granted(1));
    assert!(
        is_held(&two.call(&a, acquire("three")).await),
        "both see the same file"
    );
}

#[tokio::test]
async fn a_deleted_file_in_which_nothing_was_held_is_made_again_at_once() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    assert_eq!(node.call(&a, acquire("one")).await, granted(1));
    assert_eq!(node.call(&a, release("one")).await, Ok(Reply::Released));
    for suffix in ["", "-wal", "-shm"] {
        std::fs::remove_file(file.0.path().join(format!("locks.db{suffix}"))).unwrap();
    }
    assert_eq!(node.call(&a, acquire("two")).await, granted(1));
}

/// Nobody else has it open, so nothing can have been missed.
#[tokio::test]
async fn who_is_alone_with_deleted_side_files_goes_on_and_has_lost_nothing() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    assert_eq!(node.call(&a, acquire("one")).await, granted(1));
    for suffixes in [&["-shm"][..], &["-wal"], &["-wal", "-shm"]] {
        for suffix in suffixes {
            std::fs::remove_file(file.0.path().join(format!("locks.db{suffix}"))).unwrap();
        }
        assert!(is_held(&node.call(&a, acquire("two")).await));
        let side_files = std::fs::read_dir(file.0.path()).unwrap().count();
        assert_eq!(side_files, 3, "all are there again");
    }
    assert_eq!(node.call(&a, release("one")).await, Ok(Reply::Released));
}

/// The other node may be in the middle of a transaction. It notices by itself, sooner or later.
#[tokio::test]
async fn who_does_nothing_lets_go_of_deleted_side_files_by_itself() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let (idle, node) = (file.node(&clock), file.node(&clock));
    assert_eq!(idle.call(&a, acquire("one")).await, granted(1));
    std::fs::remove_file(file.0.path().join("locks.db-shm")).unwrap();
    let end = Instant::now() + secs(20);
    let reply = loop {
        match node.call(&a, acquire("two")).await {
            Err(error) => assert!(error.to_string().contains("deleted while"), "{error}"),
            reply => break reply,
        }
        assert!(Instant::now() < end, "the other has it open still");
    };
    assert!(is_held(&reply), "{reply:?}");
    assert_eq!(idle.call(&a, release("one")).await, Ok(Reply::Released));
}

#[tokio::test]
async fn a_damaged_row_is_an_error_of_its_own_lock_only() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let _ = node.call(&a, acquire("one")).await;
    file.sql()
        .execute("UPDATE locks SET state = '{'", [])
        .unwrap();
    for command in [acquire("two"), Command::Inspect] {
        let error = node.call(&a, command).await.unwrap_err().to_string();
        assert!(error.contains("\"a\" is corrupt"), "{error}");
    }
    for i in 0..40 {
        let fine = name(&format!("b-{i}"));
        assert_eq!(node.call(&fine, acquire("two")).await, granted(1));
    }
}

#[tokio::test]
async fn a_full_disk_is_an_error_that_says_so_and_passes() {
    let (file, clock) = (File::new(), HandClock::at(secs(1000)));
    let mut store = file.store(clock);
    store.limit_pages(4);
    let full = (0..1000).find_map(|i| {
        let long = name(&format!("{i:0>500}"));
        store.apply(&long, &acquire("one"), Bond::OfThisNode).err()
    });
    assert_eq!(
        full.unwrap(),
        NodeError::Unusable("the disk is full; free some space".into())
    );
    store.limit_pages(1000);
    let reply = store.apply(&name("a"), &acquire("one"), Bond::OfThisNode);
    assert_eq!(reply, granted(1));
}

#[tokio::test]
async fn a_file_that_another_process_keeps_to_itself_is_busy_after_a_while() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let _ = node.call(&a, acquire("one")).await;
    let blocker = file.sql();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let looked = node.call(&a, Command::Inspect).await;
    assert!(looked.is_ok(), "a look does not wait: {looked:?}");
    let begun = Instant::now();
    let error = node.call(&a, acquire("two")).await.unwrap_err().to_string();
    assert!(error.contains("busy: another process"), "{error}");
    let took = begun.elapsed();
    assert!((busy::LIMIT..2 * busy::LIMIT).contains(&took), "{took:?}");
    blocker.execute_batch("COMMIT").unwrap();
    assert!(is_held(&node.call(&a, acquire("two")).await));
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_as_it_is() {
    let file = File::new();
    std::fs::write(
        file.path(),
        "#!/bin/sh\necho this is not a database at all\n",
    )
    .unwrap();
    let why = file.why();
    assert!(why.contains("not a SQLite database"), "{why}");
    std::fs::remove_file(file.path()).unwrap();

    file.sql().execute_batch("CREATE TABLE t (x)").unwrap();
    let before = std::fs::read(file.path()).unwrap();
    let why = file.why();
    assert!(why.contains("another program's SQLite database"), "{why}");
    assert_eq!(std::fs::read(file.path()).unwrap(), before);
    std::fs::remove_file(file.path()).unwrap();

    file.sql()
        .execute_batch("PRAGMA application_id = 4711")
        .unwrap();
    let why = file.why();
    assert!(why.contains("another program's SQLite database"), "{why}");
}

#[test]
fn a_file_of_a_newer_version_is_refused() {
    let (file, clock) = (File::new(), HandClock::at(secs(1000)));
    drop(file.node(&clock));
    file.sql().execute_batch("PRAGMA user_version = 2").unwrap();
    let why = file.why();
    assert!(why.contains("created by a newer fencepost"), "{why}");
}

#[test]
fn a_damaged_file_is_refused() {
    let (file, clock) = (File::new(), HandClock::at(secs(1000)));
    drop(file.node(&clock));
    while Arc::strong_count(&clock) > 1 {
        std::thread::yield_now();
    }
    let sql = file.sql();
    sql.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    drop(sql);
    let mut bytes = std::fs::read(file.path()).unwrap();
    bytes[100..110].fill(0xff);
    std::fs::write(file.path(), bytes).unwrap();
    let why = file.why();
    assert!(why.contains("it is corrupt"), "{why}");
}

#[test]
fn a_directory_and_a_path_through_a_file_are_refused() {
    let file = File::new();
    std::fs::create_dir(file.path()).unwrap();
    let why = file.why();
    assert!(why.contains("it is a directory"), "{why}");
    std::fs::remove_dir(file.path()).unwrap();

    std::fs::write(file.path(), "").unwrap();
    let below = file.path().join("locks.db");
    let why = SqliteNode::open(&below, Arc::new(SystemClock))
        .err()
        .unwrap();
    assert!(why.to_string().contains("cannot stat"), "{why}");
}

#[test]
fn an_empty_file_is_taken_and_missing_directories_are_made() {
    let file = File::new();
    std::fs::write(file.path(), "").unwrap();
    assert!(SqliteNode::open(file.path(), Arc::new(SystemClock)).is_ok());
    let deep = file.0.path().join("a/b c/ü/locks.db");
    let node = SqliteNode::open(&deep, Arc::new(SystemClock)).unwrap();
    assert!(deep.is_file());
    assert_eq!(node.address(), format!("file:{}", deep.display()));
}

#[test]
fn a_row_can_be_read_with_the_sqlite3_shell() {
    let (file, clock) = (File::new(), HandClock::at(secs(1000)));
    let mut store = file.store(clock);
    store
        .apply(&name("a"), &acquire("random:web-3"), Bond::OfThisNode)
        .unwrap();
    let holder: String = file
        .sql()
        .query_row(
            "SELECT state ->> '$.holder.value' FROM locks WHERE name = ?1",
            params!["a"],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(holder, "random:web-3");
}

#[tokio::test]
async fn two_nodes_in_one_process_share_their_locks() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let (one, two) = (file.node(&clock), file.node(&clock));
    assert_eq!(one.call(&a, acquire("one")).await, granted(1));
    assert!(is_held(&two.call(&a, acquire("two")).await));
    drop(one);
    assert!(
        is_held(&two.call(&a, acquire("two")).await),
        "the process is the holder, not the node"
    );
    assert_eq!(two.call(&a, release("one")).await, Ok(Reply::Released));
    assert_eq!(two.call(&a, acquire("two")).await, granted(2));
}

/// A queue that let calls wait for room hung here: the calls at its head had been promised the
/// room, and were not polled.
#[tokio::test]
async fn ten_thousand_commands_that_wait_at_once_keep_their_order_whatever_is_awaited_first() {
    let (file, clock, a) = (File::new(), HandClock::at(secs(1000)), name("a"));
    let node = file.node(&clock);
    let mut calls: Vec<_> = (0..5000)
        .flat_map(|i| [acquire(&format!("{i}")), release(&format!("{i}"))])
        .map(|command| node.call(&a, command))
        .collect();
    let mut begin = std::task::Context::from_waker(std::task::Waker::noop());
    let begun: Vec<_> = calls
        .iter_mut()
        .map(|call| call.as_mut().poll(&mut begin))
        .collect();
    let mut replies = Vec::new();
    for (begun, call) in begun.into_iter().zip(calls).rev() {
        replies.push(match begun {
            std::task::Poll::Ready(reply) => reply,
            std::task::Poll::Pending => call.await,
        });
    }
    for (i, pair) in replies.rchunks(2).enumerate() {
        assert_eq!(pair, [Ok(Reply::Released), granted(i as u64 + 1)]);
    }
}

#[tokio::test]
async fn a_call_that_was_given_up_takes_no_lock_but_still_gives_one_back() {
    let (file, clock) = (File::new(), HandClock::at(secs(1000)));
    let (a, b) = (name("a"), name("b"));
    let node = file.node(&clock);
    assert_eq!(node.call(&a, acquire("one")).await, granted(1));
    // Keeps the thread from its queue until the calls have been given up.
    let blocker = file.sql();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut first = node.call(&b, release("nobody"));
    let mut given_up = [node.call(&b, acquire("two")), node.call(&a, release("one"))];
    let mut begin = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(first.as_mut().poll(&mut begin).is_pending());
    for call in &mut given_up {
        assert!(call.as_mut().poll(&mut begin).is_pending());
    }
    drop(given_up);
    blocker.execute_batch("COMMIT").unwrap();
    assert_eq!(first.await, Ok(Reply::NotHeld(None)));
    assert_eq!(node.call(&b, acquire("three")).await, granted(1));
    assert_eq!(node.call(&a, acquire("three")).await, granted(2));
}
