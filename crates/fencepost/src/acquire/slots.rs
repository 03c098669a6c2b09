//! The slots of one semaphore, latch or barrier: what their locks are called, and which of them were
//! free when last seen.
//!
//! No slot may ever have the name of another one's. What is remembered of free slots is a hint, and
//! nothing may rest on it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Cause, Error};
use fencepost_core::name::{LockName, has_odd_braces, hash_tag};

/// The most slots of one kind: a waiter waits for all of them at once.
const MOST_SLOTS: usize = 1000;
/// The longest name of what has slots, in bytes. The rest of a lock's name is for the slot.
const LONGEST_NAME: usize = 480;
/// How long a slot that was seen free is tried without looking again.
const BELIEF: Duration = Duration::from_secs(1);

/// What the slots are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Semaphore,
    Latch,
    Barrier,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Semaphore => "semaphore",
            Self::Latch => "latch",
            Self::Barrier => "barrier",
        }
    }

    /// What the user calls the slots.
    fn slots(self) -> &'static str {
        match self {
            Self::Semaphore => "permits",
            Self::Latch => "counts",
            Self::Barrier => "parties",
        }
    }
}

/// The slots of one semaphore, latch or barrier.
#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) kind: Kind,
    /// What they are slots of.
    pub(crate) whole: LockName,
    pub(crate) names: Vec<LockName>,
    /// When each slot was last known to be free, unless it was tried since.
    free: Mutex<Vec<Option<Instant>>>,
}

impl Slots {
    pub(crate) fn new(kind: Kind, name: &str, count: usize) -> Result<Self, Error> {
        if count == 0 || count > MOST_SLOTS {
            let (word, slots) = (kind.word(), kind.slots());
            return Err(Error::from(Cause::InvalidOption {
                option: slots,
                why: format!("a {word} has 1 to {MOST_SLOTS} {slots}, not {count}"),
            }));
        }
        let name = LockName::new(name)?;
        if name.as_str().len() > LONGEST_NAME {
            return Err(Error::from(Cause::InvalidName {
                name: name.as_str().chars().take(64).collect(),
                why: "expected at most 480 bytes",
            }));
        }
        let names = (0..count).map(|slot| part_name(kind, &name, &slot.to_string()));
        Ok(Self {
            kind,
            whole: name.clone(),
            names: names.collect::<Result<_, _>>()?,
            free: Mutex::new(vec![None; count]),
        })
    }

    /// A slot that is believed to be free: the one of which that is the latest news. It is handed out
    /// once.
    pub(crate) fn take_free(&self) -> Option<usize> {
        let mut free = self.free();
        let news = free.iter().enumerate();
        let latest = news.filter_map(|(slot, when)| Some(((*when)?, slot))).max();
        let (when, slot) = latest?;
        free[slot] = None;
        (when.elapsed() < BELIEF).then_some(slot)
    }

    /// A slot was seen free, or was released.
    pub(crate) fn seen_free(&self, slot: usize) {
        if let Some(news) = self.free().get_mut(slot) {
            *news = Some(Instant::now());
        }
    }

    fn free(&self) -> MutexGuard<'_, Vec<Option<Instant>>> {
        // A panic while it was locked cannot have left it half changed.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In a tag of the whole's name, so that all its slots share a hash slot; and because no name is a
/// tag alone, no two share a slot.
pub(crate) fn part_name(kind: Kind, name: &LockName, part: &str) -> Result<LockName, Error> {
    let word = kind.word();
    if has_odd_braces(name.as_str()) {
        return Err(Error::from(Cause::InvalidName {
            name: name.to_string(),
            why: "a plain lock can have it; a semaphore, latch or barrier needs a name without \"}\", or \
                  with a \"{tag}\" and something beside it",
        }));
    }
    let name = match hash_tag(name.as_str()) {
        Some(_) => LockName::new(format!("{name}:{word}:{part}")),
        None => LockName::new(format!("{{{name}}}:{word}:{part}")),
    };
    Ok(name?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_slot(name: &str) -> String {
        Slots::new(Kind::Semaphore, name, 1).unwrap().names[0].to_string()
    }

    #[test]
    fn slots_are_named_in_the_tag_of_their_semaphore() {
        assert_eq!(first_slot("pool"), "{pool}:semaphore:0");
        assert_eq!(first_slot("{t}:pool"), "{t}:pool:semaphore:0");
        assert_eq!(first_slot("a{b"), "{a{b}:semaphore:0");
        let slots = Slots::new(Kind::Semaphore, "pool", 12).unwrap();
        assert_eq!(slots.names[11].as_str(), "{pool}:semaphore:11");
        assert_eq!(hash_tag(slots.names[11].as_str()), Some("pool"));
    }

    /// A semaphore whose name is a slot of another, or the tag alone, would share its locks.
    #[test]
    fn no_two_semaphores_share_a_slot() {
        let names = ["a", "a:semaphore:0", "{a}:semaphore:0", "{a}x", "{a}:a"];
        let mut slots: Vec<_> = names.into_iter().map(first_slot).collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), names.len(), "{slots:?}");
        // Would be the slots of "a", and of "{a}}".
        for name in ["{a}", "a}"] {
            let error = Slots::new(Kind::Semaphore, name, 1).unwrap_err();
            assert!(error.to_string().contains("a plain lock can"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_a_semaphore_is_refused_with_its_reason() {
        for (name, permits, why) in [
            ("pool".to_owned(), 0, "1 to 1000"),
            ("pool".to_owned(), 1001, "1 to 1000"),
            (String::new(), 1, "empty"),
            ("x".repeat(481), 1, "480 bytes"),
        ] {
            let error = Slots::new(Kind::Semaphore, &name, permits)
                .unwrap_err()
                .to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(Slots::new(Kind::Semaphore, &"x".repeat(480), 1000).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_free_slot_is_told_to_one_and_not_for_long() {
        let slots = Slots::new(Kind::Semaphore, "pool", 3).unwrap();
        assert_eq!(slots.take_free(), None);
        slots.seen_free(2);
        tokio::time::advance(BELIEF / 4).await;
        slots.seen_free(0);
        slots.seen_free(7);
        assert_eq!(slots.take_free(), Some(0), "the latest first");
        assert_eq!(slots.take_free(), Some(2));
        assert_eq!(slots.take_free(), None);
        slots.seen_free(1);
        tokio::time::advance(BELIEF).await;
        assert_eq!(slots.take_free(), None, "too long ago");
    }
}
