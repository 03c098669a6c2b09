//! What a look at all slots means for one who wants any of them: pure.
//!
//! A slot that a majority of the nodes could still grant must never be left out.

use std::time::Duration;

use crate::error::{HolderStatus, NodeError};
use crate::inspect::look::{Answers, answered};
use fencepost_core::lock::Holder;
use fencepost_core::name::LockName;
use fencepost_core::quorum::Quorum;
use fencepost_core::quorum::tally::majority_holder;

/// Whether so many nodes have answered that there is something to say.
pub(super) fn is_enough<T>(quorum: Quorum, answers: &[Option<Result<T, NodeError>>]) -> bool {
    answers.iter().flatten().flatten().count() >= quorum.needed()
}

/// The slots that may be had, of so many, beginning with that number, the most promising first.
pub(super) fn promising(
    quorum: Quorum,
    nodes: &[Option<Result<Vec<bool>, NodeError>>],
    slots: usize,
    begin: usize,
) -> Vec<usize> {
    let heard = || nodes.iter().flatten().flatten();
    let refusals = |slot: usize| {
        let is_held = |held: &&Vec<bool>| held.get(slot).copied().unwrap_or(false);
        heard().filter(is_held).count()
    };
    let rotated = (0..slots).map(|n| (begin + n) % slots);
    let most = quorum.nodes() - quorum.needed();
    let mut promising: Vec<_> = rotated
        .map(|slot| (refusals(slot), slot))
        .filter(|(refusals, _)| *refusals <= most)
        .collect();
    promising.sort_by_key(|(refusals, _)| *refusals);
    promising.into_iter().map(|(_, slot)| slot).collect()
}

/// Of all that are held on a majority of the nodes, the one whose holder's time ends first.
pub(super) fn soonest(
    quorum: Quorum,
    names: &[LockName],
    slots: &[Answers],
) -> Option<(LockName, HolderStatus)> {
    let holders = names.iter().zip(slots).filter_map(|(name, answers)| {
        let holders = answered(answers).filter_map(|lock| lock.holder.as_ref());
        Some((name, majority_holder(quorum, holders)?))
    });
    let left = |holder: &Holder| holder.remaining.unwrap_or(Duration::MAX);
    let (name, first) = holders.min_by_key(|(_, holder)| left(holder))?;
    Some((name.clone(), HolderStatus::of(&first)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencepost_core::lock::Snapshot;
    use fencepost_core::token::FencingToken;
    use fencepost_core::value::AttemptValue;

    /// One letter for each node: `-` free, `.` silent, `x` failed, any other a holder's.
    fn slot(nodes: &str) -> Answers {
        let answer = |letter| match letter {
            '.' => None,
            'x' => Some(Err(NodeError::Loading)),
            _ => Some(Ok(Snapshot {
                holder: (letter != '-').then(|| Holder {
                    value: AttemptValue::reported(letter.to_string()),
                    token: None,
                    remaining: Some(Duration::from_millis(letter as u64)),
                }),
                readers: Vec::new(),
                register: FencingToken::ZERO,
                waiting: 0,
            })),
        };
        nodes.chars().map(answer).collect()
    }

    /// One word for each node: `-` for a free slot, `x` for one that is held; no word of a silent one.
    fn found(nodes: &[&str], begin: usize) -> Vec<usize> {
        let quorum = Quorum::of(nodes.len()).unwrap();
        let held = |node: &&str| node.chars().map(|slot| slot == 'x').collect::<Vec<_>>();
        let slots = nodes[0].len();
        let answer = |node: &&str| (!node.is_empty()).then(|| Ok(held(node)));
        let nodes: Vec<_> = nodes.iter().map(answer).collect();
        promising(quorum, &nodes, slots, begin)
    }

    #[test]
    fn free_slots_are_found_from_where_one_begins() {
        assert_eq!(found(&["-x-", "-x-", "-x-"], 0), [0, 2]);
        assert_eq!(found(&["-x-", "-x-", "-x-"], 1), [2, 0]);
        assert_eq!(found(&["xx", "xx", "xx"], 0), Vec::<usize>::new());
    }

    #[test]
    fn a_slot_that_a_majority_may_grant_is_not_left_out_and_comes_last() {
        let nodes = ["x-x", "x-x", "--x", "", ""];
        assert_eq!(found(&nodes, 0), [1, 0]);
        // A node that says less than it was asked for takes nothing away.
        assert_eq!(found(&["xx", "-", ""], 0), [0, 1]);
    }

    #[test]
    fn the_holder_whose_time_ends_first_is_named() {
        let names: Vec<_> = ["one", "two"].map(|n| LockName::new(n).unwrap()).into();
        let quorum = Quorum::of(3).unwrap();
        let first = |slots: [&str; 2]| soonest(quorum, &names, &slots.map(slot));
        let (name, holder) = first(["bbb", "aac"]).unwrap();
        assert_eq!((name.as_str(), holder.owner.as_str()), ("two", "a"));
        assert_eq!(first(["---", "..x"]), None);
        assert_eq!(first(["a-b", "a-."]), None, "nobody has either");
    }

    #[test]
    fn a_majority_of_answers_is_enough() {
        let quorum = Quorum::of(3).unwrap();
        assert!(is_enough(quorum, &slot("-a.")));
        assert!(!is_enough(quorum, &slot("-x.")));
    }
}
