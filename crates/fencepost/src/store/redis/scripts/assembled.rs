//! Every script as it is sent, in `docs/lua`, for reviewers: a script is made of parts, and what counts is
//! the whole. `UPDATE_LUA=1 ./test -p fencepost --lib assembled` writes them anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;

/// Every script, by the name of its file.
fn all() -> Vec<(String, &'static str)> {
    let layouts = [
        ("acquire", &ACQUIRE),
        ("raise", &RAISE),
        ("extend", &EXTEND),
        ("release", &RELEASE),
        ("steal", &STEAL),
    ];
    let others = [
        ("share", &SHARE),
        ("extend_shared", &EXTEND_SHARED),
        ("queue", &QUEUE),
        ("leave", &LEAVE),
        ("inspect", &INSPECT),
        ("release_lease", &RELEASE_LEASE),
    ];
    let layouts = layouts.into_iter().flat_map(|(name, of)| {
        let reentrant = format!("{name}_reentrant");
        [
            (name.to_owned(), of.plain.source),
            (reentrant, of.reentrant.source),
        ]
    });
    let others = others.map(|(name, lua)| (name.to_owned(), lua.source));
    layouts
        .chain(others)
        .chain([("forget".to_owned(), FORGET)])
        .collect()
}

#[test]
fn docs_lua_has_every_script_as_it_is_sent() {
    let scripts = all();
    let texts: BTreeSet<_> = scripts.iter().map(|(_, text)| *text).collect();
    assert_eq!(texts, sources().collect(), "a script is missing here");
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lua");
    let is_update = std::env::var_os("UPDATE_LUA").is_some();
    if is_update {
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("docs");
    }
    let mut files = BTreeSet::new();
    for (name, text) in scripts {
        let path = directory.join(format!("{name}.lua"));
        if is_update {
            fs::write(&path, text).expect("docs/lua");
        }
        let seen = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            seen == text,
            "docs/lua/{name}.lua is old: UPDATE_LUA=1 writes it anew"
        );
        files.insert(path);
    }
    let found = fs::read_dir(&directory).expect("docs/lua");
    let found: BTreeSet<_> = found.map(|entry| entry.expect("a file").path()).collect();
    assert_eq!(found, files, "a script that is no longer sent");
}
