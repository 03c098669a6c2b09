//! Tokens of one lock are unique, and if one acquisition returned before another began, its token
//! is smaller.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::LeaseRef;
use crate::history::{History, Turn};
use crate::violation::Violation;

const CHECKER: &str = "tokens";

/// All tokens that were given twice, and all that fell although more than `skew` lay between.
#[must_use]
pub fn check(history: &History, skew: Duration) -> Vec<Violation> {
    check_shared(history, skew, |_| false)
}

/// The same where some read: a reader may have the token of another reader, and of the writer before
/// it.
#[must_use]
pub fn check_shared(
    history: &History,
    skew: Duration,
    is_reader: impl Fn(&LeaseRef) -> bool,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for (lock, turns) in history.granted() {
        twice(lock, &turns, &is_reader, &mut found);
        fallen(lock, &turns, skew, &mut found);
    }
    found
}

fn twice(
    lock: &str,
    turns: &[&Turn],
    is_reader: impl Fn(&LeaseRef) -> bool,
    found: &mut Vec<Violation>,
) {
    let mut by_token: BTreeMap<u64, &Turn> = BTreeMap::new();
    for turn in turns {
        if let Some(first) = by_token.insert(turn.token, turn)
            && !is_reader(&turn.of)
        {
            let what = format!("token {} of {lock:?} was given twice", turn.token);
            found.push(Violation::new(CHECKER, what, both(first, turn)));
        }
    }
}

fn fallen(lock: &str, by_grant: &[&Turn], skew: Duration, found: &mut Vec<Violation>) {
    let mut by_asking = by_grant.to_vec();
    by_asking.sort_by_key(|turn| turn.asked);
    let mut returned = by_grant.iter().peekable();
    let mut largest: Option<&Turn> = None;
    for turn in by_asking {
        let before = |earlier: &&&Turn| {
            earlier
                .acquired
                .is_some_and(|at| at.after(skew) < turn.asked)
        };
        while let Some(earlier) = returned.next_if(before) {
            largest = match largest {
                Some(other) if other.token >= earlier.token => Some(other),
                _ => Some(earlier),
            };
        }
        // Equal ones are given twice, which is found already.
        if let Some(earlier) = largest.filter(|earlier| earlier.token > turn.token) {
            let what = format!(
                "token {} of {lock:?} had been given before token {} was asked for",
                earlier.token, turn.token
            );
            found.push(Violation::new(CHECKER, what, both(earlier, turn)));
        }
    }
}

fn both(one: &Turn, other: &Turn) -> Vec<crate::event::Event> {
    let mut events = one.shown_by();
    events.extend(other.shown_by());
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    fn found(sample: Sample, skew: u64) -> Vec<Violation> {
        check(&sample.history(), Duration::from_nanos(skew))
    }

    #[test]
    fn growing_tokens_are_fine() {
        let sample = Sample::new().asked(1, 0).acquired(1, 10, 7, 100);
        assert_eq!(found(sample.asked(2, 20).acquired(2, 120, 8, 200), 0), []);
    }

    #[test]
    fn a_token_given_twice_is_found() {
        let sample = Sample::new().asked(1, 0).acquired(1, 10, 7, 100);
        let found = found(sample.asked(2, 20).acquired(2, 120, 7, 200), 0);
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("twice"), "{}", found[0]);
    }

    #[test]
    fn a_token_that_falls_is_found_only_where_the_order_is_real() {
        let began_after = Sample::new().asked(1, 0).acquired(1, 10, 7, 100);
        let began_after = began_after.asked(2, 11).acquired(2, 120, 6, 200);
        assert_eq!(found(began_after, 0).len(), 1);
        let began_before = Sample::new()
            .asked(1, 0)
            .asked(2, 5)
            .acquired(1, 10, 7, 100);
        assert_eq!(found(began_before.acquired(2, 120, 6, 200), 0), []);
    }

    #[test]
    fn after_a_loss_of_data_order_needs_more_time_than_the_clocks_differ() {
        let fallen = || {
            let sample = Sample::new().asked(1, 0).acquired(1, 10, 7, 100);
            sample.asked(2, 20).acquired(2, 120, 6, 200)
        };
        assert_eq!(found(fallen(), 15), []);
        assert_eq!(found(fallen(), 5).len(), 1);
    }

    #[test]
    fn one_that_falls_below_an_old_one_is_found() {
        let sample = Sample::new().asked(1, 0).acquired(1, 10, 9, 100);
        let sample = sample.asked(2, 20).acquired(2, 120, 10, 130);
        let found = found(sample.asked(3, 140).acquired(3, 150, 8, 200), 0);
        assert_eq!(found.len(), 1);
        assert!(found[0].to_string().contains("client 2"), "{}", found[0]);
    }

    #[test]
    fn readers_may_share_a_token_and_no_writer_may() {
        let reads = |of: &LeaseRef| of.client.0 >= 10;
        let sample = || Sample::new().acquired(1, 10, 7, 20).acquired(10, 20, 7, 90);
        let shared = sample().acquired(11, 30, 7, 90).history();
        assert_eq!(check_shared(&shared, Duration::ZERO, reads), []);
        let written = sample().acquired(2, 95, 7, 99).history();
        assert_eq!(check_shared(&written, Duration::ZERO, reads).len(), 1);
    }
}
