//! Readers and writers: while a writer's lease is valid, nobody else's is.

use crate::event::LeaseRef;
use crate::history::{History, Turn};
use crate::violation::Violation;

/// All grants beside a valid lease that should have kept them out. `is_reader` tells which leases
/// may be shared.
#[must_use]
pub fn check(history: &History, is_reader: impl Fn(&LeaseRef) -> bool) -> Vec<Violation> {
    let mut found = Vec::new();
    history.with_those_beside(|turn, begin, beside| {
        let may_share = |other: &Turn| is_reader(&other.of) && is_reader(&turn.of);
        for other in beside.iter().filter(|other| !may_share(other)) {
            let what = format!("a writer of {:?} is not alone at {begin}", turn.of.lock);
            let mut events = other.shown_by();
            events.extend(turn.shown_by());
            found.push(Violation::new("exclusion", what, events));
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    /// Clients from 10 on are readers.
    fn found(sample: Sample) -> Vec<Violation> {
        check(&sample.history(), |lease| lease.client.0 >= 10)
    }

    #[test]
    fn readers_share_and_a_writer_comes_after_them() {
        let sample = Sample::new().acquired(10, 10, 7, 100);
        let sample = sample.acquired(11, 20, 8, 120).releasing(11, 90);
        assert_eq!(found(sample.acquired(1, 100, 9, 200)), []);
    }

    #[test]
    fn a_writer_beside_readers_is_found_once_for_each() {
        let sample = Sample::new().acquired(10, 10, 7, 100);
        let sample = sample.acquired(11, 20, 8, 120);
        assert_eq!(found(sample.acquired(1, 50, 9, 200)).len(), 2);
    }

    #[test]
    fn a_reader_or_a_writer_beside_a_writer_is_found() {
        let writer = || Sample::new().acquired(1, 10, 7, 100);
        assert_eq!(found(writer().acquired(10, 50, 8, 120)).len(), 1);
        assert_eq!(found(writer().acquired(2, 50, 8, 120)).len(), 1);
    }
}
