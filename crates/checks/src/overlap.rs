//! No two leases of one lock are valid at the same time.

use crate::history::History;
use crate::holders;
use crate::violation::Violation;

/// All pairs of leases whose validity overlaps.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    holders::sweep(history, 1, "overlap")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn leases_one_after_the_other_are_fine() {
        let sample = Sample::new()
            .asked(1, 0)
            .asked(2, 0)
            .acquired(1, 10, 7, 100)
            .releasing(1, 50)
            .acquired(2, 50, 8, 150)
            .asked(3, 60)
            .acquired(3, 150, 9, 250);
        assert_eq!(check(&sample.history()), []);
    }

    #[test]
    fn the_holder_that_was_told_is_no_holder() {
        let sample = Sample::new().acquired(1, 10, 7, 100).told(1, 40);
        assert_eq!(check(&sample.acquired(2, 40, 8, 150).history()), []);
    }

    #[test]
    fn every_pair_that_overlaps_is_found() {
        let sample = Sample::new()
            .acquired(1, 10, 7, 100)
            .acquired(2, 99, 8, 250)
            .acquired(3, 150, 9, 160)
            .acquired(4, 240, 10, 300);
        let found = check(&sample.history());
        assert_eq!(found.len(), 3, "{found:?}");
        let text = found[0].to_string();
        assert!(
            text.contains("client 1") && text.contains("client 2"),
            "{text}"
        );
    }

    #[test]
    fn a_release_that_returned_later_ends_validity_where_it_began() {
        let sample = Sample::new().acquired(1, 10, 7, 100).releasing(1, 20);
        assert_eq!(check(&sample.acquired(2, 25, 8, 99).history()), []);
    }

    #[test]
    fn a_renewal_keeps_it_valid() {
        use crate::event::{Step, Time};
        let valid_until = Time(200);
        let sample = Sample::new().acquired(1, 10, 7, 100);
        let sample = sample.step(1, 50, Step::Extended { valid_until });
        assert_eq!(check(&sample.acquired(2, 150, 8, 250).history()).len(), 1);
    }
}
