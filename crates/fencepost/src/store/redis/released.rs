//! [`Released`]: the values whose release was sent on a connection, as far back as it matters.
//!
//! A server that does not know a script says so, and the command is sent again. By then its release
//! may have been sent, and a command that arrives after its own release must never acquire the
//! lock: nothing would release it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fencepost_core::lock::Command;
use fencepost_core::value::AttemptValue;

/// How many are kept.
const KEPT: usize = 1024;

/// The releases that were sent, in order.
#[derive(Default)]
pub(super) struct Released(Mutex<Latest>);

#[derive(Default)]
struct Latest {
    /// How many there were before the kept ones.
    forgotten: u64,
    kept: VecDeque<AttemptValue>,
}

impl Released {
    /// Records that a release of this value is about to be sent.
    pub(super) fn note(&self, value: &AttemptValue) {
        let mut latest = self.latest();
        latest.kept.push_back(value.clone());
        if latest.kept.len() > KEPT {
            latest.kept.pop_front();
            latest.forgotten += 1;
        }
    }

    /// How many there have been.
    pub(super) fn count(&self) -> u64 {
        let latest = self.latest();
        latest.forgotten + latest.kept.len() as u64
    }

    /// Whether this value was released since that count. `None` when too many have followed to
    /// know.
    pub(super) fn has(&self, value: &AttemptValue, since: u64) -> Option<bool> {
        let latest = self.latest();
        let skip = since.saturating_sub(latest.forgotten);
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let is_found = latest.kept.iter().skip(skip).any(|other| other == value);
        (is_found || since >= latest.forgotten).then_some(is_found)
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        // A panic while it was locked cannot have left it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value for which the command may acquire the lock.
pub(super) fn taker(command: &Command) -> Option<&AttemptValue> {
    match command {
        Command::Acquire { value, .. }
        | Command::Share { value, .. }
        | Command::Extend { value, .. }
        | Command::ExtendShared { value, .. }
        | Command::Steal { value, .. } => Some(value),
        Command::Raise { .. }
        | Command::Release { .. }
        // Later commands find its tombstone.
        | Command::ReleaseLease { .. }
        | Command::Enqueue { .. }
        | Command::Leave { .. }
        | Command::Inspect => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(n: usize) -> AttemptValue {
        AttemptValue::reported(format!("{n}"))
    }

    #[test]
    fn a_value_is_found_from_when_it_was_noted() {
        let released = Released::default();
        released.note(&value(1));
        let since = released.count();
        assert_eq!(released.has(&value(1), 0), Some(true));
        assert_eq!(released.has(&value(1), since), Some(false));
        released.note(&value(1));
        assert_eq!(released.has(&value(1), since), Some(true));
        assert_eq!(released.has(&value(2), since), Some(false));
    }

    #[test]
    fn what_was_forgotten_is_not_known() {
        let released = Released::default();
        for n in 0..KEPT {
            released.note(&value(n));
        }
        assert_eq!(released.has(&value(KEPT), 0), Some(false));
        released.note(&value(KEPT));
        assert_eq!(released.has(&value(0), 0), None);
        assert_eq!(released.has(&value(0), 1), Some(false));
        assert_eq!(released.has(&value(1), 0), Some(true));
        assert_eq!(released.count(), KEPT as u64 + 1);
    }
}
