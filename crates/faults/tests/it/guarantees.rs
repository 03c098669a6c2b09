//! `GUARANTEES.md` cites tests as `crate::file::test`. All of them exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The crates whose tests are cited, and where each has them.
const CRATES: [(&str, &str); 5] = [
    ("tests", "tests/it"),
    ("faults", "tests/it"),
    ("cli", "tests/it"),
    ("server", "tests/it"),
    ("model", "tests"),
];

#[test]
fn every_test_that_is_cited_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("GUARANTEES.md")).unwrap();
    let cited: BTreeSet<[&str; 3]> = text.split('`').filter_map(citation).collect();
    assert!(cited.len() > 50, "only {}", cited.len());
    for [of, file, test] in cited {
        let folder = folder(of).unwrap();
        let path = root.join(format!("crates/{of}/{folder}/{file}.rs"));
        let source = fs::read_to_string(&path).unwrap_or_default();
        // Some are made by a macro, which takes the name first.
        let made = [format!("fn {test}("), format!("{test},")];
        let exists = made.iter().any(|made| source.contains(made.as_str()));
        assert!(exists, "{of}::{file}::{test} is cited, and not there");
    }
}

/// Where a crate has its tests, if they are cited.
fn folder(of: &str) -> Option<&'static str> {
    let found = CRATES.iter().find(|(name, _)| *name == of);
    found.map(|(_, folder)| *folder)
}

fn citation(quoted: &str) -> Option<[&str; 3]> {
    let parts: Vec<&str> = quoted.split("::").collect();
    let [of, file, test] = parts[..] else {
        return None;
    };
    let is_name = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let cites = folder(of).is_some() && is_name(file) && is_name(test);
    cites.then_some([of, file, test])
}
