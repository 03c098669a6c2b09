//! A semaphore that counts on each node: why ours has slots.

use super::{Subject, Variant};
use crate::semaphore::{NO_CROWD, Semaphore};

pub(super) fn broken() -> Vec<Variant> {
    vec![Variant::broken(
        "semaphore-by-count",
        "each node admits 2, and whoever has a majority of 3 nodes is in",
        NO_CROWD,
        Subject::Semaphore(Semaphore {
            nodes: 3,
            places: 2,
            claims: 3,
        }),
    )]
}
