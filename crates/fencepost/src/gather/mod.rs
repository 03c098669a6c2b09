//! Waiting for each other: [`Latch`], which opens when k have counted it down, and [`Barrier`], which
//! lets k pass when all of them are there.
//!
//! | file | what it is |
//! | --- | --- |
//! | `latch` | the latch, as the user sees it |
//! | `barrier` | the barrier, as the user sees it |
//! | `watch` | looking whether all k are there, again and again |
//! | `view` | what the nodes' answers mean; pure |
//!
//! Both are k slot locks, as a [semaphore](crate::Semaphore) has them. Whoever counts or passes leaves
//! its slot taken: a count of k on each node could not be trusted, because a node that was away
//! would miss some, and nobody could tell which.
//!
//! Neither may ever open before k are there. What is dropped half-way gives its slot back.

mod barrier;
mod latch;
mod view;
mod watch;

use std::time::Duration;

pub use barrier::{Barrier, Passage};
pub use latch::{Counted, Latch};

/// How long what was counted, and who has passed, is remembered, where nothing else is said.
const KEEP: Duration = Duration::from_secs(60 * 60);
/// How much time passes between two looks at the most.
const PACE: Duration = Duration::from_millis(250);
/// How long one who was not the only one to ask for a slot waits before it asks again, at the most.
const AGAIN: Duration = Duration::from_millis(25);
