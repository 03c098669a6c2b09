//! What sends, sleeps and spawns, and decides nothing: the decisions are `fencepost_core`'s.
//!
//! | file | what it does |
//! | --- | --- |
//! | `coordinator` | asks all nodes of one client at once, and hands each answer to the decisions |
//! | `calls` | calls in flight, answered in whatever order they come |
//! | `in_flight` | calls whose outcome was decided without them |
//! | `release` | a release, with or without somebody who waits for it |
//! | `deferred` | releases for a node that is away |
//! | `identity` | what a client calls itself, and the values of its attempts |
//! | `clock`, `randomness`, `tasks` | the one place each for time, random numbers and spawned tasks |

mod calls;
pub mod clock;
pub(crate) mod coordinator;
mod deferred;
pub(crate) mod identity;
pub(crate) mod in_flight;
pub mod randomness;
mod release;
pub mod tasks;
