//! `acquire`, `extend`, `release` and `steal`: a lock in the hands of a script.

use std::time::Duration;

use fencepost_tests::{Cluster, RedisServer, eventually};
use serde_json::Value;

use crate::bench::{Bench, LIMIT, Ran, again_until, end_of, send};

/// A lock that was handed over.
struct Held {
    name: String,
    value: String,
    token: u64,
}

impl Held {
    fn of(ran: &Ran) -> Self {
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let json: Value = serde_json::from_str(&ran.out).expect("as it is printed");
        Self {
            name: json["lock"].as_str().expect("as it is printed").to_owned(),
            value: json["value"].as_str().expect("as it is printed").to_owned(),
            token: json["token"].as_u64().expect("as it is printed"),
        }
    }

    fn take(bench: &Bench, name: &str, options: &[&str]) -> Self {
        Self::of(&bench.run(&[&["acquire", name, "--json"], options].concat()))
    }

    fn extend(&self, bench: &Bench, options: &[&str]) -> Ran {
        let token = self.token.to_string();
        let receipt = ["--value", &self.value, "--token", &token];
        bench.run(&[&["extend", &self.name], &receipt[..], options].concat())
    }

    fn release(&self, bench: &Bench, options: &[&str]) -> Ran {
        let receipt = ["release", &self.name, "--value", &self.value];
        bench.run(&[&receipt[..], options].concat())
    }
}

fn is_free(bench: &Bench, name: &str, options: &[&str]) -> bool {
    let words = [&["run", name, "--no-wait", "-q"], options, &["--", "true"]].concat();
    let mut free = None;
    // Servers that do not answer in time on a busy machine say neither.
    eventually("a majority answers", LIMIT, || {
        free = match bench.run(&words).code {
            Some(0) => Some(true),
            Some(75) => Some(false),
            Some(69) => None,
            other => panic!("{other:?}"),
        };
        free.is_some()
    });
    free == Some(true)
}

/// It is lost, as enough servers say; on a busy machine they may not do so in time.
fn is_lost(ask: impl Fn() -> Ran) -> Ran {
    let ran = again_until("a majority answers", ask, |ran| ran.code != Some(69));
    assert_eq!(ran.code, Some(79), "{ran:?}");
    ran
}

/// The same on a file, on one server, and on three.
fn on_every_store(test: impl Fn(&Bench, &[&str])) {
    test(&Bench::new(), &[]);
    for servers in [1, 3] {
        let cluster = Cluster::start(servers);
        let store = ["--store", &cluster.urls(), "--restart-policy", "trust"];
        test(&Bench::new(), &store);
    }
}

#[test]
fn a_lock_is_taken_kept_and_given_back_by_three_processes() {
    on_every_store(|bench, store| {
        let held = Held::take(bench, "job", store);
        assert!(!is_free(bench, "job", store));
        let busy = bench.run(&[&["acquire", "job", "--no-wait"], store].concat());
        assert_eq!(busy.code, Some(75), "{busy:?}");
        assert!(busy.err.contains("is held by"), "{busy:?}");

        let ran = held.extend(bench, &[store, &["--ttl", "50s", "--json"]].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let json: Value = serde_json::from_str(&ran.out).unwrap();
        assert_eq!(json["token"], held.token);
        let left = json["remaining_ms"].as_u64().unwrap();
        assert!((40_000..50_000).contains(&left), "{left}");

        let ran = held.release(bench, store);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.out, "lock \"job\" released\n");
        assert!(is_free(bench, "job", store));
        let next = Held::take(bench, "job", store);
        assert!(next.token > held.token);
        next.release(bench, store);
    });
}

#[test]
fn what_is_lost_is_never_called_held() {
    on_every_store(|bench, store| {
        let held = Held::take(bench, "job", store);
        let ran = bench.run(&[&["steal", "job", "--yes"], store].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for _ in 0..2 {
            let ran = is_lost(|| held.extend(bench, store));
            assert!(ran.err.contains("acquired it"), "{ran:?}");
            is_lost(|| held.release(bench, store));
        }
        assert!(!is_free(bench, "job", store), "it is still the thief's");

        let short = Held::take(bench, "short", &[store, &["--ttl", "1s"]].concat());
        eventually("it ends", LIMIT, || is_free(bench, "short", store));
        for _ in 0..2 {
            // It is free, and must not be acquired again either.
            is_lost(|| short.extend(bench, store));
            assert!(is_free(bench, "short", store));
        }
        let ran = is_lost(|| short.release(bench, store));
        assert!(ran.err.contains("is not held under this value"), "{ran:?}");
    });
}

#[test]
fn a_token_that_does_not_go_with_the_value_is_64_and_lifts_no_counter() {
    on_every_store(|bench, store| {
        let held = Held::take(bench, "job", store);
        for token in [held.token + 1, held.token - 1, 7, (1 << 53) - 1] {
            let wrong = Held {
                name: held.name.clone(),
                value: held.value.clone(),
                token,
            };
            let ran = wrong.extend(bench, store);
            assert_eq!(ran.code, Some(64), "{ran:?}");
            assert!(ran.err.contains("does not match this value"), "{ran:?}");
        }
        let status = bench.run(&[&["status", "job", "--json"], store].concat());
        let status: Value = serde_json::from_str(&status.out).unwrap();
        assert_eq!(status["token"], held.token);
        assert_eq!(held.extend(bench, store).code, Some(0));
    });
}

#[test]
fn a_minority_that_is_away_changes_nothing_and_a_majority_is_69() {
    let (bench, cluster) = (Bench::new(), Cluster::start(3));
    let store = ["--store", &cluster.urls(), "--restart-policy", "trust"];
    let short = [&store[..], &["--ttl", "8s"]].concat();
    let held = Held::take(&bench, "job", &short);
    // A majority had it when it was handed to us; the others are given it by the next renewal.
    let has = |server: &RedisServer| server.cli(&["EXISTS", "job"]) == "1";
    eventually("all have it", LIMIT, || {
        assert_eq!(held.extend(&bench, &short).code, Some(0));
        cluster.servers.iter().all(has)
    });
    cluster.servers[0].freeze();
    assert_eq!(held.extend(&bench, &short).code, Some(0));
    cluster.servers[1].freeze();
    let ran = held.extend(&bench, &short);
    assert_eq!(ran.code, Some(69), "{ran:?}");
    assert_eq!(held.release(&bench, &store).code, Some(69));
    cluster.servers.iter().for_each(RedisServer::thaw);
    // Every node that could be reached released it, and the others forget it after its TTL.
    eventually("it is free", LIMIT, || is_free(&bench, "job", &store));
}

#[test]
fn a_shell_script_has_the_lock_until_it_ends() {
    let bench = Bench::new();
    let ran = bench.script(
        r#"out=$("$F" acquire job --export) || exit 1
        eval "$out"
        "$F" run job --no-wait -q -- true && exit 2
        "$F" extend job >/dev/null || exit 3
        echo "$FENCEPOST_LOCK $FENCEPOST_TOKEN"
        [ "$FENCEPOST_DEADLINE" -gt "$(date +%s%3N)" ] || exit 4
        "$F" release job"#,
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("job 1"), "{ran:?}");
    assert!(is_free(&bench, "job", &[]));

    // One that forgets to give it back, and a subshell that ends before the script does.
    let ran = bench.script(
        r#"x=$("$F" acquire job | cat); ( "$F" acquire other >/dev/null )
        "$F" run job --no-wait -q -- true && exit 2
        "$F" run other --no-wait -q -- true && exit 3
        exit 0"#,
    );
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert!(is_free(&bench, "job", &[]), "at once, not after 30 s");
    assert!(is_free(&bench, "other", &[]));
}

#[test]
fn a_lock_can_be_held_for_another_process_or_for_none() {
    let bench = Bench::new();
    let mut sleeper = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let pid = sleeper.id().to_string();
    let script = format!(
        r#""$F" acquire job --for-pid {pid} >/dev/null; "$F" acquire free --for-pid none --ttl 20s; exit"#
    );
    assert_eq!(bench.script(&script).code, Some(0));
    assert!(!is_free(&bench, "job", &[]));
    assert!(!is_free(&bench, "free", &[]), "its TTL decides");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(is_free(&bench, "job", &[]));
    assert!(!is_free(&bench, "free", &[]));
    let gone = bench.run(&["acquire", "job", "--for-pid", &pid]);
    assert_eq!(gone.code, Some(64), "{gone:?}");
    assert!(gone.err.contains("there is no process"), "{gone:?}");
}

/// The process that extended a lock became its holder, so that it was free when that short command ended.
#[test]
fn a_process_that_extends_it_does_not_become_the_holder() {
    let bench = Bench::new();
    let held = Held::take(&bench, "job", &[]);
    let token = held.token.to_string();
    let script = format!(
        r#"( "$F" extend job --value '{}' --token {token} >/dev/null ); exit"#,
        held.value
    );
    assert_eq!(bench.script(&script).code, Some(0));
    assert!(!is_free(&bench, "job", &[]), "it is still this process's");
}

#[test]
fn on_a_server_only_the_ttl_ends_a_lock_that_is_not_given_back() {
    let (bench, server) = (Bench::new(), RedisServer::start());
    let store = ["--store", &server.url()];
    let script = format!(
        r#""$F" acquire job --ttl 20s --store {}; exit"#,
        server.url()
    );
    assert_eq!(bench.script(&script).code, Some(0));
    assert!(!is_free(&bench, "job", &store));
    assert!(server.cli(&["PTTL", "job"]).parse::<u64>().unwrap() <= 20_000);
}

#[test]
fn a_lock_is_stolen_only_when_it_was_said_and_the_old_holder_is_named_and_stopped() {
    on_every_store(|bench, store| {
        let line = "echo >up; while :; do sleep 0.01; done";
        let words = [&["run", "job", "--ttl", "3s"], store, &["--shell", line]].concat();
        let holder = bench.start_until("up", &words);
        let unasked = bench.run(&[&["steal", "job"], store].concat());
        assert_eq!(unasked.code, Some(64), "{unasked:?}");
        assert!(unasked.err.contains("give --yes"), "{unasked:?}");

        let thrown_out = format!(":{}:sh", holder.id());
        let ran = bench.run(&[&["steal", "job", "--yes", "--json"], store].concat());
        let thief = Held::of(&ran);
        let json: Value = serde_json::from_str(&ran.out).unwrap();
        let from = json["stolen_from"].as_str().unwrap();
        assert!(from.ends_with(&thrown_out), "{from}");
        let lost = end_of(holder);
        assert_eq!(lost.code, Some(79), "{lost:?}");
        assert_eq!(thief.extend(bench, store).code, Some(0));
        thief.release(bench, store);

        let ran = bench.run(&[&["steal", "job", "--yes", "--free"], store].concat());
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("lock \"job\" is free"), "{ran:?}");
        assert!(is_free(bench, "job", store));

        let held = Held::take(bench, "job", store);
        let ran = bench.run(&[&["steal", "job", "--yes", "--free"], store].concat());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.out.ends_with(", and is free now\n"), "{ran:?}");
        for _ in 0..2 {
            let ran = is_lost(|| held.extend(bench, store));
            assert!(ran.err.contains("acquired it"), "stolen: {ran:?}");
            let ran = is_lost(|| held.release(bench, store));
            assert!(ran.err.contains("acquired it"), "stolen: {ran:?}");
        }
        assert!(is_free(bench, "job", store));
    });
}

#[test]
fn one_that_waits_gets_it_and_a_signal_ends_the_waiting() {
    let bench = Bench::new();
    let held = Held::take(&bench, "job", &[]);
    let wait = |words: &[&str]| {
        let mut command = bench.command(words);
        let said = std::fs::File::create(bench.path("said")).unwrap();
        let child = command.stderr(said).spawn().unwrap();
        bench.await_file("said");
        child
    };
    let waiter = wait(&["acquire", "job"]);
    send("TERM", i32::try_from(waiter.id()).unwrap());
    assert_eq!(end_of(waiter).code, Some(128 + 15));
    let waiter = wait(&["acquire", "job", "--json"]);
    held.release(&bench, &[]);
    let next = Held::of(&end_of(waiter));
    assert!(next.token > held.token);
    let late = bench.run(&["acquire", "job", "--wait", "50ms", "-E", "9"]);
    assert_eq!(late.code, Some(9), "{late:?}");
}

#[test]
fn a_lock_whose_value_could_not_be_printed_is_released() {
    let bench = Bench::new();
    let ran = bench.unread(
        r#""$F" acquire job"#,
        r#""$F" run job --no-wait -q -- true"#,
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        Duration::from_secs(30) > LIMIT,
        "or it could have ended by itself"
    );
}
