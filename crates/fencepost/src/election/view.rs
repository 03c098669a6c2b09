//! Who leads, by what the nodes say: pure.
//!
//! It must never name somebody whom fewer than a majority of the nodes hold, nor give a leader a
//! token above its own.

use super::Leader;
use crate::inspect::look::{Answers, heard};
use fencepost_core::lock::Snapshot;
use fencepost_core::quorum::Quorum;
use fencepost_core::token::FencingToken;
use fencepost_core::value::AttemptValue;

/// Whether no further answer changes what follows: a majority agrees on a leader and its token, or
/// no majority for anybody is left.
pub(super) fn is_clear(quorum: Quorum, answers: &Answers) -> bool {
    let open = answers.iter().filter(|answer| answer.is_none()).count();
    let votes = |one: &Snapshot, same_counter: bool| {
        let same = heard(answers).filter(|other| {
            value(other) == value(one) && (!same_counter || other.counter == one.counter)
        });
        same.count()
    };
    let held = || heard(answers).filter(|lock| lock.holder.is_some());
    let agreed = held().any(|lock| votes(lock, true) >= quorum.needed());
    let nobody = held().all(|lock| votes(lock, false) + open < quorum.needed());
    agreed || (nobody && open < quorum.needed())
}

fn value(lock: &Snapshot) -> Option<&AttemptValue> {
    lock.holder.as_ref().map(|holder| &holder.value)
}

/// Who leads on a majority of the nodes, and with which token above `seen`.
///
/// A token is certified when a majority reported exactly it under the leader's value. Where some of
/// these nodes are away now, and one that granted late has another counter, more than one number may
/// be it. Then it is the smallest of them: the token itself is one of them, and every renewal lifts
/// those that are below it.
pub(super) fn leader(
    quorum: Quorum,
    answers: &Answers,
    seen: Option<FencingToken>,
) -> Option<(AttemptValue, Leader)> {
    let held = heard(answers).filter_map(|lock| Some((value(lock)?, lock.counter)));
    let held: Vec<_> = held.filter(|(value, _)| value.is_ours()).collect();
    let (value, counters) = held.iter().find_map(|(value, _)| {
        let same = held.iter().filter(|(other, _)| other == value);
        let counters: Vec<_> = same.map(|(_, counter)| *counter).collect();
        (counters.len() >= quorum.needed()).then_some((*value, counters))
    })?;
    let elsewhere = quorum.nodes() - counters.len();
    let may_be_it = |token: &FencingToken| {
        let same = counters.iter().filter(|counter| *counter == token).count();
        same + elsewhere >= quorum.needed() && seen.is_none_or(|seen| *token > seen)
    };
    let token = counters.iter().copied().filter(may_be_it).min()?;
    let leader = Leader {
        value: value.owner().as_str().to_owned(),
        token,
    };
    Some((value.clone(), leader))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeError;
    use fencepost_core::lock::Holder;

    /// For each node: who has it, and its counter. `-` nobody, `.` silent, `x` failed.
    fn answers(nodes: &[(char, u64)]) -> Answers {
        let answer = |(letter, counter): &(char, u64)| match letter {
            '.' => None,
            'x' => Some(Err(NodeError::Loading)),
            _ => Some(Ok(Snapshot {
                holder: (*letter != '-').then(|| Holder {
                    value: AttemptValue::reported(format!("{:032x}:{letter}", *letter as u32)),
                    remaining: None,
                }),
                readers: Vec::new(),
                counter: token(*counter),
                waiting: 0,
            })),
        };
        nodes.iter().map(answer).collect()
    }

    fn token(number: u64) -> FencingToken {
        FencingToken::new(number).unwrap()
    }

    fn seen_after(nodes: &[(char, u64)], last: Option<u64>) -> Option<(String, u64)> {
        let quorum = Quorum::of(nodes.len()).unwrap();
        let (_, leader) = leader(quorum, &answers(nodes), last.map(token))?;
        Some((leader.value, leader.token.get()))
    }

    fn clear(nodes: &[(char, u64)]) -> bool {
        is_clear(Quorum::of(nodes.len()).unwrap(), &answers(nodes))
    }

    #[test]
    fn the_leader_is_whom_a_majority_holds_with_the_counter_that_a_majority_has() {
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
                remaining: None,
            }),
            readers: Vec::new(),
            counter: token(7),
            waiting: 0,
        });
        let answers = vec![Some(foreign)];
        assert_eq!(leader(Quorum::of(1).unwrap(), &answers, None), None);
    }
}
