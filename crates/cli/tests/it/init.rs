//! `fencepost init`: a cluster of servers that nobody with another list can use.

use fencepost_tests::Cluster;

use crate::bench::Bench;

#[test]
fn a_fresh_cluster_can_be_used_at_once_and_only_with_its_own_list() {
    let cluster = Cluster::start(4);
    let mut urls: Vec<_> = cluster.servers.iter().map(|server| server.url()).collect();
    // As the error names them.
    urls.sort_unstable();
    let (store, other) = (urls[..3].join(","), urls.join(","));
    let bench = Bench::new();
    let ran = bench.run(&["init", "--fresh", "--store", &store]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (Some(0), "the cluster is ready\n")
    );
    let ran = bench.run(&[
        "run", "job", "--wait", "10s", "--store", &store, "--", "true",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = bench.run(&[
        "run", "job", "--wait", "10s", "--store", &other, "--", "true",
    ]);
    assert_ne!(ran.code, Some(0));
    assert!(
        ran.err.contains(&store) && ran.err.contains(&urls[3]),
        "{ran:?}"
    );
    let ran = bench.run(&["init", "--fresh", "--store", &other]);
    assert_eq!(ran.code, Some(69), "{ran:?}");
}

/// `init --fresh` called a cluster ready whose nodes did not vote for another minute, because the first
/// client had been faster; and the error of that client advised to run it.
#[test]
fn a_cluster_that_does_not_vote_yet_is_not_called_ready() {
    let cluster = Cluster::start(3);
    let (bench, store) = (Bench::new(), cluster.urls());
    let first = bench.run(&["run", "job", "--no-wait", "--store", &store, "--", "true"]);
    assert_eq!(first.code, Some(69), "{first:?}");
    assert!(
        first.err.contains("only before the first client"),
        "{first:?}"
    );
    let ran = bench.run(&["init", "--fresh", "--store", &store]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("exists already") && ran.out.contains("votes in "),
        "{ran:?}"
    );
}

#[test]
fn one_server_alone_needs_no_cluster() {
    let cluster = Cluster::start(1);
    let bench = Bench::new();
    let ran = bench.run(&["init", "--store", &cluster.urls()]);
    assert!(
        ran.err
            .contains("expected 2 to 9 nodes, one Sentinel group or one Redis Cluster, got 1"),
        "{ran:?}"
    );
}
