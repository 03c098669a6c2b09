//! Whose turn it is to show its ticket again, so that the nodes keep it.
//!
//! A round shows all waiters, and one begins each second. While a node answers a look it does nothing
//! else, hand-offs included, so a crowd is shown in parts, one shortly after the other.

use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::time::Duration;

use super::{POLL, WaiterId};
use crate::words::moment::Moment;

/// The most tickets of one part, as long as that makes no more than [`MOST_PARTS`].
const PART: usize = 500;
const MOST_PARTS: usize = 16;
/// A whole round of parts takes half of the time from one round to the next.
const BETWEEN_PARTS: Duration = Duration::from_millis(POLL.as_millis() as u64 / 32);
/// A round begins a little early rather than with a look of its own.
const EARLY: Duration = Duration::from_millis(POLL.as_millis() as u64 / 4);

#[derive(Clone, Debug)]
pub(super) struct Refresh {
    /// When the next part is due.
    due: Moment,
    /// The round that is under way.
    round: Option<Round>,
}

#[derive(Clone, Copy, Debug)]
struct Round {
    began: Moment,
    /// The last waiter that was shown in it.
    last: WaiterId,
}

impl Refresh {
    /// The first round begins then.
    pub(super) fn from(due: Moment) -> Self {
        Self { due, round: None }
    }

    pub(super) fn due(&self) -> Moment {
        self.due
    }

    /// How many tickets one look shows at the most where it is for the waiters to choose.
    pub(super) fn part_of(waiters: usize) -> usize {
        waiters.div_ceil(MOST_PARTS).max(PART)
    }

    /// The waiters whose turn it is at that time, if it is anybody's. The next round begins so long after
    /// this one began.
    pub(super) fn next_part<T>(
        &mut self,
        waiters: &BTreeMap<WaiterId, T>,
        now: Moment,
        every: Duration,
    ) -> Option<RangeInclusive<WaiterId>> {
        let early = self.round.map_or(EARLY, |_| Duration::ZERO);
        if now + early < self.due {
            return None;
        }
        let began = self.round.map_or(now, |round| round.began);
        let behind = |last| (Bound::Excluded(last), Bound::Unbounded);
        let rest = match self.round.take() {
            Some(round) => waiters.range(behind(round.last)),
            None => waiters.range(..),
        };
        let mut part = rest.take(Self::part_of(waiters.len())).map(|(id, _)| *id);
        let first = part.next();
        let last = part.last().or(first);
        let is_over = |last: &WaiterId| waiters.range(behind(*last)).next().is_none();
        match last.filter(|last| !is_over(last)) {
            Some(last) => {
                self.round = Some(Round { began, last });
                self.due = now + BETWEEN_PARTS;
            }
            None => self.due = (began + every).max(now + BETWEEN_PARTS),
        }
        Some(first?..=last?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_start(Duration::from_millis(millis))
    }

    fn crowd(waiters: u64) -> BTreeMap<WaiterId, ()> {
        (0..waiters).map(|id| (id * 3, ())).collect()
    }

    #[test]
    fn a_few_are_shown_together_once_a_second() {
        let (mut refresh, few) = (Refresh::from(at(0)), crowd(40));
        assert_eq!(refresh.next_part(&few, at(0), POLL), Some(0..=117));
        assert_eq!(refresh.due(), at(1000));
        assert_eq!(refresh.next_part(&few, at(700), POLL), None);
        assert!(
            refresh.next_part(&few, at(760), POLL).is_some(),
            "a little early"
        );
    }

    #[test]
    fn each_of_a_crowd_is_shown_once_a_second_and_never_all_at_once() {
        let (mut refresh, crowd) = (Refresh::from(at(0)), crowd(8_000));
        let mut shown = BTreeMap::<WaiterId, Vec<Moment>>::new();
        while refresh.due() < at(10_000) {
            let now = refresh.due();
            let part = refresh.next_part(&crowd, now, POLL).unwrap();
            let part: Vec<_> = crowd.range(part).collect();
            assert!(part.len() <= 500, "{} at once", part.len());
            for (id, ()) in part {
                shown.entry(*id).or_default().push(now);
            }
        }
        assert_eq!(shown.len(), crowd.len());
        for (id, times) in shown {
            assert!(times.len() >= 9, "{id} was shown at {times:?}");
            let apart = times.windows(2).map(|pair| pair[1].since(pair[0]));
            assert!(apart.max().unwrap() <= POLL * 3 / 2, "{id} at {times:?}");
        }
    }

    #[test]
    fn a_very_large_crowd_takes_no_more_looks_than_a_large_one() {
        let (mut refresh, crowd) = (Refresh::from(at(0)), crowd(100_000));
        let mut parts = 0;
        while refresh.due() < at(1_000) {
            let now = refresh.due();
            refresh.next_part(&crowd, now, POLL).unwrap();
            parts += 1;
        }
        assert_eq!(parts, MOST_PARTS);
    }

    #[test]
    fn a_round_ends_where_the_rest_has_left() {
        let (mut refresh, all) = (Refresh::from(at(0)), crowd(600));
        refresh.next_part(&all, at(0), POLL).unwrap();
        let few = crowd(3);
        assert_eq!(refresh.next_part(&few, refresh.due(), POLL), None);
        assert_eq!(refresh.due(), at(1000));
        assert_eq!(refresh.next_part(&few, at(1000), POLL), Some(0..=6));
    }
}
