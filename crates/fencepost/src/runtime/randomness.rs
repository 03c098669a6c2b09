//! [`Randomness`]: where random numbers come from. The operating system's, unless a simulation has
//! to draw the same ones again.
//!
//! Custom randomness must never yield the same value twice: a value proves who may release a lock.

use crate::error::{Cause, Error};

/// Where the library draws random numbers.
pub trait Randomness: Send + Sync + 'static {
    /// Fills `bytes` with random ones.
    ///
    /// # Errors
    /// [`ErrorKind::NoRandomness`](crate::ErrorKind::NoRandomness) when there are none to give.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Error>;

    /// A random share of the whole: at least 0, at most 1. A half when there is no randomness.
    fn share(&self) -> f64 {
        let mut bytes = [0; 4];
        match self.fill(&mut bytes) {
            Ok(()) => f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX),
            Err(_) => 0.5,
        }
    }
}

/// The operating system's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemRandomness;

impl Randomness for SystemRandomness {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), Error> {
        getrandom::fill(bytes).map_err(|_| Error::from(Cause::NoRandomness))
    }
}

/// A random number of 128 bits.
pub(crate) fn draw(randomness: &dyn Randomness) -> Result<u128, Error> {
    let mut random = [0; 16];
    randomness.fill(&mut random)?;
    Ok(u128::from_ne_bytes(random))
}
