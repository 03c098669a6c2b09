//! [`Backoff`]: ever longer pauses between tries of the same thing.

use std::time::Duration;

/// Pauses that double up to a bound. Each is spread by a random share, so that clients that failed
/// together do not try again together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    shortest: Duration,
    longest: Duration,
    tries: u32,
}

impl Backoff {
    /// From `shortest`, doubled after each try, up to `longest`.
    #[must_use]
    pub const fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            tries: 0,
        }
    }

    /// How often it was tried in a row.
    #[must_use]
    pub const fn tries(&self) -> u32 {
        self.tries
    }

    /// The next pause, before it is spread.
    pub fn next_bound(&mut self) -> Duration {
        let factor = 2_u32.saturating_pow(self.tries);
        self.tries = self.tries.saturating_add(1);
        self.shortest.saturating_mul(factor).min(self.longest)
    }

    /// The next pause, of which the last quarter is random. `share` is a random number from 0 to 1.
    pub fn next(&mut self, share: f64) -> Duration {
        spread(self.next_bound(), share)
    }

    /// The next pause, all of it random: where many clients fail at the same moment.
    pub fn next_fully_spread(&mut self, share: f64) -> Duration {
        self.next_bound().mul_f64(checked(share))
    }

    /// It went well: the next pause is a short one again.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

/// Between three quarters and the whole of `time`, by a random number from 0 to 1.
#[must_use]
pub fn spread(time: Duration, share: f64) -> Duration {
    time.mul_f64(0.75 + checked(share) / 4.0)
}

/// Also for a number that is none.
const fn checked(share: f64) -> f64 {
    share.max(0.0).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn pauses_double_up_to_their_bound_and_begin_anew() {
        let mut backoff = Backoff::new(ms(4), ms(20));
        let pauses: Vec<_> = (0..4).map(|_| backoff.next(1.0)).collect();
        assert_eq!(pauses, [ms(4), ms(8), ms(16), ms(20)]);
        for _ in 0..100 {
            assert_eq!(backoff.next(1.0), ms(20));
        }
        backoff.reset();
        assert_eq!((backoff.tries(), backoff.next(1.0)), (0, ms(4)));
    }

    #[test]
    fn pauses_are_spread_by_the_share_that_is_handed_in() {
        let mut backoff = Backoff::new(ms(100), ms(100));
        assert_eq!(backoff.next(0.0), ms(75));
        assert_eq!(backoff.next_fully_spread(0.0), ms(0));
        assert_eq!(backoff.next_fully_spread(1.0), ms(100));
        assert_eq!(spread(ms(100), f64::NAN), ms(75));
    }
}
