//! The time that all processes of one machine share: nanoseconds since boot.

use std::time::Duration;

use fencepost::internals::clock::{Clock, SystemClock};
use fencepost_checks::Time;

/// Now.
#[must_use]
pub fn now() -> Time {
    Time(nanos(SystemClock.now().since_start()))
}

/// A span of time as nanoseconds.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
