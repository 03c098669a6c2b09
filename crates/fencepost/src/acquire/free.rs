//! What a look at all slots means for one who wants any of them: pure.
//!
//! A slot that a majority of the nodes could still grant must never be left out.

use std::time::Duration;

use crate::error::{Error, HolderStatus};
use crate::inspect::look::{Answers, heard};
use fencepost_core::lock::{Holder, Snapshot};
use fencepost_core::name::LockName;
use fencepost_core::quorum::Quorum;

/// Whether so many nodes have answered that there is something to say.
pub(super) fn is_enough(quorum: Quorum, answers: &Answers) -> bool {
    heard(answers).count() >= quorum.needed()
}

/// The slots that may be had, beginning with that number, the most promising first. A caller that
/// must not overtake leaves those alone for which others wait.
pub(super) fn promising(
    quorum: Quorum,
    slots: &[Answers],
    begin: usize,
    passes_nobody: bool,
) -> Vec<usize> {
    let taken = |lock: &&Snapshot| lock.holder.is_some() || (passes_nobody && lock.waiting > 0);
    let refusals = |slot: usize| heard(&slots[slot]).filter(taken).count();
    let rotated = (0..slots.len()).map(|n| (begin + n) % slots.len());
    let most = quorum.nodes() - quorum.needed();
    let mut promising: Vec<_> = rotated.filter(|slot| refusals(*slot) <= most).collect();
    promising.sort_by_key(|slot| refusals(*slot));
    promising
}

/// That all are taken: by the one whose time ends first. `None` if none is taken.
pub(super) fn all_taken(names: &[LockName], slots: &[Answers]) -> Option<Error> {
    let holders = names.iter().zip(slots).filter_map(|(name, answers)| {
        let holder = likeliest_holder(answers)?;
        Some((name, holder))
    });
    let left = |holder: &Holder| holder.remaining.unwrap_or(Duration::MAX);
    let (name, first) = holders.min_by_key(|(_, holder)| left(holder))?;
    Some(Error::held(name.clone(), HolderStatus::of(first)))
}

/// Who holds it on most nodes.
fn likeliest_holder(answers: &Answers) -> Option<&Holder> {
    let holders = || heard(answers).filter_map(|lock| lock.holder.as_ref());
    let votes = |one: &&Holder| holders().filter(|other| other.value == one.value).count();
    holders().max_by_key(votes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeError;
    use fencepost_core::token::FencingToken;
    use fencepost_core::value::AttemptValue;

    /// One letter for each node: `-` free, `w` free with a waiter, `.` silent, `x` failed,
    /// any other a holder's.
    fn slot(nodes: &str) -> Answers {
        let answer = |letter| match letter {
            '.' => None,
            'x' => Some(Err(NodeError::Loading)),
            _ => Some(Ok(Snapshot {
                holder: (!"-w".contains(letter)).then(|| Holder {
                    value: AttemptValue::reported(letter.to_string()),
                    token: None,
                    remaining: Some(Duration::from_millis(letter as u64)),
                }),
                readers: Vec::new(),
                counter: FencingToken::ZERO,
                waiting: usize::from(letter == 'w'),
            })),
        };
        nodes.chars().map(answer).collect()
    }

    fn found(slots: &[&str], begin: usize, passes_nobody: bool) -> Vec<usize> {
        let quorum = Quorum::of(slots[0].len()).unwrap();
        let slots: Vec<_> = slots.iter().map(|nodes| slot(nodes)).collect();
        promising(quorum, &slots, begin, passes_nobody)
    }

    #[test]
    fn free_slots_are_found_from_where_one_begins() {
        assert_eq!(found(&["---", "aaa", "---"], 0, false), [0, 2]);
        assert_eq!(found(&["---", "aaa", "---"], 1, false), [2, 0]);
        assert_eq!(found(&["aaa", "bbb"], 0, false), Vec::<usize>::new());
    }

    #[test]
    fn a_slot_that_a_majority_may_grant_is_not_left_out_and_comes_last() {
        assert_eq!(found(&["aa---", "--...", "aaa--"], 0, false), [1, 0]);
        assert_eq!(found(&["a-x", "ab-"], 0, false), [0]);
    }

    #[test]
    fn a_caller_that_must_not_overtake_leaves_slots_alone_that_others_wait_for() {
        assert_eq!(found(&["www", "-w-", "---"], 0, true), [2, 1]);
        assert_eq!(found(&["www", "-w-", "---"], 0, false), [0, 1, 2]);
    }

    #[test]
    fn the_refusal_names_the_one_whose_time_ends_first() {
        let names: Vec<_> = ["one", "two"].map(|n| LockName::new(n).unwrap()).into();
        let refusal = |slots: [&str; 2]| all_taken(&names, &slots.map(slot));
        let error = refusal(["bbb", "aac"]).unwrap().to_string();
        assert!(error.contains("\"two\" is held by a"), "{error}");
        assert_eq!(refusal(["---", "..x"]), None);
    }

    #[test]
    fn a_majority_of_answers_is_enough() {
        let quorum = Quorum::of(3).unwrap();
        assert!(is_enough(quorum, &slot("-a.")));
        assert!(!is_enough(quorum, &slot("-x.")));
    }
}
