//! How long it takes from the start of the program until the command runs, beside `flock`.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::bench::Bench;

const RUNS: usize = 100;
/// What we promise of the release build on a machine that has nothing else to do.
const PROMISED: Duration = Duration::from_millis(10);

/// The time from just before the start until the command looked at the clock.
fn once(command: &mut Command) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let output = command.output().expect("it runs").stdout;
    let then = String::from_utf8(output).expect("text");
    let then = Duration::from_nanos(then.trim().parse().expect("nanoseconds"));
    then.saturating_sub(now.expect("after 1970"))
}

/// cargo test --release -p fencepost-cli -- --ignored --nocapture start
#[test]
#[ignore = "measures: only the release build on a quiet machine tells something"]
fn the_command_runs_within_ten_milliseconds() {
    let bench = Bench::new();
    let clock = ["date", "+%s%N"];
    let mut alone = Command::new(clock[0]);
    let mut flock = Command::new("flock");
    let mut ours = bench.command(&["run", "job", "--", clock[0], clock[1]]);
    let contenders = [
        ("date alone", alone.arg(clock[1])),
        ("flock", flock.arg(bench.path("lock")).args(clock)),
        ("fencepost run", &mut ours),
    ];
    let mut took = contenders.map(|(name, command)| (name, command, Vec::new()));
    // By turns, so that what else the machine does is the same for all.
    for _ in 0..RUNS {
        for (_, command, times) in &mut took {
            times.push(once(command));
        }
    }
    for (name, _, times) in &mut took {
        times.sort_unstable();
        let (median, late) = (times[RUNS / 2], times[RUNS * 9 / 10]);
        println!("{name:13}  median {median:7.2?}  p90 {late:7.2?}");
    }
    let [_, _, (_, _, ours)] = &took;
    assert!(ours[RUNS / 2] < PROMISED);
}
