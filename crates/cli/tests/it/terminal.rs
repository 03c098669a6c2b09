//! What people see at a terminal, and what is not written where there is none.

use std::fs;
use std::process::Command;

use fencepost_tests::RedisServer;
use serde_json::Value;

use crate::bench::{Bench, end_of, send};
use crate::pty::Terminal;

pub(crate) const CLEAR: &str = "\r\u{1b}[J";
/// Around each frame: a terminal that has shrunk meanwhile must not make two rows of it.
const NO_WRAP: &str = "\u{1b}[?7l";
const WRAP: &str = "\u{1b}[?7h";

/// What the spinner has drawn, frame by frame, without what is around them.
pub(crate) fn frames(seen: &str) -> Vec<&str> {
    let frames = seen.split(NO_WRAP).filter_map(|frame| {
        let frame = frame.strip_prefix(CLEAR)?;
        let (line, after) = frame.split_once(WRAP).expect("the end of a frame");
        assert!(
            after.starts_with('\r') && !line.contains(['\r', '\n']),
            "{frame:?}"
        );
        Some(line)
    });
    frames.collect()
}

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
    waiter.shows(", next in queue: held by ");
    assert_eq!(
        bench.run(&["release", "job", "--value", &value]).code,
        Some(0)
    );
    waiter.shows("ran\r\n");
    let (code, seen) = waiter.end();
    assert_eq!(code, Some(0), "{seen}");
    let (_, after) = seen.rsplit_once(CLEAR).unwrap();
    assert!(
        after.starts_with("fencepost: acquired lock \"job\" after "),
        "{after:?}"
    );
    assert!(after.ends_with("ran\r\n"), "{after:?}");
}

#[test]
fn the_spinner_names_all_who_have_a_part_of_a_split_lock() {
    let servers = fencepost_tests::RedisServer::start_many(3);
    for (server, owner) in servers.iter().zip(["web-1", "web-2"]) {
        server.cli(&["SET", "job", owner, "PX", "600000"]);
    }
    let urls: Vec<_> = servers.iter().map(|server| server.url()).collect();
    let urls = urls.join(",");
    let bench = Bench::new();
    let trust = ["--store", &urls, "--restart-policy", "trust"];
    let waiter = bench.command(&[&["run", "job"], &trust[..], &["--", "echo", "ran"]].concat());
    let waiter = Terminal::start(waiter);
    waiter.shows(", next in queue: split between web-1 and web-2");
    // The waiter has the lock after the first of them: what it got on the third must stay.
    for server in &servers[..2] {
        server.cli(&["DEL", "job"]);
    }
    waiter.shows("ran\r\n");
    let (code, seen) = waiter.end();
    assert_eq!(code, Some(0), "{seen}");
    assert!(!seen.contains("held by"), "{seen}");
}

#[test]
fn the_spinner_tells_what_else_is_waited_for() {
    for (hold, wait, what, who) in [
        (
            "run b",
            "run a,b",
            "waiting for locks \"a,b\" (",
            "s), next in queue: held by ",
        ),
        (
            "run pool --slots 1",
            "run pool --slots 1",
            "waiting for a slot of \"pool\" (0s): held by ",
            "s), next in queue: held by ",
        ),
        (
            "elect job --value me",
            "elect job",
            "waiting for the leadership of \"job\" (0s): held by ",
            "s), next in queue: held by ",
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
    waiter.shows("s), next in queue: all 2 are taken, one by ");
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
            .contains("acquired lock \"job\" after"),
        "{said}"
    );
}

#[test]
fn a_steal_is_confirmed_at_the_terminal() {
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

/// A shell with the terminal as its own, in which `$F` is the program.
pub(crate) fn shell(bench: &Bench, script: &str) -> Terminal {
    let program = bench.command(&[]);
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "--wait", "bash", "-m", "-c", script]);
    shell.current_dir(bench.path(""));
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("F", program.get_program());
    Terminal::start(shell)
}

/// It drew over the prompt.
#[test]
fn a_job_in_the_background_draws_nothing_and_one_in_the_foreground_does() {
    let bench = Bench::new();
    take(&bench);
    let (code, seen) = shell(&bench, r#""$F" run job --wait 700ms -- true & wait"#).end();
    assert_eq!(code, Some(0), "{seen}");
    assert!(!seen.contains('\u{1b}') && !seen.contains('⠋'), "{seen:?}");
    // What is said elsewhere is said here, too: a line at the start and one at the end.
    assert!(
        seen.contains("fencepost: waiting: lock \"job\" is held by"),
        "{seen:?}"
    );
    assert!(
        seen.contains("fencepost: gave up after 700ms: lock \"job\" is held"),
        "{seen:?}"
    );
    let (code, seen) = shell(&bench, r#""$F" run job --wait 700ms -- true"#).end();
    assert_eq!(code, Some(75), "{seen}");
    assert!(seen.contains('⠋'), "{seen:?}");
}

/// A line of which the terminal makes two when it shrinks was cleared by half. The cursor waits in the
/// first column, where such a line begins, and all from there on is cleared.
#[test]
fn the_line_can_be_cleared_whole_after_the_terminal_has_shrunk() {
    let bench = Bench::new();
    take(&bench);
    let waiter = bench.command(&["run", "job", "--wait", "1s", "--", "true"]);
    let (_, seen) = Terminal::start(waiter).end();
    let frames = frames(&seen);
    assert!(frames.len() >= 3, "{seen:?}");
    assert_eq!(frames.len() + 1, seen.matches(CLEAR).count(), "{seen:?}");
}

/// Rows of frames that were drawn between a change of the width and the next look at it stayed for good.
#[test]
fn no_frame_is_wrapped_however_often_the_terminal_changes_its_width() {
    let bench = Bench::new();
    take(&bench);
    let waiter = bench.command(&["run", "job", "--wait", "3s", "--", "true"]);
    let terminal = Terminal::start(waiter);
    terminal.shows("waiting for");
    for columns in [110, 50, 100, 40, 90, 30] {
        terminal.resize(columns);
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    let (_, seen) = terminal.end();
    let frames = frames(&seen);
    // Nothing of what is drawn stands outside of a frame.
    let spinning = seen.matches(|c| ('⠀'..='⣿').contains(&c)).count();
    assert_eq!(frames.len(), spinning, "{seen:?}");
    let last = frames.last().expect("a frame");
    assert!(last.chars().count() < 30, "{last:?}");
}

/// It was decided at the start whether it draws: a job that was brought to the foreground showed nothing.
#[test]
fn a_job_that_is_brought_to_the_foreground_is_drawn_from_then_on() {
    let bench = Bench::new();
    take(&bench);
    let script = r#""$F" run job --wait 3s -- true & sleep 0.7; echo; echo now; fg"#;
    let (_, seen) = shell(&bench, script).end();
    let (before, after) = seen.split_once("now").expect("what the shell said");
    assert!(!before.contains('\u{1b}'), "{before:?}");
    assert!(!frames(after).is_empty(), "{after:?}");
}

#[test]
fn wide_characters_do_not_make_the_line_too_long() {
    let bench = Bench::new();
    let name = "夜間バッチ処理".repeat(6);
    assert_eq!(
        bench.run(&["acquire", &name, "--for-pid", "none"]).code,
        Some(0)
    );
    let script = format!(r#"stty cols 40; "$F" run {name} --wait 500ms -- true"#);
    let (_, seen) = shell(&bench, &script).end();
    for frame in frames(&seen) {
        // Each of these takes two columns.
        let wide = frame.chars().filter(|c| *c > '\u{2fff}').count();
        let columns = frame.trim_end().chars().count() + wide;
        assert!((30..40).contains(&columns), "{columns}: {frame:?}");
    }
    assert!(seen.contains('…'), "{seen:?}");
}

/// The terminal cut words in two where its line ended.
#[test]
fn a_long_error_is_wrapped_between_words_and_its_nodes_stay_aligned() {
    let bench = Bench::new();
    let store = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    let script = format!(r#"stty cols 60; "$F" run job --no-wait --store {store} -- true"#);
    let (_, seen) = shell(&bench, &script).end();
    let lines: Vec<_> = seen.lines().map(str::trim_end).collect();
    assert!(
        lines.iter().all(|line| line.chars().count() <= 60),
        "{seen}"
    );
    assert!(lines.len() > 4, "nothing was wrapped: {seen}");
    let column = "  redis://127.0.0.1:1  ".len();
    let below = lines
        .iter()
        .filter(|line| line.starts_with(&" ".repeat(column)) && !line[column..].starts_with(' '));
    assert!(below.count() >= 3, "{seen}");
}

/// Every event has a time, and says how long the wait was.
#[test]
fn events_have_a_time_and_tell_how_long_was_waited() {
    let bench = Bench::new();
    let value = take(&bench);
    let words = ["run", "job", "--json", "--wait", "300ms", "--", "true"];
    let ran = bench.run(&words);
    assert_eq!(ran.code, Some(75), "{ran:?}");
    let events = |text: &str| -> Vec<Value> {
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    };
    let told = events(&ran.err);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(
        (&told[0]["event"], &told[1]["event"]),
        (&"waiting".into(), &"failed".into())
    );
    assert_eq!(told[1]["timed_out"], true);
    let waited = told[1]["waited_ms"].as_u64().unwrap();
    assert!((300..20_000).contains(&waited), "{waited}");
    assert!(told[1]["holder"].as_str().is_some() && told[1]["remaining_ms"].as_u64().is_some());
    let no_wait = bench.run(&["run", "job", "--json", "--no-wait", "--", "true"]);
    let no_wait = events(&no_wait.err);
    assert_eq!(
        (no_wait.len(), &no_wait[0]["timed_out"]),
        (1, &false.into())
    );
    bench.run(&["release", "job", "--value", &value]);
    let ran = events(&bench.run(&words).err);
    let names: Vec<_> = ran
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["acquired", "exited", "released"]);
    assert_eq!(ran[0]["waited_ms"], 0);
    for event in told.iter().chain(&no_wait).chain(&ran) {
        // 2026-11-16T16:08:10.123Z
        let time = event["time"].as_str().unwrap();
        assert!(
            time.len() == 24 && time.ends_with('Z') && &time[10..11] == "T",
            "{time}"
        );
    }
}

#[test]
fn a_list_can_be_watched() {
    let bench = Bench::new();
    let mut watcher = Terminal::start(bench.command(&["list", "--watch", "--every", "50ms"]));
    watcher.shows("no lock that fencepost knows of is held");
    take(&bench);
    watcher.shows("\u{1b}[H\u{1b}[J");
    watcher.shows("lock  holder");
    watcher.child.kill().unwrap();
    watcher.end();
    // Elsewhere there is something to read only when something has changed.
    let ran = bench.script(r#""$F" list --watch --every 50ms --json | head -n 1"#);
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told["locks"][0]["lock"], "job");
    assert!(told["at_ms"].as_u64().is_some());
}

#[test]
fn where_there_is_no_terminal_it_says_now_and_then_what_it_waits_for() {
    let bench = Bench::new();
    take(&bench);
    let words = [
        "run", "job", "--wait", "1s", "--remind", "200ms", "--", "true",
    ];
    let said = bench.run(&words).err;
    let lines = said.lines().filter(|line| {
        line.starts_with("fencepost: still waiting for lock \"job\" (")
            && line.contains(": held by ")
    });
    assert!((1..=5).contains(&lines.count()), "{said}");
    let said = bench
        .run(&[&words[..4], &["--remind", "0", "--", "true"]].concat())
        .err;
    assert_eq!(said.lines().count(), 2, "{said}");
    let json = [&words[..6], &["--json", "--", "true"]].concat();
    let said = bench.run(&json).err;
    let waited = said
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let waited: Vec<_> = waited
        .map(|event| event["waited_ms"].as_u64().unwrap())
        .collect();
    assert!(waited.len() >= 3 && waited.is_sorted(), "{said}");
}

/// On new servers it turned for a minute without a reason, at a terminal and in a log.
#[test]
fn a_wait_for_nodes_says_what_each_of_them_lacks() {
    let bench = Bench::new();
    let servers = RedisServer::start_many(3);
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let store = urls.join(",");
    let words = [
        "run", "job", "--store", &store, "--wait", "1s", "--remind", "200ms", "--", "true",
    ];
    let said = bench.run(&words).err;
    let reminder = "fencepost: still waiting for lock \"job\" (0s); first attempt: no quorum for lock \"job\": 0 of 3";
    assert!(said.contains(reminder), "{said}");
    let waiter = Terminal::start(bench.command(&words));
    waiter.shows("fencepost: waiting: no quorum for lock \"job\": 0 of 3 nodes agreed");
    waiter.shows("votes again in ");
    waiter.shows("`fencepost init --fresh` skips it, but only before the first client");
    waiter.shows("s); first attempt: no quorum");
    let (code, seen) = waiter.end();
    assert_eq!(code, Some(69), "{seen}");
}
