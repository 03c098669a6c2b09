//! Hearing what a Redis server publishes to those who wait: over every route, among the answers to
//! commands, for users with few rights, and after a server was mute.
//! Every wait has a deadline: nothing here may hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fencepost::internals::{Node, Notice};
use fencepost_tests::{RedisServer, ServerOptions, wait_until};
use tokio::net::{TcpListener, TcpStream};

use crate::on_redis::{Hearing, name, open, wake_up};

/// How late something may happen on a busy machine.
const LATE: Duration = Duration::from_secs(20);
/// What is told about a lock `job` by Redisson.
const FOREIGN_CHANNEL: &str = "redisson_lock__channel:{job}";

fn subscribers(server: &RedisServer, channel: &str) -> u32 {
    let answer = server.cli(&["PUBSUB", "NUMSUB", channel]);
    answer.lines().last().unwrap().parse().unwrap()
}

#[tokio::test]
async fn wake_ups_are_heard_over_every_route_and_with_every_login() {
    let server = RedisServer::start_with(ServerOptions {
        args: ["--requirepass", "secret"].map(str::to_owned).to_vec(),
        password: Some("secret".into()),
    });
    let (port, socket) = (server.port(), server.socket());
    let socket = socket.display();
    server.cli(&["ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all"]);
    for url in [
        format!("redis://:secret@127.0.0.1:{port}"),
        format!("redis://bob:pw@127.0.0.1:{port}/3"),
        format!("redis://:secret@127.0.0.1:{port}/3?protocol=resp3"),
        format!("redis+unix://{socket}?pass=secret"),
        format!("redis+unix://{socket}?db=3&user=bob&pass=pw"),
    ] {
        let node = open(&url);
        let mut hearing = Hearing::of(&node).await;
        hearing.is_woken_by(&server).await;
        drop(hearing);
        let channel = Hearing::channel();
        let nobody = || subscribers(&server, &channel) == 0;
        wait_until("the listener has gone", LATE, nobody).await;
    }
}

/// Commands and their answers go to and fro on the same connection meanwhile: no message may be taken for
/// an answer, nor an answer for a message, and the connection stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_is_heard_once_and_in_order_while_channels_come_and_go() {
    const ROUNDS: usize = 40;
    const AT_ONCE: usize = 50;
    const PUBLISH: &str = "for n = ARGV[2], ARGV[3] do \
        redis.call('PUBLISH', ARGV[1], '1' .. string.format('%d', n)) end";
    let server = RedisServer::start();
    let node = open(&server.url());
    let mut hearing = Hearing::of(&node).await;
    let publishing = tokio::task::spawn_blocking(move || {
        for round in 0..ROUNDS {
            let (first, last) = (round * AT_ONCE, (round + 1) * AT_ONCE - 1);
            let (first, last) = (first.to_string(), last.to_string());
            let channel = Hearing::channel();
            server.cli(&["EVAL", PUBLISH, "0", &channel, &first, &last]);
        }
        server
    });
    let mut followed = 0;
    while !publishing.is_finished() {
        let names = ["a", "b", "c"].map(name);
        let _listeners = names.each_ref().map(|name| node.follow(name));
        // Heard in time, or the channels were switched back at once: both may happen, by chance.
        tokio::time::sleep(Duration::from_micros(followed % 7 * 300)).await;
        followed += 1;
    }
    let server = publishing.await.unwrap();
    let mut told = 0;
    while told < ROUNDS * AT_ONCE {
        match hearing.next().await {
            Notice::Freed(_) | Notice::Changed(_) => {}
            notice => {
                assert_eq!(notice, wake_up(&told.to_string()));
                told += 1;
            }
        }
    }
    assert!(followed > 3, "only {followed} times");
    let channels = || server.cli(&["PUBSUB", "CHANNELS"]);
    wait_until("the others are left", LATE, || {
        channels() == Hearing::channel()
    })
    .await;
}

/// It may neither leave a channel nor say PING: the server answers all the same, which is all that counts.
#[tokio::test]
async fn a_user_who_may_only_subscribe_hears() {
    let server = RedisServer::start();
    let rules = "ACL SETUSER bob on >pw ~* &* -@all +subscribe +@scripting +@read +@write +time";
    server.cli(&rules.split(' ').collect::<Vec<_>>());
    let node = open(&server.url().replace("redis://", "redis://bob:pw@"));
    let mut hearing = Hearing::of(&node).await;
    for _ in 0..2 {
        let listener = node.follow(&name("job"));
        assert_eq!(hearing.next().await, Notice::Freed(name("job")));
        server.cli(&["PUBLISH", FOREIGN_CHANNEL, "0"]);
        assert_eq!(hearing.next().await, Notice::Freed(name("job")));
        server.cli(&["ACL", "LOG", "RESET"]);
        drop(listener);
        until_refused(&server, "unsubscribe").await;
        hearing.is_woken_by(&server).await;
    }
    until_refused(&server, "ping").await;
    hearing.is_woken_by(&server).await;
}

async fn until_refused(server: &RedisServer, command: &str) {
    let refused = || server.cli(&["ACL", "LOG"]).contains(command);
    wait_until(command, LATE, refused).await;
}

/// A server that hangs keeps its connections open: only asking it tells.
#[tokio::test]
async fn a_server_that_was_mute_is_heard_again() {
    let server = RedisServer::start();
    let relay = Relay::to(&server).await;
    let node = open(&relay.url);
    node.ready().await;
    let mut hearing = Hearing::of(&node).await;
    let before = relay.taken();
    server.freeze();
    // Nobody sends commands, so that this is the listener.
    let again = || relay.taken() > before;
    wait_until("it connects again", LATE, again).await;
    server.thaw();
    assert_eq!(hearing.next().await, Notice::Listening);
    let alone = || subscribers(&server, &Hearing::channel()) == 1;
    wait_until("the earlier tries are gone", LATE, alone).await;
    // A machine that is so slow that it was taken for mute again has said so.
    while hearing.has_more() {
        assert_eq!(hearing.next().await, Notice::Listening);
    }
    hearing.is_woken_by(&server).await;
}

/// Takes connections for a server, and counts them.
struct Relay {
    url: String,
    taken: Arc<AtomicUsize>,
}

impl Relay {
    async fn to(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let taken = Arc::new(AtomicUsize::new(0));
        let (counter, port) = (Arc::clone(&taken), server.port());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { url, taken }
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}
