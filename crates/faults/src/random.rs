//! A fixed sequence of numbers that look random, so that a run can be told from luck.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Such a sequence.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of that seed.
    #[must_use]
    pub const fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    /// The sequence that belongs to a text.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        // FNV-1a: any spread of the bits will do.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(hash)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        // Knuth's MMIX; the high bits are the good ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }

    /// A place in something of that length.
    pub fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// True once in so many times.
    pub fn one_in(&mut self, many: u32) -> bool {
        self.below(u64::from(many)) == 0
    }

    /// A number of milliseconds.
    pub fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        let (least, most) = (*range.start(), *range.end());
        Duration::from_millis(least + self.below(most - least + 1))
    }

    /// So many of the numbers below `all`, each once.
    pub fn some_of(&mut self, many: usize, all: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..all).collect();
        let mut taken = Vec::new();
        while taken.len() < many && !left.is_empty() {
            taken.push(left.swap_remove(self.place(left.len())));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_of_all_are_distinct_and_as_many_as_asked_for() {
        let mut random = Random::from_text("a row");
        for many in 0..=5 {
            let mut taken = random.some_of(many, 5);
            taken.sort_unstable();
            taken.dedup();
            assert_eq!(taken.len(), many);
        }
        assert_eq!(random.some_of(9, 2).len(), 2);
        let time = random.millis(5..=6);
        assert!((5..=6).contains(&time.as_millis()));
    }
}
