//! [`Moment`]: a point on the clock that keeps running while the machine is suspended.
//!
//! The core never reads a clock: callers pass the time in.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment on the clock that keeps running while the machine is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after the clock's start.
    #[must_use]
    pub const fn from_start(since: Duration) -> Self {
        Self(since)
    }

    /// The time since the clock's start.
    #[must_use]
    pub const fn since_start(self) -> Duration {
        self.0
    }

    /// The time from `earlier` until this, or zero if it is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    fn sub(self, time: Duration) -> Self {
        Self(self.0.saturating_sub(time))
    }
}
