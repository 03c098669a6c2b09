//! Completions and man pages have every command and every option.

use std::fs;

use crate::bench::Bench;

/// Every long option that the help of a command names, and the command's name.
fn options(bench: &Bench) -> Vec<(String, Vec<String>)> {
    let help = bench.run(&["--help"]).out;
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| line.starts_with("  "));
    let names = commands.filter_map(|line| line.split_whitespace().next());
    let names: Vec<_> = names.filter(|name| *name != "help").collect();
    assert!(names.len() >= 14, "{names:?}");
    let options_of = |name: &&str| {
        let help = bench.run(&[name, "--help"]).out;
        let words = help.split(|c: char| !(c.is_ascii_lowercase() || c == '-'));
        let mut long: Vec<String> = words
            .filter(|word| word.starts_with("--") && word.len() > 2)
            .map(str::to_owned)
            .collect();
        long.sort_unstable();
        long.dedup();
        (name.to_string(), long)
    };
    names.iter().map(options_of).collect()
}

#[test]
fn completions_have_every_command_and_option_in_every_shell() {
    let bench = Bench::new();
    let options = options(&bench);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = bench.run(&["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
        for (command, options) in &options {
            assert!(ran.out.contains(command.as_str()), "{shell}: {command}");
            for option in options {
                let name = option.trim_start_matches('-');
                assert!(ran.out.contains(name), "{shell}: {command} {option}");
            }
        }
    }
    assert_eq!(bench.run(&["completions", "tcsh"]).code, Some(64));
    fs::write(
        bench.path("all.sh"),
        bench.run(&["completions", "bash"]).out,
    )
    .unwrap();
    let ran = bench.script("bash -n all.sh");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

#[test]
fn man_pages_have_every_command_and_option() {
    let bench = Bench::new();
    let ran = bench.run(&["man", "deep/man1"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    // As roff writes them.
    let page = |name: &str| {
        let text = fs::read_to_string(bench.path(&format!("deep/man1/{name}.1")));
        text.unwrap_or_else(|_| panic!("{name}"))
            .replace("\\-", "-")
    };
    let first = page("fencepost");
    for (command, options) in options(&bench) {
        assert!(first.contains(&format!("fencepost-{command}")), "{command}");
        let page = page(&format!("fencepost-{command}"));
        assert!(page.contains(&format!("fencepost {command}")) || page.contains("fencepost-"));
        for option in options {
            assert!(page.contains(&option), "{command} {option}");
        }
    }
    assert!(page("fencepost-run").contains("FENCEPOST_STORE"));
    fs::write(bench.path("file"), "").unwrap();
    let ran = bench.run(&["man", "file"]);
    assert_eq!(ran.code, Some(73), "{ran:?}");
    assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
}

#[test]
fn the_help_has_headings_and_examples_and_what_matters_comes_first() {
    let bench = Bench::new();
    let help = bench.run(&["run", "--help"]).out;
    let place = |words: &str| {
        help.find(words)
            .unwrap_or_else(|| panic!("{words}: {help}"))
    };
    let order = [
        "Locking:",
        "Waiting:",
        "--wait",
        "Holding:",
        "--ttl",
        "Store:",
        "TLS (",
        "--tls-ca",
        "Examples:",
        "Exit codes:",
    ];
    let places: Vec<_> = order.map(place).to_vec();
    assert!(places.is_sorted(), "{help}");
    for (name, _) in options(&bench) {
        let help = bench.run(&[&name, "--help"]).out;
        assert!(help.contains("Examples:\n  "), "{name}: {help}");
        assert!(help.contains("Exit codes:\n  "), "{name}: {help}");
    }
}

#[test]
fn man_pages_have_the_sections_that_people_look_for() {
    let bench = Bench::new();
    bench.run(&["man", "man1"]);
    let mut pages = 0;
    for page in fs::read_dir(bench.path("man1")).unwrap() {
        let page = page.unwrap().path();
        let text = fs::read_to_string(&page).unwrap();
        for section in [
            "EXIT STATUS",
            "ENVIRONMENT",
            "FILES",
            "EXAMPLES",
            "SEE ALSO",
        ] {
            let title = format!(".SH \"{section}\"\n");
            let (_, rest) = text
                .split_once(&title)
                .unwrap_or_else(|| panic!("{page:?} {section}"));
            assert!(
                !rest.starts_with(".SH") && !rest.is_empty(),
                "{page:?}: {section}"
            );
        }
        assert!(text.contains("/etc/fencepost/config.toml"), "{page:?}");
        pages += 1;
    }
    assert!(pages >= 15, "{pages}");
    let run = fs::read_to_string(bench.path("man1/fencepost-run.1")).unwrap();
    assert!(run.contains("FENCEPOST_TTL\\fR\nsets \\-\\-ttl\n"), "{run}");
}

#[test]
fn names_of_locks_are_completed() {
    let bench = Bench::new();
    for name in ["nightly-report", "nightly-sync", "deploy"] {
        bench.run(&["acquire", name, "--for-pid", "none"]);
    }
    let script = bench.run(&["completions", "bash"]).out;
    fs::write(bench.path("complete.bash"), script).unwrap();
    let complete = |words: &str| {
        // As bash calls it, with the words so far.
        let script = format!(
            r#"bash -c '
            PATH="$(dirname "$F"):$PATH"; . ./complete.bash
            COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _fencepost_or_names fencepost "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
            printf "%s\n" "${{COMPREPLY[@]}}"'"#
        );
        let ran = bench.script(&script);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let mut found: Vec<_> = ran.out.lines().map(str::to_owned).collect();
        found.sort();
        found
    };
    assert_eq!(
        complete("fencepost status night"),
        ["nightly-report", "nightly-sync"]
    );
    assert_eq!(complete("fencepost run dep"), ["deploy"]);
    assert_eq!(complete("fencepost steal nightly-s"), ["nightly-sync"]);
    assert_eq!(complete("fencepost stat"), ["status"]);
    assert!(complete("fencepost status --js").contains(&"--json".to_owned()));
    for (shell, says) in [
        ("zsh", "_fencepost_names'"),
        ("fish", "fencepost list --all --names"),
    ] {
        let script = bench.run(&["completions", shell]).out;
        assert!(script.matches(says).count() >= 1, "{shell}: {script}");
    }
}
