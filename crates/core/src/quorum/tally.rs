//! Counting what the nodes said: the majority, the plurality and the median, once for everybody.

use std::time::Duration;

use super::{Quorum, token_of_holder};
use crate::lock::Holder;
use crate::outcome::LossReason;
use crate::words::value::AttemptValue;

/// How one node answered a question that a majority decides one way or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ballot {
    /// It did what was asked.
    Agrees,
    /// It no longer had what the question was about.
    Gone,
    /// It has not answered yet.
    Pending,
    /// It cannot say either.
    Failed,
}

/// What a majority has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet: wait for more answers.
    Open,
    /// A majority agrees.
    Agreed,
    /// A majority no longer had it.
    Gone,
    /// Neither can become a majority any more.
    NoQuorum,
}

/// The ballots so far.
#[must_use]
pub fn verdict(quorum: Quorum, ballots: impl Iterator<Item = Ballot>) -> Verdict {
    let (mut agree, mut gone, mut pending) = (0, 0, 0);
    for ballot in ballots {
        match ballot {
            Ballot::Agrees => agree += 1,
            Ballot::Gone => gone += 1,
            Ballot::Pending => pending += 1,
            Ballot::Failed => {}
        }
    }
    let needed = quorum.needed();
    if agree >= needed {
        Verdict::Agreed
    } else if gone >= needed {
        Verdict::Gone
    } else if agree.max(gone) + pending >= needed {
        Verdict::Open
    } else {
        Verdict::NoQuorum
    }
}

/// The holder on most nodes; of equals, the one of the last node. For people and for hints: fewer
/// nodes than a majority may be most of those that were heard.
pub fn plurality<'a>(holders: impl Iterator<Item = &'a Holder> + Clone) -> Option<&'a Holder> {
    let votes = |one: &&Holder| {
        let same = holders.clone().filter(|other| other.value == one.value);
        same.count()
    };
    holders.clone().max_by_key(votes)
}

/// How a lease was lost that a majority no longer has: by who has it on most nodes, or had stolen it there.
pub fn loss<'a>(
    holders: impl Iterator<Item = &'a Holder> + Clone,
    mut thieves: impl Iterator<Item = &'a AttemptValue>,
) -> LossReason {
    let by = plurality(holders).map(|holder| &holder.value);
    match by.or_else(|| thieves.next()) {
        Some(by) => LossReason::Stolen { by: by.owner() },
        None => LossReason::Expired,
    }
}

/// The holder on a majority, and for how long it is still one unless it is extended.
pub fn majority_holder<'a>(
    quorum: Quorum,
    holders: impl Iterator<Item = &'a Holder> + Clone,
) -> Option<Holder> {
    holders.clone().find_map(|one| {
        let same = holders.clone().filter(|other| other.value == one.value);
        let tokens: Vec<_> = same.clone().filter_map(|holder| holder.token).collect();
        let mut remaining: Vec<_> = same
            .map(|holder| holder.remaining.unwrap_or(Duration::MAX))
            .collect();
        // Longest first: the lock is held while the last of a majority holds it.
        remaining.sort_unstable_by(|a, b| b.cmp(a));
        let left = *remaining.get(quorum.needed() - 1)?;
        Some(Holder {
            value: one.value.clone(),
            token: token_of_holder(quorum, &tokens, None),
            remaining: (left != Duration::MAX).then_some(left),
        })
    })
}

/// What most nodes say, where each says a number: the upper median.
pub fn median(said: impl Iterator<Item = usize>) -> Option<usize> {
    let mut said: Vec<_> = said.collect();
    said.sort_unstable();
    said.get(said.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quorum(nodes: usize) -> Quorum {
        Quorum::of(nodes).unwrap()
    }

    /// One letter for each node: `y` agrees, `g` gone, `.` pending, `x` failed.
    fn decided(ballots: &str) -> Verdict {
        let ballot = |letter| match letter {
            'y' => Ballot::Agrees,
            'g' => Ballot::Gone,
            '.' => Ballot::Pending,
            _ => Ballot::Failed,
        };
        verdict(quorum(ballots.len()), ballots.chars().map(ballot))
    }

    fn holder(value: &str, seconds: Option<u64>) -> Holder {
        Holder {
            value: AttemptValue::reported(value),
            token: None,
            remaining: seconds.map(Duration::from_secs),
        }
    }

    #[test]
    fn a_majority_decides_either_way_and_nothing_less_does() {
        for (ballots, expected) in [
            ("yy.", Verdict::Agreed),
            ("gg.", Verdict::Gone),
            ("yg.", Verdict::Open),
            ("y..xx", Verdict::Open),
            ("ygx", Verdict::NoQuorum),
            ("yyxx", Verdict::NoQuorum),
            ("yyy.", Verdict::Agreed),
            ("yyggx", Verdict::NoQuorum),
        ] {
            assert_eq!(decided(ballots), expected, "{ballots}");
        }
    }

    #[test]
    fn the_plurality_may_be_less_than_a_majority() {
        let held = [holder("a", None), holder("b", None), holder("b", Some(3))];
        assert_eq!(plurality(held.iter()).unwrap().value.as_str(), "b");
        assert_eq!(majority_holder(quorum(5), held.iter()), None);
        assert_eq!(plurality([].iter()), None);
    }

    #[test]
    fn a_majority_holds_as_long_as_the_last_node_that_makes_it_one() {
        let held = [
            holder("b", Some(9)),
            holder("a", None),
            holder("b", Some(3)),
            holder("b", Some(5)),
        ];
        let found = majority_holder(quorum(3), held.iter()).unwrap();
        assert_eq!(found, holder("b", Some(5)));
        let endless = [holder("a", None), holder("a", None), holder("a", Some(1))];
        assert_eq!(
            majority_holder(quorum(3), endless.iter()),
            Some(holder("a", None))
        );
    }

    #[test]
    fn the_median_is_what_most_say() {
        assert_eq!(median([3, 0, 3].into_iter()), Some(3));
        assert_eq!(median([0, 7].into_iter()), Some(7));
        assert_eq!(median(std::iter::empty()), None);
    }
}
