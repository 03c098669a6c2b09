//! The two clocks: one that counts while the machine sleeps, for deadlines, and the wall clock,
//! for one thing only: proposing a token.
//!
//! Nothing here may ever compute a deadline from the wall clock. Both are handed in, so that tests
//! and the simulation own the time.

use std::io;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencepost_core::FencingToken;
pub use fencepost_core::Moment;

/// Where the library reads the time.
pub trait Clock: Send + Sync + 'static {
    /// Now, on a clock that never jumps and does not stop while the machine is suspended.
    fn now(&self) -> Moment;

    /// Microseconds since 1970 on the wall clock. May be wrong and may jump: it is only a proposal
    /// for a token.
    fn wall_micros(&self) -> u64;

    /// A timer on this clock, which ends a wait as soon as the machine resumes. `None` where there is
    /// none: the runtime's timers stand still while the machine is suspended.
    ///
    /// Called within the runtime. `has_io` tells whether that can wait for files.
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
    /// Resolves at that moment or right after it. May be dropped, and asked for another moment.
    ///
    /// # Errors
    /// It does not work any more.
    fn until<'a>(
        &'a mut self,
        when: Moment,
    ) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + 'a>>;
}

/// Tokio's clock, which a test may pause and advance. For a table in memory: it does not run while the
/// machine is suspended, and neither does any other user of this process's table.
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
        // Not from zero, so that there is a time before the start.
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
        // Neither field is negative on a clock that begins at boot.
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
