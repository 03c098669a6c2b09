//! The decisions of fencepost, and nothing else: no I/O, no task, no clock, no randomness.
//!
//! Events and the current time go in; steps and actions come out. The library `fencepost` is a thin
//! driver around this crate that sends, sleeps and spawns. The model check and the simulation run
//! the same rules unchanged.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`words`] | checked types: name, token, TTL, value, ticket, moment |
//! | [`outcome`] | what a node said, and how a lease was lost |
//! | [`lock`] | the state machine of one lock on one node |
//! | [`quorum`] | acquire, extend and release over n nodes |
//! | [`wait`] | the wait queue of one lock |
//! | [`lease`] | the deadline, renewal and loss of one lease |

pub mod lease;
pub mod lock;
pub mod outcome;
pub mod quorum;
pub mod wait;
pub mod words;

pub use outcome::{LossReason, NodeError, NodeOutcome, NodeReport};
pub use words::*;
