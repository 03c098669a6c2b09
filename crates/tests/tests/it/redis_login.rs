//! How a Redis node logs in, and what its URL and its user's rights say, and that
//! clients of other libraries find its keys.
//! Every wait has a deadline: nothing here may hang.

use std::time::Duration;

use fencepost::diagnostics::Facts;
use fencepost::internals::Node;
use fencepost::internals::redis::{RedisOptions, Roster};
use fencepost::{Client, ErrorKind, FencingToken, NodeError};
use fencepost_core::lock::Reply;
use fencepost_tests::{RedisServer, ServerOptions};

use crate::on_redis::{Lock, down, for_small_tokens, open, open_with, try_open, within};

const SOON: Duration = Duration::from_secs(10);

/// A client refused them, though a node did not.
#[tokio::test]
async fn urls_may_say_valkey() {
    let server = RedisServer::start();
    let tcp = server.url().replace("redis://", "valkey://");
    let unix = format!("valkey+unix://{}", server.socket().display());
    for url in [&tcp, &unix] {
        let locks = Client::connect(url).await.unwrap();
        let lease = locks.try_lock("job").ttl(SOON).renew(false).await.unwrap();
        lease.release().await.unwrap();
        let surveys = Client::builder().url(url).survey().await.unwrap();
        assert!(matches!(surveys[0].facts, Ok(Facts::Redis(_))), "{url}");
    }
    // By whatever name, a server votes once.
    let error = Client::connect(&format!("{tcp},{}", server.url())).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("list each server once"), "{error}");
}

#[tokio::test]
async fn a_wrong_password_is_told_and_the_right_one_is_found_later() {
    let server = with_password("right");
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}", server.port());
    let right = open(&url("right"));
    Lock::new("job").granted(&right).await;
    let wrong = open(&url("wrong"));
    let none = open(&server.url());
    for node in [&wrong, &none] {
        let error = within(SOON, node.hello()).await.unwrap_err();
        assert!(matches!(error, NodeError::Auth(_)), "{error:?}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    server.cli(&["CONFIG", "SET", "requirepass", "wrong"]);
    within(SOON, wrong.ready()).await;
    Lock::new("other").granted(&wrong).await;
}

#[tokio::test]
async fn a_password_that_changes_in_use_counts_from_the_next_connection_on() {
    let server = with_password("first");
    let node = open(&format!("redis://:first@127.0.0.1:{}", server.port()));
    let lock = Lock::new("job");
    lock.granted(&node).await;
    server.cli(&["CONFIG", "SET", "requirepass", "second"]);
    assert_eq!(lock.extend(&node).await, Ok(Reply::Extended));
    let second = |words: &[&str]| {
        let all = [&["-a", "second", "--no-auth-warning"], words].concat();
        server.cli(&all)
    };
    second(&["CLIENT", "KILL", "TYPE", "normal"]);
    let error = down(&node, &lock).await;
    assert!(matches!(error, NodeError::Auth(_)), "{error}");
    second(&["CONFIG", "SET", "requirepass", "first"]);
    within(SOON, node.ready()).await;
    assert_eq!(lock.extend(&node).await, Ok(Reply::Extended));
}

fn with_password(password: &str) -> RedisServer {
    RedisServer::start_with(ServerOptions {
        args: vec!["--requirepass".into(), password.into()],
        password: Some(password.into()),
    })
}

#[tokio::test]
async fn a_user_with_only_what_a_lock_needs_can_lock() {
    let server = RedisServer::start();
    server.cli(&[
        "ACL",
        "SETUSER",
        "bob",
        "on",
        ">p@ss/#%",
        "~*",
        "-@all",
        "+@scripting",
        "+@read",
        "+@write",
        "+time",
    ]);
    let node = open(&format!(
        "redis://bob:p%40ss%2F%23%25@127.0.0.1:{}",
        server.port()
    ));
    let lock = Lock::new("job");
    lock.granted(&node).await;
    assert_eq!(lock.release(&node).await, Ok(Reply::Released));
}

#[tokio::test]
async fn a_user_that_may_not_run_scripts_is_told_so() {
    let server = RedisServer::start();
    server.cli(&["ACL", "SETUSER", "eve", "on", ">x", "~*", "-@all", "+@read"]);
    let node = open(&format!("redis://eve:x@127.0.0.1:{}", server.port()));
    let error = within(SOON, Lock::new("job").acquire(&node))
        .await
        .unwrap_err();
    assert!(matches!(error, NodeError::Permission(_)), "{error:?}");
}

#[tokio::test]
async fn database_socket_and_protocol_come_from_the_url() {
    let server = RedisServer::start();
    let socket = server.socket();
    let socket = socket.display();
    for (i, url) in [
        format!("{}/3", server.url()),
        format!("redis+unix://{socket}?db=3"),
        format!("unix://{socket}?db=3&protocol=resp3"),
        format!("{}/3?protocol=resp3", server.url()),
    ]
    .iter()
    .enumerate()
    {
        let node = open(url);
        let lock = Lock::new(&format!("job-{i}"));
        lock.granted(&node).await;
        let stored = server.cli(&["-n", "3", "GET", lock.name()]);
        let token = FencingToken::new(1).unwrap();
        assert_eq!(stored, fencepost_tests::stored(lock.value(), token));
        assert!(matches!(lock.inspect(&node).await, Ok(Reply::Snapshot(_))));
        assert_eq!(lock.extend(&node).await, Ok(Reply::Extended));
        let other = Lock::new(lock.name());
        assert!(matches!(other.acquire(&node).await, Ok(Reply::Held(_))));
        assert_eq!(lock.release(&node).await, Ok(Reply::Released));
    }
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_told() {
    let server = RedisServer::start();
    let node = open(&format!("{}/99", server.url()));
    let error = within(SOON, node.hello()).await.unwrap_err();
    assert!(error.to_string().contains("DB index"), "{error}");
}

#[tokio::test]
async fn any_redlock_client_excludes_us_and_we_it() {
    let server = RedisServer::start();
    let node = open(&server.url());
    for key in ["job", "{tenant}:job"] {
        let lock = Lock::new(key);
        assert_eq!(
            server.cli(&["SET", key, "foreign", "NX", "PX", "60000"]),
            "OK"
        );
        match lock.acquire(&node).await {
            Ok(Reply::Held(holder)) => {
                assert_eq!(holder.value.owner().as_str(), "foreign");
                assert!(holder.remaining.unwrap() > Duration::from_secs(50));
            }
            other => panic!("{other:?}"),
        }
        server.cli(&["PERSIST", key]);
        match lock.acquire(&node).await {
            Ok(Reply::Held(holder)) => assert_eq!(holder.remaining, None),
            other => panic!("{other:?}"),
        }
        server.cli(&["DEL", key]);
        lock.granted(&node).await;
        assert!(server.cli(&["GET", key]).ends_with(":tester"));
        assert_eq!(
            server.cli(&["SET", key, "foreign", "NX", "PX", "60000"]),
            ""
        );
        let ttl: u64 = server.cli(&["PTTL", key]).parse().unwrap();
        assert!((50_000..=60_000).contains(&ttl));
    }
    assert_eq!(server.cli(&["ZCARD", "fencepost:fences"]), "2");
}

#[tokio::test]
async fn a_prefix_stands_before_every_key() {
    let server = RedisServer::start();
    let options = RedisOptions {
        prefix: "app:".into(),
        ..for_small_tokens()
    };
    let node = open_with(&server.url(), options, &Roster::default());
    let lock = Lock::new("job");
    lock.granted(&node).await;
    assert_eq!(server.cli(&["EXISTS", "app:job", "fencepost:fences"]), "2");
    assert_eq!(
        server.cli(&["ZRANGE", "fencepost:fences", "0", "-1"]),
        "app:job"
    );
    assert_eq!(server.cli(&["DBSIZE"]), "2");
}

#[tokio::test]
async fn a_url_that_cannot_be_used_is_refused_at_once() {
    let error = try_open("redis://:secret@").err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{error}");
    assert!(!error.to_string().contains("secret"));
}
