//! What is reported to a waiter for any of several slots: pure.
//!
//! It is for people to read, and nothing may be decided by it.

use std::time::Duration;

use tokio::time::Instant;

use crate::driver::waiters::Progress;

/// The latest news from the queue of each slot, and when it came.
pub(super) struct QueueView(Vec<Option<(Progress, Instant)>>);

impl QueueView {
    /// Nothing is known yet.
    pub(super) fn of(slots: usize) -> Self {
        Self(vec![None; slots])
    }

    /// Takes note of news from the queue of one slot, and says what follows from all of them: the
    /// slot whose holder's time ends first is likely to be the next one, and the best place in any
    /// queue is the place.
    pub(super) fn after(&mut self, slot: usize, news: Progress, now: Instant) -> Progress {
        if let Some(latest) = self.0.get_mut(slot) {
            *latest = Some((news, now));
        }
        let known = || self.0.iter().flatten();
        let left = |(news, told): &&(Progress, Instant)| {
            let left = news.remaining?;
            Some(left.saturating_sub(now.saturating_duration_since(*told)))
        };
        let held = known().filter(|(news, _)| news.holder.is_some());
        let first = held.min_by_key(|slot| left(slot).unwrap_or(Duration::MAX));
        Progress {
            holder: first.and_then(|(news, _)| news.holder.clone()),
            token: first.and_then(|(news, _)| news.token),
            remaining: first.as_ref().and_then(left),
            place: known().filter_map(|(news, _)| news.place).min(),
            is_settled: self.0.iter().all(is_settled),
        }
    }
}

fn is_settled(slot: &Option<(Progress, Instant)>) -> bool {
    slot.as_ref().is_some_and(|(news, _)| news.is_settled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::value::Owner;

    fn news(holder: &str, seconds: Option<u64>, place: usize) -> Progress {
        Progress {
            holder: (!holder.is_empty()).then(|| Owner::new(holder).unwrap()),
            token: None,
            remaining: seconds.map(Duration::from_secs),
            place: Some(place),
            is_settled: true,
        }
    }

    #[test]
    fn the_slot_that_ends_first_is_told_as_of_now_and_the_best_place() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut outlook = QueueView::of(4);
        let told = outlook.after(0, news("a", Some(20), 3), start);
        assert_eq!(told.holder.unwrap().as_str(), "a");
        assert!(!told.is_settled, "not in the other queues");
        outlook.after(1, news("b", Some(12), 2), start);
        outlook.after(2, news("for-ever", None, 4), start);
        let told = outlook.after(3, news("", None, 9), start + second);
        assert_eq!(told.holder.unwrap().as_str(), "b");
        assert_eq!(told.remaining, Some(second * 11));
        assert_eq!((told.place, told.is_settled), (Some(2), true));
        let told = outlook.after(0, news("a", Some(5), 1), start + second * 2);
        assert_eq!(told.holder.unwrap().as_str(), "a");
        assert_eq!((told.remaining, told.place), (Some(second * 5), Some(1)));
    }

    #[test]
    fn who_holds_for_ever_is_told_if_there_is_nobody_else() {
        let mut outlook = QueueView::of(2);
        let told = outlook.after(0, news("", None, 1), Instant::now());
        assert_eq!((told.holder, told.remaining), (None, None));
        let told = outlook.after(1, news("for-ever", None, 1), Instant::now());
        assert_eq!(told.holder.unwrap().as_str(), "for-ever");
        assert_eq!(told.remaining, None);
    }
}
