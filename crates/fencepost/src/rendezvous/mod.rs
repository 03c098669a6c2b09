//! Waiting for each other: [`Latch`], which opens when it has been counted down k times, and
//! [`Barrier`], which lets k parties pass once all of them have arrived.
//!
//! | file | what it is |
//! | --- | --- |
//! | `latch` | the public API of the latch |
//! | `barrier` | the public API of the barrier |
//! | `watch` | polls whether all k slots are taken |
//! | `view` | what the nodes' replies mean; pure |
//!
//! Both are k slot locks, like those of a [semaphore](crate::Semaphore). A party that counts or
//! passes leaves its slot taken. A plain count on each node could not be trusted: a node that was
//! down would miss some, and nothing could tell which.
//!
//! Neither may ever open before k have arrived. What is dropped half-way releases its slot.

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

/// The default time for which counts and passages are remembered.
const RETENTION: Duration = Duration::from_secs(60 * 60);
/// The minimum, in multiples of the longest hold: so that for at least half of the time, a sealed
/// slot can be told from one that is merely held.
const SHORTEST_RETENTION: u32 = 2;
/// The maximum interval between two polls.
const PACE: Duration = Duration::from_millis(250);
/// The maximum pause of a party before it retries a contended slot.
const AGAIN: Duration = Duration::from_millis(25);

/// Checks how long something is to be kept.
fn checked_retention(shared: &Shared, retention: Duration) -> Result<Ttl, Error> {
    let (retention, max_ttl) = (Ttl::new(retention)?, shared.max_ttl.get());
    if retention.get() < max_ttl * SHORTEST_RETENTION {
        return Err(Error::from(Cause::InvalidOption {
            option: "retention",
            why: format!(
                "expected at least {SHORTEST_RETENTION} x max_ttl ({})",
                Readable(max_ttl)
            ),
        }));
    }
    Ok(retention)
}
