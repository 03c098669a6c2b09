//! Whatever becomes of a body, the lock is free afterwards: on every engine, and far sooner than
//! its TTL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use fencepost::{Client, Error, Lease, LockOptions, LossReason};
use fencepost_tests::Cluster;
use tempfile::TempDir;

/// Far longer than any of these tests takes: what is free before was released.
const LONG: Duration = Duration::from_secs(60);
/// Short, where the end of a TTL is what is waited for.
const SHORT: Duration = Duration::from_millis(500);
/// So long that it is renewed in time on a busy machine too.
const RENEWED: Duration = Duration::from_millis(1500);
/// How soon a lock is free again.
const SOON: Duration = Duration::from_secs(10);

/// Every engine, and what has to live as long as its client.
struct Stores {
    all: Vec<(&'static str, Client)>,
    _servers: [Cluster; 2],
    _dir: TempDir,
}

impl Stores {
    async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let servers = [Cluster::start(1), Cluster::start(3)];
        let file = Client::builder()
            .file(dir.path().join("locks.db"))
            .build()
            .unwrap();
        let all = vec![
            ("memory", Client::memory().unwrap()),
            ("file", file),
            ("one Redis", servers[0].client().await),
            ("three Redis", servers[1].client().await),
        ];
        Self {
            all,
            _servers: servers,
            _dir: dir,
        }
    }
}

fn long() -> LockOptions {
    LockOptions::new().ttl(LONG)
}

async fn is_free_soon(engine: &str, locks: &Client) {
    let start = Instant::now();
    let next = locks.lock("job").ttl(LONG).timeout(SOON).await;
    let next = next.unwrap_or_else(|error| panic!("{engine}: {error}"));
    assert!(start.elapsed() < SOON, "{engine}");
    next.release().await.unwrap();
}

/// Says whether it was dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_body_that_returns_frees_the_lock_before_run_returns() {
    let stores = Stores::open().await;
    for (engine, locks) in &stores.all {
        let token = locks
            .lock("job")
            .options(long())
            .run(async |lease| lease.token());
        let token = token.await.unwrap();
        let next = locks.try_lock("job").ttl(LONG).renew(false).await;
        let next = next.unwrap_or_else(|error| panic!("{engine}: {error}"));
        assert!(next.token() > token, "{engine}");
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_body_that_fails_early_frees_the_lock_before_run_returns() {
    async fn fallible(lease: &Lease) -> Result<u64, String> {
        if lease.is_valid() {
            Err("out of paper".to_owned())?;
        }
        Ok(1)
    }
    let stores = Stores::open().await;
    for (engine, locks) in &stores.all {
        let outcome = locks
            .lock("job")
            .options(long())
            .run(fallible)
            .await
            .unwrap();
        assert_eq!(outcome, Err("out of paper".to_owned()), "{engine}");
        let next = locks.try_lock("job").ttl(LONG).renew(false).await;
        drop(next.unwrap_or_else(|error| panic!("{engine}: {error}")));
    }
}

#[tokio::test]
async fn a_body_that_panics_frees_the_lock_and_the_panic_goes_on() {
    let stores = Stores::open().await;
    for (engine, locks) in &stores.all {
        let panic = tokio::spawn({
            let locks = locks.clone();
            async move {
                let body = async |_: &Lease| -> u64 {
                    tokio::task::yield_now().await;
                    panic!("as planned")
                };
                locks.lock("job").options(long()).run(body).await
            }
        });
        let panic = panic.await.unwrap_err();
        assert!(panic.is_panic(), "{engine}");
        is_free_soon(engine, locks).await;
    }
}

#[tokio::test]
async fn a_run_dropped_at_any_await_frees_the_lock() {
    let stores = Stores::open().await;
    for (engine, locks) in &stores.all {
        let mut dropped_inside = 0;
        // From before the first command is sent until after the body has begun.
        for polls in 0..60 {
            let began = AtomicBool::new(false);
            {
                let mut scope = Box::pin(locks.lock("job").options(long()).run(async |_| {
                    began.store(true, Ordering::SeqCst);
                    loop {
                        tokio::task::yield_now().await;
                    }
                }));
                let mut left = polls;
                std::future::poll_fn(|cx| {
                    if left == 0 {
                        return Poll::Ready(());
                    }
                    left -= 1;
                    let never: Poll<Result<(), Error>> = scope.as_mut().poll(cx);
                    assert!(never.is_pending());
                    Poll::Pending
                })
                .await;
            }
            dropped_inside += usize::from(began.load(Ordering::SeqCst));
            is_free_soon(engine, locks).await;
        }
        assert!(
            (1..60).contains(&dropped_inside),
            "{engine}: {dropped_inside}"
        );
    }
}

#[tokio::test]
async fn a_body_may_sleep_past_the_ttl_while_the_lock_is_renewed() {
    let stores = Stores::open().await;
    for (engine, locks) in &stores.all {
        let options = LockOptions::new().ttl(RENEWED);
        let kept = locks.lock("job").options(options).run(async |lease| {
            tokio::time::sleep(RENEWED * 4 / 3).await;
            lease.is_valid() && locks.try_lock("job").ttl(LONG).renew(false).await.is_err()
        });
        assert!(kept.await.unwrap(), "{engine}");
        is_free_soon(engine, locks).await;
    }
}

#[tokio::test]
async fn a_body_that_sleeps_past_the_ttl_of_a_lock_without_renewal_is_dropped() {
    let stores = Stores::open().await;
    for (engine, locks) in &stores.all {
        let options = LockOptions::new().ttl(SHORT).renew(false);
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = Dropped(dropped.clone());
        let start = Instant::now();
        let outcome = locks.lock("job").options(options).run(async move |_| {
            let _flag = flag;
            tokio::time::sleep(LONG).await;
        });
        let error = outcome.await.unwrap_err();
        assert_eq!(error.loss(), Some(&LossReason::Expired), "{engine}");
        assert!(
            start.elapsed() >= SHORT / 2,
            "{engine}: not before its time"
        );
        assert!(dropped.load(Ordering::SeqCst), "{engine}: the body is gone");
        is_free_soon(engine, locks).await;
    }
}

#[tokio::test]
async fn a_body_is_dropped_when_somebody_else_takes_the_lock() {
    let stores = Stores::open().await;
    for (engine, locks) in &stores.all {
        let dropped = Arc::new(AtomicBool::new(false));
        let flag = Dropped(dropped.clone());
        let options = LockOptions::new().ttl(RENEWED);
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (outcome, thief) = tokio::join!(
            locks.lock("job").options(options).run(async move |_| {
                let _flag = flag;
                begun.send(()).unwrap();
                tokio::time::sleep(LONG).await;
            }),
            async {
                has_begun.await.unwrap();
                locks.steal("job", LONG).await.unwrap().lease
            }
        );
        let error = outcome.unwrap_err();
        let is_stolen = matches!(error.loss(), Some(LossReason::Stolen { .. }));
        assert!(is_stolen, "{engine}: {error}");
        assert!(dropped.load(Ordering::SeqCst), "{engine}");
        assert!(thief.is_valid(), "{engine}: the thief's is not released");
        thief.release().await.unwrap();
    }
}

/// Of every kind of request.
#[tokio::test]
async fn a_body_runs_under_whatever_can_be_asked_for() {
    let stores = Stores::open().await;
    for (engine, locks) in &stores.all {
        let shelf = locks.read_write("shelf");
        let read = shelf.read().run(async |lease| lease.token()).await.unwrap();
        let written = shelf.try_write().run(async |lease| lease.token()).await;
        assert!(written.unwrap() > read, "{engine}: it was released");
        let pool = locks.semaphore("pool", 1);
        let slot = pool.acquire().run(async |permit| permit.slot()).await;
        assert_eq!(slot.unwrap(), 0, "{engine}");
        assert!(
            pool.try_acquire().await.is_ok(),
            "{engine}: it was released"
        );
        let both = locks.lock_all(["a", "b"]);
        let both = both.run(async |leases| leases.names().count()).await;
        assert_eq!(both.unwrap(), 2, "{engine}");
        assert!(locks.try_lock_all(["a", "b"]).await.is_ok(), "{engine}");
        let election = locks.election("chief");
        let led = election.campaign("me");
        let led = led.run(async |lead| lead.proclaimed().to_owned()).await;
        assert_eq!(led.unwrap(), "me", "{engine}");
        assert_eq!(election.leader().await.unwrap(), None, "{engine}");
        let ledger = locks.reentrant("ledger");
        let again = ledger.lock().run(async |outer| {
            let inner = ledger.try_lock().await.unwrap();
            (inner.token() == outer.token(), inner.entries())
        });
        assert_eq!(again.await.unwrap(), (true, 2), "{engine}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_can_be_spawned_with_a_body_that_awaits_and_borrows_the_lease() {
    async fn charge(lease: &Lease, amount: &str) -> String {
        tokio::task::yield_now().await;
        format!("{amount} with {}", lease.token())
    }
    let locks = Client::memory().unwrap();
    let amount = "42".to_owned();
    let task = tokio::spawn({
        let locks = locks.clone();
        async move {
            locks
                .lock("job")
                .run(async |lease| {
                    let first = charge(lease, &amount).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    (first, lease.is_valid())
                })
                .await
        }
    });
    let (charged, valid) = task.await.unwrap().unwrap();
    assert!(charged.starts_with("42 with ") && valid);
    /// As programs have it: the client in a struct, the scope in a method.
    struct App {
        locks: Client,
        amount: String,
    }
    impl App {
        async fn pay(&self, lease: &Lease) -> Result<String, Error> {
            lease.extend().await?;
            Ok(charge(lease, &self.amount).await)
        }
        async fn run(&self) -> Result<String, Error> {
            let options = LockOptions::new();
            let body = async |lease: &Lease| self.pay(lease).await;
            self.locks.lock("job").options(options).run(body).await?
        }
    }
    let app = Arc::new(App {
        locks: Client::memory().unwrap(),
        amount: "9".to_owned(),
    });
    let task = tokio::spawn(async move { app.run().await });
    assert!(task.await.unwrap().unwrap().starts_with("9 with "));
}
