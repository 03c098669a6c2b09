//! [`Dice`]: all chance of a run, drawn from its seed.
//!
//! Written out here (SplitMix64) so that a seed means the same run whatever version of whatever
//! crate is around. No chance in the simulation may come from anywhere else.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fencepost::internals::randomness::Randomness;

/// A stream of chance.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of that seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut dice = Self(seed ^ 0x5EED_0F0F_FE2C_E905);
        dice.draw();
        dice
    }

    /// A stream of its own, for somebody whose draws shall not disturb the others'.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.draw())
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; zero if that is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of the remainder is far below what anybody could notice here.
        self.draw().checked_rem(end).unwrap_or(0)
    }

    /// An index into something of that length.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True so many times in a thousand.
    pub fn per_mille(&mut self, share: u32) -> bool {
        self.below(1000) < u64::from(share)
    }

    /// A time between the two.
    pub fn time(&mut self, from: Duration, to: Duration) -> Duration {
        let span = to.saturating_sub(from).as_nanos() as u64;
        from + Duration::from_nanos(self.below(span + 1))
    }

    /// A number within `most` of zero.
    pub fn around_zero(&mut self, most: i64) -> i64 {
        let span = most.unsigned_abs() * 2 + 1;
        self.below(span) as i64 - most
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

/// Randomness for the library, from the seed.
pub(crate) struct SharedDice(Mutex<Dice>);

impl SharedDice {
    pub(crate) fn new(dice: Dice) -> Self {
        Self(Mutex::new(dice))
    }
}

impl Randomness for SharedDice {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), fencepost::Error> {
        let mut dice = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for chunk in bytes.chunks_mut(8) {
            let random = dice.draw().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
        Ok(())
    }
}
