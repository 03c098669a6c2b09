//! Releases over connections that break.

use super::{Subject, Variant};
use crate::release::{NOTHING_LEFT, OneRelease};

pub(super) fn sound() -> Vec<Variant> {
    vec![
        Variant::sound(
            "tombstones",
            "1 claim is released on 1 node over connections that break: tombstones refuse what comes late",
            Subject::OneRelease(OneRelease {
                tombstones: true,
                breaks: 3,
            }),
        )
        .quick(),
    ]
}

pub(super) fn broken() -> Vec<Variant> {
    vec![Variant::broken(
        "no-tombstones",
        "a release leaves no tombstone for what comes late over a broken connection",
        NOTHING_LEFT,
        Subject::OneRelease(OneRelease {
            tombstones: false,
            breaks: 1,
        }),
    )]
}
