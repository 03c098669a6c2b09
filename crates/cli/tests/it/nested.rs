//! One lock inside another: the environment of the inner one, and what it still sees of the outer one.

use std::collections::BTreeSet;

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

/// `run a,b` sets FENCEPOST_TOKENS, which `serve` took for its file of tokens, and --on-lost sets FENCEPOST_REASON, which
/// `steal` took for its reason.
#[test]
fn what_a_command_is_told_sets_no_option_of_a_fencepost_that_it_runs() {
    let bench = Bench::new();
    let help = bench.run(&["--help"]).out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| line.starts_with("  "));
    let mut options: BTreeSet<(String, String)> = BTreeSet::new();
    for command in commands.filter_map(|line| line.split_whitespace().next()) {
        let help = bench.run(&[command, "--help"]).out;
        let variables = help.split("[env: ").skip(1);
        let variables = variables.filter_map(|rest| rest.split([']', '=']).next());
        options.extend(variables.map(|variable| (variable.to_owned(), command.to_owned())));
    }
    assert!(options.len() > 100, "{options:?}");

    let tell = "env | grep -o '^FENCEPOST_[A-Za-z0-9_]*' >>told";
    for words in [
        &["run", "one", "--shell", tell][..],
        &["run", "one,two", "--shell", tell],
        &["run", "one", "--slots", "2", "--shell", tell],
        &["run", "one", "--shared", "--shell", tell],
        &["elect", "one", "--shell", tell],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
    }
    let words = ["run", "one", "--max-hold", "300ms", "--on-lost", tell];
    let ran = bench.run(&[&words[..], &["--", "sleep", "60"]].concat());
    assert_eq!(ran.code, Some(79), "{ran:?}");
    let told = std::fs::read_to_string(bench.path("told")).unwrap();
    let mut told: BTreeSet<&str> = told.lines().collect();
    // It is from this test.
    assert!(told.remove("FENCEPOST_SYSTEM_CONFIG"));
    let readme = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    for variable in &told {
        let of_a_name = variable.starts_with("FENCEPOST_TOKEN_");
        let shown = match of_a_name {
            true => "FENCEPOST_TOKEN_NAME",
            false => variable,
        };
        assert!(readme.contains(&format!("| `{shown}` |")), "{variable}");
    }
    let exported = bench.run(&["acquire", "one", "--export"]).out;
    let exported = exported.lines().filter_map(|line| {
        let (variable, _) = line.strip_prefix("export ")?.split_once('=')?;
        Some(variable)
    });
    told.extend(exported);
    for variable in ["REASON", "SESSION", "SLOT", "TOKENS", "VALUE", "VALUE_one"] {
        let variable = format!("FENCEPOST_{variable}");
        assert!(told.contains(&*variable), "{variable}: {told:?}");
    }

    let is_told = |variable: &str| {
        let of_a_name = ["FENCEPOST_TOKEN_", "FENCEPOST_VALUE_"];
        told.contains(variable) || of_a_name.iter().any(|it| variable.starts_with(it))
    };
    let both = options.iter().filter(|(variable, _)| is_told(variable));
    let both: Vec<_> = both.map(|(it, of)| (it.as_str(), of.as_str())).collect();
    // These are meant for each other.
    let meant = [
        ("FENCEPOST_TOKEN", "extend"),
        ("FENCEPOST_TOKEN", "release"),
        ("FENCEPOST_VALUE", "extend"),
        ("FENCEPOST_VALUE", "release"),
    ];
    assert_eq!(both, meant);
}
