//! An extension that is held up on its way, and arrives behind a longer one, once set the expiry to its own short TTL: a
//! rival was granted the lock while its holder had been promised most of a minute.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::on_redis::{name, open, within};
use fencepost::internals::Node;
use fencepost::internals::redis::RedisNode;
use fencepost::{AttemptValue, FencingToken, NodeError};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, Repair, Reply};
use fencepost_tests::RedisServer;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

/// A proxy that keeps back what a client sends for as long as it is told to.
struct Proxy {
    url: String,
    is_held: watch::Sender<bool>,
    /// How much was kept back.
    kept: watch::Receiver<usize>,
}

impl Proxy {
    async fn before(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let server = format!("127.0.0.1:{}", server.port());
        let (is_held, held) = watch::channel(false);
        let (keeps, kept) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
                });
                let (mut held, keeps) = (held.clone(), keeps.clone());
                tokio::spawn(async move {
                    let mut bytes = vec![0; 1 << 16];
                    while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
                        if *held.borrow() {
                            keeps.send_modify(|kept| *kept += read);
                            held.wait_for(|held| !held).await.unwrap();
                        }
                        if to_server.write_all(&bytes[..read]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { url, is_held, kept }
    }

    async fn has_kept_something(&self) {
        let mut kept = self.kept.clone();
        kept.wait_for(|kept| *kept > 0).await.unwrap();
    }
}

fn ttl(ttl: Duration) -> Ttl {
    Ttl::new(ttl).unwrap()
}

fn acquire(value: &str) -> Command {
    Command::Acquire {
        value: AttemptValue::reported(value),
        ttl: ttl(LONG),
        proposed: FencingToken::new(1).unwrap(),
        turn: Default::default(),
    }
}

fn share(value: &str) -> Command {
    Command::Share {
        value: AttemptValue::reported(value),
        ttl: ttl(LONG),
        proposed: FencingToken::new(1).unwrap(),
        turn: Default::default(),
    }
}

fn extend(value: &str, of: Duration) -> Command {
    Command::Extend {
        value: AttemptValue::reported(value),
        ttl: ttl(of),
        token: FencingToken::new(1).unwrap(),
        entries: NonZeroU32::MIN,
        repair: Repair::UnlessOvertaken,
    }
}

fn extend_shared(value: &str, of: Duration) -> Command {
    Command::ExtendShared {
        value: AttemptValue::reported(value),
        ttl: ttl(of),
        token: FencingToken::new(1).unwrap(),
    }
}

async fn on_all(nodes: &[RedisNode], command: Command) -> Vec<Result<Reply, NodeError>> {
    let job = name("job");
    let calls = nodes.iter().map(|node| node.call(&job, command.clone()));
    within(LATE, join_all(calls)).await
}

/// The lock is held; two of three nodes get its short extension behind its long one. Then a rival asks.
async fn a_late_one_changes_nothing(begin: Command, late: Command, long: Command, rival: Command) {
    let servers = RedisServer::start_many(3);
    let straight: Vec<_> = servers.iter().map(|server| open(&server.url())).collect();
    let mut proxies = Vec::new();
    for server in &servers[1..] {
        proxies.push(Proxy::before(server).await);
    }
    let delayed: Vec<_> = proxies.iter().map(|proxy| open(&proxy.url)).collect();
    for node in straight.iter().chain(&delayed) {
        within(LATE, node.ready()).await;
    }
    on_all(&straight, begin).await;
    for proxy in &proxies {
        proxy.is_held.send_replace(true);
    }
    let late = tokio::spawn(async move { on_all(&delayed, late).await });
    for proxy in &proxies {
        within(LATE, proxy.has_kept_something()).await;
    }
    let kept = on_all(&straight, long).await;
    assert_eq!(kept, vec![Ok(Reply::Extended); 3]);
    for proxy in &proxies {
        proxy.is_held.send_replace(false);
    }
    let came = within(LATE, late).await.unwrap();
    assert_eq!(came, vec![Ok(Reply::Extended); 2], "it did arrive");
    tokio::time::sleep(2 * SHORT).await;
    let rival = on_all(&straight, rival).await;
    let refused = |reply: &Result<Reply, NodeError>| matches!(reply, Ok(Reply::Held(_)));
    assert!(rival.iter().all(refused), "{rival:?}");
    for server in &servers {
        let left: i64 = server.cli(&["PTTL", "job"]).parse().unwrap();
        assert!(left > 20_000, "{left} ms left of {LONG:?}");
    }
}

#[tokio::test]
async fn a_late_extension_never_shortens_a_lock() {
    let (late, long) = (extend("a", SHORT), extend("a", LONG));
    a_late_one_changes_nothing(acquire("a"), late, long, acquire("rival")).await;
}

#[tokio::test]
async fn a_late_extension_never_shortens_a_readers_time() {
    let (late, long) = (extend_shared("a", SHORT), extend_shared("a", LONG));
    a_late_one_changes_nothing(share("a"), late, long, acquire("rival")).await;
}

#[tokio::test]
async fn a_late_extension_never_shortens_a_reentrant_lock() {
    let value = "00000000-0000-8000-8000-000000000001:1";
    let rival = acquire("00000000-0000-8000-8000-000000000002:2");
    let (late, long) = (extend(value, SHORT), extend(value, LONG));
    a_late_one_changes_nothing(acquire(value), late, long, rival).await;
}
