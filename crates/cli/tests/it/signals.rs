//! Signals reach the whole group, and nothing of the command outlives us.

use std::fs;
use std::process::Command;
use std::time::Duration;

use fencepost_tests::eventually;

use crate::bench::{Bench, dies, end_of, is_stopped, runs, send};

/// Much less than the TTL, which is 30 s.
const AT_ONCE: Duration = Duration::from_secs(10);

#[test]
fn what_would_end_us_is_passed_on_to_the_whole_group() {
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let bench = Bench::new();
        // In a pipe, because shells have what they start with `&` ignore INT and QUIT.
        let below = format!(
            "trap 'echo heard >below; exit' {signal}\n\
             echo $$ >grandchild\n\
             while :; do sleep 0.02; done\n"
        );
        let above = format!("trap heard=7 {signal}; sh below.sh | cat; exit $heard");
        fs::write(bench.path("below.sh"), below).unwrap();
        let run = bench.start_until("grandchild", &["run", "job", "--shell", &above]);
        let grandchild = bench.pid("grandchild");
        send(signal, i32::try_from(run.id()).unwrap());
        let ran = end_of(run);
        assert_eq!(ran.code, Some(7), "{signal}: {ran:?}");
        assert_eq!(bench.await_file("below"), "heard", "{signal}");
        assert!(!runs(grandchild), "{signal}");
    }
}

/// Five tests failed when all were started by `nohup` or in the background.
#[test]
fn what_the_tests_were_started_to_ignore_the_program_is_not() {
    let test = "signals::what_would_end_us_is_passed_on_to_the_whole_group";
    let line = format!("trap '' HUP INT QUIT; exec \"$0\" --exact {test}");
    let ran = Command::new("sh")
        .args(["-c", &line])
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn what_we_were_started_to_ignore_stays_ignored() {
    let bench = Bench::new();
    // As `nohup` does it.
    let line = "trap '' HUP; exec $F run job --shell 'kill -HUP $$; echo >up; sleep 60'";
    let run = bench.shell(line).spawn().unwrap();
    bench.await_file("up");
    let pid = i32::try_from(run.id()).unwrap();
    send("HUP", pid);
    send("TERM", pid);
    assert_eq!(end_of(run).code, Some(128 + 15));
}

#[test]
fn killed_with_9_we_leave_no_orphan_and_the_next_in_line_begins_at_once() {
    let bench = Bench::new();
    let line = "sh -c 'echo $$ >grandchild; while :; do sleep 0.02; done' & \
                until [ -s grandchild ]; do :; done; echo $$ >child; while :; do sleep 0.02; done";
    let mut holder = bench.start_until("child", &["run", "job", "--shell", line]);
    let (child, grandchild) = (bench.pid("child"), bench.pid("grandchild"));
    let mut next = bench.command(&["run", "job", "--shell", "echo >next"]);
    let said = fs::File::create(bench.path("said")).unwrap();
    let next = next.stderr(said).spawn().unwrap();
    bench.await_file("said");
    assert!(!bench.path("next").exists() && runs(child));
    send("KILL", i32::try_from(holder.id()).unwrap());
    holder.wait().unwrap();
    dies(child, AT_ONCE);
    dies(grandchild, AT_ONCE);
    eventually("the next begins", AT_ONCE, || bench.path("next").exists());
    assert_eq!(end_of(next).code, Some(0));
}

#[test]
fn what_a_command_leaves_behind_is_stopped_before_the_lock_is_free() {
    let bench = Bench::new();
    for (name, leftover, code) in [
        ("polite", "sleep 60 & echo $! >left; exit 4", 4),
        (
            "deaf",
            "(trap '' TERM; echo >deaf; sleep 60; sleep 60) & echo $! >left; until [ -e deaf ]; do :; done",
            0,
        ),
    ] {
        let ran = bench.run(&["run", name, "--grace", "300ms", "--shell", leftover]);
        assert_eq!(ran.code, Some(code), "{name}: {ran:?}");
        assert!(!runs(bench.pid("left")), "{name}");
    }
    // What ends by itself in a moment is left alone.
    let ran = bench.run(&["run", "job", "--shell", "(sleep 0.1; echo bye) & exit 0"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "bye\n"));
}

#[test]
fn while_we_are_stopped_the_command_is_too_and_it_goes_on_only_if_the_lock_is_still_ours() {
    for (ttl, code) in [("30s", 128 + 15), ("2s", 79)] {
        let bench = Bench::new();
        // Not a loop of the shell: one that is stopped between fork and exec is not seen as stopped.
        let line = "echo $$ >child; exec sleep 60";
        let run = bench.start_until("child", &["run", "job", "--ttl", ttl, "--shell", line]);
        let (us, child) = (i32::try_from(run.id()).unwrap(), bench.pid("child"));
        send("TSTP", us);
        eventually("all is stopped", AT_ONCE, || {
            is_stopped(us) && is_stopped(child)
        });
        // Past the end of the shorter lock.
        std::thread::sleep(Duration::from_millis(2100));
        assert!(is_stopped(us) && is_stopped(child));
        send("CONT", us);
        if code != 79 {
            eventually("it goes on", AT_ONCE, || !is_stopped(child));
            send("TERM", us);
        }
        assert_eq!(end_of(run).code, Some(code));
        assert!(!runs(child));
    }
}
