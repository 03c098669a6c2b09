//! The same row with its rule off: the checkers find what the rule prevents.

use std::time::Duration;

use fencepost::RestartPolicy;
use fencepost_faults::row::Row;
use fencepost_faults::rows;
use fencepost_faults::run::{Extent, run};

/// How often it is tried.
const RUNS: usize = 6;

/// A majority of three servers and one of five need no server in common.
#[test]
fn where_nobody_looks_clients_with_differing_lists_hold_the_lock_together() {
    let row = rows::by_name("other-lists").expect("a row of the table");
    let row = Row {
        lay_out: |layout| {
            layout.extra = 2;
            layout.policy = RestartPolicy::Trust;
        },
        ..row
    };
    let extent = Extent {
        nodes: 3,
        faults_for: Duration::from_secs(4),
        watch_for: Duration::ZERO,
    };
    // Who meets whom is up to chance: one of a few runs has to show it.
    let shows = (0..RUNS).any(|_| {
        let verdict = run(row, extent).expect("it comes to its end");
        let mut violations = verdict.violations.iter();
        violations.any(|it| it.checker == "overlap")
    });
    assert!(shows, "no two holders in {RUNS} runs");
}
