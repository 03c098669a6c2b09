//! [`Unresolved`]: which commands of a claim may still reach a node after its release, and
//! therefore when the release must leave a tombstone.
//!
//! A connection preserves order, so a release arrives after the acquire that it undoes, and almost
//! always nothing is left to do. When a command ended without a reply, its connection may have been
//! replaced: then it may arrive after a later release, and leave a lock that no lease holds. A
//! tombstone refuses it.

use super::NodeSet;
use crate::outcome::NodeError;

/// The kind of command that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    /// A command that can make the node hold the lock: acquire, raise or extend.
    Claim,
    /// A release that was sent at once.
    Release,
    /// A release with a tombstone, sent once the node was back.
    Deferred,
}

impl Sent {
    /// Whether the node may hold the lock now or later, after this error.
    #[must_use]
    pub fn leaves_open(self, error: &NodeError) -> bool {
        match self {
            Self::Claim => error.is_uncertain(),
            // Even if it certainly did not arrive.
            Self::Release | Self::Deferred => error.may_pass(),
        }
    }
}

/// What to do about a node when a command has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Followup {
    /// Nothing: what may still arrive is handled, or there is no release yet.
    Nothing,
    /// Send a release with a tombstone as soon as the node is reachable.
    Tombstone,
}

/// The commands of one claim that may still arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Unresolved {
    /// The nodes at which a command ended without a reply.
    unknown: NodeSet,
    /// The nodes that have a deferred release with a tombstone. It is retried until it is answered
    /// or the lock has expired, so one is enough.
    deferred: NodeSet,
    is_released: bool,
}

impl Unresolved {
    /// Records that a command to this node ended, with its error if it failed.
    pub fn ended(&mut self, node: usize, sent: Sent, error: Option<&NodeError>) -> Followup {
        if !error.is_some_and(|error| sent.leaves_open(error)) {
            return Followup::Nothing;
        }
        self.unknown.insert(node);
        match sent {
            Sent::Deferred => Followup::Tombstone,
            _ => self.defer(node),
        }
    }

    /// Records that the reply of a command to this node will never be read.
    pub fn forget(&mut self, node: usize) {
        self.unknown.insert(node);
    }

    /// Merges other commands of the same claim.
    pub fn join(&mut self, other: Self) {
        for node in other.unknown.iter() {
            self.unknown.insert(node);
        }
    }

    /// Whether a release that is sent to this node now must leave a tombstone.
    #[must_use]
    pub fn needs_tombstone(&self, node: usize) -> bool {
        self.unknown.contains(node)
    }

    /// Records that the release is being sent to these nodes. Returns the other nodes that need a
    /// tombstone; they get a deferred release.
    pub fn released(&mut self, nodes: NodeSet) -> NodeSet {
        self.is_released = true;
        let left_out = self.unknown.without(nodes);
        for node in left_out.iter() {
            self.deferred.insert(node);
        }
        left_out
    }

    fn defer(&mut self, node: usize) -> Followup {
        if !self.is_released || self.deferred.contains(node) {
            return Followup::Nothing;
        }
        self.deferred.insert(node);
        Followup::Tombstone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken() -> NodeError {
        NodeError::Disconnected("reset".into())
    }

    fn nodes(some: &[usize]) -> NodeSet {
        let mut set = NodeSet::NONE;
        some.iter().for_each(|node| set.insert(*node));
        set
    }

    #[test]
    fn a_release_behind_answered_commands_leaves_no_tombstone() {
        let mut open = Unresolved::default();
        assert_eq!(open.ended(0, Sent::Claim, None), Followup::Nothing);
        let refused = NodeError::Unreachable("refused".into());
        // It was never sent.
        let _ = open.ended(1, Sent::Claim, Some(&refused));
        assert!(!open.needs_tombstone(0) && !open.needs_tombstone(1));
        assert_eq!(open.released(NodeSet::all(3)), NodeSet::NONE);
    }

    #[test]
    fn a_command_without_an_answer_makes_the_release_of_its_node_leave_one() {
        let mut open = Unresolved::default();
        let followup = open.ended(1, Sent::Claim, Some(&broken()));
        assert_eq!(followup, Followup::Nothing, "nothing is released yet");
        open.forget(2);
        let with: Vec<_> = (0..3).filter(|node| open.needs_tombstone(*node)).collect();
        assert_eq!(with, [1, 2]);
    }

    #[test]
    fn a_node_that_gets_no_release_gets_a_tombstone_later() {
        let mut open = Unresolved::default();
        open.forget(0);
        open.forget(2);
        assert_eq!(open.released(nodes(&[1, 2])), nodes(&[0]));
        let followup = open.ended(0, Sent::Claim, Some(&broken()));
        assert_eq!(followup, Followup::Nothing, "it is on its way already");
    }

    #[test]
    fn what_ends_without_an_answer_after_the_release_is_followed_by_a_tombstone_once() {
        for sent in [Sent::Claim, Sent::Release] {
            let mut open = Unresolved::default();
            assert!(open.released(NodeSet::all(3)).is_empty());
            assert_eq!(open.ended(1, sent, Some(&broken())), Followup::Tombstone);
            let again = open.ended(1, Sent::Claim, Some(&broken()));
            assert_eq!(again, Followup::Nothing);
        }
    }

    #[test]
    fn a_release_that_a_node_could_not_be_asked_for_is_sent_again_and_a_refused_one_is_not() {
        let mut open = Unresolved::default();
        let _ = open.released(NodeSet::all(3));
        let loading = open.ended(0, Sent::Release, Some(&NodeError::Loading));
        assert_eq!(loading, Followup::Tombstone);
        let replica = open.ended(1, Sent::Release, Some(&NodeError::Replica));
        assert_eq!(replica, Followup::Nothing);
    }

    #[test]
    fn a_deferred_release_is_sent_until_it_is_answered() {
        let mut open = Unresolved::default();
        let _ = open.released(NodeSet::all(1));
        for _ in 0..3 {
            let followup = open.ended(0, Sent::Deferred, Some(&broken()));
            assert_eq!(followup, Followup::Tombstone);
        }
        assert_eq!(open.ended(0, Sent::Deferred, None), Followup::Nothing);
    }

    #[test]
    fn what_two_rounds_know_adds_up() {
        let (mut one, mut other) = (Unresolved::default(), Unresolved::default());
        one.forget(0);
        other.forget(2);
        one.join(other);
        assert!(one.needs_tombstone(0) && one.needs_tombstone(2) && !one.needs_tombstone(1));
    }
}
