//! The driver sends, sleeps and spawns. It decides nothing: the decisions are `fencepost_core`'s.
//!
//! | file | what it does |
//! | --- | --- |
//! | `coordinator` | asks all nodes of one client at once, and hands each answer to the decisions |
//! | `claim` | one value's claim to one lock, and the commands that it sends |
//! | `attempt` | one attempt to acquire, in flight |
//! | `ballots` | how the nodes voted, for metrics |
//! | `calls` | calls in flight, answered in any order |
//! | `in_flight` | calls that are unanswered after the outcome was decided |
//! | `overtaken` | the names whose register is ahead of our clock |
//! | `release` | a release, awaited or in the background |
//! | `deferred` | releases for a node that is away |
//! | `identity` | what a client calls itself, and the values of its attempts |
//! | `held`, `renewer` | what a lease and its renewal share, and one task that renews all leases of a client |
//! | `shared` | what all requests and guards of one client share |
//! | `waiters` | one task per contended name |
//! | `hold_up` | what the tests of users hold up |

mod attempt;
pub(crate) mod ballots;
mod calls;
pub(crate) mod claim;
pub(crate) mod coordinator;
mod deferred;
pub(crate) mod held;
#[cfg(any(test, feature = "testing"))]
mod hold_up;
pub(crate) mod identity;
pub(crate) mod in_flight;
mod overtaken;
mod release;
pub(crate) mod renewer;
pub(crate) mod shared;
pub(crate) mod waiters;
