//! Behind a client of another library, which knows of no queue and wakes nobody: on real servers.

use std::time::{Duration, Instant};

use fencepost_tests::{Cluster, RedisServer, is_prompt, until, until_somebody_waits};
use tokio::time::timeout;

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);
/// So short that nobody can have looked by itself, which it does 187 ms after its last look at the
/// earliest; and much longer than it takes on a machine that is idle.
const TOLD: Duration = Duration::from_millis(60);

/// Takes the lock on every node, as any Redlock client does.
fn hold(servers: &[RedisServer], who: &str) {
    for server in servers {
        let set = server.cli(&["SET", "job", who, "NX", "PX", "60000"]);
        assert_eq!(set, "OK");
    }
}

fn release(servers: &[RedisServer]) {
    for server in servers {
        server.cli(&["DEL", "job"]);
    }
}

/// How many connections the server is to tell when a key changes.
fn trackers(server: &RedisServer) -> usize {
    let clients = server.cli(&["INFO", "clients"]);
    let clients = clients
        .lines()
        .find_map(|line| line.strip_prefix("tracking_clients:"));
    clients.unwrap().trim().parse().unwrap()
}

fn keys_tracked(server: &RedisServer) -> usize {
    let stats = server.cli(&["INFO", "stats"]);
    let keys = stats
        .lines()
        .find_map(|line| line.strip_prefix("tracking_total_keys:"));
    keys.unwrap().trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_is_in_as_soon_as_a_foreign_client_has_released() {
    for nodes in [1, 3] {
        let cluster = Cluster::start(nodes);
        let locks = cluster.client().await;
        let servers = &cluster.servers;
        let idle: Vec<_> = servers.iter().map(keys_tracked).collect();
        is_prompt(TOLD, async || {
            hold(servers, "theirs");
            let request = locks.lock("job");
            let waiting = tokio::spawn(async move {
                let lease = request.await.unwrap();
                (Instant::now(), lease)
            });
            until_somebody_waits(&locks, "job").await;
            let all_armed = async || {
                let armed = servers.iter().map(keys_tracked);
                armed.zip(&idle).all(|(now, idle)| now > *idle)
            };
            until("every server tells of the key", LATE, all_armed).await;
            let begin = Instant::now();
            release(servers);
            let (got, lease) = timeout(LATE, waiting).await.unwrap().unwrap();
            lease.release().await.unwrap();
            got - begin
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_foreign_client_that_never_pauses_a_waiter_gets_its_turns() {
    let cluster = Cluster::start(1);
    let locks = cluster.client().await;
    let urls = cluster.urls();
    let end = Instant::now() + Duration::from_secs(4);
    // Takes it again at once, as long as it may.
    let foreign = std::thread::spawn(move || {
        let client = redis::Client::open(urls).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut held = 0;
        while Instant::now() < end {
            let set: Option<String> = redis::cmd("SET")
                .arg("job")
                .arg("theirs")
                .arg("NX")
                .arg("PX")
                .arg(60_000)
                .query(&mut connection)
                .unwrap();
            if set.is_some() {
                held += 1;
                std::thread::sleep(Duration::from_millis(1));
                let _: () = redis::cmd("DEL").arg("job").query(&mut connection).unwrap();
            }
        }
        held
    });
    let (mut grants, mut longest) = (0, Duration::ZERO);
    while Instant::now() < end {
        let begin = Instant::now();
        let lease = timeout(LATE, locks.lock("job").into_future()).await;
        longest = longest.max(begin.elapsed());
        grants += 1;
        lease.unwrap().unwrap().release().await.unwrap();
    }
    let held = foreign.join().unwrap();
    println!("{grants} grants beside {held} foreign ones, longest wait {longest:?}");
    assert!(grants >= 5, "{grants} grants beside {held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_tracked_where_our_own_clients_wait_for_each_other() {
    let cluster = Cluster::start(1);
    let (here, there) = (cluster.client().await, cluster.client().await);
    let before = trackers(&cluster.servers[0]);
    let lease = here.lock("job").await.unwrap();
    let request = there.lock("job");
    let waiting = tokio::spawn(async move { request.await.unwrap() });
    until_somebody_waits(&here, "job").await;
    assert_eq!(trackers(&cluster.servers[0]), before);
    lease.release().await.unwrap();
    drop(timeout(LATE, waiting).await.unwrap().unwrap());
}
