//! Who may vote: replicas, servers that are reached twice, that evict, or that may have forgotten
//! locks in a restart do not.

use std::time::{Duration, Instant};

use fencepost::NodeError;
use fencepost::internals::Node;
use fencepost::internals::redis::{Eviction, RedisNode, RedisOptions, Roster};
use fencepost_core::lock::Reply;
use fencepost_tests::{RedisServer, until};

use crate::on_redis::{Lock, open_with, quarantined, within};

const SOON: Duration = Duration::from_secs(15);

async fn refusal(node: &RedisNode) -> NodeError {
    let told = within(SOON, node.hello()).await.unwrap_err();
    let called = within(SOON, Lock::new("job").acquire(node))
        .await
        .unwrap_err();
    assert_eq!(told, called);
    told
}

fn open(url: &str, roster: &Roster) -> RedisNode {
    open_with(url, RedisOptions::default(), roster)
}

#[tokio::test]
async fn a_replica_does_not_vote_until_it_is_a_master() {
    let master = RedisServer::start();
    let port = master.port().to_string();
    let replica = RedisServer::start_args(&["--replicaof", "127.0.0.1", &port]);
    let node = open(&replica.url(), &Roster::default());
    assert_eq!(refusal(&node).await, NodeError::Replica);
    replica.cli(&["REPLICAOF", "NO", "ONE"]);
    within(SOON, node.ready()).await;
    Lock::new("job").granted(&node).await;
}

#[tokio::test]
async fn a_master_that_becomes_a_replica_grants_nothing() {
    let master = RedisServer::start();
    let demoted = RedisServer::start();
    let node = open(&demoted.url(), &Roster::default());
    Lock::new("job").granted(&node).await;
    demoted.cli(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    let error = Lock::new("other").acquire(&node).await.unwrap_err();
    assert!(
        matches!(error, NodeError::ReadOnly(_) | NodeError::Disconnected(_)),
        "{error:?}"
    );
}

#[tokio::test]
async fn one_server_by_two_addresses_is_one_vote() {
    let server = RedisServer::start();
    let roster = Roster::default();
    let first = open(&server.url(), &roster);
    Lock::new("job").granted(&first).await;
    let name = format!("redis://localhost:{}", server.port());
    let socket = format!("redis+unix://{}", server.socket().display());
    for url in [&name, &socket, &server.url()] {
        let second = open(url, &roster);
        assert_eq!(refusal(&second).await, NodeError::SameServer(server.url()));
    }
    // The first keeps its vote when it reconnects, and gives it back when it goes.
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    let second = open(&name, &roster);
    assert!(matches!(refusal(&second).await, NodeError::SameServer(_)));
    until_it_votes(&first).await;
    assert!(matches!(refusal(&second).await, NodeError::SameServer(_)));
    drop(first);
    within(SOON, second.ready()).await;
}

#[tokio::test]
async fn two_clients_may_use_the_same_server() {
    let server = RedisServer::start();
    let one = open(&server.url(), &Roster::default());
    let two = open(&server.url(), &Roster::default());
    assert_eq!(within(SOON, one.hello()).await, Ok(()));
    assert_eq!(within(SOON, two.hello()).await, Ok(()));
}

#[tokio::test]
async fn a_server_that_evicts_does_not_vote_unless_it_is_only_to_be_warned_about() {
    let args = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = RedisServer::start_args(&args);
    let node = open(&server.url(), &Roster::default());
    assert_eq!(
        refusal(&node).await,
        NodeError::Evicts("allkeys-lru".into())
    );
    let options = RedisOptions {
        eviction: Eviction::Warn,
        ..RedisOptions::default()
    };
    let warned = open_with(&server.url(), options, &Roster::default());
    Lock::new("job").granted(&warned).await;
    // Mended by the operator, it is found at the next attempt.
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    within(SOON, node.ready()).await;
}

#[tokio::test]
async fn a_server_without_memory_says_so() {
    let server = RedisServer::start();
    let node = open(&server.url(), &Roster::default());
    Lock::new("job").granted(&node).await;
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = Lock::new("other").acquire(&node).await.unwrap_err();
    assert!(matches!(error, NodeError::OutOfMemory(_)), "{error:?}");
}

#[tokio::test]
async fn a_server_that_turns_us_away_is_quoted() {
    let server = RedisServer::start_args(&["--maxclients", "1"]);
    let only = open(&server.url(), &Roster::default());
    within(SOON, only.ready()).await;
    let second = open(&server.url(), &Roster::default());
    // The server speaks and hangs up in one breath: when our question crosses that, the connection
    // is found broken before its last words are read. The node tries again all the time.
    until("it is quoted", SOON, async || {
        let error = within(SOON, second.hello()).await.unwrap_err().to_string();
        let is_quoted = error.contains("max number of clients");
        assert!(
            is_quoted || error.contains("the connection broke"),
            "{error}"
        );
        is_quoted
    })
    .await;
    drop(only);
    within(SOON, second.ready()).await;
}

fn with_quarantine(max_ttl: Duration) -> RedisOptions {
    RedisOptions {
        quarantine: Some(max_ttl),
        ..RedisOptions::default()
    }
}

async fn until_it_votes(node: &RedisNode) {
    let votes = async || node.hello().await.is_ok();
    until("quarantine ends", SOON, votes).await;
}

#[tokio::test]
async fn a_restarted_server_does_not_vote_before_all_it_forgot_has_expired() {
    let mut server = RedisServer::start();
    let trusting = open(&server.url(), &Roster::default());
    let lock = Lock::new("job");
    lock.granted(&trusting).await;
    let max_ttl = Duration::from_secs(4);
    let started = Instant::now();
    server.restart();
    let node = open_with(&server.url(), with_quarantine(max_ttl), &Roster::default());
    let left = quarantined(within(SOON, node.hello()).await);
    assert!(left <= max_ttl + Duration::from_secs(1), "{left:?}");
    quarantined(lock.acquire(&node).await);
    quarantined(lock.steal(&node).await);
    quarantined(lock.raise(&node).await);
    // The holder from before keeps what it has, but that is no vote.
    quarantined(lock.extend(&node).await);
    quarantined(lock.extend(&node).await);
    assert!(matches!(lock.inspect(&node).await, Ok(Reply::Snapshot(_))));
    assert_eq!(lock.release(&node).await, Ok(Reply::Released));
    until_it_votes(&node).await;
    assert!(started.elapsed() >= max_ttl, "{:?}", started.elapsed());
    lock.granted(&node).await;
    assert_eq!(lock.extend(&node).await, Ok(Reply::Extended));
}

#[tokio::test]
async fn a_node_that_sees_its_server_restart_puts_it_in_quarantine() {
    let mut server = RedisServer::start();
    // Longer than it takes to find that the server is back.
    let max_ttl = Duration::from_secs(3);
    let node = open_with(&server.url(), with_quarantine(max_ttl), &Roster::default());
    until_it_votes(&node).await;
    Lock::new("job").granted(&node).await;
    server.restart();
    until("it is back", SOON, async || {
        let error = Lock::new("job").acquire(&node).await.unwrap_err();
        matches!(error, NodeError::Quarantined(_))
    })
    .await;
}

#[tokio::test]
async fn no_setting_of_a_new_process_tells_what_the_old_one_kept() {
    for fsync in ["everysec", "always"] {
        let args = ["--appendonly", "yes", "--appendfsync", fsync];
        let server = RedisServer::start_args(&args);
        let options = with_quarantine(Duration::from_secs(600));
        let node = open_with(&server.url(), options, &Roster::default());
        quarantined(within(SOON, node.hello()).await);
    }
}

#[tokio::test]
async fn a_server_whose_uptime_is_hidden_counts_as_just_started() {
    let server = RedisServer::start();
    server.cli(&["ACL", "SETUSER", "bob", "on", ">x", "~*", "+@all", "-info"]);
    let url = format!("redis://bob:x@127.0.0.1:{}", server.port());
    let max_ttl = Duration::from_secs(1);
    let node = open_with(&url, with_quarantine(max_ttl), &Roster::default());
    quarantined(within(SOON, node.hello()).await);
    until_it_votes(&node).await;
    Lock::new("job").granted(&node).await;
}
