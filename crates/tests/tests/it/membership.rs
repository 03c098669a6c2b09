//! Which cluster a node belongs to stands in a marker on the node, and whoever loses it does not vote:
//! no two clusters on one node, no vote after a flush, and no false alarms.

use std::time::{Duration, Instant};

use fencepost::{Builder, Client, Error, InitOptions, NodeError, NodeOutcome, RestartPolicy};
use fencepost_tests::{Cluster, RedisServer, eventually, until};

const MAX_TTL: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(20);
const KEY: &str = "fencepost:marker";

fn builder(urls: &str) -> Builder {
    let builder = Client::builder().url(urls).max_ttl(MAX_TTL);
    builder.restart_policy(RestartPolicy::Delay)
}

async fn init(urls: &str) -> Result<(), Error> {
    builder(urls).init(InitOptions::new().fresh(true)).await
}

/// A cluster that votes, and a client of it.
async fn ready() -> (Cluster, Client) {
    let cluster = Cluster::start(3);
    init(&cluster.urls()).await.unwrap();
    let client = builder(&cluster.urls()).connect().await.unwrap();
    votes(&client).await;
    (cluster, client)
}

async fn locks(client: &Client) -> Result<(), Error> {
    client
        .try_lock("job")
        .ttl(MAX_TTL)
        .renew(false)
        .await?
        .release()
        .await
}

/// Waits until all nodes are connected and vote.
async fn votes(client: &Client) {
    until("it votes", SOON, async || locks(client).await.is_ok()).await;
}

fn markers(cluster: &Cluster) -> Vec<String> {
    let marker = |server: &RedisServer| server.cli(&["GET", KEY]);
    cluster.servers.iter().map(marker).collect()
}

fn failures(error: &Error) -> Vec<&NodeError> {
    assert!(error.is_no_quorum(), "{error:?}");
    let failed = error
        .nodes()
        .iter()
        .filter_map(|report| match &report.outcome {
            NodeOutcome::Failed(error) => Some(error),
            _ => None,
        });
    failed.collect()
}

#[tokio::test]
async fn a_fresh_cluster_votes_at_once_and_initialising_it_again_changes_nothing() {
    let (cluster, _client) = ready().await;
    let before = markers(&cluster);
    for (n, marker) in before.iter().enumerate() {
        assert!(marker.contains("state active"), "{marker}");
        let nodes = cluster.servers.iter().all(|s| marker.contains(&s.url()));
        assert!(nodes, "{n}: {marker}");
    }
    init(&cluster.urls()).await.unwrap();
    assert_eq!(markers(&cluster), before);
    // In another order it is the same cluster.
    let urls: Vec<_> = cluster.servers.iter().rev().map(RedisServer::url).collect();
    let client = builder(&urls.join(",")).connect().await.unwrap();
    votes(&client).await;
}

/// So that a vote costs no second round trip.
#[tokio::test]
async fn the_server_itself_watches_the_marker() {
    let (cluster, _client) = ready().await;
    for server in &cluster.servers {
        let tracks = |line: &str| line.contains(" flags=t ") && line.contains(" resp=3");
        // A majority votes, and the last one may still be connecting.
        until("a connection tracks", SOON, async || {
            let clients = server.cli(&["CLIENT", "LIST"]);
            clients.lines().any(tracks)
        })
        .await;
    }
}

#[tokio::test]
async fn the_first_client_makes_the_cluster_and_waits_once() {
    let cluster = Cluster::start(3);
    let short = Duration::from_secs(5);
    let start = Instant::now();
    let first = builder(&cluster.urls()).max_ttl(short).connect().await;
    let first = first.unwrap();
    let error = first
        .try_lock("job")
        .ttl(short)
        .renew(false)
        .await
        .unwrap_err();
    let waits = |error: &&NodeError| matches!(error, NodeError::Quarantined(_));
    assert!(failures(&error).iter().any(waits), "{error}");
    drop(first);
    // Each later client goes on waiting where the one before it stopped.
    until("it votes", SOON, async || {
        let next = builder(&cluster.urls()).max_ttl(short).connect().await;
        next.unwrap()
            .try_lock("job")
            .ttl(short)
            .renew(false)
            .await
            .is_ok()
    })
    .await;
    assert!(start.elapsed() >= short, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_cluster_is_made_of_all_its_nodes_or_not_at_all() {
    let mut cluster = Cluster::start(3);
    cluster.servers[2].kill();
    let error = init(&cluster.urls()).await.unwrap_err();
    assert!(error.to_string().contains("no cluster yet"), "{error}");
    for server in &cluster.servers[..2] {
        assert_eq!(server.cli(&["EXISTS", KEY]), "0");
    }
    cluster.servers[2].restart();
    init(&cluster.urls()).await.unwrap();
}

#[tokio::test]
async fn other_lists_and_other_terms_are_refused_with_both_values_named() {
    let (cluster, _client) = ready().await;
    let more = Cluster::start(2);
    let longer = format!("{},{}", cluster.urls(), more.urls());
    let error = builder(&longer).connect().await.unwrap_err().to_string();
    for server in cluster.servers.iter().chain(&more.servers) {
        assert!(error.contains(&server.url()), "{error}");
    }
    assert!(init(&longer).await.is_err());
    for server in &more.servers {
        assert_eq!(server.cli(&["EXISTS", KEY]), "0", "left behind");
    }
    let other_ttl = builder(&cluster.urls()).max_ttl(MAX_TTL * 2);
    let error = other_ttl.connect().await.unwrap_err().to_string();
    assert!(
        error.contains("30000 ms") && error.contains("60000 ms"),
        "{error}"
    );
}

/// What happens to two of three nodes, and no vote of these two counts afterwards. The client's thread is
/// blocked meanwhile, as if it had been stopped: it learns of it with the next reply.
async fn is_seen_before_the_next_vote(what: &str, happens: impl Fn(&RedisServer)) {
    let (cluster, client) = ready().await;
    let before = markers(&cluster);
    // Late in the pause between two looks, so that none comes to help.
    for server in &cluster.servers[..2] {
        happens(server);
    }
    let error = match client.try_lock("job").ttl(MAX_TTL).renew(false).await {
        Ok(lease) => panic!("{what}: {lease:?}"),
        Err(error) => error,
    };
    assert_eq!(failures(&error).len(), 2, "{what}: {error}");
    // And it is written on the nodes, so that others know.
    eventually_async(what, async || {
        let markers = markers(&cluster);
        let waits = |n: usize| markers[n].contains("state quarantine") && markers[n] != before[n];
        waits(0) && waits(1) && markers[2] == before[2]
    })
    .await;
    let other = builder(&cluster.urls()).connect().await.unwrap();
    let error = locks(&other).await.unwrap_err();
    let waits = |error: &&NodeError| matches!(error, NodeError::Quarantined(_));
    assert!(failures(&error).iter().any(waits), "{what}: {error}");
}

/// The same with a process that is stopped while it happens: it votes for nothing of it when it goes on.
async fn is_seen_by_who_was_stopped(what: &str, happens: impl Fn(&RedisServer)) {
    let (cluster, _) = ready().await;
    let mut asker = Asker::start(&cluster.urls());
    assert_eq!(asker.tries(), "granted", "{what}");
    asker.signal("STOP");
    for server in &cluster.servers[..2] {
        happens(server);
    }
    asker.signal("CONT");
    let said = asker.tries();
    assert!(said.starts_with("refused by 2 nodes"), "{what}: {said}");
}

/// A process that tries to acquire a lock for each line that it reads.
struct Asker {
    child: std::process::Child,
    said: std::io::Lines<std::io::BufReader<std::process::ChildStdout>>,
}

impl Asker {
    fn start(urls: &str) -> Self {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_asker"))
            .args([urls, "job", &MAX_TTL.as_millis().to_string()])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let said = std::io::BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            said: std::io::BufRead::lines(said),
        }
    }

    fn tries(&mut self) -> String {
        std::io::Write::write_all(self.child.stdin.as_mut().unwrap(), b"\n").unwrap();
        self.said.next().unwrap().unwrap()
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-s", name, &pid])
            .status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn whoever_was_stopped_sees_a_flush_before_the_next_vote() {
    is_seen_by_who_was_stopped("FLUSHALL", |server| {
        server.cli(&["FLUSHALL"]);
    })
    .await;
}

#[tokio::test]
async fn whoever_was_stopped_sees_a_deleted_marker_before_the_next_vote() {
    is_seen_by_who_was_stopped("DEL", |server| {
        server.cli(&["DEL", KEY]);
    })
    .await;
}

#[tokio::test]
async fn whoever_was_stopped_sees_replaced_data_before_the_next_vote() {
    let other = RedisServer::start();
    other.cli(&["SET", "some", "thing"]);
    is_seen_by_who_was_stopped("REPLICAOF and back", |server| replace_data(server, &other)).await;
}

/// Whatever the server had is replaced by what the other has.
fn replace_data(server: &RedisServer, other: &RedisServer) {
    server.cli(&["REPLICAOF", "127.0.0.1", &other.port().to_string()]);
    eventually("its data are replaced", SOON, || {
        server.cli(&["EXISTS", "some"]) == "1"
    });
    server.cli(&["REPLICAOF", "NO", "ONE"]);
}

async fn eventually_async(what: &str, condition: impl AsyncFnMut() -> bool) {
    until(what, SOON, condition).await;
}

#[tokio::test]
async fn a_flush_is_seen_before_the_next_vote() {
    is_seen_before_the_next_vote("FLUSHALL", |server| {
        server.cli(&["FLUSHALL"]);
    })
    .await;
}

#[tokio::test]
async fn a_deleted_marker_is_seen_before_the_next_vote() {
    is_seen_before_the_next_vote("DEL", |server| {
        server.cli(&["DEL", KEY]);
    })
    .await;
}

#[tokio::test]
async fn replaced_data_are_seen_before_the_next_vote() {
    let other = RedisServer::start();
    other.cli(&["SET", "some", "thing"]);
    is_seen_before_the_next_vote("REPLICAOF and back", |server| replace_data(server, &other)).await;
}

/// The replica has the very same marker, and may lack the latest locks.
#[tokio::test]
async fn data_that_come_back_from_ones_own_replica_are_seen() {
    let (cluster, client) = ready().await;
    let server = &cluster.servers[0];
    let port = server.port().to_string();
    let replica = RedisServer::start_args(&["--replicaof", "127.0.0.1", &port]);
    let is_synced = || replica.cli(&["EXISTS", KEY]) == "1";
    eventually("it is synced", SOON, is_synced);
    let before = server.cli(&["GET", KEY]);
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    server.cli(&["SET", "only", "here"]);
    server.cli(&["REPLICAOF", "127.0.0.1", &replica.port().to_string()]);
    let is_replaced = || server.cli(&["EXISTS", "only"]) == "0";
    eventually("its data are replaced", SOON, is_replaced);
    server.cli(&["REPLICAOF", "NO", "ONE"]);
    until("it is in quarantine", SOON, async || {
        let _ = locks(&client).await;
        let marker = server.cli(&["GET", KEY]);
        marker != before && marker.contains("state quarantine")
    })
    .await;
}

/// Without tracking the marker is read behind each vote.
#[tokio::test]
async fn a_connection_that_cannot_track_sees_a_flush_too() {
    let cluster = Cluster::start(3);
    let mut urls = Vec::new();
    for server in &cluster.servers {
        let rights = ["on", ">x", "~*", "&*", "+@all", "-client|tracking"];
        server.cli(&[&["ACL", "SETUSER", "bob"], &rights[..]].concat());
        urls.push(format!("redis://bob:x@127.0.0.1:{}", server.port()));
    }
    let urls = urls.join(",");
    init(&urls).await.unwrap();
    let client = builder(&urls).connect().await.unwrap();
    votes(&client).await;
    for server in &cluster.servers[..2] {
        server.cli(&["FLUSHALL"]);
    }
    let error = locks(&client).await.unwrap_err();
    assert_eq!(failures(&error).len(), 2, "{error}");
}

#[tokio::test]
async fn what_only_looks_like_a_loss_costs_no_vote() {
    let (cluster, client) = ready().await;
    let before = markers(&cluster);
    for server in &cluster.servers {
        server.cli(&["CONFIG", "SET", "repl-backlog-ttl", "1"]);
        server.cli(&["CONFIG", "SET", "tracking-table-max-keys", "10"]);
        server.cli(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        let port = server.port().to_string();
        let replica = RedisServer::start_args(&["--replicaof", "127.0.0.1", &port]);
        let is_synced = || replica.cli(&["EXISTS", KEY]) == "1";
        eventually("it is synced", SOON, is_synced);
        drop(replica);
        let dump = server.dir().join("copy.rdb");
        server.cli(&["--rdb", dump.to_str().unwrap()]);
        server.cli(&["-n", "1", "SET", "a", "b"]);
        server.cli(&["-n", "1", "FLUSHDB"]);
        // Fills the table of those who track, so that others are evicted from it.
        let mut tracker = std::process::Command::new("redis-cli");
        tracker.args(["-3", "-s"]).arg(server.socket());
        tracker.stdin(std::process::Stdio::piped());
        let mut tracker = tracker.stdout(std::process::Stdio::null()).spawn().unwrap();
        let mut words = String::from("CLIENT TRACKING ON\n");
        for n in 0..200 {
            words += &format!("GET key-{n}\n");
        }
        std::io::Write::write_all(&mut tracker.stdin.take().unwrap(), words.as_bytes()).unwrap();
        tracker.wait().unwrap();
        locks(&client).await.unwrap();
    }
    // Longer than the backlog lives, and than it takes to look again.
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        locks(&client).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(markers(&cluster), before);
}

fn durable() -> Vec<RedisServer> {
    let args = ["--appendonly", "yes", "--appendfsync", "always"];
    (0..3).map(|_| RedisServer::start_args(&args)).collect()
}

#[tokio::test]
async fn a_server_of_a_durable_cluster_votes_at_once_after_a_restart_until_the_promise_is_broken() {
    let servers = durable();
    let mut cluster = Cluster { servers };
    let promised = InitOptions::new().fresh(true).durable(true);
    builder(&cluster.urls()).init(promised).await.unwrap();
    let client = builder(&cluster.urls()).connect().await.unwrap();
    votes(&client).await;
    for n in 0..2 {
        cluster.servers[n].restart();
    }
    let again = builder(&cluster.urls()).connect().await.unwrap();
    votes(&again).await;
    // Struck while it runs; the next restart is one like any other.
    for n in 0..2 {
        cluster.servers[n].cli(&["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]);
        eventually_async("it is struck", async || {
            cluster.servers[n]
                .cli(&["GET", KEY])
                .contains("durable false")
        })
        .await;
        cluster.servers[n].restart();
    }
    let last = builder(&cluster.urls()).connect().await.unwrap();
    let error = locks(&last).await.unwrap_err();
    assert!(
        error.to_string().contains("votes again by itself"),
        "{error}"
    );
}

#[tokio::test]
async fn what_is_not_durable_cannot_be_promised_to_be() {
    let cluster = Cluster::start(3);
    let promised = InitOptions::new().fresh(true).durable(true);
    let error = builder(&cluster.urls()).init(promised).await.unwrap_err();
    assert!(error.to_string().contains("appendfsync always"), "{error}");
    assert_eq!(cluster.leftovers(), [""; 0]);
}

/// A server says that its append-only file is enabled as soon as that is asked for. Whatever it is told before
/// the first one is complete is lost with it.
#[tokio::test]
async fn a_file_that_is_not_complete_yet_cannot_be_promised_to_be_durable() {
    let cluster = Cluster::start(3);
    for server in &cluster.servers {
        server.cli(&["MSET", "a", "1", "b", "1", "c", "1", "d", "1"]);
        server.cli(&["CONFIG", "SET", "appendfsync", "always"]);
        // Microseconds for each key.
        server.cli(&["CONFIG", "SET", "rdb-key-save-delay", "2000000"]);
        server.cli(&["CONFIG", "SET", "appendonly", "yes"]);
    }
    let promised = || InitOptions::new().fresh(true).durable(true);
    let is_complete = |server: &RedisServer| {
        let info = server.cli(&["INFO", "persistence"]);
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0")
    };
    assert!(!cluster.servers.iter().all(is_complete), "slow enough");
    // It waits for that, but not for ever.
    if builder(&cluster.urls()).init(promised()).await.is_err() {
        for server in &cluster.servers {
            eventually_async("it is complete", async || is_complete(server)).await;
        }
        eventually_async("it is promised", async || {
            builder(&cluster.urls()).init(promised()).await.is_ok()
        })
        .await;
    }
    assert!(cluster.servers.iter().all(is_complete), "before it counts");
}

/// What the maker of a cluster leaves behind that dies after it has proposed it on so many nodes, and
/// committed it on so many of these.
async fn half_done(cluster: &Cluster, proposed: usize, committed: usize) {
    init(&cluster.urls()).await.unwrap();
    let mut servers: Vec<_> = cluster.servers.iter().collect();
    servers.sort_by_key(|server| server.url());
    for (n, server) in servers.into_iter().enumerate() {
        let marker = server.cli(&["GET", KEY]) + "\n";
        let pending = marker.replace("state active", "state pending");
        let pending = pending.replace("fresh false", "fresh true");
        assert_ne!(marker, pending);
        match n {
            n if n < committed => {}
            n if n < proposed => drop(server.cli(&["SET", KEY, &pending])),
            _ => drop(server.cli(&["DEL", KEY])),
        }
    }
}

#[tokio::test]
async fn what_a_crash_left_half_done_is_finished_by_the_next_client() {
    for (proposed, committed) in [(1, 0), (2, 0), (3, 0), (3, 1), (3, 2)] {
        let cluster = Cluster::start(3);
        half_done(&cluster, proposed, committed).await;
        // Whoever has another list neither uses nor disturbs it.
        let more = Cluster::start(2);
        let longer = format!("{},{}", cluster.urls(), more.urls());
        let before = markers(&cluster);
        assert!(init(&longer).await.is_err(), "{proposed} {committed}");
        assert_eq!(markers(&cluster), before, "{proposed} {committed}");
        let client = builder(&cluster.urls()).connect().await.unwrap();
        votes(&client).await;
        eventually_async("all are active", async || {
            let markers = markers(&cluster);
            markers.iter().all(|marker| marker.contains("state active"))
        })
        .await;
    }
}

/// Lists of three that share one, two or all nodes: whoever wins, each node belongs to one cluster, and a
/// cluster that is active anywhere is active on all its nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racing_initialisations_never_make_two_clusters_on_one_node() {
    for shared in 1..=3 {
        let servers = Cluster::start(6 - shared);
        let urls: Vec<_> = servers.servers.iter().map(RedisServer::url).collect();
        let lists = [urls[..3].join(","), urls[3 - shared..].join(",")];
        let racing = lists
            .clone()
            .map(|list| tokio::spawn(async move { init(&list).await }));
        let mut made = 0;
        for outcome in racing {
            made += usize::from(outcome.await.unwrap().is_ok());
        }
        let markers = markers(&servers);
        let active = |list: &str| {
            let nodes = markers.iter().zip(&urls);
            let of_list = nodes.filter(|(_, url)| list.split(',').any(|node| node == url.as_str()));
            let mut sorted: Vec<_> = list.split(',').collect();
            sorted.sort_unstable();
            let line = format!("nodes {}\n", sorted.join(","));
            let is_active =
                |marker: &str| marker.contains("state active") && marker.contains(&line);
            of_list.filter(|(marker, _)| is_active(marker)).count()
        };
        let counts = lists.each_ref().map(|list| active(list));
        match shared {
            3 => assert_eq!((made, counts), (2, [3, 3]), "the same cluster"),
            _ => {
                assert!(made <= 1, "{shared} shared: {counts:?}");
                assert!(
                    counts.iter().all(|n| [0, 3].contains(n)),
                    "{shared}: {markers:?}"
                );
            }
        }
        // And whoever has which list: one of them holds the lock, or none.
        let [one, other] = lists.each_ref().map(|list| builder(list).build().unwrap());
        let (one, other) = tokio::join!(one.try_lock("job"), other.try_lock("job"));
        assert!(
            one.is_err() || other.is_err(),
            "{shared} shared: {one:?} {other:?}"
        );
    }
}
