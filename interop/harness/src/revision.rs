//! [`revision`]: of what a report was made.

use std::path::Path;
use std::process::Command;

/// The commit that is checked out, with `-dirty` where what is built from it was changed; `unknown` without git.
#[must_use]
pub fn revision() -> String {
    of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

fn of(root: &Path) -> String {
    let git = |words: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(words).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    // Reports are pages, written by the runs themselves: one after the other would call each other dirty.
    let built = [
        "--",
        "crates",
        "interop",
        "Cargo.toml",
        "Cargo.lock",
        ":(exclude)*.md",
    ];
    let status = [
        &["status", "--porcelain", "--untracked-files=no"],
        &built[..],
    ]
    .concat();
    match git(&status).is_none_or(|changed| !changed.is_empty()) {
        true => commit + "-dirty",
        false => commit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_its_commit_and_whether_that_was_changed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(of(dir.path()), "unknown");
        let git = |words: &[&str]| {
            let mut git = Command::new("git");
            git.arg("-C").arg(dir.path());
            git.args(["-c", "user.name=x", "-c", "user.email=x@x"]);
            assert!(
                git.args(words).output().unwrap().status.success(),
                "{words:?}"
            );
        };
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        git(&["init"]);
        write("Cargo.toml", "a");
        write("report.md", "a");
        git(&["add", "."]);
        git(&["commit", "-m", "x"]);
        let commit = of(dir.path());
        assert!(commit.bytes().all(|b| b.is_ascii_hexdigit()), "{commit}");
        write("report.md", "b");
        assert_eq!(of(dir.path()), commit, "a page is not built");
        write("Cargo.toml", "b");
        assert_eq!(of(dir.path()), commit + "-dirty");
    }
}
