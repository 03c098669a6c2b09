//! Every row for a second or two, on three servers, and a few on five. The long version is the
//! program: `cargo run --release -p fencepost-faults`.

use std::time::Duration;

use fencepost_faults::rows;
use fencepost_faults::run::{Extent, run};

/// Most of a row is waiting.
fn hold_side_by_side(name: &str, nodes: &[usize]) {
    std::thread::scope(|scope| {
        for nodes in nodes {
            scope.spawn(|| holds(name, *nodes));
        }
    });
}

fn holds(name: &str, nodes: usize) {
    let row = rows::by_name(name).expect("a row of the table");
    let extent = Extent {
        nodes,
        faults_for: Duration::from_millis(1000),
        watch_for: Duration::ZERO,
    };
    let verdict = run(row, extent).expect("it comes to its end");
    if let Some(why) = verdict.skipped {
        println!("{name} on {nodes} servers skipped: {why}");
        return;
    }
    let found: Vec<String> = verdict.violations.iter().map(ToString::to_string).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(verdict.faults > 0, "nothing was hurt");
    // Each of the three that wait has had it before the faults and after.
    assert!(verdict.acquisitions >= 6, "{}", verdict.acquisitions);
}

macro_rules! short {
    ($($test:ident, $name:literal, on $($nodes:literal),+;)+) => {
        $(#[test] fn $test() { hold_side_by_side($name, &[$($nodes),+]); })+

        #[test]
        fn every_row_of_the_table_has_a_short_version() {
            let short = [$($name),+];
            let all: Vec<_> = rows::all().iter().map(|row| row.name).collect();
            assert_eq!(all, short);
        }
    };
}

short! {
    kill_aof_always, "kill-aof-always", on 3;
    restart_empty, "restart-empty", on 3, 5;
    restart_changed, "restart-changed", on 3;
    restart_older_aof, "restart-older-aof", on 3;
    stale_replica, "stale-replica", on 3;
    replaced_data, "replaced-data", on 3;
    sentinel_failover, "sentinel-failover", on 1, 3;
    sentinel_isolated, "sentinel-isolated", on 1, 3;
    cluster_failover, "cluster-failover", on 3;
    cluster_isolated, "cluster-isolated", on 3, 5;
    flushall, "flushall", on 3, 5;
    flush_watched, "flush-watched", on 3, 5;
    role_flip, "role-flip", on 3;
    script_flush, "script-flush", on 3;
    other_lists, "other-lists", on 3;
    stop_nodes, "stop-nodes", on 3, 5;
    stop_holder, "stop-holder", on 3;
    stop_waiters, "stop-waiters", on 3;
    kill_holder, "kill-holder", on 3;
    fork, "fork", on 3;
    kill_waiters, "kill-waiters", on 3;
    fair_line, "fair-line", on 3;
    cut_requests, "cut-requests", on 3;
    cut_replies, "cut-replies", on 3, 5;
    cut_both, "cut-both", on 3;
    flap, "flap", on 3;
    lost_replies, "lost-replies", on 3;
    delays, "delays", on 3;
    torn_writes, "torn-writes", on 3;
    endless_replies, "endless-replies", on 3;
    late_extends, "late-extends", on 3;
    clock_ahead, "clock-ahead", on 3;
    clock_back, "clock-back", on 3;
    clock_rate, "clock-rate", on 3;
    clock_clients, "clock-clients", on 3;
    eviction, "eviction", on 3;
    out_of_memory, "oom", on 3;
    readonly, "readonly", on 3;
    loading, "loading", on 3;
    busy, "busy", on 3;
    noauth, "noauth", on 3;
    misconf, "misconf", on 3;
    maxclients, "maxclients", on 3;
    service_kill, "service-kill", on 3, 5;
    service_stop, "service-stop", on 3;
    service_cut, "service-cut", on 3;
}
