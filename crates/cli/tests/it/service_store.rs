//! `--store http://…`: the program as a client of the service, with the same leases and exit codes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use fencepost_tests::eventually;

use crate::bench::{Bench, LIMIT, end_of};
use crate::serve::Service;

/// A service on a file, and a directory whose commands know nothing but its address.
fn served() -> (Bench, Service, String) {
    let bench = Bench::new();
    let service = Service::start(&bench, &[]);
    let url = format!("http://{}", service.address);
    (bench, service, url)
}

#[test]
fn a_command_runs_under_a_lock_of_the_service_and_others_wait_or_are_refused() {
    let (bench, _service, url) = served();
    let store = ["--store", &url];
    let script =
        "echo $FENCEPOST_TOKEN > token; echo yes > begun; while [ ! -e go ]; do sleep 0.05; done";
    let words = ["run", "job", "--store", &url, "--", "sh", "-c", script];
    let holder = bench.start_until("begun", &words);
    let refused = bench.run(&["run", "job", "--no-wait", "--store", &url, "--", "true"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    assert!(refused.err.contains("held by"), "{refused:?}");
    let status = bench.run(&[&["status", "job", "--json"], &store[..]].concat());
    let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
    assert_eq!(status["held"], true, "{status}");
    let token = bench.await_file("token");
    assert_eq!(status["token"].to_string(), token.trim(), "{status}");
    let listed = bench.run(&[&["list"], &store[..]].concat());
    assert!(listed.out.contains("job"), "{listed:?}");
    let waiter = bench.start(&["run", "job", "--store", &url, "--", "true"]);
    std::fs::write(bench.path("go"), "").unwrap();
    assert_eq!(end_of(holder).code, Some(0));
    assert_eq!(end_of(waiter).code, Some(0), "served after the first");
}

#[test]
fn a_lock_is_acquired_extended_and_released_by_hand() {
    let (bench, _service, url) = served();
    let acquired = bench.run(&["acquire", "job", "--json", "--store", &url]);
    assert_eq!(acquired.code, Some(0), "{acquired:?}");
    let lock: serde_json::Value = serde_json::from_str(&acquired.out).unwrap();
    let (value, token) = (lock["value"].as_str().unwrap(), lock["token"].to_string());
    let by = |word: &str| {
        let words = [
            word, "job", "--value", value, "--token", &token, "--store", &url,
        ];
        bench.run(&words)
    };
    let words = ["release", "job", "--value", value, "--store", &url];
    assert_eq!(by("extend").code, Some(0));
    assert_eq!(bench.run(&words).code, Some(0));
    let over = by("extend");
    assert_eq!(over.code, Some(79), "lost: {over:?}");
}

#[test]
fn a_command_whose_lock_is_stolen_is_stopped_with_the_code_of_a_loss() {
    let (bench, _service, url) = served();
    let words = [
        "run",
        "job",
        "--ttl",
        "1s",
        "--store",
        &url,
        "--",
        "sh",
        "-c",
        "echo yes > begun; sleep 60",
    ];
    let holder = bench.start_until("begun", &words);
    let stolen = bench.run(&["steal", "job", "--yes", "--store", &url]);
    assert_eq!(stolen.code, Some(0), "{stolen:?}");
    assert!(stolen.out.contains("was stolen from"), "{stolen:?}");
    let ended = end_of(holder);
    assert_eq!(ended.code, Some(79), "{ended:?}");
}

#[test]
fn a_leader_is_elected_and_watched_through_the_service() {
    let (bench, _service, url) = served();
    let words = [
        "elect",
        "boss",
        "--store",
        &url,
        "--",
        "sh",
        "-c",
        "echo yes > begun; while [ ! -e go ]; do sleep 0.05; done",
    ];
    let leader = bench.start_until("begun", &words);
    let seen = bench.run(&["leader", "boss", "--json", "--store", &url]);
    assert_eq!(seen.code, Some(0), "{seen:?}");
    std::fs::write(bench.path("go"), "").unwrap();
    let ended = end_of(leader);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn a_service_that_is_away_is_unavailable_and_what_needs_nodes_says_so() {
    let (bench, service, url) = served();
    let refused = bench.run(&["serve", "--store", &url]);
    assert_eq!(refused.code, Some(64), "{refused:?}");
    assert!(refused.err.contains("needs the nodes"), "{refused:?}");
    let plain = bench.run(&["status", "job", "--store", "http://10.1.2.3:7323"]);
    assert_eq!(plain.code, Some(64), "{plain:?}");
    assert!(plain.err.contains("https://"), "{plain:?}");
    service.stop(nix::sys::signal::Signal::SIGKILL);
    let gone = bench.run(&["run", "job", "--no-wait", "--store", &url, "--", "true"]);
    assert_eq!(gone.code, Some(69), "{gone:?}");
}

#[test]
fn the_token_comes_from_the_environment_or_a_file_and_is_never_shown() {
    let bench = Bench::new();
    // printf %s s3cret | sha256sum
    let hash = "1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";
    let tokens = format!(
        "[[token]]\nprincipal = \"ci\"\nsha256 = \"{hash}\"\nverbs = [\"acquire\", \"read\"]\nprefixes = [\"\"]\n"
    );
    std::fs::write(bench.path("tokens.toml"), tokens).unwrap();
    let service = Service::start(&bench, &["--tokens", "tokens.toml"]);
    let url = format!("http://{}", service.address);
    let run = ["run", "job", "--no-wait", "--store", &url, "--", "true"];
    let anonymous = bench.run(&run);
    assert_eq!(anonymous.code, Some(69), "{anonymous:?}");
    assert!(
        anonymous.err.contains("FENCEPOST_SERVICE_TOKEN"),
        "{anonymous:?}"
    );
    std::fs::write(bench.path("token"), "s3cret\n").unwrap();
    let by_file = bench.run(&[
        "run",
        "job",
        "--service-token-file",
        "token",
        "--store",
        &url,
        "--",
        "true",
    ]);
    assert_eq!(by_file.code, Some(0), "{by_file:?}");
    let mut command = bench.command(&run);
    let by_variable = command
        .env("FENCEPOST_SERVICE_TOKEN", "s3cret")
        .output()
        .unwrap();
    assert_eq!(by_variable.status.code(), Some(0), "{by_variable:?}");
    let mut command = bench.command(&run);
    let wrong = command
        .env("FENCEPOST_SERVICE_TOKEN", "wr0ng")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(69), "{wrong:?}");
    assert!(!String::from_utf8_lossy(&wrong.stderr).contains("wr0ng"));
}

#[test]
fn a_watch_of_the_service_sees_the_lock_come_and_go() {
    let (bench, _service, url) = served();
    let program = env!("CARGO_BIN_EXE_fencepost");
    let script = format!("exec '{program}' watch job --json --store {url} > seen");
    let mut watcher = bench.shell(&script).spawn().unwrap();
    let sees = |what: &str| {
        eventually(what, LIMIT, || {
            let seen = std::fs::read_to_string(bench.path("seen")).unwrap_or_default();
            seen.contains(what)
        });
    };
    sees("\"held\":false");
    let ran = bench.run(&["run", "job", "--store", &url, "--", "sleep", "2"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    sees("\"held\":true");
    watcher.kill().unwrap();
    watcher.wait().unwrap();
}

/// The service was always told that an operator had asked for it.
#[test]
fn the_reason_of_a_steal_is_told_to_the_service() {
    let (bench, service, url) = served();
    let taken = bench.run(&["acquire", "job", "--store", &url]);
    assert_eq!(taken.code, Some(0), "{taken:?}");
    // A replica that looks tells those who ask later.
    let look = || service.get("/v1/events?name=job&after=0");
    look();
    let words = [
        "steal", "job", "--yes", "--json", "--reason", "it hangs", "--store", &url,
    ];
    let stolen = bench.run(&words);
    assert_eq!(stolen.code, Some(0), "{stolen:?}");
    assert!(stolen.err.contains("\"reason\":\"it hangs\""), "{stolen:?}");
    eventually("the service knows why", LIMIT, || {
        look().contains("it hangs")
    });
}
