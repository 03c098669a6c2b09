//! In fair mode nobody overtakes: whoever had its place in line before another asked is served
//! before it.

use crate::history::{History, Turn};
use crate::violation::Violation;

/// All inversions: A stood in line before B asked, and B was served while A still waited.
///
/// Only for locks that are used in fair mode throughout, and only as far as A kept its place: one
/// whose process stood still, or that heard too few nodes, loses it by design. Ask only for
/// histories without such faults, or take the result as a count.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (lock, served) in history.granted() {
        let in_line: Vec<&Turn> = history
            .turns()
            .iter()
            .filter(|turn| turn.of.lock == lock && turn.queued.is_some())
            .collect();
        for later in served {
            for earlier in &in_line {
                if was_overtaken(earlier, later) {
                    let what = format!(
                        "{} overtook {}, which stood in line when it asked",
                        later.of, earlier.of
                    );
                    let mut events = earlier.events.clone();
                    events.extend(later.events.clone());
                    found.push(Violation::new("fifo", what, events));
                }
            }
        }
    }
    found
}

fn was_overtaken(earlier: &Turn, later: &Turn) -> bool {
    let (Some(in_line), Some(served)) = (earlier.queued, later.acquired) else {
        return false;
    };
    let ended = earlier.ended.map(|(at, _)| at);
    let waited_until = earlier.acquired.into_iter().chain(ended).min();
    in_line < later.asked && waited_until.is_none_or(|at| at > served)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn served_in_the_order_of_the_line_is_fine() {
        let sample = Sample::new()
            .asked(1, 0)
            .queued(1, 5)
            .asked(2, 6)
            .queued(2, 8);
        let sample = sample.acquired(1, 10, 7, 20).acquired(2, 20, 8, 30);
        assert_eq!(check(&sample.history()), []);
    }

    #[test]
    fn who_asked_before_the_other_had_its_place_may_be_first() {
        let sample = Sample::new()
            .asked(1, 0)
            .asked(2, 4)
            .queued(1, 5)
            .queued(2, 8);
        let sample = sample.acquired(2, 10, 7, 20).acquired(1, 20, 8, 30);
        assert_eq!(check(&sample.history()), []);
    }

    #[test]
    fn who_gave_up_cannot_be_overtaken() {
        let sample = Sample::new()
            .asked(1, 0)
            .queued(1, 5)
            .asked(2, 6)
            .dropped(1, 9);
        assert_eq!(check(&sample.acquired(2, 10, 7, 20).history()), []);
    }

    #[test]
    fn an_inversion_is_found() {
        let sample = Sample::new()
            .asked(1, 0)
            .queued(1, 5)
            .asked(2, 6)
            .queued(2, 8);
        let sample = sample.acquired(2, 10, 7, 20).acquired(1, 20, 8, 30);
        let found = check(&sample.history());
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("overtook"), "{}", found[0]);
        let never = Sample::new().asked(1, 0).queued(1, 5).asked(2, 6);
        assert_eq!(check(&never.acquired(2, 10, 7, 20).history()).len(), 1);
    }
}
