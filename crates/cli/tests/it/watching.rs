//! `top` and `deadlocks`: what of the dashboard fits a terminal.

use std::process::Child;

use fencepost_tests::{RedisServer, eventually};

use crate::bench::{Bench, LIMIT};
use crate::pty::Terminal;
use crate::terminal::shell;

/// Ends it with what it has started, at the latest when the test does.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // Its command dies with it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn top_shows_nodes_and_locks_and_what_is_to_be_worried_about() {
    let bench = Bench::new();
    let mut servers = RedisServer::start_many(3);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let urls = urls.join(",");
    let store = ["--store", &urls, "--restart-policy", "trust"];
    let words = |words: &[&'static str]| [words, &store[..]].concat();
    assert_eq!(
        bench.run(&words(&["acquire", "job", "--ttl", "60s"])).code,
        Some(0)
    );
    // A client of another library has it now, without an end.
    assert_eq!(
        bench.run(&words(&["acquire", "cron", "--ttl", "60s"])).code,
        Some(0)
    );
    for server in &servers {
        assert_eq!(server.cli(&["SET", "cron", "cron-host-3"]), "OK");
    }
    let top = words(&["top", "--count", "1"]);
    let seen = bench
        .run_until(&top, "3 nodes vote, 2 needed: 1 more may fail")
        .out;
    let line = |seen: &str, name: &str| {
        let mut lines = seen.lines().filter(|line| line.starts_with(name));
        lines.next().unwrap_or_else(|| panic!("{seen}")).to_owned()
    };
    assert!(seen.contains("2 held, 0 waiting"), "{seen}");
    assert!(
        line(&seen, "cron").ends_with("3/3    foreign, no expiry"),
        "{seen}"
    );
    assert!(line(&seen, "job").ends_with("3/3    -"), "{seen}");

    servers[2].kill();
    let seen = bench
        .run_until(&top, "2 nodes vote, 2 needed: none may fail")
        .out;
    assert!(line(&seen, &servers[2].url()).contains("down"), "{seen}");
    assert!(
        line(&seen, "job").ends_with("2/3    bare majority"),
        "{seen}"
    );

    // On a screen, what does not fit is left out, and nothing is broken across lines.
    let script = format!(r#"stty cols 60 rows 9; "$F" {}"#, top.join(" "));
    let (_, seen) = shell(&bench, &script).end();
    let picture = seen.rsplit("\u{1b}[2J").next().unwrap_or_default();
    let lines: Vec<_> = picture.lines().collect();
    assert!(lines.len() <= 9, "{picture:?}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 60),
        "{picture:?}"
    );
    assert!(picture.starts_with("fencepost top"), "{seen:?}");
}

#[test]
fn top_goes_on_until_it_is_interrupted() {
    let bench = Bench::new();
    let terminal = Terminal::start(bench.command(&["top", "--every", "100ms"]));
    let pid = nix::unistd::Pid::from_raw(terminal.child.id().cast_signed());
    eventually("a few pictures", LIMIT, || {
        terminal.seen().matches("fencepost top").count() > 2
    });
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("our own child");
    terminal.end();
}

#[test]
fn three_that_wait_for_each_other_are_a_cycle_and_a_chain_is_none() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let url = server.url();
    let store = ["--store", &url];
    let none = bench.run(&["deadlocks", "--store", &url]);
    assert_eq!(none.code, Some(0), "{none:?}");
    let names = ["accounts", "ledger", "audit"];
    let mut ring = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let next = names[(at + 1) % 3];
        // The last one waits for the first only when it is told.
        let script = format!(
            r#"echo > holds-{name}; while [ ! -e go-{name} ]; do sleep 0.05; done
               exec "$0" run --store "$1" {next} -- true"#
        );
        let program = env!("CARGO_BIN_EXE_fencepost");
        let command = ["--", "sh", "-c", &script, program, &url];
        let child = bench.start(&[&["run", *name], &store[..], &command[..]].concat());
        ring.push(Ends(child));
        bench.await_file(&format!("holds-{name}"));
    }
    for (name, next) in [("accounts", "ledger"), ("ledger", "audit")] {
        std::fs::write(bench.path(&format!("go-{name}")), "").expect("a file");
        bench.await_line(next, &store, 1);
    }
    let chain = bench.run(&["deadlocks", "--store", &url]);
    assert_eq!(chain.code, Some(0), "a chain ends by itself: {chain:?}");
    std::fs::write(bench.path("go-audit"), "").expect("a file");
    let found = bench.run_until(&["deadlocks", "--store", &url], "cycle of 3");
    assert_eq!(found.code, Some(1), "{found:?}");
    for name in names {
        assert!(
            found.out.contains(&format!("waits for \"{name}\"")),
            "{found:?}"
        );
    }
    let json = bench.run(&["deadlocks", "--json", "--store", &url]).out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["cycles"][0]["steps"].as_array().map(Vec::len), Some(3));
    drop(ring);
}
