//! `list` and `watch`.

use std::fs;

use fencepost_tests::{Cluster, RedisServer, eventually, free_port};
use serde_json::Value;

use crate::bench::{Bench, LIMIT};

/// What an empty list says.
const NOTHING: &str =
    "no lock that fencepost knows of is held; `fencepost status NAME` looks at one\n";

fn names(json: &str) -> Vec<String> {
    let json: Value = serde_json::from_str(json).expect("as it is printed");
    let locks = json["locks"].as_array().expect("as it is printed").iter();
    locks
        .map(|lock| lock["lock"].as_str().expect("as it is printed").to_owned())
        .collect()
}

/// The program had a list of schemes of its own, and refused them.
#[test]
fn a_store_may_be_called_valkey() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let tcp = server.url().replace("redis://", "valkey://");
    let unix = format!("valkey+unix://{}", server.socket().display());
    for store in [&tcp, &unix] {
        let ran = bench.run(&["list", "--store", store]);
        assert_eq!(ran.out, NOTHING, "{ran:?}");
    }
    // And over TLS, where these certificates are looked at first.
    let words = [
        "list",
        "--store",
        "valkeys://127.0.0.1:1",
        "--tls-ca",
        "missing",
    ];
    let ran = bench.run(&words);
    assert!(ran.err.contains("missing"), "{ran:?}");
}

/// It said "no lock is held" while clients of other libraries held some that nobody had asked fencepost for.
#[test]
fn an_empty_list_does_not_deny_locks_of_other_clients_and_says_how_to_look_at_one() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    server.cli(&["SET", "job", "theirs", "PX", "60000"]);
    server.cli(&[
        "HSET",
        "rlock",
        "8743c9c0-0795-4907-87fd-6c719a6b4586:1",
        "1",
    ]);
    let run = |words: &[&str]| bench.run(&[words, &["--store", &server.url()]].concat());
    assert_eq!(run(&["list"]).out, NOTHING);
    let ran = run(&["status", "job"]);
    assert!(ran.out.contains("theirs"), "{ran:?}");
    let ran = run(&["status", "rlock"]);
    assert!(ran.out.contains("8743c9c0"), "{ran:?}");
}

#[test]
fn the_locks_that_are_held_are_listed_on_every_store() {
    let (one, three) = (Cluster::start(1), Cluster::start(3));
    let trust = ["--restart-policy", "trust"];
    for store in [None, Some(one.urls()), Some(three.urls())] {
        let bench = Bench::new();
        let store = store.as_deref().map_or(vec![], |url| vec!["--store", url]);
        let run = |words: &[&str]| bench.run(&[words, &store, &trust].concat());
        assert_eq!(run(&["list"]).out, NOTHING);
        // What was only asked about is not remembered.
        assert_eq!(run(&["release", "never", "--value", "v"]).code, Some(79));
        assert_eq!(run(&["list", "--all"]).out, "no lock is remembered\n");
        for name in ["job-1", "job-2", "{t}odd", "other"] {
            assert_eq!(run(&["acquire", name]).code, Some(0));
        }
        let words = [&["run", "past"], &store[..], &trust, &["--", "true"]].concat();
        assert_eq!(bench.run(&words).code, Some(0));

        // The run went on when a majority had given its lock back.
        eventually("what is held, and nothing else", LIMIT, || {
            let all = run(&["list", "--json"]);
            assert_eq!(all.code, Some(0), "{all:?}");
            names(&all.out) == ["job-1", "job-2", "other", "{t}odd"]
        });
        assert_eq!(
            names(&run(&["list", "job-?", "--json"]).out),
            ["job-1", "job-2"]
        );
        assert_eq!(
            names(&run(&["list", "p*", "--all", "--json"]).out),
            ["past"]
        );
        let none = NOTHING.replace("knows of", "knows of and that matches the pattern");
        assert_eq!(run(&["list", "none-*"]).out, none);
        let table = run(&["list", "other"]).out;
        let mut lines = table.lines();
        assert!(lines.next().unwrap().starts_with("lock "), "{table}");
        assert!(lines.next().unwrap().starts_with("other  "), "{table}");
        assert_eq!(lines.next(), None);
    }
}

#[test]
fn a_server_is_scanned_and_what_is_no_lock_is_not_shown() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let url = server.url();
    for key in ["session:1", "plain", "a:queue", "{}:queue"] {
        server.cli(&["SET", key, "data"]);
    }
    server.cli(&["HSET", "hash", "a", "1"]);
    server.cli(&["SET", "foreign", "value", "PX", "60000"]);
    bench.run(&["acquire", "job", "--store", &url]);
    bench.run(&["acquire", "gone", "--store", &url]);
    server.cli(&["DEL", "gone"]);
    // A foreign client holds a lock that we know.
    server.cli(&["SET", "gone", "my_random_value", "NX", "PX", "60000"]);
    let ran = bench.run(&["list", "--json", "--store", &url]);
    assert_eq!(names(&ran.out), ["gone", "job"], "{ran:?}");
    assert!(ran.out.contains("my_random_value"), "{ran:?}");
    let stats = server.cli(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_zscan:") && !stats.contains("cmdstat_keys:"));
}

#[test]
fn a_list_of_many_locks_is_whole() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let script = "local now = redis.call('TIME')[1] .. '000000' \
                  for i = 1, 5000 do \
                  redis.call('ZADD', 'fencepost:fences', now, 'n' .. i); \
                  redis.call('SET', 'n' .. i, 'v') end";
    server.cli(&["EVAL", script, "0"]);
    let url = server.url();
    let ran = bench.run(&["list", "--json", "--store", &url]);
    assert_eq!(names(&ran.out).len(), 5000);
}

#[test]
fn a_list_without_a_majority_is_69() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let nobody = || format!("redis://127.0.0.1:{}", free_port());
    for (store, says) in [
        (nobody(), "cannot connect"),
        (
            [server.url(), nobody(), nobody()].join(","),
            "1 of 3 nodes answered",
        ),
    ] {
        let words = ["list", "--store", &store, "--restart-policy", "trust"];
        let ran = bench.run_until(&words, says);
        assert_eq!(ran.code, Some(69), "{ran:?}");
    }
}

#[test]
fn each_change_of_the_holder_is_a_line() {
    let bench = Bench::new();
    let seen = bench.path("seen");
    let mut watch = bench.command(&["watch", "job", "--every", "50ms", "--json"]);
    let mut watch = watch
        .stdout(fs::File::create(&seen).unwrap())
        .spawn()
        .unwrap();
    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&seen).unwrap();
        let whole = text.lines().take(text.matches('\n').count());
        whole
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    eventually("the first look", LIMIT, || lines().len() == 1);
    assert_eq!(lines()[0]["held"], false);
    let held = bench.run(&["acquire", "job", "--json"]);
    let held: Value = serde_json::from_str(&held.out).unwrap();
    eventually("it is held", LIMIT, || lines().len() == 2);
    assert_eq!(lines()[1]["held"], true);
    assert_eq!(lines()[1]["token"], held["token"]);
    let value = held["value"].as_str().unwrap();
    assert_eq!(
        bench.run(&["release", "job", "--value", value]).code,
        Some(0)
    );
    eventually("it is free", LIMIT, || lines().len() == 3);
    assert_eq!(lines()[2]["held"], false);
    watch.kill().unwrap();
    watch.wait().unwrap();
    // In words, and to its end when nobody reads any more.
    let ran = bench.script(r#""$F" watch job --every 50ms | head -n 1"#);
    assert!(ran.out.ends_with("Z  free\n"), "{ran:?}");
}
