//! What a repeated acquire of the lock service makes of what its lease holds already: what the nodes say in, what
//! follows out. Pure.
//!
//! A lease has numbered attempts, and the last one counts: it takes over from smaller ones, and gives way to the same
//! number, which is a copy of it, and to larger ones. *Before* it asks for a lock, and when it is refused, it looks for
//! something to take over ([`Repeated::before`]). Where several can be granted side by side, which is true of slots and of
//! readers, it looks *again* once it is granted ([`Repeated::beside`]): of two that were granted, the one that
//! looks last sees the other.

use std::collections::HashSet;

use crate::words::lease_id::LeaseAttempt;
use crate::words::value::AttemptValue;

/// What one node says that the lease holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseHold {
    /// Which of the names that were looked at.
    pub place: usize,
    /// Under which value.
    pub value: AttemptValue,
    /// For which attempt.
    pub of: LeaseAttempt,
}

/// What of its lease is not its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherAttempts {
    /// They hold nothing.
    None,
    /// Smaller ones hold these places under these values: what is held on most nodes comes first, if any of them will do.
    Earlier(Vec<(usize, Vec<AttemptValue>)>),
    /// The same attempt, or a larger one, holds something under these values.
    NotEarlier(HashSet<AttemptValue>),
}

/// What a lease holds beside what was granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// For smaller attempts: it is to be released, by exactly these values.
    pub earlier: HashSet<(usize, AttemptValue)>,
    /// For the same attempt, or a larger one: what was granted gives way to it.
    pub others: HashSet<AttemptValue>,
}

/// An attempt that looks for the others of its lease.
#[derive(Clone, Copy, Debug)]
pub struct Repeated {
    /// Its number.
    pub attempt: u32,
    /// Whether one of the places is enough: they are slots.
    pub any_place: bool,
    /// Whether it is a reader. A reader is not taken over: its later attempt is granted beside it, and releases it.
    pub shared: bool,
    /// How many names there are.
    pub places: usize,
}

impl Repeated {
    /// What follows before it asks, and when it is refused.
    #[must_use]
    pub fn before(&self, holds: &[LeaseHold]) -> OtherAttempts {
        let (mut earlier, mut others) = (Vec::new(), HashSet::new());
        for place in 0..self.places {
            let (mut values, mut nodes) = (Vec::new(), 0);
            for hold in holds.iter().filter(|hold| hold.place == place) {
                nodes += 1;
                match hold.of.attempt < self.attempt {
                    true if self.shared || values.contains(&hold.value) => {}
                    true => values.push(hold.value.clone()),
                    false => drop(others.insert(hold.value.clone())),
                }
            }
            if !values.is_empty() {
                earlier.push((nodes, (place, values)));
            }
        }
        if self.any_place {
            // Of several slots the one that was granted first, and not what is left of a failed try.
            earlier.sort_by_key(|(nodes, _)| std::cmp::Reverse(*nodes));
        }
        let earlier: Vec<_> = earlier.into_iter().map(|(_, held)| held).collect();
        // All or none: where only some are held under earlier attempts, the others are waited for.
        let is_whole = self.any_place || earlier.len() == self.places;
        match (others.is_empty(), earlier.is_empty()) {
            (false, _) => OtherAttempts::NotEarlier(others),
            (true, false) if is_whole => OtherAttempts::Earlier(earlier),
            (true, _) => OtherAttempts::None,
        }
    }

    /// What follows once it was granted what it holds under `own`.
    #[must_use]
    pub fn beside(&self, holds: &[LeaseHold], own: impl Fn(&AttemptValue) -> bool) -> Beside {
        let mut beside = Beside::default();
        for hold in holds.iter().filter(|hold| !own(&hold.value)) {
            match hold.of.attempt < self.attempt {
                true => drop(beside.earlier.insert((hold.place, hold.value.clone()))),
                false => drop(beside.others.insert(hold.value.clone())),
            }
        }
        beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::lease_id::LeaseId;
    use crate::words::owner::Owner;

    fn hold(place: usize, attempt: u32, random: u128) -> LeaseHold {
        let of = LeaseAttempt {
            lease: LeaseId::new(1),
            attempt,
            max_hold: None,
        };
        let value = AttemptValue::leased(random, of, &Owner::new("x").expect("a label"));
        LeaseHold { place, value, of }
    }

    fn second(places: usize) -> Repeated {
        Repeated {
            attempt: 2,
            any_place: true,
            shared: false,
            places,
        }
    }

    #[test]
    fn a_repeat_takes_over_the_slot_that_most_nodes_have_for_an_earlier_attempt() {
        let (rest, slot) = (hold(0, 1, 7), hold(1, 1, 8));
        let holds = [rest.clone(), slot.clone(), slot.clone()];
        let expected = vec![(1, vec![slot.value]), (0, vec![rest.value])];
        assert_eq!(second(2).before(&holds), OtherAttempts::Earlier(expected));
        assert_eq!(second(2).before(&[]), OtherAttempts::None);
    }

    #[test]
    fn a_repeat_gives_way_to_its_own_number_and_to_larger_ones() {
        for attempt in [2, 3] {
            let other = hold(0, attempt, 9);
            let holds = [hold(1, 1, 8), other.clone()];
            let others = HashSet::from([other.value]);
            assert_eq!(
                second(2).before(&holds),
                OtherAttempts::NotEarlier(others.clone())
            );
            let beside = second(2).beside(&holds, |_| false);
            assert_eq!(beside.others, others);
            assert_eq!(beside.earlier.len(), 1);
        }
        let own = hold(0, 2, 9);
        let beside = second(2).beside(std::slice::from_ref(&own), |value| *value == own.value);
        assert_eq!(beside, Beside::default());
    }

    #[test]
    fn several_names_are_taken_over_together_or_waited_for() {
        let all = Repeated {
            any_place: false,
            ..second(2)
        };
        assert_eq!(all.before(&[hold(1, 1, 8)]), OtherAttempts::None);
        let both = [hold(0, 1, 7), hold(1, 1, 8)];
        assert!(matches!(all.before(&both), OtherAttempts::Earlier(held) if held.len() == 2));
        let reader = Repeated {
            shared: true,
            ..second(1)
        };
        assert_eq!(reader.before(&[hold(0, 1, 7)]), OtherAttempts::None);
    }
}
