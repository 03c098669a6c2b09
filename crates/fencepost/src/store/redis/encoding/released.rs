//! [`Released`]: the values whose release was sent on a connection, as far back as it matters.
//!
//! A server that does not know a script says so, and the command is sent again. By then its release
//! may have been sent, and a command that arrives after its own release must never acquire the
//! lock: nothing would release it.

use std::sync::atomic::{AtomicU64, Ordering};

use fencepost_core::lock::Command;
use fencepost_core::value::AttemptValue;

/// How many are kept.
const KEPT: usize = 1024;

/// The releases that were sent, in order. Each command asks how many there have been, and nearly none which: so nothing
/// is locked here, and of each value only a fingerprint is kept. Two values of one fingerprint cost an attempt that is
/// given up.
pub(crate) struct Released {
    /// How many there have been.
    count: AtomicU64,
    /// The fingerprints of the latest, each where its number says.
    latest: Box<[AtomicU64]>,
}

impl Default for Released {
    fn default() -> Self {
        Self {
            count: AtomicU64::new(0),
            latest: (0..KEPT).map(|_| AtomicU64::new(0)).collect(),
        }
    }
}

impl Released {
    /// Records that a release of this value is about to be sent.
    pub(crate) fn note(&self, value: &AttemptValue) {
        let number = self.count.fetch_add(1, Ordering::SeqCst);
        self.at(number).store(fingerprint(value), Ordering::SeqCst);
    }

    /// How many there have been.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether this value was released since that count. `None` when too many have followed to
    /// know.
    pub(crate) fn has(&self, value: &AttemptValue, since: u64) -> Option<bool> {
        let (wanted, count) = (fingerprint(value), self.count());
        let first = since.max(count.saturating_sub(KEPT as u64));
        let is_found =
            (first..count).any(|number| self.at(number).load(Ordering::SeqCst) == wanted);
        // Others may have taken their places meanwhile.
        let all_were_kept = self.count().saturating_sub(since) <= KEPT as u64;
        (is_found || all_were_kept).then_some(is_found)
    }

    fn at(&self, number: u64) -> &AtomicU64 {
        &self.latest[number as usize % KEPT]
    }
}

/// Of its random part (FNV-1a).
fn fingerprint(value: &AttemptValue) -> u64 {
    let random = value.as_str().bytes().take(32);
    random.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The value for which the command may acquire the lock.
pub(crate) fn taker(command: &Command) -> Option<&AttemptValue> {
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
