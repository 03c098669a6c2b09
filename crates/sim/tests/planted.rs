//! The planted bugs are patches, which rot as the library changes.

use std::path::Path;
use std::process::{Command, Output};

fn git(root: &Path, arguments: &[&str]) -> Option<Output> {
    let mut git = Command::new("git");
    git.args(arguments).current_dir(root).output().ok()
}

/// Four of them had stopped to apply, and nobody saw it before the next run of the whole table, which takes hours.
#[test]
fn every_planted_bug_applies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap();
    let top = git(&root, &["rev-parse", "--show-cdup"]).filter(|top| top.status.success());
    if top.is_none_or(|top| !top.stdout.trim_ascii().is_empty()) {
        eprintln!("skipped: this is no git checkout");
        return;
    }
    let patches = std::fs::read_dir(root.join("crates/sim/planted")).unwrap();
    let mut patches: Vec<_> = patches.map(|patch| patch.unwrap().path()).collect();
    patches.sort();
    assert!(patches.len() >= 70, "only {} patches", patches.len());
    let rotten = |patch: &&std::path::PathBuf| {
        let patch = patch.to_str().unwrap();
        let checked = git(&root, &["apply", "--check", "-p0", patch]).unwrap();
        !checked.status.success()
    };
    let rotten: Vec<_> = patches.iter().filter(rotten).collect();
    assert!(rotten.is_empty(), "these apply no more: {rotten:#?}");
}
