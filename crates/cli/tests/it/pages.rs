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
    // What a command is told is on the page of the command that tells it.
    let told = "\nset for the command: ";
    for (name, has, lacks) in [
        (
            "fencepost-run",
            &["SLOT", "TOKENS", "SESSION"][..],
            &["ELECT_VALUE"][..],
        ),
        (
            "fencepost-elect",
            &["ELECT_VALUE", "TOKEN", "SESSION"],
            &["SLOT", "TOKENS"],
        ),
    ] {
        let page = page(name);
        let says = |variable: &&str| page.contains(&format!("\\fBFENCEPOST_{variable}\\fR{told}"));
        assert!(has.iter().all(says), "{name}: {page}");
        assert!(!lacks.iter().any(says), "{name}: {page}");
        assert!(page.contains("FENCEPOST_STORE") && page.contains("FENCEPOST_SERVICE_TOKEN\\fR"));
    }
    assert!(!page("fencepost-explain").contains("FENCEPOST_SERVICE_TOKEN"));
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

/// What bash offers for the last of these words, one per line and sorted: as it would insert it, or as a shell then
/// reads that.
fn completed(bench: &Bench, words: &str, read: bool) -> Vec<String> {
    let each = match read {
        true => r#"eval "set -- $it"; printf "%s\n" "$*""#,
        false => r#"printf "%s\n" "$it""#,
    };
    // As bash calls it, with the words so far.
    let script = format!(
        r#"PATH="$(dirname "$F"):$PATH"; . ./complete.bash
        COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
        _fencepost_or_names fencepost "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD - 1]}}"
        for it in "${{COMPREPLY[@]}}"; do {each}; done"#
    );
    fs::write(bench.path("complete-this.bash"), script).expect("a file");
    let ran = bench.script("bash complete-this.bash");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
    let mut found: Vec<_> = ran.out.lines().map(str::to_owned).collect();
    found.sort();
    found
}

#[test]
fn names_of_locks_are_completed() {
    let bench = Bench::new();
    for name in ["nightly-report", "nightly-sync", "deploy"] {
        bench.run(&["acquire", name, "--for-pid", "none"]);
    }
    let script = bench.run(&["completions", "bash"]).out;
    fs::write(bench.path("complete.bash"), script).unwrap();
    let complete = |words: &str| completed(&bench, words, false);
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

/// `compgen -W` expanded them: a lock named `$(touch x)`, which anyone who reaches the store can make, ran a command of
/// whoever pressed TAB.
#[test]
fn no_name_of_a_lock_is_expanded_or_split_when_it_is_completed() {
    let bench = Bench::new();
    let names = [
        "$(touch pwned)",
        "`touch pwned`",
        "${x:=$(touch pwned)}",
        "x;touch pwned",
        "two words",
        " indented",
        "it's \"quoted\"",
        "C:\\dir",
        "line\\nline",
        "line\u{2028}line",
        "all*",
        "~",
        "夜間バッチ",
    ];
    for name in names {
        let ran = bench.run(&["acquire", "--for-pid", "none", "--", name]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    // Would be read as an option.
    let ran = bench.run(&["acquire", "--for-pid", "none", "--", "--dash"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    fs::write(bench.path("all-files-that-match"), "").unwrap();
    let script = bench.run(&["completions", "bash"]).out;
    fs::write(bench.path("complete.bash"), script).unwrap();
    let mut expected = names.to_vec();
    expected.sort_unstable();
    let mut found = completed(&bench, "fencepost steal ''", true);
    assert!(!found.contains(&"--dash".to_owned()), "{found:?}");
    found.retain(|it| !it.starts_with('-'));
    assert_eq!(found, expected);
    // As the beginning of a name, or as a shell quotes it.
    for typed in ["two", "'two w'", r"'two\ w'"] {
        let found = completed(&bench, &format!("fencepost run {typed}"), true);
        assert_eq!(found, ["two words"], "{typed}");
    }
    assert!(!bench.path("pwned").exists());
    let zsh = bench.run(&["completions", "zsh"]).out;
    assert!(zsh.contains("compadd -a names") && !zsh.contains("compadd -Q"));
}
