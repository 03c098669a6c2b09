//! The progress that a waiter for any of several slots is shown: pure.
//!
//! It is for people to read, and nothing may be decided by it.

use std::time::Duration;

use tokio::time::Instant;

use crate::driver::waiters::Progress;
use crate::error::HolderStatus;

/// How often the slots are looked at for this, at the most and at the least.
const MOST_OFTEN: Duration = Duration::from_secs(1);
const LEAST_OFTEN: Duration = Duration::from_secs(10);

/// The holder whose time ends first: its slot is likely to be the next one.
#[derive(Default)]
pub(super) struct SoonestHolder {
    holder: Option<HolderStatus>,
    /// When the slots were looked at for it.
    looked: Option<Instant>,
}

impl SoonestHolder {
    /// Whether it is worth looking again: its time is up, or that was long ago.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let remaining = self.holder.as_ref().and_then(|holder| holder.remaining);
        let pause = remaining.unwrap_or(LEAST_OFTEN);
        let pause = pause.clamp(MOST_OFTEN, LEAST_OFTEN);
        self.looked.is_none_or(|looked| now >= looked + pause)
    }

    /// This was seen.
    pub(super) fn seen(&mut self, holder: Option<HolderStatus>, now: Instant) {
        self.holder = holder;
        self.looked = Some(now);
    }

    /// The place in the queue, and the holder as of now.
    pub(super) fn tell(&self, news: Progress, now: Instant) -> Progress {
        let passed = self
            .looked
            .map(|looked| now.saturating_duration_since(looked));
        let left = |holder: &HolderStatus| {
            let left = holder.remaining?;
            Some(left.saturating_sub(passed.unwrap_or_default()))
        };
        Progress {
            holder: self.holder.as_ref().map(|holder| holder.owner.clone()),
            token: self.holder.as_ref().and_then(|holder| holder.token),
            remaining: self.holder.as_ref().and_then(left),
            // Of the queue's own name, which is never held.
            split: Vec::new(),
            ..news
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::owner::Owner;

    #[test]
    fn the_holder_that_ends_first_is_told_as_of_now_with_the_place_in_the_queue() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let news = Progress {
            holder: None,
            split: Vec::new(),
            token: None,
            remaining: None,
            place: Some(3),
            is_settled: true,
        };
        let mut soonest = SoonestHolder::default();
        assert!(soonest.is_due(start));
        let holder = HolderStatus {
            owner: Owner::new("b").unwrap(),
            token: None,
            remaining: Some(second * 5),
        };
        soonest.seen(Some(holder), start);
        let told = soonest.tell(news, start + second);
        assert_eq!(told.holder.unwrap().as_str(), "b");
        assert_eq!((told.remaining, told.place), (Some(second * 4), Some(3)));
        assert!(told.is_settled);
        assert!(!soonest.is_due(start + second * 4));
        assert!(soonest.is_due(start + second * 5), "its time is up");
        soonest.seen(None, start);
        assert!(!soonest.is_due(start + second) && soonest.is_due(start + LEAST_OFTEN));
    }
}
