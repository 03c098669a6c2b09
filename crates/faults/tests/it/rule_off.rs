//! The same row with its rule off: the checkers find what the rule prevents.

use std::time::Duration;

use fencepost::RestartPolicy;
use fencepost_faults::row::Row;
use fencepost_faults::rows;
use fencepost_faults::run::{Extent, run};

/// How often it is tried: clients of both lists have to ask at the same time.
const RUNS: usize = 6;

/// A majority of three servers and one of these and others need no server in common. With two others, as the
/// row has them, that takes a server that only one of the two got, which a queue of waiters makes rare. With
/// four, a majority of the seven is among the new ones alone.
#[test]
fn where_nobody_looks_clients_with_differing_lists_hold_the_lock_together() {
    let row = rows::by_name("other-lists").expect("a row of the table");
    let row = Row {
        lay_out: |layout| {
            layout.extra = 4;
            layout.policy = RestartPolicy::Trust;
        },
        ..row
    };
    let extent = Extent {
        nodes: 3,
        faults_for: Duration::from_secs(4),
        watch_for: Duration::ZERO,
    };
    let shows = (0..RUNS).any(|_| {
        let verdict = run(row, extent).expect("it comes to its end");
        let mut violations = verdict.violations.iter();
        violations.any(|it| it.checker == "overlap")
    });
    assert!(shows, "no two holders in {RUNS} runs");
}
