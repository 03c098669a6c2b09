//! `elect`: a command runs while we lead; `leader`: everybody sees who does.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use fencepost_tests::{Cluster, RedisServer, eventually, free_port};
use serde_json::Value;

use crate::bench::{
    Bench, LIMIT, Ran, dies, end_of, growing_tokens, is_stopped, pid_of, runs, send,
};

/// For the leaders that are to be followed by another.
const TTL: Duration = Duration::from_secs(2);
/// What else than the TTL it may take until another leads: a look, a few round trips, the start of
/// two processes, and whatever else a busy machine does meanwhile.
const AND_A_WHILE: Duration = Duration::from_secs(3);

/// Tells its token to everybody, and then runs on.
const LEAD: &str = "echo $FENCEPOST_TOKEN >>tokens; echo $$ >pid; while :; do sleep 0.01; done";

/// The tokens of those who have led, one after the other.
fn tokens(bench: &Bench) -> Vec<u64> {
    growing_tokens(bench, "tokens")
}

/// Returns when that many have led.
fn await_leaders(bench: &Bench, count: usize) {
    eventually("they lead", LIMIT, || tokens(bench).len() >= count);
    assert_eq!(tokens(bench).len(), count);
}

fn ends_by(signal: &str, number: i32, child: Child) -> Ran {
    send(signal, pid_of(&child));
    let ran = end_of(child);
    assert_eq!(ran.code, Some(128 + number), "{ran:?}");
    ran
}

#[test]
fn while_we_lead_the_command_runs_and_everybody_sees_the_value() {
    let bench = Bench::new();
    let none = bench.run(&["leader", "job"]);
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.out.contains("leader    none\n"), "{none:?}");

    let line = "echo $FENCEPOST_LOCK $FENCEPOST_ELECT_VALUE $FENCEPOST_TOKEN >up; sleep 60";
    let words = [
        "elect",
        "job",
        "--value",
        "10.0.0.7:80 (a)",
        "--shell",
        line,
    ];
    let leader = bench.start_until("up", &words);
    let told = bench.await_file("up");
    let token = told.strip_prefix("job 10.0.0.7:80 (a) ").unwrap();
    let table = bench.run(&["leader", "job"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    let expected = format!("election  job\nleader    10.0.0.7:80 (a)\ntoken     {token}\n");
    assert_eq!(table.out, expected);
    let json = bench.run(&["leader", "job", "--json"]).out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["leader"], "10.0.0.7:80 (a)");
    assert_eq!(json["token"].to_string(), token);

    let other = ["elect", "job", "--no-wait", "--", "touch", "began"];
    let other = bench.run(&other);
    assert_eq!(other.code, Some(75), "{other:?}");
    assert!(other.err.contains("held by 10.0.0.7:80 (a)"), "{other:?}");
    // The lock of that name and the election are the same.
    let run = bench.run(&["run", "job", "--no-wait", "--", "touch", "began"]);
    assert_eq!(run.code, Some(75), "{run:?}");
    assert!(!bench.path("began").exists());

    ends_by("TERM", 15, leader);
    assert_eq!(bench.run(&["leader", "job"]).code, Some(1));
    let ran = bench.run(&["elect", "job", "--shell", "exit 4"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(4), ""));
}

#[test]
fn without_a_value_the_leader_is_seen_as_host_pid_and_command() {
    let bench = Bench::new();
    let line = "echo >up; sleep 60";
    let leader = bench.start_until("up", &["elect", "job", "--shell", line]);
    let seen = bench.run(&["leader", "job"]).out;
    assert!(seen.contains(&format!(":{}:sh\n", leader.id())), "{seen}");
    ends_by("INT", 2, leader);
}

#[test]
fn a_leader_that_is_killed_is_followed_by_another_within_its_ttl() {
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    let bench = Bench::new();
    let store = ["--store", &urls, "--restart-policy", "trust", "--ttl", "2s"];
    let elect = |value| {
        let words = ["elect", "job", "-q", "--value", value, "--shell", LEAD];
        [&words[..2], &store, &words[2..]].concat()
    };
    let mut first = bench.start_until("pid", &elect("first"));
    let command = bench.pid("pid");
    let second = bench.start(&elect("second"));
    bench.await_line("job", &store[..4], 1);
    assert_eq!(tokens(&bench).len(), 1);
    send("KILL", pid_of(&first));
    let killed = Instant::now();
    first.wait().unwrap();
    eventually("another leads", LIMIT, || {
        let led = tokens(&bench).len();
        // In this order: what runs now ran beside the second.
        assert!(
            led < 2 || !runs(command),
            "the first runs beside the second"
        );
        led == 2
    });
    let took = killed.elapsed();
    println!("another led {took:?} after the kill, with a TTL of {TTL:?}");
    assert!(took < TTL + AND_A_WHILE, "{took:?}");
    let leader = bench.run(&[&["leader", "job"], &store[..4]].concat()).out;
    assert!(leader.contains("leader    second\n"), "{leader}");
    ends_by("TERM", 15, second);
}

#[test]
fn a_leader_that_loses_the_leadership_stops_and_leads_again_only_if_asked_to() {
    for (again, campaigns) in [("never", false), ("lost", true), ("always", true)] {
        let server = RedisServer::start();
        let url = server.url();
        let bench = Bench::new();
        let store = ["--store", &url, "--ttl", "2s", "--again", again];
        let on_lost = "echo $FENCEPOST_REASON >>lost";
        let elect = ["elect", "job", "--on-lost", on_lost, "--shell", LEAD];
        let words = [&elect[..2], &store, &elect[2..]].concat();
        let run = bench.start_until("pid", &words);
        let command = bench.pid("pid");
        server.freeze();
        dies(command, LIMIT);
        assert_eq!(bench.await_file("lost"), "no_quorum");
        server.thaw();
        if campaigns {
            await_leaders(&bench, 2);
            let ran = ends_by("TERM", 15, run);
            assert!(
                ran.err.contains("the leadership of \"job\" is lost"),
                "{ran:?}"
            );
        } else {
            let ran = end_of(run);
            assert_eq!(ran.code, Some(79), "{ran:?}");
        }
    }
}

#[test]
fn nodes_that_stay_away_are_waited_for_after_a_loss_and_told_of_once() {
    let server = RedisServer::start();
    let url = server.url();
    let bench = Bench::new();
    let elect = ["elect", "job", "--ttl", "2s", "--again", "lost"];
    let words = [&elect[..], &["--store", &url, "--json", "--shell", LEAD]].concat();
    let mut run = bench.command(&words);
    let said = fs::File::create(bench.path("said")).unwrap();
    let run = run.stderr(said).spawn().unwrap();
    await_leaders(&bench, 1);
    server.freeze();
    let events = |event: &str| {
        let said = fs::read_to_string(bench.path("said")).unwrap();
        said.matches(&format!("\"event\":\"{event}\"")).count()
    };
    eventually("too few nodes", LIMIT, || events("failed") == 1);
    // Several campaigns, which take about a second each.
    std::thread::sleep(Duration::from_secs(4));
    server.thaw();
    await_leaders(&bench, 2);
    assert_eq!((events("failed"), events("lost")), (1, 1));
    ends_by("TERM", 15, run);
    // What never worked is more likely a mistake.
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let elect = ["elect", "job", "--again", "always", "--store", &nobody];
    let ran = bench.run(&[&elect[..], &["--", "touch", "began"]].concat());
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(!bench.path("began").exists());
}

#[test]
fn a_command_that_ended_leads_again_only_if_asked_to_and_never_after_a_signal() {
    let line = "echo $FENCEPOST_TOKEN >>tokens; exit 3";
    let bench = Bench::new();
    for again in ["never", "lost"] {
        let ran = bench.run(&["elect", "job", "--again", again, "--shell", line]);
        assert_eq!(ran.code, Some(3), "{again}: {ran:?}");
    }
    let words = ["elect", "job", "--again", "always", "--shell", line];
    let run = bench.start(&words);
    eventually("it leads again", LIMIT, || tokens(&bench).len() >= 4);
    send("TERM", pid_of(&run));
    let ran = end_of(run);
    // It came while the command ran, or in between.
    assert!(matches!(ran.code, Some(3 | 143)), "{ran:?}");
    for (line, code) in [
        ("exec no-such-command", 127),
        ("kill -INT $$; sleep 60", 128 + 2),
        (
            "trap 'exit 5' TERM; kill -TERM $PPID; while :; do sleep 0.01; done",
            5,
        ),
    ] {
        // Not `run`: it must not wait for ever if it goes on for ever.
        let run = bench.start(&["elect", "job", "--again", "always", "--shell", line]);
        let ran = end_of(run);
        assert_eq!(ran.code, Some(code), "{line}: {ran:?}");
    }
}

#[test]
fn a_candidate_that_lost_waits_in_line_and_can_be_stopped_and_ended_there() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let url = server.url();
    let elect = ["elect", "job", "--ttl", "2s", "--again", "lost", "-q"];
    let words = [&elect[..], &["--store", &url, "--shell", LEAD]].concat();
    let run = bench.start_until("pid", &words);
    let (us, command) = (pid_of(&run), bench.pid("pid"));
    server.cli(&["SET", "job", "operator", "PX", "60000"]);
    dies(command, LIMIT);
    bench.await_line("job", &["--store", &url], 1);
    send("TSTP", us);
    eventually("it is stopped", LIMIT, || is_stopped(us));
    send("CONT", us);
    eventually("it goes on", LIMIT, || !is_stopped(us) && runs(us));
    ends_by("TERM", 15, run);
    assert_eq!(server.cli(&["GET", "job"]), "operator");
    assert_eq!(tokens(&bench).len(), 1);
}

#[test]
fn a_watcher_prints_each_leader_once_and_ends_without_a_reader() {
    let bench = Bench::new();
    let watch = |options: &[&str]| {
        let words = [&["leader", "job", "--watch", "--every", "50ms"], options].concat();
        let mut watcher = bench.start(&words);
        let lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
        (watcher, lines.map(Result::unwrap))
    };
    let (people, mut for_people) = watch(&[]);
    let (programs, mut for_programs) = watch(&["--json"]);
    let mut last = 0;
    for value in ["one", "two", "three"] {
        let words = ["elect", "job", "--value", value, "--shell", LEAD];
        let leader = bench.start(&words);
        let line = for_people.next().unwrap();
        assert!(
            line.contains(&format!("Z  {value} leads, token ")),
            "{line}"
        );
        let told: Value = serde_json::from_str(&for_programs.next().unwrap()).unwrap();
        assert_eq!(told["leader"], value);
        assert!(told["at_ms"].as_u64().is_some());
        let token = told["token"].as_u64().unwrap();
        assert!(line.ends_with(&token.to_string()) && token > last, "{line}");
        last = token;
        ends_by("TERM", 15, leader);
    }
    drop((for_people, for_programs));
    for watcher in [people, programs] {
        assert_eq!(end_of(watcher).code, Some(0));
    }
}

#[test]
fn who_leads_is_unknown_without_a_majority() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let away = || format!("redis://127.0.0.1:{}", free_port());
    let minority = format!("{},{},{}", server.url(), away(), away());
    let words = ["leader", "job", "--restart-policy", "trust", "--store"];
    let ran = bench.run(&[&words[..], &[&minority]].concat());
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1 + 3, "{ran:?}");
}
