//! A process that makes a cluster is killed between its phases, while a node stands still and another wants
//! the same node for another cluster: each node belongs to one cluster, and that is finished by whoever comes
//! next.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fencepost::{Builder, Client, InitOptions, RestartPolicy};
use fencepost_tests::{Cluster, RedisServer, until};

const MAX_TTL: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(30);
const KEY: &str = "fencepost:marker";

fn builder(urls: &str) -> Builder {
    let builder = Client::builder().url(urls).max_ttl(MAX_TTL);
    builder.restart_policy(RestartPolicy::Delay)
}

fn founder(urls: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_founder"))
        .args([urls, &MAX_TTL.as_millis().to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the process as soon as that server has a marker that says so.
fn kill_once(founder: &mut Child, server: &RedisServer, says: &str) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut raw = client.get_connection().unwrap();
    let end = Instant::now() + SOON;
    loop {
        let marker: Option<String> = redis::cmd("GET").arg(KEY).query(&mut raw).unwrap();
        if marker.is_some_and(|marker| marker.contains(says)) {
            break;
        }
        assert!(Instant::now() < end, "it never says {says}");
    }
    // It may have ended by then.
    let _ = founder.kill();
    founder.wait().unwrap();
}

fn clusters(cluster: &Cluster) -> Vec<Option<(String, String)>> {
    let line = |marker: &str, key: &str| {
        let found = marker.lines().find_map(|line| line.strip_prefix(key));
        found.map(str::to_owned)
    };
    let of = |server: &RedisServer| {
        let marker = server.cli(&["GET", KEY]);
        Some((line(&marker, "cluster ")?, line(&marker, "state ")?))
    };
    cluster.servers.iter().map(of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_maker_that_is_killed_between_its_phases_leaves_no_second_cluster() {
    let mut half_done = 0;
    for (server, says) in [
        (0, "state pending"),
        (1, "state pending"),
        (2, "state pending"),
        (0, "state active"),
        (1, "state active"),
    ] {
        let mut cluster = Cluster::start(3);
        // In the order that all clients agree on: what is first decides.
        cluster.servers.sort_by_key(RedisServer::url);
        let mut founder = founder(&cluster.urls());
        kill_once(&mut founder, &cluster.servers[server], says);
        let left = clusters(&cluster);
        let is_done =
            |of: &Option<(String, String)>| of.as_ref().is_some_and(|(_, state)| state == "active");
        half_done += usize::from(!left.iter().all(is_done));

        // One node is away, and somebody wants the first one for another cluster.
        cluster.servers[2].freeze();
        let others = Cluster::start(2);
        let rival = format!("{},{}", cluster.servers[0].url(), others.urls());
        let rivals = builder(&rival).init(InitOptions::new().fresh(true)).await;
        assert!(
            rivals.is_err(),
            "{says} on {server}: the first node is taken"
        );
        cluster.servers[2].thaw();

        let client = builder(&cluster.urls()).connect().await.unwrap();
        until("it is finished", SOON, async || {
            let outcome = client.try_lock("job").renew(false).await;
            outcome.is_ok() && clusters(&cluster).iter().all(is_done)
        })
        .await;
        let found = clusters(&cluster);
        let is_same = |of: &Option<(String, String)>| *of == found[0];
        assert!(found.iter().all(is_same), "{says} on {server}: {found:?}");
        let lost = clusters(&others).into_iter().flatten().count();
        assert_eq!(lost, 0, "nothing is left of what failed");
    }
    assert!(half_done > 0, "it was never killed in the middle");
}
