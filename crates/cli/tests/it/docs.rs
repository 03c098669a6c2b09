//! What the documentation tells people to type can be typed.

use std::fs;
use std::path::Path;

use crate::bench::Bench;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    fs::read_to_string(path).expect(name)
}

#[test]
fn every_command_under_a_lock_in_the_documentation_runs() {
    let bench = Bench::new();
    let mut seen = 0;
    for name in [
        "README.md",
        "crates/cli/README.md",
        "docs/cron-and-systemd.md",
        "docs/program.md",
    ] {
        let page = page(name);
        let commands = page.lines().filter_map(|line| {
            let (before, _) = line.rsplit_once(" -- ")?;
            let (_, words) = before.rsplit_once("fencepost ")?;
            let words = words.trim_start_matches("-- ");
            ["run ", "elect "]
                .iter()
                .any(|it| words.starts_with(it))
                .then_some(words)
        });
        for words in commands {
            let words: Vec<_> = words.split_whitespace().collect();
            let ran = bench.run(&[&words[..], &["--", "true"]].concat());
            assert_eq!(ran.code, Some(0), "{name}: {words:?}: {ran:?}");
            seen += 1;
        }
    }
    assert!(seen >= 9, "{seen}");
}

#[test]
fn every_question_of_contributing_is_answered_in_at_most_three_files_that_exist() {
    let page = page("CONTRIBUTING.md");
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains("? | "));
    let mut seen = 0;
    for row in rows {
        let files: Vec<_> = row
            .split('`')
            .filter(|word| word.ends_with(".rs"))
            .collect();
        assert!((1..=3).contains(&files.len()), "{row}");
        for file in files {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
            assert!(path.is_file(), "{file}: {row}");
        }
        seen += 1;
    }
    assert!(seen >= 6, "{seen}");
}

#[test]
fn the_script_of_the_documentation_works() {
    let page = page("docs/program.md");
    let (_, script) = page.split_once("```sh\n").expect("a script");
    let (script, _) = script.split_once("```").expect("its end");
    let bench = Bench::new();
    let script = script.replace("fencepost ", "\"$F\" ");
    let script = script
        .replace("./first-part", "echo first")
        .replace("./second-part", "echo second");
    let ran = bench.script(&script);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.starts_with("first 1") && ran.out.contains("second 1"),
        "{ran:?}"
    );
    assert!(ran.out.ends_with("lock \"nightly\" released\n"), "{ran:?}");
}

#[test]
fn the_config_file_of_the_documentation_is_one() {
    let page = page("docs/program.md");
    let (_, config) = page.split_once("```toml\n").expect("a file");
    let (config, _) = config.split_once("```").expect("its end");
    let bench = Bench::new();
    fs::write(bench.path("config.toml"), config).unwrap();
    let words = ["--config", "config.toml", "--store", "file:locks"];
    let ran = bench.run(&[&["run", "job"], &words[..], &["--", "true"]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}
