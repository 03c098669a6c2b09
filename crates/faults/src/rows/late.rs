//! Detached locks whose extensions overtake each other.
//!
//! A process extends its lock by a short TTL over one connection and by a long one over another. The short
//! one is held up on its way to all nodes, and arrives when the long one has been promised, or when the lock
//! is released already. An extension never shortens, and none brings a released lock back: everything is
//! promised.

use std::time::Duration;

use crate::client::{Manner, SHORT_TTL_WORDS};
use crate::proxy::Rules;
use crate::row::Row;

use super::wire::for_a_while;

/// Long enough to come behind the long extension, and so early that what it sets ends before that.
const LATE: std::ops::RangeInclusive<u64> = 50..=600;

pub(super) const ROWS: &[Row] = &[Row {
    lay_out: |layout| {
        layout.proxied = true;
        layout.manners = [
            Manner::Wait,
            Manner::Detached,
            Manner::Try,
            Manner::Detached,
        ];
    },
    ..Row::new(
        "late-extends",
        "short extensions of detached locks arrive after longer ones, and after the release",
        |scene| {
            let by: Duration = scene.random.millis(LATE);
            let rules = |_: usize| Rules {
                late: Some((SHORT_TTL_WORDS, by)),
                ..Rules::default()
            };
            for_a_while(scene, rules)
        },
    )
}];
