//! Counting the nodes' replies: majority, plurality and median, in one place.

use std::time::Duration;

use super::{Quorum, token_of_holder};
use crate::lock::Holder;
use crate::outcome::LossReason;
use crate::words::owner::Owner;
use crate::words::value::AttemptValue;

/// One node's vote on a yes-or-no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ballot {
    /// It did what was asked.
    Agrees,
    /// It no longer held the lock in question.
    Gone,
    /// No reply yet.
    Pending,
    /// It can say neither.
    Failed,
}

/// The decision of a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Undecided: wait for more replies.
    Open,
    /// A majority agrees.
    Agreed,
    /// A majority no longer held it.
    Gone,
    /// Neither side can reach a majority.
    NoQuorum,
}

/// The ballots so far.
#[must_use]
pub(crate) fn verdict(quorum: Quorum, ballots: impl Iterator<Item = Ballot>) -> Verdict {
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

/// The holder on most nodes; among equals, the one of the last node. For display and hints only:
/// most of the nodes that answered may be less than a majority.
pub(crate) fn plurality<'a>(
    holders: impl Iterator<Item = &'a Holder> + Clone,
) -> Option<&'a Holder> {
    let votes = |one: &&Holder| {
        let same = holders.clone().filter(|other| other.value == one.value);
        same.count()
    };
    holders.clone().max_by_key(votes)
}

/// What a node says that no longer holds a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Gone {
    /// This client holds the lock there, or nobody.
    NotHeld(Option<Holder>),
    /// This value stole it there, and may have released it again.
    Stolen(AttemptValue),
}

/// Why a lease that a majority no longer holds was lost: by the client that holds it on a majority, or that left word
/// that it stole it. Whoever holds it on fewer nodes may have come after it was gone.
pub(crate) fn loss<'a>(quorum: Quorum, gone: impl Iterator<Item = &'a Gone> + Clone) -> LossReason {
    let holders = gone.clone().filter_map(|gone| match gone {
        Gone::NotHeld(holder) => holder.as_ref(),
        Gone::Stolen(_) => None,
    });
    let mut thieves = gone.filter_map(|gone| match gone {
        Gone::Stolen(by) => Some(by),
        Gone::NotHeld(_) => None,
    });
    let by = majority_holder(quorum, holders).map(|holder| holder.value);
    match by.or_else(|| thieves.next().cloned()) {
        Some(by) => LossReason::Stolen { by: by.owner() },
        None => LossReason::Unknown,
    }
}

/// The holder on a majority, and how long it stays one unless extended.
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
        // Longest first: the lock is held as long as the last of a majority holds it.
        remaining.sort_unstable_by(|a, b| b.cmp(a));
        let left = *remaining.get(quorum.needed() - 1)?;
        Some(Holder {
            value: one.value.clone(),
            token: token_of_holder(quorum, &tokens, None),
            remaining: (left != Duration::MAX).then_some(left),
        })
    })
}

/// Who holds a lock, by the nodes' replies: the one decision behind every holder that is displayed.
///
/// A node that did not answer may hold it for any client. So there is no holder without a majority,
/// and no lock is free if the silent nodes could complete a majority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Possession {
    /// This client holds it on a majority.
    Held(Holder),
    /// No client holds it on enough nodes to matter.
    Free,
    /// These clients hold it on some nodes, in node order, none on a majority.
    Split(Vec<AttemptValue>),
    /// Too few nodes answered. These clients hold it on some nodes.
    Unknown(Vec<AttemptValue>),
}

impl Possession {
    /// From the nodes' replies: the holder there, if any; `None` for nodes that did not answer, and for those
    /// without a holder that may have forgotten one.
    pub fn of<'a>(
        quorum: Quorum,
        answers: impl Iterator<Item = Option<Option<&'a Holder>>> + Clone,
    ) -> Self {
        let answered = answers.clone().flatten().count();
        let holders = answers.flatten().flatten();
        if let Some(holder) = majority_holder(quorum, holders.clone()) {
            return Self::Held(holder);
        }
        let silent = quorum.nodes().saturating_sub(answered);
        let most = plurality(holders.clone()).map_or(0, |most| {
            let same = holders.clone().filter(|one| one.value == most.value);
            same.count()
        });
        let between = parties(holders);
        if answered < quorum.needed() || most + silent >= quorum.needed() {
            Self::Unknown(between)
        } else if between.is_empty() {
            Self::Free
        } else {
            Self::Split(between)
        }
    }

    /// Whether a client holds it on a majority, if known.
    #[must_use]
    pub const fn is_held(&self) -> Option<bool> {
        match self {
            Self::Held(_) => Some(true),
            Self::Free | Self::Split(_) => Some(false),
            Self::Unknown(_) => None,
        }
    }

    /// The holder on a majority.
    #[must_use]
    pub const fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Held(holder) => Some(holder),
            _ => None,
        }
    }

    /// If no client is known to hold it on a majority: those that hold it on some nodes.
    #[must_use]
    pub fn parties(&self) -> Vec<Owner> {
        let parties = match self {
            Self::Split(parties) | Self::Unknown(parties) => parties.as_slice(),
            Self::Held(_) | Self::Free => &[],
        };
        parties.iter().map(AttemptValue::owner).collect()
    }
}

/// The clients that hold the lock on some node, each once, in node order.
pub(super) fn parties<'a>(holders: impl Iterator<Item = &'a Holder>) -> Vec<AttemptValue> {
    let mut parties: Vec<AttemptValue> = Vec::new();
    for holder in holders {
        if !parties.contains(&holder.value) {
            parties.push(holder.value.clone());
        }
    }
    parties
}

/// The upper median of the nodes' numbers.
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

    /// One letter for each node: who has the lock there; `.` nobody, `x` no answer.
    fn possession(nodes: &str) -> Possession {
        let holders: Vec<_> = nodes
            .chars()
            .map(|letter| match letter {
                'x' => None,
                '.' => Some(None),
                letter => Some(Some(holder(&letter.to_string(), None))),
            })
            .collect();
        let answers = holders.iter().map(|it| it.as_ref().map(Option::as_ref));
        Possession::of(quorum(nodes.len()), answers)
    }

    #[test]
    fn nobody_holds_a_lock_without_a_majority_and_silent_nodes_may_complete_one() {
        let values = |text: &str| -> Vec<_> {
            let letters = text.chars().map(|letter| letter.to_string());
            letters.map(AttemptValue::reported).collect()
        };
        let split = |text| Possession::Split(values(text));
        let unknown = |text| Possession::Unknown(values(text));
        let held = |text| Possession::Held(holder(text, None));
        for (nodes, expected) in [
            ("a", held("a")),
            (".", Possession::Free),
            ("x", unknown("")),
            ("aab", held("a")),
            ("aax", held("a")),
            ("...", Possession::Free),
            ("..x", Possession::Free),
            (".xx", unknown("")),
            ("ab.", split("ab")),
            ("abc", split("abc")),
            ("a..", split("a")),
            // Either may have it on the third, too.
            ("abx", unknown("ab")),
            ("a.x", unknown("a")),
            ("aabbx", unknown("ab")),
            ("aabb.", split("ab")),
            ("ab.xc", split("abc")),
            // Half of an even number is no majority, and nobody can be served either.
            ("..xx", unknown("")),
        ] {
            assert_eq!(possession(nodes), expected, "{nodes}");
        }
        let names = |nodes| -> Vec<String> {
            let parties = possession(nodes).parties();
            parties.iter().map(ToString::to_string).collect()
        };
        assert_eq!(names("ba."), ["b", "a"], "in the order of the nodes");
        assert_eq!((names("aab"), names("...")), (vec![], vec![]));
    }

    #[test]
    fn the_median_is_what_most_say() {
        assert_eq!(median([3, 0, 3].into_iter()), Some(3));
        assert_eq!(median([0, 7].into_iter()), Some(7));
        assert_eq!(median(std::iter::empty()), None);
    }
}
