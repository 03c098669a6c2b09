//! What the nodes' replies mean for a latch or barrier. Pure.
//!
//! A slot that fewer than a majority hold for the same value must never count.

use std::time::Duration;

use crate::inspect::look::{Answers, answered};
use fencepost_core::lock::Holder;
use fencepost_core::quorum::Quorum;
use fencepost_core::value::AttemptValue;

/// The value for which a majority of the nodes holds a slot.
pub(super) fn holder(quorum: Quorum, answers: &Answers) -> Option<&AttemptValue> {
    let (value, votes) = likeliest(answers, |_| true)?;
    (votes >= quorum.needed()).then_some(value)
}

/// Whether a majority of the nodes has a slot sealed, for the same value.
pub(super) fn is_for_good(quorum: Quorum, answers: &Answers, longest_hold: Duration) -> bool {
    let votes = likeliest(answers, |holder| is_left(holder, longest_hold));
    votes.is_some_and(|(_, votes)| votes >= quorum.needed())
}

/// Whether a majority has answered and further replies cannot change that.
pub(super) fn is_clear(quorum: Quorum, answers: &Answers) -> bool {
    let silent = answers.iter().filter(|answer| answer.is_none()).count();
    let votes = likeliest(answers, |_| true).map_or(0, |(_, votes)| votes);
    let decided = votes >= quorum.needed() || votes + silent < quorum.needed();
    decided && is_heard(quorum, answers)
}

/// Whether enough nodes have answered to decide.
pub(super) fn is_heard(quorum: Quorum, answers: &Answers) -> bool {
    answered(answers).count() >= quorum.needed()
}

/// Whether a lock was sealed on some node: held for longer than any ordinary hold.
///
/// One node is enough. Only a holder on a majority seals it, and does so on a majority; in another
/// majority, a single node may be the only one that can tell.
pub(super) fn is_sealed(answers: &Answers, longest_hold: Duration) -> bool {
    likeliest(answers, |holder| is_left(holder, longest_hold)).is_some()
}

fn is_left(holder: &Holder, longest_hold: Duration) -> bool {
    holder.remaining.is_none_or(|left| left > longest_hold)
}

/// The value with the most nodes, and how many.
fn likeliest(answers: &Answers, which: impl Fn(&Holder) -> bool) -> Option<(&AttemptValue, usize)> {
    let holders = || answered(answers).filter_map(|lock| lock.holder.as_ref());
    let values = || holders().filter(|one| which(one)).map(|one| &one.value);
    let votes = |one: &AttemptValue| values().filter(|other| *other == one).count();
    let votes = values().map(|value| (value, votes(value)));
    votes.max_by_key(|(_, votes)| *votes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeError;
    use fencepost_core::lock::Snapshot;
    use fencepost_core::token::FencingToken;

    const SECOND: Duration = Duration::from_secs(1);

    /// One letter for each node: `-` free, `.` silent, `x` failed, any other a holder's, for a
    /// second; a capital one's for a minute.
    fn slot(nodes: &str) -> Answers {
        let answer = |letter: char| match letter {
            '.' => None,
            'x' => Some(Err(NodeError::Loading)),
            _ => Some(Ok(Snapshot {
                holder: (letter != '-').then(|| Holder {
                    value: AttemptValue::reported(letter.to_lowercase().to_string()),
                    token: None,
                    remaining: Some(match letter.is_uppercase() {
                        true => SECOND * 60,
                        false => SECOND,
                    }),
                }),
                readers: Vec::new(),
                register: FencingToken::ZERO,
                waiting: 0,
            })),
        };
        nodes.chars().map(answer).collect()
    }

    fn quorum(nodes: &str) -> Quorum {
        Quorum::of(nodes.len()).unwrap()
    }

    #[test]
    fn a_slot_counts_only_when_a_majority_holds_it_for_the_same_one() {
        for (nodes, by) in [
            ("aa-", Some("a")),
            ("aA.", Some("a")),
            ("ab-", None),
            ("a..", None),
            ("axx", None),
            ("aabb-", None),
            ("bbaba", Some("b")),
        ] {
            let answers = slot(nodes);
            let seen = holder(quorum(nodes), &answers).map(AttemptValue::as_str);
            assert_eq!(seen, by, "{nodes}");
        }
    }

    #[test]
    fn one_looks_as_long_as_an_answer_may_matter_and_no_longer() {
        for (nodes, clear) in [
            ("aa.", true),
            ("--.", true),
            ("a-.", false),
            ("a-x", true),
            ("-..", false),
            ("xx-", false),
            ("--..", false),
            ("---.", true),
        ] {
            let answers = slot(nodes);
            assert_eq!(is_clear(quorum(nodes), &answers), clear, "{nodes}");
        }
    }

    #[test]
    fn one_node_is_enough_to_tell_that_a_lock_was_left_for_good() {
        assert!(is_sealed(&slot("A-."), SECOND));
        assert!(!is_sealed(&slot("aa-"), SECOND));
        assert!(!is_sealed(&slot("x.-"), SECOND));
    }

    #[test]
    fn a_majority_has_a_count_for_good_or_it_may_come_to_nothing() {
        for (nodes, is_counted) in [
            ("AA-", true),
            ("Aa.", false),
            ("AB.", false),
            ("aaa", false),
        ] {
            let answers = slot(nodes);
            let seen = is_for_good(quorum(nodes), &answers, SECOND);
            assert_eq!(seen, is_counted, "{nodes}");
        }
    }
}
