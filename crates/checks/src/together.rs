//! Locks that are asked for together are granted together, or not at all.

use std::collections::BTreeMap;

use crate::event::{ClientId, LeaseId};
use crate::history::{History, Turn};
use crate::violation::Violation;

/// All requests of one client under one number that were granted some of their locks, and not the
/// others, or not at the same moment.
#[must_use]
pub fn check(history: &History) -> Vec<Violation> {
    let mut requests: BTreeMap<(ClientId, LeaseId), Vec<&Turn>> = BTreeMap::new();
    for turn in history.turns() {
        let request = (turn.of.client, turn.of.lease);
        requests.entry(request).or_default().push(turn);
    }
    let mut found = Vec::new();
    for turns in requests.into_values() {
        if turns.iter().all(|turn| turn.acquired == turns[0].acquired) {
            continue;
        }
        let granted = turns.iter().filter(|turn| turn.acquired.is_some()).count();
        let what = format!("{granted} of {} locks were granted together", turns.len());
        let events = turns.iter().flat_map(|turn| turn.shown_by());
        found.push(Violation::new("together", what, events.collect()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, LeaseRef, Step, Time};

    fn event(lock: &str, at: u64, step: Step) -> Event {
        let of = LeaseRef {
            client: ClientId(1),
            lock: lock.into(),
            lease: LeaseId(1),
        };
        Event::lease(Time(at), &of, step)
    }

    fn found(grants: &[(&str, u64)]) -> Vec<Violation> {
        let mut events = vec![event("a", 1, Step::Asked), event("b", 1, Step::Asked)];
        events.extend(grants.iter().map(|(lock, at)| {
            let (token, valid_until) = (7, Time(100));
            event(lock, *at, Step::Acquired { token, valid_until })
        }));
        check(&History::new(events))
    }

    #[test]
    fn all_or_none_is_fine() {
        assert_eq!(found(&[("a", 10), ("b", 10)]), []);
        assert_eq!(found(&[]), []);
    }

    #[test]
    fn some_of_them_or_one_after_the_other_is_found() {
        assert_eq!(found(&[("a", 10)]).len(), 1);
        let later = found(&[("a", 10), ("b", 11)]);
        assert_eq!(later.len(), 1);
        assert!(later[0].to_string().contains("2 of 2"), "{}", later[0]);
    }
}
