//! A resource that keeps a set under the lock, and refuses tokens older than the newest it has
//! seen, loses nothing that it acknowledged.
//!
//! Whoever holds the lock reads the whole set, adds an item, and writes the set back, each with its
//! token. Two holders at a time, or two with one token, make one of them overwrite the other's item.

use std::collections::{BTreeMap, BTreeSet};

use crate::event::{Event, Step, What};
use crate::history::History;
use crate::violation::Violation;

const CHECKER: &str = "resource";

/// All items that were acknowledged and are not there in the end, or that are there without having
/// been acknowledged or tried, and all acknowledgements of a token older than one before.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut written: BTreeMap<&str, Vec<(&Event, u64, u64)>> = BTreeMap::new();
    let mut tried: BTreeSet<(&str, u64)> = BTreeSet::new();
    for event in history.events() {
        match &event.what {
            What::Lease {
                of,
                step:
                    Step::Wrote {
                        item,
                        token,
                        accepted,
                    },
            } => {
                tried.insert((&of.lock, *item));
                if *accepted {
                    let accepted = written.entry(&of.lock).or_default();
                    accepted.push((event, *item, *token));
                }
            }
            What::Found { lock, items } => {
                let there: BTreeSet<u64> = items.iter().copied().collect();
                let accepted = written.get(lock.as_str());
                for (wrote, item, _) in accepted.into_iter().flatten() {
                    if !there.contains(item) {
                        let what = format!("item {item} of {lock:?} was acknowledged, and is gone");
                        let events = vec![(*wrote).clone(), event.clone()];
                        found.push(Violation::new(CHECKER, what, events));
                    }
                }
                for item in there {
                    if !tried.contains(&(lock, item)) {
                        let what = format!("item {item} of {lock:?} was never written");
                        found.push(Violation::new(CHECKER, what, vec![event.clone()]));
                    }
                }
            }
            _ => {}
        }
    }
    for (lock, accepted) in written {
        for pair in accepted.windows(2) {
            let ((earlier, _, before), (later, _, after)) = (&pair[0], &pair[1]);
            if after < before {
                let what = format!("{lock:?} took token {after} after token {before}");
                let events = vec![(*earlier).clone(), (*later).clone()];
                found.push(Violation::new(CHECKER, what, events));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    #[test]
    fn what_was_acknowledged_and_is_there_is_fine() {
        let sample = Sample::new()
            .wrote(1, 10, 100, 7, true)
            .wrote(2, 20, 101, 8, true)
            .wrote(1, 30, 102, 7, false);
        assert_eq!(check(&sample.found(40, &[100, 101]).history()), []);
    }

    #[test]
    fn what_was_written_without_an_acknowledgement_may_be_there() {
        let sample = Sample::new().wrote(1, 10, 100, 7, false);
        assert_eq!(check(&sample.found(40, &[100]).history()), []);
    }

    #[test]
    fn a_lost_item_is_found() {
        let sample = Sample::new().wrote(1, 10, 100, 7, true);
        let found = check(
            &sample
                .wrote(2, 20, 101, 8, true)
                .found(40, &[101])
                .history(),
        );
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("item 100"), "{}", found[0]);
    }

    #[test]
    fn an_old_token_that_was_taken_is_found() {
        let sample = Sample::new().wrote(2, 10, 100, 8, true);
        let found = check(&sample.wrote(1, 20, 101, 7, true).history());
        assert_eq!(found.len(), 1);
        assert!(
            found[0].what.contains("token 7 after token 8"),
            "{}",
            found[0]
        );
    }

    #[test]
    fn an_item_from_nowhere_is_found() {
        assert_eq!(check(&Sample::new().found(1, &[5]).history()).len(), 1);
    }
}
