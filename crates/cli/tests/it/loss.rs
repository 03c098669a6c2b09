//! A lock that is lost takes its command with it, in time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

use fencepost_tests::{Cluster, RedisServer, Stalls, eventually};

use crate::bench::{Bench, LIMIT, dies, end_of, runs};

/// How often the loss is tried.
const ROUNDS: usize = 20;
/// How often at the most, with the rounds of which nothing can be said: see [`Round`].
const MOST_ROUNDS: usize = 4 * ROUNDS;
const TTL: Duration = Duration::from_millis(1200);
/// The program kills the command a sixth of the TTL before the end. If the system lets nobody run for
/// half of that, it may come too late, and no program could help it.
const STALL: Duration = Duration::from_millis(100);

/// What a round has shown.
#[derive(Debug, PartialEq, Eq)]
enum Round {
    /// The command was dead before the end.
    InTime,
    /// Nothing: the machine was so busy that the lock was lost before it was taken away, or that the
    /// program or nobody ran for longer than it allows for.
    Void,
}

/// The time that the lock has left on a server, by one connection: a `redis-cli` for each look takes
/// longer than the time between two renewals on a busy machine.
struct Look {
    stream: BufReader<TcpStream>,
    name: String,
}

impl Look {
    fn at(server: &RedisServer, name: &str) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).expect("our own server");
        let (stream, name) = (BufReader::new(stream), name.to_owned());
        Self { stream, name }
    }

    fn left(&mut self) -> Duration {
        let command = format!("PTTL {}\r\n", self.name);
        let sent = self.stream.get_mut().write_all(command.as_bytes());
        sent.expect("our own server");
        let mut answer = String::new();
        self.stream.read_line(&mut answer).expect("our own server");
        let left = answer.trim_start_matches(':').trim_end().parse();
        // Negative where there is none.
        Duration::from_millis(left.unwrap_or(0))
    }
}

/// Freezes all servers a moment after the lock was renewed, and so that it cannot have been renewed
/// again. Returns when the servers will forget it; `None` if it was lost before.
fn freeze(cluster: &Cluster, name: &str, run: &mut Child) -> Option<SystemTime> {
    let mut look = Look::at(&cluster.servers[0], name);
    let give_up = Instant::now() + LIMIT;
    while Instant::now() < give_up {
        if run.try_wait().expect("our own child").is_some() {
            return None;
        }
        let (asked, now) = (Instant::now(), SystemTime::now());
        let left = look.left();
        // The next renewal comes when two thirds are left.
        if left > TTL * 8 / 10 {
            cluster.servers.iter().for_each(RedisServer::freeze);
            if asked.elapsed() < TTL / 10 {
                return Some(now + left);
            }
            cluster.servers.iter().for_each(RedisServer::thaw);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the lock is not renewed");
}

#[test]
fn when_all_nodes_hang_even_a_deaf_command_is_dead_before_the_lock_ends() {
    let cluster = Cluster::start(3);
    let urls = cluster.urls();
    // Deaf to TERM, and so is what it has started. What it last did is when its file was written.
    let beat = "while :; do echo $$ >$me; sleep 0.01; done";
    let line = format!(
        "trap '' TERM; export me=grandchild; sh -c '{beat}' & \
         until [ -s grandchild ]; do :; done; me=child; {beat}"
    );
    let on_lost = "echo $FENCEPOST_REASON $FENCEPOST_LOCK $FENCEPOST_TOKEN >lost";
    let round = |round: usize| {
        let bench = Bench::new();
        let name = format!("job-{round}");
        let store = ["--store", &urls, "--restart-policy", "trust"];
        let options = ["--ttl", "1200ms", "--on-lost", on_lost, "--shell", &line];
        let words = [&["run", &name], &store[..], &options].concat();
        let mut run = bench.start(&words);
        if !bench.has_line("child", &mut run) {
            return Round::Void;
        }
        let stalls = Stalls::watch();
        let pids = ["child", "grandchild"].map(|who| (who, bench.pid(who)));
        let end = freeze(&cluster, &name, &mut run);
        let ran = end_of(run);
        cluster.servers.iter().for_each(RedisServer::thaw);
        let stall = stalls.longest();
        assert_eq!(ran.code, Some(79), "{ran:?}");
        assert!(
            ran.err.contains("is lost, and the command is stopped"),
            "{ran:?}"
        );
        assert!(pids.iter().all(|(_, pid)| !runs(*pid)), "round {round}");
        let lost = bench.await_file("lost");
        let slept = lost.starts_with(&format!("suspended {name} "));
        let lost = slept || lost.starts_with(&format!("no_quorum {name} "));
        assert!(lost, "round {round}");
        let (Some(end), false) = (end, slept) else {
            return Round::Void;
        };
        for (who, _) in pids {
            let last = fs::metadata(bench.path(who)).unwrap().modified().unwrap();
            println!("{who}, round {round}: dead by {last:?}, the end is {end:?}, stall {stall:?}");
            match end.duration_since(last) {
                Ok(early) if early < TTL => {}
                // It was not alive any more when the servers froze.
                Ok(_) => return Round::Void,
                Err(late) if stall < STALL => {
                    panic!("{who}, round {round}: {:?} too late", late.duration())
                }
                Err(_) => return Round::Void,
            }
        }
        Round::InTime
    };
    let in_time = (0..MOST_ROUNDS).filter(|n| round(*n) == Round::InTime);
    assert_eq!(in_time.take(ROUNDS).count(), ROUNDS);
}

#[test]
fn a_command_that_listens_has_the_grace_to_tidy_up() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let url = server.url();
    let line = "trap 'echo bye >bye; exit 0' TERM; echo >up; while :; do sleep 0.01; done";
    let words = [
        "run", "job", "--store", &url, "--ttl", "5s", "--grace", "2s", "--json", "--shell", line,
    ];
    let run = bench.start_until("up", &words);
    server.freeze();
    let ran = end_of(run);
    server.thaw();
    assert_eq!(ran.code, Some(79), "{ran:?}");
    assert!(bench.path("bye").exists());
    assert!(ran.err.contains(r#""event":"lost""#), "{ran:?}");
    assert!(ran.err.contains(r#""code":0"#), "{ran:?}");
}

#[test]
fn a_lock_that_was_taken_from_us_ends_the_command() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let url = server.url();
    let line = "trap '' TERM; echo >up; while :; do sleep 0.01; done";
    let words = [
        "run", "job", "--store", &url, "--ttl", "3s", "--shell", line,
    ];
    let run = bench.start_until("up", &words);
    server.cli(&["SET", "job", "operator", "PX", "60000"]);
    let ran = end_of(run);
    assert_eq!(ran.code, Some(79), "{ran:?}");
    assert!(ran.err.contains("operator acquired it"), "{ran:?}");
    assert_eq!(server.cli(&["GET", "job"]), "operator");
}

#[test]
fn a_lock_that_was_taken_from_us_and_not_noticed_in_time_is_told_in_the_end() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let url = server.url();
    let line = "echo >up; until [ -e go ]; do sleep 0.01; done";
    let words = ["run", "job", "--store", &url, "--shell", line];
    let run = bench.start_until("up", &words);
    server.cli(&["SET", "job", "operator", "PX", "60000"]);
    fs::write(bench.path("go"), "").unwrap();
    let ran = end_of(run);
    assert_eq!(ran.code, Some(79), "{ran:?}");
    assert!(ran.err.contains("the command ended, but"), "{ran:?}");
}

#[test]
fn a_command_is_stopped_after_the_longest_hold_also_when_stderr_has_no_reader() {
    let bench = Bench::new();
    let line = "echo $$ >child; exec yes >&2";
    let words = ["run", "job", "--max-hold", "3s", "--shell", line];
    let run = bench.start_until("child", &words);
    dies(bench.pid("child"), LIMIT);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(79));
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(err.contains("it reached its maximum hold time"));
}

/// It said that the lock "was not granted", of a release.
#[test]
fn a_lock_that_cannot_be_released_is_told_with_the_reason() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let words = ["run", "job", "--store", &server.url()];
    let run = [&words[..], &["--", "sh", "-c", "echo >up; cat"]].concat();
    let mut command = bench.command(&run);
    let mut run = command.stdin(Stdio::piped()).spawn().expect("the program");
    bench.await_file("up");
    drop(server);
    // It ends before the lock is lost.
    drop(run.stdin.take());
    let ran = end_of(run);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let why = "could not be released and expires with its TTL: no quorum: redis://";
    assert!(
        ran.err.contains(why) && !ran.err.contains("granted"),
        "{ran:?}"
    );
}

#[test]
fn a_lock_is_renewed_for_as_long_as_the_command_runs() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let url = server.url();
    // Longer than its TTL, which a busy machine must not make too short to be renewed.
    let words = ["run", "job", "--store", &url, "--ttl", "3s", "sleep", "4"];
    let ran = bench.run(&words);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_eq!(server.cli(&["EXISTS", "job"]), "0");
}

/// The loss was told up to 0.9 s after a suspend: the timer was on the clock that stands still meanwhile.
/// A machine without suspend cannot show the resume. Which clock the program waits by, the kernel tells.
#[cfg(target_os = "linux")]
#[test]
fn the_program_waits_by_a_clock_that_runs_while_the_machine_is_suspended() {
    let bench = Bench::new();
    let server = RedisServer::start();
    let url = server.url();
    let line = "echo >up; until [ -e go ]; do sleep 0.01; done";
    let words = [
        "run", "job", "--store", &url, "--ttl", "60s", "--shell", line,
    ];
    let run = bench.start_until("up", &words);
    let files = format!("/proc/{}/fdinfo", run.id());
    let waits_by_boot_time = || {
        let files = fs::read_dir(&files).expect("our own child").flatten();
        let mut texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.any(|text| {
            let is_armed = !text.contains("it_value: (0, 0)");
            text.contains("clockid: 7\n") && is_armed
        })
    };
    eventually("a timer on CLOCK_BOOTTIME", LIMIT, waits_by_boot_time);
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(end_of(run).code, Some(0));
}
