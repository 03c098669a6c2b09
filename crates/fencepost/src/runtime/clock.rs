//! The two clocks: one that keeps running while the machine is suspended, for deadlines, and the
//! wall clock, only for proposing tokens.
//!
//! Nothing here may ever compute a deadline from the wall clock. Both are passed in, so that tests
//! and the simulation control the time.

use std::io;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencepost_core::FencingToken;
pub use fencepost_core::Moment;

/// Where the library reads the time.
pub trait Clock: Send + Sync + 'static {
    /// Now, on a clock that never jumps and keeps running while the machine is suspended.
    fn now(&self) -> Moment;

    /// Microseconds since 1970 on the wall clock. May be wrong and may jump: it only proposes
    /// tokens.
    fn wall_micros(&self) -> u64;

    /// A timer on this clock, which ends a wait as soon as the machine resumes. `None` if there is
    /// none: the runtime's timers stop while the machine is suspended.
    ///
    /// Called within the runtime. `has_io`: whether the runtime has I/O enabled.
    fn timer(&self, _has_io: bool) -> Option<Box<dyn Timer>> {
        None
    }

    /// The token that an attempt proposes.
    fn proposal(&self) -> FencingToken {
        FencingToken::saturating(self.wall_micros())
    }
}

/// Wakes one task at moments of a clock.
pub trait Timer: Send {
    /// Resolves at this moment or right after it. May be dropped and called again with another
    /// moment.
    ///
    /// # Errors
    /// The timer is broken.
    fn until<'a>(
        &'a mut self,
        when: Moment,
    ) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;
}

/// Tokio's clock, which a test may pause and advance. For a table in memory: it stops while the
/// machine is suspended, and so does every user of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokioClock {
    start: tokio::time::Instant,
}

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self {
            start: tokio::time::Instant::now(),
        }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        // Not zero, so that there is a time before the start.
        Moment::from_start(self.start.elapsed() + Duration::from_secs(60 * 60))
    }

    fn wall_micros(&self) -> u64 {
        SystemClock.wall_micros()
    }
}

/// The machine's own clocks: `CLOCK_BOOTTIME` on Linux, the monotonic clock elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let clock = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let clock = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(clock);
        // Neither field is negative on a clock that starts at boot.
        Moment::from_start(Duration::new(
            time.tv_sec.unsigned_abs(),
            u32::try_from(time.tv_nsec).unwrap_or(0),
        ))
    }

    #[cfg(all(target_os = "linux", feature = "redis"))]
    fn timer(&self, has_io: bool) -> Option<Box<dyn Timer>> {
        // A runtime without I/O would panic.
        let timer = has_io.then(super::timer::BootTimer::new)??;
        Some(Box::new(timer))
    }

    fn wall_micros(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |time| {
            u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
        })
    }
}
