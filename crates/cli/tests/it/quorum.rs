//! What is said of several servers, of which some are away or have forgotten their locks: never more than was
//! observed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fencepost_tests::{Cluster, RedisServer};
use serde_json::Value;

use crate::bench::{Bench, Ran, again_until, end_of, pid_of, send};

/// Three servers that are a cluster, and vote at once.
fn cluster(bench: &Bench) -> (Cluster, String) {
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let ran = bench.run(&["init", "--fresh", "--store", &urls]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    (cluster, urls)
}

/// The same, with a holder of "job" and two servers that were restarted empty since.
fn forgetful(bench: &Bench) -> (Cluster, String, std::process::Child) {
    let (mut cluster, urls) = cluster(bench);
    let words = ["run", "job", "--ttl", "60s", "--store", &urls];
    let words = [&words[..], &["--shell", "echo >up; sleep 60"]].concat();
    let holder = bench.start_until("up", &words);
    for server in &mut cluster.servers[1..] {
        server.restart();
    }
    (cluster, urls, holder)
}

fn ends(holder: std::process::Child) {
    send("TERM", pid_of(&holder));
    end_of(holder);
}

/// The healthy one was told of as silent: the other two had answered first.
#[test]
fn a_node_that_answers_is_never_called_silent_because_others_are_dead() {
    let bench = Bench::new();
    let (mut cluster, urls) = cluster(&bench);
    cluster.servers[0].kill();
    cluster.servers[1].kill();
    let healthy = cluster.servers[2].url();
    for wait in ["0s", "500ms"] {
        let words = ["run", "job", "--wait", wait, "--store", &urls, "--", "true"];
        // A busy machine may need longer for an answer than a report can wait.
        let ran = again_until(
            "the healthy node is heard",
            || bench.run(&words),
            |ran| !ran.err.contains("no answer"),
        );
        assert_eq!(ran.code, Some(69), "{ran:?}");
        let told = ran.err.lines().rfind(|line| line.contains(&healthy));
        let told = told.unwrap_or_else(|| panic!("{ran:?}"));
        let fine = told.ends_with("answered") || told.ends_with("agreed");
        assert!(fine, "{wait}: {ran:?}");
    }
}

/// They were taken for new, and `init --fresh` was advised: beside a holder that runs.
#[test]
fn servers_that_have_forgotten_are_never_taken_for_new_ones() {
    let bench = Bench::new();
    let (_cluster, urls, holder) = forgetful(&bench);
    for _ in 0..3 {
        let ran = bench.run_until(
            &["run", "job", "-n", "--store", &urls, "--", "true"],
            "may have forgotten",
        );
        assert_eq!(ran.code, Some(69), "{ran:?}");
        assert!(!ran.err.contains("init"), "{ran:?}");
    }
    ends(holder);
}

/// A server that had forgotten everything counted as one that knows that the lock is free.
#[test]
fn a_lock_is_not_called_free_by_nodes_that_may_have_forgotten_it() {
    let bench = Bench::new();
    let (cluster, urls, holder) = forgetful(&bench);
    let waits = |ran: &Ran| ran.out.matches("quarantine_ms\": 5").count() >= 2;
    let words = ["status", "job", "--json", "--store", &urls];
    let ran = again_until("both are quarantined", || bench.run(&words), waits);
    let status: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(
        (ran.code, &status["held"]),
        (Some(69), &Value::Null),
        "{ran:?}"
    );
    assert!(ran.err.contains("2 may have forgotten locks"), "{ran:?}");
    let ran = bench.run(&["status", "job", "--store", &urls]);
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert_eq!(
        ran.out.matches("(may have forgotten locks").count(),
        2,
        "{ran:?}"
    );
    assert!(ran.out.contains("votes again in 5"), "{ran:?}");
    assert!(!ran.out.contains(" none"), "{ran:?}");
    let ran = bench.run(&["list", "--json", "--store", &urls]);
    let list: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(list["locks"][0]["held"], Value::Null, "{ran:?}");
    let line = format!("timeout 3 \"$F\" watch job --store {urls} | head -n 1");
    let ran = bench.script(&line);
    assert!(ran.out.contains("unknown: too few nodes"), "{ran:?}");
    ends(holder);
    drop(cluster);
}

#[test]
fn nothing_is_said_of_locks_that_too_few_nodes_were_asked_about() {
    let bench = Bench::new();
    let (mut cluster, urls) = cluster(&bench);
    let words = ["list", "--store", &urls];
    cluster.servers[0].kill();
    let ran = bench.run(&words);
    let is_empty = ran
        .out
        .starts_with("no lock that fencepost knows of is held");
    assert!(ran.code == Some(0) && is_empty, "{ran:?}");
    let dead = cluster.servers[0].url();
    let named = ran.err.contains("1 of 3 nodes did not answer") && ran.err.contains(&dead);
    assert!(named, "{ran:?}");
    cluster.servers[1].kill();
    let ran = bench.run(&words);
    assert_eq!((ran.code, ran.out.as_str()), (Some(69), ""), "{ran:?}");
    assert!(
        ran.err.contains("no quorum: 1 of 3 nodes answered"),
        "{ran:?}"
    );
}

/// `--wait` ended at once where a majority refused connections at the start.
#[test]
fn a_wait_is_one_for_servers_that_are_down_at_the_start_too() {
    let bench = Bench::new();
    let mut cluster = Cluster::start(3);
    let urls = cluster.urls();
    cluster.servers[0].kill();
    cluster.servers[1].kill();
    let place = ["--restart-policy", "trust", "--store", &urls];
    for words in [
        &["run", "job", "--wait", "1s"][..],
        &["acquire", "job", "--wait", "1s"],
        &["elect", "job", "--wait", "1s"],
    ] {
        let command: &[&str] = if words[0] == "acquire" {
            &[]
        } else {
            &["--", "true"]
        };
        let begun = Instant::now();
        let ran = bench.run(&[words, &place, command].concat());
        assert_eq!(ran.code, Some(69), "{ran:?}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "{ran:?}");
        assert!(ran.err.contains("gave up after 1s: no quorum"), "{ran:?}");
    }
    let words = ["run", "job", "--wait", "20s"];
    let mut run = bench.command(&[&words[..], &place, &["--", "true"]].concat());
    let said = fs::File::create(bench.path("said")).unwrap();
    let run = run.stderr(said).spawn().unwrap();
    assert!(bench.await_file("said").contains("waiting: no quorum"));
    cluster.servers[1].restart();
    assert_eq!(end_of(run).code, Some(0));
    // Without a limit nobody waits for what may be a wrong address.
    cluster.servers[1].kill();
    let ran = bench.run(&[&["run", "job"], &place[..], &["--", "true"]].concat());
    assert_eq!(ran.code, Some(69), "{ran:?}");
}

/// What was set was advised to be set: it could not be seen, because the page's ACL hid it.
#[test]
fn the_servers_of_the_page_are_durable_for_the_user_of_the_page() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/three-masters.md");
    let page = fs::read_to_string(page).expect("the page");
    let blocks = page.split("```conf\n").skip(1);
    let blocks = blocks.map(|block| block.split_once("```").expect("its end").0);
    let conf: String = blocks.collect();
    assert!(conf.contains("appendfsync always") && conf.contains("user locks"));
    let (bench, hidden) = (Bench::new(), conf.replace(" +config|get", ""));
    let started = |name: &str, conf: &str| {
        fs::write(bench.path(name), conf).unwrap();
        let path = bench.path(name).display().to_string();
        let servers: Vec<_> = (0..3).map(|_| RedisServer::start_args(&[&path])).collect();
        let urls = servers.iter().map(|server| {
            let port = server.port();
            format!("redis://locks:PASSWORD@127.0.0.1:{port}")
        });
        let urls = urls.collect::<Vec<_>>().join(",");
        (servers, urls)
    };
    let (_servers, urls) = started("page.conf", &conf);
    let ran = bench.run(&["init", "--fresh", "--durable", "--store", &urls]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = bench.run(&["doctor", "--store", &urls]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!ran.out.contains("warning"), "{ran:?}");
    let (_servers, urls) = started("hidden.conf", &hidden);
    let ran = bench.run(&["init", "--fresh", "--durable", "--store", &urls]);
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(
        ran.err.contains("cannot see whether every write is synced"),
        "{ran:?}"
    );
    assert!(
        ran.err.contains("ACL SETUSER <user> +config|get"),
        "{ran:?}"
    );
    assert!(!ran.err.contains("set appendonly yes"), "{ran:?}");
}

/// A cluster that was made by a library with another retention refused the program, which could not name one.
#[test]
fn a_cluster_of_another_retention_is_used_by_those_who_name_it() {
    let bench = Bench::new();
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let made = ["init", "--fresh", "--retention", "2h", "--store", &urls];
    assert_eq!(bench.run(&made).code, Some(0));
    let run = |more: &[&str]| {
        let words = ["run", "job", "--wait", "10s", "--store", &urls];
        bench.run(&[&words[..], more, &["--", "true"]].concat())
    };
    let ran = run(&[]);
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(ran.err.contains("its retention is 7200000 ms"), "{ran:?}");
    let ran = run(&["--retention", "2h"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = run(&["--retention", "1s"]);
    assert_eq!(ran.code, Some(64), "{ran:?}");
    assert!(ran.err.contains("invalid option --retention"), "{ran:?}");
}

#[test]
fn every_event_has_its_time_and_how_long_was_waited() {
    let bench = Bench::new();
    assert_eq!(bench.run(&["acquire", "job"]).code, Some(0));
    let ran = bench.run(&["run", "job", "-n", "--json", "--", "true"]);
    let failed: Value = serde_json::from_str(&ran.err).expect("JSON");
    assert_eq!(failed["waited_ms"], 0, "{ran:?}");
    for words in ["watch job --json", "list --watch --json"] {
        let ran = bench.script(&format!("timeout 10 \"$F\" {words} | head -n 1"));
        let seen: Value = serde_json::from_str(&ran.out).expect("JSON");
        let (at, time) = (seen["at_ms"].as_u64(), seen["time"].as_str());
        let time = humantime::parse_rfc3339(time.expect("a time")).expect("a time");
        let time = time.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(
            u128::from(at.expect("a number")),
            time.as_millis(),
            "{ran:?}"
        );
    }
}
