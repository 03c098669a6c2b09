//! Many processes want one lock while nodes are stopped and continued at random: no two valid
//! leases overlap, and tokens are distinct and grow in real-time order.

use std::process::Command;
use std::time::Duration;

use fencepost_tests::{Cluster, Turn, check, run_in_chaos};

const PROCESSES: usize = 4;
const TASKS: usize = 8;
/// How many turns there are in all where `FENCEPOST_ACQUISITIONS` does not say.
const TURNS: usize = 800;
/// How long the whole may take: minutes, on a machine that builds something besides.
const LIMIT: Duration = Duration::from_secs(600);

fn contend(urls: &str, kind: &str, turns: usize) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_contend"));
    program.args([urls, "job", &TASKS.to_string(), &turns.to_string(), kind]);
    program
}

#[test]
fn thirty_two_tasks_in_four_processes_never_hold_the_lock_together() {
    never_together("plain", turns());
}

#[test]
fn thirty_two_sessions_in_four_processes_are_never_inside_together() {
    // Their own scripts, and the same quorum: fewer will do.
    never_together("reentrant", turns() / 3);
}

fn turns() -> usize {
    let turns = std::env::var("FENCEPOST_ACQUISITIONS").ok();
    turns.map_or(TURNS, |text| text.parse().expect("a number"))
}

fn never_together(kind: &str, turns: usize) {
    let turns_each = turns.div_ceil(PROCESSES * TASKS);
    let cluster = Cluster::start(5);
    let urls = cluster.urls();
    let programs = (0..PROCESSES)
        .map(|_| contend(&urls, kind, turns_each))
        .collect();
    let (turns, stops) = run_in_chaos::<Turn>(&cluster, programs, LIMIT);
    assert_eq!(
        turns.len(),
        PROCESSES * TASKS * turns_each,
        "all have had their turns"
    );
    assert!(stops > 20, "only {stops} stops");
    check(&turns).expect("one at a time");
}
