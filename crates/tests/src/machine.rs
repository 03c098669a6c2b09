//! What a busy machine may do to a test, so that a test can be exact and yet not fail for it.
//!
//! It must never excuse what the library did: only what was measured beside it, or what was right when
//! it was tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often something is tried that the machine may have delayed.
const TRIES: usize = 10;
/// How long the thread sleeps that measures.
const NAP: Duration = Duration::from_millis(1);

/// Runs it until it takes less than `bound`, a few times at the most.
///
/// For what somebody has to be woken for: on a busy machine it may be late for once, and whoever looks
/// by itself, later than `bound`, is late every time.
///
/// # Panics
/// When it never took less.
pub async fn is_prompt(bound: Duration, mut scenario: impl AsyncFnMut() -> Duration) {
    let mut took = Vec::new();
    while took.len() < TRIES {
        let this_time = scenario().await;
        if this_time < bound {
            return;
        }
        took.push(this_time);
    }
    panic!("never below {bound:?}: {took:?}");
}

/// The median: what it takes when nothing comes in between.
///
/// # Panics
/// When there is nothing.
#[must_use]
pub fn typical(took: &[Duration]) -> Duration {
    let mut took = took.to_vec();
    took.sort_unstable();
    took[took.len() / 2]
}

/// Measures, for as long as it lives, how late the machine lets a thread go on that has slept, and a task
/// of the present runtime.
#[derive(Debug)]
pub struct Stalls {
    worst: Arc<Worst>,
}

/// Nanoseconds.
#[derive(Debug, Default)]
struct Worst(AtomicU64);

impl Worst {
    /// Somebody slept since then, for one nap.
    fn slept_since(&self, begin: Instant) {
        let late = begin.elapsed().saturating_sub(NAP);
        let late = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.0.fetch_max(late, Ordering::SeqCst);
    }
}

impl Stalls {
    /// Begins to measure.
    #[must_use]
    pub fn watch() -> Self {
        let worst = Arc::<Worst>::default();
        let seen = Arc::downgrade(&worst);
        std::thread::spawn(move || {
            while let Some(worst) = seen.upgrade() {
                let begin = Instant::now();
                std::thread::sleep(NAP);
                worst.slept_since(begin);
            }
        });
        let seen = Arc::downgrade(&worst);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                while let Some(worst) = seen.upgrade() {
                    let begin = Instant::now();
                    tokio::time::sleep(NAP).await;
                    worst.slept_since(begin);
                }
            });
        }
        Self { worst }
    }

    /// The longest so far.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.worst.0.load(Ordering::SeqCst))
    }

    /// How late something may have been by now because of the machine alone. Twice what was measured: a
    /// thread that hands on to another meets it twice.
    #[must_use]
    pub fn allowance(&self) -> Duration {
        2 * self.longest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_late_once_is_tried_again() {
        let (slow, quick) = (Duration::from_secs(9), Duration::from_millis(9));
        let mut took = [slow, slow, quick].into_iter();
        is_prompt(Duration::from_secs(1), async || took.next().expect("one")).await;
        assert_eq!(took.next(), None);
    }

    #[tokio::test]
    #[should_panic(expected = "never below 1s: [9s, 9s, 9s")]
    async fn what_is_late_every_time_is_late() {
        let slow = Duration::from_secs(9);
        is_prompt(Duration::from_secs(1), async || slow).await;
    }

    #[test]
    fn a_few_that_were_late_do_not_change_what_is_typical() {
        let took = [900, 3, 1, 800, 2].map(Duration::from_millis);
        assert_eq!(typical(&took), Duration::from_millis(3));
    }

    #[test]
    fn a_stall_that_was_seen_is_allowed_for_and_nothing_is_forgotten() {
        let stalls = Stalls::watch();
        crate::eventually("it measures", Duration::from_secs(10), || {
            stalls.allowance() > Duration::ZERO
        });
        let seen = stalls.allowance();
        std::thread::sleep(NAP * 5);
        assert!(stalls.allowance() >= seen);
    }
}
