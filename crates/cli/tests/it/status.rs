//! `fencepost status`.

use std::time::{SystemTime, UNIX_EPOCH};

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

/// Three servers, of which two have the lock for somebody else each, and one for nobody.
fn split() -> (Vec<RedisServer>, [String; 4]) {
    let servers = RedisServer::start_many(3);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let token = now.as_micros().to_string();
    for (server, owner) in servers.iter().zip(["web-1", "web-2"]) {
        server.cli(&["SET", "job", owner, "PX", "600000"]);
        // By which a listing knows it.
        server.cli(&["ZADD", "fencepost:fences", &token, "job"]);
    }
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let store = ["--store", &urls.join(","), "--restart-policy", "trust"].map(str::to_owned);
    (servers, store)
}

/// `status` said `none`, and those who wait were told that the last node's holder has it.
#[test]
fn nodes_that_disagree_are_called_split_and_nobody_is_called_the_holder() {
    let (servers, store) = split();
    let bench = Bench::new();
    let store: Vec<&str> = store.iter().map(String::as_str).collect();
    let said = |words: &[&str]| bench.run(&[&words[..1], &store[..], &words[1..]].concat());
    let between = "split between web-1 and web-2";
    let table = said(&["status", "job"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    let row = format!("holder      {between}\n");
    assert!(table.out.contains(&row), "{table:?}");
    let json = |words: &[&str]| -> Value { serde_json::from_str(&said(words).out).unwrap() };
    let json_of_status = json(&["status", "job", "--json"]);
    let json_of_list = json(&["list", "--json"]);
    for lock in [&json_of_status, &json_of_list["locks"][0]] {
        assert_eq!(lock["held"], false, "{lock}");
        assert_eq!(lock["holder"], Value::Null, "{lock}");
        assert_eq!(
            lock["split"],
            serde_json::json!(["web-1", "web-2"]),
            "{lock}"
        );
    }
    assert!(said(&["list"]).out.contains(between));
    let refused = said(&["run", "job", "--wait", "0", "--", "true"]);
    assert!(refused.err.contains(between), "{refused:?}");
    let tired = [
        "run", "job", "--wait", "1500ms", "--remind", "300ms", "--", "true",
    ];
    let tired = said(&tired);
    let reminded = format!(", next in queue: {between}");
    assert!(tired.err.contains(&reminded), "{tired:?}");
    assert!(!tired.err.contains("held by"), "{tired:?}");

    // One of them on a majority is the holder, whoever else has a node.
    servers[2].cli(&["SET", "job", "web-2", "PX", "600000"]);
    let json = json(&["status", "job", "--json"]);
    assert_eq!(
        (&json["held"], &json["holder"]),
        (&true.into(), &"web-2".into())
    );
    assert_eq!(json["split"], serde_json::json!([]));
}

/// A holder on one of two nodes that answer may have it on the third, too: it was called free.
#[test]
fn a_lock_that_a_silent_node_could_make_held_is_not_called_free() {
    let (mut servers, store) = split();
    servers[1].cli(&["DEL", "job"]);
    let bench = Bench::new();
    let store: Vec<&str> = store.iter().map(String::as_str).collect();
    let status = |words: &[&str]| bench.run(&[words, &store[..]].concat());
    let minority = status(&["status", "job"]);
    assert_eq!(minority.code, Some(0), "{minority:?}");
    let row = "holder      on a minority of the nodes by web-1\n";
    assert!(minority.out.contains(row), "{minority:?}");
    servers[2].kill();
    let unknown = status(&["status", "job", "--json"]);
    assert_eq!(unknown.code, Some(69), "{unknown:?}");
    let json: Value = serde_json::from_str(&unknown.out).unwrap();
    assert_eq!(
        (&json["held"], &json["holder"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(json["split"], serde_json::json!(["web-1"]));
    let why = "2 of 3 nodes answered, and the lock is on a minority of the nodes by web-1";
    assert!(unknown.err.contains(why), "{unknown:?}");
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
