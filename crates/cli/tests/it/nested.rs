//! One lock inside another: the environment of the inner one, and what it still sees of the outer one.

use serde_json::Value;

use crate::bench::{Bench, end_of, pid_of, send};

#[test]
fn a_run_inside_a_run_sees_the_tokens_of_both() {
    let bench = Bench::new();
    let ran = bench.script(
        r#""$F" run outer-1 -c 'echo $FENCEPOST_TOKEN; "$F" run a,b -c \
        "\"\$F\" run in.ner -c \"env\""'"#,
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (outer, env) = ran.out.split_once('\n').unwrap();
    let get = |name: &str| {
        let mut lines = env.lines();
        lines
            .find_map(|line| line.strip_prefix(&format!("{name}=")))
            .map(str::to_owned)
    };
    assert_eq!(get("FENCEPOST_LOCK").unwrap(), "in.ner");
    let inner = get("FENCEPOST_TOKEN").unwrap();
    assert_eq!(get("FENCEPOST_TOKEN_in_2Ener"), Some(inner.clone()));
    assert_eq!(get("FENCEPOST_TOKEN_outer__1").as_deref(), Some(outer));
    for name in ["FENCEPOST_TOKEN_a", "FENCEPOST_TOKEN_b"] {
        let token: u64 = get(name).unwrap().parse().unwrap();
        assert!(token > 0 && token.to_string() != inner);
    }
    // Those are of the locks in between, and not of this one.
    assert_eq!(get("FENCEPOST_TOKENS"), None);
}

#[test]
fn a_script_can_hold_two_locks_by_hand_and_they_are_not_mixed_up() {
    let bench = Bench::new();
    let ran = bench.script(
        r#"a=$("$F" acquire first --export) || exit 1; eval "$a"; one=$FENCEPOST_TOKEN
        b=$("$F" acquire second --export) || exit 2; eval "$b"; two=$FENCEPOST_TOKEN
        [ "$FENCEPOST_TOKEN_first" = "$one" ] && [ "$FENCEPOST_TOKEN_second" = "$two" ] || exit 3
        "$F" extend first >/dev/null || exit 4
        "$F" extend second >/dev/null || exit 5
        "$F" run third -- "$F" extend first >/dev/null || exit 6
        "$F" run third -- "$F" release third && exit 7
        "$F" release first && "$F" release second"#,
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.out,
        "lock \"first\" released\nlock \"second\" released\n"
    );
    assert!(ran.err.contains("no value for lock \"third\""), "{ran:?}");
    let ran = bench.script(
        r#"eval "$("$F" acquire first --export)"; unset FENCEPOST_VALUE_second
        "$F" release second"#,
    );
    assert_eq!(ran.code, Some(64), "{ran:?}");
    let says = "FENCEPOST_VALUE is that of lock \"first\"";
    assert!(ran.err.contains(says), "{ran:?}");
}

#[test]
fn release_takes_the_token_too() {
    let bench = Bench::new();
    let held = bench.run(&["acquire", "job", "--json"]).out;
    let held: Value = serde_json::from_str(&held).unwrap();
    let (value, token) = (held["value"].as_str().unwrap(), held["token"].to_string());
    let ran = bench.run(&["release", "job", "--value", value, "--token", &token]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// The value of the outer election was read from the environment as that of the inner one.
#[test]
fn an_election_inside_an_election_does_not_proclaim_the_outer_value() {
    let bench = Bench::new();
    let script = r#"exec "$F" elect outer --value 10.0.0.7:80 -c 'exec "$F" elect inner -c "
        echo \$FENCEPOST_ELECT_VALUE >up; sleep 60"'"#;
    let script = script.replace("\"$F\"", env!("CARGO_BIN_EXE_fencepost"));
    let mut shell = bench.command(&[]);
    let mut line = std::process::Command::new("sh");
    line.args(["-c", &script]).current_dir(bench.path(""));
    for (name, value) in shell.get_envs() {
        if let Some(value) = value {
            line.env(name, value);
        }
    }
    shell.stdin(std::process::Stdio::null());
    let run = line.spawn().unwrap();
    let inner = bench.await_file("up");
    assert!(!inner.contains("10.0.0.7"), "{inner}");
    let leader = |name| bench.run(&["leader", name, "--json"]).out;
    assert!(leader("outer").contains("10.0.0.7:80"));
    assert!(!leader("inner").contains("10.0.0.7:80"));
    send("TERM", pid_of(&run));
    end_of(run);
}
