//! What every node promises of names and values, whatever it is made of.

use std::collections::HashSet;
use std::sync::Arc;

use fencepost::internals::Node;
use fencepost_core::lock::Reply;

use crate::attempt::*;
use crate::engines::every_node_shows_that;

every_node_shows_that! {
    locks_of_different_names_are_independent,
    every_name_that_is_valid_is_a_lock_of_its_own,
    every_value_is_kept_as_it_is,
}

async fn locks_of_different_names_are_independent(node: &Arc<dyn Node>) {
    let (a, b) = (on(node, "n", "a"), on(node, "m", "a"));
    assert_eq!(a.acquire(5).await, granted(5));
    assert_eq!(b.acquire(1).await, granted(1));
    a.release().await;
    assert!(b.holds().await);
}

async fn every_name_that_is_valid_is_a_lock_of_its_own(node: &Arc<dyn Node>) {
    let longest = "x".repeat(512);
    let longest_in_two_bytes = "ü".repeat(256);
    let names = [
        " ",
        "a",
        "A",
        "a ",
        " a",
        "a b",
        "a:b",
        "a:b:c",
        "a:fence",
        "a:queue",
        "{whole}name",
        "{a}:b",
        "x{a}y{b}z",
        "{{a}}",
        "{a",
        "*",
        "a*",
        "a?",
        "[a]",
        "%",
        "_",
        "a'; DROP TABLE locks; --",
        "\"a\"",
        "\\",
        "\\u0000",
        "${HOME}",
        "$a",
        "../a",
        "/etc/passwd",
        "0",
        "00",
        "1e3",
        "null",
        "ä",
        "a\u{308}",
        "锁",
        "قفل",
        "🔒",
        "\u{feff}",
        "\u{200b}",
        "\u{2028}",
        &longest,
        &longest[..511],
        &longest_in_two_bytes,
    ];
    assert_eq!(HashSet::from(names).len(), names.len());
    for (i, name) in names.iter().enumerate() {
        let a = on(node, name, &format!("value-{i}"));
        assert_eq!(
            a.acquire(10 + i as u64).await,
            granted(10 + i as u64),
            "{name:?}"
        );
    }
    for (i, name) in names.iter().enumerate() {
        let a = on(node, name, &format!("value-{i}"));
        assert!(a.holds().await, "{name:?}");
        assert_eq!(a.register().await, 10 + i as u64, "{name:?}");
        assert_held_by(&a, &on(node, name, "other").acquire(1).await);
        assert_eq!(a.release().await, Reply::Released, "{name:?}");
    }
}

async fn every_value_is_kept_as_it_is(node: &Arc<dyn Node>) {
    let long = "v".repeat(10_000);
    let values = [
        "",
        " ",
        "my_random_value",
        "0123456789abcdef0123456789abcdef:web-3:4711:billing",
        "fedcba9876543210fedcba9876543210:",
        ":",
        "line\nbreak\r\n",
        "nul\0byte",
        "\u{1b}[31mred",
        "'\"`\\",
        "{\"holder\":null}",
        "ключ 🔑",
        "-1",
        "1.0e3",
        "nil",
        &long,
    ];
    for (number, value) in values.into_iter().enumerate() {
        let (a, b) = (on(node, "n", value), on(node, "n", "other"));
        // Each proposes more than the one before it: what does not lift the register is no vote.
        let proposed = 2 * number as u64 + 2;
        assert!(matches!(a.acquire(proposed).await, Reply::Granted { .. }));
        assert_held_by(&a, &b.acquire(1).await);
        assert_eq!(a.extend(1).await, Reply::Extended, "{value:?}");
        assert_not_held_but_by(&a, &b.release().await);
        assert!(a.holds().await, "{value:?}");
        assert_eq!(a.withdraw(LONG).await, Reply::Released, "{value:?}");
        match a.acquire(1).await {
            Reply::Tombstoned => {}
            // Plain commands look for no tombstone: on a connection they come before their release, and one
            // that is given up is closed before the next is used.
            Reply::NotRaised(_) if is_our_own(value) => {
                assert_eq!(a.release().await, Reply::Released, "{value:?}");
            }
            other => panic!("{value:?}: {other:?}"),
        }
    }
}

/// Whether a value looks like one that this library makes.
fn is_our_own(value: &str) -> bool {
    let is_hex = |id: &str| id.bytes().all(|byte| byte.is_ascii_hexdigit());
    value.as_bytes().get(32) == Some(&b':') && value.get(..32).is_some_and(is_hex)
}
