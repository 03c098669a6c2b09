//! `fencepost status`.

use fencepost_tests::{RedisServer, free_port};
use serde_json::Value;

use crate::bench::{Bench, end_of, send};

#[test]
fn a_table_for_people_and_json_for_programs_tell_who_holds_it() {
    let bench = Bench::new();
    let free = bench.run(&["status", "job"]);
    assert_eq!(free.code, Some(0), "{free:?}");
    assert!(free.out.contains("holder      none\n"), "{free:?}");

    let line = "echo $FENCEPOST_TOKEN >up; sleep 60";
    let holder = bench.start_until("up", &["run", "job", "--shell", line]);
    let token: u64 = bench.await_file("up").parse().unwrap();
    let table = bench.run(&["status", "job"]).out;
    let owner = format!(":{}:sh", holder.id());
    for row in [
        "lock        job\n",
        &format!("token       {token}\n"),
        &owner,
    ] {
        assert!(table.contains(row), "{row}: {table}");
    }
    let json = bench.run(&["status", "job", "--json"]).out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["held"], true);
    assert_eq!(json["token"], token);
    assert!(json["holder"].as_str().unwrap().ends_with(&owner));
    assert!(json["remaining_ms"].as_u64().unwrap() <= 30_000);
    assert_eq!(json["nodes"][0]["token"], token);

    send("TERM", i32::try_from(holder.id()).unwrap());
    end_of(holder);
}

#[test]
fn a_node_that_is_away_is_part_of_the_answer_and_a_missing_majority_is_69() {
    let bench = Bench::new();
    let servers = RedisServer::start_many(2);
    let away = || format!("redis://127.0.0.1:{}", free_port());
    let majority = format!("{},{},{}", servers[0].url(), away(), servers[1].url());
    let trust = ["--restart-policy", "trust"];
    let ran = bench.run(&[&["status", "job", "--store", &majority], &trust[..]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("(cannot connect"), "{ran:?}");
    // Why it is away may be long, and does not push the columns apart.
    let titles = ran.out.lines().find(|line| line.starts_with("node "));
    assert!(titles.unwrap().len() < 60, "{}", ran.out);

    let minority = format!("{},{},{}", servers[0].url(), away(), away());
    let words = [
        &["status", "job", "--json", "--store", &minority],
        &trust[..],
    ]
    .concat();
    let ran = bench.run_until(&words, "1 of 3 nodes answered");
    assert_eq!(ran.code, Some(69), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(json["held"], Value::Null);
}

#[test]
fn those_who_read_are_named_one_by_one() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let url = server.url();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let read = |owner: &str| {
        let builder = fencepost::Client::builder().url(&url).owner(owner);
        let reading = async { builder.connect().await?.read_write("job").read().await };
        runtime.block_on(reading).unwrap()
    };
    let _readers = ["web-1", "web-2"].map(read);
    let table = bench.run(&["status", "job", "--store", &url]).out;
    for row in ["holder      readers\n", "reader      web-1 (expires in "] {
        assert!(table.contains(row), "{row}: {table}");
    }
    let json = bench.run(&["status", "job", "--json", "--store", &url]).out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["holder"], "readers");
    assert_eq!(json["readers"][0]["reader"], "web-1");
    assert_eq!(json["readers"][1]["reader"], "web-2");
    assert!(json["readers"][1]["remaining_ms"].as_u64().unwrap() <= 30_000);
}
