//! What a node of a Cluster says in place of an answer. It proves that nothing was done.

use crate::error::NodeError;

/// Why a node did not carry out a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The slot is another shard's.
    Moved,
    /// The slot is on its way, and with it some of the keys.
    ///
    /// `ASK` too: it says that the keys are where the slot goes to, if they are anywhere. A script has keys
    /// that do not exist, and the node there carries it out only when all of them do; so there is nothing to
    /// follow, and a lock waits until its slot has arrived.
    Passing,
    /// The Cluster, or the slot's shard, is down.
    Down,
}

impl Refusal {
    pub(super) fn of(error: &NodeError) -> Option<Self> {
        let (NodeError::Unsuitable(text) | NodeError::Other(text)) = error else {
            return None;
        };
        match text.split(' ').next() {
            Some("MOVED") => Some(Self::Moved),
            Some("ASK" | "TRYAGAIN") => Some(Self::Passing),
            Some("CLUSTERDOWN") => Some(Self::Down),
            _ => None,
        }
    }

    /// Whether the slot is elsewhere, or will be.
    pub(super) fn is_passing(self) -> bool {
        self != Self::Down
    }
}
