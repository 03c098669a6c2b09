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
