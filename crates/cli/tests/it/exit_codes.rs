//! Every exit code, by what a user does to see it.

use std::time::{Duration, Instant};

use fencepost_tests::{Cluster, RedisServer, free_port};

use crate::bench::{Bench, end_of, send};

#[test]
fn the_exit_code_is_the_commands_own() {
    let bench = Bench::new();
    let plain = bench.path("plain");
    std::fs::write(&plain, "no program").unwrap();
    let plain = plain.to_str().unwrap();
    for (command, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 3"], 3),
        (&["sh", "-c", "exit 77"], 77),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["sh", "-c", "kill -KILL $$"], 128 + 9),
        // A real-time signal, which has no name.
        (&["sh", "-c", "kill -40 $$"], 128 + 40),
        (&[plain], 126),
        (&["/no/such/command"], 127),
        (&["no-such-command"], 127),
    ] {
        let words = [&["run", "job", "--"], command].concat();
        let ran = bench.run(&words);
        assert_eq!(ran.code, Some(code), "{command:?}: {ran:?}");
        let says = matches!(code, 126 | 127);
        assert_eq!(
            ran.err.starts_with("fencepost: cannot run"),
            says,
            "{ran:?}"
        );
        assert_eq!(ran.err.lines().count(), usize::from(says), "{ran:?}");
    }
}

#[test]
fn a_lock_that_is_held_is_75_or_what_the_user_says() {
    let bench = Bench::new();
    let holder = bench.start_until(
        "up",
        &["run", "job", "--", "sh", "-c", "echo >up; sleep 60"],
    );
    for (words, code, says) in [
        (&["--no-wait"][..], 75, "is held by"),
        (
            &["--wait", "150ms"],
            75,
            "gave up after 150ms: lock \"job\" is held by",
        ),
        (&["--no-wait", "-E", "9"], 9, "is held by"),
        (
            &["--wait", "50ms", "--conflict-exit-code", "0"],
            0,
            "is held by",
        ),
        (&["--no-wait", "--quiet"], 75, ""),
    ] {
        let start = Instant::now();
        let ran = bench.run(&[&["run", "job"], words, &["--", "touch", "began"]].concat());
        assert_eq!(ran.code, Some(code), "{words:?}: {ran:?}");
        assert!(ran.err.contains(says), "{words:?}: {ran:?}");
        assert_eq!(ran.err.is_empty(), says.is_empty(), "{words:?}: {ran:?}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    assert!(!bench.path("began").exists());
    send("TERM", i32::try_from(holder.id()).unwrap());
    assert_eq!(end_of(holder).code, Some(128 + 15));
}

#[test]
fn a_store_that_cannot_be_reached_is_69() {
    let bench = Bench::new();
    let nobody = || format!("redis://127.0.0.1:{}", free_port());
    let one = RedisServer::start();
    let minority = format!("{},{},{}", one.url(), nobody(), nobody());
    let directory = format!("file:{}", bench.path("").display());
    for store in [nobody(), minority, directory] {
        let ran = bench.run(&["run", "job", "--store", &store, "--", "touch", "began"]);
        assert_eq!(ran.code, Some(69), "{store}: {ran:?}");
        assert!(ran.err.starts_with("fencepost: "), "{ran:?}");
        // A sentence, and a line for each of several nodes.
        let nodes = store.split(',').count();
        let lines = if nodes > 1 { 1 + nodes } else { 1 };
        assert_eq!(ran.err.lines().count(), lines, "{ran:?}");
    }
    assert!(!bench.path("began").exists());
}

#[test]
fn a_majority_that_does_not_vote_is_69() {
    let bench = Bench::new();
    let cluster = Cluster::start(3);
    for server in &cluster.servers[..2] {
        server.freeze();
    }
    let urls = cluster.urls();
    let options = ["--store", &urls, "--restart-policy", "trust", "--no-wait"];
    let ran = bench.run(&[&["run", "job"], &options[..], &["--", "touch", "began"]].concat());
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(!bench.path("began").exists());
    // A server that has just been started may have forgotten locks.
    for server in &cluster.servers[..2] {
        server.thaw();
    }
    let options = ["--store", &urls, "--restart-policy", "delay", "--no-wait"];
    let ran = bench.run(&[&["run", "job"], &options[..], &["--", "touch", "began"]].concat());
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(ran.err.contains("may have forgotten locks"), "{ran:?}");
    // In the program's own words, and not all in one line.
    assert!(ran.err.contains("hint: --restart-policy trust"), "{ran:?}");
    assert!(!ran.err.contains("RestartPolicy"), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 6, "{ran:?}");
    assert!(ran.err.lines().all(|line| line.len() < 130), "{ran:?}");
    let options = ["--store", &urls, "--restart-policy", "trust", "--no-wait"];
    let ran = bench.run(&[&["run", "job"], &options[..], &["--", "touch", "began"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(bench.path("began").exists());
}

/// It was told by the exit code only, and by `watch` not even so.
#[test]
fn what_cannot_be_written_to_stdout_is_74_and_told_but_a_closed_pipe_is_not() {
    let bench = Bench::new();
    for words in [
        &["--help"][..],
        &["status", "job"],
        &["status", "job", "--slots", "2"],
        &["list"],
        &["leader", "job"],
        &["watch", "job"],
        &["acquire", "job"],
        &["completions", "bash"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let run = bench.command(words).stdout(full.unwrap()).spawn();
        let ran = end_of(run.unwrap());
        assert_eq!(ran.code, Some(74), "{words:?}: {ran:?}");
        let says = "fencepost: cannot write to stdout: ";
        assert!(ran.err.starts_with(says), "{words:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{words:?}: {ran:?}");
    }
    let ran = bench.unread(r#""$F" status job; echo $? >&2"#, "true");
    assert_eq!(ran.err, "1\n");
}

#[test]
fn the_help_is_wrapped_where_the_terminal_ends() {
    let bench = Bench::new();
    let mut help = bench.command(&["run", "--help"]);
    let help = help.env("COLUMNS", "70").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (text, _codes) = help.split_once("Exit codes:").unwrap();
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest.unwrap() <= 70, "{help}");
}
