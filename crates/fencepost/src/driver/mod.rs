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
//! | `held`, `renewer` | what a lease and its renewal share, and one task that renews all leases of a client |
//! | `shared` | what all requests and guards of one client share |
//! | `waiters` | one task per contended name |

mod calls;
pub(crate) mod coordinator;
mod deferred;
pub(crate) mod held;
pub(crate) mod identity;
pub(crate) mod in_flight;
mod release;
pub(crate) mod renewer;
pub(crate) mod shared;
pub(crate) mod waiters;
