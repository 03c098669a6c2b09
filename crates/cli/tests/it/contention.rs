//! One at a time, however many come.

use std::fs;

use fencepost_tests::Cluster;

use crate::bench::{Bench, end_of, growing_tokens, nothing_is_left, send};

/// Not safe in two processes at once, and slow enough to show it.
const INCREMENT: &str =
    "n=$(cat count); sleep 0.005; echo $((n + 1)) >count; echo $FENCEPOST_TOKEN >>tokens";

fn increments_are_exact(bench: &Bench, runs: usize, options: &[&str]) {
    fs::write(bench.path("count"), "0\n").expect("a file");
    let words = [
        &["run", "counter", "--quiet", "--shell"],
        options,
        &["--", INCREMENT],
    ]
    .concat();
    let all = (0..runs).map(|_| (words.clone(), bench.start(&words)));
    bench.all_run(all.collect());
    assert_eq!(bench.await_file("count"), runs.to_string());
    assert_eq!(growing_tokens(bench, "tokens").len(), runs);
}

#[test]
fn fifty_at_once_on_one_machine_lose_no_increment() {
    increments_are_exact(&Bench::new(), 50, &[]);
}

#[test]
fn fifty_at_once_on_three_servers_lose_no_increment() {
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let options = ["--store", &urls, "--restart-policy", "trust"];
    increments_are_exact(&Bench::new(), 50, &options);
    nothing_is_left(&cluster);
}

#[test]
fn a_second_run_waits_for_the_first_and_says_for_whom() {
    let bench = Bench::new();
    let first = "echo >up; read line <gate; echo first >>order";
    assert!(
        std::process::Command::new("mkfifo")
            .arg(bench.path("gate"))
            .status()
            .unwrap()
            .success()
    );
    let first = bench.start_until("up", &["run", "job", "--shell", first]);
    let held_by = format!(":{}:sh", first.id());
    let mut second = bench.command(&["run", "job", "--shell", "echo second >>order"]);
    let said = bench.path("said");
    let second = second
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let waiting = bench.await_file("said");
    assert!(
        waiting.starts_with("fencepost: waiting: lock \"job\" is held by"),
        "{waiting}"
    );
    assert!(waiting.contains(&held_by), "{waiting}");
    fs::write(bench.path("gate"), "go\n").unwrap();
    assert_eq!(end_of(first).code, Some(0));
    assert_eq!(end_of(second).code, Some(0));
    assert_eq!(bench.await_file("order"), "first\nsecond");
    let said = fs::read_to_string(said).unwrap();
    assert!(
        said.contains("fencepost: acquired lock \"job\" after"),
        "{said}"
    );
}

#[test]
fn in_a_fair_queue_the_first_to_come_is_served_first() {
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let servers = ["--store", &urls, "--restart-policy", "trust"];
    for store in [&[][..], &servers] {
        let bench = Bench::new();
        let first = ["--shell", "echo >up; until [ -e go ]; do sleep 0.01; done"];
        let holder = bench.start_until("up", &[&["run", "job"], store, &first].concat());
        let mut waiters = Vec::new();
        for place in 1..=5 {
            let line = format!("echo {place} >>order");
            let words = [&["run", "job", "--fair", "-q"], store, &["--shell", &line]].concat();
            waiters.push(bench.start(&words));
            bench.await_line("job", store, place);
        }
        fs::write(bench.path("go"), "").unwrap();
        assert_eq!(end_of(holder).code, Some(0));
        for waiter in waiters {
            assert_eq!(end_of(waiter).code, Some(0));
        }
        assert_eq!(bench.await_file("order"), "1\n2\n3\n4\n5");
    }
}

#[test]
fn a_waiter_that_is_told_to_end_ends_and_leaves_nothing_behind() {
    let bench = Bench::new();
    let holder = bench.start_until("up", &["run", "job", "--shell", "echo >up; sleep 60"]);
    let mut waiter = bench.command(&["run", "job", "touch", "began"]);
    let said = fs::File::create(bench.path("said")).unwrap();
    let waiter = waiter.stderr(said).spawn().unwrap();
    bench.await_file("said");
    send("INT", i32::try_from(waiter.id()).unwrap());
    assert_eq!(end_of(waiter).code, Some(128 + 2));
    send("TERM", i32::try_from(holder.id()).unwrap());
    assert_eq!(end_of(holder).code, Some(128 + 15));
    assert_eq!(
        bench.run(&["run", "job", "--no-wait", "true"]).code,
        Some(0)
    );
    assert!(!bench.path("began").exists());
}

#[test]
fn the_command_has_stdin_and_is_told_lock_token_and_deadline() {
    let bench = Bench::new();
    fs::write(bench.path("in"), "from stdin\n").unwrap();
    let line =
        "cat; echo $FENCEPOST_LOCK; echo $FENCEPOST_TOKEN; echo $FENCEPOST_DEADLINE; date +%s%3N";
    let mut command = bench.command(&["run", "job", "--ttl", "10s", "--json", "--shell", line]);
    let input = fs::File::open(bench.path("in")).unwrap();
    let output = command.stdin(input).output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = out.lines().collect();
    let [stdin, lock, token, deadline, now] = lines[..] else {
        panic!("{out}");
    };
    assert_eq!((stdin, lock), ("from stdin", "job"));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains(&format!("\"token\":{token}")), "{err}");
    let left = deadline.parse::<u64>().unwrap() - now.parse::<u64>().unwrap();
    assert!((5_000..10_000).contains(&left), "{left}");
    let events: Vec<_> = err
        .lines()
        .map(|line| line.contains("\"event\":"))
        .collect();
    assert_eq!(events, [true; 3], "acquired, exited, released: {err}");
}
