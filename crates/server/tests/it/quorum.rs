//! Two replicas over real Redis servers: any of them serves any lease.

use std::time::{Duration, Instant};

use fencepost_server::Options;
use fencepost_tests::Cluster;
use serde_json::json;

use crate::service::Replica;

pub(crate) fn replica(cluster: &Cluster) -> Replica {
    let urls = cluster.urls();
    Replica::start(Options::new(), async move || {
        let builder = fencepost::Client::builder().url(urls);
        let builder = builder.restart_policy(fencepost::RestartPolicy::Trust);
        builder.connect().await.unwrap()
    })
}

#[test]
fn a_lease_of_one_replica_is_extended_and_released_at_another_also_when_the_first_is_gone() {
    let cluster = Cluster::start(3);
    let (one, two) = (replica(&cluster), replica(&cluster));
    let mine = one
        .post("/v1/acquire", &json!({ "name": "job", "ttl": "20s" }))
        .json();
    drop(one);
    two.post("/v1/acquire", &json!({ "name": "job" }))
        .is_problem(409, "held");
    let lease = json!({ "name": "job", "lease": mine["lease"], "token": mine["token"] });
    let extended = two.post("/v1/extend", &json!({ "leases": [lease] })).json();
    assert_eq!(extended["leases"][0]["outcome"], "extended", "{extended}");
    let released = two.post(
        "/v1/release",
        &json!({ "name": "job", "lease": mine["lease"] }),
    );
    assert_eq!(released.status, 200, "{released:?}");
    assert_eq!(
        two.post("/v1/acquire", &json!({ "name": "job" })).status,
        200
    );
}

#[test]
fn a_replica_without_a_quorum_says_so_node_by_node_and_lives_on() {
    let mut cluster = Cluster::start(3);
    let service = replica(&cluster);
    assert_eq!(service.get("/readyz").status, 200);
    cluster.servers.truncate(1);
    fencepost_tests::eventually("no quorum is seen", Duration::from_secs(20), || {
        service.get("/readyz").status == 503
    });
    let unready = service.get("/readyz");
    unready.is_problem(503, "no_quorum");
    assert_eq!(unready.json()["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(service.get("/livez").status, 200);
    let refused = service.post("/v1/acquire", &json!({ "name": "job" }));
    refused.is_problem(503, "no_quorum");
    assert_eq!(refused.json()["nodes"].as_array().unwrap().len(), 3);
}

/// The release by the value goes on in the background, so that the lease id is found nowhere later.
#[test]
fn a_release_that_is_repeated_after_too_few_nodes_answered_is_no_loss() {
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let service = Replica::start(Options::new(), async move || {
        let builder = fencepost::Client::builder().url(urls);
        let builder = builder.restart_policy(fencepost::RestartPolicy::Trust);
        let builder = builder.node_timeout(Duration::from_millis(300)).replica();
        builder.connect().await.unwrap()
    });
    let ask = json!({ "name": "job", "ttl": "60s" });
    let mine = service.post("/v1/acquire", &ask).json();
    let release = json!({ "name": "job", "lease": mine["lease"] });
    cluster.servers[..2]
        .iter()
        .for_each(|server| server.freeze());
    service
        .post("/v1/release", &release)
        .is_problem(503, "no_quorum");
    cluster.servers[..2].iter().for_each(|server| server.thaw());
    let is_free = || service.get("/v1/locks?name=job").json()["held"] == false;
    fencepost_tests::eventually("it is released", Duration::from_secs(20), is_free);
    service
        .post("/v1/release", &release)
        .is_problem(410, "released");
}

/// Each extension and each refusal of a lease id waited for a node time-out: the lease was looked for at all nodes.
#[test]
fn a_node_that_hangs_delays_no_extension_no_release_and_no_refusal() {
    const NODE_TIMEOUT: Duration = Duration::from_secs(8);
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let service = Replica::start(Options::new(), async move || {
        let builder = fencepost::Client::builder().url(urls);
        let builder = builder.restart_policy(fencepost::RestartPolicy::Trust);
        let builder = builder.node_timeout(NODE_TIMEOUT).replica();
        builder.connect().await.unwrap()
    });
    cluster.servers[1].freeze();
    let ids = [format!("{:032x}", 1), format!("{:032x}", 2)];
    let start = Instant::now();
    let ask = json!({ "name": "job", "lease": ids[0], "ttl": "30s" });
    let mine = service.post("/v1/acquire", &ask).json();
    let rival = json!({ "name": "job", "lease": ids[1], "attempt": 2 });
    service.post("/v1/acquire", &rival).is_problem(409, "held");
    let lease = json!({ "name": "job", "lease": ids[0], "token": mine["token"] });
    for _ in 0..3 {
        let extended = service.post("/v1/extend", &json!({ "leases": [lease] }));
        let extended = extended.json();
        assert_eq!(extended["leases"][0]["outcome"], "extended", "{extended}");
    }
    let release = json!({ "name": "job", "lease": ids[0] });
    assert_eq!(service.post("/v1/release", &release).status, 200);
    let took = start.elapsed();
    assert!(took < NODE_TIMEOUT, "{took:?}");
}

/// Whatever it has, it is no majority.
#[test]
fn a_node_that_hangs_delays_no_word_of_a_lease_that_is_over() {
    const NODE_TIMEOUT: Duration = Duration::from_secs(8);
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let service = Replica::start(Options::new(), async move || {
        let builder = fencepost::Client::builder().url(urls);
        let builder = builder.restart_policy(fencepost::RestartPolicy::Trust);
        let builder = builder.node_timeout(NODE_TIMEOUT).replica();
        builder.connect().await.unwrap()
    });
    let mine = service
        .post("/v1/acquire", &json!({ "name": "job" }))
        .json();
    let other = json!({ "name": "job", "lease": format!("{:032x}", 1), "token": mine["token"] });
    cluster.servers[1].freeze();
    let start = Instant::now();
    let over = service.post("/v1/extend", &json!({ "leases": [other] }));
    assert_eq!(over.json()["leases"][0]["outcome"], "lost", "{over:?}");
    assert_eq!(over.json()["leases"][0]["reason"], "stolen", "{over:?}");
    let release = json!({ "name": "job", "lease": format!("{:032x}", 2) });
    service
        .post("/v1/release", &release)
        .is_problem(410, "lost");
    let took = start.elapsed();
    assert!(took < NODE_TIMEOUT, "{took:?}");
}

/// They were said not to have answered, and that it was worth asking again.
#[test]
fn nodes_that_refuse_until_somebody_acts_are_not_said_to_be_silent() {
    let cluster = Cluster::start(3);
    let service = replica(&cluster);
    for server in &cluster.servers {
        server.cli(&["ZADD", "fencepost:fences", "9007199254740991", "job"]);
    }
    let refused = service.post("/v1/acquire", &json!({ "name": "job" }));
    refused.is_problem(503, "unusable");
    let problem = refused.json();
    assert_eq!(problem["title"], "Nodes need an operator");
    assert_eq!(problem["nodes"].as_array().unwrap().len(), 3);
    assert!(problem.get("retry_after_ms").is_none(), "{problem}");
    assert!(refused.text.contains("tokens are exhausted"), "{problem}");
}
