//! Every script as it is sent, in `docs/lua`, for reviewers: a script is assembled from parts, and
//! what matters is the whole. `UPDATE_LUA=1 ./test -p fencepost --lib assembled` rewrites them.
//!
//! In a Redis Cluster the line that publishes is replaced by `cluster_publish.lua`, and nothing else.

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
        ("release_held", &RELEASE_HELD),
        ("acquire_turn", &ACQUIRE_TURN),
    ];
    let layouts = layouts.into_iter().flat_map(|(name, of)| {
        let reentrant = format!("{name}_reentrant");
        [(name.to_owned(), &*of.plain), (reentrant, &*of.reentrant)]
    });
    let others = others.map(|(name, lua)| (name.to_owned(), &**lua));
    let scripts = layouts.chain(others);
    scripts.map(|(name, lua)| (name, &*lua.source)).collect()
}

/// The other way round than the scripts are made.
#[test]
fn in_a_cluster_a_script_differs_only_in_how_it_publishes() {
    let on_servers: BTreeSet<_> = sources(Site::Server).map(str::to_owned).collect();
    let mut exchanged = 0;
    for source in sources(Site::Cluster) {
        let mut back = source.to_owned();
        for indent in (0..=12).rev().map(|columns| " ".repeat(columns)) {
            let at_shard = PUBLISH_AT_SHARD.lines();
            let at_shard: String = at_shard.map(|line| format!("{indent}{line}\n")).collect();
            exchanged += back.matches(&at_shard).count();
            back = back.replace(&at_shard, &format!("{indent}{PUBLISH}\n"));
        }
        assert!(
            !back.contains("SPUBLISH") && on_servers.contains(&back),
            "{source}"
        );
    }
    assert!(exchanged > 5, "{exchanged} places");
}

#[test]
fn docs_lua_has_every_script_as_it_is_sent() {
    let mut scripts = all();
    scripts.push(("forget".to_owned(), FORGET));
    let texts: BTreeSet<_> = scripts.iter().map(|(_, text)| *text).collect();
    for sent in sources(Site::Server) {
        let head = sent.lines().next().unwrap_or_default();
        assert!(texts.contains(sent), "not in this list: {head}");
    }
    scripts.push(("cluster_publish".to_owned(), PUBLISH_AT_SHARD));
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
            "docs/lua/{name}.lua is out of date; UPDATE_LUA=1 rewrites it"
        );
        files.insert(path);
    }
    let found = fs::read_dir(&directory).expect("docs/lua");
    let found: BTreeSet<_> = found.map(|entry| entry.expect("a file").path()).collect();
    assert_eq!(found, files, "a script that is no longer sent");
}
