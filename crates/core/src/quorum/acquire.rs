//! One attempt to acquire: replies in, the next step out. Pure.
//!
//! A node counts for a token only if its own replies to this attempt say that the lock was granted
//! and that its register was raised *from below* the token to it. Two attempts that succeed share a
//! node that each of them raised, so their tokens differ, and the later one's is larger. A register
//! that was already at the token is not a vote: another attempt may have raised it.

use std::time::Duration;

use super::tally::parties;
use super::{MOST_NODES, NodeSet, Quorum, reordered, unexpected_reply};
use crate::lock::{Holder, Reply};
use crate::outcome::{NodeError, NodeOutcome};
use crate::words::owner::Owner;
use crate::words::token::FencingToken;
use crate::words::value::AttemptValue;

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireStep {
    /// Undecided: wait for more replies.
    Wait,
    /// Raise the registers of these nodes to this token while they hold the lock for this attempt,
    /// then wait.
    Raise {
        /// The nodes that granted less, or all that granted.
        nodes: NodeSet,
        /// The largest register reported, or more.
        to: FencingToken,
    },
    /// A majority raised its register to exactly this token under our value. The lock is acquired
    /// if there is time left.
    Certified(FencingToken),
    /// A majority is out of reach: release what was granted.
    Blocked,
}

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Enough nodes answered, and another client holds the lock: on a majority, or as the only
    /// holder on any node.
    Held {
        /// The holder.
        by: Owner,
        /// Its own token, which tells since when the lock is held.
        token: Option<FencingToken>,
        /// The earliest time at which enough nodes may be free. `None`: not without a release.
        remaining: Option<Duration>,
    },
    /// Enough nodes answered, and several clients hold the lock on some nodes each, none on a
    /// majority.
    Split {
        /// The holders, in node order.
        between: Vec<Owner>,
    },
    /// Enough nodes granted the lock, but concurrent attempts raised the registers above every
    /// token that was tried.
    Overtaken,
    /// Too few nodes answered.
    NoQuorum,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Vote {
    Pending,
    Granted {
        /// The register, as far as known.
        register: FencingToken,
        /// Whether this attempt raised it there from below.
        raised: bool,
        /// The highest raise that was requested.
        asked: FencingToken,
    },
    Held(Holder),
    Tombstoned,
    /// Granted at first, and lost by the time its register was to be raised.
    GoneAgain,
    Failed(NodeError),
}

/// One attempt to acquire a lock on n nodes.
#[derive(Clone, Debug, Hash)]
pub struct AcquireTally {
    quorum: Quorum,
    certify: Certify,
    votes: Vec<Vote>,
    /// How often all nodes were asked to raise their registers above everything seen.
    rounds: u32,
    evicted: Option<AttemptValue>,
}

/// How often an attempt raises its token above everything seen before it gives up to a concurrent
/// attempt.
const MOST_ROUNDS: u32 = 2;

/// How far above everything seen the first round goes: a millisecond. Each further round doubles
/// it.
const FIRST_GAP: u64 = 1000;

/// Which token the reported registers certify, for the required number of nodes.
pub type Certify = fn(registers: &[FencingToken], needed: usize) -> Option<FencingToken>;

/// The rule: the largest raised register, if enough nodes were raised to exactly it.
///
/// A node with a larger register does not count for a smaller token. Otherwise two clients, three
/// nodes and a late grant are enough to issue the same token twice: see this module's tests.
#[must_use]
pub fn reported_exactly(registers: &[FencingToken], needed: usize) -> Option<FencingToken> {
    let largest = *registers.iter().max()?;
    let exact = registers.iter().filter(|register| **register == largest);
    (exact.count() >= needed).then_some(largest)
}

impl AcquireTally {
    /// An attempt whose commands were sent to all nodes.
    #[must_use]
    pub fn new(quorum: Quorum) -> Self {
        Self::certified_by(quorum, reported_exactly)
    }

    /// An attempt under another rule: for checks that must find a wrong rule.
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

    /// Counts one node's reply, to the attempt itself or to a raise, and returns the next step.
    pub fn answered(&mut self, node: usize, answer: Result<Reply, NodeError>) -> AcquireStep {
        let vote = match answer {
            // No token is larger.
            Ok(Reply::NotRaised(FencingToken::MAX)) => Vote::Failed(NodeError::Exhausted),
            Ok(Reply::Granted { register, evicted }) => {
                self.evicted = self.evicted.take().or(evicted);
                self.granted(node, register, true)
            }
            Ok(Reply::Raised(register)) => self.granted(node, register, true),
            Ok(Reply::NotRaised(register)) => self.granted(node, register, false),
            Ok(Reply::Held(holder)) => Vote::Held(holder),
            Ok(Reply::Tombstoned) => Vote::Tombstoned,
            Ok(Reply::NotHeld(Some(holder))) => Vote::Held(holder),
            Ok(Reply::NotHeld(None)) => Vote::GoneAgain,
            Ok(Reply::Exhausted) => Vote::Failed(NodeError::Exhausted),
            Ok(other) => Vote::Failed(unexpected_reply(&other)),
            Err(error) => Vote::Failed(error),
        };
        self.votes[node] = vote;
        self.step()
    }

    fn granted(&self, node: usize, register: FencingToken, raised: bool) -> Vote {
        // A larger raise may be in flight, whose reply follows.
        let asked = match &self.votes[node] {
            Vote::Granted { asked, .. } => register.max(*asked),
            _ => register,
        };
        Vote::Granted {
            register,
            raised,
            asked,
        }
    }

    fn step(&mut self) -> AcquireStep {
        let needed = self.quorum.needed();
        let mut registers = [FencingToken::ZERO; MOST_NODES];
        let (mut granted, mut raised, mut pending) = (0, 0, 0);
        for vote in &self.votes {
            match vote {
                Vote::Granted {
                    register,
                    raised: is_raised,
                    asked,
                } => {
                    granted += 1;
                    // With a raise in flight, the node will store the larger token with the lock.
                    if *is_raised && asked == register {
                        registers[raised] = *register;
                        raised += 1;
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
        if let Some(token) = (self.certify)(&registers[..raised], needed) {
            return AcquireStep::Certified(token);
        }
        self.raise()
    }

    /// What it takes to raise a majority to the same token.
    fn raise(&mut self) -> AcquireStep {
        // The largest token that a node was raised to or may be raised to by calls in flight; and
        // the largest seen.
        let (mut goal, mut seen) = (FencingToken::ZERO, FencingToken::ZERO);
        for vote in &self.votes {
            if let Vote::Granted {
                register,
                raised,
                asked,
            } = vote
            {
                seen = seen.max(*register).max(*asked);
                if *raised || asked > register {
                    goal = goal.max(*asked);
                }
            }
        }
        // A node that is already there without having been raised cannot count for it.
        let can_reach = |vote: &Vote| {
            matches!(vote, Vote::Granted { register, raised, .. }
                if *register < goal || (*raised && *register == goal))
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
            if let Vote::Granted {
                register, asked, ..
            } = vote
                && *asked < goal
                && *register < goal
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
            if matches!(vote, Vote::Granted { register, raised: true, .. } if *register == token) {
                nodes.insert(node);
            }
        }
        nodes
    }

    /// The holder that a steal evicted.
    #[must_use]
    pub fn evicted(&self) -> Option<&AttemptValue> {
        self.evicted.as_ref()
    }

    /// The nodes that may still hold something of this attempt: all but those that refused it.
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

    /// The nodes where another client held the lock.
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

    /// Why the attempt failed.
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
            // Every node granted it, and no token could be certified.
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
        // Holders without expiry last: the k-th node to become free decides.
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

    /// Each node's outcome so far, for error messages.
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
