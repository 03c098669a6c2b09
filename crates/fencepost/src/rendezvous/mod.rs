//! Waiting for each other: [`Latch`], which opens when k have counted it down, and [`Barrier`], which
//! lets k pass when all of them are there.
//!
//! | file | what it is |
//! | --- | --- |
//! | `latch` | the latch, as the user sees it |
//! | `barrier` | the barrier, as the user sees it |
//! | `watch` | looking whether all k are there, again and again |
//! | `view` | what the nodes' answers mean; pure |
//!
//! Both are k slot locks, as a [semaphore](crate::Semaphore) has them. A party that counts or passes leaves
//! its slot taken: a count of k on each node could not be trusted, because a node that was away
//! would miss some, and no one could tell which.
//!
//! Neither may ever open before k are there. What is dropped half-way releases its slot.

mod barrier;
mod latch;
mod view;
mod watch;

use std::time::Duration;

use crate::driver::shared::Shared;
use crate::error::{Cause, Error};
pub use barrier::{Barrier, Passage};
use fencepost_core::ttl::{Readable, Ttl};
pub use latch::{Counted, Latch};

/// How long what was counted, and who has passed, is remembered, where nothing else is said.
const KEEP: Duration = Duration::from_secs(60 * 60);
/// How many times the longest hold it is at the least: so that for half of the time or more, what was
/// left for good can be told from what is only held.
const SHORTEST_KEEP: u32 = 2;
/// How much time passes between two looks at the most.
const PACE: Duration = Duration::from_millis(250);
/// How long one who was not the only one to ask for a slot waits before it asks again, at the most.
const AGAIN: Duration = Duration::from_millis(25);

/// Checks how long something is to be kept.
fn checked_keep(shared: &Shared, keep: Duration) -> Result<Ttl, Error> {
    let (keep, max_ttl) = (Ttl::new(keep)?, shared.max_ttl.get());
    if keep.get() < max_ttl * SHORTEST_KEEP {
        return Err(Error::from(Cause::InvalidOption {
            option: "keep",
            why: format!(
                "it is at least {SHORTEST_KEEP} times max_ttl, which is {}, so that what was left \
                 for good can be told from what is only held",
                Readable(max_ttl)
            ),
        }));
    }
    Ok(keep)
}
