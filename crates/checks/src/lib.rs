//! Whether what a run did was allowed: a [`History`] of events and the checkers of it.
//!
//! The simulation and the suite that hurts real servers write the same events and pass the same
//! checks. Nothing here may know where a history comes from: a checker reads events and nothing
//! else, and it returns *all* it finds, each [`Violation`] with the events that show it.
//!
//! | checker | what must hold |
//! | --- | --- |
//! | [`overlap`] | no two leases of one lock are valid at the same time |
//! | [`holders`] | no more than k are, where k may |
//! | [`exclusion`] | a writer is alone, readers share |
//! | [`tokens`] | tokens are unique, and grow in real time |
//! | [`resource`] | what the guarded resource acknowledged is in it, and its tokens never fell |
//! | [`loss`] | a holder is told in time, and before the next one gets the lock |
//! | [`fresh`] | a lease is valid when it is handed out (simulation only) |
//! | [`served`] | whoever waits is served within a bound once all faults have ended |
//! | [`idle`] | a lock that is free does not keep those waiting who stand in line |
//! | [`leftovers`] | no key is left on any node in the end |
//! | [`together`] | locks that are asked for together are granted together, or not at all |
//! | [`fifo`] | in fair mode, nobody overtakes who stood in line before it asked |
//!
//! ```
//! use fencepost_checks::{ClientId, Event, History, LeaseId, LeaseRef, Step, Time};
//!
//! let lease = |client| LeaseRef { client: ClientId(client), lock: "job".into(), lease: LeaseId(1) };
//! let acquired = |at, client, token| {
//!     let valid_until = Time(at + 100);
//!     Event::lease(Time(at), &lease(client), Step::Acquired { token, valid_until })
//! };
//! let history = History::new(vec![acquired(10, 1, 7), acquired(50, 2, 8)]);
//! let found = fencepost_checks::overlap::check(&history);
//! assert_eq!(found.len(), 1);
//! println!("{}", found[0]);
//! ```

pub mod event;
pub mod exclusion;
pub mod fifo;
pub mod fresh;
pub mod history;
pub mod holders;
pub mod idle;
pub mod leftovers;
pub mod loss;
pub mod overlap;
pub mod resource;
#[cfg(test)]
mod sample;
pub mod served;
pub mod together;
pub mod tokens;
mod violation;

use std::time::Duration;

pub use event::{Change, ClientId, Event, LeaseId, LeaseRef, Outcome, Step, Time, What};
pub use history::{Ended, History, Turn};
pub use violation::Violation;

/// What the checks may take for granted about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How long a waiter may wait after all faults have ended.
    pub served_within: Duration,
    /// How long after the end of all faults a request may still fail because nodes are not back.
    pub settled_after: Duration,
    /// How much later than the end of its validity, or than the end of a pause, a holder may be
    /// told: what the clock of the history cannot tell apart.
    pub told_within: Duration,
    /// Tokens must grow between acquisitions that lie further apart than this. Zero, unless nodes
    /// lost their data: then by how much the clients' wall clocks differ.
    pub token_skew: Duration,
}

/// Runs all checks that every mutex has to pass; [`fifo`], [`fresh`] and [`idle`] are for
/// some.
#[must_use]
pub fn mutex(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let mut found = overlap::check(history);
    found.extend(tokens::check(history, bounds.token_skew));
    found.extend(resource::check(history));
    found.extend(loss::check(history, bounds.told_within));
    found.extend(in_the_end(history, bounds));
    found
}

/// Runs all checks that a read-write lock has to pass. `is_reader` tells which leases may be shared.
#[must_use]
pub fn read_write(
    history: &History,
    bounds: &Bounds,
    is_reader: impl Fn(&LeaseRef) -> bool,
) -> Vec<Violation> {
    let mut found = exclusion::check(history, &is_reader);
    let skew = bounds.token_skew;
    found.extend(tokens::check_shared(history, skew, &is_reader));
    found.extend(resource::check(history));
    let slack = bounds.told_within;
    found.extend(loss::check_shared(history, slack, &is_reader));
    found.extend(in_the_end(history, bounds));
    found
}

fn in_the_end(history: &History, bounds: &Bounds) -> Vec<Violation> {
    let (bound, settled) = (bounds.served_within, bounds.settled_after);
    let mut found = served::check(history, bound, settled);
    found.extend(leftovers::check(history));
    found
}
