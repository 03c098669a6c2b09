//! The leader by the nodes' replies. Pure.
//!
//! It must never name a leader that fewer than a majority of the nodes hold, nor report a token
//! above the leader's own.

use super::Leader;
use crate::inspect::look::{Answers, answered};
use fencepost_core::lock::Snapshot;
use fencepost_core::quorum::{Quorum, token_of_holder};
use fencepost_core::token::FencingToken;
use fencepost_core::value::AttemptValue;

/// Whether further replies cannot change the result: a majority agrees on a leader and its token,
/// or no candidate can reach a majority.
pub(super) fn is_clear(quorum: Quorum, answers: &Answers) -> bool {
    let open = answers.iter().filter(|answer| answer.is_none()).count();
    let votes = |one: &Snapshot, same_token: bool| {
        let same = answered(answers).filter(|other| {
            value(other) == value(one) && (!same_token || token(other) == token(one))
        });
        same.count()
    };
    let held = || answered(answers).filter(|lock| lock.holder.is_some());
    let agreed = held().any(|lock| votes(lock, true) >= quorum.needed());
    let none_can = held().all(|lock| votes(lock, false) + open < quorum.needed());
    agreed || (none_can && open < quorum.needed())
}

fn value(lock: &Snapshot) -> Option<&AttemptValue> {
    lock.holder.as_ref().map(|holder| &holder.value)
}

fn token(lock: &Snapshot) -> Option<FencingToken> {
    lock.holder.as_ref()?.token
}

/// The leader on a majority of the nodes, with its token above `seen`: its own, as the nodes store
/// it with the lock.
pub(super) fn leader(
    quorum: Quorum,
    answers: &Answers,
    seen: Option<FencingToken>,
) -> Option<(AttemptValue, Leader)> {
    let held = answered(answers).filter_map(|lock| Some((value(lock)?, token(lock)?)));
    let held: Vec<_> = held.collect();
    let (value, tokens) = held.iter().find_map(|(value, _)| {
        let same = held.iter().filter(|(other, _)| other == value);
        let tokens: Vec<_> = same.map(|(_, token)| *token).collect();
        (tokens.len() >= quorum.needed()).then_some((*value, tokens))
    })?;
    let leader = Leader {
        value: value.owner().as_str().to_owned(),
        token: token_of_holder(quorum, &tokens, seen)?,
    };
    Some((value.clone(), leader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeError;
    use fencepost_core::lock::Holder;

    /// For each node: who has it, and with which token. `-` none, `.` silent, `x` failed.
    fn answers(nodes: &[(char, u64)]) -> Answers {
        let answer = |(letter, own): &(char, u64)| match letter {
            '.' => None,
            'x' => Some(Err(NodeError::Loading)),
            _ => Some(Ok(Snapshot {
                holder: (*letter != '-').then(|| Holder {
                    value: AttemptValue::reported(format!("{:032x}:{letter}", *letter as u32)),
                    token: FencingToken::new(*own),
                    remaining: None,
                }),
                readers: Vec::new(),
                // A failed candidate may have raised this.
                register: FencingToken::MAX,
                waiting: 0,
            })),
        };
        nodes.iter().map(answer).collect()
    }

    fn seen_after(nodes: &[(char, u64)], last: Option<u64>) -> Option<(String, u64)> {
        let quorum = Quorum::of(nodes.len()).unwrap();
        let (_, leader) = leader(quorum, &answers(nodes), last.and_then(FencingToken::new))?;
        Some((leader.value, leader.token.get()))
    }

    fn clear(nodes: &[(char, u64)]) -> bool {
        is_clear(Quorum::of(nodes.len()).unwrap(), &answers(nodes))
    }

    #[test]
    fn the_leader_is_whom_a_majority_holds_with_the_token_that_a_majority_has() {
        let a = |token| Some(("a".to_owned(), token));
        assert_eq!(seen_after(&[('a', 7), ('a', 7), ('-', 3)], None), a(7));
        assert_eq!(seen_after(&[('a', 7), ('a', 7), ('a', 9)], None), a(7));
        assert_eq!(seen_after(&[('a', 7), ('b', 8), ('-', 3)], None), None);
        assert_eq!(seen_after(&[('a', 7), ('x', 0), ('.', 0)], None), None);
    }

    #[test]
    fn a_late_grant_never_makes_the_token_larger_than_it_is() {
        let five = [('a', 9), ('a', 7), ('a', 7), ('x', 0), ('x', 0)];
        assert_eq!(seen_after(&five, None), Some(("a".to_owned(), 7)));
        let three = [('a', 9), ('a', 7), ('x', 0)];
        assert_eq!(seen_after(&three, None), Some(("a".to_owned(), 7)));
        // Seven was another's.
        assert_eq!(seen_after(&three, Some(7)), Some(("a".to_owned(), 9)));
        assert_eq!(seen_after(&three, Some(9)), None);
    }

    #[test]
    fn one_looks_no_longer_than_needed() {
        assert!(clear(&[('a', 7), ('a', 7), ('.', 0)]));
        assert!(clear(&[('-', 7), ('-', 7), ('.', 0)]));
        assert!(clear(&[('a', 7), ('-', 7), ('x', 0)]));
        assert!(!clear(&[('a', 7), ('-', 7), ('.', 0)]));
        assert!(!clear(&[('a', 7), ('a', 9), ('.', 0)]));
        assert!(!clear(&[('-', 7), ('.', 0), ('.', 0)]));
    }

    #[test]
    fn a_client_of_another_library_leads_nobody() {
        let foreign = Ok(Snapshot {
            holder: Some(Holder {
                value: AttemptValue::reported("theirs"),
                token: None,
                remaining: None,
            }),
            readers: Vec::new(),
            register: FencingToken::MAX,
            waiting: 0,
        });
        let answers = vec![Some(foreign)];
        assert_eq!(leader(Quorum::of(1).unwrap(), &answers, None), None);
    }
}
