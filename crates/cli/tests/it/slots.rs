//! `run --slots K`: up to K at once, each with a slot of its own.

use std::fs;

use fencepost_tests::{Cluster, RedisServer, eventually};

use crate::bench::{Bench, LIMIT, end_of, growing_tokens, pid_of, send};

/// A slot that somebody else has too is told, and so are the tokens in their order.
const EXCLUSIVE: &str = "s=$FENCEPOST_SLOT; mkdir slot-$s || echo $s >>clashes; \
                         echo $FENCEPOST_TOKEN >>tokens-$s; sleep 0.02; rmdir slot-$s";

/// The words of a run with that many slots.
fn words<'a>(slots: &'a str, store: &[&'a str], line: &'a str) -> Vec<&'a str> {
    let run = ["run", "pool", "-q", "--slots", slots, "--shell", line];
    [&run[..2], store, &run[2..]].concat()
}

fn never_more_than_three(store: &[&str]) {
    const RUNS: usize = 24;
    let bench = Bench::new();
    let words = words("3", store, EXCLUSIVE);
    let all: Vec<_> = (0..RUNS).map(|_| bench.start(&words)).collect();
    for one in all {
        let ran = end_of(one);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    }
    assert!(!bench.path("clashes").exists());
    let all_slots = ["tokens-0", "tokens-1", "tokens-2"];
    let seen = all_slots.map(|slot| growing_tokens(&bench, slot).len());
    assert_eq!(seen.iter().sum::<usize>(), RUNS, "{seen:?}");
}

#[test]
fn never_more_than_three_at_once_on_one_machine() {
    never_more_than_three(&[]);
}

#[test]
fn never_more_than_three_at_once_on_three_servers() {
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    never_more_than_three(&["--store", &urls, "--restart-policy", "trust"]);
}

#[test]
fn as_many_as_there_are_slots_run_at_once_and_the_next_one_waits() {
    let bench = Bench::new();
    let line = "echo $FENCEPOST_SLOT $FENCEPOST_LOCK >up-$FENCEPOST_SLOT; \
                until [ -e go ]; do sleep 0.01; done";
    let words = words("3", &[], line);
    let three: Vec<_> = (0..3).map(|_| bench.start(&words)).collect();
    for slot in 0..3 {
        assert_eq!(
            bench.await_file(&format!("up-{slot}")),
            format!("{slot} pool")
        );
    }
    let more = |options: &[&str]| {
        let words = [&["run", "pool"], options, &["--", "touch", "began"]].concat();
        bench.run(&words)
    };
    for options in [
        &["--slots", "3", "--no-wait"],
        &["--slots", "3", "--wait=50ms"],
    ] {
        let ran = more(options);
        assert_eq!(ran.code, Some(75), "{ran:?}");
        assert!(
            ran.err.contains("every slot of \"pool\" is taken"),
            "{ran:?}"
        );
    }
    assert_eq!(
        more(&["--slots", "3", "--no-wait", "-E", "9"]).code,
        Some(9)
    );
    assert!(!bench.path("began").exists());
    // A larger number is another slot, and the lock of that name is another lock.
    assert_eq!(more(&["--slots", "4", "--no-wait"]).code, Some(0));
    assert_eq!(more(&["--no-wait"]).code, Some(0));
    let mut waiter = bench.command(&["run", "pool", "--slots=3", "--fair", "--", "true"]);
    let said = fs::File::create(bench.path("said")).unwrap();
    let waiter = waiter.stderr(said).spawn().unwrap();
    let waiting = bench.await_file("said");
    assert!(
        waiting.starts_with("fencepost: waiting: every slot of"),
        "{waiting}"
    );
    fs::write(bench.path("go"), "").unwrap();
    for one in three {
        assert_eq!(end_of(one).code, Some(0));
    }
    assert_eq!(end_of(waiter).code, Some(0));
    let said = fs::read_to_string(bench.path("said")).unwrap();
    assert!(said.contains("got a slot of \"pool\" after"), "{said}");
}

#[test]
fn a_slot_that_was_taken_from_us_ends_the_command() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let url = server.url();
    let line = "trap '' TERM; echo $FENCEPOST_SLOT >up; while :; do sleep 0.01; done";
    let store = ["--store", &url, "--ttl", "3s"];
    let run = bench.start_until("up", &words("2", &store, line));
    let key = format!("{{pool}}:semaphore:{}", bench.await_file("up"));
    server.cli(&["SET", &key, "operator", "PX", "60000"]);
    let ran = end_of(run);
    assert_eq!(ran.code, Some(79), "{ran:?}");
    assert_eq!(server.cli(&["GET", &key]), "operator");
}

#[test]
fn a_killed_run_frees_its_slot() {
    let bench = Bench::new();
    let mut holder = bench.start_until("up", &words("1", &[], "echo >up; sleep 60"));
    let next = bench.start(&words("1", &[], "echo >next"));
    send("KILL", pid_of(&holder));
    holder.wait().unwrap();
    eventually("the next begins", LIMIT, || bench.path("next").exists());
    assert_eq!(end_of(next).code, Some(0));
}
