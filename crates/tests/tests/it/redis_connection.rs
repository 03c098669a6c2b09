//! What happens to a Redis node when its connection or its server misbehaves.
//! Every wait has a deadline: nothing here may hang.

use std::time::{Duration, Instant};

use fencepost::NodeError;
use fencepost::internals::Node;
use fencepost::internals::redis::{RedisOptions, Roster};
use fencepost_core::lock::Reply;
use fencepost_tests::{RedisServer, eventually, free_port, until, wait_until};

use crate::on_redis::{Lock, down, open, open_with, within};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_flushed_script_is_sent_again() {
    let server = RedisServer::start();
    let node = open(&server.url());
    let lock = Lock::new("job");
    lock.granted(&node).await;
    server.cli(&["SCRIPT", "FLUSH"]);
    assert_eq!(lock.release(&node).await, Ok(Reply::Released));
    lock.granted(&node).await;
}

/// The release is on its way when the server says that it does not know the command before it. Sent
/// again behind the release, that one would take the lock for nobody.
#[tokio::test]
async fn a_script_that_is_not_known_is_not_sent_again_behind_its_release() {
    let server = RedisServer::start();
    let node = open(&server.url());
    within(SOON, node.ready()).await;
    for name in ["acquired", "stolen", "extended"] {
        let lock = Lock::new(name);
        let taken = match name {
            "acquired" => lock.acquire(&node),
            "stolen" => lock.steal(&node),
            _ => lock.extend(&node),
        };
        server.cli(&["SCRIPT", "FLUSH"]);
        // The script of a release is all that it learns again.
        Lock::new("another").release(&node).await.unwrap();
        let both = async { tokio::join!(taken, lock.release(&node)) };
        let (taken, released) = within(SOON, both).await;
        assert_eq!(server.cli(&["EXISTS", name]), "0", "{name}");
        let is_given_up = match &taken {
            Ok(Reply::Tombstoned | Reply::NotHeld(None)) => true,
            // Plain commands are not sent twice: they come before the release.
            Ok(Reply::Granted { .. }) => name == "acquired" && server.has_plain_commands(),
            _ => false,
        };
        assert!(is_given_up && released.is_ok(), "{name}: {taken:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_connection_is_replaced_without_a_failed_command() {
    let server = RedisServer::start();
    let node = open(&server.url());
    let lock = Lock::new("job");
    lock.granted(&node).await;
    let before = client_ids(&server);
    server.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    // Nobody calls: the keeper notices by itself.
    eventually("a new connection", SOON, || {
        let now = client_ids(&server);
        now.iter().any(|id| !before.contains(id))
    });
    within(SOON, node.ready()).await;
    assert!(matches!(lock.extend(&node).await, Ok(Reply::Extended)));
}

/// The ids of the server's connections, all but the one that asks, which is the latest.
fn client_ids(server: &RedisServer) -> Vec<u64> {
    let list = server.cli(&["CLIENT", "LIST"]);
    let ids = list.lines().map(|line| {
        let id = line.split(' ').next().and_then(|id| id.strip_prefix("id="));
        id.unwrap().parse().unwrap()
    });
    let mut ids: Vec<_> = ids.collect();
    ids.sort_unstable();
    ids.pop();
    ids
}

#[tokio::test]
async fn a_call_whose_connection_breaks_says_so_and_is_not_repeated() {
    let server = RedisServer::start();
    let node = open(&server.url());
    let lock = Lock::new("job");
    lock.granted(&node).await;
    server.freeze();
    let call = lock.extend(&node);
    let break_it = async {
        // The call is on its way, and a server that is frozen cannot be asked whether it has come.
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(server);
    };
    let (reply, ()) = within(SOON, async { tokio::join!(call, break_it) }).await;
    assert!(
        matches!(reply, Err(NodeError::Disconnected(_))),
        "{reply:?}"
    );
}

#[tokio::test]
async fn a_server_that_comes_back_is_used_again_and_calls_fail_fast_until_then() {
    let mut server = RedisServer::start();
    let node = open(&server.url());
    let lock = Lock::new("job");
    lock.granted(&node).await;
    server.kill();
    let error = down(&node, &lock).await;
    assert!(
        matches!(
            error,
            NodeError::Unreachable(_) | NodeError::Disconnected(_)
        ),
        "{error}"
    );
    let begin = Instant::now();
    for _ in 0..100 {
        assert!(lock.acquire(&node).await.is_err());
    }
    // With the shortest pause between two tries each it would take longer.
    assert!(begin.elapsed() < Duration::from_secs(1), "slow to fail");
    server.restart();
    within(SOON, node.ready()).await;
    assert_eq!(node.hello().await, Ok(()));
    lock.granted(&node).await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_told_by_hello_and_found_when_it_comes() {
    let node = open(&format!("redis://127.0.0.1:{}", free_port()));
    let error = within(SOON, node.hello()).await.unwrap_err();
    assert!(matches!(error, NodeError::Unreachable(_)), "{error}");
    let up = tokio::time::timeout(Duration::from_millis(50), node.ready()).await;
    assert!(up.is_err(), "ready while nobody listens");
}

#[tokio::test]
async fn a_frozen_server_is_noticed_and_used_again_when_it_thaws() {
    let server = RedisServer::start();
    let options = RedisOptions {
        mute_timeout: Duration::from_millis(200),
        connect_timeout: Duration::from_millis(300),
        ..RedisOptions::default()
    };
    let node = open_with(&server.url(), options, &Roster::default());
    let lock = Lock::new("job");
    lock.granted(&node).await;
    server.freeze();
    let begin = Instant::now();
    // This call was on its way when the server froze: it ends with its connection.
    let reply = within(SOON, lock.extend(&node)).await;
    assert!(
        matches!(reply, Err(NodeError::Disconnected(_))),
        "{reply:?}"
    );
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(250), "{took:?}");
    let error = down(&node, &lock).await;
    assert!(matches!(error, NodeError::Timeout(_)), "{error}");
    server.thaw();
    within(SOON, node.ready()).await;
    lock.release(&node).await.unwrap();
    lock.granted(&node).await;
}

#[tokio::test]
async fn a_dropped_call_makes_a_frozen_server_noticed_too() {
    let server = RedisServer::start();
    let node = open(&server.url());
    let mute_timeout = RedisOptions::default().mute_timeout;
    let lock = Lock::new("job");
    lock.granted(&node).await;
    server.freeze();
    let early = tokio::time::timeout(Duration::from_millis(20), lock.extend(&node)).await;
    assert!(early.is_err());
    // Nobody asks any more, and yet it is found out.
    let is_down = async || within(SOON, node.hello()).await.is_err();
    until("it is noticed", SOON, is_down).await;
    let begin = Instant::now();
    let reply = within(SOON, lock.extend(&node)).await;
    assert!(matches!(reply, Err(NodeError::Timeout(_))), "{reply:?}");
    assert!(begin.elapsed() < mute_timeout / 2, "it was not known yet");
}

#[tokio::test]
async fn calls_that_are_dropped_early_do_not_ping_each() {
    let mute_timeout = Duration::from_millis(400);
    let server = RedisServer::start();
    let options = RedisOptions {
        mute_timeout,
        ..RedisOptions::default()
    };
    let node = open_with(&server.url(), options, &Roster::default());
    within(SOON, node.ready()).await;
    let lock = Lock::new("job");
    let begin = Instant::now();
    for _ in 0..200 {
        let mut call = lock.extend(&node);
        poll_once(&mut call).await;
        drop(call);
        tokio::task::yield_now().await;
    }
    // Until the last of them would have been asked for: that nothing is sent, only time can tell.
    tokio::time::sleep(mute_timeout * 7 / 4).await;
    let stats = server.cli(&["INFO", "commandstats"]);
    let line = stats.lines().find(|line| line.starts_with("cmdstat_ping:"));
    let pings = line.and_then(|line| line.split(['=', ',']).nth(1)?.parse::<u128>().ok());
    // The harness itself sends one at the start, and one is sent for each time that nothing is heard.
    let most = 2 + begin.elapsed().as_millis() / mute_timeout.as_millis();
    assert!((1..=most).contains(&pings.unwrap()), "{stats}");
}

/// It was taken for mute while it answered one call after the other, because it was asked whether it is
/// there behind all of them.
#[tokio::test]
async fn a_server_that_is_behind_with_its_answers_is_not_taken_for_mute() {
    const CALLS: usize = 8000;
    let server = RedisServer::start();
    let node = open(&server.url());
    let lock = Lock::new("job");
    lock.granted(&node).await;
    // It works for another after each part of them that it reads.
    let mut other = std::process::Command::new("redis-cli")
        .arg("-s")
        .arg(server.socket())
        .args(["-r", "5000", "EVAL", "for i = 1, 3000000 do end", "0"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut calls: Vec<_> = (0..CALLS).map(|_| lock.extend(&node)).collect();
    let begin = Instant::now();
    for call in &mut calls {
        poll_once(call).await;
    }
    for call in calls {
        assert_eq!(within(6 * SOON, call).await, Ok(Reply::Extended));
    }
    println!("{CALLS} calls in {:?}", begin.elapsed());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_waited_for_a_connection_are_sent_in_their_order() {
    const CALLS: usize = 40;
    let server = RedisServer::start();
    server.freeze();
    // Leaked, so that each call can go to a task of its own: then nothing but the node orders them.
    let node: &'static _ = Box::leak(Box::new(open(&server.url())));
    let locks: &'static [Lock] = Vec::leak((0..CALLS).map(|_| Lock::new("job")).collect());
    let mut calls: Vec<_> = locks.iter().map(|lock| lock.acquire(node)).collect();
    for call in &mut calls {
        poll_once(call).await;
    }
    // A call that is given up while it waits is never sent.
    let never = calls.remove(0);
    let tasks: Vec<_> = calls.into_iter().rev().map(tokio::spawn).collect();
    drop(never);
    server.thaw();
    let mut replies = Vec::new();
    for task in tasks.into_iter().rev() {
        replies.push(within(SOON, task).await.unwrap());
    }
    assert!(
        matches!(replies[0], Ok(Reply::Granted { .. })),
        "the first in line was overtaken: {:?}",
        replies[0]
    );
    assert!(matches!(
        locks[0].release(node).await,
        Ok(Reply::NotHeld(Some(_)))
    ));
}

#[tokio::test]
async fn a_caller_that_does_not_look_holds_up_nobody() {
    let server = RedisServer::start();
    server.freeze();
    let node = open(&server.url());
    let (one, two) = (Lock::new("job"), Lock::new("job"));
    let mut unwatched = one.acquire(&node);
    poll_once(&mut unwatched).await;
    let mut other = two.acquire(&node);
    poll_once(&mut other).await;
    server.thaw();
    assert!(matches!(within(SOON, other).await, Ok(Reply::Held(_))));
    assert!(matches!(unwatched.await, Ok(Reply::Granted { .. })));
}

#[test]
fn a_node_whose_runtime_is_gone_fails_and_does_not_hang() {
    let server = RedisServer::start();
    let lock = Lock::new("job");
    let first = tokio::runtime::Runtime::new().unwrap();
    let node = first.block_on(async {
        let node = open(&server.url());
        lock.granted(&node).await;
        node
    });
    drop(first);
    let second = tokio::runtime::Runtime::new().unwrap();
    let reply = second.block_on(async { within(SOON, lock.extend(&node)).await });
    assert!(
        matches!(reply, Err(NodeError::Disconnected(_))),
        "{reply:?}"
    );
}

/// Polls once, so that it is on its way.
async fn poll_once(call: &mut fencepost::internals::Call) {
    std::future::poll_fn(|cx| {
        let _ = call.as_mut().poll(cx);
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_busy_with_a_script_says_so_and_recovers() {
    let server = RedisServer::start_args(&["--lua-time-limit", "20"]);
    let node = open(&server.url());
    let lock = Lock::new("job");
    lock.granted(&node).await;
    let endless = ["EVAL", "while true do end", "0"];
    let mut script = std::process::Command::new("redis-cli")
        .arg("-s")
        .arg(server.socket())
        .args(endless)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + SOON;
    while within(SOON, lock.extend(&node)).await != Err(NodeError::Busy) {
        assert!(Instant::now() < end, "never busy");
    }
    server.cli(&["SCRIPT", "KILL"]);
    script.wait().unwrap();
    assert_eq!(within(SOON, lock.extend(&node)).await, Ok(Reply::Extended));
}

#[tokio::test]
async fn a_dropped_node_closes_its_connection() {
    let server = RedisServer::start();
    let node = open(&server.url());
    Lock::new("job").granted(&node).await;
    assert_eq!(client_ids(&server).len(), 1);
    drop(node);
    let is_closed = || client_ids(&server).is_empty();
    wait_until("it is closed", SOON, is_closed).await;
}
