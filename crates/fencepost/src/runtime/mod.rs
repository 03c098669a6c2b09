//! The one place each for time, random numbers and spawned tasks, so that a seed can decide everything.

pub mod clock;
pub mod randomness;
pub mod tasks;
#[cfg(feature = "blocking")]
pub(crate) mod thread;
#[cfg(all(target_os = "linux", feature = "redis"))]
mod timer;
