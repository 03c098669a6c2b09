//! The config file: below what is typed and the environment, above the defaults.

use std::fs;

use fencepost_tests::RedisServer;

use crate::bench::{Bench, end_of};

fn configured(text: &str) -> Bench {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("fencepost")).expect("a directory");
    fs::write(bench.path("fencepost/config.toml"), text).expect("a file");
    bench
}

#[test]
fn what_is_typed_beats_the_environment_and_that_beats_the_file() {
    let bench = configured("conflict-exit-code = 11\nno-wait = true\nstore = \"file:from-file\"\n");
    let code = |env: Option<&str>, typed: &[&str]| {
        let words = [&["run", "job"], typed, &["--", "true"]].concat();
        let mut command = bench.command(&words);
        if let Some(value) = env {
            command.env("FENCEPOST_CONFLICT_EXIT_CODE", value);
        }
        command.output().unwrap().status.code()
    };
    assert_eq!(bench.run(&["acquire", "job"]).code, Some(0));
    assert!(bench.path("from-file").exists());
    assert_eq!(code(None, &[]), Some(11));
    assert_eq!(code(Some("12"), &[]), Some(12));
    assert_eq!(code(Some("12"), &["-E", "13"]), Some(13));
    assert_eq!(code(None, &["--store", "file:other"]), Some(0));
    // A wait that is typed beats a no-wait of the file.
    let ran = bench.run(&["run", "job", "--wait", "10ms", "--", "true"]);
    assert_eq!(ran.code, Some(11), "{ran:?}");
    let mut command = bench.command(&["run", "job", "--", "true"]);
    let ran = command.env("FENCEPOST_WAIT", "10ms").output().unwrap();
    assert_eq!(ran.status.code(), Some(11));
}

#[test]
fn several_nodes_are_a_list_and_flags_are_true_or_false() {
    // Nobody listens at these: a node that is away is part of what a status tells.
    let store = [
        "redis://127.0.0.1:1",
        "redis://127.0.0.1:2",
        "redis://127.0.0.1:3",
    ];
    let bench = configured(&format!("store = {store:?}\njson = true\nquiet = false\n"));
    let ran = bench.run(&["status", "job"]);
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert!(ran.out.starts_with('{'), "{ran:?}");
    assert_eq!(ran.out.matches("\"node\"").count(), 3, "{ran:?}");
}

#[test]
fn what_is_about_campaigns_and_looks_has_a_place_in_it() {
    let bench = configured("again = \"always\"\nevery = \"2s\"\nno-wait = true\n");
    let again = "echo ran >>runs; [ $(wc -l <runs) -lt 2 ] || kill -TERM $PPID";
    let ran = end_of(bench.start(&["elect", "job", "--shell", again]));
    assert!(matches!(ran.code, Some(0 | 143)), "{ran:?}");
    assert_eq!(bench.await_file("runs").lines().count(), 2);
    // It is no mistake without --watch where it was not typed.
    assert_eq!(bench.run(&["leader", "job"]).code, Some(1));
    let ran = configured("again = \"maybe\"").run(&["elect", "job", "--", "touch", "began"]);
    assert_eq!(ran.code, Some(64), "{ran:?}");
    assert!(ran.err.contains("never, lost, always"), "{ran:?}");
}

#[test]
fn the_file_can_be_named_and_has_to_be_there_then() {
    let bench = configured("no-wait = true\n");
    fs::write(bench.path("mine.toml"), "store = \"file:mine\"").unwrap();
    assert_eq!(
        bench
            .run(&["run", "job", "--config", "mine.toml", "--", "true"])
            .code,
        Some(0)
    );
    assert!(bench.path("mine").exists());
    let mut command = bench.command(&["status", "job"]);
    let output = command
        .env("FENCEPOST_CONFIG", "not-there.toml")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("config file not-there.toml cannot be read"),
        "{said}"
    );
}

#[test]
fn a_file_that_cannot_be_used_is_64_and_one_sentence_that_names_it() {
    for (text, says) in [
        (
            "\nstroe = \"file:x\"",
            "line 2: there is no option \"stroe\"",
        ),
        ("ttl = \"5x\"", "line 1: invalid value '5x'"),
        ("# one\n\nttl = \"soon\"", "line 3: invalid value 'soon'"),
        ("ttl = 5.5", "the value of ttl"),
        ("[run]\nttl = \"5s\"", "the value of run"),
        ("store = [1, 2]", "the value of store"),
        ("store = ", "line 1: "),
        ("store = \"file:x\"\nstore = \"file:y\"", "line 2: "),
        ("value = \"x\"", "option \"value\" belongs to a single call"),
        ("slots = 3", "option \"slots\" belongs to a single call"),
        ("watch = true", "option \"watch\" belongs to a single call"),
        ("yes = true", "option \"yes\" belongs to a single call"),
        ("help = true", "there is no option \"help\""),
        (
            "config = \"x\"",
            "option \"config\" belongs to a single call",
        ),
        ("restart-policy = \"hope\"", "trust, delay"),
    ] {
        let ran = configured(text).run(&["run", "job", "--", "touch", "began"]);
        assert_eq!(ran.code, Some(64), "{text}: {ran:?}");
        assert!(
            ran.err.starts_with("fencepost: config file "),
            "{text}: {ran:?}"
        );
        assert!(ran.err.contains("config.toml"), "{text}: {ran:?}");
        assert!(ran.err.contains(says), "{text}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{text}: {ran:?}");
    }
}

/// `fresh = true` in a file asserted, of every cluster that was ever made there, that no lock was held before.
#[test]
fn what_is_asserted_of_one_call_is_not_taken_from_a_file() {
    for text in [
        "fresh = true",
        "durable = true",
        "replace = \"redis://a,redis://b,redis://c\"",
        "yes = true",
        "free = true",
        "overwrite-foreign = true",
        "reason = \"as always\"",
        "token = \"7\"",
        "config = \"x\"",
    ] {
        let bench = configured(text);
        let store = [
            "--store",
            "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3",
        ];
        for words in [&["init"][..], &["steal", "job"]] {
            let ran = bench.run(&[words, &store].concat());
            assert_eq!(ran.code, Some(64), "{text}: {ran:?}");
            assert!(
                ran.err.contains("belongs to a single call"),
                "{text}: {ran:?}"
            );
        }
    }
    // Nor from the environment, where it may be left over.
    let bench = Bench::new();
    bench.run(&["acquire", "job", "--for-pid", "none"]);
    let mut steal = bench.command(&["steal", "job"]);
    let output = steal.env("FENCEPOST_YES", "true").output().unwrap();
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    let server = RedisServer::start();
    server.cli(&["SET", "job", "the data of an application"]);
    let mut steal = bench.command(&["steal", "job", "--yes", "--store", &server.url()]);
    let output = steal.env("FENCEPOST_OVERWRITE_FOREIGN", "true").output();
    assert_eq!(output.unwrap().status.code(), Some(64));
    assert_eq!(server.cli(&["GET", "job"]), "the data of an application");
}

#[test]
fn the_users_file_beats_that_of_the_system() {
    let bench = configured("conflict-exit-code = 11\n");
    let system = bench.path("system.toml");
    fs::write(
        &system,
        "conflict-exit-code = 9\nno-wait = true\nstore = \"file:system\"\n",
    )
    .unwrap();
    let code = |words: &[&str], config: &str| {
        let mut command = bench.command(&[&["run", "job"], words, &["--", "true"]].concat());
        command.env("FENCEPOST_SYSTEM_CONFIG", &system);
        if !config.is_empty() {
            command.env("FENCEPOST_CONFIG", config);
        }
        command.output().unwrap().status.code()
    };
    assert_eq!(code(&[], ""), Some(0));
    assert!(bench.path("system").exists());
    let taken = bench.run(&["acquire", "job", "--store", "file:system"]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    assert_eq!(code(&[], ""), Some(11));
    // A file that is named stands in place of the user's.
    fs::write(bench.path("mine.toml"), "").unwrap();
    assert_eq!(code(&[], "mine.toml"), Some(9));
    assert_eq!(code(&["-E", "7"], "mine.toml"), Some(7));
    fs::write(&system, "\n\nstroe = 1\n").unwrap();
    let mut command = bench.command(&["status", "job"]);
    let output = command
        .env("FENCEPOST_SYSTEM_CONFIG", &system)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("system.toml, line 3: there is no option \"stroe\""),
        "{said}"
    );
}

#[test]
fn a_value_that_cannot_be_used_is_blamed_on_where_it_comes_from() {
    let bench = Bench::new();
    for (variable, value, says) in [
        (
            "FENCEPOST_TTL",
            "5x",
            "environment variable FENCEPOST_TTL: invalid value '5x'",
        ),
        (
            "FENCEPOST_QUIET",
            "maybe",
            "environment variable FENCEPOST_QUIET: invalid value 'maybe'",
        ),
        (
            "FENCEPOST_FAIR",
            "2",
            "environment variable FENCEPOST_FAIR: ",
        ),
        (
            "FENCEPOST_CONFLICT_EXIT_CODE",
            "256",
            "environment variable FENCEPOST_CONFLICT_EXIT_CODE: ",
        ),
        (
            "FENCEPOST_STORE",
            "ftp://x",
            "--store is set by the environment variable FENCEPOST_STORE",
        ),
        // What only the library finds.
        (
            "FENCEPOST_TTL",
            "10m",
            "--ttl is set by the environment variable FENCEPOST_TTL",
        ),
        (
            "FENCEPOST_MAX_TTL",
            "5s",
            "--max-ttl is set by the environment variable FENCEPOST_MAX_TTL",
        ),
        (
            "FENCEPOST_STORE",
            "redis:",
            "--store is set by the environment variable FENCEPOST_STORE",
        ),
        (
            "FENCEPOST_STORE",
            "redis://h:99999",
            "--store is set by the environment variable FENCEPOST_STORE",
        ),
        (
            "FENCEPOST_GRACE",
            "1h",
            "--grace is set by the environment variable FENCEPOST_GRACE",
        ),
    ] {
        let mut command = bench.command(&["run", "job", "--", "touch", "began"]);
        let output = command.env(variable, value).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{variable}: {said}");
        assert!(said.contains(says), "{variable}: {said}");
    }
    let words = ["run", "job", "--store", "redis://127.0.0.1:1", "--", "true"];
    let mut command = bench.command(&words);
    let output = command.env("FENCEPOST_PREFIX", "a\tb").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{said}");
    assert!(
        said.contains("--prefix is set by the environment variable FENCEPOST_PREFIX"),
        "{said}"
    );
    for value in ["", "0", "no", "1", "Yes", "TRUE"] {
        let mut command = bench.command(&["run", "job", "--", "true"]);
        let output = command.env("FENCEPOST_QUIET", value).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{value}");
    }
    // What is typed is not blamed on the environment.
    let mut command = bench.command(&["run", "job", "--ttl", "5y5", "--", "true"]);
    let output = command.env("FENCEPOST_TTL", "10s").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("FENCEPOST_TTL"), "{said}");
    let configured = configured("\nstore = \"ftp://x\"\n");
    let ran = configured.run(&["run", "job", "--", "touch", "began"]);
    assert!(ran.err.contains("config.toml, line 2"), "{ran:?}");
    let late = self::configured("\n\nttl = \"10m\"\n");
    let ran = late.run(&["run", "job", "--", "touch", "began"]);
    assert!(
        ran.err.contains("--ttl is set by") && ran.err.contains("config.toml, line 3"),
        "{ran:?}"
    );
    assert!(!bench.path("began").exists());
}
