//! What is checked with Redisson.

use crate::classic::Outcome;
use crate::scene::Effort;

/// What was checked with one kind of lock: the kind, the question, and what came of it.
pub type Row = (&'static str, &'static str, Outcome);

/// Everything that is checked. The first item is its version.
#[must_use]
pub fn meet(_effort: Effort) -> (String, Vec<Row>) {
    (String::new(), Vec::new())
}
