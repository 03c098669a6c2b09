//! `steal` takes nothing that is no lock, and leaves an audit line.

use std::fs;

use fencepost_tests::{Cluster, RedisServer};
use serde_json::Value;

use crate::bench::Bench;

/// It deleted any plain string of the server: also an application's.
#[test]
fn what_fencepost_did_not_write_is_neither_deleted_nor_overwritten_unless_told_so() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let url = server.url();
    server.cli(&["SET", "session:7", "the data of an application"]);
    for free in [&[][..], &["--free"]] {
        let words = ["steal", "session:7", "--yes", "--store", &url];
        let ran = bench.run(&[&words[..], free].concat());
        assert_eq!(ran.code, Some(64), "{ran:?}");
        assert!(ran.err.contains("fencepost did not write"), "{ran:?}");
        assert!(ran.err.contains("--overwrite-foreign"), "{ran:?}");
        assert!(!ran.err.contains("the data of"), "{ran:?}");
        let still = server.cli(&["GET", "session:7"]);
        assert_eq!(still, "the data of an application");
    }
    // What is not even a string is beyond it, and named.
    server.cli(&["HSET", "profile:7", "name", "x"]);
    let words = ["steal", "profile:7", "--yes", "--store", &url];
    let ran = bench.run(&words);
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains(&url), "{ran:?}");
    assert_eq!(server.cli(&["TYPE", "profile:7"]), "hash");
    let words = [
        "steal",
        "session:7",
        "--yes",
        "--free",
        "--overwrite-foreign",
    ];
    let ran = bench.run(&[&words[..], &["--store", &url]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(server.cli(&["EXISTS", "session:7"]), "0");
}

#[test]
fn a_free_lock_is_not_stolen() {
    let (bench, cluster) = (Bench::new(), Cluster::start(3));
    let store = ["--store", &cluster.urls(), "--restart-policy", "trust"];
    for store in [&[][..], &store] {
        for free in [&[][..], &["--free"]] {
            let words = [&["steal", "mistyped", "--yes"], store, free].concat();
            let ran = bench.run(&words);
            assert_eq!(ran.code, Some(1), "{ran:?}");
            assert!(ran.err.contains("lock \"mistyped\" is free"), "{ran:?}");
        }
        let listed = bench.run(&[&["list", "--all", "--names"], store].concat());
        assert_eq!(listed.out, "", "{listed:?}");
    }
}

#[test]
fn every_steal_leaves_an_audit_line() {
    let bench = Bench::new();
    bench.run(&["acquire", "job", "--for-pid", "none"]);
    let ran = bench.run(&["steal", "job", "--yes", "--audit", "audit.log"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.starts_with("fencepost: audit: 2"), "{ran:?}");
    assert!(ran.err.contains("Z lock \"job\" stolen from "), "{ran:?}");
    let words = [
        "steal",
        "job",
        "--yes",
        "--free",
        "--json",
        "--audit",
        "audit.log",
    ];
    let ran = bench.run(&words);
    let told: Value = serde_json::from_str(ran.err.trim()).unwrap();
    let log = fs::read_to_string(bench.path("audit.log")).unwrap();
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{log}");
    assert_eq!(lines[1], told);
    assert_eq!(
        (&told["event"], &told["lock"]),
        (&"stolen".into(), &"job".into())
    );
    assert_eq!(
        (&told["freed"], &lines[0]["freed"]),
        (&true.into(), &false.into())
    );
    assert!(lines[1]["token"].as_u64() > lines[0]["token"].as_u64());
    for field in ["time", "from", "by"] {
        assert!(
            told[field].as_str().is_some_and(|text| !text.is_empty()),
            "{told}"
        );
    }
    // Without the line nothing is stolen.
    bench.run(&["acquire", "job", "--for-pid", "none"]);
    let before = bench.run(&["status", "job", "--json"]).out;
    let ran = bench.run(&["steal", "job", "--yes", "--audit", "no/such/dir/audit.log"]);
    assert_eq!(ran.code, Some(73), "{ran:?}");
    let after = bench.run(&["status", "job", "--json"]).out;
    let token = |text: &str| serde_json::from_str::<Value>(text).unwrap()["token"].clone();
    assert_eq!(token(&before), token(&after));
}

#[test]
fn a_prefix_keeps_locks_apart_from_the_keys_of_others() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let url = server.url();
    let store = ["--store", &url, "--prefix", "locks:"];
    let line = "echo >up; sleep 60";
    let words = [&["run", "job"], &store[..], &["--shell", line]].concat();
    let run = bench.start_until("up", &words);
    assert_eq!(server.cli(&["EXISTS", "locks:job"]), "1");
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
    let busy = bench.run(&[&["run", "job", "-n", "-q"], &store[..], &["--", "true"]].concat());
    assert_eq!(busy.code, Some(75), "{busy:?}");
    let other = bench.run(&["run", "job", "-n", "--store", &url, "--", "true"]);
    assert_eq!(other.code, Some(0), "{other:?}");
    let listed = bench.run(&[&["list", "--names"], &store[..]].concat());
    assert_eq!(listed.out, "job\n", "{listed:?}");
    crate::bench::send("TERM", crate::bench::pid_of(&run));
    crate::bench::end_of(run);
}
