//! The quorum algorithm: acquire, certify, extend and release over n independent nodes.
//!
//! The decisions are pure: [`AcquireTally`], [`ExtendTally`] and [`ReleaseTally`] take the nodes'
//! replies and return the next step; [`tally`] counts for them, and [`unresolved`] tracks which
//! commands may still arrive. They send nothing, wait for nothing and read no clock, so the tests,
//! the simulation and the model check run them unchanged. The library's `driver` sends and times
//! out, and decides nothing.
//!
//! A quorum is a majority of the *configured* nodes, never of the reachable ones.
//!
//! # Why tokens grow
//! A node counts for a token only if its own replies to this attempt were "granted" and "the
//! register was raised from below the token to it". A token is *certified* when `q` nodes count for
//! it. Two certified acquisitions share a node whose register each of them raised, and a register
//! never decreases: so their tokens differ, and the later one's is larger. The argument uses no
//! clock, and does not care who else raises the register: attempts that fail may do so too.

mod acquire;
mod extend;
pub mod failover;
mod holder;
pub mod membership;
pub mod proposal;
mod release;
mod release_lease;
pub mod repeated;
pub mod slots;
pub mod tally;
pub mod unresolved;

pub use acquire::{AcquireStep, AcquireTally, Certify, Denial, reported_exactly};
pub use extend::{ExtendStep, ExtendTally};
pub use holder::token_of_holder;
pub use release::{ReleaseStep, ReleaseTally};
pub use release_lease::{LeaseRelease, LeaseReleaseTally};

use crate::outcome::NodeError;

/// The maximum number of nodes of one client.
pub const MOST_NODES: usize = 9;

/// The number of nodes, and how many of them decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// The quorum of this many configured nodes; `None` unless 1 to 9.
    #[must_use]
    pub const fn of(nodes: usize) -> Option<Self> {
        if nodes >= 1 && nodes <= MOST_NODES {
            Some(Self { nodes })
        } else {
            None
        }
    }

    /// The number of configured nodes.
    #[must_use]
    pub const fn nodes(self) -> usize {
        self.nodes
    }

    /// The size of a majority: `n / 2 + 1`.
    #[must_use]
    pub const fn needed(self) -> usize {
        self.nodes / 2 + 1
    }

    /// How many replies it takes before anything can be decided: a majority in favour, or so many against that none
    /// can come about any more.
    #[must_use]
    pub const fn decisive(self) -> usize {
        self.nodes - self.needed() + 1
    }
}

/// A set of nodes, by index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u16);

impl NodeSet {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The first `nodes` nodes.
    #[must_use]
    pub const fn all(nodes: usize) -> Self {
        Self((1 << nodes) - 1)
    }

    /// Adds a node.
    pub fn insert(&mut self, node: usize) {
        self.0 |= 1 << node;
    }

    /// Removes a node.
    pub fn remove(&mut self, node: usize) {
        self.0 &= !(1 << node);
    }

    /// The nodes that are not in the other set.
    #[must_use]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the set contains the node.
    #[must_use]
    pub const fn contains(self, node: usize) -> bool {
        self.0 & (1 << node) != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of nodes in the set.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The nodes, in order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..16).filter(move |node| self.contains(*node))
    }
}

/// Per-node data with the nodes in another order. The model check treats two states that differ
/// only in that as one.
fn reordered<T: Clone>(each: &[T], order: &[usize]) -> Vec<T> {
    order.iter().map(|node| each[*node].clone()).collect()
}

/// An error for a reply that the command cannot have: a fault of the node, never a vote.
#[must_use]
pub fn unexpected_reply(reply: &impl std::fmt::Debug) -> NodeError {
    NodeError::Other(format!("unexpected reply: {reply:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_is_more_than_half_of_the_configured_nodes() {
        let needed: Vec<_> = (1..=9).map(|n| Quorum::of(n).unwrap().needed()).collect();
        assert_eq!(needed, [1, 2, 2, 3, 3, 4, 4, 5, 5]);
        let decisive: Vec<_> = (1..=9).map(|n| Quorum::of(n).unwrap().decisive()).collect();
        assert_eq!(decisive, [1, 1, 2, 2, 3, 3, 4, 4, 5]);
        assert!(Quorum::of(0).is_none() && Quorum::of(10).is_none());
    }

    #[test]
    fn a_node_set_knows_its_nodes() {
        let mut set = NodeSet::all(5);
        set.remove(2);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 3, 4]);
        assert_eq!(
            (set.len(), set.contains(2), set.is_empty()),
            (4, false, false)
        );
        set.insert(2);
        assert_eq!(set, NodeSet::all(5));
        assert!(NodeSet::NONE.is_empty());
    }
}
