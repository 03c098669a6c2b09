//! `fencepost::blocking` on all three engines, by plain threads.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fencepost::internals::memory::MemoryNode;
use fencepost::{Builder, Client, Error, ErrorKind, Lease, LossReason, blocking};
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
        self.builder().blocking().expect("a client")
    }

    /// Somebody else can have the lock long before its TTL is over.
    fn is_free_at_once(&self, name: &str) {
        let locks = self.client();
        let lock = locks.block(locks.lock(name).ttl(LONG).timeout(AT_ONCE));
        drop(lock.expect("it is free"));
    }

    fn is_free_now(&self, name: &str) -> bool {
        let locks = self.client();
        locks.block(locks.try_lock(name).ttl(LONG)).is_ok()
    }
}

/// Its time was over. On a machine so busy that we were told late, that looks like a suspension.
fn ran_out(why: &LossReason) -> bool {
    matches!(why, LossReason::Expired | LossReason::Suspended)
}

fn no_quorum(why: &LossReason) -> bool {
    matches!(why, LossReason::NoQuorum | LossReason::Suspended)
}

/// Runs a body that does not await under the lock.
fn with_lock<T>(locks: &Client, ttl: Duration, body: impl FnOnce(&Lease) -> T) -> Result<T, Error> {
    let request = locks.lock("job").ttl(ttl);
    locks.block(request.run(async |lease| body(lease)))
}

/// Waits for the loss of a lease, but no longer than that.
fn wait_lost(locks: &Client, lease: &Lease, at_most: Duration) -> Option<LossReason> {
    let lost = async { Ok(tokio::time::timeout(at_most, lease.lost()).await.ok()) };
    locks.block(lost).expect("a plain thread")
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
                        with_lock(&locks, LONG, count).expect("a turn");
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
        let body = || with_lock(&locks, LONG, |_| panic!("as this test wants"));
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
        assert!(with_lock(&locks, LONG, body).unwrap().is_err());
        assert!(engine.is_free_now("job"), "given back before it returns");
    }
}

#[test]
fn a_body_that_sleeps_past_the_ttl_keeps_the_lock_by_renewal() {
    for engine in Engine::all() {
        let (locks, others) = (engine.client(), engine.client());
        let lease = locks.block(locks.lock("job").ttl(RENEWED)).unwrap();
        let (token, watch) = (lease.token(), lease.watch());
        let end = Instant::now() + RENEWED * 3 / 2;
        while Instant::now() < end {
            thread::sleep(RENEWED / 20);
            assert!(lease.is_valid() && watch.is_valid());
            let busy = others.block(others.try_lock("job").ttl(SHORT)).unwrap_err();
            assert!(busy.is_held(), "{busy}");
        }
        assert_eq!((lease.loss(), lease.token()), (None, token));
        locks.block(lease.release()).unwrap();
        assert!(engine.is_free_now("job"));
    }
}

#[test]
fn a_body_that_sleeps_past_the_ttl_without_renewal_is_told_and_so_is_the_caller() {
    for engine in Engine::all() {
        let locks = engine.client();
        let request = locks.lock("job").ttl(SHORT).renew(false);
        let outcome = locks.block(request.run(async |lease| {
            let watch = lease.watch();
            assert!(lease.is_valid() && watch.is_valid());
            thread::sleep(SHORT + SHORT / 2);
            assert!(!lease.is_valid() && !watch.is_valid());
            assert!(lease.loss().is_some_and(|why| ran_out(&why)));
            assert!(lease.extend().await.unwrap_err().is_lost());
        }));
        let error = outcome.unwrap_err();
        assert!(error.loss().is_some_and(ran_out), "{error}");
        assert_eq!(error.name(), Some("job"));
        engine.is_free_at_once("job");
    }
}

#[test]
fn a_lease_that_is_dropped_gives_the_lock_back() {
    for engine in Engine::all() {
        let locks = engine.client();
        drop(locks.block(locks.try_lock("job").ttl(LONG)).unwrap());
        engine.is_free_at_once("job");
        drop(locks.block(locks.lock("job").ttl(LONG)).unwrap());
        engine.is_free_at_once("job");
    }
}

#[test]
fn a_lease_that_is_dropped_just_before_the_last_client_gives_the_lock_back() {
    for engine in Engine::all() {
        for _ in 0..20 {
            let locks = engine.client();
            let lease = locks.block(locks.lock("job").ttl(LONG)).unwrap();
            drop(lease);
            drop(locks);
            engine.is_free_at_once("job");
            // And the other way round.
            let locks = engine.client();
            let lease = locks.block(locks.lock("job").ttl(LONG)).unwrap();
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
        let locks = blocking::connect(server.url()).unwrap();
        let lease = locks.block(locks.lock("job").ttl(LONG)).unwrap();
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
    let locks = patient.blocking().unwrap();
    let lease = locks.block(locks.lock("job").ttl(LONG)).unwrap();
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
            let ending = self.locks.block(self.locks.try_lock("another"));
            assert_eq!(ending.unwrap_err().kind(), ErrorKind::NoThread);
        }
    }
    thread_local!(static KEPT: RefCell<Option<Last>> = const { RefCell::new(None) });

    for engine in Engine::all() {
        let locks = engine.client();
        thread::spawn(move || {
            // Before tokio's own, so that its destructor runs after it.
            KEPT.with(|kept| assert!(kept.borrow().is_none()));
            let lease = locks.block(locks.lock("job").ttl(LONG)).unwrap();
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

/// Every kind of request and question.
#[test]
fn whatever_can_be_awaited_can_be_blocked_on() {
    for engine in Engine::all() {
        let (locks, others) = (engine.client(), engine.client());
        let lease = locks.block(locks.lock("job").ttl(RENEWED)).unwrap();
        for _ in 0..300 {
            assert!(others.block(others.try_lock("job")).unwrap_err().is_held());
        }
        let waited = others.block(others.lock("job").timeout(SHORT));
        assert!(waited.unwrap_err().is_timeout());
        assert_eq!(wait_lost(&locks, &lease, SHORT), None);
        locks.block(lease.extend()).unwrap();
        assert!(locks.block(locks.status("job")).unwrap().holder.is_some());
        let stolen = others.block(others.steal("job", LONG)).unwrap();
        assert!(stolen.from.is_some());
        let lost = wait_lost(&locks, &lease, AT_ONCE);
        assert!(
            matches!(lost, Some(LossReason::Stolen { .. })),
            "the next renewal tells it: {lost:?}"
        );
        others.block(stolen.lease.release()).unwrap();
        assert_eq!(with_lock(&locks, LONG, |_| 7), Ok(7));

        let shelf = locks.read_write("shelf");
        let writer = locks.block(shelf.write()).unwrap();
        let reader = locks.block(writer.downgrade()).unwrap();
        assert!(locks.block(shelf.try_read()).is_ok());
        locks.block(reader.release()).unwrap();
        let pool = locks.semaphore("pool", 1);
        let permit = locks.block(pool.acquire()).unwrap();
        assert!(locks.block(pool.try_acquire()).unwrap_err().is_held());
        locks.block(permit.release()).unwrap();
        let all = locks.block(locks.lock_all(["a", "b"])).unwrap();
        locks.block(all.release()).unwrap();
        let ledger = locks.reentrant("ledger");
        let outer = locks.block(ledger.lock()).unwrap();
        let inner = locks.block(ledger.try_lock()).unwrap();
        assert_eq!((outer.token(), 2), (inner.token(), inner.entries()));
        let election = locks.election("chief");
        let leadership = locks.block(election.campaign("me")).unwrap();
        let leader = locks.block(election.leader()).unwrap().unwrap();
        assert_eq!(leader.token, leadership.token());
        locks.block(leadership.resign()).unwrap();
        let latch = locks.latch("ready", 1);
        locks.block(latch.count_down()).unwrap();
        locks.block(latch.wait()).unwrap();
        drop((inner, outer, others));
        let shutdown = async {
            locks.clone().shutdown().await;
            Ok(())
        };
        locks.block(shutdown).unwrap();
    }
}

#[test]
fn on_a_thread_of_a_runtime_it_is_an_error_and_no_hang() {
    fn is_refused(locks: &Client) {
        let error = locks.block(locks.lock("job")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoThread, "{error}");
        assert!(error.to_string().contains("await"), "{error}");
    }
    let locks = blocking::memory().unwrap();
    let single = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    single.block_on(async { is_refused(&locks) });
    let several = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let task = several.spawn({
        let locks = locks.clone();
        async move { is_refused(&locks) }
    });
    several.block_on(task).unwrap();
    // A body that is blocked on is such a place too: there it can await.
    let nested = locks.block(locks.lock("outer").run(async |_| is_refused(&locks)));
    nested.unwrap();
    assert!(locks.block(locks.lock("job")).is_ok(), "elsewhere it works");

    // Nor can one block on a client whose runtime might be this very thread.
    let single = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let of_runtime = single.block_on(async { Client::memory().unwrap() });
    is_refused(&of_runtime);
}

#[test]
fn a_wait_ends_when_its_time_is_over_and_when_the_lock_is_free() {
    for engine in Engine::all() {
        let (locks, others) = (engine.client(), engine.client());
        let lease = locks.block(locks.try_lock("job").ttl(LONG)).unwrap();
        let start = Instant::now();
        let waited = others.block(others.lock("job").timeout(SHORT));
        assert!(waited.unwrap_err().is_timeout());
        assert!(start.elapsed() >= SHORT / 2 && start.elapsed() < AT_ONCE);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| others.block(others.lock("job").timeout(LONG)));
            eventually("it waits", AT_ONCE, || {
                let seen = locks.block(locks.status("job"));
                seen.is_ok_and(|seen| seen.waiting == 1)
            });
            let token = lease.token();
            locks.block(lease.release()).unwrap();
            let start = Instant::now();
            let next = waiter.join().unwrap().unwrap();
            assert!(next.token() > token && start.elapsed() < AT_ONCE);
        });
    }
}

#[test]
fn many_threads_may_wait_for_one_loss() {
    let locks = blocking::memory().unwrap();
    let request = locks.try_lock("job").ttl(SHORT).renew(false);
    let lease = locks.block(request).unwrap();
    assert_eq!(wait_lost(&locks, &lease, Duration::ZERO), None);
    let valid_until = Instant::now() + lease.remaining();
    thread::scope(|scope| {
        let waiters = [(); 8].map(|()| scope.spawn(|| wait_lost(&locks, &lease, LONG)));
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
    let locks = blocking::connect(server.url()).unwrap();
    let lease = locks.block(locks.lock("job").ttl(2 * RENEWED)).unwrap();
    server.kill();
    let error = locks.block(locks.try_lock("another")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    let error = locks.block(lease.extend()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    assert!(lease.is_valid(), "a failed extension takes nothing away");
    let why = wait_lost(&locks, &lease, AT_ONCE);
    assert!(why.as_ref().is_some_and(no_quorum), "{why:?}");
    let error = locks.block(lease.release()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    let error = blocking::connect(server.url()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

/// Its release finds nobody to ask, which would not be a loss by itself.
#[test]
fn a_body_that_outlives_its_lock_while_the_server_is_away_has_lost_it() {
    let mut server = RedisServer::start();
    let locks = blocking::connect(server.url()).unwrap();
    let outcome = with_lock(&locks, SHORT, |lease| {
        server.kill();
        eventually("it is over", AT_ONCE, || !lease.is_valid());
    });
    let error = outcome.unwrap_err();
    assert!(error.loss().is_some_and(no_quorum), "{error}");
}

#[test]
fn what_cannot_be_used_is_told_by_the_same_errors() {
    let error = blocking::connect("nonsense:").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
    let directory = tempfile::tempdir().unwrap();
    let error = Client::builder().file(directory.path()).blocking();
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Store);
    let locks = blocking::memory().unwrap();
    let error = locks.block(locks.lock("")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidName, "{error}");
    let error = locks.block(locks.try_lock("job").ttl(Duration::ZERO));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidTtl);
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
    let locks = Client::builder().file(&path).blocking().unwrap();
    for mode in ["return", "leak"] {
        let said = run(mode, &format!("file:{}", path.display()));
        assert_eq!(said, "holding\n");
        let free = locks.block(locks.try_lock("job").ttl(LONG));
        assert!(free.is_ok(), "{mode}: {free:?}");
        locks.block(free.unwrap().release()).unwrap();
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
