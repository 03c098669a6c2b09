//! The single source of time, random numbers and spawned tasks, so that a seed decides everything.

pub mod clock;
#[cfg(feature = "redis")]
pub(crate) mod process;
pub mod randomness;
pub mod tasks;
#[cfg(feature = "blocking")]
pub(crate) mod thread;
#[cfg(all(target_os = "linux", feature = "redis"))]
mod timer;
