//! A lock that is free is not left unused while somebody stands in line for it.

use std::time::Duration;

use crate::event::{Event, Step, Time, What};
use crate::history::{History, Turn};
use crate::violation::Violation;

/// All times after `from` in which a lock was free for longer than `bound` although somebody stood
/// in line for it all that time. A lock is free when its holder's release has returned, or its lease
/// was dropped or is over.
#[must_use]
pub fn check(history: &History, from: Time, bound: Duration) -> Vec<Violation> {
    let mut found = Vec::new();
    for (lock, served) in history.granted() {
        for (place, last) in served.iter().enumerate() {
            let free = free_since(last).max(from);
            let next = served[place + 1..].first();
            let taken = next.and_then(|next| next.acquired).unwrap_or(history.end());
            if taken <= free.after(bound) {
                continue;
            }
            let all_turns = history.turns().iter();
            let mut in_line = all_turns.filter(|turn| turn.of.lock == lock);
            if let Some(waiter) = in_line.find(|turn| waited(turn, free, taken)) {
                let what = format!("{lock:?} was free from {free} to {taken}, and not used");
                let mut events = last.shown_by();
                events.extend(waiter.events.iter().cloned());
                events.extend(next.into_iter().flat_map(|next| next.shown_by()));
                events.dedup();
                found.push(Violation::new("idle", what, events));
            }
        }
    }
    found
}

fn waited(turn: &Turn, from: Time, to: Time) -> bool {
    let ended = turn.ended.map(|(at, _)| at);
    let done = turn.acquired.into_iter().chain(ended).min();
    turn.queued.is_some_and(|at| at <= from) && done.is_none_or(|at| at >= to)
}

/// When nothing of a lease was left.
fn free_since(turn: &Turn) -> Time {
    let ends_it = |event: &&Event| {
        let What::Lease { step, .. } = &event.what else {
            return false;
        };
        matches!(step, Step::Released { .. } | Step::Dropped)
    };
    let given_back = turn.events.iter().find(ends_it).map(|event| event.at);
    given_back.unwrap_or(turn.valid_until)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    fn found(sample: Sample) -> Vec<Violation> {
        check(&sample.history(), Time(10), Duration::from_nanos(20))
    }

    #[test]
    fn a_lock_that_passes_on_at_once_is_fine() {
        let sample = Sample::new().acquired(1, 10, 7, 100).queued(2, 20);
        assert_eq!(found(sample.dropped(1, 50).acquired(2, 70, 8, 200)), []);
    }

    #[test]
    fn a_lock_that_nobody_waits_for_may_be_free() {
        let sample = Sample::new().acquired(1, 10, 7, 100).dropped(1, 50);
        let came_later = sample.asked(2, 60).queued(2, 65).acquired(2, 80, 8, 200);
        assert_eq!(found(came_later), []);
    }

    #[test]
    fn a_waiter_that_is_left_waiting_is_found() {
        let sample = Sample::new().acquired(1, 10, 7, 100).queued(2, 20);
        let sample = sample.dropped(1, 50).acquired(2, 71, 8, 200);
        assert_eq!(found(sample).len(), 1);
        let never = Sample::new().acquired(1, 10, 7, 100).queued(2, 20);
        assert_eq!(found(never.dropped(1, 50).healed(500)).len(), 1);
    }
}
