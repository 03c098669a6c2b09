//! Beside a Java program that uses Redisson's `RLock`: it and our reentrant locks exclude each other and
//! wake each other. What Redisson 4.7 sends is replayed with `redis-cli`, word for word; `interop` runs
//! Redisson itself.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use fencepost::{Client, ReentrantGuard};
use fencepost_tests::{Cluster, RedisServer, typical, until, until_somebody_waits, wait_until};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);
/// How often somebody is woken, and how soon at least every second time: of those who look by
/// themselves, once a second, more than half wait longer.
const ROUNDS: usize = 15;
const WOKEN: Duration = Duration::from_millis(300);
/// A try.
const NOW: Duration = Duration::ZERO;

async fn enter(locks: &Client) -> ReentrantGuard {
    locks.reentrant("job").lock().await.unwrap()
}

/// What `RLock.tryLock` sends: key; lease in milliseconds, owner. Nil when it is theirs.
const THEIR_LOCK: &str = "if ((redis.call('exists', KEYS[1]) == 0) \
    or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1); \
    redis.call('pexpire', KEYS[1], ARGV[1]); \
    return nil; end; \
    return redis.call('pttl', KEYS[1]);";
/// What `RLock.unlock` sends: key, channel, latch; message, lease, owner, publish command, the latch's
/// time. The latch remembers what the script answered, so that an unlock that is sent again after a
/// time-out does nothing twice. The publish command is `SPUBLISH` where channels are sharded.
const THEIR_UNLOCK: &str = "local val = redis.call('get', KEYS[3]); \
    if val ~= false then return tonumber(val);end; \
    if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; \
    local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); \
    if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); \
    redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; \
    else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); \
    redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end; ";
/// What their watchdog sends: any number of keys; lease, and an owner for each key.
const THEIR_RENEWAL: &str = "local result = {} \
    for i = 1, #KEYS, 1 do \
    if (redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1) then \
    redis.call('pexpire', KEYS[i], ARGV[1]); table.insert(result, 1); \
    else table.insert(result, 0); end; end; return result;";
/// How long the latch lives if it is not deleted: Redisson's time-outs and retries together.
const THEIR_LATCH_TIME: &str = "17236";
const THEY: &str = "6f0829ed-bfd3-4e6f-bba3-6f3d66cd176c:54";
const THEIR_LEASE: &str = "30000";

/// A thread of a Java program at one server.
struct Java<'a> {
    server: &'a RedisServer,
    name: &'a str,
    channel: &'a str,
}

impl<'a> Java<'a> {
    fn at(server: &'a RedisServer, name: &'a str, channel: &'a str) -> Self {
        Self {
            server,
            name,
            channel,
        }
    }

    /// Whether anybody has the lock, they or we.
    fn is_held(&self) -> bool {
        self.server.cli(&["EXISTS", self.name]) == "1"
    }

    /// Whether it got the lock.
    fn try_lock(&self) -> bool {
        let words = ["EVAL", THEIR_LOCK, "1", self.name, THEIR_LEASE, THEY];
        self.server.cli(&words).is_empty()
    }

    fn renew(&self) -> String {
        let words = ["EVAL", THEIR_RENEWAL, "1", self.name, THEIR_LEASE, THEY];
        self.server.cli(&words)
    }

    /// `1` when it is free, `0` when it is held still, nothing when it was not theirs. Deletes the latch
    /// once the answer is there, as Redisson does.
    fn unlock(&self) -> String {
        static REQUESTS: AtomicU32 = AtomicU32::new(0);
        let request = REQUESTS.fetch_add(1, Ordering::Relaxed);
        let latch = self.latch(&request.to_string());
        let answer = self.send_unlock(&latch);
        self.server.cli(&["DEL", &latch]);
        answer
    }

    /// The unlock alone.
    fn send_unlock(&self, latch: &str) -> String {
        let (script, keys) = (
            ["EVAL", THEIR_UNLOCK, "3"],
            [self.name, self.channel, latch],
        );
        let arguments = ["0", THEIR_LEASE, THEY, "PUBLISH", THEIR_LATCH_TIME];
        self.server
            .cli(&[&script[..], &keys[..], &arguments[..]].concat())
    }

    /// The latch of one unlock: in the slot of the lock's key, as its channel.
    fn latch(&self, request: &str) -> String {
        let channel = self.channel.replace("lock__channel", "unlock_latch");
        format!("{channel}:{request}")
    }

    /// What one who waits is told.
    fn subscribe(&self) -> Subscription {
        let mut cli = Command::new("redis-cli");
        cli.arg("-s").arg(self.server.socket());
        cli.args(["SUBSCRIBE", self.channel]).stdout(Stdio::piped());
        let mut child = cli.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (said, heard) = channel();
        std::thread::spawn(move || {
            lines
                .map_while(Result::ok)
                .try_for_each(|line| said.send(line))
        });
        let subscription = Subscription { child, heard };
        assert_eq!(subscription.next_three(), ["subscribe", self.channel, "1"]);
        subscription
    }
}

struct Subscription {
    child: Child,
    heard: Receiver<String>,
}

impl Subscription {
    fn next_three(&self) -> [String; 3] {
        [(); 3].map(|()| self.heard.recv_timeout(LATE).unwrap())
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // It may have gone with the server.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const NAMES: [(&str, &str); 2] = [
    ("job", "redisson_lock__channel:{job}"),
    ("{tenant}:job", "redisson_lock__channel:{tenant}:job"),
];

#[tokio::test]
async fn a_java_program_does_not_get_in_while_we_are_and_is_woken_when_we_leave() {
    let cluster = Cluster::start(1);
    let locks = cluster.client().await;
    for (name, channel) in NAMES {
        let java = Java::at(&cluster.servers[0], name, channel);
        let lock = locks.reentrant(name);
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        assert!(!java.try_lock(), "ours");
        assert_eq!(
            (java.unlock(), java.renew()),
            (String::new(), "0".to_owned())
        );
        assert_eq!(java.server.cli(&["HKEYS", name]), outer.value());
        let left: u64 = java.server.cli(&["PTTL", name]).parse().unwrap();
        assert!(
            (20_000..=30_000).contains(&left),
            "{left} ms, and their lease is 30 s"
        );
        let waiter = java.subscribe();
        drop(outer);
        inner.extend().await.unwrap();
        assert!(!java.try_lock(), "still ours");
        inner.release().await.unwrap();
        assert_eq!(waiter.next_three(), ["message", channel, "0"]);
        assert!(java.try_lock(), "theirs now");
        assert_eq!(java.unlock(), "1");
    }
}

#[tokio::test]
async fn we_do_not_get_in_while_a_java_program_is_and_are_woken_when_it_leaves() {
    let cluster = Cluster::start(1);
    let locks = cluster.client().await;
    for (name, channel) in NAMES {
        let java = Java::at(&cluster.servers[0], name, channel);
        let (mut last, mut took) = (None, Vec::new());
        for _ in 0..ROUNDS {
            assert!(java.try_lock() && java.try_lock(), "they enter again, too");
            let error = locks.reentrant(name).lock().timeout(NOW).await.unwrap_err();
            assert!(
                error
                    .holder()
                    .is_some_and(|holder| holder.owner.as_str() == THEY),
                "{error}"
            );
            let waiting = wait_for(&locks, name);
            wait_until("we listen", LATE, || subscribers(java.server, channel) == 1).await;
            until_somebody_waits(&locks, name).await;
            assert_eq!(
                (java.unlock(), java.renew()),
                ("0".to_owned(), "1".to_owned())
            );
            // It must not be woken, which only time can tell.
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!waiting.is_finished(), "they are inside still");
            assert_eq!(java.unlock(), "1");
            let begin = Instant::now();
            let guard = timeout(LATE, waiting).await.unwrap().unwrap();
            took.push(begin.elapsed());
            assert!(last.is_none_or(|last| last < guard.token()));
            last = Some(guard.token());
            guard.release().await.unwrap();
        }
        assert!(typical(&took) < WOKEN, "{took:?}");
        wait_until("nobody listens", LATE, || {
            subscribers(java.server, channel) == 0
        })
        .await;
    }
    assert!(cluster.leftovers().is_empty());
}

/// Redisson sends an unlock again when its answer is late. By then the lock may be ours.
#[tokio::test]
async fn an_unlock_that_redisson_sends_again_does_not_release_what_is_ours_by_now() {
    let cluster = Cluster::start(1);
    let locks = cluster.client().await;
    for (name, channel) in NAMES {
        let java = Java::at(&cluster.servers[0], name, channel);
        assert!(java.try_lock());
        let latch = java.latch("late");
        assert_eq!(java.send_unlock(&latch), "1");
        let guard = locks.reentrant(name).lock().timeout(NOW).await.unwrap();
        assert_eq!(java.send_unlock(&latch), "1", "what it answered before");
        assert!(java.is_held(), "ours still");
        guard.extend().await.unwrap();
        guard.release().await.unwrap();
        assert_eq!(java.server.cli(&["DEL", &latch]), "1");
    }
    assert!(cluster.leftovers().is_empty());
}

fn wait_for(locks: &Client, name: &str) -> JoinHandle<ReentrantGuard> {
    let request = locks.reentrant(name).lock();
    tokio::spawn(async move { request.await.unwrap() })
}

fn subscribers(server: &RedisServer, channel: &str) -> u32 {
    let answer = server.cli(&["PUBSUB", "NUMSUB", channel]);
    answer.lines().last().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_java_program_on_a_majority_keeps_us_out_and_wakes_us() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let (name, channel) = NAMES[0];
    let java: Vec<_> = cluster
        .servers
        .iter()
        .map(|server| Java {
            server,
            name,
            channel,
        })
        .collect();
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        assert!(java.iter().all(Java::try_lock));
        let shut = locks.reentrant(name).lock().timeout(NOW).await;
        assert!(shut.unwrap_err().is_held());
        let waiting = wait_for(&locks, name);
        for one in &java {
            wait_until("we listen", LATE, || subscribers(one.server, channel) == 1).await;
        }
        until_somebody_waits(&locks, name).await;
        assert_eq!(java[0].unlock(), "1");
        assert!(!waiting.is_finished(), "two of three are theirs");
        assert_eq!(java[1].unlock(), "1");
        let begin = Instant::now();
        let guard = timeout(LATE, waiting).await.unwrap().unwrap();
        took.push(begin.elapsed());
        assert_eq!(java[2].unlock(), "1");
        guard.extend().await.unwrap();
        // A majority is enough to go on; the third may take it later.
        wait_until("ours on all", LATE, || java.iter().all(Java::is_held)).await;
        assert!(java.iter().all(|one| !one.try_lock()), "ours");
        guard.release().await.unwrap();
        wait_until("given back", LATE, || !java.iter().any(Java::is_held)).await;
    }
    assert!(typical(&took) < WOKEN, "{took:?}");
}

#[tokio::test]
async fn what_redisson_says_is_heard_again_after_the_connection_broke() {
    let cluster = Cluster::start(1);
    let locks = cluster.client().await;
    let (name, channel) = NAMES[0];
    let java = Java {
        server: &cluster.servers[0],
        name,
        channel,
    };
    assert!(java.try_lock());
    let waiting = wait_for(&locks, name);
    wait_until("we listen", LATE, || subscribers(java.server, channel) == 1).await;
    java.server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    wait_until("we listen again", LATE, || {
        subscribers(java.server, channel) == 1
    })
    .await;
    until_somebody_waits(&locks, name).await;
    assert_eq!(java.unlock(), "1");
    drop(timeout(LATE, waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_user_who_may_not_hear_redisson_is_woken_by_us_and_looks_for_the_others() {
    let cluster = Cluster::start(1);
    let (name, channel) = NAMES[0];
    let server = &cluster.servers[0];
    let rules = "ACL SETUSER app on >secret ~* +@all resetchannels &fencepost:wake:*";
    server.cli(&rules.split(' ').collect::<Vec<_>>());
    let url = server.url().replace("redis://", "redis://app:secret@");
    let locks = Client::connect(&url).await.unwrap();
    let java = Java {
        server,
        name,
        channel,
    };
    assert!(java.try_lock());
    let waiting = wait_for(&locks, name);
    until_somebody_waits(&locks, name).await;
    assert_eq!(java.unlock(), "1");
    let guard = timeout(LATE, waiting).await.unwrap().unwrap();
    let next = tokio::spawn({
        let locks = locks.clone();
        async move { enter(&locks).await }
    });
    until_somebody_waits(&locks, name).await;
    // It is not told on that channel, and nothing is left of it.
    guard.release().await.unwrap();
    drop(timeout(LATE, next).await.unwrap().unwrap());
    assert_eq!(subscribers(server, channel), 0);
}

/// Our release is told on Redisson's channel, which everybody who waits hears: only those who are next
/// may look because of it.
#[tokio::test]
async fn a_release_sends_only_those_who_are_next_to_look() {
    const CLIENTS: usize = 24;
    const HAND_OVERS: usize = 12;
    let cluster = Cluster::start(1);
    let server = &cluster.servers[0];
    let (_, channel) = NAMES[0];
    let mut guard = enter(&cluster.client().await).await;
    let (entered, mut next) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..CLIENTS {
        let (locks, entered) = (cluster.client().await, entered.clone());
        tokio::spawn(async move { entered.send(enter(&locks).await) });
    }
    let everybody = || subscribers(server, channel) as usize == CLIENTS;
    wait_until("all listen", LATE, everybody).await;
    let last_place = || server.cli(&["ZCARD", "{job}:queue"]) == CLIENTS.to_string();
    wait_until("all wait", LATE, last_place).await;
    // Whoever has begun to listen looks once, of which nothing is seen but that they are quiet then.
    until("they are quiet", LATE, async || {
        let before = server.scripts_run();
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.scripts_run() - before < CLIENTS as u64 / 2
    })
    .await;
    let (mut commands, mut time) = (0, Duration::ZERO);
    for _ in 0..HAND_OVERS {
        let (before, begin) = (server.scripts_run(), Instant::now());
        guard.release().await.unwrap();
        guard = timeout(LATE, next.recv()).await.unwrap().unwrap();
        // Those who are sent to look by it do so within a few milliseconds.
        tokio::time::sleep(Duration::from_millis(15)).await;
        commands += server.scripts_run() - before;
        time += begin.elapsed();
    }
    // Everybody looks by itself every 0.75 to 1 second, all of them at about the same time.
    let by_themselves = CLIENTS as u64 * (time.as_secs_f64() / 0.75).ceil() as u64;
    println!("{commands} commands in {time:?}, at most {by_themselves} by themselves");
    let most = (HAND_OVERS * CLIENTS / 2) as u64;
    assert!(
        commands < by_themselves + most,
        "{commands} commands in {time:?}, {by_themselves} of them by themselves"
    );
}
