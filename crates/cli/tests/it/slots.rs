//! `run --slots K`: up to K at once, each with a slot of its own.

use std::fs;

use fencepost_tests::{Cluster, RedisServer, eventually, free_port};
use serde_json::Value;

use crate::bench::{Bench, LIMIT, end_of, growing_tokens, pid_of, send};

/// A slot with two holders would show, and so would tokens out of order.
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
    let all = (0..RUNS).map(|_| (words.clone(), bench.start(&words)));
    bench.all_run(all.collect());
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
    assert!(said.contains("acquired a slot of \"pool\" after"), "{said}");
}

#[test]
fn status_tells_who_has_which_slot_and_how_many_are_free() {
    let (one, three) = (Cluster::start(1), Cluster::start(3));
    let trust = ["--restart-policy", "trust"];
    for store in [None, Some(one.urls()), Some(three.urls())] {
        let bench = Bench::new();
        let store = store.as_deref().map_or(vec![], |url| vec!["--store", url]);
        let store = [&store[..], &trust].concat();
        let status = |options: &[&str]| bench.run(&[&["status", "pool"], options, &store].concat());
        let free = status(&["--slots", "3"]);
        assert_eq!(free.code, Some(0), "{free:?}");
        assert!(free.out.contains("slots      3 free of 3\n"), "{free:?}");
        assert!(!status(&[]).out.contains("--slots"), "it was never used");

        let line = "echo $FENCEPOST_SLOT $FENCEPOST_TOKEN >up; sleep 60";
        let holder = bench.start_until("up", &words("3", &store, line));
        let up = bench.await_file("up");
        let (slot, token) = up.split_once(' ').unwrap();
        let owner = format!(":{}:sh", holder.id());
        let table = status(&["--slots", "3"]).out;
        assert!(table.contains("semaphore  pool\nslots      2 free of 3\nwaiting    0\n"));
        let row = table
            .lines()
            .find(|row| row.starts_with(&format!("{slot}  ")));
        let row = row.unwrap_or_else(|| panic!("{table}"));
        assert!(row.contains(&owner) && row.ends_with(token), "{table}");
        let hint = status(&[]).out;
        assert!(hint.contains("a semaphore, too: --slots K"), "{hint}");

        let json: Value = serde_json::from_str(&status(&["--slots=3", "--json"]).out).unwrap();
        assert_eq!(
            (&json["semaphore"], &json["free"]),
            (&"pool".into(), &2.into())
        );
        let number: usize = slot.parse().unwrap();
        for (place, row) in json["slots"].as_array().unwrap().iter().enumerate() {
            assert_eq!(
                (&row["slot"], &row["held"]),
                (&place.into(), &(place == number).into())
            );
        }
        let row = &json["slots"][number];
        assert!(row["holder"].as_str().unwrap().ends_with(&owner), "{json}");
        assert_eq!(row["token"].to_string(), token);
        assert!(row["remaining_ms"].as_u64().unwrap() <= 30_000);
        assert_eq!(row["lock"], format!("{{pool}}:semaphore:{slot}"));
        send("TERM", pid_of(&holder));
        end_of(holder);
    }
}

#[test]
fn a_node_that_is_away_is_part_of_what_status_tells_of_slots() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let away = || format!("redis://127.0.0.1:{}", free_port());
    let store = [server.url(), away(), away()].join(",");
    let place = ["--store", &store, "--restart-policy", "trust"];
    let words = [&["status", "pool", "--slots", "2"], &place[..]].concat();
    let ran = bench.run_until(&words, "1 of 3 nodes answered");
    assert_eq!(ran.code, Some(69), "{ran:?}");
    for words in [
        "slots      unknown of 2\n",
        "unknown",
        "(cannot connect",
        "  0\n",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
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
