//! The simulation: the real client, with its quorum, lease and wait code, on simulated nodes, links
//! and clocks, in virtual time.
//!
//! One seed is one run: everything that is random comes from it, so a failing seed fails again, to
//! the byte of its log. Each run has faults of some kinds, then a healing, then a last wish of every
//! client: and its history has to pass the checkers of `fencepost-checks`.
//!
//! ```text
//! fencepost-sim --seeds 1000            runs seeds 0 to 999
//! fencepost-sim --seed 42 --log         runs one, and tells everything that happened
//! fencepost-sim --work semaphore        with permits of a semaphore instead of locks
//! fencepost-sim --work read-write       with locks that many may read
//! ```
//!
//! | module | what it is |
//! | --- | --- |
//! | [`run`] | one run: a seed in, what happened and what was wrong out |
//! | [`plan`] | everything that a seed sets before a run begins |
//! | [`faults`] | the kinds of faults |
//! | `nemesis` | the faults that come and go |
//! | `operator` | somebody who replaces the list of nodes |
//! | `net` | connections and messages, and the faults that strike single ones |
//! | `server` | one node: the library's own state machine, behind a process that can die |
//! | `member` | which node's votes count, by the core's own rules |
//! | `link` | a node as the library sees it |
//! | `clock` | virtual time, and clocks that are wrong about it |
//! | `gate` | what stops a whole client process |
//! | `fickle` | a caller that drops its future half-way |
//! | `workload` | what the clients do |
//! | `client` | one client: what it asks for, and what it writes down |
//! | `detached` | locks that outlive their lease |
//! | `held` | what a client may hold |
//! | `sharing` | what is different where many may read |
//! | `resource` | what the locks guard |
//! | `world` | what all of these share |
//! | [`dice`] | all chance, drawn from the seed |
//! | [`report`] | what many runs came to |

mod client;
mod clock;
mod detached;
pub mod dice;
pub mod faults;
mod fickle;
mod gate;
mod held;
mod link;
mod member;
mod nemesis;
mod net;
mod operator;
pub mod plan;
pub mod report;
mod resource;
pub mod run;
mod server;
mod sharing;
mod workload;
mod world;
