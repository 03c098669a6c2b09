//! Once all faults have ended, whoever waits is served within a bound.

use std::time::Duration;

use crate::event::{Step, What};
use crate::history::{Ended, History, Turn};
use crate::violation::Violation;

const CHECKER: &str = "served";

/// All requests that were still waiting `bound` after all was well again, or after they were asked
/// if that was later; and all that failed for want of a quorum although they were asked when all was
/// well. All is well `settled` after the healing: restarted nodes may not vote before. Finds
/// nothing if the history has no healing.
#[must_use]
pub fn check(history: &History, bound: Duration, settled: Duration) -> Vec<Violation> {
    let Some(healed) = history.healed() else {
        return Vec::new();
    };
    let all_well = healed.after(settled);
    let mut found = Vec::new();
    for turn in history.turns() {
        let last = turn.asked.max(all_well).after(bound);
        let ended = turn.ended.map(|(at, _)| at);
        let done = turn.acquired.into_iter().chain(ended).min();
        if done.map_or(history.end() > last, |at| at > last) {
            let what = format!("a waiter for {:?} was not served by {last}", turn.of.lock);
            found.push(Violation::new(CHECKER, what, turn.shown_by()));
        }
        let without_reason = turn.asked > all_well
            && matches!(turn.ended, Some((_, Ended::Failed)))
            && !was_held(turn);
        if without_reason {
            let what = format!("a request for {:?} failed when all was well", turn.of.lock);
            found.push(Violation::new(CHECKER, what, turn.shown_by()));
        }
    }
    found
}

/// Whether somebody else had it, for as long as the request was willing to wait.
fn was_held(turn: &Turn) -> bool {
    turn.events.iter().any(|event| match &event.what {
        What::Lease {
            step: Step::Failed { error },
            ..
        } => error == "held",
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    fn found(sample: Sample) -> Vec<Violation> {
        let (bound, settled) = (Duration::from_nanos(100), Duration::from_nanos(10));
        check(&sample.history(), bound, settled)
    }

    #[test]
    fn a_waiter_that_is_served_in_time_is_fine() {
        let sample = Sample::new()
            .asked(1, 0)
            .healed(50)
            .acquired(1, 160, 7, 200);
        assert_eq!(found(sample.asked(2, 300).acquired(2, 400, 8, 500)), []);
    }

    #[test]
    fn nobody_has_to_be_served_before_the_healing() {
        let sample = Sample::new().asked(1, 0).failed(1, 900, "no_quorum");
        assert_eq!(found(sample.healed(1000)), []);
    }

    #[test]
    fn whoever_gave_up_is_not_waiting() {
        let sample = Sample::new().asked(1, 0).healed(50).dropped(1, 60);
        assert_eq!(
            found(sample.asked(2, 70).failed(2, 80, "held").healed(500)),
            []
        );
    }

    #[test]
    fn a_waiter_that_is_served_late_or_never_is_found() {
        let late = Sample::new()
            .asked(1, 0)
            .healed(50)
            .acquired(1, 161, 7, 200);
        assert_eq!(found(late).len(), 1);
        let never = Sample::new().asked(1, 0).healed(50);
        assert_eq!(found(never.asked(2, 161).acquired(2, 162, 7, 170)).len(), 1);
    }

    #[test]
    fn a_failure_without_a_fault_is_found() {
        let sample = Sample::new()
            .healed(50)
            .asked(1, 61)
            .failed(1, 70, "no_quorum");
        assert_eq!(found(sample).len(), 1);
        let not_settled = Sample::new()
            .healed(50)
            .asked(1, 59)
            .failed(1, 70, "no_quorum");
        assert_eq!(found(not_settled), []);
    }
}
