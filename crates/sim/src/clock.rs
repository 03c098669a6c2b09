//! Virtual time: the base that everything shares, and the clocks of clients and nodes that are
//! wrong about it, each in its own way.
//!
//! Nothing here may read the machine's clocks.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fencepost::internals::clock::{Clock, Moment};
use tokio::time::Instant;

/// When virtual time begins on the wall, in microseconds since 1970: the year 2024.
const WALL_BEGIN_MICROS: i64 = 1_704_067_200_000_000;
const MILLION: i128 = 1_000_000;

/// The time that is true for all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrueTime(Instant);

impl TrueTime {
    /// Begins now. Within the runtime whose time is paused.
    pub(crate) fn begin() -> Self {
        Self(Instant::now())
    }

    /// Nanoseconds since the beginning.
    pub(crate) fn now(self) -> u64 {
        let since = Instant::now().saturating_duration_since(self.0);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn at(self, nanos: u64) -> Instant {
        self.0 + Duration::from_nanos(nanos)
    }
}

/// The clocks of one client or node.
#[derive(Debug)]
pub(crate) struct SkewedClock {
    time: TrueTime,
    /// What the monotonic clock says at the beginning.
    began: u64,
    rate_ppm: i64,
    wall_off_micros: AtomicI64,
    /// How coarse the wall clock is.
    tick_micros: u64,
}

impl SkewedClock {
    pub(crate) fn new(time: TrueTime, began: u64, rate_ppm: i64, wall_off_micros: i64) -> Self {
        Self {
            time,
            began,
            rate_ppm,
            wall_off_micros: AtomicI64::new(wall_off_micros),
            tick_micros: 1,
        }
    }

    pub(crate) fn with_tick(self, tick: Duration) -> Self {
        let tick_micros = tick.as_micros() as u64;
        Self {
            tick_micros,
            ..self
        }
    }

    pub(crate) fn jump_wall(&self, micros: i64) {
        self.wall_off_micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(crate) fn monotonic(&self) -> Duration {
        let passed = i128::from(self.time.now());
        let own = passed + passed * i128::from(self.rate_ppm) / MILLION;
        Duration::from_nanos(self.began + own as u64)
    }

    /// How much true time passes while this clock counts `own`.
    pub(crate) fn in_true_time(&self, own: Duration) -> Duration {
        let own = own.as_nanos() as i128;
        Duration::from_nanos((own * MILLION / (MILLION + i128::from(self.rate_ppm))) as u64)
    }

    pub(crate) fn wall(&self) -> u64 {
        let micros = (self.time.now() / 1_000) as i64;
        let off = self.wall_off_micros.load(Ordering::Relaxed);
        let wall = (WALL_BEGIN_MICROS + micros + off).unsigned_abs();
        wall - wall.checked_rem(self.tick_micros).unwrap_or(0)
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Moment {
        Moment::from_start(self.monotonic())
    }

    fn wall_micros(&self) -> u64 {
        self.wall()
    }
}
