//! [`Randomness`]: the source of random numbers. The operating system, unless a simulation has to
//! repeat them.
//!
//! Custom randomness must never yield the same value twice: a value proves who may release a lock.

#![allow(clippy::disallowed_methods)]

use std::sync::{Mutex, PoisonError};

use crate::error::{Cause, Error};

/// Where the library draws random numbers.
pub trait Randomness: Send + Sync + 'static {
    /// Fills `bytes` with random bytes.
    ///
    /// # Errors
    /// [`ErrorKind::NoRandomness`](crate::ErrorKind::NoRandomness) when there are none.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Error>;

    /// A random fraction from 0 to 1. One half without randomness.
    fn share(&self) -> f64 {
        let mut bytes = [0; 4];
        match self.fill(&mut bytes) {
            Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
            Err(_) => 0.5,
        }
    }
}

/// The operating system's, asked each time: for what is drawn rarely, and also in the child of a fork.
pub(crate) struct Direct;

impl Randomness for Direct {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Error> {
        getrandom::fill(bytes).map_err(|_| Error::from(Cause::NoRandomness))
    }
}

/// How much is asked of the operating system at once: it takes about the same time for less.
const AT_ONCE: usize = 256;

/// The operating system's.
///
/// What was asked for in advance is the client's own: the child of a fork would draw the same numbers, but it
/// cannot use the client.
#[derive(Default)]
pub(crate) struct SystemRandomness(Mutex<Vec<u8>>);

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Error> {
        // A panic while it was locked cannot have left it half changed.
        let mut ready = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ready.len() < bytes.len() {
            ready.resize(AT_ONCE.max(bytes.len()), 0);
            if let Err(error) = Direct.fill(&mut ready) {
                ready.clear();
                return Err(error);
            }
        }
        let left = ready.len() - bytes.len();
        bytes.copy_from_slice(&ready[left..]);
        ready.truncate(left);
        Ok(())
    }
}

/// A random number of 128 bits.
pub(crate) fn draw(randomness: &dyn Randomness) -> Result<u128, Error> {
    let mut random = [0; 16];
    randomness.fill(&mut random)?;
    Ok(u128::from_ne_bytes(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_drawn_twice() {
        let randomness = SystemRandomness::default();
        let mut drawn: Vec<_> = (0..1000).map(|_| draw(&randomness).unwrap()).collect();
        let mut many = [0; 3 * AT_ONCE];
        randomness.fill(&mut many).unwrap();
        drawn.extend(
            many.chunks_exact(16)
                .map(|bytes| u128::from_ne_bytes(bytes.try_into().unwrap())),
        );
        let count = drawn.len();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), count);
    }
}
