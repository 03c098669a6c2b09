//! Acquiring by plain commands.

use super::{Subject, Variant};
use crate::plain::{HOLD_ORDER, Plain, PlainFlaw, QUEUE_KEPT, Way};
use crate::properties::UNIQUE;

/// Two plain attempts on three nodes, whose clocks say the same: nothing but the rule keeps them apart.
const PLAIN: Plain = Plain {
    nodes: 3,
    ways: &[Way::Multi, Way::Multi],
    proposals: &[2, 2, 2],
    expiry: false,
    forgets: 0,
    queue: false,
    flaw: None,
};

pub(super) fn sound() -> Vec<Variant> {
    let plain = |name, about, model| Variant::sound(name, about, Subject::Plain(model));
    vec![
        plain(
            "plain",
            "2 attempts by plain commands in MULTI on 3 nodes, by clocks that say the same",
            PLAIN,
        )
        .quick(),
        plain(
            "plain-commands",
            "the same without MULTI: others come between SET and ZADD",
            Plain {
                ways: &[Way::Commands, Way::Commands],
                ..PLAIN
            },
        )
        .quick(),
        plain(
            "plain-backwards",
            "an attempt in MULTI and one without, by clocks that run backwards",
            Plain {
                ways: &[Way::Multi, Way::Commands],
                proposals: &[3, 2],
                ..PLAIN
            },
        )
        .quick(),
        plain(
            "plain-expiry",
            "2 attempts in MULTI, and keys that expire at any time",
            Plain {
                expiry: true,
                ..PLAIN
            },
        ),
        plain(
            "plain-commands-expiry",
            "2 attempts without MULTI, and keys that expire at any time: unique, and in order",
            Plain {
                ways: &[Way::Commands, Way::Commands],
                expiry: true,
                ..PLAIN
            },
        )
        .within(20),
        plain(
            "plain-script",
            "a plain attempt and one by script on the same nodes",
            Plain {
                ways: &[Way::Multi, Way::Script],
                ..PLAIN
            },
        )
        .quick(),
        plain(
            "plain-steal",
            "a plain attempt, and a theft at any time",
            Plain {
                ways: &[Way::Multi, Way::Steal],
                ..PLAIN
            },
        )
        .quick(),
        plain(
            "plain-forget",
            "2 plain attempts, and retention that forgets a register twice",
            Plain {
                proposals: &[2, 3],
                forgets: 2,
                ..PLAIN
            },
        ),
        plain(
            "plain-queue",
            "one who has waited in a fair queue, and a plain attempt of a newcomer",
            Plain {
                ways: &[Way::Script, Way::Multi],
                queue: true,
                ..PLAIN
            },
        )
        .quick(),
        plain(
            "plain-three",
            "3 attempts on 3 nodes: in MULTI, without it, and by script",
            Plain {
                ways: &[Way::Multi, Way::Commands, Way::Script],
                ..PLAIN
            },
        )
        .within(16),
    ]
}

pub(super) fn broken() -> Vec<Variant> {
    let plain = |name, about, property, flaw, model| {
        let flaw = Some(flaw);
        Variant::broken(
            name,
            about,
            property,
            Subject::Plain(Plain { flaw, ..model }),
        )
    };
    vec![
        plain(
            "plain-equal",
            "a register that was at the token already counts as lifted",
            UNIQUE,
            PlainFlaw::EqualCounts,
            PLAIN,
        ),
        plain(
            "plain-different-nodes",
            "a majority granted and a majority was lifted, but they are not the same nodes",
            HOLD_ORDER,
            PlainFlaw::DifferentNodes,
            Plain {
                proposals: &[2, 3],
                ..PLAIN
            },
        ),
        plain(
            "plain-register-first",
            "without MULTI, and ZADD before SET",
            HOLD_ORDER,
            PlainFlaw::RegisterFirst,
            Plain {
                nodes: 1,
                ways: &[Way::Commands, Way::Commands],
                proposals: &[2, 3],
                ..PLAIN
            },
        ),
        plain(
            "plain-blind-raise",
            "a raise that does not look at who holds the key, and a theft",
            HOLD_ORDER,
            PlainFlaw::BlindRaise,
            Plain {
                nodes: 1,
                ways: &[Way::Multi, Way::Steal, Way::Multi],
                ..PLAIN
            },
        ),
        plain(
            "plain-no-look",
            "a newcomer that does not look at the head of the queue",
            QUEUE_KEPT,
            PlainFlaw::NoLook,
            Plain {
                ways: &[Way::Script, Way::Multi],
                queue: true,
                ..PLAIN
            },
        ),
        plain(
            "plain-no-time-check",
            "an attempt that is older than the retention still counts",
            HOLD_ORDER,
            PlainFlaw::NoTimeCheck,
            Plain {
                nodes: 1,
                proposals: &[2, 3],
                forgets: 1,
                ..PLAIN
            },
        ),
    ]
}
