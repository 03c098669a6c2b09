//! `fencepost bench` runs, and shows what it measured. Its figures are not judged here.

use std::fs;

use fencepost_tests::{Cluster, free_port};
use serde_json::Value;

use crate::bench::{Bench, nothing_is_left};

#[test]
fn figures_bars_and_a_picture_of_every_store() {
    let cluster = Cluster::start(3);
    let servers = cluster.urls();
    for store in ["file:locks", &servers] {
        let bench = Bench::new();
        let place = [
            "--store",
            store,
            "--restart-policy",
            "trust",
            "--time",
            "100ms",
        ];
        let ran = bench.run(&[&["bench", "--svg", "bars.svg"], &place[..]].concat());
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        for words in ["acquire", "extend", "release", "per second", "p99", "█"] {
            assert!(ran.out.contains(words), "{words}: {}", ran.out);
        }
        let svg = fs::read_to_string(bench.path("bars.svg")).unwrap();
        assert!(svg.starts_with("<svg ") && svg.contains("<rect"), "{svg}");
        let ran = bench.run(&[&["bench", "--json", "--tasks", "4"], &place[..]].concat());
        let json: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(json["failed"], 0, "{json:#}");
        let counted = json["histogram"].as_array().unwrap().iter();
        let counted: u64 = counted
            .map(|bucket| bucket["count"].as_u64().unwrap())
            .sum();
        assert_eq!(json["acquire"]["count"], counted);
        assert!(counted > 0);
    }
    nothing_is_left(&cluster);
}

#[test]
fn nodes_that_are_away_are_69_and_a_picture_that_cannot_be_written_is_73() {
    let bench = Bench::new();
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let ran = bench.run(&["bench", "--store", &nobody]);
    assert_eq!(ran.code, Some(69), "{ran:?}");
    let ran = bench.run(&["bench", "--time", "10ms", "--svg", "/no/such/dir/x.svg"]);
    assert_eq!(ran.code, Some(73), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    assert!(ran.out.contains("per second"), "what was measured: {ran:?}");
}
