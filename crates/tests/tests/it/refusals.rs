//! Servers that cannot vote are refused in words that say what to do, and nobody waits for what cannot
//! pass.

use std::time::{Duration, Instant};

use fencepost::{Client, Error, NodeError, NodeOutcome, RestartPolicy};
use fencepost_tests::{Cluster, RedisServer};

const TTL: Duration = Duration::from_secs(30);

/// What each node was refused for.
fn reasons(error: &Error) -> Vec<NodeError> {
    assert!(error.is_no_quorum(), "{error:?}");
    let failed = error
        .nodes()
        .iter()
        .filter_map(|report| match &report.outcome {
            NodeOutcome::Failed(error) => Some(error.clone()),
            _ => None,
        });
    failed.collect()
}

async fn refusal(url: &str) -> NodeError {
    let error = Client::connect(url).await.unwrap_err();
    reasons(&error).remove(0)
}

#[tokio::test]
async fn a_cluster_node_is_refused_and_the_right_url_named() {
    let server = RedisServer::start_args(&["--cluster-enabled", "yes"]);
    let refused = refusal(&server.url()).await;
    assert_eq!(refused, NodeError::ClusterNode);
    assert!(refused.to_string().contains("redis+cluster://"));
}

#[tokio::test]
async fn a_sentinel_is_refused_and_the_right_url_named() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("sentinel.conf");
    std::fs::write(&config, "protected-mode no\n").unwrap();
    let server = RedisServer::start_args(&[config.to_str().unwrap(), "--sentinel"]);
    let refused = refusal(&server.url()).await;
    assert_eq!(refused, NodeError::Sentinel);
    assert!(refused.to_string().contains("redis+sentinel://"));
}

#[tokio::test]
async fn a_server_that_hides_info_is_unknown_and_no_voter_among_several() {
    let cluster = Cluster::start(3);
    let mut urls = Vec::new();
    for server in &cluster.servers {
        server.cli(&[
            "ACL", "SETUSER", "bob", "on", ">x", "~*", "&*", "+@all", "-info",
        ]);
        urls.push(format!("redis://bob:x@127.0.0.1:{}", server.port()));
    }
    let builder = Client::builder().url(urls.join(","));
    let builder = builder.restart_policy(RestartPolicy::Trust);
    let error = builder.connect().await.unwrap_err();
    for reason in reasons(&error) {
        assert_eq!(reason, NodeError::HidesInfo);
        assert!(reason.to_string().contains("+info"), "{reason}");
    }
    // Alone it is warned about: it has no other to be mistaken for.
    let alone = Client::connect(&urls[0]).await.unwrap();
    drop(alone.try_lock("job").ttl(TTL).renew(false).await.unwrap());
}

#[tokio::test]
async fn every_policy_that_evicts_is_refused_in_a_quorum() {
    let limit = ["--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"];
    let servers = [(); 3].map(|()| RedisServer::start_args(&limit));
    let urls = servers.each_ref().map(RedisServer::url).join(",");
    let error = Client::connect(urls).await.unwrap_err();
    let evicts = NodeError::Evicts("volatile-ttl".into());
    assert!(reasons(&error).contains(&evicts), "{error}");
}

/// It was waited for until it was killed, or for 30 s.
#[tokio::test]
async fn nobody_waits_for_a_right_that_is_not_there() {
    let server = RedisServer::start();
    let rights = [
        "on",
        ">x",
        "~*",
        "&*",
        "+@all",
        "-@scripting",
        "-set",
        "-multi",
    ];
    server.cli(&[&["ACL", "SETUSER", "bob"], &rights[..]].concat());
    let url = format!("redis://bob:x@127.0.0.1:{}", server.port());
    let locks = Client::connect(url).await.unwrap();
    let start = Instant::now();
    let error = locks.lock("job").timeout(TTL).await.unwrap_err();
    assert!(start.elapsed() < TTL / 3, "{:?}", start.elapsed());
    let is_about_rights = |error: &NodeError| matches!(error, NodeError::Permission(_));
    assert!(reasons(&error).iter().any(is_about_rights), "{error}");
}

#[tokio::test]
async fn time_outs_without_an_end_and_holds_without_time_are_refused() {
    for (builder, option) in [
        (
            Client::builder().node_timeout(Duration::MAX),
            "node_timeout",
        ),
        (
            Client::builder().connect_timeout(Duration::MAX),
            "connect_timeout",
        ),
        (Client::builder().max_hold(Duration::ZERO), "max_hold"),
    ] {
        let error = builder.url("memory:").build().unwrap_err();
        assert!(error.to_string().contains(option), "{error}");
    }
}
