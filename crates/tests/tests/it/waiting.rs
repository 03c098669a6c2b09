//! Waiting on a quorum of real servers: who is woken, what a dead waiter costs, what a lost message
//! costs, and that nothing spins and nothing is left.

use std::future::IntoFuture;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fencepost::{Client, Lease, LockRequest, Progress};
use fencepost_core::ticket::TICKET_LEASE;
use fencepost_tests::{Cluster, RedisServer, is_prompt, until, until_somebody_waits, wait_until};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);
/// How often a waiter looks by itself, at the most.
const POLL: Duration = Duration::from_secs(1);
/// For the machine.
const SLACK: Duration = Duration::from_secs(2);
/// So short that nobody can have looked by itself, which it does 750 ms after its last look at the
/// earliest.
const WOKEN: Duration = Duration::from_millis(500);

/// How many commands of its own a client sends to each node in that time, at the most: its waiters look
/// together, every 0.75 to 1 second.
fn looks(time: Duration) -> u64 {
    (time.as_secs_f64() / 0.75).ceil() as u64
}

/// Starts to wait, and returns when a majority has agreed on its place.
async fn wait_in_line(request: LockRequest) -> JoinHandle<Lease> {
    let seated = Arc::new(Notify::new());
    let tell = Arc::clone(&seated);
    let request = request.on_progress(move |progress: Progress| {
        if progress.is_settled {
            tell.notify_one();
        }
    });
    let task = tokio::spawn(async move { request.await.unwrap() });
    timeout(LATE, seated.notified()).await.unwrap();
    task
}

/// A process with so many waiters, which dies with `kill -9`.
struct Doomed(Child);

impl Doomed {
    async fn start(cluster: &Cluster, count: usize, mode: &'static str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waiter"));
        command
            .arg(cluster.urls())
            .arg("job")
            .arg(count.to_string());
        command.arg(mode).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let said = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(out).read_line(&mut line).unwrap();
            line
        });
        let doomed = Self(child);
        assert_eq!(timeout(LATE, said).await.unwrap().unwrap(), "waiting\n");
        doomed
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn most_since(before: &[u64], after: &[u64]) -> u64 {
    let grown = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before);
    grown.max().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_among_five_hundred_waiters_causes_a_handful_of_commands() {
    const CLIENTS: usize = 5;
    let cluster = Cluster::start(3);
    let holder = cluster.client().await;
    let lease = holder.lock("job").await.unwrap();
    let mut waiting = Vec::new();
    let mut clients = Vec::new();
    let (got, mut who) = mpsc::unbounded_channel();
    for _ in 0..CLIENTS {
        let locks = cluster.client().await;
        for _ in 0..100 {
            let (request, got) = (locks.lock("job"), got.clone());
            waiting.push(tokio::spawn(async move {
                let lease = request.await.unwrap();
                got.send(lease).unwrap();
            }));
        }
        clients.push(locks);
    }
    let all = async || holder.status("job").await.unwrap().waiting == 500;
    until("all are in line", LATE, all).await;
    // Until all have agreed on their places, of which nothing is seen but that they are quiet.
    until("they are quiet", LATE, async || {
        let before = cluster.scripts_run();
        sleep(POLL / 2).await;
        most_since(&before, &cluster.scripts_run()) <= CLIENTS as u64
    })
    .await;
    // While nothing happens, which only time can tell: each client refreshes all its waiters by one
    // command a second.
    let (before, begin) = (cluster.scripts_run(), Instant::now());
    sleep(Duration::from_secs(3)).await;
    let idle = most_since(&before, &cluster.scripts_run());
    let quiet = begin.elapsed();
    let usual = CLIENTS as u64 * looks(quiet);
    assert!(idle <= usual + 5, "{idle} commands in {quiet:?} of waiting");
    // Ten hand-offs, each between two counts.
    let mut lease = lease;
    let mut most = 0;
    for _ in 0..10 {
        let (before, begin) = (cluster.scripts_run(), Instant::now());
        lease.release().await.unwrap();
        lease = timeout(LATE, who.recv()).await.unwrap().unwrap();
        // The second in line looks again a moment later, for which there is no sign.
        sleep(Duration::from_millis(100)).await;
        let run = most_since(&before, &cluster.scripts_run());
        // Where that took long, all have looked meanwhile.
        let usual = CLIENTS as u64 * (looks(begin.elapsed()) - 1);
        most = most.max(run.saturating_sub(usual));
    }
    println!("{idle} commands a node in {quiet:?} of waiting, at most {most} for a hand-off");
    assert!(most <= 12, "{most} commands on one node for one release");
    for task in waiting {
        task.abort();
    }
    drop(lease);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_head_costs_the_next_a_moment_by_default() {
    let cluster = Cluster::start(3);
    // Of another client than the holder's, who need not be told by the nodes.
    let (locks, other) = (cluster.client().await, cluster.client().await);
    is_prompt(WOKEN, async || {
        let lease = locks.lock("job").await.unwrap();
        let mut head = Doomed::start(&cluster, 1, "default").await;
        let next = wait_in_line(other.lock("job")).await;
        head.kill();
        let begin = Instant::now();
        lease.release().await.unwrap();
        drop(timeout(LATE, next).await.unwrap().unwrap());
        let took = begin.elapsed();
        println!("{took:?} with a dead head");
        took
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_killed_waiters_in_a_row_cost_one_ticket_lease_in_either_mode() {
    for mode in ["default", "fair"] {
        let cluster = Cluster::start(3);
        let locks = cluster.client().await;
        let lease = locks.lock("job").fair(mode == "fair").await.unwrap();
        let mut dead = Doomed::start(&cluster, 50, mode).await;
        let next = wait_in_line(locks.lock("job").fair(mode == "fair")).await;
        dead.kill();
        let begin = Instant::now();
        lease.release().await.unwrap();
        drop(timeout(LATE, next).await.unwrap().unwrap());
        let took = begin.elapsed();
        println!("{took:?} after fifty dead waiters, {mode}");
        assert!(took < TICKET_LEASE + SLACK, "{took:?}, {mode}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_messages_cost_a_poll_and_nobody_hangs() {
    const WORKERS: usize = 4;
    const TURNS: usize = 12;
    let cluster = Arc::new(Cluster::start(3));
    let killing = Arc::clone(&cluster);
    let killer = std::thread::spawn(move || {
        let mut killed = 0;
        while Arc::strong_count(&killing) > 1 {
            for server in &killing.servers {
                let n = server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                killed += n.parse::<usize>().unwrap();
            }
        }
        killed
    });
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        let locks = cluster.client().await;
        workers.push(tokio::spawn(async move {
            let mut longest = Duration::ZERO;
            for _ in 0..TURNS {
                let begin = Instant::now();
                let lease = locks.lock("job").fair(true).timeout(LATE).await.unwrap();
                longest = longest.max(begin.elapsed());
                sleep(Duration::from_millis(20)).await;
                lease.release().await.unwrap();
            }
            longest
        }));
    }
    for worker in workers {
        let longest = timeout(3 * LATE, worker).await.unwrap().unwrap();
        // Everybody before it may cost a poll.
        let bound = POLL * WORKERS as u32 + SLACK;
        assert!(longest < bound, "{longest:?}");
    }
    drop(cluster);
    let killed = killer.join().unwrap();
    assert!(killed > 50, "only {killed} subscriptions were cut");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_without_an_end_is_not_asked_for_all_the_time() {
    let cluster = Cluster::start(3);
    for server in &cluster.servers {
        // A foreign client that has forgotten to set a time.
        server.cli(&["SET", "job", "theirs"]);
    }
    let locks = cluster.client().await;
    let waiting = wait_in_line(locks.lock("job")).await;
    let (before, begin) = (cluster.scripts_run(), Instant::now());
    // Nothing happens, which only time can tell.
    sleep(Duration::from_secs(2)).await;
    let run = most_since(&before, &cluster.scripts_run());
    let time = begin.elapsed();
    // Four times as often as where somebody would tell it.
    assert!(run <= 4 * looks(time) + 2, "{run} scripts in {time:?}");
    assert!(run > looks(time), "only {run} scripts in {time:?}");
    for server in &cluster.servers {
        server.cli(&["DEL", "job"]);
    }
    drop(timeout(LATE, waiting).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_head_before_a_free_lock_is_not_asked_for_all_the_time() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let lease = locks.lock("job").fair(true).await.unwrap();
    let mut head = Doomed::start(&cluster, 1, "fair").await;
    let next = wait_in_line(locks.lock("job").fair(true)).await;
    head.kill();
    let (before, begin) = (cluster.scripts_run(), Instant::now());
    lease.release().await.unwrap();
    drop(timeout(LATE, next).await.unwrap().unwrap());
    let run = most_since(&before, &cluster.scripts_run());
    let time = begin.elapsed();
    assert!(run <= looks(time) + 9, "{run} scripts in {time:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_dropped_leaves_the_line_at_once_and_nothing_behind() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let lease = locks.lock("job").await.unwrap();
    let waiting = [
        wait_in_line(locks.lock("job")).await,
        wait_in_line(locks.lock("job").fair(true)).await,
    ];
    let both = |server: &RedisServer| server.cli(&["ZCARD", "{job}:queue"]) == "2";
    cluster.all("both are in line", both).await;
    let begin = Instant::now();
    waiting.iter().for_each(JoinHandle::abort);
    let line = ["EXISTS", "{job}:queue", "{job}:leases"];
    let is_gone = |server: &RedisServer| server.cli(&line) == "0";
    cluster.all("the line is gone", is_gone).await;
    assert!(
        begin.elapsed() < TICKET_LEASE - POLL,
        "{:?}",
        begin.elapsed()
    );
    lease.release().await.unwrap();
    locks.shutdown().await;
    assert_eq!(cluster.leftovers(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_waiters_leave_nothing_behind_after_one_ticket_lease() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    let lease = locks.lock("job").await.unwrap();
    let mut dead = Doomed::start(&cluster, 5, "default").await;
    dead.kill();
    let begin = Instant::now();
    let line_is_gone = || cluster.leftovers().iter().all(|key| key == "job");
    wait_until("the line is gone", LATE, line_is_gone).await;
    let took = begin.elapsed();
    assert!(took < TICKET_LEASE + SLACK, "{took:?}");
    drop(lease);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_told_who_holds_the_lock_and_where_it_stands() {
    let cluster = Cluster::start(3);
    let builder = cluster.builder().owner("the-holder");
    let holder = cluster.connect(builder).await;
    let lease = holder
        .lock("job")
        .ttl(Duration::from_secs(30))
        .await
        .unwrap();
    let locks = cluster.client().await;
    let first = wait_in_line(locks.lock("job")).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let request = locks.lock("job").on_progress(move |progress| {
        let _ = tell.send(progress);
    });
    let second = tokio::spawn(request.into_future());
    let mut progress = timeout(LATE, told.recv()).await.unwrap().unwrap();
    while !progress.is_settled {
        progress = timeout(LATE, told.recv()).await.unwrap().unwrap();
    }
    assert_eq!(progress.place, Some(2));
    assert_eq!(progress.holder.unwrap().as_str(), "the-holder");
    let left = progress.remaining.unwrap();
    assert!(
        left <= Duration::from_secs(30) && left > Duration::from_secs(5),
        "{left:?}"
    );
    first.abort();
    loop {
        let progress = timeout(LATE, told.recv()).await.unwrap().unwrap();
        if progress.place == Some(1) {
            break;
        }
    }
    second.abort();
    drop(lease);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_dies_is_followed_when_its_time_is_up() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    // Who looks once a second does so after 750 ms to 1 s, and not again before 1.5 s.
    let ttl = Duration::from_millis(1100);
    is_prompt(ttl + Duration::from_millis(300), async || {
        let begin = Instant::now();
        // Not renewed, and never given back: as if it were dead.
        let lease = locks.lock("job").ttl(ttl).renew(false).await.unwrap();
        std::mem::forget(lease);
        let next = wait_in_line(locks.lock("job")).await;
        drop(timeout(LATE, next).await.unwrap().unwrap());
        let took = begin.elapsed();
        assert!(took >= ttl - Duration::from_millis(20), "{took:?}");
        took
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_when_a_minority_of_the_nodes_is_killed() {
    let mut cluster = Cluster::start(3);
    let locks = cluster.client().await;
    for fair in [false, true] {
        let lease = locks.lock("job").fair(fair).await.unwrap();
        let next = wait_in_line(locks.lock("job").fair(fair)).await;
        if !fair {
            cluster.all_have("job").await;
            cluster.all_have("{job}:queue").await;
            cluster.servers[0].kill();
        }
        lease.release().await.unwrap();
        let begin = Instant::now();
        drop(timeout(LATE, next).await.unwrap().unwrap());
        assert!(begin.elapsed() < POLL + SLACK, "{:?}", begin.elapsed());
    }
}

/// The URL of a user who may run scripts and neither publish nor listen.
fn url_of_a_mute_user(cluster: &Cluster) -> String {
    let server = &cluster.servers[0];
    server.cli(&[
        "ACL",
        "SETUSER",
        "mute",
        "on",
        ">pw",
        "~*",
        "resetchannels",
        "+@all",
    ]);
    format!("redis://mute:pw@127.0.0.1:{}", server.port())
}

/// It works as well, only by looking.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_listen_waits_by_looking() {
    let cluster = Cluster::start(1);
    let url = url_of_a_mute_user(&cluster);
    let holder = Client::connect(&url).await.unwrap();
    let waiter = Client::connect(&url).await.unwrap();
    let lease = holder.lock("job").await.unwrap();
    let next = wait_in_line(waiter.lock("job")).await;
    let begin = Instant::now();
    lease.release().await.unwrap();
    drop(timeout(LATE, next).await.unwrap().unwrap());
    assert!(begin.elapsed() < POLL + SLACK, "{:?}", begin.elapsed());
}

/// No message is needed between two tasks of one client: nobody publishes here, and ten hand-offs
/// that wait for a poll would take ten polls, which is seven seconds at the least.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_of_the_same_client_follows_a_release_without_being_told() {
    let cluster = Cluster::start(1);
    let locks = Client::connect(url_of_a_mute_user(&cluster)).await.unwrap();
    for fair in [false, true] {
        let mut lease = locks.lock("job").await.unwrap();
        let mut line = Vec::new();
        for _ in 0..10 {
            line.push(wait_in_line(locks.lock("job").fair(fair)).await);
        }
        let begin = Instant::now();
        for next in line {
            lease.release().await.unwrap();
            lease = timeout(LATE, next).await.unwrap().unwrap();
        }
        assert!(begin.elapsed() < 4 * POLL, "{:?}", begin.elapsed());
        lease.release().await.unwrap();
    }
}

/// The nodes tell nobody of a client that follows its own release. If the follower goes in that very
/// moment, the one behind it must not wait for a poll: eight of those would take six seconds.
#[tokio::test]
async fn a_follower_that_is_dropped_lets_the_next_one_go() {
    let cluster = Cluster::start(3);
    let locks = cluster.client().await;
    for fair in [false, true] {
        let mut lease = locks.lock("job").await.unwrap();
        let begin = Instant::now();
        for _ in 0..8 {
            // Nobody polls it once it is in line, so that it cannot make its attempt.
            let mut follower = Box::pin(locks.lock("job").fair(fair).into_future());
            tokio::select! {
                _ = &mut follower => panic!("it is held"),
                () = until_somebody_waits(&locks, "job") => {}
            }
            let next = wait_in_line(locks.lock("job").fair(fair)).await;
            lease.release().await.unwrap();
            drop(follower);
            lease = timeout(LATE, next).await.unwrap().unwrap();
        }
        assert!(begin.elapsed() < 5 * POLL, "{:?}", begin.elapsed());
        lease.release().await.unwrap();
    }
    wait_until("nothing is left", LATE, || cluster.leftovers().is_empty()).await;
}
