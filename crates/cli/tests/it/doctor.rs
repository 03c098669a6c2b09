//! `fencepost doctor` names what is wrong with deliberately bad nodes, and how to fix it.

use std::time::Duration;

use fencepost_tests::{
    GroupSetup, RedisCluster, RedisServer, SentinelGroups, ServerOptions, eventually, free_port,
};
use serde_json::Value;

use crate::bench::Bench;

fn diagnose(bench: &Bench, store: &str, options: &[&str]) -> (Option<i32>, Value) {
    let ran = bench.run(&[&["doctor", "--json", "--store", store], options].concat());
    let json = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{ran:?}"));
    (ran.code, json)
}

/// What was found of the node with that place in the configuration: its kind, severity, and words.
fn findings(json: &Value, place: usize) -> Vec<(String, String, String)> {
    let node = json["nodes"][place]["node"]
        .as_str()
        .expect("as it is printed");
    let all = json["findings"]
        .as_array()
        .expect("as it is printed")
        .iter();
    let of_it = all.filter(|finding| finding["node"] == node);
    let text =
        |finding: &Value, key: &str| finding[key].as_str().expect("as it is printed").to_owned();
    of_it
        .map(|it| {
            let words = format!("{} {}", text(it, "why"), text(it, "fix"));
            (text(it, "what"), text(it, "severity"), words)
        })
        .collect()
}

/// Asserts that the node has that finding, with these words.
fn finds(json: &Value, place: usize, what: &str, severity: &str, says: &[&str]) {
    let found = findings(json, place);
    let it = found.iter().find(|finding| finding.0 == what);
    let it = it.unwrap_or_else(|| panic!("{what}: {json:#}"));
    assert_eq!(it.1, severity, "{what}: {}", it.2);
    for words in says {
        assert!(it.2.contains(words), "{what}: {words}: {}", it.2);
    }
}

const TRUST: [&str; 2] = ["--restart-policy", "trust"];

#[test]
fn good_nodes_are_called_good_and_the_table_shows_them() {
    let bench = Bench::new();
    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start_args(&always)).collect();
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let ran = bench.run(&["init", "--fresh", "--durable", "--store", &urls.join(",")]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let keys = servers[0].cli(&["KEYS", "*"]);
    let (code, json) = diagnose(&bench, &urls.join(","), &[]);
    assert_eq!(code, Some(0), "{json:#}");
    assert_eq!(json["voters"], 3);
    // A round trip may be long on a busy machine.
    let mut found = json["findings"].as_array().unwrap().iter();
    assert!(found.all(|it| it["what"] == "latency"), "{json:#}");
    let left = servers[0].cli(&["KEYS", "*"]);
    assert_eq!(left, keys, "nothing is left behind");
    let ran = bench.run(&["doctor", "--store", &urls.join(",")]);
    assert_eq!(ran.code, Some(0));
    for words in ["aof always", "master", "loopback", "3 of 3 nodes can vote"] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
}

#[test]
fn a_server_that_evicts_and_a_replica_and_a_closed_port_are_named() {
    let bench = Bench::new();
    let lru = ["--maxmemory", "50mb", "--maxmemory-policy", "allkeys-lru"];
    let evicts = RedisServer::start_args(&lru);
    let port = evicts.port().to_string();
    let replica = RedisServer::start_args(&["--replicaof", "127.0.0.1", &port]);
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let store = [evicts.url(), replica.url(), nobody].join(",");
    let (code, json) = diagnose(&bench, &store, &TRUST);
    assert_eq!(code, Some(69), "{json:#}");
    let says = ["allkeys-lru", "CONFIG SET maxmemory-policy noeviction"];
    finds(&json, 0, "eviction", "unsafe", &says);
    finds(&json, 1, "replica", "unsafe", &["address of a master"]);
    finds(
        &json,
        2,
        "unreachable",
        "unsafe",
        &["refused", "start the server"],
    );
    let ran = bench.run(&[&["doctor", "--store", &store], &TRUST[..]].concat());
    assert_eq!(ran.code, Some(69));
    for words in ["unsafe\n", "fix: ", "no quorum: 0 of 3 nodes can vote"] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    // On one node eviction is a matter of taste.
    let (code, json) = diagnose(&bench, &evicts.url(), &TRUST);
    assert_eq!(code, Some(0), "{json:#}");
    finds(&json, 0, "eviction", "warning", &["allkeys-lru"]);
}

#[test]
fn a_server_that_hangs_is_named() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    server.freeze();
    let (code, json) = diagnose(&bench, &server.url(), &TRUST);
    assert_eq!(code, Some(69), "{json:#}");
    finds(
        &json,
        0,
        "timeout",
        "unsafe",
        &["no answer within", "hangs"],
    );
    server.thaw();
}

#[test]
fn one_server_under_two_names_and_an_even_number_are_named() {
    let bench = Bench::new();
    let servers = RedisServer::start_many(2);
    let socket = format!("redis+unix://{}", servers[0].socket().display());
    let store = [servers[0].url(), servers[1].url(), socket].join(",");
    let (code, json) = diagnose(&bench, &store, &TRUST);
    assert_eq!(code, Some(1), "two of three can vote: {json:#}");
    let says = ["vote twice", &servers[0].url()];
    finds(&json, 2, "same_server", "unsafe", &says);
    let both = [servers[0].url(), servers[1].url()].join(",");
    let (code, json) = diagnose(&bench, &both, &TRUST);
    assert_eq!(code, Some(0), "{json:#}");
    let even = json["findings"].as_array().unwrap().iter();
    assert!(even.clone().any(|it| it["what"] == "even"), "{json:#}");
}

#[test]
fn a_server_that_was_restarted_just_now_is_named_by_the_policy() {
    let bench = Bench::new();
    let servers = RedisServer::start_many(3);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let (code, json) = diagnose(&bench, &urls.join(","), &[]);
    assert_eq!(code, Some(69), "{json:#}");
    let says = ["belongs to no cluster yet", "fencepost init --fresh"];
    finds(&json, 0, "membership", "unsafe", &says);
    let ran = bench.run(&["init", "--store", &urls.join(",")]);
    assert!(ran.out.contains("is formed, and votes in "), "{ran:?}");
    let (code, json) = diagnose(&bench, &urls.join(","), &[]);
    assert_eq!(code, Some(69), "{json:#}");
    let says = ["does not vote for another", "CONFIG SET appendfsync always"];
    finds(&json, 0, "restarted", "unsafe", &says);
    let (code, json) = diagnose(&bench, &urls.join(","), &TRUST);
    assert_eq!(code, Some(0), "{json:#}");
    let says = ["still votes", "--restart-policy delay"];
    finds(&json, 0, "restarted", "warning", &says);
}

/// Servers with a user that may do everything but `what`, and the store of that user.
fn without(what: &str, nodes: usize) -> (Vec<RedisServer>, String) {
    let servers = RedisServer::start_many(nodes);
    let urls = servers.iter().map(|server| {
        let grant = ["reset", "on", ">pw", "~*", "&*", "+@all", what];
        server.cli(&[&["ACL", "SETUSER", "app"], &grant[..]].concat());
        format!("redis://app:pw@127.0.0.1:{}", server.port())
    });
    let store = urls.collect::<Vec<_>>().join(",");
    (servers, store)
}

/// It said "3 of 3 nodes can vote" of servers that every client refuses.
#[test]
fn servers_that_hide_their_role_do_not_vote_in_a_quorum() {
    let bench = Bench::new();
    let (servers, store) = without("-info", 3);
    let ran = bench.run(&[&["acquire", "job", "--store", &store], &TRUST[..]].concat());
    assert!(ran.code != Some(0) && ran.err.contains("+info"), "{ran:?}");
    let (code, json) = diagnose(&bench, &store, &TRUST);
    assert_eq!((code, &json["voters"]), (Some(69), &0.into()), "{json:#}");
    for place in 0..3 {
        let says = ["role hidden, so it does not vote", "ACL SETUSER app +info"];
        finds(&json, place, "hidden", "unsafe", &says);
    }
    for server in &servers {
        server.cli(&["ACL", "SETUSER", "app", "+info"]);
    }
    let (code, json) = diagnose(&bench, &store, &TRUST);
    assert_eq!((code, &json["voters"]), (Some(0), &3.into()), "{json:#}");
}

/// It said "restarted less than 60s ago", for ever.
#[test]
fn a_server_that_hides_its_uptime_is_not_called_restarted() {
    let bench = Bench::new();
    let (_servers, store) = without("-info", 1);
    let (code, json) = diagnose(&bench, &store, &[]);
    assert_eq!(code, Some(0), "{json:#}");
    let says = ["cannot tell when it started", "ACL SETUSER app +info"];
    finds(&json, 0, "hidden_start", "note", &says);
    assert_eq!(json["nodes"][0]["quarantine_ms"], Value::Null);
    let found = findings(&json, 0);
    assert!(found.iter().all(|it| it.0 != "restarted"), "{json:#}");
    let (_, json) = diagnose(&bench, &store, &["--restart-policy", "delay"]);
    finds(&json, 0, "hidden_start", "unsafe", &["only after 1m"]);
}

/// It advised one server to run `init --durable`, which refuses it; and called a server good that does not sync while a
/// child saves, or that votes late after a restart because its marker has no promise.
#[test]
fn advice_about_persistence_can_be_followed_and_is_enough() {
    let bench = Bench::new();
    let alone = RedisServer::start();
    let (_, json) = diagnose(&bench, &alone.url(), &[]);
    let found = findings(&json, 0);
    let about = |it: &&(String, String, String)| ["restarted", "persistence"].contains(&&*it.0);
    let (_, _, words) = found
        .iter()
        .find(about)
        .unwrap_or_else(|| panic!("{json:#}"));
    assert!(
        words.contains("CONFIG SET no-appendfsync-on-rewrite no"),
        "{words}"
    );
    assert!(!words.contains("init"), "{words}");

    let always = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start_args(&always)).collect();
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let store = urls.join(",");
    let ran = bench.run(&["init", "--fresh", "--store", &store]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (_, json) = diagnose(&bench, &store, &[]);
    let says = ["nobody has promised", "run `fencepost init --durable`"];
    finds(&json, 0, "persistence", "note", &says);
    let ran = bench.run(&["init", "--durable", "--store", &store]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (_, json) = diagnose(&bench, &store, &[]);
    let is_told =
        |json: &Value, place| findings(json, place).iter().any(|it| it.0 == "persistence");
    assert!(!is_told(&json, 0), "{json:#}");
    servers[0].cli(&["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]);
    let (_, json) = diagnose(&bench, &store, &[]);
    finds(
        &json,
        0,
        "persistence",
        "note",
        &["does not sync every write", "on-rewrite no"],
    );
    assert!(!is_told(&json, 1), "{json:#}");
}

/// The doctor looked at the uptime: right after `init --fresh` it called nodes unsafe that voted, and a
/// flushed one, or one of another cluster, good.
#[test]
fn whether_a_node_votes_is_judged_by_its_marker() {
    let bench = Bench::new();
    let servers = RedisServer::start_many(4);
    let mut urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let other = urls.join(",");
    urls.pop();
    let store = urls.join(",");
    let ran = bench.run(&["init", "--fresh", "--store", &store]);
    assert_eq!(ran.out, "the cluster is ready\n", "{ran:?}");
    let (code, json) = diagnose(&bench, &store, &[]);
    assert_eq!((code, &json["voters"]), (Some(0), &3.into()), "{json:#}");

    assert_eq!(servers[0].cli(&["FLUSHALL"]), "OK");
    let (code, json) = diagnose(&bench, &store, &[]);
    assert_eq!((code, &json["voters"]), (Some(1), &2.into()), "{json:#}");
    finds(
        &json,
        0,
        "membership",
        "unsafe",
        &["lost its marker", "wait"],
    );

    let (code, json) = diagnose(&bench, &other, &[]);
    assert_eq!(code, Some(69), "{json:#}");
    finds(
        &json,
        1,
        "membership",
        "unsafe",
        &["belongs to the cluster ", &urls[2]],
    );
    let (code, json) = diagnose(&bench, &store, &["--max-ttl", "2m"]);
    assert_eq!(code, Some(69), "{json:#}");
    finds(&json, 1, "membership", "unsafe", &["use --max-ttl 1m"]);
}

#[test]
fn missing_rights_are_named_with_the_rule_that_grants_them() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let grant = ["reset", "on", ">pw", "~*", "&*", "+@all", "-evalsha"];
    server.cli(&[&["ACL", "SETUSER", "app"], &grant[..]].concat());
    let store = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let (code, json) = diagnose(&bench, &store, &TRUST);
    assert_eq!(code, Some(69), "{json:#}");
    let says = ["may not use EVALSHA", "ACL SETUSER app +evalsha"];
    finds(&json, 0, "acl", "unsafe", &says);
    // The rule is exact: with it, all is well.
    server.cli(&["ACL", "SETUSER", "app", "+evalsha"]);
    let (code, json) = diagnose(&bench, &store, &TRUST);
    assert_eq!(code, Some(0), "{json:#}");
    assert!(!findings(&json, 0).iter().any(|it| it.0.starts_with("acl")));

    let grant = [
        "reset",
        "on",
        ">pw",
        "~other:*",
        "+@all",
        "-info",
        "-zscan",
        "-config|get",
    ];
    server.cli(&[&["ACL", "SETUSER", "poor"], &grant[..]].concat());
    let store = format!("redis://poor:pw@127.0.0.1:{}", server.port());
    let (_, json) = diagnose(&bench, &store, &TRUST);
    finds(
        &json,
        0,
        "acl",
        "unsafe",
        &["keys such as", "ACL SETUSER poor ~*"],
    );
    finds(&json, 0, "acl_checks", "warning", &["+info +config|get"]);
    finds(&json, 0, "acl_list", "note", &["+zscan"]);
    finds(&json, 0, "acl_waking", "warning", &["&fencepost:wake:*"]);
}

#[test]
fn a_wrong_password_is_named_and_not_shown() {
    let bench = Bench::new();
    let server = RedisServer::start_with(ServerOptions {
        args: vec!["--requirepass".into(), "right".into()],
        password: Some("right".into()),
    });
    for login in [":wr0ng@", ""] {
        let store = format!("redis://{login}127.0.0.1:{}", server.port());
        let (code, json) = diagnose(&bench, &store, &TRUST);
        assert_eq!(code, Some(69), "{json:#}");
        finds(
            &json,
            0,
            "auth",
            "unsafe",
            &["user and password in the URL"],
        );
        assert!(!json.to_string().contains("wr0ng"));
    }
}

#[test]
fn the_file_of_this_machine_is_looked_at_too() {
    let bench = Bench::new();
    let ran = bench.run(&["doctor"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("SQLite 3."), "{ran:?}");
    assert!(ran.out.contains("1 of 1 nodes can vote"), "{ran:?}");
    // It was just made, as one that is mistyped would be.
    let says = "the file was missing, and has been created";
    assert!(
        ran.out.contains("\nwarnings\n") && ran.out.contains(says),
        "{ran:?}"
    );
    let ran = bench.run(&["doctor"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.out.contains(says), "{ran:?}");
    for store in ["file:mistyped.db", "file:any.db?filesystem=any"] {
        for expected in [1, 0] {
            let (code, json) = diagnose(&bench, store, &[]);
            assert_eq!(code, Some(0), "{json:#}");
            let found = findings(&json, 0);
            let created = found.iter().filter(|it| it.0 == "created");
            assert_eq!(created.count(), expected, "{json:#}");
        }
    }
    let bad = format!("file:{}", bench.path("").display());
    let (code, json) = diagnose(&bench, &bad, &[]);
    assert_eq!(code, Some(69), "{json:#}");
    finds(&json, 0, "store", "unsafe", &["it is a directory"]);
    let ran = bench.run(&["doctor", "--store", "file:a,file:b,file:c"]);
    assert!(ran.err.contains("local to this machine"), "{ran:?}");
}

#[test]
fn a_sentinel_group_is_judged_by_what_a_failover_would_do() {
    let bench = Bench::new();
    let groups = SentinelGroups::start(1, &GroupSetup::default());
    let store = groups.url_of(0, "a");
    let ttl = ["--max-ttl", "5s"];
    let (_, json) = diagnose(&bench, &store, &ttl);
    let waits = ["waits for 9s once", "init --fresh"];
    finds(&json, 0, "membership", "unsafe", &waits);
    let made = bench.run(&["init", "--fresh", "--store", &store, ttl[0], ttl[1]]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let (code, json) = diagnose(&bench, &store, &ttl);
    assert_eq!(code, Some(0), "{json:#}");
    // One second until it is noticed, then the TTL and two failover times of two seconds.
    finds(
        &json,
        0,
        "failover",
        "note",
        &["for about 10s", "three groups"],
    );
    let sentinel = &json["nodes"][0]["sentinel"];
    assert_eq!(
        (&sentinel["naming"], &sentinel["promotable"]),
        (&3.into(), &1.into())
    );

    // Two seconds are more than half of three.
    let (_, json) = diagnose(&bench, &store, &["--max-ttl", "3s"]);
    finds(
        &json,
        0,
        "max-lag",
        "warning",
        &["is 2s", "half of --max-ttl"],
    );
    let (_, json) = diagnose(&bench, &format!("{store}&replicas=2"), &ttl);
    finds(
        &json,
        0,
        "promotable",
        "warning",
        &["2 replicas, and 1 can"],
    );

    let group = &groups.groups[0];
    group.servers[0].cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    group.servers[1].cli(&["CONFIG", "SET", "replica-priority", "0"]);
    groups.sentinels[2].freeze();
    let demanding = format!("{store}&replicas=2");
    let is_seen = || {
        let (code, json) = diagnose(&bench, &demanding, &ttl);
        assert_eq!(code, Some(69), "{json:#}");
        finds(
            &json,
            0,
            "unfenced",
            "unsafe",
            &["min-replicas-to-write is 0", "redis.conf"],
        );
        finds(
            &json,
            0,
            "replicas",
            "unsafe",
            &["2 replicas, and 1 are attached"],
        );
        finds(&json, 0, "sentinel", "warning", &["2 of 3 Sentinels name"]);
        findings(&json, 0)
            .iter()
            .any(|(what, ..)| what == "no-replica")
    };
    // A Sentinel asks the replicas every ten seconds.
    eventually(
        "no replica can be promoted",
        Duration::from_secs(60),
        is_seen,
    );
    groups.sentinels[2].thaw();

    let (code, json) = diagnose(&bench, &groups.sentinels[0].url(), &[]);
    assert_eq!(code, Some(69), "{json:#}");
    finds(
        &json,
        0,
        "sentinel",
        "unsafe",
        &["redis+sentinel://SENTINEL1,SENTINEL2,SENTINEL3/MASTER"],
    );
}

/// It said that no node could vote, while the names of the other shards were used.
#[test]
fn a_redis_cluster_that_has_lost_a_shard_still_votes_for_the_names_of_the_others() {
    let bench = Bench::new();
    let mut cluster = RedisCluster::start(3, 0);
    let store = cluster.url();
    let ttl = ["--max-ttl", "5s"];
    let made = bench.run(&["init", "--fresh", "--store", &store, ttl[0], ttl[1]]);
    assert_eq!(made.code, Some(0), "{made:?}");
    cluster.servers[2].kill();
    eventually("the shard is missed", Duration::from_secs(30), || {
        let (code, json) = diagnose(&bench, &store, &ttl);
        let all = json.to_string();
        code == Some(1) && (all.contains("cannot be asked") || all.contains("served by no shard"))
    });
    let ran = bench.run(&["doctor", "--store", &store, ttl[0], ttl[1]]);
    assert!(ran.out.contains("1 of 1 nodes can vote"), "{ran:?}");
}

#[test]
fn a_redis_cluster_is_judged_by_what_a_failover_of_a_shard_would_do() {
    let bench = Bench::new();
    let cluster = RedisCluster::start(3, 1);
    let store = cluster.url();
    let ttl = ["--max-ttl", "5s"];
    let (_, json) = diagnose(&bench, &store, &ttl);
    let waits = ["waits for 7s once", "init --fresh"];
    finds(&json, 0, "membership", "unsafe", &waits);
    let made = bench.run(&["init", "--fresh", "--store", &store, ttl[0], ttl[1]]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let (code, json) = diagnose(&bench, &store, &ttl);
    assert_eq!(code, Some(0), "{json:#}");
    // One second until it is noticed, then the TTL and two failover times of one second.
    finds(
        &json,
        0,
        "failover",
        "note",
        &["for about 8s", "Sentinel groups"],
    );
    finds(
        &json,
        0,
        "min-replicas",
        "note",
        &["min-replicas-to-write is 0"],
    );
    let facts = &json["nodes"][0]["redis_cluster"];
    assert_eq!(
        (&facts["listed"], &facts["answering"]),
        (&3.into(), &3.into())
    );
    assert_eq!(facts["shards"][0]["promotable"], 1);

    let master = &cluster.servers[0];
    master.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    cluster.servers[4].cli(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]);
    let demanding = format!("{store}&replicas=2");
    eventually(
        "the replica is told not to",
        Duration::from_secs(20),
        || {
            let (code, json) = diagnose(&bench, &demanding, &ttl);
            assert_eq!(code, Some(69), "{json:#}");
            finds(
                &json,
                0,
                "max-lag",
                "warning",
                &["is 10s", "half of --max-ttl"],
            );
            finds(
                &json,
                0,
                "promotable",
                "warning",
                &["2 replicas, and 1 of 127.0.0.1"],
            );
            finds(
                &json,
                0,
                "replicas",
                "unsafe",
                &["2 replicas, and 1 are attached"],
            );
            findings(&json, 0)
                .iter()
                .any(|(what, ..)| what == "no-replica")
        },
    );

    let (code, json) = diagnose(&bench, &master.url(), &[]);
    assert_eq!(code, Some(69), "{json:#}");
    finds(
        &json,
        0,
        "cluster",
        "unsafe",
        &["redis+cluster://NODE1,NODE2,NODE3"],
    );
}

#[test]
fn a_list_that_is_not_the_groups_and_a_quorum_that_cannot_be_are_named() {
    let bench = Bench::new();
    let groups = SentinelGroups::start(1, &GroupSetup::default());
    let store = groups.url_of(0, "a");
    for sentinel in &groups.sentinels {
        sentinel.cli(&["SENTINEL", "SET", "m0", "quorum", "4"]);
    }
    let (_, json) = diagnose(&bench, &store, &[]);
    let says = [
        "needs 4 Sentinels to agree, and there are 3",
        "SENTINEL SET",
    ];
    finds(&json, 0, "sentinel-quorum", "warning", &says);
    assert!(!findings(&json, 0).iter().any(|it| it.0 == "sentinel-list"));
    let (begin, rest) = store.split_once(',').unwrap();
    let fewer = format!("{begin},{}", rest.split_once(',').unwrap().1);
    let (_, json) = diagnose(&bench, &fewer, &[]);
    let says = [
        "know 3 of themselves, and the URL lists 2",
        "list all of them",
    ];
    finds(&json, 0, "sentinel-list", "warning", &says);
    // What the user may not see is not called unsafe.
    let poor = ["on", ">x", "~*", "&*", "+@all", "-config"];
    let master = &groups.groups[0].servers[0];
    master.cli(&[&["ACL", "SETUSER", "poor"], &poor[..]].concat());
    let (code, json) = diagnose(&bench, &store.replace("://:x@", "://poor:x@"), &[]);
    assert_eq!(code, Some(69), "{json:#}");
    let says = ["cannot tell", "+config|get on every server of the group"];
    finds(&json, 0, "fencing-hidden", "unsafe", &says);
    assert!(!findings(&json, 0).iter().any(|it| it.0 == "unfenced"));
}

/// A hidden time-out was told as a server that has to be started.
#[test]
fn listed_nodes_that_do_not_answer_or_tell_or_that_differ_are_named() {
    let bench = Bench::new();
    let cluster = RedisCluster::start(3, 0);
    let store = cluster.url();
    let (nodes, failover) = store.split_once('?').unwrap();
    let nobody = format!("{nodes},127.0.0.1:{}?{failover}", free_port());
    let (_, json) = diagnose(&bench, &nobody, &[]);
    let says = [
        "3 of 4 listed nodes answer",
        "refused",
        "correct their addresses",
    ];
    finds(&json, 0, "cluster-list", "warning", &says);

    for server in &cluster.servers {
        let poor = ["on", ">x", "~*", "&*", "+@all", "-config"];
        server.cli(&[&["ACL", "SETUSER", "poor"], &poor[..]].concat());
    }
    let poor = nodes.replace("://", "://poor:x@");
    let (code, json) = diagnose(&bench, &poor, &[]);
    assert_eq!(code, Some(69), "{json:#}");
    let says = ["cluster-node-timeout is hidden", "+config|get", "failover="];
    finds(&json, 0, "fencing-hidden", "unsafe", &says);

    let set = ["CONFIG", "SET", "cluster-node-timeout", "5000"];
    assert_eq!(cluster.servers[1].cli(&set), "OK");
    let (_, json) = diagnose(&bench, nodes, &[]);
    finds(
        &json,
        0,
        "node-timeout",
        "warning",
        &["is 1s at one", "and 5s at another"],
    );
    let (_, json) = diagnose(&bench, &store, &[]);
    assert!(!findings(&json, 0).iter().any(|it| it.0 == "node-timeout"));
}

#[test]
fn a_user_that_may_not_wait_for_replicas_is_named_where_votes_do() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let poor = ["on", ">x", "~*", "&*", "+@all", "-wait"];
    server.cli(&[&["ACL", "SETUSER", "poor"], &poor[..]].concat());
    let store = format!("redis://poor:x@127.0.0.1:{}", server.port());
    let (_, json) = diagnose(&bench, &store, &TRUST);
    assert!(
        !findings(&json, 0).iter().any(|it| it.0 == "acl"),
        "{json:#}"
    );
    let (code, json) = diagnose(&bench, &format!("{store}?replicas=1"), &TRUST);
    assert_eq!(code, Some(69), "{json:#}");
    let says = ["may not use WAIT", "ACL SETUSER poor +wait"];
    finds(&json, 0, "acl", "unsafe", &says);
}
