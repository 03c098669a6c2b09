//! Releasing a lock: replies in, the next step out. Pure.

use super::tally::{self, Ballot, Gone, Verdict, verdict};
use super::{Quorum, reordered, unexpected_reply};
use crate::lock::Reply;
use crate::outcome::{LossReason, NodeError, NodeOutcome};

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReleaseStep {
    /// Undecided: wait for more replies.
    Wait,
    /// A majority held it and released it.
    Released,
    /// A majority no longer held it.
    Lost(LossReason),
    /// Too few nodes answered to decide.
    NoQuorum,
}

#[derive(Clone, Debug, Hash)]
enum Vote {
    Pending,
    Released,
    Gone(Gone),
    Failed(NodeError),
}

/// One release, sent to all nodes.
#[derive(Clone, Debug, Hash)]
pub struct ReleaseTally {
    quorum: Quorum,
    votes: Vec<Vote>,
}

impl ReleaseTally {
    /// A release whose commands were sent to all nodes.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            votes: vec![Vote::Pending; quorum.nodes()],
        }
    }

    /// Counts one node's reply and returns the next step.
    pub fn answered(&mut self, node: usize, answer: Result<Reply, NodeError>) -> ReleaseStep {
        self.votes[node] = match answer {
            Ok(Reply::Released) => Vote::Released,
            Ok(Reply::NotHeld(by)) => Vote::Gone(Gone::NotHeld(by)),
            Ok(Reply::Stolen(by)) => Vote::Gone(Gone::Stolen(by)),
            Ok(other) => Vote::Failed(unexpected_reply(&other)),
            Err(error) => Vote::Failed(error),
        };
        let ballots = self.votes.iter().map(|vote| match vote {
            Vote::Released => Ballot::Agrees,
            Vote::Gone(_) => Ballot::Gone,
            Vote::Pending => Ballot::Pending,
            Vote::Failed(_) => Ballot::Failed,
        });
        match verdict(self.quorum, ballots) {
            Verdict::Open => ReleaseStep::Wait,
            Verdict::Agreed => ReleaseStep::Released,
            Verdict::Gone => ReleaseStep::Lost(self.loss()),
            Verdict::NoQuorum => ReleaseStep::NoQuorum,
        }
    }

    fn loss(&self) -> LossReason {
        let gone = self.votes.iter().filter_map(|vote| match vote {
            Vote::Gone(gone) => Some(gone),
            _ => None,
        });
        tally::loss(self.quorum, gone)
    }

    /// The same release with its nodes in another order: for the model check.
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
            Vote::Released => NodeOutcome::Agreed,
            Vote::Gone(_) => NodeOutcome::NotHeld,
            Vote::Failed(error) => NodeOutcome::Failed(error.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::owner::Owner;
    use crate::words::value::AttemptValue;

    #[test]
    fn a_release_is_decided_by_a_majority_either_way() {
        let down = || Err(NodeError::Loading);
        let stolen = || Ok(Reply::Stolen(AttemptValue::reported("thief")));
        for (answers, last) in [
            (
                vec![Ok(Reply::Released), Ok(Reply::Released)],
                ReleaseStep::Released,
            ),
            (
                vec![Ok(Reply::NotHeld(None)), Ok(Reply::NotHeld(None))],
                ReleaseStep::Lost(LossReason::Unknown),
            ),
            (
                vec![Ok(Reply::NotHeld(None)), stolen()],
                ReleaseStep::Lost(LossReason::Stolen {
                    by: Owner::readable("thief"),
                }),
            ),
            (
                vec![Ok(Reply::Released), Ok(Reply::NotHeld(None))],
                ReleaseStep::Wait,
            ),
            (
                vec![Ok(Reply::Released), Ok(Reply::NotHeld(None)), down()],
                ReleaseStep::NoQuorum,
            ),
            (vec![down(), down()], ReleaseStep::NoQuorum),
        ] {
            let mut handover = ReleaseTally::new(Quorum::of(3).unwrap());
            let mut step = ReleaseStep::Wait;
            for (node, answer) in answers.into_iter().enumerate() {
                step = handover.answered(node, answer);
            }
            assert_eq!(step, last, "{handover:?}");
        }
    }
}
