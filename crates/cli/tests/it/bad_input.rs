//! Whatever cannot be used is 64 and one sentence, and nothing is run.

use crate::bench::Bench;

/// What does not fit into `run job … touch began`, and what is said to it.
const RUN: &[(&str, &str)] = &[
    ("--tll 5s", "did you mean --ttl?"),
    (
        "--store redis://127.0.0.1:1 --prefix a{b",
        "invalid option --prefix",
    ),
    ("--ttl 5x", "unknown unit \"x\""),
    ("--ttl soon", "not a duration"),
    ("--ttl 1ms", "the shortest is 10 ms"),
    ("--ttl 48h", "the longest is 24 h"),
    ("--ttl 5m", "above --max-ttl"),
    ("--wait=-1s", "--wait"),
    ("--grace 20s", "is too long"),
    ("--max-hold 0s", "must be more than 0"),
    ("-E 256", "256"),
    ("--restart-policy hope", "trust, delay"),
    ("--shell", "quote it"),
    ("--store ftp://x", "redis+cluster:// or https://;"),
    ("--store file:", "the path is missing"),
    ("--store redis://", "redis://"),
    ("--store redis://h:x", "redis://"),
    ("--store memory:", "excludes no other process"),
    ("--store file:a,file:a", "duplicate"),
    ("--slots 0", "--slots must be 1 to 1000"),
    ("--slots 1001", "--slots must be 1 to 1000"),
    ("--slots=-1", "'-1'"),
    ("--slots many", "'many'"),
    ("--slots 99999999999999999999", "--slots"),
    ("--slots 2 --slots 3", "--slots"),
    ("--slots 2 --shared", "cannot be used with"),
    ("--shared=yes", "'yes'"),
    ("--value x", "'--value'"),
    ("--again lost", "'--again'"),
];

/// Whole commands that cannot be used, and what is said to them.
const COMMANDS: &[(&str, &str)] = &[
    ("lock", "'lock'"),
    ("stats job", "did you mean status?"),
    ("-n job touch began", "did you mean `fencepost run -n …`?"),
    ("job -- touch began", "did you mean `fencepost run job …`?"),
    ("run", "<NAME>"),
    ("run job", "<COMMAND>...; see `fencepost run --help`"),
    ("run 9", "`fencepost release`; see `fencepost run --help`"),
    ("explain quarntined", "`fencepost explain` lists all"),
    ("run {a}:queue touch began", "reserved by fencepost"),
    ("run a, touch began", "it is empty"),
    ("run ,a touch began", "it is empty"),
    ("run a,,b touch began", "it is empty"),
    ("run a,{b}:queue touch began", "reserved by fencepost"),
    ("run a,b --slots 2 touch began", "--slots takes one name"),
    ("run a,b --shared touch began", "--shared takes one name"),
    ("elect job --shared touch began", "'--shared'"),
    ("elect", "<NAME>"),
    ("elect job", "<COMMAND>"),
    ("elect a,b touch began", "expected one name, got 2"),
    ("elect {a}:gone:b touch began", "reserved by fencepost"),
    ("elect job --again maybe touch began", "never, lost, always"),
    ("elect job --slots 2 touch began", "'--slots'"),
    ("elect job --ttl 1ms touch began", "the shortest is 10 ms"),
    ("elect job --grace 20s touch began", "is too long"),
    (
        "elect job --store memory: touch began",
        "excludes no other process",
    ),
    ("leader", "<NAME>"),
    ("leader a,b", "expected one name, got 2"),
    ("leader job --every 5s", "--every needs --watch"),
    ("leader job --watch --every 0s", "at least 50ms"),
    ("leader job --watch --every often", "not a duration"),
    ("leader job --store file:", "the path is missing"),
    ("acquire", "<NAME>"),
    ("acquire {a}:queue", "reserved by fencepost"),
    ("acquire a,b", "expected one name, got 2"),
    ("acquire job --ttl 1ms", "the shortest is 10 ms"),
    ("acquire job --ttl 5m", "above --max-ttl"),
    ("acquire job --for-pid me", "a process id or `none`"),
    ("acquire job --for-pid 0", "a process id or `none`"),
    ("acquire job --for-pid 4294967295", "no process"),
    ("acquire job --export --json", "cannot be used together"),
    ("acquire job --store memory:", "excludes no other process"),
    ("extend job", "--value"),
    ("extend job --value v", "--token"),
    ("extend job --value v --token x", "'x'"),
    ("extend job --value v --token -1", "'-1'"),
    (
        "extend job --value v --token 9007199254740992",
        "the largest is 9007199254740991",
    ),
    (
        "extend job --value v --token 1 --ttl 0s",
        "the shortest is 10 ms",
    ),
    (
        "extend job --value v --token 1 --for-pid none",
        "--for-pid none",
    ),
    ("release job", "--value"),
    ("steal job", "give --yes"),
    ("steal a,b --yes", "expected one name, got 2"),
    ("steal job --yes --ttl nine", "not a duration"),
    ("list a b", "'b'"),
    ("list --store file:", "the path is missing"),
    ("watch", "<NAME>"),
    ("watch job --every 0s", "at least 50ms"),
    ("doctor --store redis://", "redis://"),
    ("doctor --store file:", "the path is missing"),
    ("doctor --store ftp://x", "must begin with"),
    ("doctor --store file:a,file:a", "duplicate"),
    ("doctor --max-ttl 0s", "the shortest is 10 ms"),
    ("bench --tasks 0", "1 to 1000"),
    ("bench --tasks many", "'many'"),
    ("bench --time 0s", "more than 0"),
    ("bench --time 11m", "at most 10m"),
    ("completions cmd", "bash"),
    ("man", "<DIR>"),
    ("status", "<NAME>"),
    ("status job --slots 0", "1 to 1000"),
    ("status job --slots many", "'many'"),
    ("status job --store nonsense", "must begin with"),
    (
        "status job --store 127.0.0.1:6379",
        "write redis://HOST:PORT",
    ),
    ("status job --store file:a,", "separate several by commas"),
    (
        "status job --store /tmp/locks.db",
        "write file:/tmp/locks.db",
    ),
    ("status job --store ./locks", "write file:./locks"),
];

/// With words that are empty, or have spaces or control characters in them.
const ODD_WORDS: &[(&[&str], &str)] = &[
    (&[], "no command given"),
    (&["run", "", "touch", "began"], "it is empty"),
    (&["run", "a\nb", "touch", "began"], "control character"),
    (&["run", "a,b\nc", "touch", "began"], "control character"),
    (
        &["run", "job", "--ttl", "5 q", "touch", "began"],
        "unknown unit",
    ),
    (
        &["run", "job", "--store", "", "touch", "began"],
        "must begin with",
    ),
    (&["run", "job", "--slots", "", "touch", "began"], "--slots"),
    (&["elect", "", "touch", "began"], "it is empty"),
    (
        &["elect", "job", "--value", "", "touch", "began"],
        "1 to 200 bytes",
    ),
    (
        &["elect", "job", "--value", "a\nb", "touch", "began"],
        "no control characters",
    ),
    (
        &["extend", "job", "--value", "", "--token", "1"],
        "1 to 1024 bytes",
    ),
    (&["leader", ""], "it is empty"),
    (&["release", "", "--value", "v"], "it is empty"),
    (&["status", "a\tb"], "control character"),
];

/// It is 64 and one sentence that says this.
fn is_refused(bench: &Bench, words: &[&str], says: &str) {
    let ran = bench.run(words);
    assert_eq!(ran.code, Some(64), "{words:?}: {ran:?}");
    assert!(ran.err.starts_with("fencepost: "), "{words:?}: {ran:?}");
    assert!(ran.err.contains(says), "{words:?}: {ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{words:?}: {ran:?}");
    assert!(ran.err.len() < 400, "not a sentence: {}", ran.err);
}

#[test]
fn what_cannot_be_used_is_refused_in_one_sentence() {
    let bench = Bench::new();
    for (words, says) in COMMANDS {
        let words: Vec<_> = words.split(' ').collect();
        is_refused(&bench, &words, says);
    }
    for (options, says) in RUN {
        let options: Vec<_> = options.split(' ').collect();
        let words = [&["run", "job"], &options[..], &["touch", "began"]].concat();
        is_refused(&bench, &words, says);
    }
    for (words, says) in ODD_WORDS {
        is_refused(&bench, words, says);
    }
    assert!(!bench.path("began").exists());
}

#[test]
fn what_is_too_long_or_too_many_is_refused_in_one_sentence() {
    let bench = Bench::new();
    let refused = |name: &str, options: &[&str], says: &str| {
        let words = [&["run", name], options, &["touch", "began"]].concat();
        is_refused(&bench, &words, says);
    };
    refused(&"x".repeat(513), &[], "longer than 512 bytes");
    refused(&"x".repeat(481), &["--slots", "2"], "at most 480 bytes");
    let many: Vec<_> = (0..1001).map(|n| n.to_string()).collect();
    refused(&many.join(","), &[], "got 1001");
    let long: Vec<_> = (0..1000).map(|n| format!("{n:0>110}")).collect();
    refused(&long.join(","), &[], "too long for an environment variable");
    let value = "x".repeat(201);
    let words = ["elect", "job", "--value", &value, "touch", "began"];
    is_refused(&bench, &words, "this one has 201 bytes");
    assert!(!bench.path("began").exists());
}

#[test]
fn a_password_is_never_shown() {
    let bench = Bench::new();
    for store in [
        "redis://me:s3cret@h:x",
        "ftp://me:s3cret@h",
        "me:s3cret@h",
        "s3cret@h",
        "redis://me:s3cret@127.0.0.1:1",
    ] {
        for words in [
            &["run", "job", "--store", store, "true"][..],
            &["status", "job", "--store", store],
        ] {
            let ran = bench.run(words);
            assert_ne!(ran.code, Some(0));
            assert!(!format!("{ran:?}").contains("s3cret"), "{ran:?}");
        }
    }
    let mut help = bench.command(&["run", "--help"]);
    let help = help
        .env("FENCEPOST_STORE", "redis://:s3cret@h")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    assert!(
        help.contains("FENCEPOST_STORE") && !help.contains("s3cret"),
        "{help}"
    );
}

#[test]
fn options_come_from_the_environment_and_what_is_typed_beats_it() {
    let bench = Bench::new();
    let ran = |name: &str, value: &str, words: &[&str]| {
        let mut command = bench.command(words);
        let output = command.env(name, value).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(
        ran("FENCEPOST_TTL", "5x", &["run", "job", "true"]).0,
        Some(64)
    );
    assert_eq!(
        ran(
            "FENCEPOST_TTL",
            "5x",
            &["run", "job", "--ttl", "5s", "true"]
        )
        .0,
        Some(0)
    );
    assert_eq!(
        ran("FENCEPOST_STORE", "memory:", &["run", "job", "true"]).0,
        Some(64)
    );
    assert_eq!(
        ran("FENCEPOST_SHELL", "1", &["run", "job", "exit 4"]).0,
        Some(4)
    );
    assert_eq!(
        ran("FENCEPOST_SHELL", "0", &["run", "job", "true"]).0,
        Some(0)
    );
    let words = ["run", "a,b", "true"];
    assert!(
        ran("FENCEPOST_SHARED", "1", &words)
            .1
            .contains("takes one name")
    );
    let (code, err) = ran("FENCEPOST_JSON", "yes", &["run", "job", "true"]);
    assert_eq!(code, Some(0));
    assert!(err.contains("\"event\":\"acquired\""), "{err}");
    let (code, err) = ran("FENCEPOST_WAIT", "1h", &["run", "job", "--no-wait", "true"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
}
