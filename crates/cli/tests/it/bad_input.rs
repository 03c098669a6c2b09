//! Whatever cannot be used is 64 and one sentence, and nothing is run.

use crate::bench::Bench;

#[test]
fn what_cannot_be_used_is_refused_in_one_sentence() {
    let bench = Bench::new();
    let long = "x".repeat(513);
    for (words, says) in [
        (&[][..], "what to do is missing"),
        (&["lock"], "'lock'"),
        (&["run"], "<NAME>"),
        (&["run", "job"], "<COMMAND>"),
        (&["run", "", "touch", "began"], "it is empty"),
        (&["run", "a\nb", "touch", "began"], "control character"),
        (&["run", "a}", "touch", "began"], "hash slot"),
        (&["run", &long, "touch", "began"], "longer than 512 bytes"),
        (&["run", "job", "--tll", "5s", "touch", "began"], "'--tll'"),
        (
            &["run", "job", "--ttl", "5", "touch", "began"],
            "the unit is missing",
        ),
        (
            &["run", "job", "--ttl", "soon", "touch", "began"],
            "begin with a number",
        ),
        (&["run", "job", "--ttl", "5 s", "touch", "began"], "no unit"),
        (
            &["run", "job", "--ttl", "1ms", "touch", "began"],
            "the shortest is 10 ms",
        ),
        (
            &["run", "job", "--ttl", "48h", "touch", "began"],
            "the longest is 24 h",
        ),
        (
            &["run", "job", "--ttl", "5m", "touch", "began"],
            "above max_ttl",
        ),
        (&["run", "job", "--wait=-1s", "touch", "began"], "--wait"),
        (
            &["run", "job", "--wait", "1s", "--no-wait", "touch", "began"],
            "exclude each other",
        ),
        (
            &["run", "job", "--grace", "20s", "touch", "began"],
            "is too long",
        ),
        (
            &["run", "job", "--max-hold", "0s", "touch", "began"],
            "no time to run",
        ),
        (&["run", "job", "-E", "256", "touch", "began"], "256"),
        (
            &["run", "job", "--restart-policy", "hope", "touch", "began"],
            "trust, delay",
        ),
        (&["run", "job", "--shell", "touch", "began"], "quote it"),
        (
            &["run", "job", "--store", "", "touch", "began"],
            "must begin with",
        ),
        (
            &["run", "job", "--store", "ftp://x", "touch", "began"],
            "must begin with",
        ),
        (
            &["run", "job", "--store", "file:", "touch", "began"],
            "the path is missing",
        ),
        (
            &["run", "job", "--store", "redis://", "touch", "began"],
            "redis://",
        ),
        (
            &["run", "job", "--store", "redis://h:x", "touch", "began"],
            "redis://",
        ),
        (
            &["run", "job", "--store", "memory:", "touch", "began"],
            "exclude nobody",
        ),
        (
            &["run", "job", "--store", "file:a,file:a", "touch", "began"],
            "twice",
        ),
        (&["acquire"], "<NAME>"),
        (&["acquire", "a}"], "hash slot"),
        (&["acquire", "job", "--ttl", "1ms"], "the shortest is 10 ms"),
        (&["acquire", "job", "--ttl", "5m"], "above max_ttl"),
        (
            &["acquire", "job", "--for-pid", "me"],
            "a process id or `none`",
        ),
        (
            &["acquire", "job", "--for-pid", "0"],
            "a process id or `none`",
        ),
        (&["acquire", "job", "--for-pid", "4294967295"], "no process"),
        (
            &["acquire", "job", "--export", "--json"],
            "exclude each other",
        ),
        (&["acquire", "job", "--store", "memory:"], "exclude nobody"),
        (&["extend", "job"], "--value"),
        (&["extend", "job", "--value", "v"], "--token"),
        (
            &["extend", "job", "--value", "", "--token", "1"],
            "1 to 1024 bytes",
        ),
        (&["extend", "job", "--value", "v", "--token", "x"], "'x'"),
        (&["extend", "job", "--value", "v", "--token", "-1"], "'-1'"),
        (
            &[
                "extend",
                "job",
                "--value",
                "v",
                "--token",
                "9007199254740992",
            ],
            "the largest is 9007199254740991",
        ),
        (
            &[
                "extend", "job", "--value", "v", "--token", "1", "--ttl", "0s",
            ],
            "the shortest is 10 ms",
        ),
        (
            &[
                "extend",
                "job",
                "--value",
                "v",
                "--token",
                "1",
                "--for-pid",
                "none",
            ],
            "cannot untie",
        ),
        (&["release", "job"], "--value"),
        (&["release", "", "--value", "v"], "it is empty"),
        (&["steal", "job"], "say --yes"),
        (
            &["steal", "job", "--yes", "--ttl", "nine"],
            "begin with a number",
        ),
        (&["list", "a", "b"], "'b'"),
        (&["list", "--store", "file:"], "the path is missing"),
        (&["watch"], "<NAME>"),
        (&["watch", "job", "--every", "0s"], "keep the nodes busy"),
        (&["doctor", "--store", "redis://"], "redis://"),
        (&["doctor", "--store", "file:"], "the path is missing"),
        (&["doctor", "--store", "ftp://x"], "must begin with"),
        (&["doctor", "--store", "file:a,file:a"], "twice"),
        (&["doctor", "--max-ttl", "0s"], "the shortest is 10 ms"),
        (&["bench", "--tasks", "0"], "1 to 1000"),
        (&["bench", "--tasks", "many"], "'many'"),
        (&["bench", "--time", "0s"], "more than 0"),
        (&["bench", "--time", "11m"], "at most 10m"),
        (&["completions", "cmd"], "bash"),
        (&["man"], "<DIR>"),
        (&["status"], "<NAME>"),
        (&["status", "a\tb"], "control character"),
        (&["status", "job", "--store", "nonsense"], "must begin with"),
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, Some(64), "{words:?}: {ran:?}");
        assert!(ran.err.starts_with("fencepost: "), "{words:?}: {ran:?}");
        assert!(ran.err.contains(says), "{words:?}: {ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{words:?}: {ran:?}");
    }
    assert!(!bench.path("began").exists());
}

#[test]
fn a_password_is_never_shown() {
    let bench = Bench::new();
    for store in [
        "redis://me:s3cret@h:x",
        "ftp://me:s3cret@h",
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
        ran("FENCEPOST_TTL", "5", &["run", "job", "true"]).0,
        Some(64)
    );
    assert_eq!(
        ran("FENCEPOST_TTL", "5", &["run", "job", "--ttl", "5s", "true"]).0,
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
    let (code, err) = ran("FENCEPOST_JSON", "yes", &["run", "job", "true"]);
    assert_eq!(code, Some(0));
    assert!(err.contains("\"event\":\"acquired\""), "{err}");
    let (code, err) = ran("FENCEPOST_WAIT", "1h", &["run", "job", "--no-wait", "true"]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
}
