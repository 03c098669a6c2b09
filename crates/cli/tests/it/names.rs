//! `run a,b,c`: all locks or none.

use std::fs;

use fencepost_tests::{Cluster, RedisServer};

use crate::bench::{Bench, end_of, nothing_is_left};

/// Not safe in two processes at once: each name has a count of its own.
const INCREMENTS: &str = "for name in $(echo $FENCEPOST_LOCK | tr , ' '); do \
                          n=$(cat count-$name); sleep 0.002; echo $((n + 1)) >count-$name; done";

#[test]
fn all_are_taken_or_none() {
    let bench = Bench::new();
    let line = "echo >up; until [ -e go ]; do sleep 0.01; done";
    let holder = bench.start_until("up", &["run", "b", "--shell", line]);
    for options in [&["--no-wait"], &["--wait=100ms"]] {
        let words = [&["run", "c,b,a"], &options[..], &["--", "touch", "began"]].concat();
        let ran = bench.run(&words);
        assert_eq!(ran.code, Some(75), "{ran:?}");
        assert!(ran.err.contains("lock \"b\" is held by"), "{ran:?}");
        for free in ["a", "c", "a,c"] {
            let ran = bench.run(&["run", free, "--no-wait", "--", "true"]);
            assert_eq!(ran.code, Some(0), "{free}: {ran:?}");
        }
    }
    assert!(!bench.path("began").exists());
    let mut waiter = bench.command(&["run", "c,b,a", "--", "touch", "began"]);
    let said = fs::File::create(bench.path("said")).unwrap();
    let waiter = waiter.stderr(said).spawn().unwrap();
    let waiting = bench.await_file("said");
    assert!(
        waiting.contains("waiting: lock \"b\" is held by"),
        "{waiting}"
    );
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(end_of(holder).code, Some(0));
    assert_eq!(end_of(waiter).code, Some(0));
    assert!(bench.path("began").exists());
    let said = fs::read_to_string(bench.path("said")).unwrap();
    assert!(said.contains("acquired locks \"a,b,c\" after"), "{said}");
}

fn crossing_orders_end_and_exclude(store: &[&str]) {
    let bench = Bench::new();
    for name in ["a", "b", "c", "d"] {
        fs::write(bench.path(&format!("count-{name}")), "0\n").expect("a file");
    }
    let wanted = ["a,b", "b,a", "c,a,b", "b,c,d", "d,a", "c,d"];
    let mut runs = Vec::new();
    for names in wanted.iter().cycle().take(24) {
        let words = [&["run", names, "-q"], store, &["--shell", INCREMENTS]].concat();
        let run = bench.start(&words);
        runs.push((words, run));
    }
    bench.all_run(runs);
    for name in ["a", "b", "c", "d"] {
        let uses = wanted.iter().filter(|names| names.contains(name)).count() * 24 / wanted.len();
        let count = bench.await_file(&format!("count-{name}"));
        assert_eq!(count, uses.to_string(), "{name}");
    }
}

#[test]
fn crossing_orders_end_and_exclude_each_other_on_one_machine() {
    crossing_orders_end_and_exclude(&[]);
}

#[test]
fn crossing_orders_end_and_exclude_each_other_on_three_servers() {
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    crossing_orders_end_and_exclude(&["--store", &urls, "--restart-policy", "trust"]);
}

#[test]
fn the_command_is_told_the_token_of_each() {
    let bench = Bench::new();
    let line =
        "echo \"${FENCEPOST_TOKEN-none}\"; echo \"$FENCEPOST_LOCK\"; echo \"$FENCEPOST_TOKENS\"";
    let tokens = |names: &str| {
        let mut command = bench.command(&["run", names, "--shell", line]);
        // As within another run.
        let outer = command
            .env("FENCEPOST_TOKEN", "1")
            .env("FENCEPOST_SLOT", "1");
        let out = String::from_utf8(outer.output().unwrap().stdout).unwrap();
        let mut lines = out.lines().map(str::to_owned);
        assert_eq!(lines.next().as_deref(), Some("none"), "{out}");
        let names = lines.next().unwrap();
        let tokens: Vec<(u64, String)> = lines
            .map(|line| {
                let (token, name) = line.split_once(' ').unwrap();
                (token.parse().unwrap(), name.to_owned())
            })
            .collect();
        (names, tokens)
    };
    let (typed, first) = tokens(r"b c,a,x\,y,a");
    assert_eq!(typed, r"a,b c,x\,y");
    let names: Vec<_> = first.iter().map(|(_, name)| name.as_str()).collect();
    assert_eq!(names, ["a", "b c", "x,y"]);
    // What it was told can be typed.
    let (again, second) = tokens(&typed);
    assert_eq!(again, typed);
    for (earlier, later) in first.iter().zip(&second) {
        assert!(earlier.0 < later.0, "{earlier:?} {later:?}");
    }
}

#[test]
fn a_run_within_another_is_told_of_its_own_lock_only() {
    let bench = Bench::new();
    let outer = "\"$F\" run inner -- sh -c 'echo ${FENCEPOST_SLOT-no slot} ${FENCEPOST_TOKENS-no tokens} $FENCEPOST_LOCK'";
    for run in ["run pool --slots 2", "run a,b"] {
        let ran = bench.script(&format!(
            "export F; \"$F\" {run} --shell '{}'",
            outer.replace('\'', r"'\''")
        ));
        assert_eq!(ran.out, "no slot no tokens inner\n", "{run}: {ran:?}");
    }
}

#[test]
fn a_hundred_names_work_on_three_servers() {
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let bench = Bench::new();
    let names: Vec<_> = (0..100).map(|n| format!("account-{n}")).collect();
    let names = names.join(",");
    let store = ["--store", &urls, "--restart-policy", "trust"];
    let count = "echo \"$FENCEPOST_TOKENS\" | wc -l";
    let words = [&["run", &names], &store[..], &["--shell", count]].concat();
    let ran = bench.run(&words);
    assert_eq!((ran.code, ran.out.trim()), (Some(0), "100"), "{ran:?}");
    assert_eq!(ran.err, "");
    nothing_is_left(&cluster);
}

#[test]
fn when_one_of_them_is_lost_the_command_is_stopped_and_the_others_are_given_back() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let url = server.url();
    let line = "trap '' TERM; echo >up; while :; do sleep 0.01; done";
    let on_lost = "echo $FENCEPOST_REASON $FENCEPOST_LOCK >lost";
    let options = [
        "--store",
        &url,
        "--ttl",
        "3s",
        "--on-lost",
        on_lost,
        "--shell",
        line,
    ];
    let run = bench.start_until("up", &[&["run", "a,b,c"], &options[..]].concat());
    server.cli(&["SET", "b", "operator", "PX", "60000"]);
    let ran = end_of(run);
    assert_eq!(ran.code, Some(79), "{ran:?}");
    assert!(
        ran.err
            .contains("lock \"b\" is lost, and the command is stopped"),
        "{ran:?}"
    );
    assert!(ran.err.contains("operator acquired it"), "{ran:?}");
    assert_eq!(bench.await_file("lost"), "stolen a,b,c");
    assert_eq!(server.cli(&["GET", "b"]), "operator");
    assert_eq!(server.cli(&["EXISTS", "a", "c"]), "0");
}
