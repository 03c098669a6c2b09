//! What the proxy does to a connection is what it says, on a real server.

use std::time::{Duration, Instant};

use fencepost_faults::cluster::{Cluster, Layout};
use fencepost_faults::proxy::Rules;

fn start() -> Cluster {
    let layout = Layout {
        nodes: 1,
        proxied: true,
        ..Layout::default()
    };
    Cluster::start_on_loopback(layout).unwrap()
}

fn connect(cluster: &Cluster) -> redis::Connection {
    let client = redis::Client::open(cluster.urls()).unwrap();
    let connection = client.get_connection().unwrap();
    let limit = Some(Duration::from_millis(500));
    connection.set_read_timeout(limit).unwrap();
    connection
}

/// A script that counts how often it was carried out.
fn count(connection: &mut redis::Connection) -> redis::RedisResult<u64> {
    let mut script = redis::cmd("EVAL");
    script
        .arg("return redis.call('INCR', KEYS[1])")
        .arg(1)
        .arg("n");
    script.query(connection)
}

fn counted(cluster: &Cluster) -> u64 {
    cluster.nodes[0].ask(&["GET", "n"]).unwrap()
}

#[test]
fn a_script_whose_reply_is_lost_was_carried_out() {
    let cluster = start();
    for times in 1..=10 {
        let mut connection = connect(&cluster);
        cluster.proxies[0].set(Rules {
            lose_reply_of_one_in: Some(1),
            ..Rules::default()
        });
        assert!(count(&mut connection).is_err(), "no reply");
        assert_eq!(
            (counted(&cluster), cluster.proxies[0].lost()),
            (times, times)
        );
        cluster.proxies[0].set(Rules::default());
    }
}

#[test]
fn torn_messages_arrive_whole() {
    let cluster = start();
    cluster.proxies[0].set(Rules {
        torn: true,
        ..Rules::default()
    });
    let mut connection = connect(&cluster);
    for times in 1..=20 {
        assert_eq!(count(&mut connection).unwrap(), times);
    }
}

#[test]
fn a_message_that_is_cut_ends_its_connection() {
    let cluster = start();
    let mut connection = connect(&cluster);
    cluster.proxies[0].set(Rules {
        cut_one_in: Some(1),
        ..Rules::default()
    });
    assert!(count(&mut connection).is_err());
    cluster.proxies[0].set(Rules::default());
    assert!(count(&mut connection).is_err(), "it does not come back");
    assert!(count(&mut connect(&cluster)).is_ok());
}

#[test]
fn what_is_held_up_arrives_late_and_in_order() {
    let cluster = start();
    let mut connection = connect(&cluster);
    let held = |hold_requests, hold_replies| Rules {
        hold_requests,
        hold_replies,
        ..Rules::default()
    };
    cluster.proxies[0].set(held(true, false));
    assert!(count(&mut connection).is_err(), "nothing came in time");
    let nothing: Option<u64> = cluster.nodes[0].ask(&["GET", "n"]).unwrap();
    assert_eq!(nothing, None, "nothing arrived");
    cluster.proxies[0].set(Rules::default());
    let end = Instant::now() + Duration::from_secs(10);
    while cluster.nodes[0].ask::<Option<u64>>(&["GET", "n"]).unwrap() != Some(1) {
        assert!(Instant::now() < end, "it never arrived");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut connection = connect(&cluster);
    cluster.proxies[0].set(held(false, true));
    assert!(count(&mut connection).is_err(), "nothing came back");
    assert_eq!(counted(&cluster), 2, "and it was carried out");
}

#[test]
fn delays_hold_messages_up() {
    let cluster = start();
    let mut connection = connect(&cluster);
    cluster.proxies[0].set(Rules {
        delay: Duration::from_millis(40),
        ..Rules::default()
    });
    let begun = Instant::now();
    for times in 1..=10 {
        assert_eq!(count(&mut connection).unwrap(), times);
    }
    // Twenty messages, each held up for half of that on average.
    assert!(
        begun.elapsed() > Duration::from_millis(100),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn another_server_can_take_the_place_of_the_first() {
    let (cluster, other) = (start(), start());
    let mut connection = connect(&cluster);
    count(&mut connection).unwrap();
    cluster.proxies[0].lead_to(&other.nodes[0].socket());
    let end = Instant::now() + Duration::from_secs(10);
    while count(&mut connection).is_ok() {
        assert!(Instant::now() < end, "old connections are closed");
    }
    assert_eq!(count(&mut connect(&cluster)).unwrap(), 1);
    assert_eq!(counted(&other), 1);
}
