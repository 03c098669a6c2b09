//! What people see at a terminal, and what is not written where nobody looks.

use std::fs;

use serde_json::Value;

use crate::bench::{Bench, end_of, send};
use crate::pty::Terminal;

const CLEAR: &str = "\r\u{1b}[J";

/// A lock that is held, and what it takes to give it back.
fn take(bench: &Bench) -> String {
    let held = bench.run(&["acquire", "job", "--json"]);
    let held: Value = serde_json::from_str(&held.out).expect("as it is printed");
    held["value"].as_str().expect("as it is printed").to_owned()
}

#[test]
fn a_spinner_tells_for_whom_we_wait_and_is_gone_in_the_end() {
    let bench = Bench::new();
    let value = take(&bench);
    let owner = value.split_once(':').unwrap().1;
    let owner: String = owner.chars().take(12).collect();
    let waiter = Terminal::start(bench.command(&["run", "job", "--", "echo", "ran"]));
    waiter.shows("waiting for lock \"job\" (0s): held by ");
    waiter.shows(&owner);
    // It moves, and goes on telling how long still.
    for frame in ['⠋', '⠙', '⠹'] {
        waiter.shows(&format!("{CLEAR}{frame} "));
    }
    waiter.shows(" (1s)");
    waiter.shows(", next in line: held by ");
    assert_eq!(
        bench.run(&["release", "job", "--value", &value]).code,
        Some(0)
    );
    waiter.shows("ran\r\n");
    let (code, seen) = waiter.end();
    assert_eq!(code, Some(0), "{seen}");
    let (_, after) = seen.rsplit_once(CLEAR).unwrap();
    assert!(
        after.starts_with("fencepost: got lock \"job\" after "),
        "{after:?}"
    );
    assert!(after.ends_with("ran\r\n"), "{after:?}");
}

#[test]
fn the_spinner_tells_what_else_is_waited_for() {
    for (hold, wait, what, who) in [
        (
            "run b",
            "run a,b",
            "waiting for locks \"a,b\" (",
            "s), next in line: held by ",
        ),
        (
            "run pool --slots 1",
            "run pool --slots 1",
            "waiting for a slot of \"pool\" (0s): held by ",
            "s), next in line: held by ",
        ),
        (
            "elect job --value me",
            "elect job",
            "waiting for the leadership of \"job\" (0s): held by ",
            "s), next in line: held by ",
        ),
    ] {
        let bench = Bench::new();
        let words = |text: &'static str| text.split(' ').collect::<Vec<_>>();
        let line = ["--shell", "echo >up; sleep 60"];
        let holder = bench.start_until("up", &[&words(hold)[..], &line].concat());
        let waiter = bench.command(&[&words(wait)[..], &["--", "echo", "ran"]].concat());
        let waiter = Terminal::start(waiter);
        waiter.shows(what);
        waiter.shows(who);
        send("TERM", i32::try_from(holder.id()).unwrap());
        end_of(holder);
        waiter.shows("ran\r\n");
        let (code, seen) = waiter.end();
        assert_eq!(code, Some(0), "{seen}");
    }
}

#[test]
fn the_spinner_tells_that_all_slots_are_taken_until_when_and_by_whom() {
    let bench = Bench::new();
    let line = "echo >up-$FENCEPOST_SLOT; sleep 60";
    let hold = |ttl| {
        let words = ["run", "pool", "--slots", "2", "--ttl", ttl, "--shell", line];
        bench.start(&words)
    };
    let holders = [hold("30s"), hold("60s")];
    bench.await_file("up-0");
    bench.await_file("up-1");
    let waiter = bench.command(&["run", "pool", "--slots", "2", "--", "echo", "ran"]);
    let waiter = Terminal::start(waiter);
    // The one with the shorter TTL ends first, however often both renew theirs.
    waiter.shows("waiting for a slot of \"pool\" (0s): all 2 are taken, one by ");
    waiter.shows("s), next in line: all 2 are taken, one by ");
    for holder in holders {
        send("TERM", i32::try_from(holder.id()).unwrap());
        end_of(holder);
    }
    waiter.shows("ran\r\n");
    let (code, seen) = waiter.end();
    assert_eq!(code, Some(0), "{seen}");
}

#[test]
fn a_signal_while_the_spinner_turns_leaves_a_clean_line() {
    let bench = Bench::new();
    take(&bench);
    let waiter = Terminal::start(bench.command(&["acquire", "job"]));
    waiter.shows("held by");
    send("INT", i32::try_from(waiter.child.id()).unwrap());
    let (code, seen) = waiter.end();
    assert_eq!(code, Some(128 + 2), "{seen}");
    assert!(seen.ends_with(CLEAR), "{seen:?}");
}

#[test]
fn quiet_and_json_have_no_spinner_at_a_terminal_either() {
    let bench = Bench::new();
    take(&bench);
    for (option, says) in [("-q", ""), ("--json", "\"event\":\"waiting\"")] {
        let words = ["run", "job", option, "--wait", "300ms", "--", "true"];
        let (code, seen) = Terminal::start(bench.command(&words)).end();
        assert_eq!(code, Some(75), "{seen}");
        assert!(!seen.contains('\u{1b}'), "{seen:?}");
        assert!(seen.contains(says), "{seen:?}");
    }
}

#[test]
fn without_a_terminal_there_is_one_line_at_the_start_and_one_at_the_end() {
    let bench = Bench::new();
    let value = take(&bench);
    let mut waiter = bench.command(&["run", "job", "--", "true"]);
    let said = fs::File::create(bench.path("said")).unwrap();
    let waiter = waiter.stderr(said).spawn().unwrap();
    assert!(
        bench
            .await_file("said")
            .contains("waiting: lock \"job\" is held by")
    );
    // Longer than the spinner would take to turn.
    std::thread::sleep(std::time::Duration::from_millis(400));
    bench.run(&["release", "job", "--value", &value]);
    assert_eq!(end_of(waiter).code, Some(0));
    let said = fs::read_to_string(bench.path("said")).unwrap();
    assert_eq!(said.lines().count(), 2, "{said:?}");
    assert!(!said.contains('\u{1b}') && !said.contains('\r'), "{said:?}");
    assert!(
        said.lines()
            .nth(1)
            .unwrap()
            .contains("got lock \"job\" after"),
        "{said}"
    );
}

#[test]
fn a_theft_is_confirmed_at_the_terminal() {
    let bench = Bench::new();
    let value = take(&bench);
    for (answer, code, says) in [
        ("n\n", 75, "nothing was stolen"),
        ("\n", 75, "nothing was stolen"),
        ("\u{4}", 75, "nothing was stolen"),
        ("y\n", 0, "was stolen from "),
    ] {
        let mut terminal = Terminal::start(bench.command(&["steal", "job"]));
        terminal.shows("Steal it? [y/N] ");
        assert!(terminal.seen().contains("lock \"job\" is held by"));
        let held = bench.run(&["status", "job"]).out;
        let owner = value.split_once(':').unwrap().1;
        assert!(held.contains(owner), "not before it was confirmed: {held}");
        terminal.type_in(answer);
        let (ended, seen) = terminal.end();
        assert_eq!(ended, Some(code), "{seen}");
        assert!(seen.contains(says), "{answer:?}: {seen}");
    }
}
