//! [`Overtaken`]: the names whose register was found ahead of our proposal, so that the next one is above
//! what was seen. A hint: a proposal that is too small is raised, which takes one more round.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fencepost_core::name::LockName;
use fencepost_core::token::FencingToken;

/// How many names are remembered. Clocks catch up: then they are forgotten.
const MOST_NAMES: usize = 1024;

/// What was seen, by name.
#[derive(Default)]
pub(super) struct Overtaken {
    seen: Mutex<HashMap<LockName, FencingToken>>,
    /// There is something: nearly always there is not.
    is_any: AtomicBool,
}

impl Overtaken {
    /// A token of this name had to be raised to that.
    pub(super) fn note(&self, name: &LockName, to: FencingToken) {
        let mut seen = self.seen();
        if seen.len() >= MOST_NAMES && !seen.contains_key(name) {
            seen.clear();
        }
        let known = seen.entry(name.clone()).or_default();
        *known = to.max(*known);
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// That token, or one above what was seen of the name.
    pub(super) fn above(&self, name: &LockName, token: FencingToken) -> FencingToken {
        if !self.is_any.load(Ordering::Relaxed) {
            return token;
        }
        let mut seen = self.seen();
        match seen.get(name).copied() {
            Some(known) if known >= token => known.next().unwrap_or(known),
            Some(_) => {
                seen.remove(name);
                self.is_any.store(!seen.is_empty(), Ordering::Relaxed);
                token
            }
            None => token,
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<LockName, FencingToken>> {
        // A panic while it was locked cannot have left it half changed.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_above_what_was_seen_of_its_name_until_the_clock_has_caught_up() {
        let overtaken = Overtaken::default();
        let [job, other] = ["job", "other"].map(|name| LockName::new(name).unwrap());
        let token = |n| FencingToken::new(n).unwrap();
        assert_eq!(overtaken.above(&job, token(5)), token(5));
        overtaken.note(&job, token(9));
        overtaken.note(&job, token(7));
        assert_eq!(overtaken.above(&job, token(5)), token(10));
        assert_eq!(overtaken.above(&job, token(9)), token(10));
        assert_eq!(overtaken.above(&other, token(5)), token(5));
        assert_eq!(overtaken.above(&job, token(11)), token(11));
        assert_eq!(overtaken.above(&job, token(5)), token(5), "forgotten");
    }
}
