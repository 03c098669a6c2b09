//! A fixed set of seeds passes, and a seed is the same run wherever and whenever it is run.

use std::process::Command;
use std::thread;

use fencepost_sim::plan::READ_WRITE_FROM;
use fencepost_sim::run::run;

/// How many seeds run with every test. Long runs are for `fencepost-sim` itself.
const SEEDS: u64 = 400;
const THREADS: u64 = 2;

fn must_pass(seeds: impl Iterator<Item = u64>) {
    for seed in seeds {
        let outcome = run(seed, false).expect("a runtime, and options that the library takes");
        let faults: Vec<String> = outcome.violations.iter().map(ToString::to_string).collect();
        assert!(faults.is_empty(), "seed {seed}: {}", faults.join("\n"));
    }
}

#[test]
fn the_fixed_seeds_pass() {
    must_all_pass(0, SEEDS);
}

#[test]
fn the_fixed_seeds_of_read_write_locks_pass() {
    must_all_pass(READ_WRITE_FROM, SEEDS / 2);
}

fn must_all_pass(from: u64, seeds: u64) {
    let part = |first| {
        let seeds = (from + first..from + seeds).step_by(THREADS as usize);
        thread::spawn(move || must_pass(seeds))
    };
    let parts: Vec<_> = (0..THREADS).map(part).collect();
    for part in parts {
        part.join().expect("all of its seeds pass");
    }
}

#[test]
fn a_seed_gives_the_same_log_twice_in_one_process() {
    for seed in 0..20 {
        let (one, two) = (run(seed, true).unwrap(), run(seed, true).unwrap());
        assert!(one.log.len() > 1000, "seed {seed} did next to nothing");
        assert!(one.log == two.log, "seed {seed} went two ways");
    }
}

#[test]
fn a_seed_gives_the_same_log_in_two_processes() {
    for seed in ["3", "14", "159"] {
        let log = || {
            let mut simulation = Command::new(env!("CARGO_BIN_EXE_fencepost-sim"));
            let output = simulation.args(["--seed", seed, "--log"]).output().unwrap();
            assert!(output.status.success(), "seed {seed}");
            output.stdout
        };
        let (one, two) = (log(), log());
        assert!(one.len() > 1000 && one == two, "seed {seed} went two ways");
        let here = run(seed.parse().unwrap(), true).unwrap().log;
        assert!(
            one.starts_with(here.as_bytes()),
            "seed {seed} went another way here"
        );
    }
}

#[test]
fn seeds_differ() {
    assert!(run(1, true).unwrap().log != run(2, true).unwrap().log);
}
