//! A command never begins beside the next holder: whatever happens between the grant of its lock and
//! its start.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Write, pipe};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use fencepost_tests::{RedisServer, eventually};

use crate::bench::{Bench, LIMIT, Ran, end_of, is_stopped, pid_of, runs, send};

/// The end of a pipe that takes nothing more, and its other end.
fn full_pipe() -> (Stdio, PipeReader) {
    let (reader, mut writer) = pipe().expect("a pipe");
    let flags = rustix::fs::fcntl_getfl(&writer).expect("a pipe");
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).expect("a pipe");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).expect("a pipe");
    (writer.into(), reader)
}

/// The notice that the lock was granted was written before the command began. While nobody read it,
/// the lock expired; when somebody did, the command began beside the next holder.
#[test]
fn a_stderr_without_a_reader_keeps_no_command_from_beginning_under_its_lock() {
    let bench = Bench::new();
    let (stderr, unread) = full_pipe();
    let line = "echo >began; sleep 60";
    let words = ["run", "job", "--json", "--ttl", "1s", "--shell", line];
    let run = bench.command(&words).stderr(stderr).spawn().unwrap();
    bench.await_file("began");
    // Renewed, too: nobody else gets it long after its TTL.
    let rival = ["run", "job", "--wait", "2500ms", "-q", "--", "true"];
    assert_eq!(bench.run(&rival).code, Some(75));
    send("TERM", pid_of(&run));
    drop(unread);
    assert_eq!(end_of(run).code, Some(128 + 15));
}

/// How often it is stopped at the right moment: what begins may be killed before it can show it.
const ROUNDS: usize = 10;
/// How often that is tried.
const MOST_ROUNDS: usize = 10 * ROUNDS;

/// Returns when the server has the key, as fast as can be.
fn await_key(server: &RedisServer, key: &str) {
    let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("our own server");
    let mut stream = BufReader::new(stream);
    eventually("it is granted", LIMIT, || {
        let mut answer = String::new();
        // Without the pauses of `eventually`, which are longer than the moment that is looked for.
        for _ in 0..1000 {
            let sent = write!(stream.get_mut(), "EXISTS {key}\r\n");
            sent.expect("our own server");
            answer.clear();
            stream.read_line(&mut answer).expect("our own server");
            if answer == ":1\r\n" {
                return true;
            }
        }
        false
    });
}

/// It went on to start its command, however long it had been stopped.
#[test]
fn one_that_was_stopped_before_its_command_began_does_not_begin_it_beside_the_next_holder() {
    let server = RedisServer::start();
    let store = ["--store", &server.url()];
    let mut hits = 0;
    for round in 0..MOST_ROUNDS {
        let bench = Bench::new();
        server.cli(&["FLUSHALL"]);
        // It waits a moment for whoever reads its stderr, between grant and start.
        let (stderr, unread) = full_pipe();
        let options = [
            "--no-wait",
            "--json",
            "--ttl",
            "400ms",
            "--",
            "touch",
            "began",
        ];
        let words = [&["run", "job"], &store[..], &options].concat();
        let run = bench.command(&words).stderr(stderr).spawn().unwrap();
        await_key(&server, "job");
        let us = pid_of(&run);
        send("STOP", us);
        eventually("it is stopped or has ended", LIMIT, || {
            is_stopped(us) || !runs(us)
        });
        // At the latest after its TTL.
        let rival = bench.run(&[&["acquire", "job", "--ttl", "30s"], &store[..]].concat());
        assert_eq!(rival.code, Some(0), "{rival:?}");
        let began_before = bench.path("began").exists();
        send("CONT", us);
        drop(unread);
        let code = end_of(run).code;
        assert_eq!(bench.path("began").exists(), began_before, "round {round}");
        if !began_before {
            // 69: it was stopped before it had read that the lock was granted, which is too late now.
            assert!(matches!(code, Some(79 | 69)), "round {round}: {code:?}");
            hits += usize::from(code == Some(79));
            if hits == ROUNDS {
                return;
            }
        }
    }
    panic!("it was stopped between grant and start {hits} times only");
}

#[test]
fn what_has_not_become_the_command_by_the_deadline_does_not_become_it() {
    let bench = Bench::new();
    let us = std::process::id().to_string();
    let call = |deadline: &str| {
        let mut shim = bench.command(&["__child", &us, "background", deadline, "touch", "began"]);
        shim.arg0("fencepost").output().unwrap()
    };
    let late = call("1");
    assert_eq!(late.status.code(), Some(79));
    let said = String::from_utf8(late.stderr).unwrap();
    assert!(
        said.contains("before the command could be started"),
        "{said}"
    );
    assert!(!bench.path("began").exists());
    assert_eq!(call(&u64::MAX.to_string()).status.code(), Some(0));
    assert!(bench.path("began").exists());
}

/// The pids of the children of a process.
fn children(pid: i32) -> Vec<i32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let pids = children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a pid"));
    pids.collect()
}

fn comm(pid: i32) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    comm.unwrap_or_default().trim_end().to_owned()
}

#[test]
fn the_helper_process_is_called_by_its_name() {
    let bench = Bench::new();
    let run = bench.start_until("up", &["run", "job", "--shell", "echo >up; sleep 60"]);
    eventually("the guard has its name", LIMIT, || {
        children(pid_of(&run))
            .into_iter()
            .any(|pid| comm(pid) == "fencepost-guard")
    });
    send("TERM", pid_of(&run));
    end_of(run);
}

/// As the first process of a container we are the parent of whatever loses its own. The same holds
/// outside of one for what the command has started.
#[test]
fn those_who_became_our_children_and_died_are_not_left_lying_about() {
    let bench = Bench::new();
    // Each leaves the command's group, as daemons do, loses its parent, and ends.
    let line = "for n in 1 2 3 4 5; do (setsid sh -c 'sleep 0.2; echo >>ended' &); done; \
                echo >up; while :; do sleep 0.05; done";
    let run = bench.start_until("up", &["run", "job", "--shell", line]);
    eventually("they have ended", LIMIT, || {
        let ended = std::fs::read_to_string(bench.path("ended")).unwrap_or_default();
        ended.lines().count() == 5
    });
    eventually("none of the dead is left", LIMIT, || {
        let us = pid_of(&run);
        children(us).into_iter().all(runs)
    });
    assert!(runs(pid_of(&run)));
    send("TERM", pid_of(&run));
    assert_eq!(end_of(run).code, Some(128 + 15));
}

#[test]
fn a_guard_that_was_killed_is_taken_note_of_and_changes_nothing() {
    let bench = Bench::new();
    let run = bench.start_until("up", &["run", "job", "--shell", "echo >up; sleep 60"]);
    let guard = || {
        let mut all = children(pid_of(&run)).into_iter();
        all.find(|pid| comm(*pid) == "fencepost-guard")
    };
    eventually("there is a guard", LIMIT, || guard().is_some());
    send("KILL", guard().unwrap());
    eventually("none is left", LIMIT, || guard().is_none());
    send("TERM", pid_of(&run));
    assert_eq!(end_of(run).code, Some(128 + 15));
}

/// In a process namespace of its own it is the first process indeed, where the system lets us make one.
#[test]
fn as_the_first_process_of_a_container_it_runs_its_command_and_reaps() {
    let bench = Bench::new();
    let unshare = |words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--mount-proc", "--map-root-user", "--"]);
        command.args(words).current_dir(bench.path(""));
        command
            .env("XDG_STATE_HOME", bench.path(""))
            .stdin(Stdio::null());
        command
    };
    if !unshare(&["true"])
        .output()
        .is_ok_and(|ran| ran.status.success())
    {
        println!("this system has no process namespaces for us");
        return;
    }
    let line = "(setsid true &); sleep 0.3; until ! grep -qs Z /proc/[0-9]*/status; do sleep 0.05; done; \
                cat /proc/1/comm; exit 7";
    let program = env!("CARGO_BIN_EXE_fencepost");
    let out = File::create(bench.path("out")).unwrap();
    let mut command = unshare(&[program, "run", "job", "--shell", line]);
    let run = command.stdout(out).spawn().unwrap();
    assert_eq!(end_of(run).code, Some(7));
    let out = std::fs::read_to_string(bench.path("out")).unwrap();
    assert_eq!(out, "fencepost\n");
}

/// It said that the command was missing, which was there.
#[test]
fn without_proc_it_is_proc_that_is_called_missing() {
    let bench = Bench::new();
    let hidden = |words: &str| {
        let line = format!("mount -t tmpfs none /proc && exec {words}");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-c", &line]);
        command.current_dir(bench.path(""));
        command.env("XDG_STATE_HOME", bench.path(""));
        Ran::from(command.output().expect("unshare"))
    };
    if hidden("true").code != Some(0) {
        println!("this system has no mount namespaces for us");
        return;
    }
    let program = env!("CARGO_BIN_EXE_fencepost");
    let ran = hidden(&format!("{program} run job --store file:locks.db -- true"));
    assert_eq!(ran.code, Some(126), "{ran:?}");
    assert!(ran.err.contains("mount /proc"), "{ran:?}");
}

/// On a file the loss was told up to a second late after a suspend: the renewer slept on a clock that stops with the
/// machine. No machine is suspended here; that the timer is the kernel's, and on the clock that goes on, can be seen.
#[test]
#[cfg(target_os = "linux")]
fn a_lease_in_a_file_is_watched_on_the_clock_that_runs_while_the_machine_sleeps() {
    /// `CLOCK_BOOTTIME`, as the kernel numbers it.
    const BOOTTIME: &str = "clockid: 7";
    let bench = Bench::new();
    let run = bench
        .command(&["run", "job", "--shell", "echo >began; sleep 60"])
        .spawn()
        .unwrap();
    bench.await_file("began");
    let files = format!("/proc/{}/fdinfo", run.id());
    let has_timer = || {
        let files = std::fs::read_dir(&files).expect("it runs");
        let mut texts = files.filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok());
        texts.any(|text| text.contains(BOOTTIME))
    };
    eventually("there is a timer", LIMIT, has_timer);
    send("TERM", pid_of(&run));
    assert_eq!(end_of(run).code, Some(128 + 15));
}
