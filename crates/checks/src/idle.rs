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

/// All times after `from` in which fewer than `permits` were in use for longer than `bound`, although somebody
/// had asked for one and got none in all that time. A semaphore tells nobody its place in line, so that a
/// waiter counts from when it asked.
#[must_use]
pub fn check_permits(
    history: &History,
    permits: usize,
    from: Time,
    bound: Duration,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for (lock, served) in history.granted() {
        let mut changes: Vec<(Time, bool)> = Vec::new();
        for turn in &served {
            changes.extend(turn.acquired.map(|at| (at, true)));
            changes.push((free_since(turn), false));
        }
        // At the same moment one ends before the next begins.
        changes.sort_unstable();
        for (free, taken) in spare_times(&changes, permits, history.end()) {
            let all_turns = history.turns().iter();
            let mut waiters = all_turns.filter(|turn| turn.of.lock == lock);
            let is_kept_waiting = |turn: &&Turn| {
                let begin = free.max(turn.asked).max(from);
                let ended = turn.ended.map(|(at, _)| at);
                let done = turn.acquired.into_iter().chain(ended).min();
                done.unwrap_or(taken).min(taken) > begin.after(bound)
            };
            if let Some(waiter) = waiters.find(is_kept_waiting) {
                let what =
                    format!("a permit of {lock:?} was free from {free} to {taken}, and not used");
                let before = served.iter().filter(|turn| free_since(turn) == free);
                let mut events: Vec<_> = before.flat_map(|turn| turn.shown_by()).collect();
                events.extend(waiter.events.iter().cloned());
                found.push(Violation::new("idle", what, events));
            }
        }
    }
    found
}

/// The times in which fewer than so many were in use, each as long as it can be.
fn spare_times(changes: &[(Time, bool)], permits: usize, end: Time) -> Vec<(Time, Time)> {
    let (mut used, mut since, mut times) = (0_usize, Some(Time(0)), Vec::new());
    for (at, is_taken) in changes {
        used = match is_taken {
            true => used + 1,
            false => used.saturating_sub(1),
        };
        match since {
            Some(free) if used >= permits => {
                times.push((free, *at));
                since = None;
            }
            None if used < permits => since = Some(*at),
            _ => {}
        }
    }
    times.extend(since.map(|free| (free, end)));
    times
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
    fn a_permit_that_nobody_uses_while_somebody_waits_is_found() {
        let found = |sample: Sample| {
            check_permits(&sample.history(), 2, Time(10), Duration::from_nanos(20))
        };
        let both = || {
            Sample::new()
                .acquired(1, 10, 7, 100)
                .acquired(2, 20, 8, 300)
                .asked(3, 30)
        };
        assert_eq!(found(both().dropped(1, 50).acquired(3, 70, 9, 200)), []);
        let late = both().dropped(1, 50).acquired(3, 71, 9, 200);
        assert_eq!(found(late).len(), 1);
        let never = both().dropped(1, 50).healed(500);
        assert_eq!(found(never).len(), 1);
        let gave_up = both().dropped(1, 50).failed(3, 60, "held");
        assert_eq!(found(gave_up), []);
        let came_later = Sample::new()
            .acquired(1, 10, 7, 100)
            .asked(3, 60)
            .acquired(3, 75, 9, 200);
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
