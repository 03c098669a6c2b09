//! The uncontended acquire by plain commands, on real servers: what it costs, what it leaves behind, and what
//! happens where one of the commands is refused or arrives late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fencepost::internals::Node;
use fencepost::internals::clock::{Clock, Moment, SystemClock};
use fencepost::internals::redis::{RedisNode, RedisOptions, Roster};
use fencepost::{AttemptValue, Client, FencingToken, LockName, NodeError, Owner, RestartPolicy};
use fencepost_core::Ttl;
use fencepost_core::lock::{Command, Precedence, Reply};
use fencepost_tests::{Cluster, RedisServer, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::attempt::wall_micros;

const TTL: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_secs(10);
/// How far a clock is from another that was set by hand or by the same source.
const MINUTE: u64 = 60 * 1_000_000;
const DAY: u64 = 24 * 60 * MINUTE;

fn open(url: &str) -> RedisNode {
    open_with(url, RedisOptions::default())
}

fn open_with(url: &str, options: RedisOptions) -> RedisNode {
    RedisNode::open(
        url,
        options,
        &Roster::default(),
        Arc::new(SystemClock),
        &tokio::runtime::Handle::current(),
    )
    .unwrap()
}

fn value(random: u128) -> AttemptValue {
    AttemptValue::labelled(random, &Owner::new("me").unwrap())
}

fn acquire(random: u128, proposed: u64) -> Command {
    Command::Acquire {
        value: value(random),
        ttl: Ttl::new(TTL).unwrap(),
        proposed: FencingToken::new(proposed).unwrap(),
        turn: Precedence::MayPass,
    }
}

fn job() -> LockName {
    LockName::new("job").unwrap()
}

#[tokio::test]
async fn an_uncontended_acquire_runs_no_script_and_leaves_nothing_but_its_register() {
    let server = RedisServer::start();
    if !server.has_plain_commands() {
        return;
    }
    let locks = client_of(&server).await;
    // Retention looks once at the beginning.
    wait_until("retention has looked", SOON, || server.scripts_run() > 0).await;
    let before = server.scripts_run();
    let lease = locks.lock("job").ttl(TTL).await.unwrap();
    assert_eq!(server.scripts_run(), before);
    let stored = server.cli(&["GET", "job"]);
    assert!(stored.contains(&format!(":{}:", lease.token())), "{stored}");
    lease.release().await.unwrap();
    assert_eq!(server.scripts_run(), before + 1, "the release is one");
    assert_eq!(server.cli(&["KEYS", "*"]), "fencepost:fences");
    assert_eq!(server.cli(&["ZCARD", "fencepost:fences"]), "1");
}

#[tokio::test]
async fn a_register_that_is_ahead_costs_rounds_and_never_the_order_of_tokens() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let mut last = FencingToken::ZERO;
    for ahead in [0, 7, 30 * MINUTE, DAY] {
        for (place, server) in cluster.servers.iter().enumerate() {
            let score = wall_micros() + ahead + place as u64;
            let score = score.to_string();
            server.cli(&["ZADD", "fencepost:fences", "GT", &score, "job"]);
        }
        for _ in 0..3 {
            let lease = locks.lock("job").ttl(TTL).timeout(SOON).await.unwrap();
            assert!(lease.token() > last, "{} after {last}", lease.token());
            last = lease.token();
            // A node whose register is above it does not count, and is no harm.
            let score = |server: &RedisServer| server.cli(&["ZSCORE", "fencepost:fences", "job"]);
            let lifted = cluster.servers.iter().map(score);
            let lifted = lifted.filter(|score| *score == last.to_string()).count();
            assert!(lifted >= 2, "{lifted} nodes were lifted to {last}");
            lease.release().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_register_that_cannot_be_lifted_is_named_and_the_lock_is_free_again() {
    let server = RedisServer::start();
    let node = open(&server.url());
    server.cli(&["RPUSH", "fencepost:fences", "x"]);
    let error = node
        .call(&job(), acquire(1, wall_micros()))
        .await
        .unwrap_err();
    assert!(matches!(error, NodeError::WrongType(_)), "{error}");
    assert!(error.to_string().contains("fencepost:fences"), "{error}");
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

#[tokio::test]
async fn a_user_who_may_not_lift_the_register_gets_no_vote_and_holds_nothing() {
    let server = RedisServer::start();
    let rules = [
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-zadd",
    ];
    server.cli(&rules);
    let url = server.url().replacen("redis://", "redis://app:secret@", 1);
    let node = open(&url);
    let error = node
        .call(&job(), acquire(1, wall_micros()))
        .await
        .unwrap_err();
    assert!(matches!(error, NodeError::Permission(_)), "{error}");
    if server.has_plain_commands() {
        assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    }
}

/// It could not tell a lost connection from one that is still there.
#[tokio::test]
async fn a_user_who_may_not_close_connections_acquires_by_script() {
    let server = RedisServer::start();
    let rules = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">secret",
        "~*",
        "&*",
        "+@all",
        "-client|kill",
    ];
    if server.cli(&rules) != "OK" {
        return;
    }
    let url = server.url().replacen("redis://", "redis://app:secret@", 1);
    let node = open(&url);
    let before = server.scripts_run();
    let reply = node.call(&job(), acquire(1, wall_micros())).await.unwrap();
    assert!(matches!(reply, Reply::Granted { .. }), "{reply:?}");
    assert!(server.scripts_run() > before);
}

/// Passes everything on to a server. What comes on the first connection while it is held is kept, also after
/// the client has closed it, and arrives when it is let go.
struct Detour {
    port: u16,
    is_held: Arc<AtomicBool>,
    let_go: Arc<Notify>,
    /// How many bytes of it were kept, and whether they have arrived.
    kept: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Detour {
    async fn to(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let detour = Self {
            port: listener.local_addr().unwrap().port(),
            is_held: Arc::default(),
            let_go: Arc::default(),
            kept: Arc::default(),
            is_over: Arc::default(),
        };
        let (is_held, let_go) = (detour.is_held.clone(), detour.let_go.clone());
        let (kept, is_over) = (detour.kept.clone(), detour.is_over.clone());
        let port = server.port();
        tokio::spawn(async move {
            let mut is_first = true;
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
                });
                let may_hold = std::mem::take(&mut is_first);
                let (is_held, let_go) = (is_held.clone(), let_go.clone());
                let (kept, is_over) = (kept.clone(), is_over.clone());
                tokio::spawn(async move {
                    let (mut bytes, mut late) = ([0; 4096], Vec::new());
                    while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                        if may_hold && is_held.load(Ordering::SeqCst) {
                            late.extend_from_slice(&bytes[..count]);
                            kept.store(late.len(), Ordering::SeqCst);
                        } else if to_server.write_all(&bytes[..count]).await.is_err() {
                            return;
                        }
                    }
                    if may_hold {
                        let_go.notified().await;
                        // The server may have closed it meanwhile.
                        let _ = to_server.write_all(&late).await;
                        tokio::time::sleep(Duration::from_millis(300)).await;
                        is_over.store(true, Ordering::SeqCst);
                    }
                });
            }
        });
        detour
    }
}

/// A `SET` that arrives after its own release, on a connection that was given up, held the lock for nobody:
/// plain commands see no tombstone. The server closes that connection before the next one is used.
#[tokio::test]
async fn what_arrives_late_on_a_connection_that_was_given_up_takes_no_lock() {
    let server = RedisServer::start();
    let detour = Detour::to(&server).await;
    let options = RedisOptions {
        mute_timeout: Duration::from_millis(200),
        ..RedisOptions::default()
    };
    let url = format!("redis://127.0.0.1:{}", detour.port);
    let node = open_with(&url, options);
    let name = LockName::new("warm").unwrap();
    node.call(&name, acquire(1, wall_micros())).await.unwrap();
    detour.is_held.store(true, Ordering::SeqCst);
    let late = node.call(&job(), acquire(2, wall_micros())).await;
    assert!(late.is_err_and(|error| error.is_uncertain()));
    assert!(detour.kept.load(Ordering::SeqCst) > 0);
    // By another connection.
    let release = Command::Release {
        value: value(2),
        tombstone: Some(TTL),
        ticket: Default::default(),
        follower: None,
        is_lease: false,
    };
    let start = Instant::now();
    while node.call(&job(), release.clone()).await != Ok(Reply::NotHeld(None)) {
        assert!(start.elapsed() < SOON, "it does not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    detour.let_go.notify_one();
    let is_over = || detour.is_over.load(Ordering::SeqCst);
    wait_until("all has arrived", SOON, is_over).await;
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

async fn client_of(server: &RedisServer) -> Client {
    let client = Client::builder().url(server.url());
    let client = client.restart_policy(RestartPolicy::Trust);
    client.connect().await.unwrap()
}

/// A wall clock that is wrong by so much.
struct Wrong(i64);

impl Clock for Wrong {
    fn now(&self) -> Moment {
        SystemClock.now()
    }

    fn wall_micros(&self) -> u64 {
        SystemClock.wall_micros().saturating_add_signed(self.0)
    }
}

#[tokio::test]
async fn clients_days_wrong_and_one_in_the_year_2300_poison_nothing() {
    let cluster = Cluster::start(3);
    let days = 2 * DAY.cast_signed();
    let mut last = FencingToken::ZERO;
    for wrong in [0, days, -days, 270 * 365 * DAY.cast_signed(), 0] {
        let client = cluster.builder().clock(Arc::new(Wrong(wrong)));
        let locks = client.connect().await.unwrap();
        let lease = locks.lock("job").ttl(TTL).timeout(SOON).await.unwrap();
        assert!(lease.token() > last, "{} after {last}", lease.token());
        last = lease.token();
        lease.release().await.unwrap();
        // A majority has decided; the third node may get its part later, or, if it connected too late, never.
        let mut lifted = 0;
        for server in &cluster.servers {
            let score = server.cli(&["ZSCORE", "fencepost:fences", "job"]);
            let Ok(score) = score.parse::<u64>() else {
                assert_eq!(score, "");
                continue;
            };
            lifted += 1;
            let now = wall_micros();
            assert!(score < now + 2 * MINUTE, "{wrong}: {score} at {now}");
            if server.has_plain_commands() {
                assert!(score > now - 2 * MINUTE, "{wrong}: {score} at {now}");
            }
        }
        assert!(lifted >= 2, "{wrong}: on {lifted} nodes");
    }
}

/// `FENCEPOST_LONG` makes it a million names, and holds the server to 5 ms.
#[tokio::test]
async fn a_register_of_many_old_names_is_forgotten_without_stopping_the_server() {
    let is_long = std::env::var_os("FENCEPOST_LONG").is_some();
    let (names, slowest) = match is_long {
        true => (1_000_000_u64, "5000"),
        // Beside other tests the server may wait for its turn in the middle of a call.
        false => (20_000, "100000"),
    };
    let server = RedisServer::start();
    let used = || {
        let info = server.cli(&["INFO", "memory"]);
        let used = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        used.unwrap().trim().parse::<u64>().unwrap()
    };
    let empty = used();
    let fill = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], 1000000 + i, 'name-' .. i) end \
                redis.call('ZADD', KEYS[1], ARGV[2], 'young')";
    let now = wall_micros().to_string();
    server.cli(&[
        "EVAL",
        fill,
        "1",
        "fencepost:fences",
        &names.to_string(),
        &now,
    ]);
    let full = used();
    let bytes_per_name = (full - empty) / names;
    assert!(bytes_per_name < 160, "{bytes_per_name} bytes for a name");
    server.cli(&["CONFIG", "SET", "slowlog-log-slower-than", slowest]);
    server.cli(&["SLOWLOG", "RESET"]);
    let _locks = client_of(&server).await;
    let card = || server.cli(&["ZCARD", "fencepost:fences"]);
    let limit = Duration::from_secs(if is_long { 300 } else { 60 });
    let start = Instant::now();
    while card() != "1" {
        assert!(start.elapsed() < limit, "{} names are left", card());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(
        server.cli(&["ZRANGE", "fencepost:fences", "0", "-1"]),
        "young"
    );
    let slow = server.cli(&["SLOWLOG", "GET"]);
    assert!(slow.is_empty(), "{slow}");
    let left = used().saturating_sub(empty);
    assert!(
        left < (full - empty) / 10 + 4_000_000,
        "{left} bytes are left"
    );
}

/// Every newcomer who fails lifts the register above the holder's token. A node that comes back empty is
/// filled in all the same: otherwise the lock would be lost with the second node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contended_lock_is_not_lost_when_all_nodes_are_restarted_one_after_the_other() {
    const TTL: Duration = Duration::from_secs(6);
    const NEWCOMERS: u32 = 4;
    const LATE: Duration = Duration::from_secs(60);
    let mut cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let lease = locks.lock("job").ttl(TTL).await.unwrap();
    cluster.all_have("job").await;
    let mut newcomers = tokio::task::JoinSet::new();
    for _ in 0..NEWCOMERS {
        let locks = cluster.client().await;
        newcomers.spawn(async move {
            loop {
                let got = locks.try_lock("job").ttl(TTL).renew(false).await;
                assert!(got.is_err(), "two have it");
                tokio::time::sleep(Duration::from_secs(1) / 16 * NEWCOMERS).await;
            }
        });
    }
    let stored = fencepost_tests::stored(lease.value(), lease.token());
    for server in &mut cluster.servers {
        tokio::task::block_in_place(|| {
            server.kill();
            server.restart();
        });
        let start = Instant::now();
        while server.cli(&["GET", "job"]) != stored {
            assert!(lease.is_valid() && start.elapsed() < LATE, "not filled in");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    assert!(lease.is_valid());
    newcomers.abort_all();
    while let Some(newcomer) = newcomers.join_next().await {
        assert!(newcomer.unwrap_err().is_cancelled());
    }
    lease.release().await.unwrap();
}
