//! How long it takes from the start of the program until the command runs, beside `flock`:
//! `cargo bench -p fencepost-cli`.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const RUNS: usize = 100;
/// What we aim at on a machine that has nothing else to do.
const AIM: Duration = Duration::from_millis(10);

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clock = ["date", "+%s%N"];
    let mut alone = Command::new(clock[0]);
    let mut flock = Command::new("flock");
    let mut ours = Command::new(env!("CARGO_BIN_EXE_fencepost"));
    let store = format!("file:{}", dir.path().join("locks.db").display());
    let contenders = [
        ("date alone", alone.arg(clock[1])),
        ("flock", flock.arg(dir.path().join("lock")).args(clock)),
        (
            "fencepost run",
            ours.args(["run", "--store", &store, "job", "--"])
                .args(clock),
        ),
    ];
    let mut took = contenders.map(|(name, command)| (name, command, Vec::new()));
    // By turns, so that what else the machine does is the same for all.
    for _ in 0..RUNS {
        for (_, command, times) in &mut took {
            times.push(once(command));
        }
    }
    println!("from start to the command running, {RUNS} times; aim: a median below {AIM:?}");
    for (name, _, times) in &mut took {
        times.sort_unstable();
        let (median, late) = (times[RUNS / 2], times[RUNS * 9 / 10]);
        println!("{name:13}  median {median:7.2?}  p90 {late:7.2?}");
    }
}

/// The time from just before the start until the command looked at the clock.
fn once(command: &mut Command) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let output = command.output().expect("it runs").stdout;
    let then = String::from_utf8(output).expect("text");
    let then = Duration::from_nanos(then.trim().parse().expect("nanoseconds"));
    then.saturating_sub(now.expect("after 1970"))
}
