//! One attempt to acquire: votes in, the next step out. Pure.
//!
//! A node counts for a token only if its own answers to this attempt were that the lock is granted, and
//! that its register was lifted *from below* the token to it. Two that succeed share a node, which each
//! of them lifted: so their tokens differ, and the later one's is larger. A register that was at the token
//! already is no vote: another may have lifted it there.

use std::time::Duration;

use super::tally::parties;
use super::{MOST_NODES, NodeSet, Quorum, out_of_place, reordered};
use crate::lock::{Holder, Reply};
use crate::outcome::{NodeError, NodeOutcome};
use crate::words::token::FencingToken;
use crate::words::value::{AttemptValue, Owner};

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireStep {
    /// Nothing is decided: wait for more answers.
    Wait,
    /// Lift the register of these nodes to that token, while they hold the lock for us, then go on waiting.
    Raise {
        /// The nodes that granted less, or all that granted.
        nodes: NodeSet,
        /// The largest register that was reported, or more.
        to: FencingToken,
    },
    /// A majority lifted its register to exactly this token under our value. The lock is ours if there is still
    /// time left.
    Certified(FencingToken),
    /// A majority is out of reach: release what was granted.
    Blocked,
}

/// Why an attempt was blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Enough nodes could be asked, and another client holds it: on a majority, or as the only holder on
    /// any.
    Held {
        /// Who.
        by: Owner,
        /// Its own token, for people: it tells since when.
        token: Option<FencingToken>,
        /// When enough nodes may be free for us, at the earliest. `None`: never by itself.
        remaining: Option<Duration>,
    },
    /// Enough nodes could be asked, and several others hold it on some of them, none on a majority.
    Split {
        /// Who, in the order of the nodes.
        between: Vec<Owner>,
    },
    /// Enough nodes granted it, and others have raised the fence registers above every token that was tried.
    Overtaken,
    /// Too few nodes could be asked to grant it.
    NoQuorum,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Vote {
    Pending,
    Granted {
        /// The register, as far as it is known.
        counter: FencingToken,
        /// Whether it was lifted there from below, by this attempt.
        lifted: bool,
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
    /// How often all nodes were asked to lift their register above everything seen.
    rounds: u32,
    evicted: Option<Owner>,
}

/// How often an attempt raises its token above everything seen. Then it gives up: another attempt is as fast
/// as it is.
const MOST_ROUNDS: u32 = 2;

/// How far above everything seen the first of these rounds goes: a millisecond. Each one goes twice as far
/// as the one before.
const FIRST_GAP: u64 = 1000;

/// Which token the reported counters certify, when so many nodes are needed.
pub type Certify = fn(counters: &[FencingToken], needed: usize) -> Option<FencingToken>;

/// The rule: the largest register that was lifted, if enough nodes were lifted to exactly it.
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
            rounds: 0,
            evicted: None,
        }
    }

    /// Takes in the answer of one node, to the attempt itself or to a raise, and says what follows.
    pub fn answered(&mut self, node: usize, answer: Result<Reply, NodeError>) -> AcquireStep {
        let vote = match answer {
            // Nothing is above it.
            Ok(Reply::NotRaised(FencingToken::MAX)) => Vote::Failed(NodeError::Exhausted),
            Ok(Reply::Granted { counter, evicted }) => {
                let evicted = evicted.map(|value| value.owner());
                self.evicted = self.evicted.take().or(evicted);
                self.granted(node, counter, true)
            }
            Ok(Reply::Raised(counter)) => self.granted(node, counter, true),
            Ok(Reply::NotRaised(counter)) => self.granted(node, counter, false),
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

    fn granted(&self, node: usize, counter: FencingToken, lifted: bool) -> Vote {
        // A larger raise may be under way, whose answer follows.
        let asked = match &self.votes[node] {
            Vote::Granted { asked, .. } => counter.max(*asked),
            _ => counter,
        };
        Vote::Granted {
            counter,
            lifted,
            asked,
        }
    }

    fn step(&mut self) -> AcquireStep {
        let needed = self.quorum.needed();
        let mut counters = [FencingToken::ZERO; MOST_NODES];
        let (mut granted, mut lifted, mut pending) = (0, 0, 0);
        for vote in &self.votes {
            match vote {
                Vote::Granted {
                    counter,
                    lifted: is_lifted,
                    asked,
                } => {
                    granted += 1;
                    // Where a raise is under way, the node will store the larger token with the lock.
                    if *is_lifted && asked == counter {
                        counters[lifted] = *counter;
                        lifted += 1;
                    }
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
        if let Some(token) = (self.certify)(&counters[..lifted], needed) {
            return AcquireStep::Certified(token);
        }
        self.raise()
    }

    /// What it takes to lift a majority to the same token.
    fn raise(&mut self) -> AcquireStep {
        // The largest that a node was lifted to, or may be by what is under way; and what was seen at all.
        let (mut goal, mut seen) = (FencingToken::ZERO, FencingToken::ZERO);
        for vote in &self.votes {
            if let Vote::Granted {
                counter,
                lifted,
                asked,
            } = vote
            {
                seen = seen.max(*counter).max(*asked);
                if *lifted || asked > counter {
                    goal = goal.max(*asked);
                }
            }
        }
        // A node that is there already without having been lifted there cannot count for it any more.
        let can_reach = |vote: &Vote| {
            matches!(vote, Vote::Granted { counter, lifted, .. }
                if *counter < goal || (*lifted && *counter == goal))
        };
        let votes = self.votes.iter().filter(|vote| can_reach(vote)).count();
        if votes < self.quorum.needed() {
            if self.rounds == MOST_ROUNDS {
                return AcquireStep::Blocked;
            }
            let gap = FIRST_GAP << self.rounds;
            self.rounds += 1;
            goal = FencingToken::saturating(seen.get() + gap);
            if goal <= seen {
                return AcquireStep::Blocked;
            }
        }
        let mut nodes = NodeSet::NONE;
        for (node, vote) in self.votes.iter_mut().enumerate() {
            if let Vote::Granted { counter, asked, .. } = vote
                && *asked < goal
                && *counter < goal
            {
                *asked = goal;
                nodes.insert(node);
            }
        }
        if nodes.is_empty() {
            AcquireStep::Wait
        } else {
            AcquireStep::Raise { nodes, to: goal }
        }
    }

    /// The nodes that count for this token.
    #[must_use]
    pub fn counted_for(&self, token: FencingToken) -> NodeSet {
        let mut nodes = NodeSet::NONE;
        for (node, vote) in self.votes.iter().enumerate() {
            if matches!(vote, Vote::Granted { counter, lifted: true, .. } if *counter == token) {
                nodes.insert(node);
            }
        }
        nodes
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

    /// The nodes on which another client held the lock.
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
        let nodes_of = |holder: &Holder| held.iter().filter(|h| h.value == holder.value).count();
        if open >= needed {
            // All is granted, and no token could be had.
            return Denial::Overtaken;
        }
        let Some(by) = held.iter().max_by_key(|holder| nodes_of(holder)) else {
            return Denial::NoQuorum;
        };
        if open + held.len() < needed {
            return Denial::NoQuorum;
        }
        if nodes_of(by) < needed.min(held.len()) {
            let between = parties(held.iter().copied());
            return Denial::Split {
                between: between.iter().map(AttemptValue::owner).collect(),
            };
        }
        let (by, token) = (by.value.owner(), by.token);
        // Endless holders last: the k-th node to become free is the one that opens the way.
        held.sort_by_key(|holder| holder.remaining.unwrap_or(Duration::MAX));
        let opens_the_way = needed.saturating_sub(open).saturating_sub(1);
        let remaining = held.get(opens_the_way).and_then(|holder| holder.remaining);
        Denial::Held {
            by,
            token,
            remaining,
        }
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
