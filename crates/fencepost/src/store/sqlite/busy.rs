//! How long to wait while another process writes.
//!
//! SQLite's own handler backs off up to 100 ms, so that the longest waiters retry least often and
//! starve. Here every waiter retries equally often, at random moments, and the whole wait has a
//! limit.

use std::time::{Duration, Instant};

use crate::runtime::randomness::{Direct, draw};

/// How long a command waits for its turn before it fails. A transaction takes some ten
/// microseconds: only a process that was stopped in the middle of one takes this long.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// The maximum pause between two retries.
const LONGEST_PAUSE: Duration = Duration::from_micros(400);

/// How often to retry without a pause: the writer may be done in a moment.
const LOOKS_AT_ONCE: i32 = 2;

/// Decides, each time SQLite finds the file busy, whether to retry, and pauses before.
pub(super) struct Waits {
    since: Instant,
    dice: u64,
}

impl Waits {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            // Without randomness the processes would synchronize, which is slow, not wrong.
            dice: draw(&Direct).unwrap_or(1) as u64 | 1,
        }
    }

    /// `looks` is the number of earlier calls for the same wait.
    pub(super) fn look_again(&mut self, looks: i32) -> bool {
        if looks == 0 {
            self.since = Instant::now();
        }
        if looks < LOOKS_AT_ONCE {
            std::thread::yield_now();
            return true;
        }
        if self.since.elapsed() >= LIMIT {
            return false;
        }
        std::thread::sleep(LONGEST_PAUSE.mul_f64(self.roll()));
        true
    }

    /// A number from 0 to 1 (xorshift64).
    fn roll(&mut self) -> f64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice as f64 / u64::MAX as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_between_nothing_and_the_longest() {
        let mut waits = Waits::new();
        let rolls: Vec<f64> = (0..1000).map(|_| waits.roll()).collect();
        assert!(rolls.iter().all(|roll| (0.0..=1.0).contains(roll)));
        let mean = rolls.iter().sum::<f64>() / 1000.0;
        assert!((0.4..0.6).contains(&mean), "{mean}");
    }

    #[test]
    fn a_wait_ends_at_its_limit_and_the_next_one_begins_anew() {
        let mut waits = Waits::new();
        waits.since = Instant::now() - LIMIT;
        assert!(!waits.look_again(1000));
        assert!(waits.look_again(0));
        assert!(waits.look_again(1000));
    }
}
