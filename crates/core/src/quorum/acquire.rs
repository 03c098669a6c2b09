//! One attempt to acquire: votes in, the next step out. Pure.
//!
//! It must never count a node for a token that the node did not report exactly, and never more
//! nodes than have answered under this attempt's value.

use std::time::Duration;

use super::{MOST_NODES, NodeSet, Quorum, out_of_place, reordered};
use crate::lock::{Holder, Reply};
use crate::outcome::{NodeError, NodeOutcome};
use crate::words::token::FencingToken;
use crate::words::value::Owner;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireStep {
    /// Nothing is decided: wait for more answers.
    Wait,
    /// Lift the counter of these nodes to that token, then go on waiting.
    Raise {
        /// The nodes that granted less.
        nodes: NodeSet,
        /// The largest counter that was reported.
        to: FencingToken,
    },
    /// A majority reported exactly this token under our value. The lock is ours if there is still
    /// time left.
    Certified(FencingToken),
    /// A majority is out of reach: give back what was granted.
    Blocked,
}

/// Why an attempt was blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Enough nodes could be asked, and somebody else has it.
    Held {
        /// Who has most of the nodes.
        by: Owner,
        /// When enough nodes may be free for us, at the earliest. `None`: never by itself.
        remaining: Option<Duration>,
    },
    /// So few nodes could be asked that nobody could have got it.
    NoQuorum,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Vote {
    Pending,
    Granted {
        counter: FencingToken,
        /// The highest that we asked the node to raise it to.
        asked: FencingToken,
    },
    Held(Holder),
    Tombstoned,
    /// Granted at first, and gone when its counter was to be raised.
    GoneAgain,
    Failed(NodeError),
}

/// One attempt to acquire a lock on n nodes.
#[derive(Clone, Debug, Hash)]
pub struct AcquireTally {
    quorum: Quorum,
    certify: Certify,
    votes: Vec<Vote>,
    evicted: Option<Owner>,
}

/// Which token the reported counters certify, when so many nodes are needed.
pub type Certify = fn(counters: &[FencingToken], needed: usize) -> Option<FencingToken>;

/// The rule: the largest counter, if enough nodes report exactly it.
///
/// A node with a larger counter does not count for a smaller token. Two clients, three nodes and a
/// late grant are enough to hand the same token out twice otherwise: see this module's tests.
#[must_use]
pub fn reported_exactly(counters: &[FencingToken], needed: usize) -> Option<FencingToken> {
    let largest = *counters.iter().max()?;
    let exact = counters.iter().filter(|counter| **counter == largest);
    (exact.count() >= needed).then_some(largest)
}

impl AcquireTally {
    /// An attempt whose commands have been sent to all nodes.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self::certified_by(quorum, reported_exactly)
    }

    /// An attempt under another rule: for the checks that must find a wrong rule wrong.
    #[doc(hidden)]
    #[must_use]
    pub fn certified_by(quorum: Quorum, certify: Certify) -> Self {
        Self {
            quorum,
            certify,
            votes: vec![Vote::Pending; quorum.nodes()],
            evicted: None,
        }
    }

    /// Takes in the answer of one node, to the attempt itself or to a raise, and says what follows.
    pub fn answered(&mut self, node: usize, answer: Result<Reply, NodeError>) -> AcquireStep {
        let vote = match answer {
            Ok(Reply::Granted { counter, evicted }) => {
                let evicted = evicted.map(|value| value.owner());
                self.evicted = self.evicted.take().or(evicted);
                Vote::Granted {
                    counter,
                    asked: counter,
                }
            }
            Ok(Reply::Raised(counter)) => Vote::Granted {
                counter,
                asked: counter,
            },
            Ok(Reply::Held(holder)) => Vote::Held(holder),
            Ok(Reply::Tombstoned) => Vote::Tombstoned,
            Ok(Reply::NotHeld(Some(holder))) => Vote::Held(holder),
            Ok(Reply::NotHeld(None)) => Vote::GoneAgain,
            Ok(Reply::Exhausted) => Vote::Failed(NodeError::Exhausted),
            Ok(other) => Vote::Failed(out_of_place(&other)),
            Err(error) => Vote::Failed(error),
        };
        self.votes[node] = vote;
        self.step()
    }

    fn step(&mut self) -> AcquireStep {
        let needed = self.quorum.needed();
        let mut counters = [FencingToken::ZERO; MOST_NODES];
        let mut granted = 0;
        let mut pending = 0;
        for vote in &self.votes {
            match vote {
                Vote::Granted { counter, .. } => {
                    counters[granted] = *counter;
                    granted += 1;
                }
                Vote::Pending => pending += 1,
                _ => {}
            }
        }
        if granted + pending < needed {
            return AcquireStep::Blocked;
        }
        if granted < needed {
            return AcquireStep::Wait;
        }
        let counters = &counters[..granted];
        if let Some(token) = (self.certify)(counters, needed) {
            return AcquireStep::Certified(token);
        }
        let to = counters.iter().copied().max().unwrap_or_default();
        let mut nodes = NodeSet::NONE;
        for (node, vote) in self.votes.iter_mut().enumerate() {
            if let Vote::Granted { asked, .. } = vote
                && *asked < to
            {
                *asked = to;
                nodes.insert(node);
            }
        }
        if nodes.is_empty() {
            AcquireStep::Wait
        } else {
            AcquireStep::Raise { nodes, to }
        }
    }

    /// Whom a steal threw out.
    #[must_use]
    pub fn evicted(&self) -> Option<&Owner> {
        self.evicted.as_ref()
    }

    /// The nodes on which something of this attempt may be left: all but those that refused it.
    #[must_use]
    pub fn may_hold(&self) -> NodeSet {
        let mut nodes = NodeSet::NONE;
        for (node, vote) in self.votes.iter().enumerate() {
            if !matches!(vote, Vote::Held(_) | Vote::Tombstoned) {
                nodes.insert(node);
            }
        }
        nodes
    }

    /// The nodes on which somebody else had the lock.
    #[must_use]
    pub fn refused(&self) -> NodeSet {
        let mut nodes = NodeSet::NONE;
        for (node, vote) in self.votes.iter().enumerate() {
            if matches!(vote, Vote::Held(_)) {
                nodes.insert(node);
            }
        }
        nodes
    }

    /// Why a blocked attempt was blocked.
    #[must_use]
    pub fn denial(&self) -> Denial {
        let needed = self.quorum.needed();
        let mut held: Vec<&Holder> = Vec::new();
        let mut open = 0;
        for vote in &self.votes {
            match vote {
                Vote::Held(holder) => held.push(holder),
                Vote::Pending | Vote::Granted { .. } => open += 1,
                _ => {}
            }
        }
        let most = |holder: &&&Holder| held.iter().filter(|h| h.value == holder.value).count();
        let Some(by) = held.iter().max_by_key(most) else {
            return Denial::NoQuorum;
        };
        if open + held.len() < needed {
            return Denial::NoQuorum;
        }
        let by = by.value.owner();
        // Endless holders last: the k-th node to become free is the one that opens the way.
        held.sort_by_key(|holder| holder.remaining.unwrap_or(Duration::MAX));
        let opens_the_way = needed.saturating_sub(open).saturating_sub(1);
        let remaining = held.get(opens_the_way).and_then(|holder| holder.remaining);
        Denial::Held { by, remaining }
    }

    /// The same attempt with its nodes in another order: for the model check.
    #[doc(hidden)]
    #[must_use]
    pub fn reordered(&self, order: &[usize]) -> Self {
        Self {
            votes: reordered(&self.votes, order),
            ..self.clone()
        }
    }

    /// What each node has said so far, for people.
    pub fn outcomes(&self) -> impl Iterator<Item = NodeOutcome> {
        self.votes.iter().map(|vote| match vote {
            Vote::Pending => NodeOutcome::Pending,
            Vote::Granted { .. } => NodeOutcome::Agreed,
            Vote::Held(holder) => NodeOutcome::Held {
                by: holder.value.owner(),
                remaining: holder.remaining,
            },
            Vote::Tombstoned => NodeOutcome::Tombstoned,
            Vote::GoneAgain => NodeOutcome::NotHeld,
            Vote::Failed(error) => NodeOutcome::Failed(error.clone()),
        })
    }
}

#[cfg(test)]
mod tests;
