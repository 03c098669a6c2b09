//! Releasing a lease of the lock service by its id: replies in, the outcome out. Pure.
//!
//! Each attempt of a lease has its own value, and a failed one may remain on a few nodes. So nodes
//! are counted per value: only the attempt that the client holds is on a majority.

use super::{Quorum, unexpected_reply};
use crate::lock::Reply;
use crate::outcome::{NodeError, NodeOutcome};
use crate::words::stored::Stored;
use crate::words::token::FencingToken;
use crate::words::value::AttemptValue;

/// The outcome of a release that reached a majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRelease {
    /// A majority held it under one value and released it. Its stored token; none for a reader.
    Released(Option<FencingToken>),
    /// It was released before.
    AlreadyReleased,
    /// No majority held it: it is over.
    NotHeld,
}

#[derive(Clone, Debug)]
enum Vote {
    Pending,
    Released(Vec<Stored>),
    AlreadyReleased,
    NotHeld,
    Failed(NodeError),
}

/// One release by lease id, sent to all nodes.
#[derive(Clone, Debug)]
pub struct LeaseReleaseTally {
    quorum: Quorum,
    votes: Vec<Vote>,
}

impl LeaseReleaseTally {
    /// A release whose commands were sent to all nodes.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            votes: vec![Vote::Pending; quorum.nodes()],
        }
    }

    /// Counts one node's reply and returns the outcome once decided.
    pub fn answered(
        &mut self,
        node: usize,
        answer: Result<Reply, NodeError>,
    ) -> Option<LeaseRelease> {
        self.votes[node] = match answer {
            Ok(Reply::LeaseReleased(values)) => Vote::Released(values),
            Ok(Reply::Tombstoned) => Vote::AlreadyReleased,
            Ok(Reply::NotHeld(_)) => Vote::NotHeld,
            Ok(other) => Vote::Failed(unexpected_reply(&other)),
            Err(error) => Vote::Failed(error),
        };
        self.outcome()
    }

    /// The outcome. `None` while undecided, and if too few nodes answered.
    #[must_use]
    pub fn outcome(&self) -> Option<LeaseRelease> {
        let needed = self.quorum.needed();
        let count = |is: fn(&Vote) -> bool| self.votes.iter().filter(|vote| is(vote)).count();
        let pending = count(|vote| matches!(vote, Vote::Pending));
        let failed = count(|vote| matches!(vote, Vote::Failed(_)));
        let most = self.released().max_by_key(|one| self.nodes_of(&one.value));
        let nodes = most.map_or(0, |most| self.nodes_of(&most.value));
        if let Some(most) = most.filter(|_| nodes >= needed) {
            let its = self.released().filter(|one| one.value == most.value);
            return Some(LeaseRelease::Released(
                its.filter_map(|one| one.token).max(),
            ));
        }
        let answered = self.votes.len() - pending - failed;
        if nodes + pending >= needed || answered < needed {
            return None;
        }
        match count(|vote| matches!(vote, Vote::AlreadyReleased)) {
            0 => Some(LeaseRelease::NotHeld),
            _ => Some(LeaseRelease::AlreadyReleased),
        }
    }

    fn released(&self) -> impl Iterator<Item = &Stored> {
        self.votes.iter().flat_map(|vote| match vote {
            Vote::Released(values) => values.as_slice(),
            _ => &[],
        })
    }

    fn nodes_of(&self, value: &AttemptValue) -> usize {
        self.released().filter(|one| one.value == *value).count()
    }

    /// Each node's outcome so far, for error messages.
    pub fn outcomes(&self) -> impl Iterator<Item = NodeOutcome> {
        self.votes.iter().map(|vote| match vote {
            Vote::Pending => NodeOutcome::Pending,
            Vote::Released(_) => NodeOutcome::Agreed,
            Vote::AlreadyReleased => NodeOutcome::Tombstoned,
            Vote::NotHeld => NodeOutcome::NotHeld,
            Vote::Failed(error) => NodeOutcome::Failed(error.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter for each node in turn: the value that it released, `b` released before, `n` not held,
    /// `x` failed.
    fn outcome(nodes: usize, answers: &str) -> Option<LeaseRelease> {
        let mut tally = LeaseReleaseTally::new(Quorum::of(nodes).unwrap());
        let mut last = None;
        for (node, letter) in answers.chars().enumerate() {
            let answer = match letter {
                'b' => Ok(Reply::Tombstoned),
                'n' => Ok(Reply::NotHeld(None)),
                'x' => Err(NodeError::Loading),
                value => Ok(Reply::LeaseReleased(vec![Stored {
                    value: AttemptValue::reported(value.to_string()),
                    token: FencingToken::new(node as u64),
                }])),
            };
            last = tally.answered(node, answer);
        }
        last
    }

    #[test]
    fn a_majority_under_one_value_decides_and_a_slow_minority_is_not_waited_for() {
        let token = |token| Some(LeaseRelease::Released(FencingToken::new(token)));
        assert_eq!(outcome(5, "1"), None);
        assert_eq!(outcome(5, "11"), None);
        assert_eq!(outcome(5, "111"), token(2));
        assert_eq!(outcome(5, "1xx11"), token(4));
        assert_eq!(outcome(1, "1"), token(0));
    }

    #[test]
    fn what_attempts_left_on_a_few_nodes_is_no_lease_together() {
        assert_eq!(outcome(3, "12"), None, "the third may have either");
        assert_eq!(outcome(3, "12n"), Some(LeaseRelease::NotHeld));
        assert_eq!(outcome(3, "123"), Some(LeaseRelease::NotHeld));
    }

    #[test]
    fn a_release_that_is_repeated_is_told_from_a_loss_and_both_need_a_majority() {
        assert_eq!(outcome(3, "bb"), Some(LeaseRelease::AlreadyReleased));
        assert_eq!(outcome(3, "nb"), Some(LeaseRelease::AlreadyReleased));
        assert_eq!(outcome(3, "nn"), Some(LeaseRelease::NotHeld));
        assert_eq!(outcome(3, "nxx"), None);
        assert_eq!(outcome(3, "1xx"), None);
    }
}
