//! Releasing a lock: answers in, the next step out. Pure.

use super::tally::{Ballot, Verdict, verdict};
use super::{Quorum, out_of_place, reordered};
use crate::lock::Reply;
use crate::outcome::{NodeError, NodeOutcome};

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseStep {
    /// Nothing is decided: wait for more answers.
    Wait,
    /// A majority had it and released it.
    Released,
    /// A majority no longer had it.
    Lost,
    /// Too few nodes could be asked to say either.
    NoQuorum,
}

/// One release, sent to all nodes.
#[derive(Clone, Debug, Hash)]
pub struct ReleaseTally {
    quorum: Quorum,
    outcomes: Vec<NodeOutcome>,
}

impl ReleaseTally {
    /// A release whose commands have been sent to all nodes.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self {
            quorum,
            outcomes: vec![NodeOutcome::Pending; quorum.nodes()],
        }
    }

    /// Takes in the answer of one node and says what follows.
    pub fn answered(&mut self, node: usize, answer: Result<Reply, NodeError>) -> ReleaseStep {
        self.outcomes[node] = match answer {
            Ok(Reply::Released) => NodeOutcome::Agreed,
            Ok(Reply::NotHeld(_)) => NodeOutcome::NotHeld,
            Ok(other) => NodeOutcome::Failed(out_of_place(&other)),
            Err(error) => NodeOutcome::Failed(error),
        };
        let ballots = self.outcomes.iter().map(|outcome| match outcome {
            NodeOutcome::Agreed => Ballot::Agrees,
            NodeOutcome::NotHeld => Ballot::Gone,
            NodeOutcome::Pending => Ballot::Pending,
            _ => Ballot::Failed,
        });
        match verdict(self.quorum, ballots) {
            Verdict::Open => ReleaseStep::Wait,
            Verdict::Agreed => ReleaseStep::Released,
            Verdict::Gone => ReleaseStep::Lost,
            Verdict::NoQuorum => ReleaseStep::NoQuorum,
        }
    }

    /// The same release with its nodes in another order: for the model check.
    #[doc(hidden)]
    #[must_use]
    pub fn reordered(&self, order: &[usize]) -> Self {
        Self {
            quorum: self.quorum,
            outcomes: reordered(&self.outcomes, order),
        }
    }

    /// What each node has said so far, for people.
    pub fn outcomes(&self) -> impl Iterator<Item = NodeOutcome> {
        self.outcomes.iter().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_decided_by_a_majority_either_way() {
        let down = || Err(NodeError::Loading);
        for (answers, last) in [
            (
                vec![Ok(Reply::Released), Ok(Reply::Released)],
                ReleaseStep::Released,
            ),
            (
                vec![Ok(Reply::NotHeld(None)), Ok(Reply::NotHeld(None))],
                ReleaseStep::Lost,
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
