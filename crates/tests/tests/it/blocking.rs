//! `fencepost::blocking` on all three engines, by plain threads.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fencepost::blocking::{Client, Lease};
use fencepost::store::memory::MemoryNode;
use fencepost::{Builder, Error, LockOptions, LossReason};
use fencepost_tests::{RedisServer, eventually};
use tempfile::TempDir;

const THREADS: &str = env!("CARGO_BIN_EXE_threads");

/// No test waits for a TTL of this length: what is free before it ends was given back.
const LONG: Duration = Duration::from_secs(60);
/// One that a test can outlive.
const SHORT: Duration = Duration::from_millis(500);
/// One that is renewed in time on a busy machine too.
const RENEWED: Duration = Duration::from_millis(1500);
/// What "at once" may take on a machine that is busy with other things.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A store, and as many clients of it as a test likes.
enum Engine {
    Memory(MemoryNode),
    File(TempDir),
    Redis(RedisServer),
}

impl Engine {
    fn all() -> [Self; 3] {
        let dir = tempfile::tempdir().expect("a temporary directory");
        [
            Self::Memory(MemoryNode::new()),
            Self::File(dir),
            Self::Redis(RedisServer::start()),
        ]
    }

    fn builder(&self) -> Builder {
        match self {
            Self::Memory(node) => Client::builder().node(node.clone()),
            Self::File(dir) => Client::builder().file(dir.path().join("locks.db")),
            Self::Redis(server) => Client::builder().url(server.url()),
        }
    }

    fn client(&self) -> Client {
        self.builder().connect_blocking().expect("a client")
    }

    /// Somebody else can have the lock long before its TTL is over.
    fn is_free_at_once(&self, name: &str) {
        let lock = self
            .client()
            .lock(name)
            .ttl(LONG)
            .timeout(AT_ONCE)
            .acquire();
        drop(lock.expect("it is free"));
    }

    fn is_free_now(&self, name: &str) -> bool {
        self.client().try_lock(name, LONG).is_ok()
    }
}

/// Its time was over. On a machine so busy that we were told late, that looks like a suspension.
fn ran_out(why: &LossReason) -> bool {
    matches!(why, LossReason::Expired | LossReason::Suspended)
}

fn no_quorum(why: &LossReason) -> bool {
    matches!(why, LossReason::NoQuorum | LossReason::Suspended)
}

fn long() -> LockOptions {
    LockOptions::new().ttl(LONG)
}

#[test]
fn of_eight_threads_only_one_is_ever_inside() {
    for engine in Engine::all() {
        // Read and written in two steps, so that two threads inside would lose one of their counts.
        let counter = AtomicU64::new(0);
        let one_client = engine.client();
        thread::scope(|scope| {
            for i in 0..8 {
                // Some share a client, and some have one of their own.
                let locks = match i % 2 {
                    0 => one_client.clone(),
                    _ => engine.client(),
                };
                let counter = &counter;
                scope.spawn(move || {
                    for _ in 0..100 {
                        let count = |_: &Lease| {
                            let seen = counter.load(Ordering::Relaxed);
                            thread::yield_now();
                            counter.store(seen + 1, Ordering::Relaxed);
                        };
                        locks.with_lock("counter", long(), count).expect("a turn");
                    }
                });
            }
        });
        assert_eq!(counter.into_inner(), 800);
    }
}

#[test]
fn a_body_that_panics_leaves_the_lock_free() {
    for engine in Engine::all() {
        let locks = engine.client();
        let body = || locks.with_lock("job", long(), |_| panic!("as this test wants"));
        let panicked: Result<Result<(), _>, _> = catch_unwind(AssertUnwindSafe(body));
        assert!(panicked.is_err(), "the panic reaches the caller");
        engine.is_free_at_once("job");
    }
}

#[test]
fn a_body_that_returns_early_leaves_the_lock_free() {
    for engine in Engine::all() {
        let locks = engine.client();
        let body = |_: &Lease| -> Result<(), std::num::ParseIntError> {
            "not a number".parse::<u64>()?;
            unreachable!();
        };
        assert!(locks.with_lock("job", long(), body).unwrap().is_err());
        assert!(engine.is_free_now("job"), "given back before it returns");
    }
}

#[test]
fn a_body_that_sleeps_past_the_ttl_keeps_the_lock_by_renewal() {
    for engine in Engine::all() {
        let (locks, others) = (engine.client(), engine.client());
        let token = locks.with_lock("job", LockOptions::new().ttl(RENEWED), |lease| {
            let (token, stop) = (lease.token(), lease.cancellation());
            let end = Instant::now() + RENEWED * 3 / 2;
            while Instant::now() < end {
                thread::sleep(RENEWED / 20);
                assert!(lease.is_valid() && !stop.is_cancelled());
                let busy = others.try_lock("job", SHORT).unwrap_err();
                assert!(busy.is_held(), "{busy}");
            }
            assert_eq!((lease.loss(), lease.token()), (None, token));
            token
        });
        assert!(token.is_ok(), "{token:?}");
        assert!(engine.is_free_now("job"));
    }
}

#[test]
fn a_body_that_sleeps_past_the_ttl_without_renewal_is_told_and_so_is_the_caller() {
    for engine in Engine::all() {
        let locks = engine.client();
        let options = LockOptions::new().ttl(SHORT).renew(false);
        let outcome = locks.with_lock("job", options, |lease| {
            let stop = lease.cancellation();
            assert!(lease.is_valid() && !stop.is_cancelled());
            thread::sleep(SHORT + SHORT / 2);
            assert!(!lease.is_valid());
            eventually("it is told", AT_ONCE, || stop.is_cancelled());
            assert!(lease.loss().is_some_and(|why| ran_out(&why)));
            assert!(matches!(lease.extend(), Err(Error::Lost { .. })));
        });
        assert!(matches!(
            outcome,
            Err(Error::Lost { name, why }) if name.as_str() == "job" && ran_out(&why)
        ));
        engine.is_free_at_once("job");
    }
}

#[test]
fn a_lease_that_is_dropped_gives_the_lock_back() {
    for engine in Engine::all() {
        let locks = engine.client();
        drop(locks.try_lock("job", LONG).unwrap());
        engine.is_free_at_once("job");
        drop(locks.lock("job").ttl(LONG).acquire().unwrap());
        engine.is_free_at_once("job");
    }
}

#[test]
fn a_lease_that_is_dropped_just_before_the_last_client_gives_the_lock_back() {
    for engine in Engine::all() {
        for _ in 0..20 {
            let locks = engine.client();
            let lease = locks.lock("job").ttl(LONG).acquire().unwrap();
            drop(lease);
            drop(locks);
            engine.is_free_at_once("job");
            // And the other way round.
            let locks = engine.client();
            let lease = locks.lock("job").ttl(LONG).acquire().unwrap();
            drop(locks);
            drop(lease);
            engine.is_free_at_once("job");
        }
    }
}

/// A server that has forgotten the script answers so, and is then sent the script: somebody has to
/// be there still to do it.
#[test]
fn the_background_thread_stays_until_the_last_release_is_answered() {
    let server = RedisServer::start();
    for _ in 0..20 {
        let locks = Client::connect(server.url()).unwrap();
        let lease = locks.lock("job").ttl(LONG).acquire().unwrap();
        server.cli(&["SCRIPT", "FLUSH"]);
        drop(lease);
        drop(locks);
        eventually("the lock is free", AT_ONCE, || {
            server.cli(&["EXISTS", "job"]) == "0"
        });
    }
}

#[test]
fn dropping_waits_for_nothing_even_when_the_server_hangs() {
    let server = RedisServer::start();
    let patient = Client::builder().url(server.url()).node_timeout(LONG);
    let locks = patient.connect_blocking().unwrap();
    let lease = locks.lock("job").ttl(LONG).acquire().unwrap();
    server.freeze();
    let start = Instant::now();
    drop(lease);
    drop(locks);
    // What is on its way is waited for in the background, for two seconds.
    assert!(start.elapsed() < Duration::from_millis(1500));
    server.thaw();
    eventually("the release has arrived", AT_ONCE, || {
        server.cli(&["EXISTS", "job"]) == "0"
    });
}

/// A destructor of a thread runs when much of what belongs to the thread is gone already, tokio's
/// part of it too.
#[test]
fn a_lease_that_is_dropped_while_its_thread_ends_gives_the_lock_back() {
    struct Last {
        _lease: Lease,
        locks: Client,
    }
    impl Drop for Last {
        fn drop(&mut self) {
            let ending = self.locks.try_lock("another", LONG);
            assert!(matches!(ending, Err(Error::NoThread { .. })), "{ending:?}");
        }
    }
    thread_local!(static KEPT: RefCell<Option<Last>> = const { RefCell::new(None) });

    for engine in Engine::all() {
        let locks = engine.client();
        thread::spawn(move || {
            // Before tokio's own, so that its destructor runs after it.
            KEPT.with(|kept| assert!(kept.borrow().is_none()));
            let lease = locks.lock("job").ttl(LONG).acquire().unwrap();
            KEPT.with(|kept| {
                kept.replace(Some(Last {
                    _lease: lease,
                    locks,
                }))
            });
        })
        .join()
        .unwrap();
        engine.is_free_at_once("job");
    }
}

#[test]
fn every_call_works_inside_of_a_tokio_runtime() {
    fn use_everything(engine: &Engine) {
        let (locks, others) = (engine.client(), engine.client());
        let lease = locks.lock("job").ttl(RENEWED).acquire().unwrap();
        // Past the share of time that tokio gives a task, in which every call must still be
        // answered.
        for _ in 0..300 {
            assert!(others.try_lock("job", LONG).unwrap_err().is_held());
        }
        let waited = others.lock("job").timeout(SHORT).acquire();
        assert!(waited.unwrap_err().is_held());
        assert_eq!(lease.wait_lost(SHORT), None);
        lease.extend().unwrap();
        assert!(locks.status("job").unwrap().holder.is_some());
        let stolen = others.steal("job", LONG).unwrap();
        assert!(stolen.from.is_some());
        let lost = lease.wait_lost(AT_ONCE);
        assert!(
            matches!(lost, Some(LossReason::Stolen { .. })),
            "the next renewal tells it: {lost:?}"
        );
        stolen.lease.release().unwrap();
        assert_eq!(locks.with_lock("job", long(), |_| 7), Ok(7));
        drop(others);
        locks.shutdown();
    }
    for engine in Engine::all() {
        let single = tokio::runtime::Builder::new_current_thread().build();
        single.unwrap().block_on(async { use_everything(&engine) });
        let several = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let task = several.spawn(async move { use_everything(&engine) });
        several.block_on(task).unwrap();
    }
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_when_the_lock_is_free() {
    for engine in Engine::all() {
        let (locks, others) = (engine.client(), engine.client());
        let lease = locks.try_lock("job", LONG).unwrap();
        let start = Instant::now();
        let waited = others.lock("job").timeout(SHORT).acquire();
        assert!(waited.unwrap_err().is_held());
        assert!(start.elapsed() >= SHORT / 2 && start.elapsed() < AT_ONCE);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| others.lock("job").timeout(LONG).acquire());
            eventually("it waits", AT_ONCE, || {
                locks.status("job").is_ok_and(|seen| seen.waiting == 1)
            });
            let token = lease.token();
            lease.release().unwrap();
            let start = Instant::now();
            let next = waiter.join().unwrap().unwrap();
            assert!(next.token() > token && start.elapsed() < AT_ONCE);
        });
    }
}

#[test]
fn many_threads_may_wait_for_one_loss() {
    let locks = Client::memory().unwrap();
    let lease = locks.try_lock("job", SHORT).unwrap();
    assert_eq!(lease.wait_lost(Duration::ZERO), None);
    let valid_until = Instant::now() + lease.remaining();
    thread::scope(|scope| {
        let waiters = [(); 8].map(|()| scope.spawn(|| lease.wait_lost(Duration::MAX)));
        for waiter in waiters {
            assert!(waiter.join().unwrap().is_some_and(|why| ran_out(&why)));
        }
        assert!(!lease.is_valid());
    });
    assert!(Instant::now() < valid_until + AT_ONCE);
}

#[test]
fn a_server_that_is_killed_is_told_as_the_documentation_says() {
    let mut server = RedisServer::start();
    let locks = Client::connect(server.url()).unwrap();
    let lease = locks.lock("job").ttl(2 * RENEWED).acquire().unwrap();
    server.kill();
    let error = locks.try_lock("another", LONG).unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    let error = lease.extend().unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    assert!(lease.is_valid(), "a failed extension takes nothing away");
    let why = lease.wait_lost(AT_ONCE);
    assert!(why.as_ref().is_some_and(no_quorum), "{why:?}");
    let error = lease.release().unwrap_err();
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    let error = Client::connect(server.url()).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
}

/// Its release finds nobody to ask, which would not be a loss by itself.
#[test]
fn a_body_that_outlives_its_lock_while_the_server_is_away_has_lost_it() {
    let mut server = RedisServer::start();
    let locks = Client::connect(server.url()).unwrap();
    let outcome = locks.with_lock("job", LockOptions::new().ttl(SHORT), |lease| {
        server.kill();
        lease.wait_lost(AT_ONCE)
    });
    let error = outcome.unwrap_err();
    assert!(
        matches!(&error, Error::Lost { why, .. } if no_quorum(why)),
        "{error}"
    );
}

#[test]
fn what_cannot_be_used_is_told_by_the_same_errors() {
    let error = Client::connect("nonsense:").unwrap_err();
    assert!(matches!(error, Error::InvalidUrl { .. }), "{error}");
    let directory = tempfile::tempdir().unwrap();
    let error = Client::file(directory.path()).unwrap_err();
    assert!(matches!(error, Error::Store { .. }), "{error}");
    let locks = Client::memory().unwrap();
    let error = locks.lock("").acquire().unwrap_err();
    assert!(matches!(error, Error::InvalidName { .. }), "{error}");
    let error = locks.try_lock("job", Duration::ZERO).unwrap_err();
    assert!(matches!(error, Error::InvalidTtl { .. }), "{error}");
}

/// Runs the helper to its end, which must come long before any TTL.
fn run(mode: &str, url: &str) -> String {
    let start = Instant::now();
    let child = Command::new(THREADS)
        .args([mode, url, "job"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let output = child.wait_with_output().expect("our own child");
    assert!(output.status.success(), "{mode}: {}", output.status);
    assert!(start.elapsed() < 2 * AT_ONCE, "{mode}: it left promptly");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_process_that_returns_from_main_with_a_lease_leaves_at_once_and_its_file_lock_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("locks.db");
    let locks = Client::file(&path).unwrap();
    for mode in ["return", "leak"] {
        let said = run(mode, &format!("file:{}", path.display()));
        assert_eq!(said, "holding\n");
        let free = locks.try_lock("job", LONG);
        assert!(free.is_ok(), "{mode}: {free:?}");
        free.unwrap().release().unwrap();
    }
}

#[test]
fn a_client_that_is_shut_down_has_released_when_the_process_ends() {
    let server = RedisServer::start();
    for _ in 0..20 {
        run("shutdown", &server.url());
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

#[test]
fn the_background_thread_lives_as_long_as_a_client_or_a_lease() {
    let server = RedisServer::start();
    let dir = tempfile::tempdir().unwrap();
    let file = format!("file:{}", dir.path().join("locks.db").display());
    // Its last release is never answered, and is waited for no longer than it should be.
    run("farewell", "memory:");
    for url in ["memory:", &file, &server.url()] {
        run("alive", url);
    }
}
