//! One round of extending a lease: replies in, the next step out. Pure.
//!
//! A node that had forgotten the lock and acquired it again is not a vote: another client may have
//! held it in between. Where every loss of data leads to a quarantine, the model check finds no
//! harm in counting it; a flushed or evicted key leads to none.

use super::tally::{self, Ballot, Gone, Verdict, verdict};
use super::{NodeSet, Quorum, reordered, unexpected_reply};
use crate::lock::Reply;
use crate::outcome::{LossReason, NodeError, NodeOutcome};

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtendStep {
    /// Undecided: wait for more replies.
    Wait,
    /// A majority holds the lease for another TTL.
    Extended,
    /// A majority no longer held it.
    Lost(LossReason),
    /// Too few nodes answered. The lease keeps its remaining validity.
    NoQuorum,
}

#[derive(Clone, Debug, Hash)]
enum Vote {
    Pending,
    Extended,
    Repaired,
    Gone(Gone),
    Failed(NodeError),
}

/// One round of extending.
#[derive(Clone, Debug, Hash)]
pub struct ExtendTally {
    quorum: Quorum,
    votes: Vec<Vote>,
}

impl ExtendTally {
    /// A round whose commands were sent to all nodes.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            votes: vec![Vote::Pending; quorum.nodes()],
        }
    }

    /// Counts one node's reply and returns the next step.
    pub fn answered(&mut self, node: usize, answer: Result<Reply, NodeError>) -> ExtendStep {
        self.votes[node] = match answer {
            Ok(Reply::Extended | Reply::ExtendedFor(_)) => Vote::Extended,
            Ok(Reply::Repaired) => Vote::Repaired,
            Ok(Reply::NotHeld(by)) => Vote::Gone(Gone::NotHeld(by)),
            Ok(Reply::Stolen(by)) => Vote::Gone(Gone::Stolen(by)),
            Ok(other) => Vote::Failed(unexpected_reply(&other)),
            Err(error) => Vote::Failed(error),
        };
        self.step()
    }

    fn step(&self) -> ExtendStep {
        let ballots = self.votes.iter().map(|vote| match vote {
            Vote::Pending => Ballot::Pending,
            Vote::Extended => Ballot::Agrees,
            Vote::Repaired | Vote::Gone(_) => Ballot::Gone,
            Vote::Failed(_) => Ballot::Failed,
        });
        match verdict(self.quorum, ballots) {
            Verdict::Open => ExtendStep::Wait,
            Verdict::Agreed => ExtendStep::Extended,
            Verdict::Gone => ExtendStep::Lost(self.loss()),
            Verdict::NoQuorum => ExtendStep::NoQuorum,
        }
    }

    fn loss(&self) -> LossReason {
        let gone = self.votes.iter().filter_map(|vote| match vote {
            Vote::Gone(gone) => Some(gone),
            _ => None,
        });
        tally::loss(self.quorum, gone)
    }

    /// The nodes that answered that they do not hold the lock, and nobody else does.
    #[must_use]
    pub fn forgotten(&self) -> NodeSet {
        let mut nodes = NodeSet::NONE;
        for (node, vote) in self.votes.iter().enumerate() {
            if matches!(vote, Vote::Gone(Gone::NotHeld(None))) {
                nodes.insert(node);
            }
        }
        nodes
    }

    /// The same round with its nodes in another order: for the model check.
    #[doc(hidden)]
    #[must_use]
    pub fn reordered(&self, order: &[usize]) -> Self {
        Self {
            quorum: self.quorum,
            votes: reordered(&self.votes, order),
        }
    }

    /// Each node's outcome so far, for error messages.
    pub fn outcomes(&self) -> impl Iterator<Item = NodeOutcome> {
        self.votes.iter().map(|vote| match vote {
            Vote::Pending => NodeOutcome::Pending,
            Vote::Extended => NodeOutcome::Agreed,
            Vote::Gone(Gone::NotHeld(Some(holder))) => NodeOutcome::Held {
                by: holder.value.owner(),
                remaining: holder.remaining,
            },
            Vote::Repaired | Vote::Gone(_) => NodeOutcome::NotHeld,
            Vote::Failed(error) => NodeOutcome::Failed(error.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Holder;
    use crate::words::owner::Owner;
    use crate::words::value::AttemptValue;

    fn round(n: usize, answers: &[Result<Reply, NodeError>]) -> Vec<ExtendStep> {
        let mut round = ExtendTally::new(Quorum::of(n).unwrap());
        let steps = answers.iter().enumerate();
        steps.map(|(i, a)| round.answered(i, a.clone())).collect()
    }

    fn by(who: &str) -> Reply {
        Reply::NotHeld(Some(Holder {
            value: AttemptValue::reported(who),
            token: None,
            remaining: None,
        }))
    }

    #[test]
    fn a_majority_of_extended_decides_at_once() {
        let ok = Ok(Reply::Extended);
        let steps = round(5, &[ok.clone(), ok.clone(), ok]);
        assert_eq!(steps[1..], [ExtendStep::Wait, ExtendStep::Extended]);
    }

    #[test]
    fn a_repaired_node_is_not_a_vote() {
        let steps = round(3, &[Ok(Reply::Repaired), Ok(Reply::Extended)]);
        assert_eq!(steps[1], ExtendStep::Wait);
        let steps = round(3, &[Ok(Reply::Repaired), Ok(Reply::Repaired)]);
        assert_eq!(steps[1], ExtendStep::Lost(LossReason::Unknown));
    }

    #[test]
    fn a_majority_that_has_it_no_more_is_a_loss_and_says_who_has_it() {
        let steps = round(3, &[Ok(by("thief")), Ok(by("thief"))]);
        let Some(ExtendStep::Lost(LossReason::Stolen { by })) = steps.last() else {
            panic!("{steps:?}");
        };
        assert_eq!(by.as_str(), "thief");
    }

    /// It was called stolen by whoever had one node, and expired when nobody had any: two guesses.
    #[test]
    fn no_cause_is_named_that_nobody_saw() {
        let gone = Ok(Reply::NotHeld(None));
        for answers in [
            [gone.clone(), gone.clone()],
            [gone.clone(), Ok(by("late"))],
            [Ok(by("one")), Ok(by("another"))],
        ] {
            let steps = round(3, &answers);
            assert_eq!(
                steps[1],
                ExtendStep::Lost(LossReason::Unknown),
                "{answers:?}"
            );
        }
    }

    /// It was called expired, because nobody had the lock any more.
    #[test]
    fn a_lock_that_was_stolen_and_freed_is_stolen() {
        let stolen = || Ok(Reply::Stolen(AttemptValue::reported("thief")));
        let steps = round(3, &[Ok(Reply::NotHeld(None)), stolen()]);
        let by = Owner::readable("thief");
        assert_eq!(steps[1], ExtendStep::Lost(LossReason::Stolen { by }));
    }

    #[test]
    fn too_few_answers_are_neither_an_extension_nor_a_loss() {
        let down = Err(NodeError::Loading);
        let steps = round(3, &[down.clone(), Ok(Reply::Extended), down]);
        assert_eq!(
            steps,
            [ExtendStep::Wait, ExtendStep::Wait, ExtendStep::NoQuorum]
        );
        let steps = round(1, &[Ok(Reply::Released)]);
        assert_eq!(
            steps,
            [ExtendStep::NoQuorum],
            "an answer out of place is no vote"
        );
    }
}
