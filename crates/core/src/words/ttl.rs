//! [`Ttl`]: how long a node keeps a lock; [`Drift`]: the part of it that the holder must not rely
//! on.

use std::fmt;
use std::time::Duration;

use super::moment::Moment;

/// An invalid TTL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid TTL {}: {why}", Readable(*ttl))]
pub struct InvalidTtl {
    /// The TTL.
    pub ttl: Duration,
    /// What is wrong with it, and what is allowed.
    pub why: &'static str,
}

/// An invalid drift fraction.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("expected a fraction of at least 0 and below 1, got {0}")]
pub struct InvalidDrift(f64);

/// How long a node keeps the lock of a silent holder: whole milliseconds, at least ten.
///
/// Fractions of a millisecond are cut off, on the node and in the holder's deadline alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(Duration);

impl Ttl {
    /// The minimum TTL. Below it, the drift leaves nothing.
    pub const SHORTEST: Duration = Duration::from_millis(10);
    /// The maximum TTL that any configuration may allow.
    pub const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

    /// Checks a TTL.
    ///
    /// # Errors
    /// [`InvalidTtl`] below 10 ms and above 24 h.
    pub fn new(ttl: Duration) -> Result<Self, InvalidTtl> {
        if ttl < Self::SHORTEST {
            return Err(InvalidTtl {
                ttl,
                why: "the shortest is 10 ms",
            });
        }
        if ttl > Self::LONGEST {
            return Err(InvalidTtl {
                ttl,
                why: "the longest is 24 h; use a shorter one and renew it",
            });
        }
        // Fits: 24 h are 86,400,000 ms.
        Ok(Self(Duration::from_millis(ttl.as_millis() as u64)))
    }

    /// The time itself.
    #[must_use]
    pub const fn get(self) -> Duration {
        self.0
    }

    /// The time in milliseconds, as Redis takes it.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0.as_millis() as u64
    }
}

/// How far the clocks of the nodes and the holder may drift apart during one TTL: a fraction of the
/// TTL plus a fixed part. The default is 1 % and 2 ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    share: f64,
    fixed: Duration,
}

impl Default for Drift {
    fn default() -> Self {
        Self {
            share: 0.01,
            fixed: Duration::from_millis(2),
        }
    }
}

impl Drift {
    /// A drift of `share` of the TTL (0.01 is 1 %) plus `fixed`.
    ///
    /// # Errors
    /// [`InvalidDrift`] unless the share is at least 0 and below 1.
    pub fn new(share: f64, fixed: Duration) -> Result<Self, InvalidDrift> {
        if !(0.0..1.0).contains(&share) {
            return Err(InvalidDrift(share));
        }
        Ok(Self { share, fixed })
    }

    /// The deadline of a lease that was requested at `start`. It is `start` itself if the drift
    /// exceeds the TTL.
    #[must_use]
    pub fn deadline(&self, start: Moment, ttl: Ttl) -> Moment {
        let drift = ttl.get().mul_f64(self.share) + self.fixed;
        start + ttl.get().saturating_sub(drift)
    }
}

/// A human-readable duration: `85us`, `250ms`, `8.2s`, `2m 5s`, `1h 3m`, `3d 4h`.
pub struct Readable(pub Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let two = |f: &mut fmt::Formatter<'_>, large, unit, small, of_unit| match small {
            0 => write!(f, "{large}{unit}"),
            small => write!(f, "{large}{unit} {small}{of_unit}"),
        };
        let (millis, seconds) = (self.0.as_millis(), self.0.as_secs());
        match seconds {
            0 if millis == 0 && !self.0.is_zero() => write!(f, "{}us", self.0.as_micros()),
            0 => write!(f, "{millis}ms"),
            1..60 => match millis / 100 % 10 {
                0 => write!(f, "{seconds}s"),
                tenth => write!(f, "{seconds}.{tenth}s"),
            },
            60..3600 => two(f, seconds / 60, "m", seconds % 60, "s"),
            3600..86_400 => two(f, seconds / 3600, "h", seconds / 60 % 60, "m"),
            _ => two(f, seconds / 86_400, "d", seconds / 3600 % 24, "h"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_whole_milliseconds_within_its_bounds() {
        let ttl = Ttl::new(Duration::from_micros(10_999)).unwrap();
        assert_eq!(ttl.as_millis(), 10);
        assert!(Ttl::new(Duration::from_micros(9_999)).is_err());
        assert!(Ttl::new(Duration::from_secs(24 * 60 * 60 + 1)).is_err());
        assert!(Ttl::new(Duration::MAX).is_err());
    }

    #[test]
    fn the_deadline_is_the_ttl_less_the_drift() {
        let start = Moment::from_start(Duration::from_secs(5));
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        let left = Drift::default().deadline(start, ttl).since(start);
        assert_eq!(left, Duration::from_millis(10_000 - 100 - 2));
        let all = Drift::new(0.5, Duration::from_secs(60)).unwrap();
        assert_eq!(all.deadline(start, ttl), start);
        assert!(Drift::new(1.0, Duration::ZERO).is_err());
        assert!(Drift::new(f64::NAN, Duration::ZERO).is_err());
    }

    #[test]
    fn durations_read_well() {
        for (millis, text) in [
            (0, "0ms"),
            (250, "250ms"),
            (8_270, "8.2s"),
            (30_000, "30s"),
            (120_000, "2m"),
            (125_400, "2m 5s"),
            (3_780_400, "1h 3m"),
            (183_600_000, "2d 3h"),
        ] {
            assert_eq!(Readable(Duration::from_millis(millis)).to_string(), text);
        }
        assert_eq!(Readable(Duration::from_micros(85)).to_string(), "85us");
    }
}
