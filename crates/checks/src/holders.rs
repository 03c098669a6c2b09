//! No more than k leases of one lock are valid at the same time: a semaphore, or a mutex with
//! k = 1.

use crate::history::{History, Turn};
use crate::violation::Violation;

/// Every grant that made more than `most` holders.
#[must_use]
pub fn check(history: &History, most: usize) -> Vec<Violation> {
    sweep(history, most, "holders")
}

/// Goes through the grants of each lock in the order of time, with those that are still valid.
pub(crate) fn sweep(history: &History, most: usize, checker: &'static str) -> Vec<Violation> {
    let mut found = Vec::new();
    history.with_those_beside(|turn, begin, beside| {
        let holders = beside.len() + 1;
        if holders > most {
            let what = format!("{holders} hold {:?} at {begin}", turn.of.lock);
            let valid = beside.iter().copied().chain([turn]);
            let events = valid.flat_map(Turn::shown_by);
            found.push(Violation::new(checker, what, events.collect()));
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    fn three_at_a_time() -> History {
        let sample = Sample::new().acquired(1, 10, 7, 100);
        let sample = sample.acquired(2, 20, 8, 100).acquired(3, 30, 9, 100);
        sample.history()
    }

    #[test]
    fn as_many_as_may_are_fine() {
        assert_eq!(check(&three_at_a_time(), 3), []);
    }

    #[test]
    fn one_too_many_is_found() {
        let found = check(&three_at_a_time(), 2);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("3 hold"), "{}", found[0]);
    }
}
