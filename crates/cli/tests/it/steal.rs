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

/// The file was only opened: a full disk was told in passing, and the program ended with 0.
#[test]
fn a_steal_whose_audit_line_cannot_be_written_ends_with_73() {
    let bench = Bench::new();
    for free in [&[][..], &["--free"]] {
        bench.run(&["acquire", "job", "--for-pid", "none"]);
        let words = ["steal", "job", "--yes", "--json", "--audit", "/dev/full"];
        let ran = bench.run(&[&words[..], free].concat());
        assert_eq!(ran.code, Some(73), "{ran:?}");
        let says = "lock \"job\" was stolen, but the audit file /dev/full cannot be written: ";
        assert!(ran.err.contains(says), "{ran:?}");
        // It is stolen, and whoever has it can release it.
        let told: Value = serde_json::from_str(&ran.out).unwrap();
        assert!(told["token"].as_u64() > Some(0), "{told}");
        if let Some(value) = told["value"].as_str() {
            let ran = bench.run(&["release", "job", "--value", value]);
            assert_eq!(ran.code, Some(0), "{ran:?}");
        }
    }
}

/// It said that the lock was freed before it was, and nothing of a steal that failed.
#[test]
fn the_audit_line_says_what_happened_also_when_the_steal_or_the_release_failed() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let url = server.url();
    let held = ["acquire", "job", "--for-pid", "none", "--store", &url];
    assert_eq!(bench.run(&held).code, Some(0));
    // The one may not run what a steal needs; the other, what a release needs when somebody waits.
    for (user, right) in [("thief", "-del"), ("idler", "-zrange")] {
        let words = ["ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "+@all"];
        server.cli(&[&words[..], &[right]].concat());
    }
    let steal = |user: &str| {
        let store = url.replace("redis://", &format!("redis://{user}:secret@"));
        let words = ["steal", "job", "--yes", "--free", "--reason", "it hangs"];
        let told = ["--audit", "audit.log", "--store", &store];
        let ran = bench.run(&[&words[..], &told].concat());
        let log = fs::read_to_string(bench.path("audit.log")).unwrap();
        let line: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
        (ran, line)
    };
    let (ran, line) = steal("thief");
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(ran.err.contains("lock \"job\" not stolen by "), "{ran:?}");
    assert_eq!(line["event"], "not_stolen");
    assert_eq!(
        (&line["lock"], &line["reason"]),
        (&"job".into(), &"it hangs".into())
    );
    assert!(line["why"].as_str().unwrap().contains("ERR"), "{line}");

    let mut waits = bench.start(&["run", "job", "-q", "--store", &url, "--", "true"]);
    bench.await_line("job", &["--store", &url], 1);
    let (ran, line) = steal("idler");
    assert_eq!(ran.code, Some(69), "{ran:?}");
    let says = "lock \"job\" was stolen, but not released: ";
    assert!(ran.err.contains(says), "{ran:?}");
    assert!(ran.err.contains(", not released: "), "{ran:?}");
    assert_eq!(
        (&line["event"], &line["freed"]),
        (&"stolen".into(), &false.into())
    );
    assert!(
        line["not_freed"].as_str().unwrap().contains("ERR"),
        "{line}"
    );
    waits.kill().unwrap();
    waits.wait().unwrap();
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
